/* The epilogue of one tile, in plain C: each gemm_*.c compiles it with its own instruction set. */
#ifndef WH_TENSOR_GEMM_FINISH_H
#define WH_TENSOR_GEMM_FINISH_H

#include "tensor/gemm_int.h"

/* v = x + v; the order matters to nobody but a NaN. */
static inline void gemm_add_row(float *restrict v, const void *restrict x, enum wh_dtype dtype, size_t n) {
    if (dtype == WH_F32)
        for (size_t j = 0; j < n; j++) v[j] = ((const float *)x)[j] + v[j];
    else
        for (size_t j = 0; j < n; j++) v[j] = wh_bf16_to_f32(((const uint16_t *)x)[j]) + v[j];
}

static inline void gemm_store_row(void *restrict out, enum wh_dtype dtype, const float *restrict v, size_t n) {
    if (dtype == WH_F32)
        for (size_t j = 0; j < n; j++) ((float *)out)[j] = v[j];
    else
        for (size_t j = 0; j < n; j++) ((uint16_t *)out)[j] = wh_f32_to_bf16(v[j]);
}

static inline const void *gemm_at(const void *data, enum wh_dtype dtype, size_t i) {
    return (const char *)data + i * wh_dtype_bytes(dtype);
}

static void gemm_finish(const struct wh_gemm *g, const struct wh_vec *vec, float *tile, size_t ld, size_t i, size_t j,
                        size_t rows, size_t cols) {
    const struct wh_gemm_out *c = &g->c, *pre = &g->pre;
    const struct wh_gemm_in *residual = &g->residual;
    for (size_t r = 0; r < rows; r++) {
        float *v = tile + r * ld;
        size_t row = i + r;
        if (g->bias) gemm_add_row(v, gemm_at(g->bias, g->bias_dtype, j), g->bias_dtype, cols);
        if (pre->data) gemm_store_row((void *)gemm_at(pre->data, pre->dtype, row * pre->ld + j), pre->dtype, v, cols);
        if (g->activation == WH_GEMM_GELU_TANH) vec->gelu(v, v, cols);
        if (residual->data)
            gemm_add_row(v, gemm_at(residual->data, residual->dtype, row * residual->ld + j), residual->dtype, cols);
        gemm_store_row((void *)gemm_at(c->data, c->dtype, row * c->ld + j), c->dtype, v, cols);
    }
}

#endif
