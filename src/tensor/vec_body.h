/* Every row kernel, written once over the 16 lanes of whichever lanes_*.h was included before. vec_reference.c,
 * vec_avx2.c and vec_avx512.c include it and export VEC_TABLE under their name. Formulas and the order of operations:
 * vec.h.
 *
 * The last step of a row may have less than 16 elements. Loads fill the missing lanes with zero, and a reduction keeps
 * them out of its sums: a lane that starts at +0 and gets another +0 added keeps its bits. */
#include <math.h>
#include <stdbool.h>

#include "tensor/vec.h"

/* i = 0, 16, 32 ...; m = how many elements this step has. */
#define EACH_16(i, m, n) for (size_t i = 0, m; i < (n) && (m = (n)-i < 16 ? (n)-i : 16, true); i += 16)

static inline struct lanes get(const float *p, size_t m) { return lanes_load_n(p, m, 0); }

static void vec_widen(float *out, const uint16_t *bf16, size_t n) {
    EACH_16(i, m, n) lanes_store_n(out + i, lanes_load_bf16_n(bf16 + i, m), m);
}

static void vec_narrow(uint16_t *bf16, const float *in, size_t n) {
    EACH_16(i, m, n) lanes_store_bf16_n(bf16 + i, get(in + i, m), m);
}

static void vec_add(float *out, const float *a, const float *b, size_t n) {
    EACH_16(i, m, n) lanes_store_n(out + i, lanes_add(get(a + i, m), get(b + i, m)), m);
}

static void vec_mul(float *out, const float *a, const float *b, size_t n) {
    EACH_16(i, m, n) lanes_store_n(out + i, lanes_mul(get(a + i, m), get(b + i, m)), m);
}

static void vec_scale(float *out, const float *a, float s, size_t n) {
    EACH_16(i, m, n) lanes_store_n(out + i, lanes_mul(get(a + i, m), lanes_set(s)), m);
}

static void vec_mul_add(float *acc, const float *a, const float *b, size_t n) {
    EACH_16(i, m, n) lanes_store_n(acc + i, lanes_fma(get(a + i, m), get(b + i, m), get(acc + i, m)), m);
}

static void vec_scale_add(float *acc, const float *a, float s, size_t n) {
    EACH_16(i, m, n) lanes_store_n(acc + i, lanes_fma(get(a + i, m), lanes_set(s), get(acc + i, m)), m);
}

static float vec_max(const float *x, size_t n) {
    struct lanes top = lanes_set(-INFINITY);
    EACH_16(i, m, n) top = lanes_max(top, lanes_load_n(x + i, m, -INFINITY));
    return lanes_top(top);
}

static float vec_dot(const float *a, const float *b, size_t n) {
    struct lanes sum = lanes_set(0);
    EACH_16(i, m, n) sum = lanes_fma(get(a + i, m), get(b + i, m), sum);
    return lanes_sum(sum);
}

static float vec_sum(const float *x, size_t n) {
    struct lanes sum = lanes_set(0);
    EACH_16(i, m, n) sum = lanes_add(sum, get(x + i, m));
    return lanes_sum(sum);
}

static double vec_sum_squares(const float *x, size_t n) {
    struct lanes64 sum = lanes64_zero();
    EACH_16(i, m, n) sum = lanes64_add_square(sum, get(x + i, m));
    return lanes64_sum(sum);
}

static float vec_exp_sum(float *out, const float *x, float shift, size_t n) {
    struct lanes sum = lanes_set(0);
    EACH_16(i, m, n) {
        struct lanes e = lanes_exp(lanes_sub(get(x + i, m), lanes_set(shift)));
        lanes_store_n(out + i, e, m);
        sum = lanes_add(sum, lanes_first(e, m));
    }
    return lanes_sum(sum);
}

/* (x - mean) * rstd */
static inline struct lanes normal(const float *x, float mean, float rstd, size_t m) {
    return lanes_mul(lanes_sub(get(x, m), lanes_set(mean)), lanes_set(rstd));
}

