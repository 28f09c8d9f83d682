/* The owner map: it covers the line, and no block of the gradient norm has two owners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "arch/norm_blocks.h"
#include "arch/owners.h"
#include "arch/part.h"

static struct wh_model model_of(enum wh_family family, uint32_t V, uint32_t C, uint32_t F, uint32_t L, bool tied) {
    struct wh_model m;
    wh_model_defaults(family, &m);
    m.V = V, m.C = C, m.F = F, m.L = L, m.tied = tied;
    m.H = 4, m.D = C / 4, m.Hkv = family == WH_GPT2 ? 4 : 2, m.max_position = 33;
    return m;
}

/* Every block lies within one range. */
static void check_blocks(const struct wh_params *p, uint32_t S, uint32_t parts, const size_t *border) {
    for (size_t i = 0; i < p->count; i++) {
        const size_t count = wh_norm_blocks(&p->list[i], S, NULL);
        struct wh_norm_block *block = calloc(count, sizeof *block);
        wh_norm_blocks(&p->list[i], S, block);
        for (size_t b = 0; b < count; b++) {
            const size_t end = block[b].offset + (block[b].rows - 1) * block[b].ld + block[b].cols;
            for (uint32_t k = 0; k <= parts; k++) assert_true(border[k] <= block[b].offset || border[k] >= end);
        }
        free(block);
    }
}

static void check_parts(const struct wh_params *p, uint32_t S, const size_t *cut, size_t cuts, uint32_t parts) {
    size_t *border = calloc(parts + 1, sizeof *border), longest = 0;
    assert_int_equal(wh_owners(p, S, parts, border), WH_OK);
    assert_int_equal(border[0], 0);
    assert_int_equal(border[parts], p->buffer_elems);
    for (size_t c = 0; c + 1 < cuts; c++) longest = cut[c + 1] - cut[c] > longest ? cut[c + 1] - cut[c] : longest;
    for (size_t k = 0, c = 0; k <= parts; k++) {
        while (c < cuts && cut[c] < border[k]) c++;
        assert_true(c < cuts && cut[c] == border[k]); /* ascending, and each a legal cut */
        if (k) assert_true(border[k] - border[k - 1] <= p->buffer_elems / parts + longest + 1);
    }
    check_blocks(p, S, parts, border);
    free(border);
}

static void check_model(const struct wh_model *m, uint32_t S) {
    struct wh_params p;
    assert_int_equal(wh_params_new(m, &p), WH_OK);
    const size_t cuts = wh_owner_cuts(&p, S, NULL);
    size_t *cut = calloc(cuts, sizeof *cut);
    assert_int_equal(wh_owner_cuts(&p, S, cut), cuts);
    assert_true(cut[0] == 0 && cut[cuts - 1] == p.buffer_elems);
    for (size_t c = 0; c + 1 < cuts; c++) assert_true(cut[c] < cut[c + 1]);
    for (size_t i = 0; i < p.count; i++) /* a gap belongs to the tensor before it: the next cut is a tensor's begin */
        for (size_t c = 0; c < cuts; c++)
            if (cut[c] >= p.list[i].offset + p.list[i].elems) {
                assert_int_equal(cut[c], i + 1 < p.count ? p.list[i + 1].offset : p.buffer_elems);
                break;
            }
    for (uint32_t parts = 1; parts <= 9; parts++) check_parts(&p, S, cut, cuts, parts);
    check_parts(&p, S, cut, cuts, 64);
    check_parts(&p, S, cut, cuts, (uint32_t)cuts + 7); /* more ranges than there can be */
    free(cut);
    wh_params_free(&p);
}

static void whole_models(void **state) {
    (void)state;
    static const enum wh_family families[] = {WH_GPT2, WH_LLAMA, WH_QWEN2};
    for (int f = 0; f < 3; f++)
        for (uint32_t S = 1; S <= 2; S++)
            for (int tied = 0; tied < 2; tied++) {
                const struct wh_model small = model_of(families[f], 61, 36, 20, 2, tied); /* gaps behind most tensors */
                const struct wh_model wide = model_of(families[f], 1003, 160, 18000, 3, tied); /* rows above a block */
                check_model(&small, S);
                check_model(&wide, S);
            }
}

static void owners_of_part(const struct wh_params *whole, const bool *held, size_t border[6]) {
    struct wh_params part;
    assert_int_equal(wh_params_part(whole, held, 2, 1, 0, &part), WH_OK);
    assert_int_equal(wh_owners(&part, 2, 5, border), WH_OK);
    wh_params_free(&part);
}

/* The part with everything in it is the whole; tensor ranks' lines hold what they hold, aligned as the table is. */
static void parts_of_models(void **state) {
    (void)state;
    const struct wh_model m = model_of(WH_QWEN2, 61, 36, 20, 2, false);
    struct wh_params p, held_part;
    size_t whole[6], part[6];
    assert_int_equal(wh_params_new(&m, &p), WH_OK);
    assert_int_equal(wh_owners(&p, 2, 5, whole), WH_OK);
    owners_of_part(&p, NULL, part);
    assert_memory_equal(whole, part, sizeof whole);
    bool *held = calloc(p.count, sizeof *held);
    for (uint32_t t = 0; t < 2; t++) {
        size_t line = 0, cuts[1024];
        for (size_t i = p.first_layer; i < p.first_layer + p.per_layer; i++) {
            const size_t elems = wh_param_held_elems(&p.list[i], 2, 2, t);
            assert_int_equal(elems, p.list[i].cut == WH_CUT_NONE ? p.list[i].elems : p.list[i].elems / 2);
            if (!p.list[i].joined) line = (line + WH_PARAM_ALIGN - 1) / WH_PARAM_ALIGN * WH_PARAM_ALIGN;
            line += elems;
            held[i] = true;
        }
        assert_int_equal(wh_params_part(&p, held, 2, 2, t, &held_part), WH_OK);
        const size_t count = wh_owner_cuts(&held_part, 2, cuts);
        wh_params_free(&held_part);
        assert_true(count <= 1024 && cuts[0] == 0);
        assert_int_equal(cuts[count - 1], (line + WH_PARAM_ALIGN - 1) / WH_PARAM_ALIGN * WH_PARAM_ALIGN);
    }
    memset(held, 0, p.count * sizeof *held);
    owners_of_part(&p, held, part);
    for (int k = 0; k <= 5; k++) assert_int_equal(part[k], 0); /* nothing held */
    free(held);
    wh_params_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_models), cmocka_unit_test(parts_of_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
