/* Parts of a model: together they are the model, each element once (tensors that aren't cut: once per tensor rank), and
 * their elements know their place in the logical tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arch/part.h"

static const struct wh_model model = {.family = WH_LLAMA,
                                      .V = 509,
                                      .C = 32,
                                      .L = 4,
                                      .H = 8,
                                      .Hkv = 8,
                                      .D = 4,
                                      .F = 48,
                                      .max_position = 16,
                                      .gated = true};

static void mark(const struct wh_params *part, unsigned char *seen, const size_t *base) {
    for (size_t i = 0; i < part->count; i++) {
        const struct wh_param *p = &part->list[i];
        for (size_t e = 0, run; e < p->elems; e += run) {
            const size_t at = wh_param_logical(p, e, &run);
            assert_true(run >= 1 && run <= p->elems - e);
            for (size_t k = 0; k < run; k++) {
                size_t one;
                assert_int_equal(wh_param_logical(p, e + k, &one), at + k);
                seen[base[p->index] + at + k]++;
            }
        }
    }
}

static void parts_are_the_model(void **state) {
    struct wh_params whole;
    (void)state;
    assert_int_equal(wh_params_new(&model, &whole), WH_OK);
    size_t *base = calloc(whole.count + 1, sizeof *base), unit[7];
    bool *held = calloc(whole.count, sizeof *held);
    for (size_t i = 0; i < whole.count; i++) base[i + 1] = base[i] + whole.list[i].elems;
    for (uint32_t tp = 1; tp <= 8; tp *= 2)
        for (uint32_t pp = 1; pp <= 4; pp *= 2) {
            unsigned char *seen = calloc(base[whole.count], 1);
            for (uint32_t t = 0; t < tp; t++)
                for (uint32_t s = 0; s < pp; s++) {
                    struct wh_params part;
                    for (size_t i = 0; i < whole.count; i++) {
                        const struct wh_param *p = &whole.list[i];
                        const int layer = p->layer >= 0 ? p->layer : p->id == WH_P_EMBED_TOKEN ? 0 : 3;
                        held[i] = (uint32_t)layer / (4 / pp) == s;
                    }
                    assert_int_equal(wh_params_part(&whole, held, 8, tp, t, &part), WH_OK);
                    assert_ptr_equal(wh_params_whole(&part), &whole);
                    mark(&part, seen, base);
                    wh_params_units(&part, 4, unit);
                    assert_int_equal(unit[6], part.buffer_elems);
                    for (size_t i = 0; i < part.count; i++) {
                        const struct wh_param *p = &part.list[i];
                        const uint32_t u = wh_params_unit(p, 4);
                        assert_true(unit[u] <= p->offset && p->offset + p->elems <= unit[u + 1]);
                        assert_ptr_equal(wh_params_find(&part, p->id, p->layer), p);
                        assert_true(p->joined || p->offset % WH_PARAM_ALIGN == 0);
                    }
                    wh_params_free(&part);
                }
            for (size_t i = 0; i < whole.count; i++)
                for (size_t e = base[i]; e < base[i + 1]; e++)
                    assert_int_equal(seen[e], whole.list[i].cut == WH_CUT_NONE ? tp : 1);
            free(seen);
        }
    free(base);
    free(held);
    wh_params_free(&whole);
}

/* The part that is everything is the table itself. */
static void everything(void **state) {
    struct wh_params whole, part;
    (void)state;
    assert_int_equal(wh_params_new(&model, &whole), WH_OK);
    assert_int_equal(wh_params_part(&whole, NULL, 8, 1, 0, &part), WH_OK);
    assert_int_equal(part.count, whole.count);
    assert_int_equal(part.buffer_elems, whole.buffer_elems);
    assert_int_equal(part.elems, whole.elems);
    for (size_t i = 0; i < part.count; i++) {
        assert_string_equal(part.list[i].name, whole.list[i].name);
        assert_int_equal(part.list[i].offset, whole.list[i].offset);
    }
    wh_params_free(&part);
    wh_params_free(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_the_model), cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
