/* Between making a plan and its end nothing asks for memory: start, test, wait, progress, run and lists of
 * messages, on every path, from the first time on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "comm/exec.h"
#include "test/support/alloc_count.h"
#include "test/support/ranks.h"

enum { RANKS = 3, ELEMS = 150000, ROUNDS = 2 }; /* elements: more pieces than fit the staging space */

#define CHECK_NOTHING_TAKEN(before, call) \
    RANK_CHECK(alloc_count() == (before), "%s of %zu", wh_comm_op_name((call).op), (size_t)(call).count)

/* Every other time by testing until it is finished. */
static enum wh_status start_and_finish(struct wh_comm_job *job, struct wh_comm_plan *plan, bool by_test) {
    WH_TRY(wh_comm_start(plan));
    WH_TRY(wh_comm_progress(job));
    for (bool done = !by_test; !done;) WH_TRY(wh_comm_test(plan, &done));
    return by_test ? WH_OK : wh_comm_wait(plan);
}

static enum wh_status check_call(struct wh_comm_job *job, struct wh_comm *comm, struct wh_comm_call c) {
    struct wh_comm_plan *plan;
    WH_TRY(wh_comm_plan_make(comm, &c, &plan));
    size_t before = alloc_count();
    for (int i = 0; i < ROUNDS; i++) WH_TRY(start_and_finish(job, plan, i & 1));
    CHECK_NOTHING_TAKEN(before, c);
    wh_comm_plan_free(plan);
    before = alloc_count();
    WH_TRY(wh_comm_run(comm, &c));
    CHECK_NOTHING_TAKEN(before, c);
    return WH_OK;
}

/* With borders of slices and with several contributions of a rank, where the operation has them. */
static enum wh_status check_shapes(struct wh_comm_job *job, struct wh_comm *comm, struct wh_comm_call c) {
    static const uint8_t inputs[RANKS] = {1, 2, 1}, merges[] = {0, 1, 0, 2};
    const size_t border[RANKS + 1] = {0, 0, c.count / 3, c.count};
    const struct wh_comm_sum sum = {inputs, merges, c.count};
    if (c.op == WH_REDUCE_SCATTER || c.op == WH_ALL_GATHER) c.border = border;
    if (c.op == WH_REDUCE_SCATTER || c.op == WH_ALL_REDUCE || c.op == WH_REDUCE) c.sum = &sum;
    return c.border || c.sum ? check_call(job, comm, c) : WH_OK;
}

/* Sends to the next rank and receives from the one before. */
static enum wh_status check_messages(struct wh_comm_job *job, struct wh_comm *comm, void *in, void *out, size_t count) {
    uint32_t rank = wh_comm_rank(comm);
    struct wh_comm_call send = {.op = WH_SEND, .in = in, .count = count, .dtype = WH_F32, .root = (rank + 1) % RANKS};
    struct wh_comm_call recv = {
        .op = WH_RECV, .out = out, .count = count, .dtype = WH_F32, .root = (rank + RANKS - 1) % RANKS};
    struct wh_comm_plan *sending, *receiving;
    WH_TRY(wh_comm_plan_make(comm, &send, &sending));
    WH_TRY(wh_comm_plan_make(comm, &recv, &receiving));
    size_t before = alloc_count();
    for (int i = 0; i < ROUNDS; i++) {
        WH_TRY(wh_comm_start(sending));
        WH_TRY(start_and_finish(job, receiving, i & 1));
        WH_TRY(wh_comm_wait(sending));
    }
    CHECK_NOTHING_TAKEN(before, send);
    wh_comm_plan_free(sending), wh_comm_plan_free(receiving);
    return WH_OK;
}

static enum wh_status check_list(struct wh_comm *comm, void *in, void *out) {
    struct wh_comm_call c = {.op = WH_ALL_REDUCE, .in = in, .out = out, .count = ELEMS, .dtype = WH_BF16};
    struct wh_comm_exec *e;
    WH_TRY(wh_comm_exec_make(comm, &c, "ring", 0, &e));
    size_t before = alloc_count();
    for (int i = 0; i < ROUNDS; i++) WH_TRY(wh_comm_exec_run(e));
    CHECK_NOTHING_TAKEN(before, c);
    wh_comm_exec_free(e);
    return WH_OK;
}

static enum wh_status rank_of_everything(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t members[RANKS] = {0, 1, 2};
    static const size_t counts[] = {0, 9, 3000, ELEMS};
    struct wh_comm *comm;
    void *in[2] = {NULL, calloc(2 * ELEMS, sizeof(float))}, *out[2] = {NULL, calloc(ELEMS, sizeof(float))};
    (void)rank;
    (void)t;
    RANK_CHECK(alloc_count() > 0, "the counters see nothing");
    WH_TRY(wh_comm_open(job, 0, "all", members, RANKS, &comm));
    WH_TRY(wh_comm_buffer(job, 2 * ELEMS * sizeof(float), &in[0]));
    WH_TRY(wh_comm_buffer(job, ELEMS * sizeof(float), &out[0]));
    for (int where = 0; where < 2; where++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            for (int op = 0; op <= WH_BARRIER; op++) {
                struct wh_comm_call c = {.op = (enum wh_comm_op)op, .in = in[where], .out = out[where]};
                c.count = counts[k], c.dtype = WH_F32, c.root = 1;
                if (op == WH_BROADCAST) c.in = NULL;
                WH_TRY(check_call(job, comm, c));
                WH_TRY(check_shapes(job, comm, c));
            }
            WH_TRY(check_messages(job, comm, in[where], out[where], counts[k]));
        }
    WH_TRY(check_list(comm, in[0], out[0]));
    free(in[1]), free(out[1]);
    return WH_OK;
}

static void nothing_is_taken(void **state) {
    (void)state;
    struct test_ranks t = {.config = {.ranks = RANKS, .arena_bytes = 2 << 20, .deadline_ns = 20000000000},
                           .body = rank_of_everything};
    assert_int_equal(test_ranks_bad(&t), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
