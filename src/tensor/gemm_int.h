/* Private to tensor/gemm*.c: what a set of kernels gives to the blocked product, and what it is given.
 *
 * Panels. An operand is X(r, k): r is the row of A or the column of B. A panel holds `width` consecutive r (mr or nr)
 * for a block of k, k slowest: out[k*width + r]. Rows beyond the matrix are zeros; what they yield is thrown away, so
 * whatever a real element meets is real. */
#ifndef WH_TENSOR_GEMM_INT_H
#define WH_TENSOR_GEMM_INT_H

#include "tensor/gemm.h"
#include "tensor/vec.h"

/* Memory that will be packed or read soon: rows of `chunks` pieces of nr floats. A tile asks for the next piece every
 * WH_GEMM_GROUP steps of k, `share` times at most, and moves on. Asking for what is not there does no harm. */
struct wh_gemm_ahead {
    const char *at;
    size_t step, row_step; /* bytes to the next piece, and at the end of a row */
    size_t chunks, chunks_left, pieces_left;
    size_t share;
};

/* The part of one grain's chain that lies in one packed block, and where its sum goes. A stack of finished subtrees
 * (base/tree.h) is [height][mr][nr]; heights below `old` are in the arena, which outlives the block. */
struct wh_gemm_chain {
    size_t k;
    unsigned height; /* finished subtrees below */
    unsigned merges; /* with how many of them it joins at its end */
    unsigned old;
    bool outlives;              /* the block: its sum goes to the arena */
    bool begins, ends;          /* its grain */
    bool begins_first, is_last; /* the first grain's start, the last one's end */
};

/* One micro-tile: acc[mr][nr] runs through all chains of a block. The first starts at `start` (NULL: +0), the others at
 * +0; at its end each takes in finished subtrees from the top of the stack down, acc = left + acc; the last goes to
 * `out`, the others to the stack. */
struct wh_gemm_tile {
    const struct wh_gemm_chain *chains;
    size_t chain_count;
    size_t cols;    /* how many of the nr columns are wanted; the others may be left unwritten */
    const float *a; /* [k][mr] */
    const float *b; /* [k][b_ld], nr of each */
    size_t b_ld;
    const float *start;
    size_t start_ld;
    float *out; /* may be `start` or in the arena */
    size_t out_ld;
    float *stack, *arena;
    const float *next_out; /* [mr][next_ld]: where the next tile will go; NULL: unknown */
    size_t next_ld;
    struct wh_gemm_ahead *ahead;
};

/* X(r, k) is data[k*ld + r] if `along`, else data[r*ld + k]. */
struct wh_gemm_source {
    const void *data;
    enum wh_dtype dtype;
    size_t ld;
    bool along;
};

/* Which part of X goes where: panel p starts at out + p*panel_stride. */
struct wh_gemm_pack {
    float *out; /* WH_GEMM_SLACK floats beyond the last panel may be overwritten */
    size_t width, panel_stride;
    size_t r, rows; /* as many panels as cover `rows` */
    size_t k, count;
};

enum { WH_GEMM_SLACK = 16, WH_GEMM_GROUP = 8 };

struct wh_gemm_kernel {
    const char *name;
    size_t mr, nr;        /* micro-tile */
    size_t kc, mc, nc;    /* packed block of A: mc x kc, of B: kc x nc */
    size_t mc_most;       /* a range of so many rows is one block: its panels of B are packed, used and forgotten */
    size_t in_place_rows; /* with no more rows than this the tile reads B where it lies if it can */
    size_t crowded_kc;    /* kc where rows of B are a multiple of 4 KiB apart: what L2 can hold of such a panel */
    void (*tile)(const struct wh_gemm_tile *t);
    void (*pack)(const struct wh_gemm_source *x, const struct wh_gemm_pack *p);
    /* Epilogue of tile[rows][ld], which is changed, into C (and `pre`) at (i, j). */
    void (*finish)(const struct wh_gemm *g, const struct wh_vec *vec, float *tile, size_t ld, size_t i, size_t j,
                   size_t rows, size_t cols);
};

extern const struct wh_gemm_kernel wh_gemm_kernel_reference, wh_gemm_kernel_avx2, wh_gemm_kernel_avx512;

/* Packing for every processor with AVX2 (gemm_pack_avx2.c). */
void wh_gemm_pack_avx2(const struct wh_gemm_source *x, const struct wh_gemm_pack *p);

/* Height at which a chain's sum is put on the stack. */
static inline unsigned wh_gemm_chain_out(const struct wh_gemm_chain *c) { return c->height - c->merges; }

static inline void wh_gemm_ahead_move(struct wh_gemm_ahead *s) {
    s->pieces_left--;
    s->at += s->step;
    if (--s->chunks_left > 0) return;
    s->at += s->row_step;
    s->chunks_left = s->chunks;
}

static inline float wh_gemm_load(const void *data, enum wh_dtype dtype, size_t i) {
    return dtype == WH_F32 ? ((const float *)data)[i] : wh_bf16_to_f32(((const uint16_t *)data)[i]);
}

static inline void wh_gemm_store(void *data, enum wh_dtype dtype, size_t i, float v) {
    if (dtype == WH_F32)
        ((float *)data)[i] = v;
    else
        ((uint16_t *)data)[i] = wh_f32_to_bf16(v);
}

#endif
