/* The engine against ref/: loss, every gradient, and weights after steps of AdamW, for every kind of model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "ref/wanhe_ref.h"
#include "optim/adamw.h"
#include "test/unit/model/tiny.h"

/* Bounds: fp32 engine against a double oracle. Measured maxima are printed; bounds are about four times them. */
enum { STEPS = 4 };
static const double loss_bound = 1e-6, gradient_bound = 2e-5, norm_bound = 1e-5, weight_bound = 2e-4;

static struct ref_config oracle_config(const struct wh_model *m) {
    return (struct ref_config){.V = (int)m->V,
                               .C = (int)m->C,
                               .L = (int)m->L,
                               .H = (int)m->H,
                               .Hkv = (int)m->Hkv,
                               .D = (int)m->D,
                               .F = (int)m->F,
                               .max_position = (int)m->max_position,
                               .layer_norm = m->layer_norm,
                               .learned_positions = m->learned_positions,
                               .gated = m->gated,
                               .qkv_bias = m->qkv_bias,
                               .linear_bias = m->linear_bias,
                               .tied = m->tied,
                               .norm_eps = (double)m->norm_eps,
                               .init_std = 0.08,
                               .rope = (enum ref_rope)m->rope.kind,
                               .rope_theta = m->rope.theta,
                               .rope_factor = m->rope.factor,
                               .rope_low_freq = m->rope.low_freq_factor,
                               .rope_high_freq = m->rope.high_freq_factor,
                               .rope_original_max = m->rope.original_max_position,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .adam_eps = 1e-8,
                               .weight_decay = 0.1,
                               .clip = 0.5};
}

static double largest_difference(const float *a, const double *b, const float *b32, size_t n, double *scale) {
    double worst = 0.0, largest = 1e-30;
    for (size_t i = 0; i < n; i++) {
        double want = b ? b[i] : (double)b32[i];
        worst = fmax(worst, fabs((double)a[i] - want));
        largest = fmax(largest, fabs(want));
    }
    *scale = largest;
    return worst / largest;
}

static void compare(const char *name, struct tiny *t, bool documents) {
    const struct ref_config config = oracle_config(&t->model);
    struct ref *oracle = ref_new(&config, 5);
    struct wh_net_shape shape = tiny_shape(t);
    struct wh_net net;
    struct wh_adamw adamw;
    double worst_gradient = 0, worst_loss = 0, worst_norm = 0, worst_weight = 0;
    shape.micro_batch = 2;
    shape.loss_block_tokens = 7;
    assert_int_equal(wh_net_new(&shape, &net), WH_OK);
    wh_net_init_weights(&net, 1);
    for (size_t i = 0; i < t->params.count; i++)
        memcpy(net.master + t->params.list[i].offset, ref_param(oracle, t->params.list[i].name),
               t->params.list[i].elems * sizeof(float));
    const struct wh_adamw_settings settings = {0.9, 0.95, 1e-8, 0.1, 0.5};
    const struct wh_adamw_buffers buffers = {.params = &t->params,
                                             .grain = shape.grain,
                                             .vec = net.vec,
                                             .threads = 1,
                                             .grads = net.grads,
                                             .grad_dtype = WH_F32,
                                             .master = net.master,
                                             .m = net.adam_m,
                                             .v = net.adam_v,
                                             .weights = net.weights,
                                             .weight_dtype = WH_F32,
                                             .own = {0, t->params.buffer_elems}};
    assert_int_equal(wh_adamw_new(&settings, &buffers, &adamw), WH_OK);
    const struct wh_net_batch batch = {t->ids, t->labels, documents ? t->document_start : NULL};
    for (int step = 0; step < STEPS; step++) {
        double want = ref_step(oracle, (int)t->sequences, (int)t->T, (const int32_t *)t->ids, t->labels,
                               documents ? t->document_start : NULL);
        for (uint32_t i = 0; i < t->sequences / 2; i++) wh_net_train(&net, i, &batch, 1.0f / (float)t->valid, 0);
        double loss = wh_net_finish(&net, &batch, 0) / (double)t->valid, scale;
        worst_loss = fmax(worst_loss, fabs(loss - want) / want);
        for (size_t i = 0; i < t->params.count; i++) {
            const struct wh_param *p = &t->params.list[i];
            double d =
                largest_difference((float *)net.grads + p->offset, ref_grad(oracle, p->name), NULL, p->elems, &scale);
            if (p->id == WH_P_ATTN_K_BIAS) continue; /* 0 in exact arithmetic: nothing to compare with */
            if (d > gradient_bound) print_message("%s step %d %s: %g of %g\n", name, step, p->name, d, scale);
            worst_gradient = fmax(worst_gradient, d);
        }
        double norm = wh_adamw_grad_norm(&adamw), want_norm = ref_norm(oracle);
        worst_norm = fmax(worst_norm, fabs(norm - want_norm) / want_norm);
        wh_adamw_update(&adamw, 1e-3, (uint64_t)step + 1, norm);
        ref_update(oracle, 1e-3, step + 1);
    }
    for (size_t i = 0; i < t->params.count; i++) {
        const struct wh_param *p = &t->params.list[i];
        double scale,
            d = largest_difference(net.master + p->offset, NULL, ref_param(oracle, p->name), p->elems, &scale);
        if (p->id == WH_P_ATTN_K_BIAS || p->id == WH_P_ATTN_Q_BIAS) continue; /* Adam turns noise into full steps */
        if (d > weight_bound) print_message("%s weights %s: %g of %g\n", name, p->name, d, scale);
        worst_weight = fmax(worst_weight, d);
    }
    print_message("%-24s loss %.1e  gradients %.1e  norm %.1e  weights %.1e\n", name, worst_loss, worst_gradient,
                  worst_norm, worst_weight);
    assert_true(worst_loss <= loss_bound);
    assert_true(worst_gradient <= gradient_bound);
    assert_true(worst_norm <= norm_bound);
    assert_true(worst_weight <= weight_bound);
    wh_adamw_free(&adamw);
    wh_net_free(&net);
    ref_free(oracle);
}

static void run(const char *name, struct wh_model model, bool documents) {
    struct tiny t = {.model = model};
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    tiny_batch(&t, 4, 23);
    compare(name, &t, documents);
    tiny_free(&t);
}

static void engine_equals_the_oracle(void **state) {
    (void)state;
    struct wh_model m = tiny_model(WH_GPT2);
    run("gpt2", m, false);
    run("gpt2 documents", m, true);
    m.tied = false;
    run("gpt2 untied", m, false);
    m = tiny_model(WH_LLAMA);
    run("llama", m, false);
    run("llama documents", m, true);
    m.tied = true;
    run("llama tied", m, false);
    m.rope = (struct wh_rope){10000.0, WH_ROPE_LLAMA3, 8.0, 1.0, 4.0, 16};
    run("llama3 rope", m, false);
    m = tiny_model(WH_LLAMA);
    m.D = 20; /* H*D is not C */
    run("llama head_dim", m, false);
    run("qwen2", tiny_model(WH_QWEN2), false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(engine_equals_the_oracle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
