/* Inputs, labels, document borders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/batch.h"
#include "os/file.h"
#include "test/support/folder.h"

static char folder[TEST_FOLDER_BYTES], path[96];

static int make_folder(void **state) {
    (void)state;
    if (!test_folder_make(folder, "batch")) return -1;
    snprintf(path, sizeof path, "%s/t.bin", folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static struct wh_tokens *tokens_of(const uint32_t *ids, size_t n) {
    const char *paths[] = {path};
    struct wh_tokens *t;
    assert_int_equal(wh_tokens_write_llmc(path, ids, n, 1000), WH_OK);
    assert_int_equal(wh_tokens_open(paths, 1, WH_TOKENS_AUTO, 1000, &t), WH_OK);
    return t;
}

/* 13 tokens, T = 4: three sequences; the last label of each is the first input of the next, the very last is token 12.
 */
static void test_labels(void **state) {
    (void)state;
    static const uint32_t all[13] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};
    struct wh_sampler s;
    uint32_t ids[12], start[12];
    int32_t labels[12];
    uint64_t valid;
    struct wh_tokens *t = tokens_of(all, 13);
    assert_int_equal(wh_sampler_init(13, 4, 3, 0, false, &s), WH_OK);
    struct wh_batch b = {.tokens = t, .sampler = &s, .end_of_text = 15};
    assert_int_equal(wh_batch_fill(&b, 0, 0, 3, ids, labels, start, &valid), WH_OK);
    assert_int_equal(valid, 12);
    assert_memory_equal(ids, all, sizeof ids);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(labels[i], all[i + 1]);
        assert_int_equal(start[i], 0);
    }
    assert_int_equal(wh_batch_count_valid(&b, 0, 0, 3, &valid), WH_OK);
    assert_int_equal(valid, 12);
    wh_tokens_close(t);
}

/* End of text (9) in the middle, twice in a row, at the end of a sequence, at the start of the next. */
static void test_documents(void **state) {
    (void)state;
    static const uint32_t all[13] = {1, 9, 9, 2, 3, 4, 5, 9, 9, 6, 7, 8, 1};
    static const int32_t want_labels[12] = {9, -1, -1, 3, 4, 5, 9, -1, -1, 7, 8, 1};
    static const uint32_t want_start[12] = {0, 0, 2, 3, 3, 3, 0, 0, 2, 3, 3, 3};
    struct wh_sampler s;
    uint32_t ids[12], start[12];
    int32_t labels[12];
    uint64_t valid, counted;
    struct wh_tokens *t = tokens_of(all, 13);
    assert_int_equal(wh_sampler_init(13, 6, 2, 0, false, &s), WH_OK);
    struct wh_batch b = {.tokens = t, .sampler = &s, .end_of_text = 9, .split_documents = true};
    assert_int_equal(wh_batch_fill(&b, 0, 0, 2, ids, labels, start, &valid), WH_OK);
    assert_memory_equal(labels, want_labels, sizeof labels);
    assert_memory_equal(start, want_start, sizeof start);
    assert_int_equal(valid, 8);
    assert_int_equal(wh_batch_count_valid(&b, 0, 0, 2, &counted), WH_OK);
    assert_int_equal(counted, valid);
    wh_tokens_close(t);
}

/* Case B07: the same rows however the global batch is cut, document i being token i repeated. */
static void test_cuts(void **state) {
    (void)state;
    enum { T = 8, N = 64, BATCH = 16 };
    static uint32_t all[N * T + 1];
    uint32_t whole[BATCH * T], part[BATCH * T];
    int32_t labels[BATCH * T];
    uint64_t valid;
    struct wh_sampler s;
    for (uint32_t i = 0; i < N * T; i++) all[i] = i / T;
    struct wh_tokens *t = tokens_of(all, N * T + 1);
    assert_int_equal(wh_sampler_init(N * T + 1, T, BATCH, 3, true, &s), WH_OK);
    struct wh_batch b = {.tokens = t, .sampler = &s};
    int seen[N] = {0};
    for (uint64_t step = 0; step < 4; step++) {
        assert_int_equal(wh_batch_fill(&b, step, 0, BATCH, whole, labels, NULL, &valid), WH_OK);
        for (uint32_t i = 0; i < BATCH; i++) seen[whole[i * T]]++;
        for (uint32_t count = 1; count <= 8; count *= 2) {
            for (uint32_t first = 0; first < BATCH; first += count)
                assert_int_equal(wh_batch_fill(&b, step, first, count, part + first * T, labels, NULL, &valid), WH_OK);
            assert_memory_equal(part, whole, sizeof whole);
        }
    }
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], 1);
    wh_tokens_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_labels), cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
