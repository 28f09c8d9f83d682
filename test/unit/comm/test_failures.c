/* Ranks that die, stop or call something else: every other rank returns a named error soon, and nothing is left behind.
 * WH_TEST_LONG=1 takes all combinations of way, phase, victim and operation instead of a part. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "os/clock.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { RANKS = 3, ELEMS = 60000 };

static bool long_version(void) { return getenv("WH_TEST_LONG") != NULL; }

/* From the death to the last survivor's return; for one that is stopped: its deadline is half a second. */
static const uint64_t limit_ns = 100000000, limit_stopped_ns = 5000000000;

/* What took too long is repeated, for a loaded machine may not run a process for that long. */
enum { ATTEMPTS = 20, FEW_ATTEMPTS = 3 };

enum way { KILL, ABORT, SEGV, EXIT_3, EXIT_0, STOP, WAYS };
enum phase { BEFORE_START, AFTER_START, OTHERS_ASLEEP, ANYWHERE, PHASES };
enum where { IN_ARENA, ELSEWHERE };

struct death {
    enum way way;
    enum phase phase;
    uint32_t victim;
    enum wh_comm_op op;
    enum where where;
    size_t count;
};

/* What all ranks see. */
struct times {
    _Atomic uint64_t death_ns, back_ns[RANKS]; /* 0: not yet */
};

static enum way alarm_way;
static struct times *alarm_times;

static void die(enum way way, struct times *times) {
    static const int number[] = {SIGKILL, SIGABRT, SIGSEGV, 0, 0, SIGSTOP};
    static const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL), signal(SIGSEGV, SIG_DFL);
    times->death_ns = wh_clock_ns();
    if (way == EXIT_3) _exit(3);
    if (way == EXIT_0) _exit(0);
    raise(number[way]);
}

static void on_alarm(int number) {
    (void)number;
    die(alarm_way, alarm_times);
}

static enum wh_status open_all(struct wh_comm_job *job, uint32_t id, struct wh_comm **comm) {
    static const uint32_t members[] = {0, 1, 2, 3, 4, 5, 6, 7};
    return wh_comm_open(job, id, "all", members, wh_comm_job_ranks(job), comm);
}

static enum wh_status buffer(struct wh_comm_job *job, enum where where, void **out) {
    if (where == IN_ARENA) return wh_comm_buffer(job, ELEMS * sizeof(float), out);
    *out = calloc(ELEMS, sizeof(float));
    return WH_OK;
}

static void die_in_a_moment(enum way way, struct times *times) {
    struct itimerval in_a_moment = {.it_value = {.tv_usec = 200 + (int)(wh_clock_ns() / 1000 % 3000)}};
    alarm_way = way, alarm_times = times;
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &in_a_moment, NULL);
}

static enum wh_status run_until_death(struct wh_comm_plan *plan, const struct death *d, bool victim, void *times) {
    if (victim && d->phase == ANYWHERE) die_in_a_moment(d->way, times);
    for (int i = 0;; i++) {
        bool now = victim && i == 5;
        if (now && d->phase == OTHERS_ASLEEP) usleep(25000);
        if (now && (d->phase == BEFORE_START || d->phase == OTHERS_ASLEEP)) die(d->way, times);
        WH_TRY(wh_comm_start(plan));
        if (now && d->phase == AFTER_START) die(d->way, times);
        WH_TRY(wh_comm_wait(plan));
    }
}

static enum wh_status rank_of_death(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct death *d = t->context;
    struct times *times = t->shared;
    struct wh_comm *comm;
    struct wh_comm_plan *plan;
    void *in, *out;
    WH_TRY(open_all(job, 0, &comm));
    WH_TRY(buffer(job, d->where, &in));
    WH_TRY(buffer(job, d->where, &out));
    struct wh_comm_call c = {.op = d->op, .in = in, .out = out, .count = d->count, .dtype = WH_F32, .row = "test.row"};
    if (d->op == WH_BROADCAST) c.in = NULL;
    WH_TRY(wh_comm_plan_make(comm, &c, &plan));
    enum wh_status status = run_until_death(plan, d, rank == d->victim, times);
    times->back_ns[rank] = wh_clock_ns();
    return status;
}

