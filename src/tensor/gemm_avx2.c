/* Micro-kernel for AVX2: 6 x 16, that is 12 accumulators, 2 vectors of B and 2 broadcasts of A of the 16 registers. */
#include <immintrin.h>

#include "tensor/gemm_finish.h"

enum { MR = 6, NR = 16, LANES = 8 };

/* acc = fma(a, b, acc) in place: left to itself, gcc moves accumulators around between the steps of a group. */
static inline __attribute__((always_inline)) void multiply_add(__m256 *acc, __m256 a, __m256 b) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*acc) : "x"(a), "x"(b));
}

/* One step of k on the accumulators; WH_GEMM_GROUP of them. */
static inline __attribute__((always_inline)) void run_step(__m256 acc[MR][NR / LANES], const float **a, const float **b,
                                                           size_t b_ld, const int vectors) {
    __m256 bv[NR / LANES];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) bv[v] = _mm256_loadu_ps(*b + v * LANES);
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        __m256 ai = _mm256_broadcast_ss(*a + i);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) multiply_add(&acc[i][v], ai, bv[v]);
    }
    *a += MR;
    *b += b_ld;
}

static inline __attribute__((always_inline)) void run_group(__m256 acc[MR][NR / LANES], const float **a,
                                                            const float **b, size_t b_ld, const int vectors) {
#pragma GCC unroll 8
    for (int s = 0; s < WH_GEMM_GROUP; s++) run_step(acc, a, b, b_ld, vectors);
}

/* `vectors` is a constant after inlining: columns beyond those wanted cost nothing. */
static inline __attribute__((always_inline)) void run_chain(const struct wh_gemm_chain *c, const int vectors) {
    __m256 acc[MR][NR / LANES];
    const float *a = c->a, *b = c->b;
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            acc[i][v] =
                c->start ? _mm256_loadu_ps(c->start + (size_t)i * c->start_ld + v * LANES) : _mm256_setzero_ps();
    size_t n = 0, groups = c->k / WH_GEMM_GROUP;
    for (; c->next_out && n < MR && n < groups; n++) {
        const float *row = c->next_out + n * c->next_ld;
        for (size_t line = 0; line < NR; line += 16) _mm_prefetch((const char *)(row + line), _MM_HINT_T0);
        run_group(acc, &a, &b, c->b_ld, vectors);
    }
    struct wh_gemm_ahead ahead = *c->ahead;
    for (size_t asked = wh_gemm_ahead_count(&ahead, groups - n); asked > 0; asked--, n++) {
        for (size_t line = 0; line < NR * sizeof(float); line += 64) _mm_prefetch(ahead.at + line, _MM_HINT_T1);
        wh_gemm_ahead_move(&ahead);
        run_group(acc, &a, &b, c->b_ld, vectors);
    }
    *c->ahead = ahead;
    for (; n < groups; n++) run_group(acc, &a, &b, c->b_ld, vectors);
    for (size_t k = groups * WH_GEMM_GROUP; k < c->k; k++) run_step(acc, &a, &b, c->b_ld, vectors);
    const float *left = c->left;
    for (unsigned t = 0; t < c->merges; t++, left -= MR * NR)
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                acc[i][v] = _mm256_add_ps(_mm256_load_ps(left + i * NR + v * LANES), acc[i][v]);
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) _mm256_storeu_ps(c->out + (size_t)i * c->out_ld + v * LANES, acc[i][v]);
}

static void tile(const struct wh_gemm_chain *c) {
    if (c->cols > LANES)
        run_chain(c, 2);
    else
        run_chain(c, 1);
}

/* L1 32 KiB, L2 512 KiB of 8 ways (Zen 2): a panel of B (kc x 16: 24 KiB) stays in L1, A's block takes 3/8 of L2, half
 * if that saves a second pass over B. */
const struct wh_gemm_kernel wh_gemm_kernel_avx2 = {
    .name = "avx2",
    .mr = MR,
    .nr = NR,
    .kc = 384,
    .mc = 144,
    .nc = 3072,
    .mc_most = 192,
    .in_place_rows = 128,
    .crowded_kc = 384,
    .tile = tile,
    .pack = wh_gemm_pack_avx2,
    .finish = gemm_finish,
};
