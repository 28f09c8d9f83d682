/* The loops of the probe, included by probe_reference.c, probe_avx2.c and probe_avx512.c after they have defined
 *
 *   LANES      floats in a register
 *   CHAINS     independent multiply-add chains: enough to fill latency times units, few enough for the registers
 *   floats     a vector of LANES floats (GNU vector extension)
 *   multiply_add(a, b, c)
 *   LOOPS      name of the table to define, and NAME its text */
#include "os/probe_int.h"

typedef uint64_t words __attribute__((vector_size(4 * LANES)));

enum { UNROLL = 128 / LANES }; /* registers in one step of a memory loop: 512 bytes */

/* x = fma(x, 0.999, 0.001) tends to 1: never a denormal, never infinite. */
static float fma_chains(size_t iterations) {
    floats x[CHAINS];
    const floats a = (floats){0} + 0.999f, b = (floats){0} + 0.001f;
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; i++) x[i] = (floats){0} + (float)i;
    for (size_t n = 0; n < iterations; n++) {
#pragma GCC unroll 32
        for (int i = 0; i < CHAINS; i++) x[i] = multiply_add(x[i], a, b);
    }
    float sum = 0;
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; i++) sum += x[i][0];
    return sum;
}

static uint64_t read_all(const float *a, size_t elems) {
    const words *p = (const words *)(const void *)a;
    words sum[4] = {0};
    for (size_t i = 0; i < elems / LANES; i += 4) {
        sum[0] += p[i], sum[1] += p[i + 1], sum[2] += p[i + 2], sum[3] += p[i + 3];
    }
    sum[0] += sum[1] + sum[2] + sum[3];
    return sum[0][0] + sum[0][1];
}

static void copy_all(float *a, const float *b, size_t elems) {
    floats *to = (floats *)(void *)a;
    const floats *from = (const floats *)(const void *)b;
    for (size_t i = 0; i < elems / LANES; i += UNROLL) {
#pragma GCC unroll 32
        for (int j = 0; j < UNROLL; j++) to[i + (size_t)j] = from[i + (size_t)j];
        __asm__ volatile("" : : : "memory"); /* else the compiler calls memcpy, which may use other stores */
    }
}

static void triad_all(float *a, const float *b, const float *c, float s, size_t elems) {
    floats *to = (floats *)(void *)a;
    const floats *p = (const floats *)(const void *)b, *q = (const floats *)(const void *)c;
    const floats factor = (floats){0} + s;
    for (size_t i = 0; i < elems / LANES; i++) to[i] = multiply_add(factor, q[i], p[i]);
}

const struct wh_probe_loops LOOPS = {
    .name = NAME,
    .flops_per_iteration = 2 * CHAINS * LANES,
    .fma = fma_chains,
    .read = read_all,
    .copy = copy_all,
    .triad = triad_all,
};
