/* SEND and RECV between stages of a pipeline: any size, memory and timing, both directions and several groups at once, byte
 * for byte; what a sender need not do; what the other side is told when one fails. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "os/clock.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { RANKS_MOST = 8, MOST_BYTES = 8 << 20 };
static const uint32_t everybody[RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
static const uint64_t deadline_ns = 20000000000, limit_ns = 20000000000;

static void run(struct test_ranks *t) {
    t->config.deadline_ns = deadline_ns;
    uint32_t bad = test_ranks_run(t);
    if (bad) test_ranks_print(t);
    test_ranks_free(t);
    assert_int_equal(bad, 0);
}

static void fill(void *out, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_hash(seed * 0x9E3779B97F4A7C15u + i);
        memcpy((char *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static bool holds(const void *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_hash(seed * 0x9E3779B97F4A7C15u + i);
        if (memcmp((const char *)data + i, &word, bytes - i < 8 ? bytes - i : 8) != 0) return false;
    }
    return true;
}

/* 0 to `most` bytes, all magnitudes alike. */
static size_t size_by(uint64_t seed, size_t most) {
    uint64_t h = test_hash(seed);
    size_t below = (size_t)1 << h % 24;
    size_t bytes = h % 31 == 0 ? 0 : below + (h >> 8) % below;
    return h % 29 == 0 || bytes > most ? most - (h >> 8) % 100 : bytes;
}

static void delay(uint64_t seed, unsigned most_us) {
    uint64_t h = test_hash(seed + 77);
    if (h % 2) usleep((unsigned)(h / 2 % most_us));
}

static enum wh_status take(struct wh_comm_job *job, bool shared, size_t bytes, void **out) {
    if (shared) return wh_comm_buffer(job, bytes, out);
    *out = calloc(1, bytes);
    return WH_OK;
}

static struct wh_comm_call sending(uint32_t to, const void *in, size_t bytes) {
    return (struct wh_comm_call){.op = WH_SEND, .in = in, .count = bytes, .dtype = WH_U8, .root = to};
}

static struct wh_comm_call receiving(uint32_t from, void *out, size_t bytes) {
    return (struct wh_comm_call){.op = WH_RECV, .out = out, .count = bytes, .dtype = WH_U8, .root = from};
}

static enum wh_status start_new(struct wh_comm *comm, struct wh_comm_call call, struct wh_comm_plan **out) {
    WH_TRY(wh_comm_plan_make(comm, &call, out));
    return wh_comm_start(*out);
}

static enum wh_status finish(struct wh_comm_plan *plan) {
    enum wh_status status = wh_comm_wait(plan);
    wh_comm_plan_free(plan);
    return status;
}

/* Some finish by testing. */
static enum wh_status wait_or_test(struct wh_comm_plan *plan, uint64_t seed) {
    bool done = false;
    for (uint64_t i = 0; i < test_hash(seed) % 50 && !done; i++) WH_TRY(wh_comm_test(plan, &done));
    return done ? WH_OK : wh_comm_wait(plan);
}

/* ---- a chain: each stage gets a message, looks at it, changes it, sends it on, as many as there are micro-batches ---- */

enum { MICRO_BATCHES = 8 };

