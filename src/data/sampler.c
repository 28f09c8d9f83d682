#include "data/sampler.h"

#include <inttypes.h>

#include "base/rng.h"

enum wh_status wh_sampler_init(uint64_t tokens, uint32_t T, uint32_t global_batch, uint64_t seed, bool shuffle,
                               struct wh_sampler *out) {
    if (T == 0 || global_batch == 0)
        return WH_FAIL(WH_CONFIG, "sequence length %" PRIu32 " and batch %" PRIu32 " must both be at least 1", T,
                       global_batch);
    uint64_t sequences = tokens ? (tokens - 1) / T : 0, steps = sequences / global_batch;
    if (steps == 0)
        return WH_FAIL(WH_DATA,
                       "the data has %" PRIu64 " tokens; one step of %" PRIu32 " sequences of %" PRIu32
                       " needs at least %" PRIu64,
                       tokens, global_batch, T, (uint64_t)global_batch * T + 1);
    *out = (struct wh_sampler){.sequences = sequences,
                               .steps_per_epoch = steps,
                               .left_over = sequences % global_batch,
                               .seed = seed,
                               .T = T,
                               .global_batch = global_batch,
                               .shuffle = shuffle};
    return WH_OK;
}

uint64_t wh_sampler_sequence(const struct wh_sampler *s, uint64_t step, uint32_t position) {
    uint64_t place = step % s->steps_per_epoch * s->global_batch + position;
    if (!s->shuffle) return place;
    return wh_rng_permute(s->seed, (uint32_t)wh_sampler_epoch(s, step), s->sequences, place);
}
