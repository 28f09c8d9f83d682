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

/* The same for full tiles, eight steps, as assembly: with 15 of 16 registers in use gcc 12 otherwise moves accumulators
 * around and reads B again and again, differently after every edit; that cost a few per cent.
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

/* Prefetching has its own loops: a piece of the next tile's C for each group of steps, then of what will be packed.
 * `vectors` is a constant after inlining, and for a packed panel so is b_ld. */
static inline __attribute__((always_inline)) void run_tile(const struct wh_gemm_tile *t, const int vectors,
                                                           const size_t b_ld) {
    __m256 acc[MR][NR / LANES];
    const float *a = t->a, *b = t->b, *next_row = t->next_out, *start = t->start;
    size_t rows_ahead = t->next_out ? MR : 0;
    struct wh_gemm_ahead ahead = *t->ahead;
    size_t asks = ahead.share < ahead.pieces_left ? ahead.share : ahead.pieces_left;
    for (const struct wh_gemm_chain *c = t->chains, *end = c + t->chain_count; c < end; c++, start = NULL) {
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                acc[i][v] = start ? _mm256_loadu_ps(start + (size_t)i * t->start_ld + v * LANES) : _mm256_setzero_ps();
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
        for (size_t k = c->k % WH_GEMM_GROUP; k > 0; k--) run_step(acc, a, b, vectors), a += MR, b += b_ld;
        for (unsigned h = c->height; h-- > wh_gemm_chain_out(c);) {
            const float *left = (h < c->old ? t->arena : t->stack) + h * (MR * NR);
#pragma GCC unroll 6
            for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = _mm256_add_ps(_mm256_load_ps(left + i * NR + v * LANES), acc[i][v]);
        }
        bool to_out = c + 1 == end;
        float *out = to_out ? t->out : (c->outlives ? t->arena : t->stack) + wh_gemm_chain_out(c) * (MR * NR);
        size_t out_ld = to_out ? t->out_ld : NR;
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) _mm256_storeu_ps(out + (size_t)i * out_ld + v * LANES, acc[i][v]);
    }
    *t->ahead = ahead;
}

static void tile(const struct wh_gemm_tile *t) {
    if (t->b_ld != NR)
        run_tile(t, 2, t->b_ld);
    else if (t->cols > LANES)
        run_tile(t, 2, NR);
    else
        run_tile(t, 1, NR);
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
