/* Attention: every instruction set equals, to the bit, a literal float version of the contract written here with fmaf
 * loops; that version's error is bounded by a double version, whose gradients are checked by central differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "base/tree.h"
#include "tensor/attention.h"

enum { T_MAX = 256, D_MAX = 128, R_MAX = 3, GAP = 3 };
enum { Q_MAX = T_MAX * (R_MAX * D_MAX + GAP), K_MAX = T_MAX * (D_MAX + GAP), ROWS_MAX = R_MAX * T_MAX };

struct shape {
    size_t T, D, R;
    enum wh_dtype dtype;
    uint32_t chunks;
    bool documents, dropout;
};

static const struct shape shapes[] = {
    {1, 1, 1, WH_F32, 1, false, false},    {1, 64, 2, WH_BF16, 1, false, true},  {2, 4, 3, WH_F32, 2, false, false},
    {2, 16, 1, WH_F32, 5, true, true},     {31, 8, 1, WH_F32, 1, false, false},  {31, 48, 2, WH_BF16, 4, true, false},
    {32, 16, 1, WH_F32, 1, false, false},  {32, 64, 3, WH_BF16, 2, false, true}, {33, 1, 2, WH_F32, 4, true, true},
    {33, 64, 1, WH_F32, 1, false, false},  {33, 80, 2, WH_F32, 2, false, true},  {64, 48, 2, WH_F32, 1, true, false},
    {64, 128, 1, WH_BF16, 4, true, true},  {100, 4, 3, WH_F32, 4, true, true},   {100, 80, 1, WH_BF16, 1, false, false},
    {100, 64, 2, WH_F32, 3, false, false}, {256, 64, 2, WH_F32, 4, true, true},  {256, 16, 1, WH_BF16, 2, false, false},
    {256, 128, 1, WH_F32, 1, true, false}, {256, 8, 3, WH_F32, 2, false, true},  {200, 33, 1, WH_F32, 7, true, false},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Inputs as floats that the dtype can hold, rows with a gap after them. */
struct data {
    struct shape s;
    float q[Q_MAX], k[K_MAX], v[K_MAX], d_o[Q_MAX];
    uint32_t document_start[T_MAX];
};

struct result {
    float o[Q_MAX], stats[2 * ROWS_MAX], dq[Q_MAX], dk[K_MAX], dv[K_MAX];
};

static const struct wh_rng random_inputs = {{11, 12}, 13, 14}, random_dropout = {{21, 22}, 23, 24};
enum { FIRST_ELEMENT = 1234567 };
static const uint32_t threshold = 0x20000000u;
static const float keep_scale = 8 / 7.0f;

static size_t q_stride(const struct shape *s) { return s->R * s->D + GAP; }
static size_t k_stride(const struct shape *s) { return s->D + GAP; }
static size_t q_at(const struct shape *s, size_t r, size_t i, size_t d) { return i * q_stride(s) + r * s->D + d; }
static size_t k_at(const struct shape *s, size_t j, size_t d) { return j * k_stride(s) + d; }
static float scale_of(const struct shape *s) { return 1.0f / sqrtf((float)s->D); }

static float rounded(enum wh_dtype t, float f) { return t == WH_F32 ? f : wh_bf16_to_f32(wh_f32_to_bf16(f)); }

static void fill(float *x, size_t count, enum wh_dtype dtype, uint64_t first, float size) {
    for (size_t i = 0; i < count; i++) x[i] = rounded(dtype, size * (2 * wh_rng_f32(&random_inputs, first + i) - 1));
}

/* Documents of 1, 2, 3 ... tokens, so that borders fall everywhere. */
static void make_documents(struct data *in) {
    uint32_t start = 0, length = 1;
    for (uint32_t i = 0; i < in->s.T; i++) {
        if (i == start + length) start = i, length++;
        in->document_start[i] = in->s.documents ? start : 0;
    }
}

