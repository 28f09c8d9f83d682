/* The oracle against what is known without PyTorch: its gradients against finite differences of its loss, its
 * parameters against the engine's table, and cases with known answers (numbers in the names are those of the shared bug
 * cases). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../ref/wanhe_ref.c"
#include "arch/params.h"

enum { B = 2, T = 7, N = B * T, VOCABULARY = 11 };

/* Odd sizes: nothing can hide behind equal ones. */
static struct ref_config gpt2_config(void) {
    return (struct ref_config){.V = VOCABULARY,
                               .C = 6,
                               .L = 2,
                               .H = 3,
                               .Hkv = 3,
                               .D = 2,
                               .F = 10,
                               .max_position = 9,
                               .layer_norm = 1,
                               .learned_positions = 1,
                               .qkv_bias = 1,
                               .linear_bias = 1,
                               .tied = 1,
                               .norm_eps = 1e-5,
                               .init_std = 0.4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .adam_eps = 1e-8,
                               .weight_decay = 0.1,
                               .clip = 1.0};
}

static struct ref_config llama_config(void) {
    return (struct ref_config){.V = VOCABULARY,
                               .C = 6,
                               .L = 2,
                               .H = 4,
                               .Hkv = 2,
                               .D = 4,
                               .F = 5,
                               .max_position = 9,
                               .gated = 1,
                               .norm_eps = 1e-5,
                               .init_std = 0.4,
                               .rope_theta = 100.0,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .adam_eps = 1e-8,
                               .weight_decay = 0.1};
}

static struct ref_config qwen2_config(void) {
    struct ref_config c = llama_config();
    c.qkv_bias = c.tied = 1;
    c.rope = REF_ROPE_LINEAR, c.rope_factor = 2.0;
    return c;
}

static const int32_t ids[N] = {1, 4, 4, 9, 0, 10, 2, 7, 7, 3, 1, 5, 8, 6};
static const int32_t labels[N] = {4, -1, 9, 0, 10, 2, 3, -1, -1, 1, 5, 8, 6, 0};
static const uint32_t documents[N] = {0, 0, 0, 3, 3, 3, 6, 0, 1, 1, 1, 1, 5, 5};

/* ------------------------------------------ gradients by finite differences ------------------------------------------
 */

static double loss_at(struct ref *r, float *w, float value) {
    float before = *w;
    *w = value;
    double loss = ref_forward(r, B, T, ids, labels, documents);
    *w = before;
    return loss;
}

/* Derivative by five points, error of order h^4; exact steps, as weights are multiples of 2^-12 (see move_weights). */
static double slope(struct ref *r, float *w) {
    const float h = 0x1p-11f;
    double near = loss_at(r, w, *w + h) - loss_at(r, w, *w - h);
    double far = loss_at(r, w, *w + 2 * h) - loss_at(r, w, *w - 2 * h);
    return (8.0 * near - far) / (12.0 * (double)h);
}

/* Moves biases off 0 and gains off 1, then rounds all to multiples of 2^-12. */
static void move_weights(struct ref *r) {
    struct ref_tensor *t;
    uint64_t state = 5;
    for (int i = 0; (t = ref_tensor_at(r, i)); i++)
        for (long e = 0; e < t->elems; e++) {
            double moved = t->w[e] + (t->decay ? 0.0 : 0.3 * normal(&state));
            t->w[e] = (float)(rint(moved * 4096.0) / 4096.0);
        }
}

static void check_gradients(const struct ref_config *c, const char *name) {
    struct ref *r = ref_new(c, 42);
    struct ref_tensor *t;
    double worst = 0.0;
    move_weights(r);
    ref_step(r, B, T, ids, labels, documents);
    for (int i = 0; (t = ref_tensor_at(r, i)); i++) {
        for (long e = 0; e<t->elems; e += t->elems> 12 ? 5 : 1) {
            double want = slope(r, &t->w[e]), deviation = fabs(t->g[e] - want);
            if (!(deviation <= 1e-9)) fail_msg("%s[%ld]: gradient %.12g, slope %.12g", t->name, e, t->g[e], want);
            worst = fmax(worst, deviation);
        }
    }
    print_message("%s: gradients against finite differences %.1e (absolute)\n", name, worst);
    ref_free(r);
}

static void gradients_gpt2(void **state) {
    (void)state;
    struct ref_config c = gpt2_config();
    check_gradients(&c, "gpt2");
}

static void gradients_llama(void **state) {
    (void)state;
    struct ref_config c = llama_config();
    check_gradients(&c, "llama");
}

static void gradients_qwen2(void **state) {
    (void)state;
    struct ref_config c = qwen2_config();
    check_gradients(&c, "qwen2");
}

/* --------------------------------------------- the engine's parameter table
 * --------------------------------------------- */

