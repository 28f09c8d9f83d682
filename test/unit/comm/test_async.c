/* Operations that overlap: several in flight, more than the window holds, in several groups, started by ranks at different
 * times and finished in any order; messages among them; buckets cut differently; the ledger. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/plan.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { RANKS = 4, PLANS = 20, ELEMS = 30000, FEW_ELEMS = 1600 };

static void run(struct test_ranks *t) {
    uint32_t bad = test_ranks_run(t);
    if (bad) test_ranks_print(t);
    test_ranks_free(t);
    assert_int_equal(bad, 0);
}

static void pause_at_random(uint64_t seed) {
    if (test_hash(seed) % 3 == 0) usleep((unsigned)(test_hash(seed + 1) % 300));
}

static void fill(float *x, size_t first, size_t count, uint64_t seed, uint32_t rank) {
    for (size_t i = 0; i < count; i++) x[i] = test_input(WH_F32, seed, rank, first + i).f32;
}

/* Ranks {0 1} {2 3} under one id, {0 2} {1 3} under another, all under a third. */
static enum wh_status open_groups(struct wh_comm_job *job, uint32_t rank, struct wh_comm *comm[3]) {
    static const uint32_t rows[2][2] = {{0, 1}, {2, 3}}, columns[2][2] = {{0, 2}, {1, 3}}, all[] = {0, 1, 2, 3};
    WH_TRY(wh_comm_open(job, 0, "row", rows[rank / 2], 2, &comm[0]));
    WH_TRY(wh_comm_open(job, 1, "column", columns[rank % 2], 2, &comm[1]));
    return wh_comm_open(job, 2, "all", all, 4, &comm[2]);
}

static enum wh_status finish(struct wh_comm_plan *p, uint64_t seed) {
    bool done = false;
    for (uint64_t i = 0; i < test_hash(seed) % 4 && !done; i++) WH_TRY(wh_comm_test(p, &done));
    return done ? WH_OK : wh_comm_wait(p);
}

static enum wh_status many_in_flight(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm[3];
    struct wh_comm_plan *plan[PLANS];
    float *x[PLANS];
    (void)t;
    WH_TRY(open_groups(job, rank, comm));
    for (int i = 0; i < PLANS; i++) { /* every third outside the arena */
        void *p = malloc(ELEMS * sizeof(float));
        if (i % 3) WH_TRY(wh_comm_buffer(job, ELEMS * sizeof(float), &p));
        x[i] = p;
        struct wh_comm_call c = {
            .op = WH_ALL_REDUCE, .in = p, .out = p, .count = i % 5 ? ELEMS - (size_t)i : 7, .dtype = WH_F32};
        WH_TRY(wh_comm_plan_make(comm[i % 3 == 0 ? 2 : i % 2], &c, &plan[i]));
    }
    for (uint64_t round = 0; round < 6; round++) {
        for (int i = 0; i < PLANS; i++) {
            struct wh_comm *g = comm[i % 3 == 0 ? 2 : i % 2];
            fill(x[i], 0, ELEMS, round * PLANS + (uint64_t)i, wh_comm_rank(g));
            pause_at_random(round * 1000 + (uint64_t)i * 10 + rank);
            WH_TRY(wh_comm_start(plan[i]));
        }
        for (int k = 0; k < PLANS; k++) {
            int i = (k * 7 + (int)rank) % PLANS; /* each rank in another order */
            size_t count = i % 5 ? ELEMS - (size_t)i : 7;
            WH_TRY(finish(plan[i], round + (uint64_t)i));
            for (size_t e = 0; e < ELEMS; e += e < count ? 97 : 1) {
                uint64_t seed = round * PLANS + (uint64_t)i;
                struct wh_comm *g = comm[i % 3 == 0 ? 2 : i % 2];
                float want = e < count ? test_reduced(WH_F32, WH_SUM, seed, e, wh_comm_size(g)).f32
                                       : test_input(WH_F32, seed, wh_comm_rank(g), e).f32;
                RANK_CHECK(memcmp(&x[i][e], &want, 4) == 0, "plan %d element %zu", i, e);
            }
        }
    }
    for (int i = 0; i < PLANS; i++) wh_comm_plan_free(plan[i]);
    return WH_OK;
}

static void in_flight(void **state) {
    (void)state;
    run(&(struct test_ranks){.config = {.ranks = RANKS, .arena_bytes = PLANS * ELEMS * 4, .deadline_ns = 20000000000},
                             .body = many_in_flight});
}