static enum wh_status stage_of_chain(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    uint32_t n = t->config.ranks;
    struct wh_comm *comm;
    struct wh_comm_plan *sent[2] = {NULL, NULL};
    void *in, *out[2];
    WH_TRY(wh_comm_open(job, 3, "pp", everybody, n, &comm));
    WH_TRY(take(job, rank % 3 != 1, MOST_BYTES, &in)); /* ordinary memory in some stages */
    for (int k = 0; k < 2; k++) WH_TRY(take(job, rank % 3 != 2, MOST_BYTES, &out[k]));
    for (uint64_t m = 0; m < MICRO_BATCHES; m++) {
        uint64_t seed = m + 100 * n;
        size_t bytes = size_by(seed, MOST_BYTES);
        struct wh_comm_call from = receiving(rank - 1, in, bytes);
        if (rank > 0) WH_TRY(wh_comm_run(comm, &from));
        RANK_CHECK(rank == 0 || holds(in, bytes, seed * 8 + rank - 1), "micro-batch %d of %zu bytes", (int)m, bytes);
        delay(seed * 8 + rank, 3000);
        if (rank == n - 1) continue;
        if (sent[m % 2]) WH_TRY(finish(sent[m % 2]));
        fill(out[m % 2], bytes, seed * 8 + rank);
        WH_TRY(start_new(comm, sending(rank + 1, out[m % 2], bytes), &sent[m % 2]));
    }
    for (int k = 0; k < 2; k++)
        if (sent[k]) WH_TRY(finish(sent[k]));
    return WH_OK;
}

static void chains(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= RANKS_MOST; n++)
        run(&(struct test_ranks){.config = {.ranks = n, .arena_bytes = 3 * MOST_BYTES + 4096}, .body = stage_of_chain});
}

/* ---- both directions at once, persistent plans, two groups between the same ranks ---- */

enum { ROUNDS = 12, LARGE_BYTES = 2 << 20, WAYS = 4 };

/* What a rank has with one neighbour in one group. */
struct way {
    struct wh_comm_plan *plan[2];
    void *data[2];
    size_t bytes;
};

static uint64_t seed_of(uint64_t round, uint32_t from, uint32_t to, uint32_t group) {
    return ((round * RANKS_MOST + from) * RANKS_MOST + to) * 2 + group;
}

static enum wh_status stage_of_both(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    uint32_t n = t->config.ranks;
    struct wh_comm *comm[2];
    struct way way[WAYS] = {0};
    for (uint32_t g = 0; g < 2; g++) WH_TRY(wh_comm_open(job, g, g ? "backward" : "forward", everybody, n, &comm[g]));
    for (int w = 0; w < WAYS; w++) {
        uint32_t other = (rank + (w % 2 ? 1 : n - 1)) % n, low = rank < other ? rank : other;
        way[w].bytes = size_by(low + (rank + other) * 3 + (uint32_t)w / 2 * 5, LARGE_BYTES);
        for (int d = 0; d < 2; d++) WH_TRY(take(job, (w + d + (int)rank) % 3 != 0, LARGE_BYTES, &way[w].data[d]));
        struct wh_comm_call to = sending(other, way[w].data[0], way[w].bytes);
        struct wh_comm_call from = receiving(other, way[w].data[1], way[w].bytes);
        WH_TRY(wh_comm_plan_make(comm[w / 2], &to, &way[w].plan[0]));
        WH_TRY(wh_comm_plan_make(comm[w / 2], &from, &way[w].plan[1]));
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2 * WAYS; i++) { /* in each group the order of the two neighbours is free */
            int w = i / 2 ^ (int)(test_hash(round + rank) & 3), d = i % 2;
            uint32_t other = (rank + (w % 2 ? 1 : n - 1)) % n;
            if (d == 0) fill(way[w].data[0], way[w].bytes, seed_of(round, rank, other, (uint32_t)w / 2));
            delay(round * 64 + (uint64_t)i * 8 + rank, 400);
            WH_TRY(wh_comm_start(way[w].plan[d]));
        }
        if (round % 4 == 3) WH_TRY(wh_comm_run(comm[round % 2], &(struct wh_comm_call){.op = WH_BARRIER}));
        for (int i = 0; i < 2 * WAYS; i++) {
            int k = (i * 3 + (int)(test_hash(round * 8 + rank) % 8)) % (2 * WAYS), w = k / 2, d = k % 2;
            uint32_t other = (rank + (w % 2 ? 1 : n - 1)) % n;
            WH_TRY(wait_or_test(way[w].plan[d], round + (uint64_t)k));
            if (d == 0) continue;
            RANK_CHECK(holds(way[w].data[1], way[w].bytes, seed_of(round, other, rank, (uint32_t)w / 2)),
                       "round %d from %u, group %d, %zu bytes", (int)round, other, w / 2, way[w].bytes);
        }
    }
    for (int w = 0; w < WAYS; w++)
        for (int d = 0; d < 2; d++) wh_comm_plan_free(way[w].plan[d]);
    return WH_OK;
}

