/* Micro-kernel for AVX-512: 8 x 48, that is 24 accumulators, 3 vectors of B and one broadcast of A a step of k.
 *
 * 8 divides every usual number of tokens and 48 every width that is a multiple of 384, so tiles are seldom cut. A step
 * takes 12 cycles of both multiply-add units and 11 loads (of 24 possible). */
#include <immintrin.h>

#include "tensor/gemm_finish.h"

enum { MR = 8, NR = 48, LANES = 16 };

/* The three instructions of a step, in this order whatever the compiler thinks: free to choose, gcc moves accumulators
 * around and reads B again and again. */
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

/* `vectors` is a constant after inlining, so that columns beyond those wanted cost nothing, and for a packed panel so
 * is b_ld: additions to a pointer would take turns of the multiply-add units. */
static inline __attribute__((always_inline)) void run_chain(const struct wh_gemm_chain *c, const int vectors,
                                                            const size_t b_ld) {
    __m512 acc[MR][NR / LANES];
    const float *a = c->a, *b = c->b;
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            acc[i][v] =
                c->start ? _mm512_loadu_ps(c->start + (size_t)i * c->start_ld + v * LANES) : _mm512_setzero_ps();
    size_t n = 0, groups = c->k / WH_GEMM_GROUP;
    for (; c->next_out && n < MR && n < groups; n++) {
        const float *row = c->next_out + n * c->next_ld;
        for (size_t line = 0; line < NR; line += 16) _mm_prefetch((const char *)(row + line), _MM_HINT_T0);
        run_group(acc, &a, &b, b_ld, vectors);
    }
    if (c->ahead) {
        struct wh_gemm_ahead ahead = *c->ahead;
        for (size_t asked = wh_gemm_ahead_count(&ahead, groups - n); asked > 0; asked--, n++) {
            for (size_t line = 0; line < NR * sizeof(float); line += 64) _mm_prefetch(ahead.at + line, _MM_HINT_T1);
            wh_gemm_ahead_move(&ahead);
            run_group(acc, &a, &b, b_ld, vectors);
        }
        *c->ahead = ahead;
    }
    for (; n < groups; n++) run_group(acc, &a, &b, b_ld, vectors);
    for (size_t k = groups * WH_GEMM_GROUP; k < c->k; k++) run_step(acc, &a, &b, b_ld, vectors);
    for (int run = 0; run < 2; run++) {
        const float *left = c->left[run].top;
        for (unsigned t = 0; t < c->left[run].count; t++, left -= MR * NR)
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = _mm512_add_ps(_mm512_load_ps(left + i * NR + v * LANES), acc[i][v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(c->out + (size_t)i * c->out_ld + v * LANES, acc[i][v]);
}

static void tile(const struct wh_gemm_chain *c) {
    if (c->b_ld != NR)
        run_chain(c, 3, c->b_ld);
    else if (c->cols > 2 * LANES)
        run_chain(c, 3, NR);
    else if (c->cols > LANES)
        run_chain(c, 2, NR);
    else
        run_chain(c, 1, NR);
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