static struct data *make_data(const struct shape *s) {
    struct data *in = calloc(1, sizeof *in);
    in->s = *s;
    fill(in->q, Q_MAX, s->dtype, 0, 2);
    fill(in->k, K_MAX, s->dtype, Q_MAX, 2);
    fill(in->v, K_MAX, s->dtype, Q_MAX + K_MAX, 1);
    fill(in->d_o, Q_MAX, s->dtype, Q_MAX + 2 * K_MAX, 1);
    make_documents(in);
    return in;
}

static float kept(const struct shape *s, size_t r, size_t i, size_t j) {
    if (!s->dropout) return 1;
    return wh_rng_u32(&random_dropout, FIRST_ELEMENT + (r * s->T + i) * s->T + j) >= threshold ? keep_scale : 0;
}

/* ---- the kernels ---- */

static void *as_stored(const float *x, size_t count, enum wh_dtype dtype) {
    void *stored = calloc(count, 4);
    for (size_t i = 0; i < count; i++) {
        if (dtype == WH_F32)
            ((float *)stored)[i] = x[i];
        else
            ((uint16_t *)stored)[i] = wh_f32_to_bf16(x[i]);
    }
    return stored;
}

static void from_stored(float *x, void *stored, size_t count, enum wh_dtype dtype) {
    for (size_t i = 0; i < count; i++)
        x[i] = dtype == WH_F32 ? ((float *)stored)[i] : wh_bf16_to_f32(((uint16_t *)stored)[i]);
    free(stored);
}

static void *make_scratch(const struct shape *s) {
    size_t bytes = wh_attention_scratch_bytes(s->T, s->D, s->chunks);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(scratch, 0xff, bytes); /* NaN: whatever is read before it is written shows */
    return scratch;
}

static struct result *run(const struct wh_attention_kernels *kernels, const struct data *in) {
    const struct shape *s = &in->s;
    struct result *out = calloc(1, sizeof *out);
    void *inputs[4] = {as_stored(in->q, Q_MAX, s->dtype), as_stored(in->k, K_MAX, s->dtype),
                       as_stored(in->v, K_MAX, s->dtype), as_stored(in->d_o, Q_MAX, s->dtype)};
    void *outputs[4] = {calloc(Q_MAX, 4), calloc(Q_MAX, 4), calloc(K_MAX, 4), calloc(K_MAX, 4)};
    struct wh_attention a = {.T = s->T,
                             .D = s->D,
                             .R = s->R,
                             .dtype = s->dtype,
                             .scale = scale_of(s),
                             .q = inputs[0],
                             .k = inputs[1],
                             .v = inputs[2],
                             .q_stride = q_stride(s),
                             .k_stride = k_stride(s),
                             .v_stride = k_stride(s),
                             .o = outputs[0],
                             .o_stride = q_stride(s),
                             .stats = out->stats,
                             .document_start = s->documents ? in->document_start : NULL,
                             .chunks = s->chunks,
                             .rng = random_dropout,
                             .first_element = FIRST_ELEMENT,
                             .dropout_threshold = s->dropout ? threshold : 0,
                             .dropout_scale = s->dropout ? keep_scale : 1,
                             .d_o = inputs[3],
                             .dq = outputs[1],
                             .dk = outputs[2],
                             .dv = outputs[3],
                             .do_stride = q_stride(s),
                             .dq_stride = q_stride(s),
                             .dk_stride = k_stride(s),
                             .dv_stride = k_stride(s)};
    void *scratch = make_scratch(s);
    for (size_t r = 0; r < s->R; r++) kernels->forward(&a, r, scratch);
    kernels->backward(&a, scratch);
    free(scratch);
    for (int i = 0; i < 4; i++) free(inputs[i]);
    from_stored(out->o, outputs[0], Q_MAX, s->dtype);
    from_stored(out->dq, outputs[1], Q_MAX, s->dtype);
    from_stored(out->dk, outputs[2], K_MAX, s->dtype);
    from_stored(out->dv, outputs[3], K_MAX, s->dtype);
    return out;
}

/* ---- the contract, literally ---- */

