/* Every algorithm of coll's table run between processes, against the same lists run by plain loops in one process, bit by
 * bit (so in the order that the plan names); where the algorithm says that it is canonical, also against the tree.
 * WH_TEST_LONG=1 takes more ranks and sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "comm/exec.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { RANKS_MOST = 9 };

static bool long_version(void) { return getenv("WH_TEST_LONG") != NULL; }

/* ---- the lists, run in one process ---- */

struct machine {
    const struct wh_coll_plan *plan;
    char *buffer[RANKS_MOST][WH_COLL_BUFFER_COUNT];
};

static enum wh_dtype format_of(const struct machine *m, enum wh_coll_buffer b) {
    return b == WH_COLL_PARTIAL ? wh_coll_sum_dtype(m->plan->request.dtype) : m->plan->request.dtype;
}

static char *at(const struct machine *m, uint32_t rank, struct wh_coll_place p) {
    return m->buffer[rank][p.buffer] + p.first * wh_dtype_bytes(format_of(m, p.buffer));
}

static union test_value load(const struct machine *m, uint32_t rank, struct wh_coll_place p, uint64_t i) {
    union test_value v = {0};
    enum wh_dtype t = format_of(m, p.buffer);
    memcpy(&v, at(m, rank, p) + i * wh_dtype_bytes(t), wh_dtype_bytes(t));
    if (t == WH_BF16) v.f32 = wh_bf16_to_f32(v.u16);
    return v;
}

static void add(struct machine *m, uint32_t rank, const struct wh_coll_step *s) {
    enum wh_dtype sum = wh_coll_sum_dtype(m->plan->request.dtype), t = format_of(m, s->out.buffer);
    for (uint64_t i = 0; i < s->count; i++) {
        union test_value v = test_combine(sum, WH_SUM, load(m, rank, s->left, i), load(m, rank, s->right, i));
        if (t == WH_BF16) v.u16 = wh_f32_to_bf16(v.f32);
        memcpy(at(m, rank, s->out) + i * wh_dtype_bytes(t), &v, wh_dtype_bytes(t));
    }
}

/* The k-th message of `from` to `to` in a round. */
static const struct wh_coll_step *find_send(const struct wh_coll_plan *p, uint32_t round, uint32_t from, uint32_t to,
                                            uint32_t k) {
    const struct wh_coll_list *l = &p->rank[from];
    for (size_t i = 0; i < l->step_count; i++) {
        const struct wh_coll_step *s = &l->steps[i];
        if (s->round == round && s->kind == WH_COLL_SEND && s->peer == to && k-- == 0) return s;
    }
    return NULL;
}

static void receive_all(struct machine *m, uint32_t round, uint32_t rank) {
    const struct wh_coll_list *l = &m->plan->rank[rank];
    uint32_t seen[RANKS_MOST] = {0};
    for (size_t i = 0; i < l->step_count; i++) {
        const struct wh_coll_step *s = &l->steps[i];
        if (s->round != round || s->kind != WH_COLL_RECV) continue;
        const struct wh_coll_step *from = find_send(m->plan, round, s->peer, rank, seen[s->peer]++);
        size_t bytes = s->count * wh_dtype_bytes(format_of(m, s->out.buffer));
        if (bytes) memcpy(at(m, rank, s->out), at(m, s->peer, from->left), bytes);
    }
}

static void compute(struct machine *m, uint32_t round, uint32_t rank) {
    const struct wh_coll_list *l = &m->plan->rank[rank];
    for (size_t i = 0; i < l->step_count; i++) {
        const struct wh_coll_step *s = &l->steps[i];
        if (s->round != round) continue;
        if (s->kind == WH_COLL_COPY)
            memmove(at(m, rank, s->out), at(m, rank, s->left), s->count * wh_dtype_bytes(format_of(m, s->out.buffer)));
        if (s->kind == WH_COLL_ADD) add(m, rank, s);
    }
}

/* The result of `rank`; to be freed. The request is not in place here: that must make no difference. */
static char *simulate(const struct wh_coll_request *q, const struct wh_coll_algorithm *a, uint64_t seed,
                      uint32_t rank) {
    struct wh_coll_request apart = *q;
    struct wh_coll_plan plan;
    struct machine m = {.plan = &plan};
    size_t elem = wh_dtype_bytes(q->dtype);
    apart.in_place = q->op == WH_COLL_BROADCAST;
    if (wh_coll_plan_new(&apart, a, &plan) != WH_OK) return NULL;
    struct wh_comm_call c = {.op = (enum wh_comm_op)q->op, .count = q->count, .dtype = q->dtype, .root = q->root};
    for (uint32_t r = 0; r < q->ranks; r++) {
        const size_t most = q->count * 8 + 64;
        for (int b = 0; b < WH_COLL_BUFFER_COUNT; b++) m.buffer[r][b] = calloc(1, most);
        m.buffer[r][WH_COLL_LANDING] = realloc(m.buffer[r][WH_COLL_LANDING], plan.rank[r].landing_elems * 8 + 64);
        m.buffer[r][WH_COLL_PARTIAL] = realloc(m.buffer[r][WH_COLL_PARTIAL], plan.rank[r].partial_elems * 8 + 64);
        struct wh_coll_range in = test_in_range(&c, r, q->ranks);
        for (uint64_t i = 0; i < in.count; i++) {
            union test_value v = test_input(q->dtype, seed, r, in.first + i);
            memcpy(m.buffer[r][WH_COLL_IN] + i * elem, &v, elem);
            if (apart.in_place) memcpy(m.buffer[r][WH_COLL_OUT] + i * elem, &v, elem);
        }
    }
    if (apart.in_place) /* one memory: IN is OUT */
        for (uint32_t r = 0; r < q->ranks; r++)
            free(m.buffer[r][WH_COLL_IN]), m.buffer[r][WH_COLL_IN] = m.buffer[r][WH_COLL_OUT];
    for (uint32_t round = 0; round < plan.rounds; round++) {
        for (uint32_t r = 0; r < q->ranks; r++) receive_all(&m, round, r);
        for (uint32_t r = 0; r < q->ranks; r++) compute(&m, round, r);
    }
    char *result = m.buffer[rank][WH_COLL_OUT];
    for (uint32_t r = 0; r < q->ranks; r++)
        for (int b = 0; b < WH_COLL_BUFFER_COUNT; b++)
            if (m.buffer[r][b] != result && !(b == WH_COLL_IN && apart.in_place)) free(m.buffer[r][b]);
    wh_coll_plan_free(&plan);
    return result;
}

