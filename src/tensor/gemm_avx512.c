/* Micro-kernel for AVX-512: 8 x 48, that is 24 accumulators, 3 vectors of B and one broadcast of A a step of k.
 *
 * 8 divides every usual number of tokens and 48 every width that is a multiple of 384, so tiles are seldom cut. A step
 * takes 12 cycles of both multiply-add units and 11 loads (of 24 possible). */
#include <immintrin.h>

#include "tensor/gemm_finish.h"

enum { MR = 8, NR = 48, LANES = 16 };

/* The three instructions of a step, in this order whatever the compiler thinks: what it does to the AVX2 kernel if free
 * to choose (gemm_avx2.c) shall not come here with the next edit. No gain was measured. */
static inline __attribute__((always_inline)) void multiply_add(__m512 *acc, __m512 a, __m512 b) {
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(*acc) : "v"(a), "v"(b));
}

static inline __attribute__((always_inline)) __m512 load(const float *x) {
    __m512 v;
    __asm__ volatile("vmovups %1, %0" : "=v"(v) : "m"(*(const __m512_u *)x));
    return v;
}

static inline __attribute__((always_inline)) __m512 broadcast(const float *x) {
    __m512 v;
    __asm__ volatile("vbroadcastss %1, %0" : "=v"(v) : "m"(*x));
    return v;
}

/* One step of k on the accumulators; WH_GEMM_GROUP of them. */
static inline __attribute__((always_inline)) void run_step(__m512 acc[MR][NR / LANES], const float **a, const float **b,
                                                           size_t b_ld, const int vectors) {
    __m512 bv[NR / LANES];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; v++) bv[v] = load(*b + v * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        __m512 ai = broadcast(*a + i);
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) multiply_add(&acc[i][v], ai, bv[v]);
    }
    *a += MR;
    *b += b_ld;
}

static inline __attribute__((always_inline)) void run_group(__m512 acc[MR][NR / LANES], const float **a,
                                                            const float **b, size_t b_ld, const int vectors) {
#pragma GCC unroll 8
    for (int s = 0; s < WH_GEMM_GROUP; s++) run_step(acc, a, b, b_ld, vectors);
}

/* Prefetching has its own loops: a piece of the next tile's C for each group of steps, then of what will be packed.
 * `vectors` is a constant after inlining, and for a packed panel so is b_ld. */
static inline __attribute__((always_inline)) void run_tile(const struct wh_gemm_tile *t, const int vectors,
                                                           const size_t b_ld) {
    __m512 acc[MR][NR / LANES];
    const float *a = t->a, *b = t->b, *next_row = t->next_out, *start = t->start;
    size_t rows_ahead = t->next_out ? MR : 0;
    struct wh_gemm_ahead ahead = *t->ahead;
    size_t asks = ahead.share < ahead.pieces_left ? ahead.share : ahead.pieces_left;
    for (const struct wh_gemm_chain *c = t->chains, *end = c + t->chain_count; c < end; c++, start = NULL) {
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                acc[i][v] = start ? _mm512_loadu_ps(start + (size_t)i * t->start_ld + v * LANES) : _mm512_setzero_ps();
        size_t groups = c->k / WH_GEMM_GROUP;
        for (; rows_ahead > 0 && groups > 0; rows_ahead--, groups--, next_row += t->next_ld) {
            for (size_t line = 0; line < NR; line += 16) _mm_prefetch((const char *)(next_row + line), _MM_HINT_T0);
            run_group(acc, &a, &b, b_ld, vectors);
        }
        for (; asks > 0 && groups > 0; asks--, groups--) {
            for (size_t line = 0; line < NR * sizeof(float); line += 64) _mm_prefetch(ahead.at + line, _MM_HINT_T1);
            wh_gemm_ahead_move(&ahead);
            run_group(acc, &a, &b, b_ld, vectors);
        }
        for (; groups > 0; groups--) run_group(acc, &a, &b, b_ld, vectors);
        for (size_t k = c->k % WH_GEMM_GROUP; k > 0; k--) run_step(acc, &a, &b, b_ld, vectors);
        for (unsigned h = c->height; h-- > wh_gemm_chain_out(c);) {
            const float *left = (h < c->old ? t->arena : t->stack) + h * (MR * NR);
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = _mm512_add_ps(_mm512_load_ps(left + i * NR + v * LANES), acc[i][v]);
        }
        bool to_out = c + 1 == end;
        float *out = to_out ? t->out : (c->outlives ? t->arena : t->stack) + wh_gemm_chain_out(c) * (MR * NR);
        size_t out_ld = to_out ? t->out_ld : NR;
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) _mm512_storeu_ps(out + (size_t)i * out_ld + v * LANES, acc[i][v]);
    }
    *t->ahead = ahead;
}

static void tile(const struct wh_gemm_tile *t) {
    if (t->b_ld != NR)
        run_tile(t, 3, t->b_ld);
    else if (t->cols > 2 * LANES)
        run_tile(t, 3, NR);
    else if (t->cols > LANES)
        run_tile(t, 2, NR);
    else
        run_tile(t, 1, NR);
}

/* L1 48 KiB, L2 2 MiB of 16 ways (Sapphire Rapids). A panel of B (kc x 48: 144 KiB) streams from L2 at 16 of its 48
 * bytes a cycle, so kc is bounded by L2: A's block takes 3/8 of it, 3/4 if that saves a second pass over B. Lines 4 KiB
 * apart have 32 sets of L2 to share. */
const struct wh_gemm_kernel wh_gemm_kernel_avx512 = {
    .name = "avx512",
    .mr = MR,
    .nr = NR,
    .kc = 768,
    .mc = 256,
    .nc = 2304,
    .mc_most = 512,
    .in_place_rows = 1024,
    .crowded_kc = 512,
    .tile = tile,
    .pack = wh_gemm_pack_avx2,
    .finish = gemm_finish,
};