/* From 3 ranks on: with 2 both neighbours are one, and sizes would have to agree. */
static void both_directions(void **state) {
    (void)state;
    for (uint32_t n = 3; n <= 5; n++)
        run(&(struct test_ranks){.config = {.ranks = n, .arena_bytes = 8 * (LARGE_BYTES + 64)}, .body = stage_of_both});
}

/* ---- a sender that has started need not come again ---- */

static enum wh_status await(_Atomic uint32_t *flag) {
    for (uint64_t begin = wh_clock_ns(); !*flag;) {
        RANK_CHECK(wh_clock_ns() - begin < limit_ns, "the other rank doesn't come on");
        usleep(100);
    }
    return WH_OK;
}

static enum wh_status many_outstanding(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    enum { EACH = 20000 };
    _Atomic uint32_t *flag = t->shared;
    struct wh_comm *comm;
    struct wh_comm_plan *plan[WH_COMM_MESSAGES];
    void *data;
    WH_TRY(wh_comm_open(job, 0, "pp", everybody, 2, &comm));
    WH_TRY(wh_comm_buffer(job, (size_t)EACH * WH_COMM_MESSAGES, &data));
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < WH_COMM_MESSAGES; i++) {
            char *at = (char *)data + (size_t)i * EACH;
            size_t bytes = EACH - i - (i % 3 == 0 ? EACH / 10 * 9 : 0); /* some are small enough for the pipe */
            if (rank == 0) fill(at, bytes, round * 100 + i);
            WH_TRY(start_new(comm, rank ? receiving(0, at, bytes) : sending(1, at, bytes), &plan[i]));
        }
        if (rank == 0) WH_TRY(await(&flag[round])); /* without a call */
        for (uint32_t i = 0; i < WH_COMM_MESSAGES; i++) {
            size_t bytes = EACH - i - (i % 3 == 0 ? EACH / 10 * 9 : 0);
            WH_TRY(finish(plan[i]));
            RANK_CHECK(holds((char *)data + (size_t)i * EACH, bytes, round * 100 + i), "message %u", i);
        }
        flag[round] = 1;
    }
    return WH_OK;
}

/* Both start far more than fit, then both receive. */
static enum wh_status too_many(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    enum { COUNT = 5 * WH_COMM_MESSAGES, EACH = 6000 };
    struct wh_comm *comm;
    static struct wh_comm_plan *plan[2][COUNT];
    void *data[2];
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "pp", everybody, 2, &comm));
    for (int d = 0; d < 2; d++) WH_TRY(wh_comm_buffer(job, (size_t)EACH * COUNT, &data[d]));
    fill(data[0], (size_t)EACH * COUNT, rank);
    for (uint32_t i = 0; i < COUNT; i++)
        WH_TRY(start_new(comm, sending(!rank, (char *)data[0] + (size_t)i * EACH, EACH), &plan[0][i]));
    delay(rank, 5000);
    for (uint32_t i = 0; i < COUNT; i++)
        WH_TRY(start_new(comm, receiving(!rank, (char *)data[1] + (size_t)i * EACH, EACH), &plan[1][i]));
    for (uint32_t i = COUNT; i-- > 0;) WH_TRY(finish(plan[1][i]));
    RANK_CHECK(holds(data[1], (size_t)EACH * COUNT, !rank), "bytes");
    for (uint32_t i = 0; i < COUNT; i++) WH_TRY(finish(plan[0][i]));
    return WH_OK;
}