/* ---- the same, between processes ---- */

static enum wh_status run_one(struct wh_comm *comm, struct wh_comm_call c, bool in_place,
                              const struct wh_coll_algorithm *a, uint64_t seed) {
    uint32_t rank = wh_comm_rank(comm), n = wh_comm_size(comm);
    struct wh_coll_request q = {.op = (enum wh_coll_op)c.op,
                                .ranks = n,
                                .root = c.root,
                                .count = c.count,
                                .dtype = c.dtype,
                                .in_place = in_place,
                                .chunks = 3};
    if (wh_coll_can(&q, a) != WH_OK) return WH_OK;
    size_t elem = wh_dtype_bytes(c.dtype);
    struct wh_coll_range in = test_in_range(&c, rank, n), out = test_out_range(&c, rank, n);
    char *memory[2] = {calloc(c.count + 8, elem), calloc(c.count + 8, elem)};
    char *from = memory[0], *to = in_place ? memory[0] : memory[1];
    if (in_place && c.op == WH_ALL_GATHER) from += in.first * elem;
    if (in_place && c.op == WH_REDUCE_SCATTER) to += out.first * elem;
    for (uint64_t i = 0; i < in.count; i++) {
        union test_value v = test_input(c.dtype, seed, rank, in.first + i);
        memcpy((c.op == WH_BROADCAST ? to : from) + i * elem, &v, elem);
    }
    c.in = c.op == WH_BROADCAST ? NULL : from;
    c.out = to;
    struct wh_comm_exec *e;
    WH_TRY(wh_comm_exec_make(comm, &c, a->name, 3, &e));
    WH_TRY(wh_comm_exec_run(e));
    wh_comm_exec_free(e);
    char *expect = simulate(&q, a, seed, rank);
    RANK_CHECK(expect && memcmp(to, expect, out.count * elem) == 0, "%s %s of %zu %s%s, root %u, rank %u of %u",
               a->name, wh_comm_op_name(c.op), c.count, wh_dtype_name(c.dtype), in_place ? " in place" : "", c.root,
               rank, n);
    bool canonical = !wh_coll_op_adds(q.op) || (a->canonical && a->canonical(&q));
    for (uint64_t i = 0; i < out.count && canonical; i++) {
        union test_value v = test_output(&c, seed, rank, n, out.first + i);
        RANK_CHECK(memcmp(to + i * elem, &v, elem) == 0, "%s %s is not canonical", a->name, wh_comm_op_name(c.op));
    }
    free(expect), free(memory[0]), free(memory[1]);
    return WH_OK;
}

static enum wh_status all_algorithms(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t members[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static const size_t counts[] = {0, 1, 17, 1000, 20000};
    static const enum wh_dtype types[] = {WH_F32, WH_BF16, WH_I64};
    struct wh_comm *comm;
    uint32_t n = t->config.ranks;
    uint64_t seed = 0;
    (void)rank;
    WH_TRY(wh_comm_open(job, 0, "all", members, n, &comm));
    for (int i = 0; wh_coll_algorithms[i]; i++)
        for (int op = 0; op <= WH_BARRIER; op++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
                for (int variant = 0; variant < 6; variant++, seed++) {
                    struct wh_comm_call c = {
                        .op = (enum wh_comm_op)op, .count = counts[k], .dtype = types[variant / 2]};
                    bool in_place = variant & 1;
                    if (op == WH_BARRIER) c.count = 0, c.dtype = WH_U8;
                    if (op == WH_ALL_TO_ALL) c.count = counts[k] / n * n;
                    if (op == WH_BROADCAST) in_place = true;
                    if (op == WH_ALL_TO_ALL || op == WH_BARRIER) in_place = false;
                    if (op == WH_BROADCAST || op == WH_REDUCE) c.root = (uint32_t)seed % n;
                    if (!long_version() && (seed + (uint64_t)i) % 11 > 1) continue;
                    WH_TRY(run_one(comm, c, in_place, wh_coll_algorithms[i], seed));
                }
    return WH_OK;
}

static void algorithms(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= RANKS_MOST; n += long_version() || n < 5 ? 1 : 3) {
        struct test_ranks t = {.config = {.ranks = n, .deadline_ns = 20000000000}, .body = all_algorithms};
        t.limit_s = long_version() ? 1000 : 60;
        assert_int_equal(test_ranks_bad(&t), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(algorithms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
