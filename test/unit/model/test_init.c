/* Initial weights: any part of the line has the bits of the whole, and the whole those of the formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/elementary.h"
#include "model/init.h"
#include "test/unit/model/tiny.h"

enum { SEED = 5 };

static float *range(const struct tiny *t, size_t first, size_t elems, int threads) {
    float *out = malloc((elems + 1) * sizeof *out);
    assert_non_null(out);
    memset(out, 0xff, (elems + 1) * sizeof *out);
    wh_init_range(&t->params, &t->model, SEED, first, elems, out, threads);
    const uint32_t untouched = UINT32_MAX;
    assert_memory_equal(out + elems, &untouched, sizeof untouched);
    return out;
}

static struct tiny make(enum wh_family family) {
    struct tiny t = {.model = tiny_model(family)};
    t.model.tied = false, t.model.V = 59, t.model.C = 52, t.model.D = 13, t.model.qkv_bias = true; /* with gaps */
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    return t;
}

static const enum wh_family families[] = {WH_GPT2, WH_LLAMA, WH_QWEN2};

static float normal(uint32_t tensor, size_t i, double std) {
    const struct wh_rng r = wh_rng_stream(SEED, WH_RNG_INIT, 0, tensor);
    const double u = ((double)wh_rng_u32(&r, i / 2 * 2) + 0.5) * 0x1p-32;
    const double angle = 6.283185307179586477 * ((double)wh_rng_u32(&r, i / 2 * 2 + 1) * 0x1p-32);
    return (float)(std * sqrt(-2.0 * wh_log(u)) * (i % 2 ? wh_sin(angle) : wh_cos(angle)));
}

static float want(const struct tiny *t, uint32_t tensor, size_t i) {
    switch (t->params.list[tensor].init) {
    case WH_INIT_NORMAL:
        return normal(tensor, i, t->model.init_std);
    case WH_INIT_RESIDUAL:
        return normal(tensor, i, t->model.init_std / sqrt(2.0 * t->model.L));
    case WH_INIT_ONES:
        return 1.0f;
    case WH_INIT_ZEROS:
        break;
    }
    return 0.0f;
}

static void whole_is_the_formula(void **state) {
    (void)state;
    for (int f = 0; f < 3; f++) {
        struct tiny t = make(families[f]);
        float *got = range(&t, 0, t.params.buffer_elems, 1),
              *expected = calloc(t.params.buffer_elems, sizeof *expected);
        for (uint32_t k = 0; k < t.params.count; k++)
            for (size_t i = 0; i < t.params.list[k].elems; i++) expected[t.params.list[k].offset + i] = want(&t, k, i);
        assert_true(t.params.buffer_elems > t.params.elems); /* there are gaps */
        assert_memory_equal(got, expected, t.params.buffer_elems * sizeof *got);
        free(got), free(expected);
        tiny_free(&t);
    }
}

static void parts_are_the_whole(void **state) {
    (void)state;
    const struct wh_rng r = wh_rng_stream(3, WH_RNG_TEST, 0, 0);
    for (int f = 0; f < 3; f++) {
        struct tiny t = make(families[f]);
        const size_t n = t.params.buffer_elems;
        float *whole = range(&t, 0, n, 3);
        for (uint64_t k = 0; k < 300; k++) {
            const size_t first = wh_rng_u32(&r, 2 * k) % n, longest = k % 3 ? 70 : n; /* short ones end anywhere */
            const size_t rest = n - first, most = rest < longest ? rest : longest;
            const size_t elems = wh_rng_u32(&r, 2 * k + 1) % (most + 1);
            float *part = range(&t, first, elems, 1 + (int)(k % 2));
            assert_memory_equal(part, whole + first, elems * sizeof *part);
            free(part);
        }
        free(range(&t, n, 0, 1));
        free(whole);
        tiny_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_is_the_formula), cmocka_unit_test(parts_are_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