static void outstanding(void **state) {
    (void)state;
    run(&(struct test_ranks){.config = {.ranks = 2, .arena_bytes = 2 << 20}, .body = many_outstanding});
    run(&(struct test_ranks){.config = {.ranks = 2, .arena_bytes = 4 << 20}, .body = too_many});
}

/* The other side is away for 200 ms: from the later of the two starts a receive takes no longer than the copying. */
struct times {
    _Atomic uint64_t sent_ns, begun_ns, received_ns, started_in_ns;
};

static void be_away(void) {
    volatile uint64_t x = 1;
    for (uint64_t begin = wh_clock_ns(); wh_clock_ns() - begin < 200000000;)
        for (int i = 0; i < 10000; i++) x = x * 3 + 1;
}

static enum wh_status one_is_away(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    bool receiver_late = t->context != NULL;
    struct times *times = t->shared;
    struct wh_comm *comm;
    struct wh_comm_plan *plan;
    void *data;
    WH_TRY(wh_comm_open(job, 0, "pp", everybody, 2, &comm));
    WH_TRY(wh_comm_buffer(job, MOST_BYTES, &data));
    if (rank == 0) fill(data, MOST_BYTES, 5);
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    if (rank == 0) {
        uint64_t begin = wh_clock_ns();
        WH_TRY(start_new(comm, sending(1, data, MOST_BYTES), &plan));
        times->sent_ns = wh_clock_ns();
        times->started_in_ns = times->sent_ns - begin;
        if (!receiver_late) be_away();
        return finish(plan);
    }
    if (receiver_late) be_away();
    times->begun_ns = wh_clock_ns();
    WH_TRY(start_new(comm, receiving(0, data, MOST_BYTES), &plan));
    WH_TRY(finish(plan));
    times->received_ns = wh_clock_ns();
    RANK_CHECK(holds(data, MOST_BYTES, 5), "bytes");
    return WH_OK;
}

static void away(void **state) {
    (void)state;
    enum { ATTEMPTS = 8 }; /* a loaded machine may not run a process for long */
    for (int receiver_late = 0; receiver_late < 2; receiver_late++) {
        bool soon = false;
        for (int i = 0; i < ATTEMPTS && !soon; i++) {
            struct test_ranks t = {.config = {.ranks = 2, .arena_bytes = MOST_BYTES, .deadline_ns = deadline_ns},
                                   .body = one_is_away};
            t.context = receiver_late ? &t : NULL;
            uint32_t bad = test_ranks_run(&t);
            const struct times *times = t.shared;
            uint64_t both_ns = times->sent_ns > times->begun_ns ? times->sent_ns : times->begun_ns;
            soon = times->received_ns - both_ns < 50000000 && times->started_in_ns < 10000000;
            if (bad) test_ranks_print(&t);
            test_ranks_free(&t);
            assert_int_equal(bad, 0);
        }
        if (!soon) fail_msg("received late, %d times", ATTEMPTS);
    }
}

/* ---- groups don't wait for each other ---- */

