/* The oracle against PyTorch: ten training steps of five models, stored by ref/make_vectors.py.
 *
 * Two runs are stored. "f64": PyTorch in float64 that keeps its weights as float32, as the oracle does; what is left is
 * the order of double sums, so the bounds are tight and any slip in a formula breaks them. "f32": plain PyTorch
 * float32, with the bounds that every comparison with the outside has (shared cases: loss 1e-5, norm 1e-4 relative). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../ref/vectors.c"
#include "../../../ref/wanhe_ref.c"

enum { STEPS = 10 };

/* What was measured stands in ref/README.md. Gradients are stored as float32: half a unit there is 6e-8. */
static const double bound_f64_loss = 1e-12, bound_f64_norm = 1e-12, bound_logits = 1e-12, bound_grads = 1e-7;
static const double bound_f32_loss = 1e-5, bound_f32_norm = 1e-4, bound_weights = 1e-7;

struct run {
    struct vectors v;
    struct ref_config config;
    struct ref *r;
    int32_t *ids, *labels;
    uint32_t *starts; /* NULL: no documents */
    int B, T;
};

static void run_open(const char *name, struct run *out) {
    char path[128];
    struct vector t;
    snprintf(path, sizeof path, "test/golden/torch/%s.safetensors", name);
    *out = (struct run){0};
    assert_true(vectors_open(path, &out->v));
    out->config = vectors_config(&out->v);
    out->r = ref_new(&out->config, 1);
    vectors_load(&out->v, "weight.", out->r);
    out->ids = vectors_ints(&out->v, "ids");
    out->labels = vectors_ints(&out->v, "labels");
    if (vectors_find(&out->v, "document_start", &t)) out->starts = (uint32_t *)vectors_ints(&out->v, "document_start");
    assert_true(vectors_find(&out->v, "ids", &t));
    assert_int_equal(t.shape[0], STEPS);
    out->B = (int)t.shape[1], out->T = (int)t.shape[2];
}

static void run_close(struct run *run) {
    vectors_close(&run->v);
    ref_free(run->r);
    free(run->ids), free(run->labels), free(run->starts);
}

static double run_step(struct run *run, int step) {
    size_t at = (size_t)step * (size_t)run->B * (size_t)run->T;
    return ref_step(run->r, run->B, run->T, run->ids + at, run->labels + at, run->starts ? run->starts + at : NULL);
}

static double stored(const struct run *run, const char *name, int i) {
    struct vector t;
    assert_true(vectors_find(&run->v, name, &t));
    return vector_get(&t, (size_t)i);
}

/* Keeps the largest deviation of its kind for the report. */
static void check(const char *what, int step, double got, double want, double scale, double bound, double *largest) {
    double deviation = fabs(got - want) / scale;
    if (!(deviation <= bound))
        fail_msg("%s, step %d: got %.12g, PyTorch %.12g, deviation %.2e above %.0e", what, step + 1, got, want,
                 deviation, bound);
    *largest = fmax(*largest, deviation);
}

static void check_steps(struct run *run, const char *name) {
    double loss64 = 0, norm64 = 0, loss32 = 0, norm32 = 0;
    int clipped = 0;
    for (int s = 0; s < STEPS; s++) {
        double loss = run_step(run, s), norm = ref_norm(run->r), want;
        want = stored(run, "loss.f64", s), check("loss", s, loss, want, want, bound_f64_loss, &loss64);
        want = stored(run, "norm.f64", s), check("norm", s, norm, want, want, bound_f64_norm, &norm64);
        want = stored(run, "loss.f32", s), check("float32 loss", s, loss, want, want, bound_f32_loss, &loss32);
        want = stored(run, "norm.f32", s), check("float32 norm", s, norm, want, want, bound_f32_norm, &norm32);
        clipped += norm > run->config.clip;
        ref_update(run->r, ref_lr(&run->config, s + 1), s + 1);
    }
    assert_in_range(clipped, 1, STEPS - 1); /* both sides of the clipping threshold are seen */
    print_message("%s: f64 loss %.1e norm %.1e; f32 loss %.1e norm %.1e\n", name, loss64, norm64, loss32, norm32);
}

/* All elements of all tensors against PREFIX + name, relative to the tensor's largest element. Tensors whose largest is
 * below `negligible` must be so in the oracle too: GPT-2's key bias has gradient 0 but for rounding, since the softmax
 * ignores what is added to all keys alike. */
static double check_tensors(struct run *run, const char *prefix, int gradients, double negligible, double bound) {
    double worst = 0;
    struct ref_tensor *t;
    for (int i = 0; (t = ref_tensor_at(run->r, i)); i++) {
        char name[80];
        struct vector want;
        double largest = negligible;
        snprintf(name, sizeof name, "%s%s", prefix, t->name);
        assert_true(vectors_find(&run->v, name, &want));
        assert_int_equal(want.elems, t->elems);
        for (size_t e = 0; e < want.elems; e++) largest = fmax(largest, fabs(vector_get(&want, e)));
        for (size_t e = 0; e < want.elems; e++)
            check(name, 0, gradients ? t->g[e] : t->w[e], vector_get(&want, e), largest, bound, &worst);
    }
    return worst;
}

static void check_first_step(struct run *run, const char *name) {
    struct vector want;
    double logits = 0, grads;
    run_step(run, 0);
    assert_true(vectors_find(&run->v, "logits", &want));
    for (size_t i = 0; i < want.elems; i++)
        check("logits", 0, ref_logits(run->r)[i], vector_get(&want, i), 1.0, bound_logits, &logits);
    grads = check_tensors(run, "grad.", 1, 1e-9, bound_grads);
    print_message("%s: logits %.1e (absolute), gradients of step 1 %.1e\n", name, logits, grads);
}

static void against_torch(void **state) {
    const char *name = *state;
    struct run run;
    run_open(name, &run);
    check_first_step(&run, name);
    check_steps(&run, name);
    print_message("%s: weights after step %d %.1e\n", name, STEPS, check_tensors(&run, "final.", 0, 0, bound_weights));
    run_close(&run);
}

#define CASE(name) \
    { #name, against_torch, NULL, NULL, (void *)#name }

int main(void) {
    const struct CMUnitTest tests[] = {CASE(gpt2_tied), CASE(llama_gqa_untied), CASE(llama_gqa_tied_documents),
                                       CASE(qwen2_bias), CASE(llama3_scaling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