static float exp_of(float x) {
    float e;
    wh_vec_reference.exp_sum(&e, &x, 0, 1);
    return e;
}

static float lane_tree(float lane[16]) {
    for (size_t apart = 8; apart > 0; apart /= 2)
        for (size_t l = 0; l < apart; l++) lane[l] += lane[l + apart];
    return lane[0];
}

static float score(const struct data *in, size_t r, size_t i, size_t j) {
    const struct shape *s = &in->s;
    float c = 0;
    for (size_t d = 0; d < s->D; d++) c = fmaf(in->q[q_at(s, r, i, d)], in->k[k_at(s, j, d)], c);
    return scale_of(s) * c;
}

/* p[j] for the allowed keys of row i. */
static void literal_probabilities(const struct data *in, size_t r, size_t i, float *p, float *stats) {
    float lane[16] = {0};
    stats[0] = -INFINITY;
    for (size_t j = in->document_start[i]; j <= i; j++) {
        p[j] = score(in, r, i, j);
        stats[0] = p[j] > stats[0] ? p[j] : stats[0];
    }
    for (size_t j = in->document_start[i]; j <= i; j++) {
        p[j] = exp_of(p[j] - stats[0]);
        lane[j % 16] += p[j];
    }
    stats[1] = 1.0f / lane_tree(lane);
    for (size_t j = in->document_start[i]; j <= i; j++) p[j] *= stats[1];
}

static void literal_forward(const struct data *in, struct result *out) {
    const struct shape *s = &in->s;
    float p[T_MAX];
    for (size_t r = 0; r < s->R; r++)
        for (size_t i = 0; i < s->T; i++) {
            literal_probabilities(in, r, i, p, out->stats + 2 * (r * s->T + i));
            for (size_t d = 0; d < s->D; d++) {
                float c = 0;
                for (size_t j = in->document_start[i]; j <= i; j++)
                    c = fmaf(p[j] * kept(s, r, i, j), in->v[k_at(s, j, d)], c);
                out->o[q_at(s, r, i, d)] = rounded(s->dtype, c + 0.0f);
            }
        }
}

static void literal_row(const struct data *in, struct result *out, size_t r, size_t i, float *dk, float *dv) {
    const struct shape *s = &in->s;
    float p[T_MAX], ds[T_MAX], lane[16] = {0}, unused[2];
    literal_probabilities(in, r, i, p, unused);
    for (size_t d = 0; d < s->D; d++)
        lane[d % 16] = fmaf(in->d_o[q_at(s, r, i, d)], out->o[q_at(s, r, i, d)], lane[d % 16]);
    const float delta = lane_tree(lane);
    for (size_t j = in->document_start[i]; j <= i; j++) {
        float dp = 0;
        for (size_t d = 0; d < s->D; d++) dp = fmaf(in->d_o[q_at(s, r, i, d)], in->v[k_at(s, j, d)], dp);
        ds[j] = scale_of(s) * p[j] * (dp * kept(s, r, i, j) - delta);
        for (size_t d = 0; d < s->D; d++) {
            dk[j * s->D + d] = fmaf(ds[j], in->q[q_at(s, r, i, d)], dk[j * s->D + d]);
            dv[j * s->D + d] = fmaf(p[j] * kept(s, r, i, j), in->d_o[q_at(s, r, i, d)], dv[j * s->D + d]);
        }
    }
    for (size_t d = 0; d < s->D; d++) {
        float c = 0;
        for (size_t j = in->document_start[i]; j <= i; j++) c = fmaf(ds[j], in->k[k_at(s, j, d)], c);
        out->dq[q_at(s, r, i, d)] = rounded(s->dtype, c + 0.0f);
    }
}

/* The value of one subtree of chunks into left; splits as base/tree.h defines. */
static void literal_tree(float *chunk, size_t first, size_t count, size_t size) {
    if (count == 1) return;
    size_t split = 1;
    while (split * 2 < count) split *= 2;
    literal_tree(chunk, first, split, size);
    literal_tree(chunk, first + split, count - split, size);
    for (size_t x = 0; x < size; x++) chunk[first * size + x] += chunk[(first + split) * size + x];
}