static enum wh_status groups_apart(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    enum { BYTES = 600000 }; /* more than a pipe */
    bool shared = t->context != NULL;
    struct wh_comm *comm[3];
    struct wh_comm_plan *first, *second;
    void *data[2];
    for (uint32_t g = 0; g < 3; g++) WH_TRY(wh_comm_open(job, g, "group", everybody, 2, &comm[g]));
    for (int k = 0; k < 2; k++) WH_TRY(take(job, shared, BYTES, &data[k]));
    if (rank == 0) fill(data[0], BYTES, 1), fill(data[1], BYTES, 2);
    /* Sent first in group 0, received first in group 1. */
    if (rank == 0) {
        WH_TRY(start_new(comm[0], sending(1, data[0], BYTES), &first));
        WH_TRY(start_new(comm[1], sending(1, data[1], BYTES), &second));
        WH_TRY(finish(second));
        WH_TRY(finish(first));
    } else {
        struct wh_comm_call c = receiving(0, data[1], BYTES);
        WH_TRY(wh_comm_run(comm[1], &c));
        c.out = data[0];
        WH_TRY(wh_comm_run(comm[0], &c));
        RANK_CHECK(holds(data[0], BYTES, 1) && holds(data[1], BYTES, 2), "bytes");
    }
    /* Rank 0 comes to the barrier only when its message has been taken: rank 1 takes it while it waits there. */
    WH_TRY(start_new(comm[0], rank ? receiving(0, data[1], BYTES) : sending(1, data[0], BYTES), &first));
    if (rank == 0) WH_TRY(finish(first));
    WH_TRY(wh_comm_run(comm[2], &(struct wh_comm_call){.op = WH_BARRIER}));
    if (rank == 1) WH_TRY(finish(first));
    RANK_CHECK(rank == 0 || holds(data[1], BYTES, 1), "bytes");
    /* A group that fails with messages under way leaves the others alone. */
    WH_TRY(start_new(comm[0], rank ? receiving(0, data[1], 7) : sending(1, data[0], BYTES), &first));
    RANK_CHECK(wh_comm_wait(first) == WH_PEER, "a mismatch");
    wh_comm_plan_free(first);
    WH_TRY(start_new(comm[1], rank ? receiving(0, data[1], BYTES) : sending(1, data[0], BYTES), &second));
    WH_TRY(finish(second));
    RANK_CHECK(holds(data[1], BYTES, rank ? 1 : 2), "bytes");
    return WH_OK;
}

static void groups(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct test_ranks t = {.config = {.ranks = 2, .arena_bytes = 2 << 20}, .body = groups_apart};
        t.context = shared ? &t : NULL;
        run(&t);
    }
}

/* ---- failures ---- */

struct mismatch {
    struct wh_comm_call send, recv;
    bool members; /* of rank 1's group: another one more */
    const char *expect;
};

static enum wh_status rank_of_mismatch(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct mismatch *m = t->context;
    struct wh_comm *comm;
    struct wh_comm_call c = rank ? m->recv : m->send;
    void *data;
    if (rank == 2) return WH_OK;
    WH_TRY(wh_comm_open(job, 0, "pp", everybody, rank == 1 && m->members ? 3 : 2, &comm));
    WH_TRY(wh_comm_buffer(job, 1 << 20, &data));
    c.in = c.out = data, c.row = rank ? "pp.act.recv" : "pp.act.send", c.root = !rank;
    WH_TRY(wh_comm_run(comm, &c));
    return rank ? WH_OK : wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}); /* sent at once, if small */
}