/* The error of a survivor names the victim, its end and the operation. */
static bool is_told(const struct test_rank_end *e, const struct death *d) {
    static const char *const sign[WAYS] = {"signal 9", "signal 6", "signal 11", "exit code 3", "ended", "is stopped"};
    char name[16];
    snprintf(name, sizeof name, "rank %u", d->victim);
    bool operation = strstr(e->message, wh_comm_op_name(d->op)) && strstr(e->message, "sequence") &&
                     (!e->frame[0] || strstr(e->frame, "test.row"));
    if (d->phase == ANYWHERE && strstr(e->message, "before its first operation")) operation = true; /* an early alarm */
    return e->status == WH_PEER && !e->killed_at_limit && strstr(e->message, name) &&
           strstr(e->message, sign[d->way]) && operation;
}

/* Whether all survivors came back in time. */
static bool run_death(const struct death *d) {
    struct test_ranks t = {.config = {.ranks = RANKS, .arena_bytes = 1 << 20}, .body = rank_of_death, .context = d};
    t.config.deadline_ns = d->way == STOP ? 500000000 : 20000000000;
    t.stopped = d->way == STOP ? 1u << d->victim : 0;
    t.limit_s = 20;
    test_ranks_run(&t);
    const struct times *times = t.shared;
    uint64_t limit = times->death_ns + (d->way == STOP ? limit_stopped_ns : limit_ns);
    bool soon = times->death_ns != 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (r == d->victim) continue;
        soon = soon && times->back_ns[r] <= limit;
        if (is_told(&t.end[r], d)) continue;
        test_ranks_print(&t);
        fail_msg("way %d phase %d victim %u op %s count %zu place %d", d->way, d->phase, d->victim,
                 wh_comm_op_name(d->op), d->count, d->where);
    }
    test_ranks_free(&t);
    return soon;
}

static void expect_death(const struct death *d) {
    for (int i = 0; i < ATTEMPTS; i++)
        if (run_death(d)) return;
    fail_msg("way %d phase %d victim %u op %s: survivors too late, %d times", d->way, d->phase, d->victim,
             wh_comm_op_name(d->op), ATTEMPTS);
}

static void deaths(void **state) {
    (void)state;
    static const size_t counts[] = {6, ELEMS};
    uint32_t i = 0;
    for (enum way way = KILL; way < WAYS; way++)
        for (enum phase phase = BEFORE_START; phase < PHASES; phase++)
            for (uint32_t victim = 0; victim < RANKS; victim++)
                for (int op = 0; op <= WH_BARRIER; op++)
                    for (int where = 0; where < 4; where++, i++) {
                        struct death d = {way,
                                          phase,
                                          victim,
                                          (enum wh_comm_op)op,
                                          where & 1 ? ELSEWHERE : IN_ARENA,
                                          counts[where / 2]};
                        if (!long_version() && i % 71) continue;
                        expect_death(&d);
                    }
}

/* The launcher dies: its ranks end themselves. They hold the write end of a pipe, which closes with the last of them. */
static enum wh_status wait_for_ever(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    (void)t;
    WH_TRY(open_all(job, 0, &comm));
    if (rank == 1) sleep(2); /* its sleep is cut short by nothing: it finds out afterwards */
    return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER});
}

static void on_launcher_alarm(int number) {
    (void)number;
    kill(getpid(), SIGKILL);
}

static void launcher_dies(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        struct test_ranks t = {.config = {.ranks = 2}, .body = wait_for_ever};
        close(ends[0]);
        signal(SIGALRM, on_launcher_alarm);
        ualarm(300000, 0);
        test_ranks_run(&t);
        _exit(1);
    }
    close(ends[1]);
    char byte;
    uint64_t begin = wh_clock_ns();
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_true(wh_clock_ns() - begin < 10000000000u);
    close(ends[0]);
    waitpid(launcher, NULL, 0);
}