static void literal_backward(const struct data *in, struct result *out) {
    const struct shape *s = &in->s;
    const size_t half = s->T * s->D, size = 2 * half;
    float *chunk = calloc(s->chunks * size, sizeof *chunk);
    for (size_t c = 0; c < s->chunks; c++)
        for (size_t r = 0; r < s->R; r++)
            for (size_t i = s->T * c / s->chunks; i < s->T * (c + 1) / s->chunks; i++)
                literal_row(in, out, r, i, chunk + c * size, chunk + c * size + half);
    literal_tree(chunk, 0, s->chunks, size);
    for (size_t j = 0; j < s->T; j++)
        for (size_t d = 0; d < s->D; d++) {
            out->dk[k_at(s, j, d)] = rounded(s->dtype, chunk[j * s->D + d] + 0.0f);
            out->dv[k_at(s, j, d)] = rounded(s->dtype, chunk[half + j * s->D + d] + 0.0f);
        }
    free(chunk);
}

static struct result *run_literal(const struct data *in) {
    struct result *out = calloc(1, sizeof *out);
    literal_forward(in, out);
    literal_backward(in, out);
    return out;
}

/* ---- double ---- */

struct exact {
    double q[Q_MAX], k[K_MAX], v[K_MAX], o[Q_MAX], dq[Q_MAX], dk[K_MAX], dv[K_MAX];
};

static void exact_probabilities(const struct data *in, const struct exact *x, size_t r, size_t i, double *p) {
    const struct shape *s = &in->s;
    double z = 0;
    for (size_t j = in->document_start[i]; j <= i; j++) {
        double c = 0;
        for (size_t d = 0; d < s->D; d++) c += x->q[q_at(s, r, i, d)] * x->k[k_at(s, j, d)];
        z += p[j] = exp(c / sqrt((double)s->D));
    }
    for (size_t j = in->document_start[i]; j <= i; j++) p[j] /= z;
}

static void exact_forward(const struct data *in, struct exact *x) {
    const struct shape *s = &in->s;
    double p[T_MAX];
    memset(x->o, 0, sizeof x->o);
    for (size_t r = 0; r < s->R; r++)
        for (size_t i = 0; i < s->T; i++) {
            exact_probabilities(in, x, r, i, p);
            for (size_t j = in->document_start[i]; j <= i; j++)
                for (size_t d = 0; d < s->D; d++)
                    x->o[q_at(s, r, i, d)] += p[j] * kept(s, r, i, j) * x->v[k_at(s, j, d)];
        }
}

static void exact_backward(const struct data *in, struct exact *x) {
    const struct shape *s = &in->s;
    double p[T_MAX], dp[T_MAX];
    for (size_t r = 0; r < s->R; r++)
        for (size_t i = 0; i < s->T; i++) {
            double mean = 0;
            exact_probabilities(in, x, r, i, p);
            for (size_t j = in->document_start[i]; j <= i; j++) {
                dp[j] = 0;
                for (size_t d = 0; d < s->D; d++) dp[j] += in->d_o[q_at(s, r, i, d)] * x->v[k_at(s, j, d)];
                dp[j] *= kept(s, r, i, j);
                mean += p[j] * dp[j];
            }
            for (size_t j = in->document_start[i]; j <= i; j++)
                for (size_t d = 0; d < s->D; d++) {
                    double ds = p[j] * (dp[j] - mean) / sqrt((double)s->D);
                    x->dq[q_at(s, r, i, d)] += ds * x->k[k_at(s, j, d)];
                    x->dk[k_at(s, j, d)] += ds * x->q[q_at(s, r, i, d)];
                    x->dv[k_at(s, j, d)] += p[j] * kept(s, r, i, j) * in->d_o[q_at(s, r, i, d)];
                }
        }
}

