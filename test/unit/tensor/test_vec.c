/* Row kernels: every table equals the reference table to the bit, and the reference is right.
 * Bounds: sums and norms 1e-5 relative to the sum of magnitudes, elementary functions in ulp as vec.h states them,
 * gradients 1e-5 against central differences of a double formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "tensor/vec.h"

enum { N_MAX = 1000, ROW = 2 * N_MAX + 40, INPUTS = 5, OUTPUTS = 3 };

/* Inputs a..e at an unaligned place; outputs start as copies of inputs, so that in-place kernels have something to work
 * on, and are compared whole, so that a write beyond n shows. */
struct rows {
    float in[INPUTS][ROW], out[OUTPUTS][ROW], value[2];
    uint16_t half[ROW];
    double sum;
};

static const struct wh_rng stream = {{1, 2}, 3, 4};

static float random_unit(uint64_t element) { return 2 * wh_rng_f32(&stream, element) - 1; }

/* kind 0: -4..4; kind 1: magnitudes from the least subnormal to 2^30, zeros of both signs. */
static float random_value(int kind, uint64_t element) {
    float u = random_unit(element);
    if (kind == 0) return 4 * u;
    uint32_t w = wh_rng_u32(&stream, element + (1u << 30));
    return w % 16 == 0 ? copysignf(0, u) : ldexpf(u, (int)(w % 180) - 149);
}

static void fill(struct rows *r, int kind) {
    for (size_t k = 0; k < INPUTS; k++)
        for (size_t i = 0; i < ROW; i++) r->in[k][i] = random_value(kind, k * ROW + i);
    for (size_t i = 0; i < ROW; i++) r->half[i] = wh_f32_to_bf16(r->in[4][i]);
    memcpy(r->out, r->in, sizeof r->out);
    r->value[0] = r->value[1] = 0;
    r->sum = 0;
}

#define A (r->in[0] + 1)
#define B (r->in[1] + 3)
#define C (r->in[2] + 2)
#define X (r->out[0] + 1)
#define Y (r->out[1] + 5)
#define Z (r->out[2] + 7)

static void run_widen(const struct wh_vec *v, struct rows *r, size_t n) { v->widen(X, r->half + 1, n); }
static void run_narrow(const struct wh_vec *v, struct rows *r, size_t n) { v->narrow(r->half + 1, A, n); }
static void run_add(const struct wh_vec *v, struct rows *r, size_t n) { v->add(X, A, B, n); }
static void run_add_in_place(const struct wh_vec *v, struct rows *r, size_t n) { v->add(X, X, B, n); }
static void run_mul(const struct wh_vec *v, struct rows *r, size_t n) { v->mul(X, A, B, n); }
static void run_scale(const struct wh_vec *v, struct rows *r, size_t n) { v->scale(X, A, 0.3f, n); }
static void run_mul_add(const struct wh_vec *v, struct rows *r, size_t n) { v->mul_add(X, A, B, n); }
static void run_scale_add(const struct wh_vec *v, struct rows *r, size_t n) { v->scale_add(X, A, 0.3f, n); }
static void run_max(const struct wh_vec *v, struct rows *r, size_t n) { r->value[0] = v->max(A, n); }
static void run_sum(const struct wh_vec *v, struct rows *r, size_t n) { r->value[0] = v->sum(A, n); }
static void run_dot(const struct wh_vec *v, struct rows *r, size_t n) { r->value[0] = v->dot(A, B, n); }
static void run_sum_squares(const struct wh_vec *v, struct rows *r, size_t n) { r->sum = v->sum_squares(A, n); }
static void run_exp_sum(const struct wh_vec *v, struct rows *r, size_t n) { r->value[0] = v->exp_sum(X, A, 1.5f, n); }

