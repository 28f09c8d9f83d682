/* Attention, written once over the lanes of whichever lanes_*.h was included before, and the row kernels `vec` of the
 * same instruction set. Contract: attention.h; memory: attention_scratch.h.
 *
 *     block of rows i0 .. i1-1, keys begin .. i1-1            (begin: first allowed key of the block, rounded down)
 *
 *     S  = Q  K^T      [32][keys]  chain over channels        dV += P~^T dO    [keys][channels]  chain over rows
 *     P  = softmax(S), masked: 0                              dK += dS^T Q
 *     O  = P~ V        [32][channels]  chain over keys        dQ  = dS K       [32][channels]    chain over keys
 *     dP = dO V^T, as S
 *
 * All products are one function over register tiles. Products run over whole tiles: rows beyond the block, channels
 * beyond D and keys beyond i1 are computed from zeros or from what lies there, and never stored or else zeroed. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tensor/attention_scratch.h"

enum { PANEL = 16 * LANES_TILE_COLUMNS };

/* c[rows][columns] = a b, or += with `accumulate`. a(i,k) = a[i*a_row + k*a_k]; b in panels of PANEL columns, b_panel
 * apart, row k of a panel at k*b_k. */
struct product {
    float *c;
    size_t c_row;
    const float *a;
    size_t a_row, a_k;
    const float *b;
    size_t b_panel, b_k;
    size_t rows, columns, depth;
    bool accumulate;
};

/* One register tile; each element is one chain in k order. */
static inline __attribute__((always_inline)) void multiply_tile(float *c, size_t c_row, const float *a, size_t a_row,
                                                                size_t a_k, const float *b, size_t b_k, size_t depth,
                                                                bool accumulate) {
    struct lanes sum[LANES_TILE_ROWS][LANES_TILE_COLUMNS];
    for (int i = 0; i < LANES_TILE_ROWS; i++)
        for (int j = 0; j < LANES_TILE_COLUMNS; j++)
            sum[i][j] = accumulate ? lanes_load(c + (size_t)i * c_row + 16 * j) : lanes_set(0);
    for (size_t k = 0; k < depth; k++) {
        struct lanes row[LANES_TILE_COLUMNS];
        for (int j = 0; j < LANES_TILE_COLUMNS; j++) row[j] = lanes_load(b + k * b_k + 16 * j);
        for (int i = 0; i < LANES_TILE_ROWS; i++) {
            struct lanes x = lanes_set(a[(size_t)i * a_row + k * a_k]);
            for (int j = 0; j < LANES_TILE_COLUMNS; j++) sum[i][j] = lanes_fma(x, row[j], sum[i][j]);
        }
    }
    for (int i = 0; i < LANES_TILE_ROWS; i++)
        for (int j = 0; j < LANES_TILE_COLUMNS; j++) lanes_store(c + (size_t)i * c_row + 16 * j, sum[i][j]);
}

/* Two copies of the tile loop, so that one of a's strides is a constant in each. */
static void multiply(const struct product *p) {
    for (size_t j = 0; j < p->columns; j += PANEL) {
        const float *b = p->b + j / PANEL * p->b_panel;
        for (size_t i = 0; i < p->rows; i += LANES_TILE_ROWS) {
            float *c = p->c + i * p->c_row + j;
            const float *a = p->a + i * p->a_row;
            if (p->a_k == 1)
                multiply_tile(c, p->c_row, a, p->a_row, 1, b, p->b_k, p->depth, p->accumulate);
            else
                multiply_tile(c, p->c_row, a, 1, p->a_k, b, p->b_k, p->depth, p->accumulate);
        }
    }
}

static inline struct lanes fetch(const void *from, enum wh_dtype dtype, size_t element, size_t n) {
    if (dtype == WH_F32) return lanes_load_n((const float *)from + element, n, 0);
    return lanes_load_bf16_n((const uint16_t *)from + element, n);
}

/* How many of the 16 channels from d on exist. */
static inline size_t step(size_t D, size_t d) { return D - d < 16 ? D - d : 16; }

/* Panels of channels, each [keys][PANEL]. */
static void pack_by_channel(float *out, const struct attention_scratch *s, const void *from, enum wh_dtype dtype,
                            size_t stride, size_t T, size_t D) {
    for (size_t d = 0; d < s->channels; d += 16) {
        float *panel = out + d / PANEL * s->keys * PANEL + d % PANEL;
        for (size_t j = 0; j < s->keys; j++)
            lanes_store(panel + j * PANEL,
                        d < D && j < T ? fetch(from, dtype, j * stride + d, step(D, d)) : lanes_set(0));
    }
}