static void compare_table(const struct ref_config *c) {
    struct wh_model m = {.V = (uint32_t)c->V,
                         .C = (uint32_t)c->C,
                         .L = (uint32_t)c->L,
                         .H = (uint32_t)c->H,
                         .Hkv = (uint32_t)c->Hkv,
                         .D = (uint32_t)c->D,
                         .F = (uint32_t)c->F,
                         .max_position = (uint32_t)c->max_position,
                         .layer_norm = c->layer_norm,
                         .learned_positions = c->learned_positions,
                         .gated = c->gated,
                         .qkv_bias = c->qkv_bias,
                         .linear_bias = c->linear_bias,
                         .tied = c->tied};
    struct wh_params p;
    struct ref *r = ref_new(c, 1);
    assert_int_equal(wh_params_new(&m, &p), WH_OK);
    for (size_t i = 0; i < p.count; i++) {
        const struct ref_tensor *t = ref_tensor_at(r, (int)i);
        assert_non_null(t);
        assert_string_equal(t->name, p.list[i].name);
        assert_int_equal(t->rows, p.list[i].rows);
        assert_int_equal(t->elems, p.list[i].elems);
        assert_int_equal(t->decay, p.list[i].decay);
    }
    assert_null(ref_tensor_at(r, (int)p.count));
    wh_params_free(&p);
    ref_free(r);
}

static void parameters_are_the_table(void **state) {
    (void)state;
    struct ref_config c[] = {gpt2_config(), llama_config(), qwen2_config()};
    for (int i = 0; i < 3; i++) compare_table(&c[i]);
}

/* ------------------------------------------------- known answers ------------------------------------------------- */

static void learning_rate_b36(void **state) {
    (void)state;
    struct ref_config c = {.lr_peak = 1e-3, .lr_floor = 1e-4, .warmup_steps = 10, .decay_steps = 100};
    assert_true(fabs(ref_lr(&c, 1) - 1e-4) < 1e-18);
    assert_true(ref_lr(&c, 10) == 1e-3);
    assert_true(fabs(ref_lr(&c, 41) - 7.612622e-4) < 5e-11);
    assert_true(ref_lr(&c, 100) == 1e-4 && ref_lr(&c, 1000) == 1e-4);
}

static void rotary_scaling_b57(void **state) {
    (void)state;
    struct ref_config c = {.D = 128,
                           .rope = REF_ROPE_LLAMA3,
                           .rope_theta = 500000.0,
                           .rope_factor = 8.0,
                           .rope_low_freq = 1.0,
                           .rope_high_freq = 4.0,
                           .rope_original_max = 8192.0};
    static const struct {
        int i;
        double want;
    } known[] = {{28, 3.211446e-3}, {29, 2.166571e-3}, {30, 1.371894e-3}, {32, 5.248462e-4}, {63, 3.068926e-7}};
    for (int n = 0; n < 5; n++) {
        double got = ref_inverse_frequency(&c, known[n].i);
        assert_true(fabs(got / known[n].want - 1.0) < 5e-7); /* seven digits are known */
    }
}

static void rotary_scaling_linear(void **state) {
    (void)state;
    struct ref_config c = {.D = 8, .rope_theta = 10000.0, .rope_factor = 4.0};
    assert_true(fabs(ref_inverse_frequency(&c, 1) - 0.1) < 1e-16);
    c.rope = REF_ROPE_LINEAR;
    assert_true(fabs(ref_inverse_frequency(&c, 1) - 0.025) < 1e-16);
}

static double spread(struct ref *r, const char *name) {
    const struct ref_tensor *t = ref_tensor_find(r, name);
    double sum = 0.0, squares = 0.0;
    for (long e = 0; e < t->elems; e++) sum += t->w[e], squares += (double)t->w[e] * t->w[e];
    double mean = sum / (double)t->elems;
    return sqrt(squares / (double)t->elems - mean * mean);
}

/* 4096 normal numbers have their spread within 6 % (5 sigma). Residual outputs: init_std / sqrt(2L) = 0.01. */
static void initial_weights(void **state) {
    (void)state;
    struct ref_config c = gpt2_config();
    c.L = 2, c.C = c.F = 64, c.init_std = 0.02;
    c.H = c.Hkv = 8, c.D = 8;
    struct ref *r = ref_new(&c, 9);
    assert_true(fabs(spread(r, "layer.0.attn.q.weight") - 0.02) < 0.06 * 0.02);
    assert_true(fabs(spread(r, "layer.1.mlp.up.weight") - 0.02) < 0.06 * 0.02);
    assert_true(fabs(spread(r, "layer.0.attn.o.weight") - 0.01) < 0.06 * 0.01);
    assert_true(fabs(spread(r, "layer.1.mlp.down.weight") - 0.01) < 0.06 * 0.01);
    for (int i = 0; i < c.C; i++) {
        assert_true(ref_param(r, "final.norm.gain")[i] == 1.0f);
        assert_true(ref_param(r, "layer.1.mlp.up.bias")[i] == 0.0f);
    }
    ref_free(r);
}

