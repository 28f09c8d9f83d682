/* The loops of probe.c, once for each instruction set; see probe_body.h. Private to probe*.c. */
#ifndef WH_OS_PROBE_INT_H
#define WH_OS_PROBE_INT_H

#include <stddef.h>
#include <stdint.h>

struct wh_probe_loops {
    const char *name;
    size_t flops_per_iteration;
    /* Runs that many iterations; returns something that depends on all of them. */
    float (*fma)(size_t iterations);
    /* `elems` is a multiple of 128; pointers are 64-byte aligned. */
    uint64_t (*read)(const float *a, size_t elems);
    void (*copy)(float *a, const float *b, size_t elems);
    void (*triad)(float *a, const float *b, const float *c, float s, size_t elems);
};

extern const struct wh_probe_loops wh_probe_loops_reference, wh_probe_loops_avx2, wh_probe_loops_avx512;

#endif