/* Rows become columns. The place of an element is 8 bits, row then column; interleaving rows i and i + 8 into rows 2*i
 * and 2*i + 1 rotates them by one, and four rotations swap the halves. */
static inline void transpose(struct lanes square[16]) {
    for (int turn = 0; turn < 4; turn++) {
        struct lanes next[16];
        for (int i = 0; i < 8; i++) lanes_interleave(square[i], square[i + 8], &next[2 * i], &next[2 * i + 1]);
        memcpy(square, next, sizeof next);
    }
}

/* Panels of keys, each [D][PANEL], so that keys lie along the lanes. */
static void pack_by_key(float *out, const struct attention_scratch *s, const void *from, enum wh_dtype dtype,
                        size_t stride, size_t T, size_t D) {
    for (size_t j = 0; j < s->keys; j += 16) {
        float *panel = out + j / PANEL * D * PANEL + j % PANEL;
        for (size_t d = 0; d < D; d += 16) {
            struct lanes square[16];
            for (size_t l = 0; l < 16; l++)
                square[l] = j + l < T ? fetch(from, dtype, (j + l) * stride + d, step(D, d)) : lanes_set(0);
            transpose(square);
            for (size_t x = 0; x < step(D, d); x++) lanes_store(panel + (d + x) * PANEL, square[x]);
        }
    }
}

/* A block of query rows of head r, and the keys it looks at. */
struct block {
    const struct wh_attention *a;
    size_t r, first, rows, begin, end; /* keys begin .. end-1; begin is a multiple of 32 */
};

static size_t row_begin(const struct wh_attention *a, size_t i) { return a->document_start ? a->document_start[i] : 0; }

static struct block block_at(const struct wh_attention *a, size_t r, size_t first, size_t rows) {
    struct block b = {.a = a, .r = r, .first = first, .rows = rows, .begin = first, .end = first + rows};
    for (size_t i = first; i < b.end; i++)
        if (row_begin(a, i) < b.begin) b.begin = row_begin(a, i);
    b.begin = b.begin / 32 * 32;
    return b;
}

/* The block's rows of a tensor as [rows][channels], zero beyond D. */
static void load_block(float *out, const struct block *b, size_t channels, const void *from, size_t stride) {
    const size_t D = b->a->D;
    for (size_t i = 0; i < b->rows; i++)
        for (size_t d = 0; d < channels; d += 16) {
            const size_t at = (b->first + i) * stride + b->r * D + d;
            lanes_store(out + i * channels + d, d < D ? fetch(from, b->a->dtype, at, step(D, d)) : lanes_set(0));
        }
}

/* The other way, with the contract's + 0. */
static void store_block(void *to, size_t stride, const struct block *b, const float *in, size_t channels) {
    const size_t D = b->a->D;
    for (size_t i = 0; i < b->rows; i++)
        for (size_t d = 0; d < D; d += 16) {
            struct lanes x = lanes_add(lanes_load(in + i * channels + d), lanes_set(0));
            const size_t at = (b->first + i) * stride + b->r * D + d;
            if (b->a->dtype == WH_F32)
                lanes_store_n((float *)to + at, x, step(D, d));
            else
                lanes_store_bf16_n((uint16_t *)to + at, x, step(D, d));
        }
}

static bool drops(const struct wh_attention *a) { return a->dropout_threshold != 0 || a->dropout_scale != 1; }

/* The allowed keys of row i. */
static void drop(const struct block *b, size_t i, float *out, const float *in) {
    const struct wh_attention *a = b->a;
    const size_t begin = row_begin(a, i);
    vec->dropout(out + begin, in + begin, &a->rng, a->first_element + (b->r * a->T + i) * a->T + begin,
                 a->dropout_threshold, a->dropout_scale, i + 1 - begin);
}

/* out[32][keys] = in[32][D] times panels of keys: S from Q and K^T, dP from dO and V^T. Columns begin .. end-1, rounded
 * up to 32. */
