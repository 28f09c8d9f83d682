/* The 16 lanes that row kernels and attention are written over, in plain C: the meaning of every operation.
 *
 * One of lanes_ref.h, lanes_avx2.h, lanes_avx512.h is included, then a body (vec_body.h, attention_body.h); the three
 * define the same names and, for the same inputs, the same bits. Each operation rounds once (to nearest, subnormals
 * kept); _n versions touch the first n <= 16 elements only, all pointers may be unaligned. */
#ifndef WH_TENSOR_LANES_H
#define WH_TENSOR_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef FP_FAST_FMA
#define FP_FAST_FMA /* else sleef.h doesn't declare its scalar functions over fma */
#endif
#include <sleef.h>

#include "base/dtype.h"
#include "base/rng.h"

struct lanes {
    float v[16];
};
struct lanes64 {
    double v[16];
};

/* Register tile of the products in attention_body.h: rows, and columns in units of 16. Bits don't depend on it. */
enum { LANES_TILE_ROWS = 4, LANES_TILE_COLUMNS = 1 };

#define EACH_LANE for (int l = 0; l < 16; l++)

static inline struct lanes lanes_set(float x) {
    struct lanes r;
    EACH_LANE r.v[l] = x;
    return r;
}

static inline struct lanes lanes_load(const float *p) {
    struct lanes r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}

/* Lanes from n on get `fill`. */
static inline struct lanes lanes_load_n(const float *p, size_t n, float fill) {
    struct lanes r = lanes_set(fill);
    memcpy(r.v, p, n * sizeof *p);
    return r;
}

static inline void lanes_store(float *p, struct lanes a) { memcpy(p, a.v, sizeof a.v); }
static inline void lanes_store_n(float *p, struct lanes a, size_t n) { memcpy(p, a.v, n * sizeof *p); }

static inline struct lanes lanes_load_bf16_n(const uint16_t *p, size_t n) {
    struct lanes r = lanes_set(0);
    for (size_t l = 0; l < n; l++) r.v[l] = wh_bf16_to_f32(p[l]);
    return r;
}

static inline void lanes_store_bf16_n(uint16_t *p, struct lanes a, size_t n) {
    for (size_t l = 0; l < n; l++) p[l] = wh_f32_to_bf16(a.v[l]);
}

/* Lanes from n on become +0. */
static inline struct lanes lanes_first(struct lanes a, size_t n) {
    for (size_t l = n; l < 16; l++) a.v[l] = 0;
    return a;
}

static inline struct lanes lanes_add(struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] += b.v[l];
    return a;
}

static inline struct lanes lanes_sub(struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] -= b.v[l];
    return a;
}

static inline struct lanes lanes_mul(struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] *= b.v[l];
    return a;
}

static inline struct lanes lanes_div(struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] /= b.v[l];
    return a;
}

/* a*b + c */
static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c) {
    EACH_LANE a.v[l] = fmaf(a.v[l], b.v[l], c.v[l]);
    return a;
}

/* -a*b + c */
static inline struct lanes lanes_fnma(struct lanes a, struct lanes b, struct lanes c) {
    EACH_LANE a.v[l] = fmaf(-a.v[l], b.v[l], c.v[l]);
    return a;
}

static inline struct lanes lanes_sqrt(struct lanes a) {
    EACH_LANE a.v[l] = sqrtf(a.v[l]);
    return a;
}

/* b where the two compare equal (zeros of both signs) or one is NaN: the processor's MAXPS and MINPS. */
static inline struct lanes lanes_max(struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] = a.v[l] > b.v[l] ? a.v[l] : b.v[l];
    return a;
}

static inline struct lanes lanes_min(struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] = a.v[l] < b.v[l] ? a.v[l] : b.v[l];
    return a;
}

static inline struct lanes lanes_minus_abs(struct lanes a) {
    EACH_LANE a.v[l] = -fabsf(a.v[l]);
    return a;
}

/* x < 0 ? a : b */
static inline struct lanes lanes_if_negative(struct lanes x, struct lanes a, struct lanes b) {
    EACH_LANE a.v[l] = x.v[l] < 0 ? a.v[l] : b.v[l];
    return a;
}

/* a0 b0 a1 b1 ... a7 b7 into *low, a8 b8 ... a15 b15 into *high. */
static inline void lanes_interleave(struct lanes a, struct lanes b, struct lanes *low, struct lanes *high) {
    for (int l = 0; l < 8; l++) {
        low->v[2 * l] = a.v[l], low->v[2 * l + 1] = b.v[l];
        high->v[2 * l] = a.v[l + 8], high->v[2 * l + 1] = b.v[l + 8];
    }
}

/* Within 1 ulp, +0 far below, infinity far above; subnormal results are kept. */
static inline struct lanes lanes_exp(struct lanes a) {
    EACH_LANE a.v[l] = Sleef_finz_expf1_u10purecfma(a.v[l]);
    return a;
}

/* Lanes 8 apart, then 4, 2, 1. */
static inline float lanes_sum(struct lanes a) {
    for (int apart = 8; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++) a.v[l] += a.v[l + apart];
    return a.v[0];
}

static inline float lanes_top(struct lanes a) {
    for (int apart = 8; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++) a.v[l] = a.v[l] > a.v[l + apart] ? a.v[l] : a.v[l + apart];
    return a.v[0];
}

static inline struct lanes64 lanes64_zero(void) {
    struct lanes64 r;
    EACH_LANE r.v[l] = 0;
    return r;
}

/* sum + x*x in double; the product of two floats is exact there. */
static inline struct lanes64 lanes64_add_square(struct lanes64 sum, struct lanes x) {
    EACH_LANE sum.v[l] += (double)x.v[l] * x.v[l];
    return sum;
}

static inline double lanes64_sum(struct lanes64 a) {
    for (int apart = 8; apart > 0; apart /= 2)
        for (int l = 0; l < apart; l++) a.v[l] += a.v[l + apart];
    return a.v[0];
}

/* Random words of the 32 elements of blocks `block` .. block+7. */
static inline void lanes_random(uint32_t words[32], const struct wh_rng *r, uint64_t block) {
    for (int b = 0; b < 8; b++) wh_rng_block(r, block + (uint64_t)b, words + 4 * b);
}

/* words[l] >= threshold ? a : +0 */
static inline struct lanes lanes_if_at_least(const uint32_t words[16], uint32_t threshold, struct lanes a) {
    EACH_LANE a.v[l] = words[l] >= threshold ? a.v[l] : 0;
    return a;
}

#undef EACH_LANE

#endif
