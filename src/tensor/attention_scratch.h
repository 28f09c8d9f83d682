/* Where things lie in the scratch of one attention call. The same function measures (memory NULL) and places.
 *
 *     by_key     K^T: panels of `panel` keys, each [D][panel]       (backward: also V^T in by_key_v)
 *     by_channel V, in backward K: panels of `panel` channels, each [keys][panel]
 *     q, d_o, out        one block of rows, [32][channels]
 *     s, dp, dropped     one block of rows, [32][s_row]
 *     sums               a stack of pairs dk, dv, each [keys][channels]
 *
 * keys and channels are T and D rounded up to 32, so that every panel is whole; what lies beyond T or D is zero. */
#ifndef WH_TENSOR_ATTENTION_SCRATCH_H
#define WH_TENSOR_ATTENTION_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/tree.h"
#include "tensor/attention.h"

struct attention_scratch {
    size_t keys, channels, s_row;
    float *by_key, *by_key_v, *by_channel;
    float *q, *d_o, *out;
    float *s, *dp, *dropped;
    float *sums;
};

static inline size_t attention_round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* Hands out `count` floats, a multiple of 16, from *used on. */
static inline float *attention_scratch_take(float *memory, size_t *used, size_t count) {
    float *block = memory ? memory + *used : NULL;
    *used += count;
    return block;
}

static inline size_t attention_scratch_lay(struct attention_scratch *s, void *memory, size_t T, size_t D,
                                           uint32_t chunks) {
    size_t used = 0;
    s->keys = attention_round_up(T, 32);
    s->channels = attention_round_up(D, 32);
    s->s_row = s->keys + 16; /* never a multiple of 4096 bytes, which would put the whole block in one cache set */
    s->by_key = attention_scratch_take(memory, &used, s->keys * attention_round_up(D, 16));
    s->by_key_v = attention_scratch_take(memory, &used, s->keys * attention_round_up(D, 16));
    s->by_channel = attention_scratch_take(memory, &used, s->keys * s->channels);
    s->q = attention_scratch_take(memory, &used, WH_ATTENTION_BLOCK * s->channels);
    s->d_o = attention_scratch_take(memory, &used, WH_ATTENTION_BLOCK * s->channels);
    s->out = attention_scratch_take(memory, &used, WH_ATTENTION_BLOCK * s->channels);
    s->s = attention_scratch_take(memory, &used, WH_ATTENTION_BLOCK * s->s_row);
    s->dp = attention_scratch_take(memory, &used, WH_ATTENTION_BLOCK * s->s_row);
    s->dropped = attention_scratch_take(memory, &used, WH_ATTENTION_BLOCK * s->s_row);
    s->sums = attention_scratch_take(memory, &used, 2 * wh_tree_depth(chunks) * s->keys * s->channels);
    return used * sizeof(float);
}

#endif