static void equal_logits_are_ln_v_b16(void **state) {
    (void)state;
    struct ref_config c = llama_config();
    struct ref *r = ref_new(&c, 1);
    memset(ref_param(r, "head.weight"), 0, VOCABULARY * (size_t)c.C * sizeof(float));
    assert_true(fabs(ref_forward(r, B, T, ids, labels, NULL) - log(VOCABULARY)) < 1e-15);
    ref_free(r);
}

/* The two sequences have 6 and 5 valid labels. */
static void loss_is_a_mean_over_tokens_b01(void **state) {
    (void)state;
    struct ref_config c = gpt2_config();
    struct ref *r = ref_new(&c, 3);
    double first = ref_forward(r, 1, T, ids, labels, NULL), second = ref_forward(r, 1, T, ids + T, labels + T, NULL);
    double both = ref_forward(r, B, T, ids, labels, NULL);
    assert_true(fabs(both - (6 * first + 5 * second) / 11) < 1e-15);
    assert_true(fabs(both - (first + second) / 2) > 1e-4);
    ref_free(r);
}

static void no_valid_label_b03(void **state) {
    (void)state;
    struct ref_config c = gpt2_config();
    struct ref *r = ref_new(&c, 3);
    int32_t none[N];
    memset(none, 0xff, sizeof none);
    assert_true(ref_step(r, B, T, ids, none, NULL) == 0.0);
    assert_true(ref_norm(r) == 0.0);
    ref_free(r);
}

/* Documents 0..2, 3..5, 6 in the first sequence: token 0 changes its own document's logits alone. */
static void documents_do_not_see_each_other_b27(void **state) {
    (void)state;
    struct ref_config c = llama_config();
    struct ref *r = ref_new(&c, 3);
    int32_t changed[N];
    double before[T * VOCABULARY];
    memcpy(changed, ids, sizeof ids);
    changed[0] = 8;
    for (int masked = 0; masked < 2; masked++) {
        const uint32_t *starts = masked ? documents : NULL;
        ref_forward(r, B, T, ids, labels, starts);
        memcpy(before, ref_logits(r), sizeof before);
        ref_forward(r, B, T, changed, labels, starts);
        size_t own = 3 * VOCABULARY, rest = sizeof before - own * sizeof *before;
        assert_int_equal(memcmp(before + own, ref_logits(r) + own, rest) == 0, masked);
        assert_memory_not_equal(before, ref_logits(r), own * sizeof *before);
    }
    ref_free(r);
}

/* No gradient, so only decay acts: 1 - 0.01 * 0.1 on matrices and embeddings. */
static void decay_spares_norms_and_biases_b28(void **state) {
    (void)state;
    struct ref_config c = gpt2_config();
    struct ref *r = ref_new(&c, 3), *start = ref_new(&c, 3);
    struct ref_tensor *t;
    ref_update(r, 0.01, 1);
    for (int i = 0; (t = ref_tensor_at(r, i)); i++) {
        int is_vector = strstr(t->name, "bias") || strstr(t->name, "gain");
        const float *w = ref_tensor_at(start, i)->w;
        for (long e = 0; e < t->elems; e++)
            assert_true(t->w[e] == (is_vector ? w[e] : (float)(w[e] * (1.0 - 0.01 * 0.1))));
    }
    ref_free(r);
    ref_free(start);
}

/* Update 1 of AdamW moves each weight by lr against the sign of its gradient, however long the gradient: clipping can
 * be seen in the moments. */
static void clipping_scales_the_moments(void **state) {
    (void)state;
    struct ref_config c = gpt2_config();
    c.clip = 0.25;
    struct ref *r = ref_new(&c, 3);
    ref_step(r, B, T, ids, labels, NULL);
    double norm = ref_norm(r);
    assert_true(norm > 0.5);
    ref_update(r, 0.01, 1);
    struct ref_tensor *t = ref_tensor_find(r, "layer.1.mlp.down.weight");
    for (long e = 0; e < t->elems; e++)
        assert_true(fabs(t->m[e] - 0.1 * t->g[e] * 0.25 / (norm + 1e-6)) <= 1e-15 * norm);
    ref_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_gpt2),
        cmocka_unit_test(gradients_llama),
        cmocka_unit_test(gradients_qwen2),
        cmocka_unit_test(parameters_are_the_table),
        cmocka_unit_test(learning_rate_b36),
        cmocka_unit_test(rotary_scaling_b57),
        cmocka_unit_test(rotary_scaling_linear),
        cmocka_unit_test(initial_weights),
        cmocka_unit_test(equal_logits_are_ln_v_b16),
        cmocka_unit_test(loss_is_a_mean_over_tokens_b01),
        cmocka_unit_test(no_valid_label_b03),
        cmocka_unit_test(documents_do_not_see_each_other_b27),
        cmocka_unit_test(decay_spares_norms_and_biases_b28),
        cmocka_unit_test(clipping_scales_the_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