static void scores(const struct block *b, const struct attention_scratch *s, float *out, const float *in,
                   const float *by_key) {
    const size_t D = b->a->D;
    multiply(&(struct product){.c = out + b->begin,
                               .c_row = s->s_row,
                               .a = in,
                               .a_row = s->channels,
                               .a_k = 1,
                               .b = by_key + b->begin * D,
                               .b_panel = D * PANEL,
                               .b_k = PANEL,
                               .rows = attention_round_up(b->rows, LANES_TILE_ROWS),
                               .columns = attention_round_up(b->end, 32) - b->begin,
                               .depth = D});
}

/* out[32][channels] = weights[32][keys] times by_channel: O from P~ and V, dQ from dS and K. */
static void weigh(const struct block *b, const struct attention_scratch *s, const float *weights) {
    multiply(&(struct product){.c = s->out,
                               .c_row = s->channels,
                               .a = weights + b->begin,
                               .a_row = s->s_row,
                               .a_k = 1,
                               .b = s->by_channel + b->begin * PANEL,
                               .b_panel = s->keys * PANEL,
                               .b_k = PANEL,
                               .rows = attention_round_up(b->rows, LANES_TILE_ROWS),
                               .columns = attention_round_up(b->a->D, PANEL),
                               .depth = b->end - b->begin});
}

/* sum[keys][channels] += weights^T times in[32][channels]: dV from P~ and dO, dK from dS and Q. */
static void collect(const struct block *b, const struct attention_scratch *s, float *sum, const float *weights,
                    const float *in) {
    multiply(&(struct product){.c = sum + b->begin * s->channels,
                               .c_row = s->channels,
                               .a = weights + b->begin,
                               .a_row = 1,
                               .a_k = s->s_row,
                               .b = in,
                               .b_panel = PANEL,
                               .b_k = s->channels,
                               .rows = attention_round_up(b->end - b->begin, LANES_TILE_ROWS),
                               .columns = attention_round_up(b->a->D, PANEL),
                               .depth = b->rows,
                               .accumulate = true});
}

/* Row i of S becomes scale * S on its allowed keys, -inf before them down to the next multiple of 16, which is
 * returned: rows start there in the sums over lanes. All other columns become 0. */
static size_t mask_row(const struct block *b, size_t i, float *row) {
    const size_t begin = row_begin(b->a, i), from = begin / 16 * 16;
    memset(row + b->begin, 0, (from - b->begin) * sizeof *row);
    vec->scale(row + begin, row + begin, b->a->scale, i + 1 - begin);
    for (size_t j = from; j < begin; j++) row[j] = -INFINITY;
    memset(row + i + 1, 0, (attention_round_up(b->end, 32) - i - 1) * sizeof *row);
    return from;
}

static void softmax_row(const struct block *b, size_t i, float *row, float *stats) {
    const size_t from = mask_row(b, i, row), n = i + 1 - from;
    const float top = vec->max(row + from, n);
    const float inverse = 1.0f / vec->exp_sum(row + from, row + from, top, n);
    vec->scale(row + from, row + from, inverse, n);
    stats[0] = top;
    stats[1] = inverse;
}

/* The same probabilities from the stored statistics. */
static void softmax_row_again(const struct block *b, size_t i, float *row, const float *stats) {
    const size_t from = mask_row(b, i, row), n = i + 1 - from;
    vec->exp_sum(row + from, row + from, stats[0], n);
    vec->scale(row + from, row + from, stats[1], n);
}

static void block_forward(const struct block *b, const struct attention_scratch *s) {
    const struct wh_attention *a = b->a;
    load_block(s->q, b, s->channels, a->q, a->q_stride);
    scores(b, s, s->s, s->q, s->by_key);
    for (size_t i = b->first; i < b->end; i++) {
        float *row = s->s + (i - b->first) * s->s_row;
        softmax_row(b, i, row, a->stats + 2 * (b->r * a->T + i));
        if (drops(a)) drop(b, i, row, row);
    }
    weigh(b, s, s->s);
    store_block(a->o, a->o_stride, b, s->out, s->channels);
}

static size_t least(size_t x, size_t y) { return x < y ? x : y; }

static void attention_forward(const struct wh_attention *a, size_t r, void *scratch) {
    struct attention_scratch s;
    attention_scratch_lay(&s, scratch, a->T, a->D, 1);
    pack_by_key(s.by_key, &s, a->k, a->dtype, a->k_stride, a->T, a->D);
    pack_by_channel(s.by_channel, &s, a->v, a->dtype, a->v_stride, a->T, a->D);
    for (size_t i = 0; i < a->T; i += WH_ATTENTION_BLOCK) {
        struct block b = block_at(a, r, i, least(WH_ATTENTION_BLOCK, a->T - i));
        block_forward(&b, &s);
    }
}

