/* Micro-kernel for AVX2: 6 x 16, that is 12 accumulators, 2 vectors of B and 2 broadcasts of A of the 16 registers. */
#include <immintrin.h>

#include "tensor/gemm_finish.h"

enum { MR = 6, NR = 16, LANES = 8 };

/* One step of k on the accumulators. */
static inline __attribute__((always_inline)) void run_step(__m256 acc[MR][NR / LANES], const float *a, const float *b,
                                                           const int vectors) {
    __m256 bv[NR / LANES];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) bv[v] = _mm256_loadu_ps(b + v * LANES);
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        __m256 ai = _mm256_broadcast_ss(a + i);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) acc[i][v] = _mm256_fmadd_ps(ai, bv[v], acc[i][v]);
    }
}

/* The same for full tiles, eight steps, as assembly: with 15 of 16 registers in use the compiler otherwise moves
 * accumulators around and reads B again and again, which costs 3 to 9 % and changes with every edit.
 * ROW: row i of step s; B in ymm12 and ymm13, A's element in ymm14. */
#define ROW(s, i)                            \
    "vbroadcastss 24*" #s "+4*" #i           \
    "(%[a]), %%ymm14\n\t"                    \
    "vfmadd231ps %%ymm12, %%ymm14, %[acc" #i \
    "0]\n\t"                                 \
    "vfmadd231ps %%ymm13, %%ymm14, %[acc" #i "1]\n\t"
#define ROWS(s)          ROW(s, 0) ROW(s, 1) ROW(s, 2) ROW(s, 3) ROW(s, 4) ROW(s, 5)
#define STEP_PACKED(s)   "vmovaps 64*" #s "(%[b]), %%ymm12\n\tvmovaps 64*" #s "+32(%[b]), %%ymm13\n\t" ROWS(s)
#define STEP_IN_PLACE(s) "vmovups (%[b]), %%ymm12\n\tvmovups 32(%[b]), %%ymm13\n\tadd %[b_step], %[b]\n\t" ROWS(s)
#define GROUP(STEP)      STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
#define ACC(i, v)        [acc##i##v] "+x"(acc[i][v])
#define ACCS                                                                                                      \
    ACC(0, 0), ACC(0, 1), ACC(1, 0), ACC(1, 1), ACC(2, 0), ACC(2, 1), ACC(3, 0), ACC(3, 1), ACC(4, 0), ACC(4, 1), \
        ACC(5, 0), ACC(5, 1)

static inline __attribute__((always_inline)) void run_group(__m256 acc[MR][NR / LANES], const float **a,
                                                            const float **b, size_t b_ld, const int vectors) {
    const float *from = *b;
    if (vectors == 2 && b_ld == NR)
        __asm__ volatile(GROUP(STEP_PACKED) : ACCS : [a] "r"(*a), [b] "r"(from) : "xmm12", "xmm13", "xmm14", "memory");
    else if (vectors == 2)
        __asm__ volatile(GROUP(STEP_IN_PLACE)
                         : ACCS, [b] "+r"(from)
                         : [a] "r"(*a), [b_step] "r"(b_ld * sizeof(float))
                         : "xmm12", "xmm13", "xmm14", "memory", "cc");
    else
        for (size_t s = 0; s < WH_GEMM_GROUP; s++) run_step(acc, *a + s * MR, from + s * b_ld, vectors);
    *a += WH_GEMM_GROUP * MR;
    *b += WH_GEMM_GROUP * b_ld;
}

/* `vectors` is a constant after inlining, so that columns beyond those wanted cost nothing, and for a packed panel so
 * is b_ld: additions to a pointer would take turns of the multiply-add units. */
static inline __attribute__((always_inline)) void run_chain(const struct wh_gemm_chain *c, const int vectors,
                                                            const size_t b_ld) {
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
    for (size_t k = groups * WH_GEMM_GROUP; k < c->k; k++) run_step(acc, a, b, vectors), a += MR, b += b_ld;
    for (int run = 0; run < 2; run++) {
        const float *left = c->left[run].top;
        for (unsigned t = 0; t < c->left[run].count; t++, left -= MR * NR)
#pragma GCC unroll 6
            for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = _mm256_add_ps(_mm256_load_ps(left + i * NR + v * LANES), acc[i][v]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) _mm256_storeu_ps(c->out + (size_t)i * c->out_ld + v * LANES, acc[i][v]);
}

static void tile(const struct wh_gemm_chain *c) {
    if (c->b_ld != NR)
        run_chain(c, 2, c->b_ld);
    else if (c->cols > LANES)
        run_chain(c, 2, NR);
    else
        run_chain(c, 1, NR);
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
