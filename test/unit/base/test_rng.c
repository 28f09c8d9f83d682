#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "base/rng.h"

/* kat_vectors of the Random123 distribution, philox4x32 with 10 rounds. */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        wh_rng_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].want, sizeof out);
    }
}

static void element_is_a_word_of_its_block(void **state) {
    (void)state;
    struct wh_rng r = wh_rng_stream(0x0123456789abcdefull, WH_RNG_DROPOUT, 7, 9);
    const uint32_t key[2] = {0x89abcdefu, 0x01234567u};
    assert_memory_equal(r.key, key, sizeof key);
    const uint64_t blocks[] = {0, 1, 77, 0xffffffffull, 0x100000000ull, 0x3fffffffffffffffull};
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        const uint32_t counter[4] = {(uint32_t)blocks[b], (uint32_t)(blocks[b] >> 32), r.step_purpose, 9};
        uint32_t want[4], got[4];
        wh_rng_philox(counter, key, want);
        wh_rng_block(&r, blocks[b], got);
        assert_memory_equal(got, want, sizeof want);
        for (uint64_t w = 0; w < 4; w++) assert_int_equal(wh_rng_u32(&r, 4 * blocks[b] + w), want[w]);
    }
}

static void streams_differ(void **state) {
    (void)state;
    struct wh_rng streams[] = {
        wh_rng_stream(1, WH_RNG_INIT, 0, 0),
        wh_rng_stream(2, WH_RNG_INIT, 0, 0),
        wh_rng_stream(1ull << 32 | 1, WH_RNG_INIT, 0, 0),
        wh_rng_stream(1, WH_RNG_DROPOUT, 0, 0),
        wh_rng_stream(1, WH_RNG_INIT, 1, 0),
        wh_rng_stream(1, WH_RNG_INIT, 0, 1),
    };
    const size_t count = sizeof streams / sizeof streams[0];
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) assert_true(wh_rng_u32(&streams[i], 0) != wh_rng_u32(&streams[j], 0));
}

static void f32_is_uniform(void **state) {
    (void)state;
    struct wh_rng r = wh_rng_stream(5, WH_RNG_TEST, 0, 0);
    double sum = 0;
    int bins[16] = {0};
    for (uint64_t i = 0; i < 160000; i++) {
        float f = wh_rng_f32(&r, i);
        assert_true(f >= 0 && f < 1);
        sum += f;
        bins[(int)(f * 16)]++;
    }
    assert_true(sum / 160000 > 0.497 && sum / 160000 < 0.503); /* four standard deviations */
    for (int b = 0; b < 16; b++) assert_in_range(bins[b], 9600, 10400);
}

static void check_permutation(uint64_t seed, uint32_t epoch, uint64_t n) {
    unsigned char *seen = calloc(1, n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = wh_rng_permute(seed, epoch, n, i);
        assert_true(to < n);
        assert_false(seen[to]);
        seen[to] = 1;
    }
    free(seen);
}

static void permute_is_a_permutation(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) check_permutation(42, 3, n);
    check_permutation(42, 3, 65536);
    check_permutation(42, 3, 65537);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Too large to try all: 20000 indices of many must have 20000 images. */
static void permute_large(void **state) {
    (void)state;
    enum { SAMPLE = 20000 };
    static uint64_t image[SAMPLE];
    const uint64_t sizes[] = {5000000000ull, (1ull << 62) + 1, UINT64_MAX};
    for (size_t s = 0; s < 3; s++) {
        for (uint64_t i = 0; i < SAMPLE; i++) {
            image[i] = wh_rng_permute(1, 0, sizes[s], sizes[s] - 1 - i * (sizes[s] / SAMPLE));
            assert_true(image[i] < sizes[s]);
        }
        qsort(image, SAMPLE, sizeof image[0], by_value);
        for (size_t i = 1; i < SAMPLE; i++) assert_true(image[i] != image[i - 1]);
        assert_true(image[SAMPLE / 2] > sizes[s] / 100 * 48 && image[SAMPLE / 2] < sizes[s] / 100 * 52);
    }
}

static void permute_mixes(void **state) {
    (void)state;
    int fixed = 0, next = 0, same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t to = wh_rng_permute(1, 1, 1000, i);
        fixed += to == i;
        next += wh_rng_permute(1, 1, 1000, (i + 1) % 1000) == to + 1;
        same_epoch += wh_rng_permute(1, 2, 1000, i) == to;
        same_seed += wh_rng_permute(2, 1, 1000, i) == to;
    }
    assert_true(fixed < 10 && next < 10 && same_epoch < 10 && same_seed < 10); /* one each is what chance gives */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(element_is_a_word_of_its_block),
        cmocka_unit_test(streams_differ),
        cmocka_unit_test(f32_is_uniform),
        cmocka_unit_test(permute_is_a_permutation),
        cmocka_unit_test(permute_large),
        cmocka_unit_test(permute_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