static void vec_layer_norm(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *bias,
                           float eps, size_t n) {
    const float mu = vec_sum(x, n) / (float)n;
    struct lanes squares = lanes_set(0);
    EACH_16(i, m, n) {
        struct lanes d = lanes_first(lanes_sub(get(x + i, m), lanes_set(mu)), m);
        squares = lanes_fma(d, d, squares);
    }
    const float rs = 1.0f / sqrtf(lanes_sum(squares) / (float)n + eps);
    EACH_16(i, m, n)
    lanes_store_n(y + i, lanes_fma(normal(x + i, mu, rs, m), get(gain + i, m), get(bias + i, m)), m);
    *mean = mu;
    *rstd = rs;
}

static void vec_layer_norm_back(float *dx, const float *dy, const float *x, float mean, float rstd, const float *gain,
                                size_t n) {
    struct lanes sum = lanes_set(0), sum_xhat = lanes_set(0); /* missing lanes: gain and dy are 0 there */
    EACH_16(i, m, n) {
        struct lanes a = lanes_mul(get(dy + i, m), get(gain + i, m));
        sum = lanes_add(sum, a);
        sum_xhat = lanes_fma(a, normal(x + i, mean, rstd, m), sum_xhat);
    }
    const struct lanes average = lanes_set(lanes_sum(sum) / (float)n);
    const struct lanes average_xhat = lanes_set(lanes_sum(sum_xhat) / (float)n);
    EACH_16(i, m, n) {
        struct lanes a = lanes_sub(lanes_mul(get(dy + i, m), get(gain + i, m)), average);
        struct lanes d = lanes_fnma(normal(x + i, mean, rstd, m), average_xhat, a);
        lanes_store_n(dx + i, lanes_mul(lanes_set(rstd), d), m);
    }
}

static void vec_layer_norm_grads(float *dgain, float *dbias, const float *dy, const float *x, float mean, float rstd,
                                 size_t n) {
    EACH_16(i, m, n) {
        struct lanes d = get(dy + i, m);
        lanes_store_n(dgain + i, lanes_fma(d, normal(x + i, mean, rstd, m), get(dgain + i, m)), m);
        lanes_store_n(dbias + i, lanes_add(get(dbias + i, m), d), m);
    }
}

static void vec_rms_norm(float *y, float *rstd, const float *x, const float *gain, float eps, size_t n) {
    const float rs = 1.0f / sqrtf(vec_dot(x, x, n) / (float)n + eps);
    EACH_16(i, m, n)
    lanes_store_n(y + i, lanes_mul(lanes_mul(get(x + i, m), lanes_set(rs)), get(gain + i, m)), m);
    *rstd = rs;
}

static void vec_rms_norm_back(float *dx, const float *dy, const float *x, float rstd, const float *gain, size_t n) {
    const struct lanes rs = lanes_set(rstd);
    struct lanes sum_xhat = lanes_set(0);
    EACH_16(i, m, n) {
        struct lanes a = lanes_mul(get(dy + i, m), get(gain + i, m));
        sum_xhat = lanes_fma(a, lanes_mul(get(x + i, m), rs), sum_xhat);
    }
    const struct lanes average_xhat = lanes_set(lanes_sum(sum_xhat) / (float)n);
    EACH_16(i, m, n) {
        struct lanes a = lanes_mul(get(dy + i, m), get(gain + i, m));
        struct lanes d = lanes_fnma(lanes_mul(get(x + i, m), rs), average_xhat, a);
        lanes_store_n(dx + i, lanes_mul(rs, d), m);
    }
}

static void vec_rms_norm_grads(float *dgain, const float *dy, const float *x, float rstd, size_t n) {
    EACH_16(i, m, n) {
        struct lanes xhat = lanes_mul(get(x + i, m), lanes_set(rstd));
        lanes_store_n(dgain + i, lanes_fma(get(dy + i, m), xhat, get(dgain + i, m)), m);
    }
}

