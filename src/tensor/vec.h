/* Row kernels: everything but the GEMM and attention. Each is written once over 16 fixed lanes (tensor/lanes_*.h) and
 * compiled for plain C, AVX2 and AVX-512 into a table; all tables give equal bits (test/unit/tensor/test_vec.c).
 *
 * Formulas are the order of operations, from left to right: each operation rounds once, two of them are fused only
 * where `fma` stands. Elementary functions: SLEEF's Sleef_finz_ variants.
 * Reductions: lane l starts at +0 and sums elements l, l+16, l+32 ... in order, then lanes are added 8 apart, 4 apart,
 * 2 apart, 1 apart.
 * Subnormals are numbers as all others. A NaN in a row makes the results that depend on it NaN (`max` excepted, which
 * may drop it); its bits, and what infinities give, are not part of the contract.
 * All are single-threaded, allocate nothing, take unaligned pointers, and n may be any size including 0 (norms: from
 * 1). Outputs may be the same pointer as an input of the same type, never otherwise overlap. Cost: one or two passes
 * over the rows, memory-bound; exp and what is made of it cost 1 to 2 cycles an element with AVX-512. */
#ifndef WH_TENSOR_VEC_H
#define WH_TENSOR_VEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

struct wh_vec_adamw {
    float beta1, beta2, eps;
    float one_minus_beta1, one_minus_beta2; /* rounded from double */
    float step_size;                        /* lr / (1 - beta1^t) */
    float inv_sqrt_correction2;             /* 1 / sqrt(1 - beta2^t) */
    float keep;                             /* 1 - lr * weight_decay, or 1 */
    float grad_scale;                       /* clipping factor */
};

struct wh_vec {
    const char *name; /* "reference", "avx2", "avx512" */

    void (*widen)(float *out, const uint16_t *bf16, size_t n);
    void (*narrow)(uint16_t *bf16, const float *in, size_t n); /* to nearest even */

    void (*add)(float *out, const float *a, const float *b, size_t n);
    void (*mul)(float *out, const float *a, const float *b, size_t n);
    void (*scale)(float *out, const float *a, float s, size_t n);
    void (*mul_add)(float *acc, const float *a, const float *b, size_t n); /* acc = fma(a, b, acc) */
    void (*scale_add)(float *acc, const float *a, float s, size_t n);      /* acc = fma(a, s, acc) */

    float (*max)(const float *x, size_t n); /* -inf if n = 0; the sign of a zero is fixed but unspecified */
    float (*sum)(const float *x, size_t n);
    float (*dot)(const float *a, const float *b, size_t n);              /* lane = fma(a, b, lane) */
    double (*sum_squares)(const float *x, size_t n);                     /* lanes and tree in double */
    float (*exp_sum)(float *out, const float *x, float shift, size_t n); /* out = exp(x - shift); returns sum of out */

    /* mean = sum / n, var = (sum of (x - mean)^2, lane = fma(d, d, lane)) / n, rstd = 1 / sqrt(var + eps);
     * with xhat = (x - mean) * rstd, y = fma(xhat, gain, bias) */
    void (*layer_norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *bias,
                       float eps, size_t n);
    /* dx = rstd * (dy*gain - mean(dy*gain) - xhat * mean(dy*gain*xhat)); the second mean's lanes and the last
     * subtraction are fused: fma(dy*gain, xhat, lane), fma(-xhat, mean, ...) */
    void (*layer_norm_back)(float *dx, const float *dy, const float *x, float mean, float rstd, const float *gain,
                            size_t n);
    /* dgain = fma(dy, xhat, dgain), dbias += dy */
    void (*layer_norm_grads)(float *dgain, float *dbias, const float *dy, const float *x, float mean, float rstd,
                             size_t n);
    /* y = xhat * gain with xhat = x * rstd, rstd = 1 / sqrt(dot(x, x) / n + eps) */
    void (*rms_norm)(float *y, float *rstd, const float *x, const float *gain, float eps, size_t n);
    /* dx = rstd * fma(-xhat, mean(dy*gain*xhat), dy*gain) */
    void (*rms_norm_back)(float *dx, const float *dy, const float *x, float rstd, const float *gain, size_t n);
    void (*rms_norm_grads)(float *dgain, const float *dy, const float *x, float rstd, size_t n);

    /* GELU in tanh form, as GPT-2: 0.5*x*(1 + tanh(u)), u = sqrt(2/pi)*(x + 0.044715*x^3), computed as
     * x * logistic(2u), which is the same function without cancellation. Error within 2*|2u| + 6 ulp (an error in 2u
     * is one in the exponent); results below 2^-126 lose what subnormals lose.
     * gelu_back: dx = dout * gelu'(x), error of gelu' within 1e-6. Infinite x is not a legal input. */
    void (*gelu)(float *out, const float *x, size_t n);
    void (*gelu_back)(float *dx, const float *dout, const float *x, size_t n);
    /* silu(g) = g * logistic(g); error of logistic within 4 ulp */
    void (*swiglu)(float *out, const float *gate, const float *up, size_t n); /* silu(gate) * up */
    /* dup = dout * silu(gate); dgate = dout*up * silu'(gate) */
    void (*swiglu_back)(float *dgate, float *dup, const float *dout, const float *gate, const float *up, size_t n);

    /* Rotary embedding of one head of size 2*half, Hugging Face's half-split pairing (i, i + half), in place:
     * x0' = x0*cos - x1*sin, x1' = x1*cos + x0*sin; `back` rotates by the opposite angle (the gradient). */
    void (*rotate)(float *x, const float *cos, const float *sin, size_t half);
    void (*rotate_back)(float *x, const float *cos, const float *sin, size_t half);

    /* out = in * (keep ? scale : 0) where keep means wh_rng_u32(r, first_element + i) >= threshold */
    void (*dropout)(float *out, const float *in, const struct wh_rng *r, uint64_t first_element, uint32_t threshold,
                    float scale, size_t n);

    /* One AdamW update (decoupled decay): g = grad*grad_scale; m = fma(beta1, m, (1-beta1)*g);
     * v = fma(beta2, v, (1-beta2)*g*g); p = p*keep - step_size*m / (sqrt(v)*inv_sqrt_correction2 + eps). */
    void (*adamw)(float *p, float *m, float *v, const float *grad, const struct wh_vec_adamw *a, size_t n);
};

extern const struct wh_vec wh_vec_reference, wh_vec_avx2, wh_vec_avx512;

/* The best table that this processor can run; `name` (WH_KERNELS, --kernels) asks for one: NULL if it can't run here
 * or doesn't exist. NULL name: best. (The reference needs FMA too: SLEEF's scalar functions do.) */
const struct wh_vec *wh_vec_select(const char *name);

#endif
