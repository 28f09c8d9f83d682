/* Speed of attention, forward and backward, one thread.
 *
 *     make build/release/libwanhe.a
 *     gcc -O2 -Isrc bench/attention/bench_attention.c build/release/libwanhe.a -lsleef -lm -o build/bench_attention
 *     build/bench_attention [T [D [R]]]        default 256 64 1
 *
 * For each instruction set that runs here: GFLOP/s of forward, of backward, of both, and what share that is of the
 * multiply-add speed of registers alone in the same instruction set, measured in the same run. Operations: 4*D
 * (forward) and 10*D (backward) for each pair of a row and a key up to the end of the row's block of 32. The best of
 * many short rounds, so that neighbours on the machine disturb little. */
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tensor/attention.h"

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { CHAINS = 12, PEAK_STEPS = 20000 };

__attribute__((target("avx512f"))) static float chains_avx512(void) {
    __m512 sum[CHAINS], x = _mm512_set1_ps(0.5f);
    for (int c = 0; c < CHAINS; c++) sum[c] = x;
    for (int n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_fmadd_ps(sum[c], x, x);
    }
    for (int c = 1; c < CHAINS; c++) sum[0] = _mm512_add_ps(sum[0], sum[c]);
    return _mm512_cvtss_f32(sum[0]);
}

__attribute__((target("avx2,fma"))) static float chains_avx2(void) {
    __m256 sum[CHAINS], x = _mm256_set1_ps(0.5f);
    for (int c = 0; c < CHAINS; c++) sum[c] = x;
    for (int n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sum[c] = _mm256_fmadd_ps(sum[c], x, x);
    }
    for (int c = 1; c < CHAINS; c++) sum[0] = _mm256_add_ps(sum[0], sum[c]);
    return _mm256_cvtss_f32(sum[0]);
}

/* Best GFLOP/s of many rounds of `chains`. */
static double peak(float (*chains)(void), int lanes) {
    double best = INFINITY;
    volatile float sink;
    for (int round = 0; round < 300; round++) {
        double start = seconds();
        sink = chains();
        best = fmin(best, seconds() - start);
    }
    (void)sink;
    return 2e-9 * lanes * CHAINS * PEAK_STEPS / best;
}

static float *filled(size_t count) {
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)(i * 2654435761u % 1000) * 0.002f - 1;
    return x;
}

static double pairs(size_t T) {
    double n = 0;
    for (size_t i = 0; i < T; i += WH_ATTENTION_BLOCK) {
        size_t end = i + WH_ATTENTION_BLOCK < T ? i + WH_ATTENTION_BLOCK : T;
        n += (double)(end - i) * (double)end;
    }
    return n;
}

static void measure(const struct wh_attention_kernels *k, const struct wh_attention *a, void *scratch,
                    double peak_gflops) {
    double forward = INFINITY, backward = INFINITY, begin = seconds();
    while (seconds() - begin < 1) {
        double t0 = seconds();
        for (size_t r = 0; r < a->R; r++) k->forward(a, r, scratch);
        double t1 = seconds();
        k->backward(a, scratch);
        forward = fmin(forward, t1 - t0);
        backward = fmin(backward, seconds() - t1);
    }
    const double work = 1e-9 * (double)(a->R * a->D) * pairs(a->T);
    const double speed[3] = {4 * work / forward, 10 * work / backward, 14 * work / (forward + backward)};
    printf("%-10s T %zu D %zu R %zu", k->name, a->T, a->D, a->R);
    const char *const names[3] = {"forward", "backward", "both"};
    for (int i = 0; i < 3; i++)
        printf("   %s %.1f GFLOP/s (%.0f %%)", names[i], speed[i], 100 * speed[i] / peak_gflops);
    printf("   registers alone %.1f\n", peak_gflops);
}

int main(int argc, char **argv) {
    const size_t T = argc > 1 ? (size_t)atoi(argv[1]) : 256, D = argc > 2 ? (size_t)atoi(argv[2]) : 64;
    const size_t R = argc > 3 ? (size_t)atoi(argv[3]) : 1;
    struct wh_attention a = {.T = T, .D = D, .R = R, .dtype = WH_F32, .scale = 1 / sqrtf((float)D), .chunks = 1};
    a.q = filled(T * R * D), a.k = filled(T * D), a.v = filled(T * D), a.d_o = filled(T * R * D);
    a.o = filled(T * R * D), a.dq = filled(T * R * D), a.dk = filled(T * D), a.dv = filled(T * D);
    a.q_stride = a.o_stride = a.do_stride = a.dq_stride = R * D;
    a.k_stride = a.v_stride = a.dk_stride = a.dv_stride = D;
    a.stats = filled(2 * R * T);
    a.dropout_scale = 1;
    void *scratch = aligned_alloc(64, wh_attention_scratch_bytes(T, D, 1));
    if (wh_vec_select("avx512")) measure(&wh_attention_avx512, &a, scratch, peak(chains_avx512, 16));
    if (wh_vec_select("avx2")) measure(&wh_attention_avx2, &a, scratch, peak(chains_avx2, 8));
    return 0;
}