/* Logistic function s of z and 1 - s, both to full relative precision: the exponential never exceeds 1, so nothing
 * overflows, and neither value is made by subtraction. */
struct logistic {
    struct lanes s, rest;
};

static inline struct logistic logistic(struct lanes z) {
    struct lanes one = lanes_set(1), e = lanes_exp(lanes_minus_abs(z));
    struct lanes large = lanes_div(one, lanes_add(one, e)), small = lanes_mul(e, large);
    return (struct logistic){lanes_if_negative(z, small, large), lanes_if_negative(z, large, small)};
}

/* 0.5 * (1 + tanh(u)) = logistic(2u), so GELU is x * logistic(x * (k0 + k1*x*x)) with k0 = 2*sqrt(2/pi),
 * k1 = 0.044715 * k0. Beyond 16 the logistic function is 0 or 1 to the last bit, and x*x stays finite. */
static const float gelu_k0 = 0x1.9884533d43651p+0f, gelu_k1 = 0x1.2444f2a4d8b4bp-4f;

/* To -16 .. 16; in this order of operands a NaN stays one. */
static inline struct lanes gelu_clamp(struct lanes x) { return lanes_max(lanes_set(-16), lanes_min(lanes_set(16), x)); }

static inline struct logistic gelu_gate(struct lanes clamped, struct lanes square) {
    return logistic(lanes_mul(clamped, lanes_fma(lanes_set(gelu_k1), square, lanes_set(gelu_k0))));
}

static void vec_gelu(float *out, const float *x, size_t n) {
    EACH_16(i, m, n) {
        struct lanes v = get(x + i, m), c = gelu_clamp(v);
        lanes_store_n(out + i, lanes_mul(v, gelu_gate(c, lanes_mul(c, c)).s), m);
    }
}

/* d gelu / dx = s + x * s * (1-s) * (k0 + 3*k1*x*x) */
static void vec_gelu_back(float *dx, const float *dout, const float *x, size_t n) {
    EACH_16(i, m, n) {
        struct lanes c = gelu_clamp(get(x + i, m)), square = lanes_mul(c, c);
        struct logistic g = gelu_gate(c, square);
        struct lanes slope = lanes_fma(lanes_set(3 * gelu_k1), square, lanes_set(gelu_k0));
        struct lanes bend = lanes_mul(lanes_mul(c, lanes_mul(g.s, g.rest)), slope);
        lanes_store_n(dx + i, lanes_mul(get(dout + i, m), lanes_add(g.s, bend)), m);
    }
}

static void vec_swiglu(float *out, const float *gate, const float *up, size_t n) {
    EACH_16(i, m, n) {
        struct lanes g = get(gate + i, m);
        lanes_store_n(out + i, lanes_mul(lanes_mul(g, logistic(g).s), get(up + i, m)), m);
    }
}

/* d silu / dg = s + g * s * (1-s) */
static void vec_swiglu_back(float *dgate, float *dup, const float *dout, const float *gate, const float *up, size_t n) {
    EACH_16(i, m, n) {
        struct lanes g = get(gate + i, m), u = get(up + i, m), d = get(dout + i, m);
        struct logistic f = logistic(g);
        struct lanes silu = lanes_mul(g, f.s), slope = lanes_fma(silu, f.rest, f.s);
        lanes_store_n(dup + i, lanes_mul(d, silu), m);
        lanes_store_n(dgate + i, lanes_mul(lanes_mul(d, u), slope), m);
    }
}

static void vec_rotate(float *x, const float *cos, const float *sin, size_t half) {
    EACH_16(i, m, half) {
        struct lanes a = get(x + i, m), b = get(x + half + i, m), c = get(cos + i, m), s = get(sin + i, m);
        lanes_store_n(x + i, lanes_sub(lanes_mul(a, c), lanes_mul(b, s)), m);
        lanes_store_n(x + half + i, lanes_add(lanes_mul(b, c), lanes_mul(a, s)), m);
    }
}