/* More operations of one group than its window and its flags hold, started by all ranks before any waits; some of them
 * publish and look away for a while, as the others go on. */
static enum wh_status one_group(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t all[] = {0, 1, 2};
    struct wh_comm *comm;
    struct wh_comm_plan *plan[PLANS];
    int32_t *x[PLANS];
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "all", all, 3, &comm));
    for (int i = 0; i < PLANS; i++) {
        void *p;
        WH_TRY(wh_comm_buffer(job, FEW_ELEMS * sizeof(int32_t), &p));
        x[i] = p;
        struct wh_comm_call c = {.op = WH_ALL_REDUCE, .in = p, .out = p, .dtype = WH_I32};
        c.count = i % 2 ? 1 : FEW_ELEMS;
        WH_TRY(wh_comm_plan_make(comm, &c, &plan[i]));
    }
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < PLANS; i++) {
            for (int e = 0; e < FEW_ELEMS; e++) x[i][e] = (int32_t)rank + i + e + round;
            WH_TRY(wh_comm_start(plan[i]));
            if (i == 7 && round % 3 == (int)rank) usleep(300);
        }
        for (int i = PLANS - 1; i >= 0; i--) {
            WH_TRY(wh_comm_wait(plan[i]));
            for (int e = 0; e < (i % 2 ? 1 : FEW_ELEMS); e++)
                RANK_CHECK(x[i][e] == 3 + 3 * (i + e + round), "plan %d element %d", i, e);
        }
    }
    for (int i = 0; i < PLANS; i++) wh_comm_plan_free(plan[i]);
    return WH_OK;
}

static void more_than_the_window(void **state) {
    (void)state;
    run(&(struct test_ranks){.config = {.ranks = 3, .arena_bytes = PLANS * FEW_ELEMS * 4, .deadline_ns = 20000000000},
                             .body = one_group});
}

/* The same gradients in 1, 3, 17 buckets. */
static enum wh_status buckets_of(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t all[] = {0, 1, 2, 3, 4};
    static const size_t cuts[] = {1, 3, 17};
    struct wh_comm *comm;
    void *p, *first = malloc(ELEMS * 4);
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "dp", all, 5, &comm));
    WH_TRY(wh_comm_buffer(job, ELEMS * sizeof(float), &p));
    for (size_t k = 0; k < 3; k++) {
        fill(p, 0, ELEMS, 77, rank);
        for (size_t b = 0; b < cuts[k]; b++) {
            float *x = (float *)p + ELEMS * b / cuts[k];
            size_t count = ELEMS * (b + 1) / cuts[k] - ELEMS * b / cuts[k];
            WH_TRY(wh_comm_run(
                comm, &(struct wh_comm_call){.op = WH_ALL_REDUCE, .in = x, .out = x, .count = count, .dtype = WH_F32}));
        }
        if (k == 0) memcpy(first, p, ELEMS * 4);
        RANK_CHECK(memcmp(first, p, ELEMS * 4) == 0, "%zu buckets", cuts[k]);
    }
    free(first);
    return WH_OK;
}

static void buckets(void **state) {
    (void)state;
    run(&(struct test_ranks){.config = {.ranks = 5, .arena_bytes = ELEMS * 4}, .body = buckets_of});
}