static void run_layer_norm(const struct wh_vec *v, struct rows *r, size_t n) {
    if (n) v->layer_norm(X, &r->value[0], &r->value[1], A, B, C, 1e-5f, n);
}
static void run_layer_norm_back(const struct wh_vec *v, struct rows *r, size_t n) {
    if (n) v->layer_norm_back(X, A, B, 0.25f, 0.5f, C, n);
}
static void run_layer_norm_grads(const struct wh_vec *v, struct rows *r, size_t n) {
    v->layer_norm_grads(X, Y, A, B, 0.25f, 0.5f, n);
}
static void run_rms_norm(const struct wh_vec *v, struct rows *r, size_t n) {
    if (n) v->rms_norm(X, &r->value[0], A, B, 1e-5f, n);
}
static void run_rms_norm_back(const struct wh_vec *v, struct rows *r, size_t n) {
    if (n) v->rms_norm_back(X, A, B, 0.5f, C, n);
}
static void run_rms_norm_grads(const struct wh_vec *v, struct rows *r, size_t n) {
    v->rms_norm_grads(X, A, B, 0.5f, n);
}

static void run_gelu(const struct wh_vec *v, struct rows *r, size_t n) { v->gelu(X, A, n); }
static void run_gelu_back(const struct wh_vec *v, struct rows *r, size_t n) { v->gelu_back(X, A, B, n); }
static void run_swiglu(const struct wh_vec *v, struct rows *r, size_t n) { v->swiglu(X, A, B, n); }
static void run_swiglu_back(const struct wh_vec *v, struct rows *r, size_t n) { v->swiglu_back(X, Y, A, B, C, n); }
static void run_rotate(const struct wh_vec *v, struct rows *r, size_t n) { v->rotate(X, A, B, n); }
static void run_rotate_back(const struct wh_vec *v, struct rows *r, size_t n) { v->rotate_back(X, A, B, n); }

static void run_dropout(const struct wh_vec *v, struct rows *r, size_t n) {
    v->dropout(X, A, &stream, (1ull << 34) - 6 + n % 4, 0x40000000u, 4 / 3.0f, n); /* the block number passes 2^32 */
}

static const struct wh_vec_adamw adamw = {.beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .eps = 1e-8f,
                                          .one_minus_beta1 = (float)(1 - 0.9),
                                          .one_minus_beta2 = (float)(1 - 0.95),
                                          .step_size = 3e-3f,
                                          .inv_sqrt_correction2 = 1.6f,
                                          .keep = 0.9997f,
                                          .grad_scale = 0.7f};

static void run_adamw(const struct wh_vec *v, struct rows *r, size_t n) {
    for (size_t i = 0; i < n; i++) Z[i] = fabsf(Z[i]);
    v->adamw(X, Y, Z, A, &adamw, n);
}

static const struct {
    const char *name;
    void (*run)(const struct wh_vec *v, struct rows *r, size_t n);
    const char *nan_from; /* which of A and B must not lose a NaN */
} kernels[] = {{"widen", run_widen, ""},
               {"narrow", run_narrow, "a"},
               {"add", run_add, "ab"},
               {"add in place", run_add_in_place, "b"},
               {"mul", run_mul, "ab"},
               {"scale", run_scale, "a"},
               {"mul_add", run_mul_add, "ab"},
               {"scale_add", run_scale_add, "a"},
               {"max", run_max, ""},
               {"sum", run_sum, "a"},
               {"dot", run_dot, "ab"},
               {"sum_squares", run_sum_squares, "a"},
               {"exp_sum", run_exp_sum, "a"},
               {"layer_norm", run_layer_norm, "ab"},
               {"layer_norm_back", run_layer_norm_back, "ab"},
               {"layer_norm_grads", run_layer_norm_grads, "ab"},
               {"rms_norm", run_rms_norm, "ab"},
               {"rms_norm_back", run_rms_norm_back, "ab"},
               {"rms_norm_grads", run_rms_norm_grads, "ab"},
               {"gelu", run_gelu, "a"},
               {"gelu_back", run_gelu_back, "ab"},
               {"swiglu", run_swiglu, "ab"},
               {"swiglu_back", run_swiglu_back, "ab"},
               {"rotate", run_rotate, "ab"},
               {"rotate_back", run_rotate_back, "ab"},
               {"dropout", run_dropout, "a"},
               {"adamw", run_adamw, "a"}};

