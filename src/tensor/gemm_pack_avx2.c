/* Packing for every processor with AVX2: rows of 8 where r is contiguous, 8x8 transposes where k is. */
#include <immintrin.h>

#include "tensor/gemm_int.h"

enum { LANES = 8 };

static inline __attribute__((always_inline)) __m256 load8(const void *data, size_t i, const bool bf16) {
    if (!bf16) return _mm256_loadu_ps((const float *)data + i);
    __m128i half = _mm_loadu_si128((const __m128i *)((const uint16_t *)data + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline __attribute__((always_inline)) float load1(const void *data, size_t i, const bool bf16) {
    return wh_gemm_load(data, bf16 ? WH_BF16 : WH_F32, i);
}

static inline void transpose8(__m256 x[8]) {
    __m256 t[8];
    for (int i = 0; i < 4; i++) { /* pairs of rows: 0 1 of columns 0 1 4 5, 2 3 6 7 */
        t[2 * i] = _mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    for (int h = 0; h < 2; h++) { /* rows 4h..4h+3 of column c (low half) and c+4 (high half) */
        x[4 * h + 0] = _mm256_shuffle_ps(t[4 * h + 0], t[4 * h + 2], 0x44);
        x[4 * h + 1] = _mm256_shuffle_ps(t[4 * h + 0], t[4 * h + 2], 0xee);
        x[4 * h + 2] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0x44);
        x[4 * h + 3] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        __m256 low = x[i], high = x[i + 4];
        x[i] = _mm256_permute2f128_ps(low, high, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

/* Eight steps of k of up to eight r starting at `r`; `valid` of them exist. A store may spill into the next step, which
 * is written later. */
static inline __attribute__((always_inline)) void across8(float *out, size_t width, const struct wh_gemm_source *x,
                                                          size_t r, size_t valid, size_t k, const bool bf16) {
    __m256 v[LANES];
    for (size_t i = 0; i < LANES; i++)
        v[i] = i < valid ? load8(x->data, (r + i) * x->ld + k, bf16) : _mm256_setzero_ps();
    transpose8(v);
    for (size_t i = 0; i < LANES; i++) _mm256_storeu_ps(out + i * width, v[i]);
}

static inline __attribute__((always_inline)) void pack_across(const struct wh_gemm_source *x,
                                                              const struct wh_gemm_pack *p, const bool bf16) {
    size_t vector_k = p->count / LANES * LANES;
    float *panel = p->out;
    for (size_t r0 = 0; r0 < p->rows; r0 += p->width, panel += p->panel_stride) {
        size_t rows = p->rows - r0 < p->width ? p->rows - r0 : p->width;
        for (size_t g = 0; g < p->width; g += 2 * LANES) /* two groups: a line of the panel is written at once */
            for (size_t k = 0; k < vector_k; k += LANES)
                for (size_t h = g; h < p->width && h < g + 2 * LANES; h += LANES) {
                    size_t valid = h < rows ? rows - h : 0;
                    float *out = panel + k * p->width + h;
                    if (valid >= LANES)
                        across8(out, p->width, x, p->r + r0 + h, LANES, p->k + k, bf16);
                    else
                        across8(out, p->width, x, p->r + r0 + h, valid, p->k + k, bf16);
                }
        for (size_t k = vector_k; k < p->count; k++)
            for (size_t r = 0; r < p->width; r++)
                panel[k * p->width + r] = r < rows ? load1(x->data, (p->r + r0 + r) * x->ld + p->k + k, bf16) : 0.0f;
    }
}

/* Eight steps of k at a time for all panels: a line of X that two panels share is used while it is in L1, and steps
 * whose addresses are 4 KiB apart need no more than eight lines of a set. */
static inline __attribute__((always_inline)) void pack_along(const struct wh_gemm_source *x,
                                                             const struct wh_gemm_pack *p, const bool bf16) {
    for (size_t k0 = 0; k0 < p->count; k0 += LANES) {
        size_t k1 = k0 + LANES < p->count ? k0 + LANES : p->count;
        float *panel = p->out;
        for (size_t r0 = 0; r0 < p->rows; r0 += p->width, panel += p->panel_stride)
            for (size_t k = k0; k < k1; k++) {
                size_t row = (p->k + k) * x->ld + p->r, r = r0, end = r0 + p->width;
                float *out = panel + k * p->width;
                for (; r < end && r + LANES <= p->rows; r += LANES, out += LANES)
                    _mm256_storeu_ps(out, load8(x->data, row + r, bf16));
                for (; r < end; r++, out++) *out = r < p->rows ? load1(x->data, row + r, bf16) : 0.0f;
            }
    }
}

void wh_gemm_pack_avx2(const struct wh_gemm_source *x, const struct wh_gemm_pack *p) {
    if (x->along)
        x->dtype == WH_BF16 ? pack_along(x, p, true) : pack_along(x, p, false);
    else
        x->dtype == WH_BF16 ? pack_across(x, p, true) : pack_across(x, p, false);
}
