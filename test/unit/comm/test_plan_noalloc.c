/* From wh_comm_start to the end of wh_comm_wait, and in wh_comm_run, nothing asks for memory or frees any: with borders and
 * contributions or without, in the arena and outside of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "test/support/alloc_count.h"
#include "test/support/ranks.h"

enum { RANKS = 3, ELEMS = 90000 };

static enum wh_status count_calls(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t all[RANKS] = {0, 1, 2};
    static const uint8_t inputs[] = {1, 2, 1}, merges[] = {0, 1, 0, 2};
    static const size_t border[] = {0, 0, 70000, ELEMS};
    static const struct wh_comm_sum sum = {inputs, merges, ELEMS};
    struct wh_comm *comm;
    void *in[2] = {NULL, calloc(2 * ELEMS, 4)}, *out[2] = {NULL, calloc(ELEMS, 4)};
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "dp", all, RANKS, &comm));
    WH_TRY(wh_comm_buffer(job, 2 * ELEMS * sizeof(float), &in[0]));
    WH_TRY(wh_comm_buffer(job, ELEMS * sizeof(float), &out[0]));
    for (int which = 0; which < 2 * WH_BARRIER; which++) {
        struct wh_comm_call c = {.op = (enum wh_comm_op)(which / 2), .count = ELEMS, .dtype = WH_F32, .root = 1};
        struct wh_comm_plan *plan;
        c.in = c.op == WH_BROADCAST ? NULL : in[which % 2], c.out = out[which % 2];
        if (c.op == WH_REDUCE_SCATTER || c.op == WH_ALL_GATHER) c.border = border;
        if (c.op == WH_REDUCE_SCATTER || c.op == WH_ALL_REDUCE || c.op == WH_REDUCE) c.sum = &sum;
        WH_TRY(wh_comm_plan_make(comm, &c, &plan));
        size_t asked = alloc_count(), freed = free_count();
        WH_TRY(wh_comm_start(plan));
        WH_TRY(wh_comm_wait(plan));
        WH_TRY(wh_comm_run(comm, &c));
        RANK_CHECK(alloc_count() == asked && free_count() == freed, "rank %u: %s asked %zu times, freed %zu times",
                   rank, wh_comm_op_name(c.op), alloc_count() - asked, free_count() - freed);
        wh_comm_plan_free(plan);
        RANK_CHECK(free_count() == freed + 1, "a plan is one block");
    }
    return WH_OK;
}

static void nothing_is_asked_for(void **state) {
    (void)state;
    struct test_ranks t = {.config = {.ranks = RANKS, .arena_bytes = 4 << 20}, .body = count_calls};
    uint32_t bad = test_ranks_run(&t);
    if (bad) test_ranks_print(&t);
    test_ranks_free(&t);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
