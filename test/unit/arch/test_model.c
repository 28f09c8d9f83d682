/* The work of a training step, against arithmetic by hand (cases B54, B77, B84). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "arch/model.h"

/* B84: six per weight that multiplies a token, and the full attention square; no look-up. All are whole numbers below
 * 2^53, so doubles are exact. */
static void flops_of_a_llama(void **state) {
    (void)state;
    struct wh_model m;
    wh_model_defaults(WH_LLAMA, &m);
    m.V = 32000, m.C = 2048, m.L = 22, m.H = 32, m.Hkv = 4, m.D = 64, m.F = 5632, m.max_position = 2048;
    m.tied = false;
    assert_true(wh_model_flops_per_token(&m, 2048) == 7313817600.0);
    assert_true(wh_model_flops_per_token(&m, 0) == 6206521344.0);
    m.tied = true; /* B77: the shared matrix still multiplies once */
    assert_true(wh_model_flops_per_token(&m, 2048) == 7313817600.0);
}

/* B54: hidden 6144, 64 heads of 128, so 8192 channels in attention. */
static void flops_with_a_head_size_of_its_own(void **state) {
    (void)state;
    struct wh_model m;
    wh_model_defaults(WH_LLAMA, &m);
    m.V = 1, m.C = 6144, m.L = 1, m.H = m.Hkv = 64, m.D = 128, m.F = 1;
    const double attention = 4.0 * 6144 * 8192, rest = 3.0 * 6144 + 6144;
    assert_true(wh_model_flops_per_token(&m, 10) == 6 * (attention + rest) + 12.0 * 8192 * 10);
}

/* Two matrices in the feed-forward where there is no gate; learned positions are looked up. */
static void flops_of_a_gpt2(void **state) {
    (void)state;
    struct wh_model m;
    wh_model_defaults(WH_GPT2, &m);
    m.V = 11, m.C = 6, m.L = 3, m.H = m.Hkv = 2, m.D = 3, m.F = 24, m.max_position = 100;
    assert_true(wh_model_flops_per_token(&m, 5) == 6.0 * (3 * 12 * 36 + 11 * 6) + 12.0 * 3 * 6 * 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(flops_of_a_llama),
                                       cmocka_unit_test(flops_with_a_head_size_of_its_own),
                                       cmocka_unit_test(flops_of_a_gpt2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