static struct exact *run_exact(const struct data *in) {
    struct exact *x = calloc(1, sizeof *x);
    for (size_t i = 0; i < Q_MAX; i++) x->q[i] = in->q[i];
    for (size_t i = 0; i < K_MAX; i++) x->k[i] = in->k[i], x->v[i] = in->v[i];
    exact_forward(in, x);
    exact_backward(in, x);
    return x;
}

static double exact_loss(const struct data *in, struct exact *x) {
    double loss = 0;
    exact_forward(in, x);
    for (size_t r = 0; r < in->s.R; r++)
        for (size_t i = 0; i < in->s.T; i++)
            for (size_t d = 0; d < in->s.D; d++) loss += in->d_o[q_at(&in->s, r, i, d)] * x->o[q_at(&in->s, r, i, d)];
    return loss;
}

static void check_slope(const struct data *in, struct exact *x, double *at, double gradient) {
    const double h = 1e-5, before = *at;
    *at = before + h;
    double up = exact_loss(in, x);
    *at = before - h;
    double down = exact_loss(in, x);
    *at = before;
    assert_true(fabs((up - down) / (2 * h) - gradient) < 1e-7);
}

static void exact_gradients_are_slopes(void **state) {
    (void)state;
    const struct shape s = {9, 3, 2, WH_F32, 1, true, true};
    struct data *in = make_data(&s);
    struct exact *x = run_exact(in);
    for (size_t i = 0; i < s.T; i++)
        for (size_t d = 0; d < s.D; d++) {
            for (size_t r = 0; r < s.R; r++) check_slope(in, x, &x->q[q_at(&s, r, i, d)], x->dq[q_at(&s, r, i, d)]);
            check_slope(in, x, &x->k[k_at(&s, i, d)], x->dk[k_at(&s, i, d)]);
            check_slope(in, x, &x->v[k_at(&s, i, d)], x->dv[k_at(&s, i, d)]);
        }
    free(x);
    free(in);
}

/* ---- comparisons ---- */

static void assert_all_near(const float *got, const double *want, size_t count, double bound, const char *what,
                            size_t shape) {
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= bound * (1 + fabs(want[i]))))
            fail_msg("shape %zu: %s[%zu] is %.9g, should be %.9g within %.2g", shape, what, i, got[i], want[i], bound);
}

/* Error of chains of up to 256 rounded products of numbers up to 4: far under 2e-5; bf16 rounds at 2^-9 and its rounded
 * o goes into delta. */
static void literal_is_accurate(void **state) {
    (void)state;
    for (size_t n = 0; n < SHAPES; n++) {
        struct data *in = make_data(&shapes[n]);
        struct result *got = run_literal(in);
        struct exact *want = run_exact(in);
        const double bound = shapes[n].dtype == WH_F32 ? 2e-5 : 1e-2;
        assert_all_near(got->o, want->o, Q_MAX, bound, "o", n);
        assert_all_near(got->dq, want->dq, Q_MAX, bound, "dq", n);
        assert_all_near(got->dk, want->dk, K_MAX, bound, "dk", n);
        assert_all_near(got->dv, want->dv, K_MAX, bound, "dv", n);
        free(want);
        free(got);
        free(in);
    }
}

static void assert_same(const void *got, const void *want, size_t bytes, const char *name, const char *what,
                        size_t shape) {
    if (memcmp(got, want, bytes) != 0) fail_msg("%s: %s of shape %zu has other bits", name, what, shape);
}

static void assert_same_result(const struct result *got, const struct result *want, const char *name, size_t shape) {
    assert_same(got->o, want->o, sizeof got->o, name, "o", shape);
    assert_same(got->stats, want->stats, sizeof got->stats, name, "stats", shape);
    assert_same(got->dq, want->dq, sizeof got->dq, name, "dq", shape);
    assert_same(got->dk, want->dk, sizeof got->dk, name, "dk", shape);
    assert_same(got->dv, want->dv, sizeof got->dv, name, "dv", shape);
}

