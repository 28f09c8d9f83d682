/* Sequences, epochs and resume: each id once, whoever asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "data/sampler.h"

/* Case B63: R*B*T = 256 tokens a step. */
static void test_one_token_short(void **state) {
    (void)state;
    static const uint64_t tokens[] = {257, 512, 513, 1000}, steps[] = {1, 1, 2, 3};
    struct wh_sampler s;
    assert_int_equal(wh_sampler_init(256, 32, 8, 1, false, &s), WH_DATA);
    assert_non_null(strstr(wh_error()->message, "256 tokens"));
    assert_non_null(strstr(wh_error()->message, "at least 257"));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(wh_sampler_init(tokens[i], 32, 8, 1, false, &s), WH_OK);
        assert_int_equal(s.steps_per_epoch, steps[i]);
        assert_int_equal(s.sequences, (tokens[i] - 1) / 32);
    }
    assert_int_equal(wh_sampler_init(0, 32, 8, 1, false, &s), WH_DATA);
    assert_int_equal(wh_sampler_init(100, 0, 8, 1, false, &s), WH_CONFIG);
    assert_int_equal(wh_sampler_init(100, 4, 0, 1, false, &s), WH_CONFIG);
}

/* Case B07: 64 documents, 8 sequences a step, two epochs. */
static void test_epochs(void **state) {
    (void)state;
    struct wh_sampler s;
    uint64_t order[2][64];
    assert_int_equal(wh_sampler_init(64 * 16 + 1, 16, 8, 42, true, &s), WH_OK);
    assert_int_equal(s.steps_per_epoch, 8);
    for (uint64_t step = 0; step < 16; step++)
        for (uint32_t p = 0; p < 8; p++) order[step / 8][step % 8 * 8 + p] = wh_sampler_sequence(&s, step, p);
    for (int e = 0; e < 2; e++) {
        int seen[64] = {0};
        for (int i = 0; i < 64; i++) seen[order[e][i]]++;
        for (int i = 0; i < 64; i++) assert_int_equal(seen[i], 1);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    struct wh_sampler other = s;
    other.seed++;
    int equal = 0;
    for (uint32_t i = 0; i < 64; i++) equal += wh_sampler_sequence(&other, i / 8, i % 8) == order[0][i];
    assert_true(equal < 16);
}

/* Case B37: 5 steps of 4, then a new process from the index alone. */
static void test_resume(void **state) {
    (void)state;
    struct wh_sampler before, after;
    int seen[64] = {0};
    assert_int_equal(wh_sampler_init(64 * 16 + 1, 16, 4, 7, true, &before), WH_OK);
    for (uint64_t step = 0; step < 5; step++)
        for (uint32_t p = 0; p < 4; p++) seen[wh_sampler_sequence(&before, step, p)]++;
    assert_int_equal(wh_sampler_init(64 * 16 + 1, 16, 4, 7, true, &after), WH_OK);
    for (uint64_t step = 5; step < 16; step++)
        for (uint32_t p = 0; p < 4; p++) seen[wh_sampler_sequence(&after, step, p)]++;
    for (int i = 0; i < 64; i++) assert_int_equal(seen[i], 1);
}

/* Cases B38 (10 sequences, batch 4) and B64 (100 sequences, batch 21): the tail is dropped, alike in both runs. */
static void test_tail(void **state) {
    (void)state;
    struct wh_sampler s;
    assert_int_equal(wh_sampler_init(10 * 8 + 1, 8, 4, 0, false, &s), WH_OK);
    assert_int_equal(s.steps_per_epoch, 2);
    assert_int_equal(s.left_over, 2);
    static const uint64_t rank1[] = {2, 3, 6, 7, 2, 3};
    for (uint64_t step = 0; step < 3; step++)
        for (uint32_t p = 0; p < 2; p++) assert_int_equal(wh_sampler_sequence(&s, step, 2 + p), rank1[2 * step + p]);
    assert_int_equal(wh_sampler_init(100 * 8 + 1, 8, 21, 0, true, &s), WH_OK);
    assert_int_equal(s.steps_per_epoch, 4);
    assert_int_equal(s.left_over, 16);
    int ever[100] = {0};
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        int seen[100] = {0};
        for (uint64_t step = 4 * epoch; step < 4 * epoch + 4; step++)
            for (uint32_t p = 0; p < 21; p++) {
                uint64_t sequence = wh_sampler_sequence(&s, step, p);
                assert_int_equal(seen[sequence]++, 0);
                ever[sequence] = 1;
            }
    }
    for (int i = 0; i < 100; i++) assert_true(ever[i]); /* others are left out in each epoch */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_token_short), cmocka_unit_test(test_epochs),
                                       cmocka_unit_test(test_resume), cmocka_unit_test(test_tail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
