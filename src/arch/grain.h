/* The grain: how finely sums are cut so that no layout changes them. See docs/numbers.md; recorded in checkpoints.
 *
 *   tensor S    sums over channels or vocabulary that tensor parallelism may split: S equal slices
 *   data G      sums over the samples of the global batch: G equal groups of consecutive samples
 *   sequence Q  sums over the positions of a sequence that context parallelism may split: Q chunks, a power of two
 *   wire        format of every node of the sums over groups and chunks: WH_F32, or WH_BF16, to which each is rounded
 *
 * `fast` (comm.reduce): data is the number of replicas, whose sums are joined in any order: not the contract's numbers.
 *
 * Slices are [s*ceil(n/S), min(n, (s+1)*ceil(n/S))): equal where S divides n (heads and feed-forward must), shorter or
 * empty at the end where it does not (the vocabulary). Chunks of a sequence of T are [T*q/Q, T*(q+1)/Q). */
#ifndef WH_ARCH_GRAIN_H
#define WH_ARCH_GRAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "arch/model.h"
#include "base/dtype.h"

struct wh_grain {
    uint32_t tensor, data, sequence;
    enum wh_dtype wire;
    bool fast;
};

struct wh_range {
    size_t begin, end;
};

static inline struct wh_range wh_grain_slice(size_t n, uint32_t S, uint32_t s) {
    size_t each = (n + S - 1) / S, begin = (size_t)s * each, end = begin + each;
    return (struct wh_range){begin < n ? begin : n, end < n ? end : n};
}

static inline struct wh_range wh_grain_chunk(size_t T, uint32_t Q, uint32_t q) {
    return (struct wh_range){T * q / Q, T * (q + 1) / Q};
}

/* Fills zeros with the defaults: S = gcd(H, Hkv, 8) (and of F), G = the largest power of two that divides the batch and
 * is at most 8, Q = 1. */
void wh_grain_defaults(const struct wh_model *m, uint32_t global_batch, struct wh_grain *g);

/* S divides Hkv, H and F; G divides the batch; Q is a power of two not above T. All faults at once. */
void wh_grain_check(const struct wh_grain *g, const struct wh_model *m, uint32_t global_batch, uint32_t T,
                    struct wh_faults *faults);

#endif