static void check_all_kernels(const struct data *in, size_t shape) {
    const char *names[] = {"reference", "avx2", "avx512"};
    struct result *want = run_literal(in);
    for (size_t n = 0; n < 3; n++) {
        const struct wh_attention_kernels *kernels = wh_attention_select(names[n]);
        if (kernels == NULL) continue;
        assert_string_equal(kernels->name, names[n]);
        struct result *got = run(kernels, in);
        assert_same_result(got, want, names[n], shape);
        free(got);
    }
    free(want);
}

static void kernels_give_the_contracts_bits(void **state) {
    (void)state;
    for (size_t n = 0; n < SHAPES; n++) {
        struct data *in = make_data(&shapes[n]);
        check_all_kernels(in, n);
        free(in);
    }
}

/* Scores far apart: probabilities underflow to 0 and to subnormals, terms to -0. */
static void tiny_probabilities_too(void **state) {
    (void)state;
    const struct shape s = {70, 20, 2, WH_F32, 2, true, false};
    struct data *in = make_data(&s);
    for (size_t i = 0; i < Q_MAX; i++) in->q[i] *= 12;
    for (size_t i = 0; i < K_MAX; i++) in->v[i] = i % 5 ? in->v[i] * 0x1p-120f : 0;
    for (size_t i = 0; i < Q_MAX; i++) in->d_o[i] *= 0x1p-30f;
    check_all_kernels(in, SHAPES);
    free(in);
}

/* Case B27: tokens of document 1 change, rows of document 2 keep their bits; without the mask they do not. */
static void check_documents(bool masked) {
    const struct shape s = {100, 16, 2, WH_F32, 1, true, false};
    struct data *in = make_data(&s);
    for (uint32_t i = 0; i < s.T; i++) in->document_start[i] = masked && i >= 41 ? 41 : 0;
    const struct wh_attention_kernels *kernels = wh_attention_select(NULL);
    struct result *before = run(kernels, in);
    for (size_t i = 0; i < 41; i++)
        for (size_t d = 0; d < s.D; d++) in->k[k_at(&s, i, d)] += 1, in->v[k_at(&s, i, d)] = -in->v[k_at(&s, i, d)];
    struct result *after = run(kernels, in);
    const size_t q = q_at(&s, 0, 41, 0), k = k_at(&s, 41, 0);
    assert_true((memcmp(before->o + q, after->o + q, sizeof before->o - q * sizeof(float)) == 0) == masked);
    assert_true((memcmp(before->dq + q, after->dq + q, sizeof before->dq - q * sizeof(float)) == 0) == masked);
    assert_true((memcmp(before->dk + k, after->dk + k, sizeof before->dk - k * sizeof(float)) == 0) == masked);
    assert_true(memcmp(before->o, after->o, q * sizeof(float)) != 0);
    free(before);
    free(after);
    free(in);
}

static void documents_do_not_see_each_other(void **state) {
    (void)state;
    check_documents(true);
    check_documents(false);
}

static void a_row_knows_nothing_of_later_ones(void **state) {
    (void)state;
    const struct shape s = {90, 24, 1, WH_F32, 1, false, false}, shorter = {47, 24, 1, WH_F32, 1, false, false};
    struct data *in = make_data(&s), *part = make_data(&shorter);
    struct result *all = run(wh_attention_select(NULL), in), *first = run(wh_attention_select(NULL), part);
    assert_memory_equal(all->o, first->o, 47 * q_stride(&s) * sizeof(float));
    assert_memory_equal(all->dq, first->dq, 47 * q_stride(&s) * sizeof(float));
    free(all), free(first), free(in), free(part);
}

static void select_knows_names(void **state) {
    (void)state;
    assert_ptr_equal(wh_attention_select("reference"), &wh_attention_reference);
    assert_null(wh_attention_select("sse9"));
    assert_non_null(wh_attention_select(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_gradients_are_slopes),
        cmocka_unit_test(literal_is_accurate),
        cmocka_unit_test(kernels_give_the_contracts_bits),
        cmocka_unit_test(tiny_probabilities_too),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(a_row_knows_nothing_of_later_ones),
        cmocka_unit_test(select_knows_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