static void vec_rotate_back(float *x, const float *cos, const float *sin, size_t half) {
    EACH_16(i, m, half) {
        struct lanes a = get(x + i, m), b = get(x + half + i, m), c = get(cos + i, m), s = get(sin + i, m);
        lanes_store_n(x + i, lanes_add(lanes_mul(a, c), lanes_mul(b, s)), m);
        lanes_store_n(x + half + i, lanes_sub(lanes_mul(b, c), lanes_mul(a, s)), m);
    }
}

/* Up to a multiple of four one element at a time, then 32 words at a time. */
static void vec_dropout(float *out, const float *in, const struct wh_rng *r, uint64_t first_element, uint32_t threshold,
                        float scale, size_t n) {
    size_t head = (4 - first_element % 4) % 4, i = 0;
    for (; i < head && i < n; i++) out[i] = in[i] * (wh_rng_u32(r, first_element + i) >= threshold ? scale : 0.0f);
    for (; i < n; i += 32) {
        uint32_t words[32];
        lanes_random(words, r, (first_element + i) / 4);
        const size_t count = n - i < 32 ? n - i : 32;
        EACH_16(j, m, count) {
            struct lanes factor = lanes_if_at_least(words + j, threshold, lanes_set(scale));
            lanes_store_n(out + i + j, lanes_mul(get(in + i + j, m), factor), m);
        }
    }
}

static void vec_adamw(float *p, float *m, float *v, const float *grad, const struct wh_vec_adamw *a, size_t n) {
    const struct lanes beta1 = lanes_set(a->beta1), beta2 = lanes_set(a->beta2), eps = lanes_set(a->eps);
    const struct lanes rest1 = lanes_set(a->one_minus_beta1), rest2 = lanes_set(a->one_minus_beta2);
    const struct lanes step_size = lanes_set(a->step_size), correction = lanes_set(a->inv_sqrt_correction2);
    const struct lanes keep = lanes_set(a->keep), grad_scale = lanes_set(a->grad_scale);
    EACH_16(i, count, n) {
        struct lanes g = lanes_mul(get(grad + i, count), grad_scale);
        struct lanes m1 = lanes_fma(beta1, get(m + i, count), lanes_mul(rest1, g));
        struct lanes v1 = lanes_fma(beta2, get(v + i, count), lanes_mul(lanes_mul(rest2, g), g));
        struct lanes divisor = lanes_add(lanes_mul(lanes_sqrt(v1), correction), eps);
        struct lanes step = lanes_div(lanes_mul(step_size, m1), divisor);
        lanes_store_n(p + i, lanes_sub(lanes_mul(get(p + i, count), keep), step), count);
        lanes_store_n(m + i, m1, count);
        lanes_store_n(v + i, v1, count);
    }
}

#define VEC_TABLE(text)                                                                                             \
    {                                                                                                               \
        .name = text, .widen = vec_widen, .narrow = vec_narrow, .add = vec_add, .mul = vec_mul, .scale = vec_scale, \
        .mul_add = vec_mul_add, .scale_add = vec_scale_add, .max = vec_max, .sum = vec_sum, .dot = vec_dot,         \
        .sum_squares = vec_sum_squares, .exp_sum = vec_exp_sum, .layer_norm = vec_layer_norm,                       \
        .layer_norm_back = vec_layer_norm_back, .layer_norm_grads = vec_layer_norm_grads, .rms_norm = vec_rms_norm, \
        .rms_norm_back = vec_rms_norm_back, .rms_norm_grads = vec_rms_norm_grads, .gelu = vec_gelu,                 \
        .gelu_back = vec_gelu_back, .swiglu = vec_swiglu, .swiglu_back = vec_swiglu_back, .rotate = vec_rotate,     \
        .rotate_back = vec_rotate_back, .dropout = vec_dropout, .adamw = vec_adamw                                  \
    }