/* dP becomes dS in place: scale * P * (dP - delta). Where P is 0 it becomes a zero of either sign. */
static void score_gradients(float *dp, const float *p, float scale, float delta, size_t begin, size_t end) {
    for (size_t j = begin; j < end; j += 16) {
        struct lanes scaled = lanes_mul(lanes_set(scale), lanes_load(p + j));
        lanes_store(dp + j, lanes_mul(scaled, lanes_sub(lanes_load(dp + j), lanes_set(delta))));
    }
}

/* Rows of S become P, rows of dP become dS, and P~ goes to s->dropped; s->out holds O. */
static void block_row_gradients(const struct block *b, const struct attention_scratch *s) {
    const struct wh_attention *a = b->a;
    for (size_t i = b->first; i < b->end; i++) {
        const size_t row = i - b->first, padded_end = attention_round_up(b->end, 32);
        float *p = s->s + row * s->s_row, *dp = s->dp + row * s->s_row, *dropped = s->dropped + row * s->s_row;
        const float delta = vec->dot(s->d_o + row * s->channels, s->out + row * s->channels, a->D);
        softmax_row_again(b, i, p, a->stats + 2 * (b->r * a->T + i));
        if (drops(a)) {
            memcpy(dropped + b->begin, p + b->begin, (padded_end - b->begin) * sizeof *p);
            drop(b, i, dropped, dropped);
            drop(b, i, dp, dp);
        }
        score_gradients(dp, p, a->scale, delta, b->begin, padded_end);
    }
}

static void block_backward(const struct block *b, const struct attention_scratch *s, float *sum_k, float *sum_v) {
    const struct wh_attention *a = b->a;
    load_block(s->q, b, s->channels, a->q, a->q_stride);
    load_block(s->d_o, b, s->channels, a->d_o, a->do_stride);
    load_block(s->out, b, s->channels, a->o, a->o_stride);
    scores(b, s, s->s, s->q, s->by_key);
    scores(b, s, s->dp, s->d_o, s->by_key_v);
    block_row_gradients(b, s);
    collect(b, s, sum_v, drops(a) ? s->dropped : s->s, s->d_o);
    collect(b, s, sum_k, s->dp, s->q);
    weigh(b, s, s->dp);
    store_block(a->dq, a->dq_stride, b, s->out, s->channels);
}

/* All query heads of the group, rows begin .. end-1. */
static void chunk_backward(const struct wh_attention *a, const struct attention_scratch *s, size_t begin, size_t end,
                           float *sum_k, float *sum_v) {
    memset(sum_k, 0, s->keys * s->channels * sizeof *sum_k);
    memset(sum_v, 0, s->keys * s->channels * sizeof *sum_v);
    for (size_t r = 0; r < a->R; r++)
        for (size_t i = begin; i < end; i += WH_ATTENTION_BLOCK) {
            struct block b = block_at(a, r, i, least(WH_ATTENTION_BLOCK, end - i));
            block_backward(&b, s, sum_k, sum_v);
        }
}

static void attention_backward(const struct wh_attention *a, void *scratch) {
    struct attention_scratch s;
    attention_scratch_lay(&s, scratch, a->T, a->D, a->chunks);
    pack_by_key(s.by_key, &s, a->k, a->dtype, a->k_stride, a->T, a->D);
    pack_by_key(s.by_key_v, &s, a->v, a->dtype, a->v_stride, a->T, a->D);
    pack_by_channel(s.by_channel, &s, a->k, a->dtype, a->k_stride, a->T, a->D);
    const size_t one = s.keys * s.channels, pair = 2 * one; /* dk, then dv */
    float *top = s.sums - pair;
    for (uint32_t c = 0; c < a->chunks; c++) {
        top += pair;
        chunk_backward(a, &s, a->T * c / a->chunks, a->T * (c + 1) / a->chunks, top, top + one);
        for (unsigned m = wh_tree_merges(c, a->chunks); m > 0; m--, top -= pair)
            vec->add(top - pair, top - pair, top, pair);
    }
    const struct block all = {.a = a, .rows = a->T};
    store_block(a->dk, a->dk_stride, &all, s.sums, s.channels);
    store_block(a->dv, a->dv_stride, &all, s.sums + one, s.channels);
}