/* All to all by messages, sizes around a cell, several under way on each pair, barriers in between. */
static enum wh_status messages_of(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t all[] = {0, 1, 2, 3};
    static const size_t sizes[] = {0, 1, 4095, 4096, 65536, 65537, 700001};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    struct wh_comm *comm;
    struct wh_comm_plan *plan[2][RANKS][SIZES];
    unsigned char *data[2][RANKS][SIZES];
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "pp", all, RANKS, &comm));
    for (int direction = 0; direction < 2; direction++)
        for (uint32_t peer = 0; peer < RANKS; peer++)
            for (int k = 0; k < SIZES; k++) {
                struct wh_comm_call c = {
                    .op = direction ? WH_RECV : WH_SEND, .count = sizes[k], .dtype = WH_U8, .root = peer};
                data[direction][peer][k] = malloc(sizes[k] + 1);
                c.in = data[0][peer][k], c.out = data[1][peer][k];
                if (peer != rank) WH_TRY(wh_comm_plan_make(comm, &c, &plan[direction][peer][k]));
                for (size_t i = 0; i < sizes[k] && !direction; i++)
                    data[0][peer][k][i] = (unsigned char)test_hash(i * 64 + rank * 8 + peer);
            }
    for (int round = 0; round < 3; round++) {
        for (uint32_t peer = 0; peer < RANKS; peer++)
            for (int k = 0; k < SIZES; k++) {
                if (peer != rank) WH_TRY(wh_comm_start(plan[0][peer][k]));
                pause_at_random((uint64_t)round * 100 + rank * 10 + peer);
                if (peer != rank) WH_TRY(wh_comm_start(plan[1][peer][k]));
            }
        WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
        for (uint32_t peer = 0; peer < RANKS; peer++)
            for (int k = SIZES - 1; k >= 0 && peer != rank; k--) {
                WH_TRY(wh_comm_wait(plan[1][peer][k]));
                WH_TRY(wh_comm_wait(plan[0][peer][k]));
                for (size_t i = 0; i < sizes[k]; i++)
                    RANK_CHECK(data[1][peer][k][i] == (unsigned char)test_hash(i * 64 + peer * 8 + rank), "byte %zu",
                               i);
            }
    }
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    struct wh_comm_call wrong = {.op = rank ? WH_RECV : WH_SEND,
                                 .in = data[0][1][3],
                                 .out = data[0][1][3],
                                 .count = rank ? 9 : 10,
                                 .dtype = WH_U8,
                                 .root = !rank};
    if (rank > 1) return WH_OK;
    WH_TRY(wh_comm_open(job, 1, "odd", all, 2, &comm));
    enum wh_status status = wh_comm_run(comm, &wrong);
    RANK_CHECK(rank == 0 || (status == WH_PEER && strstr(wh_error()->message, "has 10 bytes")), "%s",
               wh_error()->message);
    return WH_OK;
}

static void messages(void **state) {
    (void)state;
    run(&(struct test_ranks){.config = {.ranks = RANKS, .deadline_ns = 20000000000}, .body = messages_of});
}

/* Bytes in the ledger are those that the direct algorithm's lists send. */
static enum wh_status ledger_of(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t all[] = {0, 1, 2};
    struct wh_comm *comm;
    void *in = calloc(1000, 4), *out = calloc(1000, 4);
    uint32_t rows;
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "dp", all, 3, &comm));
    for (int op = 0; op < WH_BARRIER; op++) {
        struct wh_comm_call c = {.op = (enum wh_comm_op)op,
                                 .in = op == WH_BROADCAST ? NULL : in,
                                 .out = out,
                                 .count = 999,
                                 .dtype = WH_F32,
                                 .root = 1};
        struct wh_coll_request q = {.op = (enum wh_coll_op)op, .ranks = 3, .root = 1, .count = 999, .dtype = WH_F32};
        struct wh_coll_list list;
        uint64_t bytes = 0;
        for (int i = 0; i < 2; i++) WH_TRY(wh_comm_run(comm, &c));
        WH_TRY(wh_coll_list_new(&q, wh_coll_algorithm("direct"), rank, &list));
        for (size_t i = 0; i < list.step_count; i++)
            if (list.steps[i].kind == WH_COLL_SEND) bytes += 2 * list.steps[i].count * 4;
        wh_coll_list_free(&list);
        const struct wh_comm_row *r = &wh_comm_rows(job, &rows)[rows - 1];
        RANK_CHECK(strcmp(r->name, wh_comm_op_name(c.op)) == 0 && r->calls == 2 && r->exposed_ns <= r->ns && r->ns > 0,
                   "%s", r->name);
        RANK_CHECK(r->sent_bytes == bytes, "%s: %zu, the list has %zu", r->name, (size_t)r->sent_bytes, (size_t)bytes);
    }
    static const size_t border[] = {0, 10, 10, 999};
    struct wh_comm_call c = {.op = WH_REDUCE_SCATTER, .count = 999, .dtype = WH_F32, .border = border};
    uint64_t own = border[rank + 1] - border[rank];
    RANK_CHECK(wh_comm_call_bytes(&c, rank, 3) == (999 - own) * 4, "reduce_scatter with borders");
    c.op = WH_ALL_GATHER;
    RANK_CHECK(wh_comm_call_bytes(&c, rank, 3) == 2 * own * 4, "all_gather with borders");
    free(in), free(out);
    return WH_OK;
}

static void ledger(void **state) {
    (void)state;
    run(&(struct test_ranks){.config = {.ranks = 3}, .body = ledger_of});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_flight), cmocka_unit_test(more_than_the_window),
        cmocka_unit_test(buckets),   cmocka_unit_test(messages),
        cmocka_unit_test(ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
