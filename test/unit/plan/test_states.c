/* Bytes of model states per ZeRO stage: goldens of the ZeRO paper and case B74. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/states.h"

static uint64_t total(uint64_t params, uint64_t ranks, uint32_t stage, enum wh_dtype gradients) {
    const struct wh_state_bytes b = wh_state_bytes(params, (params + ranks - 1) / ranks, stage, WH_BF16, gradients);
    return b.weights + b.gradients + b.optimizer;
}

static void goldens(void **state) {
    static const struct {
        uint64_t params, ranks, bytes[4];
    } cases[] = {
        {7000000000, 8, {112000000000, 38500000000, 26250000000, 14000000000}},
        {7000000000, 1, {112000000000, 112000000000, 112000000000, 112000000000}},
        /* B74: P = 2,851e6 */
        {2851000000, 8, {45616000000, 15680500000, 10691250000, 5702000000}},
        /* the paper's 7.5e9 on 64: 120, 31.4, 16.6, 1.9 GB */
        {7500000000, 64, {120000000000, 31406250000, 16640625000, 1875000000}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t stage = 0; stage < 4; stage++)
            assert_int_equal(total(cases[i].params, cases[i].ranks, stage, WH_BF16), cases[i].bytes[stage]);
}

/* B74: fp32 gradients add 2 P, or 2 P / N where they are shared out; shares round up. */
static void fp32_gradients_and_rounding(void **state) {
    (void)state;
    const uint64_t P = 2851000000;
    for (uint32_t stage = 0; stage < 4; stage++)
        assert_int_equal(total(P, 8, stage, WH_F32) - total(P, 8, stage, WH_BF16), stage < 2 ? 2 * P : 2 * P / 8);
    assert_int_equal(total(12368, 5, 3, WH_BF16), 39584);
    const struct wh_state_bytes b = wh_state_bytes(1000, 250, 1, WH_F32, WH_F32);
    assert_int_equal(b.weights, 4000);
    assert_int_equal(b.optimizer, 2000); /* fp32 weights are their own master */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(goldens), cmocka_unit_test(fp32_gradients_and_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
