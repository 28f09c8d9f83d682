/* Filling a batch allocates nothing (invariant 8 of src/data/README.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/batch.h"
#include "os/file.h"
#include "test/support/alloc_count.h"
#include "test/support/folder.h"

static void test_no_allocation(void **state) {
    (void)state;
    enum { T = 64, N = 32, BATCH = 8 };
    char folder[TEST_FOLDER_BYTES], path[64];
    static uint32_t all[N * T + 1], ids[BATCH * T], start[BATCH * T];
    static int32_t labels[BATCH * T];
    struct wh_tokens *t;
    struct wh_sampler s;
    uint64_t valid, counted;
    for (uint32_t i = 0; i < N * T + 1; i++) all[i] = i % 50;
    assert_true(test_folder_make(folder, "noalloc"));
    snprintf(path, sizeof path, "%s/t.bin", folder);
    assert_int_equal(wh_tokens_write_llmc(path, all, N * T + 1, 50), WH_OK);
    const char *paths[] = {path};
    assert_int_equal(wh_tokens_open(paths, 1, WH_TOKENS_AUTO, 50, &t), WH_OK);
    assert_int_equal(wh_sampler_init(N * T + 1, T, BATCH, 1, true, &s), WH_OK);
    struct wh_batch b = {.tokens = t, .sampler = &s, .end_of_text = 49, .split_documents = true};
    size_t before = alloc_count();
    assert_true(before > 0); /* the counter is linked in */
    for (uint64_t step = 0; step < 10; step++) {
        assert_int_equal(wh_batch_fill(&b, step, 0, BATCH, ids, labels, start, &valid), WH_OK);
        assert_int_equal(wh_batch_count_valid(&b, step, 0, BATCH, &counted), WH_OK);
        assert_int_equal(valid, counted);
    }
    assert_int_equal(alloc_count() - before, 0);
    wh_tokens_close(t);
    assert_int_equal(wh_dir_remove(folder), WH_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