/* ---- calls that differ ---- */

struct mismatch {
    const char *what, *expect;
};

static const struct mismatch mismatches[] = {
    {"op", "reduce_scatter of 3000 F32"},
    {"count", "all_reduce of 2997 F32"},
    {"type", "all_reduce of 3000 I32"},
    {"operator", "all_reduce max of 3000 F32"},
    {"root", "root 1"},
    {"order", "the buffers lie at different places"},
    {"row", "(other.row)"},
    {"place", "outside its arena"},
    {"in place", "in place"},
    {"members", "different members"},
    {"small", "all_reduce of 3 F32"},
    {"barrier", "barrier"},
    {"borders", "they cut it at different borders"},
    {"no borders", "they cut it at different borders"},
    {"sum order", "they join different contributions"},
    {"sum inputs", "they join different contributions"},
    {"sum stride", "they join different contributions"},
    {"no sum", "they join different contributions"},
};

static enum wh_status rank_of_mismatch(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const char *what = t->context;
    static const uint32_t members[] = {0, 1, 2};
    struct wh_comm *comm, *other;
    void *in, *out;
    bool odd = rank == 1;
    WH_TRY(wh_comm_open(job, 0, "odd", members, odd && strcmp(what, "members") == 0 ? 2 : 3, &comm));
    WH_TRY(open_all(job, 1, &other));
    WH_TRY(buffer(job, IN_ARENA, &in));
    WH_TRY(buffer(job, IN_ARENA, &out));
    struct wh_comm_call c = {.op = WH_ALL_REDUCE, .in = in, .out = out, .count = 3000, .dtype = WH_F32, .row = "row"};
    static const size_t border[] = {0, 900, 2000, 3000}, moved[] = {0, 900, 2001, 3000};
    if (strcmp(what, "root") == 0) c.op = WH_BROADCAST, c.in = NULL;
    if (strstr(what, "borders")) c.op = WH_ALL_GATHER, c.border = border;
    static const uint8_t inputs[] = {1, 2, 1}, other_inputs[] = {2, 1, 1}, merges[] = {0, 1, 0, 2},
                         other_merges[] = {0, 0, 2, 1};
    const struct wh_comm_sum sum = {inputs, merges, 3000}, odd_sum = {strstr(what, "inputs") ? other_inputs : inputs,
                                                                      strstr(what, "order") ? other_merges : merges,
                                                                      strstr(what, "stride") ? 3001 : 3000};
    if (strstr(what, "sum")) c.sum = odd ? &odd_sum : &sum;
    if (odd) {
        if (strcmp(what, "no sum") == 0) c.sum = NULL;
        if (strcmp(what, "borders") == 0) c.border = moved;
        if (strcmp(what, "no borders") == 0) c.border = NULL;
        if (strcmp(what, "op") == 0) c.op = WH_REDUCE_SCATTER;
        if (strcmp(what, "count") == 0) c.count = 2997;
        if (strcmp(what, "type") == 0) c.dtype = WH_I32;
        if (strcmp(what, "operator") == 0) c.redop = WH_MAX;
        if (strcmp(what, "root") == 0) c.root = 1;
        if (strcmp(what, "order") == 0) c.in = out, c.out = in;
        if (strcmp(what, "row") == 0) c.row = "other.row";
        if (strcmp(what, "place") == 0) c.in = calloc(3000, 4);
        if (strcmp(what, "in place") == 0) c.in = c.out;
        if (strcmp(what, "small") == 0) c.count = 3;
        if (strcmp(what, "barrier") == 0) c.op = WH_BARRIER;
    }
    enum wh_status status = wh_comm_run(comm, &c);
    char message[WH_ERROR_MESSAGE_BYTES];
    RANK_CHECK(status == WH_PEER, "%s: status %d", what, status);
    snprintf(message, sizeof message, "%s", wh_error()->message);
    uint64_t begin = wh_clock_ns();
    status = wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}); /* poisoned: the same cause at once */
    RANK_CHECK(status == WH_PEER && strcmp(message, wh_error()->message) == 0, "then: %s", wh_error()->message);
    RANK_CHECK(wh_clock_ns() - begin < 1000000000, "at once");
    WH_TRY(wh_comm_run(other, &(struct wh_comm_call){.op = WH_BARRIER})); /* another group is not */
    return WH_FAIL(WH_PEER, "%s", message);
}