static void check_equal(const struct wh_vec *v, size_t k, size_t n, int kind) {
    static struct rows want, got;
    fill(&want, kind);
    got = want;
    kernels[k].run(&wh_vec_reference, &want, n);
    kernels[k].run(v, &got, n);
    if (memcmp(&want, &got, sizeof want) != 0) fail_msg("%s: %s, n = %zu, kind %d", v->name, kernels[k].name, n, kind);
}

static void tables_give_equal_bits(void **state) {
    (void)state;
    const char *names[] = {"avx2", "avx512"};
    for (size_t t = 0; t < 2; t++) {
        const struct wh_vec *v = wh_vec_select(names[t]);
        if (v == NULL) continue;
        for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
            for (size_t n = 0; n <= N_MAX; n = n == 70 ? 255 : n == 257 ? N_MAX : n + 1)
                for (int kind = 0; kind < 2; kind++) check_equal(v, k, n, kind);
    }
}

/* exp on every 997th bit pattern of a float (4.3 million; all of 2^32 / 37 were compared once by hand). */
static void exp_gives_equal_bits(void **state) {
    (void)state;
    enum { COUNT = 1024 };
    static float x[COUNT], want[COUNT], got[COUNT];
    const struct wh_vec *others[2] = {wh_vec_select("avx2"), wh_vec_select("avx512")};
    for (uint64_t pattern = 0; pattern < 1ull << 32; pattern += 997 * COUNT) {
        for (size_t i = 0; i < COUNT; i++) {
            uint32_t u = (uint32_t)(pattern + 997 * i);
            memcpy(&x[i], &u, 4);
            if (isnan(x[i])) x[i] = 0;
        }
        wh_vec_reference.exp_sum(want, x, 0, COUNT);
        for (size_t t = 0; t < 2; t++) {
            if (others[t] == NULL) continue;
            others[t]->exp_sum(got, x, 0, COUNT);
            assert_memory_equal(got, want, sizeof want);
        }
    }
}

static void outputs_end_at_n(void **state) {
    (void)state;
    static struct rows before, after;
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
        fill(&before, 0);
        after = before;
        kernels[k].run(&wh_vec_reference, &after, 5);
        size_t used = strncmp(kernels[k].name, "rotate", 6) == 0 ? 10 : 5;
        const size_t begin[OUTPUTS] = {1, 5, 7};
        for (size_t o = 0; o < OUTPUTS; o++) {
            assert_memory_equal(before.out[o], after.out[o], begin[o] * sizeof(float));
            assert_memory_equal(before.out[o] + begin[o] + used, after.out[o] + begin[o] + used,
                                (ROW - begin[o] - used) * sizeof(float));
        }
    }
}

static bool has_nan(const struct rows *r) {
    bool found = isnan(r->value[0]) || isnan(r->sum);
    for (size_t o = 0; o < OUTPUTS; o++)
        for (size_t i = 0; i < ROW; i++) found = found || isnan(r->out[o][i]);
    for (size_t i = 0; i < ROW; i++) found = found || isnan(wh_bf16_to_f32(r->half[i]));
    return found;
}

static void nan_is_never_lost(void **state) {
    (void)state;
    static struct rows rows, *r = &rows;
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
        for (const char *input = kernels[k].nan_from; *input; input++) {
            fill(r, 0);
            *(*input == 'a' ? A + 2 : B + 2) = NAN;
            kernels[k].run(wh_vec_select(NULL), r, 20);
            if (!has_nan(r)) fail_msg("%s lost the NaN of input %c", kernels[k].name, *input);
        }
}

static void select_knows_names(void **state) {
    (void)state;
    assert_ptr_equal(wh_vec_select("reference"), &wh_vec_reference);
    assert_null(wh_vec_select("sse9"));
    assert_null(wh_vec_select(""));
    assert_non_null(wh_vec_select(NULL));
}

static void bf16_as_in_dtype(void **state) {
    (void)state;
    static uint16_t in[65536], back[65536];
    static float wide[65536];
    const struct wh_vec *v = wh_vec_select(NULL);
    for (uint32_t h = 0; h < 65536; h++) in[h] = (uint16_t)h;
    v->widen(wide, in, 65536);
    v->narrow(back, wide, 65536);
    for (uint32_t h = 0; h < 65536; h++) {
        float f = wh_bf16_to_f32((uint16_t)h);
        assert_memory_equal(&wide[h], &f, 4);
        assert_int_equal(back[h], wh_f32_to_bf16(f));
    }
}

