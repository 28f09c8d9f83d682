/* Ranks as threads of one process, over the same shared memory as processes: so that a thread sanitizer sees all of them
 * (test/e2e/full_races.sh builds this with CONFIG=tsan). Operations of every path and messages, several in flight, ranks
 * that come at random times, mostly busy, sometimes asleep; results bit by bit. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "comm/comm_int.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { RANKS_MOST = 4, ROUNDS = 40, IN_FLIGHT = 3, MOST_ELEMS = 40000, MESSAGE_ELEMS = 140000 };

struct rank {
    pthread_t thread;
    struct wh_comm_job job; /* as after a fork: an own copy, the segments are shared */
    uint32_t rank;
    enum wh_status (*body)(struct wh_comm_job *job, uint32_t rank);
    enum wh_status status;
    char message[WH_ERROR_MESSAGE_BYTES];
};

static void *run_rank(void *p) {
    struct rank *r = p;
    r->status = wh_comm_job_join(&r->job, r->rank);
    if (r->status == WH_OK) r->status = r->body(&r->job, r->rank);
    if (r->status != WH_OK) snprintf(r->message, sizeof r->message, "%s", wh_error()->message);
    while (r->job.comms) wh_comm_close(r->job.comms);
    wh_pidfd_close(r->job.launcher_pidfd);
    return NULL;
}

static void run_ranks(uint32_t ranks, enum wh_status (*body)(struct wh_comm_job *, uint32_t), enum wh_status expect) {
    struct wh_comm_job_config config = {.ranks = ranks, .arena_bytes = 8 << 20, .deadline_ns = 60000000000};
    struct wh_comm_job *job;
    static struct rank rank[RANKS_MOST];
    assert_int_equal(wh_comm_job_create(&config, &job), WH_OK);
    for (uint32_t r = 0; r < ranks; r++) {
        rank[r] = (struct rank){.job = *job, .rank = r, .body = body};
        assert_int_equal(pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++) pthread_join(rank[r].thread, NULL);
    wh_comm_job_destroy(job);
    for (uint32_t r = 0; r < ranks; r++)
        if (rank[r].status != expect) fail_msg("rank %u of %u: %d, %s", r, ranks, rank[r].status, rank[r].message);
}

static enum wh_status open_all(struct wh_comm_job *job, struct wh_comm **comm) {
    static const uint32_t members[RANKS_MOST] = {0, 1, 2, 3};
    return wh_comm_open(job, 0, "all", members, wh_comm_job_ranks(job), comm);
}

static void come_late(uint64_t chance) {
    if (chance % 8 == 0) usleep((unsigned)(chance / 8 % 200));
    if (chance % 64 == 1) usleep(3000); /* the others fall asleep */
}

/* ---- operations ---- */

struct operation {
    struct wh_comm_call call;
    struct wh_comm_plan *plan;
    uint64_t seed;
    void *in, *out, *private_in, *private_out;
};

static enum wh_status take_memory(struct wh_comm_job *job, struct operation *o) {
    o->private_in = calloc(MOST_ELEMS, sizeof(float)), o->private_out = calloc(MOST_ELEMS, sizeof(float));
    WH_TRY(wh_comm_buffer(job, MOST_ELEMS * sizeof(float), &o->in));
    return wh_comm_buffer(job, MOST_ELEMS * sizeof(float), &o->out);
}

static enum wh_status begin(struct wh_comm *comm, struct operation *o, uint64_t seed) {
    static const size_t counts[] = {1, 3, 100, 4000, MOST_ELEMS};
    uint64_t chance = test_hash(seed);
    uint32_t rank = wh_comm_rank(comm), n = wh_comm_size(comm);
    bool arena = chance % 3;
    struct wh_comm_call *c = &o->call;
    *c = (struct wh_comm_call){.op = (enum wh_comm_op)(chance / 8 % (WH_BARRIER + 1)), .root = chance / 64 % n};
    o->seed = seed;
    c->count = counts[chance / 512 % 5] / n * n;
    c->in = c->op == WH_BROADCAST ? NULL : arena ? o->in : o->private_in;
    c->out = arena ? o->out : o->private_out;
    struct wh_coll_range r = test_in_range(c, rank, n);
    for (uint64_t i = 0; i < r.count && c->op != WH_BARRIER; i++) {
        float x = test_input(WH_F32, seed, rank, r.first + i).f32;
        memcpy((c->in ? (char *)(arena ? o->in : o->private_in) : (char *)c->out) + 4 * i, &x, 4);
    }
    WH_TRY(wh_comm_plan_make(comm, c, &o->plan));
    return wh_comm_start(o->plan);
}

static enum wh_status end(struct wh_comm *comm, struct operation *o) {
    uint32_t rank = wh_comm_rank(comm), n = wh_comm_size(comm);
    bool done = false;
    WH_TRY(wh_comm_test(o->plan, &done));
    if (!done) WH_TRY(wh_comm_wait(o->plan));
    wh_comm_plan_free(o->plan);
    struct wh_coll_range r = test_out_range(&o->call, rank, n);
    for (uint64_t i = 0; i < r.count && o->call.op != WH_BARRIER; i += 1 + r.count / 500) {
        float want = test_output(&o->call, o->seed, rank, n, r.first + i).f32;
        RANK_CHECK(memcmp((char *)o->call.out + 4 * i, &want, 4) == 0, "%s: element %zu", wh_comm_op_name(o->call.op),
                   (size_t)i);
    }
    return WH_OK;
}

static enum wh_status many_operations(struct wh_comm_job *job, uint32_t rank) {
    struct wh_comm *comm;
    struct operation o[IN_FLIGHT] = {0};
    WH_TRY(open_all(job, &comm));
    for (int i = 0; i < IN_FLIGHT; i++) WH_TRY(take_memory(job, &o[i]));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < IN_FLIGHT; i++) {
            come_late(test_hash(round * 1000 + i * 10 + rank));
            WH_TRY(begin(comm, &o[i], round * IN_FLIGHT + i));
        }
        WH_TRY(wh_comm_progress(job));
        for (uint64_t i = 0; i < IN_FLIGHT; i++) WH_TRY(end(comm, &o[i]));
    }
    for (int i = 0; i < IN_FLIGHT; i++) free(o[i].private_in), free(o[i].private_out);
    return WH_OK;
}

