/* The 16 lanes of lanes_ref.h, which documents them, in one AVX-512 register. */
#ifndef WH_TENSOR_LANES_H
#define WH_TENSOR_LANES_H

#include <immintrin.h>
#include <sleef.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

struct lanes {
    __m512 v;
};
struct lanes64 {
    __m512d low, high;
};

enum { LANES_TILE_ROWS = 8, LANES_TILE_COLUMNS = 2 };

#define LANES(value) ((struct lanes){value})

static inline __mmask16 lanes_mask(size_t n) { return (__mmask16)((1u << n) - 1u); }

static inline struct lanes lanes_set(float x) { return LANES(_mm512_set1_ps(x)); }
static inline struct lanes lanes_load(const float *p) { return LANES(_mm512_loadu_ps(p)); }

static inline struct lanes lanes_load_n(const float *p, size_t n, float fill) {
    if (n == 16) return lanes_load(p);
    return LANES(_mm512_mask_loadu_ps(_mm512_set1_ps(fill), lanes_mask(n), p));
}

static inline void lanes_store(float *p, struct lanes a) { _mm512_storeu_ps(p, a.v); }

static inline void lanes_store_n(float *p, struct lanes a, size_t n) {
    if (n == 16)
        lanes_store(p, a);
    else
        _mm512_mask_storeu_ps(p, lanes_mask(n), a.v);
}

static inline struct lanes lanes_load_bf16_n(const uint16_t *p, size_t n) {
    __m256i h = n == 16 ? _mm256_loadu_si256((const void *)p) : _mm256_maskz_loadu_epi16(lanes_mask(n), p);
    return LANES(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)));
}

static inline void lanes_store_bf16_n(uint16_t *p, struct lanes a, size_t n) {
    __m512i u = _mm512_castps_si512(a.v), high = _mm512_srli_epi32(u, 16), one = _mm512_set1_epi32(1);
    __m512i bias = _mm512_add_epi32(_mm512_and_si512(high, one), _mm512_set1_epi32(0x7fff));
    __m512i even = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    __m256i h = _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(even, nan, quiet));
    if (n == 16)
        _mm256_storeu_si256((void *)p, h);
    else
        _mm256_mask_storeu_epi16(p, lanes_mask(n), h);
}

static inline struct lanes lanes_first(struct lanes a, size_t n) {
    return n == 16 ? a : LANES(_mm512_maskz_mov_ps(lanes_mask(n), a.v));
}

static inline struct lanes lanes_add(struct lanes a, struct lanes b) { return LANES(_mm512_add_ps(a.v, b.v)); }
static inline struct lanes lanes_sub(struct lanes a, struct lanes b) { return LANES(_mm512_sub_ps(a.v, b.v)); }
static inline struct lanes lanes_mul(struct lanes a, struct lanes b) { return LANES(_mm512_mul_ps(a.v, b.v)); }
static inline struct lanes lanes_div(struct lanes a, struct lanes b) { return LANES(_mm512_div_ps(a.v, b.v)); }
static inline struct lanes lanes_sqrt(struct lanes a) { return LANES(_mm512_sqrt_ps(a.v)); }
static inline struct lanes lanes_max(struct lanes a, struct lanes b) { return LANES(_mm512_max_ps(a.v, b.v)); }
static inline struct lanes lanes_min(struct lanes a, struct lanes b) { return LANES(_mm512_min_ps(a.v, b.v)); }

static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c) {
    return LANES(_mm512_fmadd_ps(a.v, b.v, c.v));
}

static inline struct lanes lanes_fnma(struct lanes a, struct lanes b, struct lanes c) {
    return LANES(_mm512_fnmadd_ps(a.v, b.v, c.v));
}

static inline struct lanes lanes_minus_abs(struct lanes a) { return LANES(_mm512_or_ps(a.v, _mm512_set1_ps(-0.0f))); }

static inline struct lanes lanes_if_negative(struct lanes x, struct lanes a, struct lanes b) {
    return LANES(_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_LT_OQ), a.v));
}

static inline void lanes_interleave(struct lanes a, struct lanes b, struct lanes *low, struct lanes *high) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    low->v = _mm512_permutex2var_ps(a.v, first, b.v);
    high->v = _mm512_permutex2var_ps(a.v, _mm512_add_epi32(first, _mm512_set1_epi32(8)), b.v);
}

static inline struct lanes lanes_exp(struct lanes a) { return LANES(Sleef_finz_expf16_u10avx512f(a.v)); }

static inline float lanes_sum(struct lanes a) {
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

static inline float lanes_top(struct lanes a) {
    __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

static inline struct lanes64 lanes64_zero(void) { return (struct lanes64){_mm512_setzero_pd(), _mm512_setzero_pd()}; }

static inline struct lanes64 lanes64_add_square(struct lanes64 sum, struct lanes x) {
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
    return (struct lanes64){_mm512_fmadd_pd(low, low, sum.low), _mm512_fmadd_pd(high, high, sum.high)};
}

static inline double lanes64_sum(struct lanes64 a) {
    __m512d s8 = _mm512_add_pd(a.low, a.high);
    __m256d s4 = _mm256_add_pd(_mm512_castpd512_pd256(s8), _mm512_extractf64x4_pd(s8, 1));
    __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

/* Philox with one block per 64-bit lane: words in the low halves, whatever lies in the high halves is never read. */
static inline void lanes_random(uint32_t words[32], const struct wh_rng *r, uint64_t block) {
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    __m512i c0 = _mm512_add_epi64(_mm512_set1_epi64((long long)block), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    __m512i c1 = _mm512_srli_epi64(c0, 32);
    __m512i c2 = _mm512_set1_epi64(r->step_purpose), c3 = _mm512_set1_epi64(r->tensor);
    uint32_t k0 = r->key[0], k1 = r->key[1];
    for (int round = 0; round < 10; round++) {
        __m512i p0 = _mm512_mul_epu32(c0, m0), p1 = _mm512_mul_epu32(c2, m1);
        c0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), c1), _mm512_set1_epi64(k0));
        c2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), c3), _mm512_set1_epi64(k1));
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const __mmask16 odd = 0xaaaa;
    __m512i c01 = _mm512_mask_blend_epi32(odd, c0, _mm512_slli_epi64(c1, 32));
    __m512i c23 = _mm512_mask_blend_epi32(odd, c2, _mm512_slli_epi64(c3, 32));
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), four = _mm512_set1_epi64(4);
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(c01, first, c23));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(c01, _mm512_add_epi64(first, four), c23));
}

static inline struct lanes lanes_if_at_least(const uint32_t words[16], uint32_t threshold, struct lanes a) {
    __m512i w = _mm512_loadu_si512(words);
    return LANES(_mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(w, _mm512_set1_epi32((int)threshold)), a.v));
}

#undef LANES

#endif