static void assert_near(double got, double want, double bound, const char *what, double at) {
    if (!(fabs(got - want) <= bound))
        fail_msg("%s at %.9g: %.9g, should be %.9g within %.3g", what, at, got, want, bound);
}

static double ulp(double x) {
    float f = (float)fabs(x);
    return f < 0x1p-126f ? 0x1p-149 : (double)(nextafterf(f, INFINITY) - f);
}

static double logistic(double z) { return 1 / (1 + exp(-z)); }
static double silu(double g) { return g * logistic(g); }
static double gelu_argument(double x) { return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
/* 0.5*x*(1 + tanh(u)) without its cancellation */
static double gelu(double x) { return x * logistic(2 * gelu_argument(x)); }

static double slope(double (*f)(double), double x) {
    const double h = 1e-5;
    return (f(x + h) - f(x - h)) / (2 * h);
}

static void activations_are_right(void **state) {
    (void)state;
    const struct wh_vec *v = wh_vec_select(NULL);
    double worst = 0;
    for (double at = -14; at < 14; at += 0.0007) {
        const float x = (float)at, one = 1, up = 0.75f, dout = 1.5f;
        float y, d, dup;
        v->gelu(&y, &x, 1);
        double allowed = 2 * fabs(2 * gelu_argument(at)) + 6;
        worst = fmax(worst, (fabs(y - gelu(x)) - 0x1p-126) / ulp(gelu(x)) / allowed);
        assert_near(y, gelu(x), allowed * ulp(gelu(x)) + 0x1p-126, "gelu", x);
        assert_near(y, 0.5 * x * (1 + tanh(gelu_argument(x))), 1e-6 * (1 + fabs(at)), "gelu by tanh", x);
        v->gelu_back(&d, &dout, &x, 1);
        assert_near(d, dout * slope(gelu, x), 2e-6, "gelu_back", x);
        v->swiglu(&y, &x, &one, 1);
        assert_near(y, silu(x), 5 * ulp(silu(x)), "silu", x);
        v->swiglu_back(&d, &dup, &dout, &x, &up, 1);
        assert_near(d, dout * up * slope(silu, x), 2e-6, "dgate", x);
        assert_near(dup, dout * silu(x), 1e-6 * (1 + fabs(at)), "dup", x);
    }
    print_message("gelu: at most %.2f of the allowed error\n", worst);
}

static void activations_far_out(void **state) {
    (void)state;
    const float x[4] = {3e38f, -3e38f, 1e5f, -1e5f}, one[4] = {1, 1, 1, 1};
    float y[4], d[4], dup[4];
    const struct wh_vec *v = wh_vec_select(NULL);
    v->gelu(y, x, 4);
    v->gelu_back(d, one, x, 4);
    for (int i = 0; i < 4; i++) assert_true(y[i] == (x[i] > 0 ? x[i] : 0) && d[i] == (x[i] > 0 ? 1 : 0));
    v->swiglu(y, x, one, 4);
    v->swiglu_back(d, dup, one, x, one, 4);
    for (int i = 0; i < 4; i++) assert_true(y[i] == (x[i] > 0 ? x[i] : 0) && d[i] == (x[i] > 0 ? 1 : 0));
}

static void exp_sum_is_right(void **state) {
    (void)state;
    static struct rows rows, *r = &rows;
    const struct wh_vec *v = wh_vec_select(NULL);
    fill(r, 0);
    double sum = 0;
    float got = v->exp_sum(X, A, 4, N_MAX);
    for (size_t i = 0; i < N_MAX; i++) {
        double e = exp((double)(A[i] - 4.0f));
        assert_near(X[i], e, ulp(e), "exp", A[i]);
        sum += e;
    }
    assert_near(got, sum, 1e-5 * sum, "sum of exp", N_MAX);
    const float low[3] = {-87.5f, -103, -200};
    float e[3];
    v->exp_sum(e, low, 0, 3);
    for (int i = 0; i < 3; i++) assert_near(e[i], exp(low[i]), ulp(0), "exp far down", low[i]);
}

static void reductions_are_right(void **state) {
    (void)state;
    static struct rows rows, *r = &rows;
    const struct wh_vec *v = wh_vec_select(NULL);
    fill(r, 0);
    double sum = 0, dot = 0, squares = 0, size = 0;
    float top = -INFINITY;
    for (size_t i = 0; i < N_MAX; i++) {
        sum += A[i], dot += (double)A[i] * B[i], squares += (double)A[i] * A[i], size += fabs((double)A[i] * B[i]);
        top = fmaxf(top, A[i]);
    }
    assert_true(v->max(A, N_MAX) == top && v->max(A, 0) == -INFINITY);
    assert_near(v->sum(A, N_MAX), sum, 1e-5 * size, "sum", N_MAX);
    assert_near(v->dot(A, B, N_MAX), dot, 1e-5 * size, "dot", N_MAX);
    assert_near(v->sum_squares(A, N_MAX), squares, 1e-13 * squares, "sum_squares", N_MAX);
}

/* The order that vec.h promises, on numbers where every other order gives another result. */
static void reductions_keep_their_order(void **state) {
    (void)state;
    float x[37], lane[16] = {0};
    for (size_t i = 0; i < 37; i++) x[i] = ldexpf(random_unit(i), (int)(i * 7 % 30));
    for (size_t i = 0; i < 37; i++) lane[i % 16] += x[i];
    for (size_t apart = 8; apart > 0; apart /= 2)
        for (size_t l = 0; l < apart; l++) lane[l] += lane[l + apart];
    float got = wh_vec_select(NULL)->sum(x, 37);
    assert_memory_equal(&got, &lane[0], 4);
}

enum { NORM_N = 77 };

/* sum of dy * norm(x), the scalar whose gradient the norms' backward gives */
static double norm_loss(const double *x, const float *dy, const float *gain, const float *bias, double eps) {
    double mean = 0, var = 0, loss = 0;
    for (int i = 0; i < NORM_N; i++) mean += bias ? x[i] / NORM_N : 0;
    for (int i = 0; i < NORM_N; i++) var += (x[i] - mean) * (x[i] - mean) / NORM_N;
    for (int i = 0; i < NORM_N; i++) loss += dy[i] * ((x[i] - mean) / sqrt(var + eps) * gain[i] + (bias ? bias[i] : 0));
    return loss;
}

static double norm_slope(const float *at, int i, const float *dy, const float *gain, const float *bias) {
    double x[NORM_N], loss[2];
    for (int side = 0; side < 2; side++) {
        for (int j = 0; j < NORM_N; j++) x[j] = at[j];
        x[i] += side ? 1e-4 : -1e-4;
        loss[side] = norm_loss(x, dy, gain, bias, 1e-5);
    }
    return (loss[1] - loss[0]) / 2e-4;
}

static void check_norm(bool layer) {
    static struct rows rows, *r = &rows;
    const struct wh_vec *v = wh_vec_select(NULL);
    const float *x = r->in[0] + 1, *gain = r->in[1] + 3, *bias = r->in[2] + 2, *dy = r->in[3];
    float mean = 0, rstd, dgain[NORM_N] = {0}, dbias[NORM_N] = {0};
    double wide[NORM_N], loss = 0;
    fill(r, 0);
    for (int i = 0; i < NORM_N; i++) wide[i] = x[i];
    if (layer)
        v->layer_norm(X, &mean, &rstd, x, gain, bias, 1e-5f, NORM_N);
    else
        v->rms_norm(X, &rstd, x, gain, 1e-5f, NORM_N);
    for (int i = 0; i < NORM_N; i++) loss += (double)dy[i] * X[i];
    assert_near(loss, norm_loss(wide, dy, gain, layer ? bias : NULL, 1e-5), 1e-3, "norm", layer);
    if (layer)
        v->layer_norm_back(Y, dy, x, mean, rstd, gain, NORM_N);
    else
        v->rms_norm_back(Y, dy, x, rstd, gain, NORM_N);
    for (int i = 0; i < NORM_N; i++)
        assert_near(Y[i], norm_slope(x, i, dy, gain, layer ? bias : NULL), 2e-5, "norm dx", i);
    if (layer)
        v->layer_norm_grads(dgain, dbias, dy, x, mean, rstd, NORM_N);
    else
        v->rms_norm_grads(dgain, dy, x, rstd, NORM_N);
    for (int i = 0; i < NORM_N; i++) {
        assert_near(dgain[i], (double)dy[i] * (x[i] - mean) * rstd, 1e-5, "dgain", i);
        assert_near(dbias[i], layer ? dy[i] : 0, 0, "dbias", i);
    }
}

static void layer_norm_is_right(void **state) {
    (void)state;
    check_norm(true);
}

static void rms_norm_is_right(void **state) {
    (void)state;
    check_norm(false);
}

static void rotate_turns_and_back(void **state) {
    (void)state;
    float x[10], back[10], c[5], s[5];
    const struct wh_vec *v = wh_vec_select(NULL);
    for (int i = 0; i < 10; i++) back[i] = x[i] = random_unit((uint64_t)i);
    for (int i = 0; i < 5; i++) c[i] = (float)cos(i * 0.7), s[i] = (float)sin(i * 0.7);
    v->rotate(back, c, s, 5);
    for (int i = 0; i < 5; i++) {
        assert_near(back[i], (double)x[i] * c[i] - (double)x[i + 5] * s[i], 2e-7, "rotate, first half", i);
        assert_near(back[i + 5], (double)x[i + 5] * c[i] + (double)x[i] * s[i], 2e-7, "rotate, second half", i);
    }
    v->rotate_back(back, c, s, 5);
    for (int i = 0; i < 10; i++) assert_near(back[i], x[i], 4e-7, "rotate_back", i);
}

static void dropout_is_the_counter_rng(void **state) {
    (void)state;
    static struct rows rows, *r = &rows;
    const struct wh_vec *v = wh_vec_select(NULL);
    const uint32_t threshold = 0x33333333u;
    for (uint64_t first = (1ull << 34) - 9; first < (1ull << 34) + 4; first++) {
        fill(r, 0);
        v->dropout(X, A, &stream, first, threshold, 1.25f, 200);
        for (size_t i = 0; i < 200; i++) {
            float want = A[i] * (wh_rng_u32(&stream, first + i) >= threshold ? 1.25f : 0.0f);
            assert_memory_equal(&X[i], &want, 4);
        }
    }
}

static void adamw_is_right(void **state) {
    (void)state;
    float p = 0.5f, m = 0.1f, s = 0.04f;
    const float grad = -0.6f;
    const double g = grad * 0.7f, m1 = 0.9 * 0.1 + 0.1 * g, s1 = 0.95 * 0.04 + 0.05 * g * g;
    wh_vec_select(NULL)->adamw(&p, &m, &s, &grad, &adamw, 1);
    assert_near(m, m1, 1e-8, "m", 0);
    assert_near(s, s1, 1e-8, "v", 0);
    assert_near(p, 0.5 * 0.9997 - 3e-3 * m1 / (sqrt(s1) * 1.6 + 1e-8), 6e-8, "p", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_give_equal_bits),
        cmocka_unit_test(exp_gives_equal_bits),
        cmocka_unit_test(outputs_end_at_n),
        cmocka_unit_test(nan_is_never_lost),
        cmocka_unit_test(select_knows_names),
        cmocka_unit_test(bf16_as_in_dtype),
        cmocka_unit_test(activations_are_right),
        cmocka_unit_test(activations_far_out),
        cmocka_unit_test(exp_sum_is_right),
        cmocka_unit_test(reductions_are_right),
        cmocka_unit_test(reductions_keep_their_order),
        cmocka_unit_test(layer_norm_is_right),
        cmocka_unit_test(rms_norm_is_right),
        cmocka_unit_test(rotate_turns_and_back),
        cmocka_unit_test(dropout_is_the_counter_rng),
        cmocka_unit_test(adamw_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