/* ---- messages: to all, from all, more than the rings hold ---- */

static enum wh_status start_message(struct wh_comm *comm, enum wh_comm_op op, void *data, size_t count, uint32_t peer,
                                    struct wh_comm_plan **plan) {
    struct wh_comm_call c = {.op = op, .in = data, .out = data, .count = count, .root = peer};
    if (op == WH_SEND) c.out = NULL;
    if (op == WH_RECV) c.in = NULL;
    WH_TRY(wh_comm_plan_make(comm, &c, plan));
    return wh_comm_start(*plan);
}

static enum wh_status many_messages(struct wh_comm_job *job, uint32_t rank) {
    static const size_t counts[] = {1, 5000, MESSAGE_ELEMS};
    static float sent[RANKS_MOST][MESSAGE_ELEMS], received[RANKS_MOST][RANKS_MOST][MESSAGE_ELEMS];
    struct wh_comm *comm;
    struct wh_comm_plan *send[RANKS_MOST], *recv[RANKS_MOST];
    void *shared;
    uint32_t n = wh_comm_job_ranks(job);
    WH_TRY(open_all(job, &comm));
    WH_TRY(wh_comm_buffer(job, sizeof sent[0], &shared));
    for (uint32_t round = 0; round < 12; round++) {
        size_t count = counts[round % 3];
        float *data = round / 3 % 2 ? shared : sent[rank]; /* read in place, or through the pipe */
        for (size_t i = 0; i < count; i++) data[i] = (float)(rank * 7 + round + i);
        for (uint32_t peer = 0; peer < n; peer++) {
            come_late(test_hash(round * 1000 + peer * 10 + rank));
            if (peer == rank) continue;
            WH_TRY(start_message(comm, WH_SEND, data, count, peer, &send[peer]));
            WH_TRY(start_message(comm, WH_RECV, received[rank][peer], count, peer, &recv[peer]));
        }
        for (uint32_t peer = 0; peer < n; peer++) {
            if (peer == rank) continue;
            WH_TRY(wh_comm_wait(recv[peer]));
            WH_TRY(wh_comm_wait(send[peer]));
            wh_comm_plan_free(recv[peer]), wh_comm_plan_free(send[peer]);
            for (size_t i = 0; i < count; i++)
                RANK_CHECK(received[rank][peer][i] == (float)(peer * 7 + round + i), "element %zu", i);
        }
    }
    return WH_OK;
}

/* ---- failures ---- */

static enum wh_status calls_differ(struct wh_comm_job *job, uint32_t rank) {
    struct wh_comm *comm;
    WH_TRY(open_all(job, &comm));
    for (int i = 0; i < 10; i++) WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    come_late(rank);
    return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER, .row = rank == 1 ? "one" : "other"});
}

static enum wh_status one_gives_up(struct wh_comm_job *job, uint32_t rank) {
    struct wh_comm *comm;
    WH_TRY(open_all(job, &comm));
    if (rank == 1) usleep(3000), wh_comm_job_abort(job, WH_PEER, "rank 1 gives up");
    return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER});
}

static void operations(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= RANKS_MOST; n++) run_ranks(n, many_operations, WH_OK);
}

static void messages(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= RANKS_MOST; n++) run_ranks(n, many_messages, WH_OK);
}

static void failures(void **state) {
    (void)state;
    run_ranks(3, calls_differ, WH_PEER);
    run_ranks(3, one_gives_up, WH_PEER);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations), cmocka_unit_test(messages),
                                       cmocka_unit_test(failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