static void mismatches(void **state) {
    (void)state;
    static const struct mismatch all[] = {
        {{WH_SEND, .count = 10, .dtype = WH_U8}, {WH_RECV, .count = 9, .dtype = WH_U8}, false, "has 10 bytes"},
        {{WH_SEND, .count = 90000, .dtype = WH_F32},
         {WH_RECV, .count = 90001, .dtype = WH_F32},
         false,
         "send of 90000 F32, sequence 1"},
        {{WH_SEND, .count = 90000, .dtype = WH_F32},
         {WH_RECV, .count = 90000, .dtype = WH_I32},
         false,
         "recv of 90000 I32 from 0 (pp.act.recv), sequence 1"},
        {{WH_SEND, .count = 9, .dtype = WH_F32}, {WH_RECV, .count = 9, .dtype = WH_F32}, true, "different members"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct test_ranks t = {.config = {.ranks = 3, .arena_bytes = 1 << 20, .deadline_ns = deadline_ns},
                               .body = rank_of_mismatch,
                               .context = &all[i]};
        test_ranks_run(&t);
        for (uint32_t r = 0; r < 2; r++) {
            if (t.end[r].status == WH_PEER && strstr(t.end[r].message, all[i].expect) && t.end[r].seconds < 10)
                continue;
            test_ranks_print(&t);
            fail_msg("mismatch %zu: no '%s'", i, all[i].expect);
        }
        test_ranks_free(&t);
    }
}

enum fate { NEVER_CALLS, IS_KILLED, IS_KILLED_AT_WORK, EXITS, FATES };

struct failure {
    enum fate fate;
    uint32_t victim; /* 0: the sender; 1: the receiver */
    size_t bytes;
    bool shared;
};

static void on_alarm(int number) {
    (void)number;
    raise(SIGKILL);
}

static enum wh_status rank_of_failure(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct failure *f = t->context;
    struct wh_comm *comm;
    struct wh_comm_plan *plan;
    void *data;
    WH_TRY(wh_comm_open(job, 0, "pp", everybody, 2, &comm));
    WH_TRY(take(job, f->shared, MOST_BYTES, &data));
    struct wh_comm_call c = rank ? receiving(0, data, f->bytes) : sending(1, data, f->bytes);
    c.row = "pp.act";
    WH_TRY(wh_comm_plan_make(comm, &c, &plan));
    bool victim = rank == f->victim;
    if (!victim) *(_Atomic uint32_t *)t->shared = 1;
    if (victim) WH_TRY(await(t->shared)); /* else the other one may learn of the end before its first message */
    if (victim && f->fate == IS_KILLED_AT_WORK) {
        signal(SIGALRM, on_alarm);
        ualarm(3000 + (useconds_t)(wh_clock_ns() / 1000 % 4000), 0);
    }
    for (int i = 0;; i++) {
        if (victim && i == 3 && f->fate == IS_KILLED) raise(SIGKILL);
        if (victim && i == 3 && f->fate == EXITS) _exit(0);
        if (victim && i == 3 && f->fate == NEVER_CALLS) break;
        WH_TRY(wh_comm_start(plan));
        WH_TRY(wh_comm_wait(plan));
    }
    return await((_Atomic uint32_t *)t->shared + 1); /* sleeps until the other one has given up */
}

static enum wh_status rank_that_tells(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    enum wh_status status = rank_of_failure(job, rank, t);
    ((_Atomic uint32_t *)t->shared)[1] = 1;
    return status;
}

static void failures(void **state) {
    (void)state;
    static const char *const sign[FATES] = {"; rank %u ", "rank %u (process", "rank %u (process", "rank %u "};
    for (enum fate fate = NEVER_CALLS; fate < FATES; fate++)
        for (uint32_t i = 0; i < 8; i++) {
            struct failure f = {fate, i & 1, i & 2 ? 100 : MOST_BYTES, i & 4};
            if (f.victim == 1 && f.bytes == 100) continue; /* sent at once, however often */
            struct test_ranks t = {.config = {.ranks = 2, .arena_bytes = MOST_BYTES, .deadline_ns = deadline_ns},
                                   .body = rank_that_tells,
                                   .context = &f,
                                   .limit_s = 30};
            if (fate == NEVER_CALLS) t.config.deadline_ns = 1000000000;
            test_ranks_run(&t);
            const struct test_rank_end *e = &t.end[!f.victim];
            char name[32];
            snprintf(name, sizeof name, sign[fate], f.victim);
            bool told = e->status == WH_PEER && !e->killed_at_limit && strstr(e->message, name) && e->seconds < 10;
            told = told && strstr(e->frame, f.victim ? "ran send of" : "ran recv of") &&
                   strstr(e->frame, fate == NEVER_CALLS ? "(pp.act), sequence 4" : "(pp.act), sequence");
            if (!told) {
                test_ranks_print(&t);
                fail_msg("fate %d, victim %u, %zu bytes, shared %d", fate, f.victim, f.bytes, f.shared);
            }
            test_ranks_free(&t);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains),   cmocka_unit_test(both_directions), cmocka_unit_test(outstanding),
        cmocka_unit_test(away),     cmocka_unit_test(groups),          cmocka_unit_test(mismatches),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