static void calls_that_differ(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mismatches / sizeof *mismatches; i++) {
        struct test_ranks t = {.config = {.ranks = RANKS, .arena_bytes = 1 << 20, .deadline_ns = 10000000000},
                               .body = rank_of_mismatch};
        t.context = mismatches[i].what;
        test_ranks_run(&t);
        for (uint32_t r = 0; r < RANKS; r++) {
            const char *m = t.end[r].message;
            if (t.end[r].status == WH_PEER && strstr(m, "call different things") && strstr(m, mismatches[i].expect) &&
                strstr(m, "rank 1"))
                continue;
            test_ranks_print(&t);
            fail_msg("%s: no '%s'", mismatches[i].what, mismatches[i].expect);
        }
        test_ranks_free(&t);
    }
}

/* One rank calls nothing: the others name it, what it did last, and what it does. */
static enum wh_status rank_that_misses(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    bool busy = t->context != NULL;
    WH_TRY(open_all(job, 0, &comm));
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER, .row = "first"}));
    const uint64_t away_ns = 1800000000, begin = wh_clock_ns();
    for (uint64_t now = begin; rank == 2 && now - begin < away_ns; now = wh_clock_ns())
        if (!busy) usleep((useconds_t)((away_ns - (now - begin)) / 1000 + 1)); /* in one: a waking process looks busy */
    return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER, .row = "second"});
}

static bool is_missing(const struct test_rank_end *e, bool busy) {
    const char *m = e->message;
    return e->status == WH_PEER && strstr(m, "(second), sequence 2") && strstr(m, "(first), sequence 1") &&
           strstr(m, busy ? "rank 2 is busy" : "rank 2 sleeps") && !strstr(m, "rank 1 is") && !strstr(m, "; rank 0");
}

static bool run_missing(bool busy, bool last_attempt) {
    struct test_ranks t = {.config = {.ranks = RANKS, .deadline_ns = 800000000}, .body = rank_that_misses};
    bool ok = true;
    t.context = busy ? &t : NULL;
    test_ranks_run(&t);
    for (uint32_t r = 0; r < RANKS; r++) ok = ok && is_missing(&t.end[r], busy);
    if (!ok && last_attempt) test_ranks_print(&t);
    test_ranks_free(&t);
    return ok;
}

static void missing_rank(void **state) {
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        bool ok = false;
        for (int left = FEW_ATTEMPTS; left > 0 && !ok; left--) ok = run_missing(busy, left == 1);
        assert_true(ok);
    }
}

/* ---- waiting costs little ---- */

