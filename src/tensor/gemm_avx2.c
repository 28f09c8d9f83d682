/* Micro-kernel for AVX2: 6 x 16, that is 12 accumulators, 2 vectors of B and 2 broadcasts of A of the 16 registers. */
#include <immintrin.h>

#include "tensor/gemm_finish.h"

enum { MR = 6, NR = 16, LANES = 8 };

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
#pragma GCC unroll 4
    for (size_t k = c->k; k > 0; k--, a += MR, b += NR) {
        __m256 bv[NR / LANES];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) bv[v] = _mm256_load_ps(b + v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            __m256 ai = _mm256_broadcast_ss(a + i);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) acc[i][v] = _mm256_fmadd_ps(ai, bv[v], acc[i][v]);
        }
    }
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

/* L1 32 KiB, L2 512 KiB (Zen 2): a panel of B (kc x 16: 20 KiB) and one of A (kc x 6: 8 KiB) share L1, A's block takes
 * a third of L2. */
const struct wh_gemm_kernel wh_gemm_kernel_avx2 = {
    .name = "avx2",
    .mr = MR,
    .nr = NR,
    .kc = 320,
    .mc = 144,
    .nc = 3072,
    .tile = tile,
    .pack = wh_gemm_pack_avx2,
    .finish = gemm_finish,
};
