/* A rank that sleeps is woken by the news that it waits for. In the program a missed wake-up costs 10 ms, after which the
 * rank looks around anyway, and nobody would notice. Here (the makefile links this test so that both functions below come in
 * between) sleeps last until they are ended, and the clock runs so fast that every wait is soon a sleep. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "os/clock.h"
#include "os/shm.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { RANKS_MOST = 4, ROUNDS = 1000, LARGE_ELEMS = 20000, MOST_ELEMS = 140000 }; /* the last: more than a ring holds */
static const uint64_t step_ns = 1100000, endless_ns = 5000000000;

static uint32_t sleeps, missed;
static _Atomic uint32_t *asleep; /* counts this rank when it next goes to sleep */

uint64_t __real_wh_clock_ns(void);
uint64_t __wrap_wh_clock_ns(void);
void __real_wh_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void __wrap_wh_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);

uint64_t __wrap_wh_clock_ns(void) {
    static uint64_t ahead_ns;
    ahead_ns += step_ns;
    return __real_wh_clock_ns() + ahead_ns;
}

void __wrap_wh_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns) {
    uint64_t begin = __real_wh_clock_ns();
    (void)timeout_ns;
    if (asleep) {
        ++*asleep;
        asleep = NULL;
    }
    __real_wh_futex_wait(word, expected, endless_ns);
    sleeps++;
    missed += __real_wh_clock_ns() - begin >= endless_ns;
}

static enum wh_status check_sleeps(uint32_t at_least) {
    RANK_CHECK(missed == 0, "%u of %u sleeps were not ended", missed, sleeps);
    RANK_CHECK(sleeps >= at_least, "only %u sleeps", sleeps);
    return WH_OK;
}

static void run(struct test_ranks *t, uint32_t expect_bad) {
    t->config.deadline_ns = UINT64_MAX;
    t->limit_s = 300; /* by the fast clock */
    uint32_t bad = test_ranks_run(t);
    if (bad != expect_bad) test_ranks_print(t);
    test_ranks_free(t);
    assert_int_equal(bad, expect_bad);
}

/* ---- operations and messages, ranks that come at random times ---- */

struct memory {
    void *in, *out, *private_in, *private_out;
};

static enum wh_status take_memory(struct wh_comm_job *job, struct memory *m) {
    m->private_in = calloc(MOST_ELEMS, sizeof(float)), m->private_out = calloc(MOST_ELEMS, sizeof(float));
    WH_TRY(wh_comm_buffer(job, MOST_ELEMS * sizeof(float), &m->in));
    return wh_comm_buffer(job, MOST_ELEMS * sizeof(float), &m->out);
}

static void come_late(uint64_t chance) {
    if (chance % 4 == 0) usleep((unsigned)(chance / 4 % 60));
    for (volatile uint64_t i = chance / 16 % 4000; i > 0; i--) continue;
}

/* From every rank to the next one. */
static enum wh_status pass_on(struct wh_comm *comm, const void *in, void *out, size_t count) {
    uint32_t rank = wh_comm_rank(comm), n = wh_comm_size(comm);
    struct wh_comm_call send = {.op = WH_SEND, .in = in, .count = count, .root = (rank + 1) % n};
    struct wh_comm_call recv = {.op = WH_RECV, .out = out, .count = count, .root = (rank + n - 1) % n};
    if (rank == 0) WH_TRY(wh_comm_run(comm, &send));
    WH_TRY(wh_comm_run(comm, &recv));
    return rank == 0 ? WH_OK : wh_comm_run(comm, &send);
}

static enum wh_status run_at_random(struct wh_comm *comm, const struct memory *m, uint64_t chance) {
    struct wh_comm_call c = {.op = (enum wh_comm_op)(chance / 8 % WH_BARRIER), .in = m->in, .out = m->out, .count = 4};
    if (c.op == WH_BROADCAST) c.in = NULL;
    switch (chance % 8) {
    case 0:
        return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER});
    case 1:
    case 2:
        c.count = wh_comm_size(comm);
        break;
    case 3:
    case 4:
        c.count = LARGE_ELEMS / wh_comm_size(comm) * wh_comm_size(comm);
        break;
    case 5:
        c.op = WH_REDUCE_SCATTER, c.in = m->private_in, c.out = m->private_out, c.count = MOST_ELEMS;
        break;
    case 6:
        return pass_on(comm, m->in, m->out, chance / 8 % 2 ? 1 : MOST_ELEMS);
    default:
        return pass_on(comm, m->private_in, m->private_out, MOST_ELEMS);
    }
    return wh_comm_run(comm, &c);
}

static enum wh_status many_operations(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t members[RANKS_MOST] = {0, 1, 2, 3};
    struct wh_comm *comm;
    struct memory m;
    WH_TRY(wh_comm_open(job, 0, "all", members, t->config.ranks, &comm));
    WH_TRY(take_memory(job, &m));
    for (uint64_t i = 0; i < ROUNDS && missed == 0; i++) {
        come_late(test_hash(i * RANKS_MOST + rank));
        WH_TRY(run_at_random(comm, &m, test_hash(i + 1000000)));
    }
    free(m.private_in), free(m.private_out);
    return check_sleeps(ROUNDS / 50);
}

static void operations(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= RANKS_MOST; n++)
        run(&(struct test_ranks){.config = {.ranks = n, .arena_bytes = 2 << 20}, .body = many_operations}, 0);
}

/* ---- failures: the others are asleep when rank 1 gives up, calls something else, expects another message, or dies; it
 * doesn't end before they have come back, for its end would wake them, too ---- */

enum way { GIVES_UP, CALLS_ANOTHER, EXPECTS_ANOTHER, DIES, WAYS };

static enum wh_status one_fails(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t members[RANKS_MOST] = {0, 1, 2, 3};
    const enum way way = *(const enum way *)t->context;
    _Atomic uint32_t *back = t->shared, *others = back + 1;
    struct wh_comm *comm;
    float number = 0;
    WH_TRY(wh_comm_open(job, 0, "all", members, t->config.ranks, &comm));
    struct wh_comm_call c = {.op = WH_BARRIER};
    if (way == EXPECTS_ANOTHER && rank == 0)
        WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_SEND, .in = &number, .count = 1, .root = 1}));
    if (rank != 1) asleep = others;
    if (rank == 1) {
        while (*others < t->config.ranks - 1) usleep(100);
        usleep(5000); /* from there into the kernel */
        if (way == GIVES_UP) wh_comm_job_abort(job, WH_DATA, "a shard is damaged");
        if (way == CALLS_ANOTHER) c.row = "another row";
        if (way == EXPECTS_ANOTHER) c = (struct wh_comm_call){.op = WH_RECV, .out = &number, .count = 0};
        if (way == DIES) raise(SIGKILL);
    }
    enum wh_status status = wh_comm_run(comm, &c);
    RANK_CHECK(status == (way == GIVES_UP ? WH_DATA : WH_PEER), "status %d: %s", status, wh_error()->message);
    if (rank != 1) ++*back;
    while (*back < t->config.ranks - 1) usleep(100);
    return check_sleeps(rank != 1);
}

static void failures(void **state) {
    (void)state;
    for (enum way way = GIVES_UP; way < WAYS; way++)
        run(&(struct test_ranks){.config = {.ranks = 3}, .body = one_fails, .context = &way}, way == DIES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations), cmocka_unit_test(failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