static enum wh_status rank_that_waits(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    struct rusage before, after;
    (void)t;
    WH_TRY(open_all(job, 0, &comm));
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    if (rank == 0) usleep(1100000);
    getrusage(RUSAGE_SELF, &before);
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    getrusage(RUSAGE_SELF, &after);
    double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                  1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    used += (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
            1e-6 * (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    RANK_CHECK(used < 0.05, "%.4f s of processor time in 1.1 s of waiting", used);
    return WH_OK;
}

static void idle_ranks(void **state) {
    (void)state;
    struct test_ranks t = {.config = {.ranks = 8}, .body = rank_that_waits};
    assert_int_equal(test_ranks_bad(&t), 0);
}

/* ---- what is refused ---- */

static enum wh_status rank_of_wrong_calls(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t two[] = {0, 1}, twisted[] = {1, 0}, others[] = {1};
    struct wh_comm *comm;
    float x[8];
    void *p;
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "two", two, 2, &comm));
    RANK_CHECK(wh_comm_open(job, 0, "two", two, 2, &comm) == WH_CONFIG && strstr(wh_error()->message, "opened before"),
               "id");
    RANK_CHECK(wh_comm_open(job, 1, "twisted", twisted, 2, &comm) == WH_CONFIG, "order");
    if (rank == 0) RANK_CHECK(wh_comm_open(job, 1, "others", others, 1, &comm) == WH_CONFIG, "not a member");
    RANK_CHECK(wh_comm_open(job, 99, "far", two, 2, &comm) == WH_CONFIG, "id");
    void *room;
    WH_TRY(wh_comm_buffer(job, 64, &room));
    float *const arena = room;
    static const size_t late[] = {1, 2, 4}, falling[] = {0, 5, 4}, short_of[] = {0, 2, 3}, good[] = {0, 2, 4};
    const struct wh_comm_call wrong[] = {
        {.op = WH_COMM_OP_COUNT},
        {.op = WH_ALL_REDUCE, .in = x, .out = x, .count = 4, .dtype = WH_U8},
        {.op = WH_ALL_REDUCE, .in = x, .out = x + 1, .count = 4},
        {.op = WH_ALL_REDUCE, .in = x, .out = NULL, .count = 4},
        {.op = WH_ALL_REDUCE, .in = x, .out = (char *)x + 2, .count = 1},
        {.op = WH_BROADCAST, .out = x, .count = 4, .root = 2},
        {.op = WH_ALL_TO_ALL, .in = x, .out = x + 4, .count = 3},
        {.op = WH_SEND, .in = x, .count = 3, .root = wh_comm_rank(comm)},
        {.op = WH_REDUCE_SCATTER, .in = x, .out = x + 4, .count = 4, .border = late},
        {.op = WH_REDUCE_SCATTER, .in = x, .out = x + 4, .count = 4, .border = falling},
        {.op = WH_ALL_GATHER, .in = x, .out = x + 4, .count = 4, .border = short_of},
        {.op = WH_ALL_REDUCE, .in = x, .out = x + 4, .count = 4, .border = good},
        {.op = WH_ALL_REDUCE, .in = x, .out = x, .count = 4, .blocks = 2},
        {.op = WH_ALL_GATHER, .in = x + rank, .out = x, .count = 4, .blocks = 2}, /* not in the arena */
        {.op = WH_ALL_GATHER, .in = arena + rank, .out = arena, .count = 5, .blocks = 2},
        {.op = WH_ALL_GATHER, .in = arena + rank, .out = arena, .count = 4, .blocks = 2, .border = good},
        {.op = WH_ALL_GATHER, .in = arena + 4, .out = arena, .count = 4, .blocks = 2}, /* not in place */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        RANK_CHECK(wh_comm_run(comm, &wrong[i]) == WH_CONFIG, "wrong call %zu", i);
    RANK_CHECK(wh_comm_buffer(job, 5000, &p) == WH_NOMEM && strstr(wh_error()->message, "4096"), "arena");
    return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER});
}

static void wrong_calls(void **state) {
    (void)state;
    struct test_ranks t = {.config = {.ranks = 2, .arena_bytes = 4096}, .body = rank_of_wrong_calls};
    assert_int_equal(test_ranks_bad(&t), 0);
    struct wh_comm_job *job;
    assert_int_equal(wh_comm_job_create(&(struct wh_comm_job_config){.ranks = 0, .kernels = "sse9"}, &job), WH_CONFIG);
    assert_non_null(strstr(wh_error()->message, "sse9"));
    assert_int_equal(wh_comm_job_create(&(struct wh_comm_job_config){.ranks = 4, .arena_bytes = (size_t)1 << 42}, &job),
                     WH_NOMEM);
    assert_non_null(strstr(wh_error()->message, "are free"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deaths),       cmocka_unit_test(launcher_dies), cmocka_unit_test(calls_that_differ),
        cmocka_unit_test(missing_rank), cmocka_unit_test(idle_ranks),    cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
