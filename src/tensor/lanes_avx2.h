/* The 16 lanes of lanes_ref.h, which documents them, in two AVX2 registers: lanes 0..7 low, 8..15 high. */
#ifndef WH_TENSOR_LANES_H
#define WH_TENSOR_LANES_H

#include <immintrin.h>
#include <sleef.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

struct lanes {
    __m256 low, high;
};
struct lanes64 {
    __m256d v[4];
};

/* 4 rows of 16 are 8 accumulators, as many as hide the latency of two multiply-adds a cycle. */
enum { LANES_TILE_ROWS = 4, LANES_TILE_COLUMNS = 1 };

/* The same operation on both halves. */
#define LANES1(op, a)       ((struct lanes){op((a).low), op((a).high)})
#define LANES2(op, a, b)    ((struct lanes){op((a).low, (b).low), op((a).high, (b).high)})
#define LANES3(op, a, b, c) ((struct lanes){op((a).low, (b).low, (c).low), op((a).high, (b).high, (c).high)})

/* All ones in 32-bit lane l if from + l < n. */
static inline __m256i lanes_mask(int from, size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - from), lane);
}

static inline struct lanes lanes_set(float x) { return (struct lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline struct lanes lanes_load(const float *p) {
    return (struct lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

static inline __m256 lanes_load_half(const float *p, __m256i mask, float fill) {
    return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}

static inline struct lanes lanes_load_n(const float *p, size_t n, float fill) {
    if (n == 16) return lanes_load(p);
    return (struct lanes){lanes_load_half(p, lanes_mask(0, n), fill), lanes_load_half(p + 8, lanes_mask(8, n), fill)};
}

static inline void lanes_store(float *p, struct lanes a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}

static inline void lanes_store_n(float *p, struct lanes a, size_t n) {
    if (n == 16) {
        lanes_store(p, a);
    } else {
        _mm256_maskstore_ps(p, lanes_mask(0, n), a.low);
        _mm256_maskstore_ps(p + 8, lanes_mask(8, n), a.high);
    }
}

static inline __m256 lanes_widen_half(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline struct lanes lanes_load_bf16_n(const uint16_t *p, size_t n) {
    uint16_t tail[16] = {0};
    if (n < 16) p = memcpy(tail, p, n * sizeof *p);
    return (struct lanes){lanes_widen_half(_mm_loadu_si128((const void *)p)),
                          lanes_widen_half(_mm_loadu_si128((const void *)(p + 8)))};
}

/* Eight rounded values, each in the low half of its 32-bit lane. */
static inline __m256i lanes_narrow_half(__m256 a) {
    __m256i u = _mm256_castps_si256(a), high = _mm256_srli_epi32(u, 16), one = _mm256_set1_epi32(1);
    __m256i bias = _mm256_add_epi32(_mm256_and_si256(high, one), _mm256_set1_epi32(0x7fff));
    __m256i even = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(even, quiet, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
}

static inline void lanes_store_bf16_n(uint16_t *p, struct lanes a, size_t n) {
    uint16_t tail[16];
    __m256i mixed = _mm256_packus_epi32(lanes_narrow_half(a.low), lanes_narrow_half(a.high));
    _mm256_storeu_si256((void *)(n < 16 ? tail : p), _mm256_permute4x64_epi64(mixed, 0xd8));
    if (n < 16) memcpy(p, tail, n * sizeof *p);
}

static inline struct lanes lanes_first(struct lanes a, size_t n) {
    if (n == 16) return a;
    return (struct lanes){_mm256_and_ps(a.low, _mm256_castsi256_ps(lanes_mask(0, n))),
                          _mm256_and_ps(a.high, _mm256_castsi256_ps(lanes_mask(8, n)))};
}

static inline struct lanes lanes_add(struct lanes a, struct lanes b) { return LANES2(_mm256_add_ps, a, b); }
static inline struct lanes lanes_sub(struct lanes a, struct lanes b) { return LANES2(_mm256_sub_ps, a, b); }
static inline struct lanes lanes_mul(struct lanes a, struct lanes b) { return LANES2(_mm256_mul_ps, a, b); }
static inline struct lanes lanes_div(struct lanes a, struct lanes b) { return LANES2(_mm256_div_ps, a, b); }
static inline struct lanes lanes_sqrt(struct lanes a) { return LANES1(_mm256_sqrt_ps, a); }
static inline struct lanes lanes_max(struct lanes a, struct lanes b) { return LANES2(_mm256_max_ps, a, b); }
static inline struct lanes lanes_min(struct lanes a, struct lanes b) { return LANES2(_mm256_min_ps, a, b); }

static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c) {
    return LANES3(_mm256_fmadd_ps, a, b, c);
}

static inline struct lanes lanes_fnma(struct lanes a, struct lanes b, struct lanes c) {
    return LANES3(_mm256_fnmadd_ps, a, b, c);
}

static inline struct lanes lanes_minus_abs(struct lanes a) {
    const struct lanes sign = lanes_set(-0.0f);
    return LANES2(_mm256_or_ps, a, sign);
}

static inline __m256 lanes_if_negative_half(__m256 x, __m256 a, __m256 b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}

static inline struct lanes lanes_if_negative(struct lanes x, struct lanes a, struct lanes b) {
    return LANES3(lanes_if_negative_half, x, a, b);
}

static inline struct lanes lanes_interleave_half(__m256 a, __m256 b) {
    __m256 even = _mm256_unpacklo_ps(a, b), odd = _mm256_unpackhi_ps(a, b); /* elements 0 1 4 5, 2 3 6 7 */
    return (struct lanes){_mm256_permute2f128_ps(even, odd, 0x20), _mm256_permute2f128_ps(even, odd, 0x31)};
}

static inline void lanes_interleave(struct lanes a, struct lanes b, struct lanes *low, struct lanes *high) {
    *low = lanes_interleave_half(a.low, b.low);
    *high = lanes_interleave_half(a.high, b.high);
}

static inline struct lanes lanes_exp(struct lanes a) { return LANES1(Sleef_finz_expf8_u10avx2, a); }

static inline float lanes_sum(struct lanes a) {
    __m256 s8 = _mm256_add_ps(a.low, a.high);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

static inline float lanes_top(struct lanes a) {
    __m256 s8 = _mm256_max_ps(a.low, a.high);
    __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

static inline struct lanes64 lanes64_zero(void) {
    const __m256d zero = _mm256_setzero_pd();
    return (struct lanes64){{zero, zero, zero, zero}};
}

static inline struct lanes64 lanes64_add_square(struct lanes64 sum, struct lanes x) {
    const __m128 quarter[4] = {_mm256_castps256_ps128(x.low), _mm256_extractf128_ps(x.low, 1),
                               _mm256_castps256_ps128(x.high), _mm256_extractf128_ps(x.high, 1)};
    for (int q = 0; q < 4; q++) {
        __m256d wide = _mm256_cvtps_pd(quarter[q]);
        sum.v[q] = _mm256_fmadd_pd(wide, wide, sum.v[q]);
    }
    return sum;
}

static inline double lanes64_sum(struct lanes64 a) {
    __m256d s4 = _mm256_add_pd(_mm256_add_pd(a.v[0], a.v[2]), _mm256_add_pd(a.v[1], a.v[3]));
    __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

/* Philox with one block per 64-bit lane: words in the low halves, whatever lies in the high halves is never read. */
static inline void lanes_random_half(uint32_t words[16], const struct wh_rng *r, uint64_t block) {
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
    __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x((long long)block), _mm256_setr_epi64x(0, 1, 2, 3));
    __m256i c1 = _mm256_srli_epi64(c0, 32);
    __m256i c2 = _mm256_set1_epi64x(r->step_purpose), c3 = _mm256_set1_epi64x(r->tensor);
    uint32_t k0 = r->key[0], k1 = r->key[1];
    for (int round = 0; round < 10; round++) {
        __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
        c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
        c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    __m256i c01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
    __m256i c23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
    __m256i b02 = _mm256_unpacklo_epi64(c01, c23), b13 = _mm256_unpackhi_epi64(c01, c23);
    _mm256_storeu_si256((void *)words, _mm256_permute2x128_si256(b02, b13, 0x20));
    _mm256_storeu_si256((void *)(words + 8), _mm256_permute2x128_si256(b02, b13, 0x31));
}

static inline void lanes_random(uint32_t words[32], const struct wh_rng *r, uint64_t block) {
    lanes_random_half(words, r, block);
    lanes_random_half(words + 16, r, block + 4);
}

static inline __m256 lanes_if_at_least_half(const uint32_t words[8], __m256i threshold, __m256 a) {
    __m256i w = _mm256_loadu_si256((const void *)words);
    return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(w, threshold), w)));
}

static inline struct lanes lanes_if_at_least(const uint32_t words[16], uint32_t threshold, struct lanes a) {
    const __m256i t = _mm256_set1_epi32((int)threshold);
    return (struct lanes){lanes_if_at_least_half(words, t, a.low), lanes_if_at_least_half(words + 8, t, a.high)};
}

#undef LANES1
#undef LANES2
#undef LANES3

#endif
