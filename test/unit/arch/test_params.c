/* The parameter table counts what published models have (cases B14, B76, B77, B79, B80, B82, B88), and lays it out
 * soundly (B54, B68). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "arch/params.h"

static struct wh_model sized(enum wh_family f, uint32_t V, uint32_t C, uint32_t L, uint32_t H, uint32_t F) {
    struct wh_model m;
    wh_model_defaults(f, &m);
    m.V = V, m.C = C, m.L = L, m.H = m.Hkv = H, m.D = C / H, m.F = F, m.max_position = 1024;
    return m;
}

static size_t count(const struct wh_model *m) {
    struct wh_params p;
    struct wh_faults faults = {0};
    wh_model_check(m, &faults);
    assert_int_equal(wh_faults_status(&faults, WH_CONFIG), WH_OK);
    assert_int_equal(wh_params_new(m, &p), WH_OK);
    size_t elems = p.elems;
    wh_params_free(&p);
    return elems;
}

static void tiny_model(void **state) {
    (void)state;
    struct wh_model m = sized(WH_LLAMA, 256, 16, 2, 4, 64);
    m.tied = true;
    assert_int_equal(count(&m), 12368); /* B14, B82 */
    m.tied = false;
    assert_int_equal(count(&m), 16464);
}

static void published_models(void **state) {
    (void)state;
    struct wh_model m = sized(WH_LLAMA, 32000, 4096, 32, 32, 11008);
    assert_int_equal(count(&m), 6738415616); /* B76 */
    m = sized(WH_LLAMA, 32000, 288, 6, 6, 768);
    m.tied = true;
    assert_int_equal(count(&m), 15191712); /* B77 */
    m = sized(WH_GPT2, 50257, 1600, 48, 25, 6400);
    assert_int_equal(count(&m), 1557611200); /* B88 */
    m = sized(WH_GPT2, 50257, 768, 12, 12, 3072);
    assert_int_equal(count(&m), 124439808);
    /* B79: 70 layers of 12h^2 + 13h without learned positions, tied. The real one has a norm behind the embedding too
     * (2h), which no family here has: 176,247,271,424 - 2 * 14,336. */
    m = sized(WH_GPT2, 250880, 14336, 70, 112, 4 * 14336);
    m.learned_positions = false;
    assert_int_equal(count(&m), 176247271424 - 2 * 14336);
    /* B80: untied */
    m = sized(WH_GPT2, 50432, 6144, 44, 64, 4 * 6144);
    m.learned_positions = m.tied = false;
    assert_int_equal(count(&m), 20554567680);
}

/* B54: hidden 48, 8 heads of 16: the query matrix is 128 x 48. */
static void head_size_of_its_own(void **state) {
    (void)state;
    struct wh_model m = sized(WH_LLAMA, 10, 48, 1, 8, 7);
    struct wh_params p;
    m.D = 16;
    assert_int_equal(wh_params_new(&m, &p), WH_OK);
    const struct wh_param *q = wh_params_find(&p, WH_P_ATTN_Q, 0), *o = wh_params_find(&p, WH_P_ATTN_O, 0);
    assert_true(q->rows == 128 && q->cols == 48 && o->rows == 48 && o->cols == 128);
    wh_params_free(&p);
}

/* B68: nothing is kept in 32 bits. */
static void a_tensor_of_2_to_the_31(void **state) {
    (void)state;
    struct wh_model m = sized(WH_LLAMA, 262144, 8192, 1, 64, 1);
    struct wh_params p;
    assert_int_equal(wh_params_new(&m, &p), WH_OK);
    const struct wh_param *token = wh_params_find(&p, WH_P_EMBED_TOKEN, -1), *head = wh_params_find(&p, WH_P_HEAD, -1);
    assert_int_equal(token->elems, 2147483648);
    assert_int_equal(head->elems, 2147483648);
    assert_true(head->offset >= token->offset + 2147483648);
    assert_int_equal(p.elems, 2 * 2147483648 + 4 * 8192 * 8192 + 3 * 8192 + 3 * 8192);
    wh_params_free(&p);
}

/* Every tensor has its place, none overlap, joined ones touch, others are aligned. */
static void layout(void **state) {
    (void)state;
    struct wh_model m = sized(WH_QWEN2, 13, 6, 3, 3, 7);
    struct wh_params p;
    m.Hkv = 1;
    assert_int_equal(wh_params_new(&m, &p), WH_OK);
    size_t end = 0, elems = 0;
    for (size_t i = 0; i < p.count; i++) {
        const struct wh_param *q = &p.list[i];
        assert_true(q->offset >= end && q->offset < end + WH_PARAM_ALIGN);
        if (q->joined)
            assert_int_equal(q->offset, end);
        else
            assert_int_equal(q->offset % WH_PARAM_ALIGN, 0);
        end = q->offset + q->elems;
        elems += q->elems;
        assert_ptr_equal(wh_params_find_name(&p, q->name), q);
        assert_ptr_equal(wh_params_find(&p, q->id, q->layer), q);
    }
    assert_int_equal(elems, p.elems);
    assert_true(p.buffer_elems >= end && p.buffer_elems % WH_PARAM_ALIGN == 0);
    assert_true(wh_params_find(&p, WH_P_ATTN_K, 2)->joined && wh_params_find(&p, WH_P_MLP_UP, 2)->joined);
    assert_null(wh_params_find(&p, WH_P_EMBED_POSITION, -1));
    assert_string_equal(wh_params_find(&p, WH_P_ATTN_V_BIAS, 1)->name, "layer.1.attn.v.bias");
    wh_params_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_model), cmocka_unit_test(published_models),
                                       cmocka_unit_test(head_size_of_its_own),
                                       cmocka_unit_test(a_tensor_of_2_to_the_31), cmocka_unit_test(layout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
