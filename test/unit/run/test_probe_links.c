/* Measuring between real ranks: figures are positive, equal on all, and make a table; files are kept and found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "os/file.h"
#include "run/links_file.h"
#include "run/probe_links.h"
#include "run/tune.h"
#include "test/support/folder.h"
#include "test/support/ranks.h"

enum { BYTES = 64 << 10 };

static enum wh_status check(const struct wh_coll_links *l, uint32_t n, bool messages) {
    RANK_CHECK(l->ranks == n && l->level_count == 2 && l->level[0].bytes == 16 << 10 && l->level[1].bytes == BYTES);
    RANK_CHECK(l->latency_s >= 0 && l->message_s >= 0 && l->piece_bytes > 0);
    for (uint32_t i = 0; i < l->level_count; i++) {
        const struct wh_coll_level *at = &l->level[i];
        RANK_CHECK(at->piped > 0 && at->placed > 0 && at->copy > 0 && at->add > 0);
        for (int w = 0; w < WH_COLL_WAY_COUNT && messages; w++) {
            RANK_CHECK(l->start_s[w] > 0);
            for (int op = 0; op < WH_COLL_MEASURED_OPS; op++) RANK_CHECK(at->way[w][op] > 0);
        }
    }
    return WH_OK;
}

static enum wh_status body(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const uint32_t n = t->config.ranks;
    struct wh_tune *tune;
    struct wh_coll_links l, *all = t->shared;
    WH_TRY(wh_tune_open(job, rank, n, BYTES, &tune));
    struct wh_probe_links_what what = {
        .scratch = wh_tune_scratch(tune), .scratch_bytes = BYTES, .machine = "here", .seconds = 1e-5, .factor = 4};
    memset(&l, 0, sizeof l);
    WH_TRY(wh_probe_links(wh_tune_comm(tune), &what, &l));
    WH_TRY(check(&l, n, n > 1));
    all[rank] = l;
    const struct wh_comm_call barrier = {.op = WH_BARRIER};
    WH_TRY(wh_comm_run(wh_tune_comm(tune), &barrier));
    struct wh_text mine = {0}, first = {0};
    wh_coll_links_write(&all[rank], &mine);
    wh_coll_links_write(&all[0], &first);
    RANK_CHECK(strcmp(mine.data, first.data) == 0, "ranks measured different figures");
    for (int op = WH_ALL_REDUCE; op <= WH_ALL_GATHER; op++) {
        struct wh_tune_row row;
        WH_TRY(wh_tune_row(tune, &l, (enum wh_comm_op)op, 4096, 1e-5, &row));
        RANK_CHECK(row.count >= 1 && row.count <= WH_TUNE_CANDIDATES_MAX && row.bytes == 4096 / 4 / n * n * 4);
        RANK_CHECK(row.candidate[row.contract].canonical);
        for (uint32_t i = 0; i < row.count; i++) {
            RANK_CHECK(row.candidate[i].best_s > 0 && row.candidate[i].median_s >= row.candidate[i].best_s);
            RANK_CHECK(i == 0 || row.candidate[i].predicted_s >= row.candidate[i - 1].predicted_s);
        }
    }
    what.scratch = (char *)what.scratch + 2, what.scratch_bytes = WH_PROBE_LINKS_LEAST_BYTES, what.seconds = 1e-6;
    what.limit_s = 1e-9; /* over at once: one level, figures all the same */
    WH_TRY(wh_probe_links(wh_tune_comm(tune), &what, &l));
    RANK_CHECK(l.level_count == 1 && l.level[0].bytes == WH_PROBE_LINKS_LEVEL_BYTES && l.level[0].copy > 0);
    what.scratch_bytes = 100;
    RANK_CHECK(wh_probe_links(wh_tune_comm(tune), &what, &l) == WH_CONFIG);
    wh_tune_close(tune);
    wh_text_fini(&mine), wh_text_fini(&first);
    return WH_OK;
}

static void between_ranks(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct test_ranks t = {.config = {.ranks = n, .arena_bytes = wh_tune_arena_bytes(BYTES)}, .body = body};
        assert_int_equal(test_ranks_bad(&t), 0);
    }
}

/* Three predictions: a tenth below, right, twice. Both choices of both rows are the best that there was. */
static void a_summary(void **state) {
    (void)state;
    const struct wh_tune_row rows[2] = {
        {.count = 1, .candidate = {{"arena", 0, true, 0.9, 1, 1}}},
        {.count = 2, .contract = 1, .candidate = {{"ring", 1, false, 1, 1, 1}, {"arena", 0, true, 6, 3, 3}}},
    };
    struct wh_tune_summary s;
    assert_int_equal(wh_tune_summarize(rows, 2, &s), WH_OK);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.within_25, 2);
    assert_true(s.least == 0.9 && s.median == 1 && s.most == 2 && s.worst_choice == 1 && s.worst_contract == 1);
}

static const char *cache, *home;
static const char *lookup(const char *name) {
    return strcmp(name, "XDG_CACHE_HOME") == 0 ? cache : strcmp(name, "HOME") == 0 ? home : NULL;
}

static void a_place(const char *expect) {
    char *path = wh_links_default_path(lookup, 4);
    if (expect) assert_string_equal(path, expect);
    if (!expect) assert_null(path);
    free(path);
}

static void places(void **state) {
    (void)state;
    home = "/h", cache = NULL;
    a_place("/h/.cache/wanhe/links-4.json");
    cache = "relative";
    a_place("/h/.cache/wanhe/links-4.json");
    cache = "/c";
    a_place("/c/wanhe/links-4.json");
    home = "", cache = "";
    a_place(NULL);
}

static void a_file(void **state) {
    (void)state;
    char folder[TEST_FOLDER_BYTES];
    struct wh_coll_links l = {.machine = "m", .ranks = 2, .level_count = 1}, again;
    assert_true(test_folder_make(folder, "links"));
    char *path = wh_path_join(folder, "new/links.json");
    l.level[0] = (struct wh_coll_level){.bytes = 4096, .piped = 1e-10, .placed = 1e-10};
    assert_int_equal(wh_links_save(path, &l), WH_OK);
    assert_int_equal(wh_links_load(path, &again), WH_OK);
    assert_int_equal(wh_links_check(&again, path, "m", 2), WH_OK);
    assert_int_equal(wh_links_check(&again, path, "m", 3), WH_CONFIG);
    assert_non_null(strstr(wh_error()->message, "wanhe tune --ranks 3"));
    assert_int_equal(wh_links_check(&again, path, "other", 2), WH_CONFIG);
    assert_int_equal(wh_links_load("/nowhere/x", &again), WH_IO);
    assert_int_equal(wh_dir_remove(folder), WH_OK);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(between_ranks), cmocka_unit_test(a_summary),
                                       cmocka_unit_test(places), cmocka_unit_test(a_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
