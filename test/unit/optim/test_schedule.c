#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Case B36: warm-up 10, cosine to update 100, peak 1e-3, floor 1e-4. */
static const struct wh_config_lr b36 = {
    .peak = 1e-3, .floor = 1e-4, .warmup_steps = 10, .decay_start = 10, .decay_steps = 90, .style = WH_LR_COSINE};

/* Case B82: nanotron's tiny configuration. */
static const struct wh_config_lr b82 = {
    .peak = 3e-4, .floor = 1e-5, .warmup_steps = 2, .decay_start = 2, .decay_steps = 13, .style = WH_LR_COSINE};

/* Printed with seven digits in the sources. */
static void expect(const struct wh_config_lr *lr, uint64_t update, double rate) {
    assert_true(fabs(wh_schedule_rate(lr, update) - rate) <= 0.5e-6 * rate);
}

static void cosine_after_warmup(void **state) {
    (void)state;
    expect(&b36, 1, 1e-4);
    expect(&b36, 10, 1e-3);
    expect(&b36, 40, 7.75e-4);
    expect(&b36, 41, 7.612622e-4);
    expect(&b36, 81, 1.953952e-4);
    assert_true(wh_schedule_rate(&b36, 100) == 1e-4);
    assert_true(wh_schedule_rate(&b36, 1000) == 1e-4);
}

static void nanotron_tiny(void **state) {
    (void)state;
    expect(&b82, 1, 1.5e-4);
    assert_true(wh_schedule_rate(&b82, 2) == 3e-4);
    expect(&b82, 3, 2.957866e-4);
    expect(&b82, 4, 2.833911e-4);
    expect(&b82, 8, 1.724778e-4);
    assert_true(wh_schedule_rate(&b82, 15) == 1e-5);
}

static void constant(void **state) {
    (void)state;
    struct wh_config_lr lr = {.peak = 0.25, .warmup_steps = 4, .style = WH_LR_CONSTANT};
    assert_true(wh_schedule_rate(&lr, 1) == 0.0625);
    assert_true(wh_schedule_rate(&lr, 3) == 0.1875);
    assert_true(wh_schedule_rate(&lr, 4) == 0.25);
    assert_true(wh_schedule_rate(&lr, 1u << 28) == 0.25);
    lr.warmup_steps = 0;
    assert_true(wh_schedule_rate(&lr, 1) == 0.25);
}

static void linear(void **state) {
    (void)state;
    struct wh_config_lr lr = {.peak = 1.0, .floor = 0.5, .decay_steps = 4, .style = WH_LR_LINEAR};
    assert_true(wh_schedule_rate(&lr, 1) == 0.875);
    assert_true(wh_schedule_rate(&lr, 2) == 0.75);
    assert_true(wh_schedule_rate(&lr, 4) == 0.5);
    assert_true(wh_schedule_rate(&lr, 5) == 0.5);
}

/* Warm-up, plateau, decay over the last 4 of 16. */
static void wsd(void **state) {
    (void)state;
    struct wh_config_lr lr = {
        .peak = 1.0, .floor = 0.0, .warmup_steps = 2, .decay_start = 12, .decay_steps = 4, .style = WH_LR_WSD};
    assert_true(wh_schedule_rate(&lr, 1) == 0.5);
    assert_true(wh_schedule_rate(&lr, 2) == 1.0);
    assert_true(wh_schedule_rate(&lr, 12) == 1.0);
    assert_true(wh_schedule_rate(&lr, 13) == 0.75);
    assert_true(wh_schedule_rate(&lr, 16) == 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine_after_warmup),
        cmocka_unit_test(nanotron_tiny),
        cmocka_unit_test(constant),
        cmocka_unit_test(linear),
        cmocka_unit_test(wsd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
