/* Which sequence is sample number s of a run: arithmetic only, so that every rank under every layout, before and after
 * a restart, gives the same answer. The whole state is ONE number: samples consumed so far.
 *
 * Sequences: number i is tokens i*T .. i*T+T; the label of its last position is the first input of sequence i+1. So n
 * tokens hold floor((n-1)/T) sequences (case B63).
 * Epochs: an epoch takes steps_per_epoch = floor(sequences / global_batch) whole steps; the `left_over` sequences at
 * the end of its order are left out in this epoch and reported (B38, B64: the tail is dropped, never padded or
 * wrapped). With shuffle the order is wh_rng_permute(seed, epoch), so other sequences are left out in each epoch;
 * without, it is file order.
 * Sample s belongs to step s / global_batch at position s % global_batch. Ranks take positions; how they share them
 * changes nothing (B07). */
#ifndef WH_DATA_SAMPLER_H
#define WH_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct wh_sampler {
    uint64_t sequences, steps_per_epoch, left_over;
    uint64_t seed;
    uint32_t T, global_batch; /* global_batch in sequences */
    bool shuffle;
};

/* Errors: CONFIG for T or global_batch 0; DATA if `tokens` don't make one whole step, saying how many would. */
enum wh_status wh_sampler_init(uint64_t tokens, uint32_t T, uint32_t global_batch, uint64_t seed, bool shuffle,
                               struct wh_sampler *out);

/* Epoch of a step, counted from 0. */
static inline uint64_t wh_sampler_epoch(const struct wh_sampler *s, uint64_t step) { return step / s->steps_per_epoch; }

/* The sequence at `position` (below global_batch) of `step` (from 0). Pure; cost: one permutation look-up. */
uint64_t wh_sampler_sequence(const struct wh_sampler *s, uint64_t step, uint32_t position);

#endif
