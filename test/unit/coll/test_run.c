/* Runs plans on numbers, by the plainest interpreter of plan.h, and compares bits with the canonical sum: what the checker
 * proves on symbols holds for floats. Inputs are of mixed size and sign, so that another order gives other bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "base/rng.h"
#include "base/tree.h"
#include "coll/plan.h"

enum { RANKS_MAX = 19, COUNT_MAX = 700 };

/* Numbers of both formats are kept as floats; those of bf16 buffers are ones that bf16 has. */
static float narrow(const struct wh_coll_request *q, float x) {
    return q->dtype == WH_BF16 ? wh_bf16_to_f32(wh_f32_to_bf16(x)) : x;
}

static float input(const struct wh_coll_request *q, uint32_t rank, uint64_t element) {
    struct wh_rng rng = wh_rng_stream(11, WH_RNG_TEST, 0, rank);
    uint32_t u = wh_rng_u32(&rng, element);
    float x = (float)(int32_t)(u << 8) * 0x1p-31f;
    return narrow(q, u & 0x1000000 ? x * 1e6f : x);
}

static float canonical(const struct wh_coll_request *q, uint64_t element) {
    float stack[WH_TREE_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < q->ranks; i++) {
        stack[depth++] = input(q, i, element);
        for (unsigned m = wh_tree_merges(i, q->ranks); m > 0; m--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return narrow(q, stack[0]);
}

/* All buffers of all ranks. IN and OUT are one buffer in place. */
struct machine {
    const struct wh_coll_plan *plan;
    float *buffer[RANKS_MAX][WH_COLL_BUFFER_COUNT];
};

static float *at(struct machine *m, uint32_t rank, struct wh_coll_place p) {
    p = wh_coll_resolve(&m->plan->request, rank, p);
    return m->buffer[rank][p.buffer] + p.first;
}

static void start(struct machine *m) {
    const struct wh_coll_request *q = &m->plan->request;
    for (uint32_t r = 0; r < q->ranks; r++) {
        m->buffer[r][WH_COLL_IN] = calloc(COUNT_MAX, sizeof(float));
        m->buffer[r][WH_COLL_OUT] = calloc(COUNT_MAX, sizeof(float));
        m->buffer[r][WH_COLL_LANDING] = calloc(m->plan->rank[r].landing_elems + 1, sizeof(float));
        m->buffer[r][WH_COLL_PARTIAL] = calloc(m->plan->rank[r].partial_elems + 1, sizeof(float));
        float *in = at(m, r, (struct wh_coll_place){WH_COLL_IN, 0});
        for (uint64_t i = 0; i < wh_coll_in_elems(q, r); i++) in[i] = input(q, r, i);
    }
}

static void finish(struct machine *m) {
    for (uint32_t r = 0; r < m->plan->request.ranks; r++)
        for (int b = 0; b < WH_COLL_BUFFER_COUNT; b++) free(m->buffer[r][b]);
}

static const struct wh_coll_step *matching_send(const struct machine *m, uint32_t rank, const struct wh_coll_step *r) {
    const struct wh_coll_list *mine = &m->plan->rank[rank], *theirs = &m->plan->rank[r->peer];
    size_t number = 0;
    for (const struct wh_coll_step *s = mine->steps; s < r; s++)
        number += s->kind == WH_COLL_RECV && s->round == r->round && s->peer == r->peer;
    for (size_t i = 0; i < theirs->step_count; i++) {
        const struct wh_coll_step *s = &theirs->steps[i];
        if (s->kind == WH_COLL_SEND && s->round == r->round && s->peer == rank && number-- == 0) return s;
    }
    fail_msg("no send for a receive");
    return NULL;
}

static void run_step(struct machine *m, uint32_t rank, const struct wh_coll_step *s) {
    float *out = at(m, rank, s->out);
    if (s->kind == WH_COLL_RECV) memcpy(out, at(m, s->peer, matching_send(m, rank, s)->left), s->count * sizeof *out);
    if (s->kind == WH_COLL_COPY) memcpy(out, at(m, rank, s->left), s->count * sizeof *out);
    if (s->kind != WH_COLL_ADD) return;
    const float *left = at(m, rank, s->left), *right = at(m, rank, s->right);
    for (uint64_t i = 0; i < s->count; i++) {
        float sum = left[i] + right[i];
        out[i] = s->out.buffer == WH_COLL_PARTIAL ? sum : narrow(&m->plan->request, sum);
    }
}

/* Messages of all ranks, then what each does with them. */
static void run(struct machine *m) {
    for (uint32_t k = 0; k < m->plan->rounds; k++)
        for (int local = 0; local < 2; local++)
            for (uint32_t r = 0; r < m->plan->request.ranks; r++)
                for (size_t i = 0; i < m->plan->rank[r].step_count; i++) {
                    const struct wh_coll_step *s = &m->plan->rank[r].steps[i];
                    if (s->round == k && (s->kind >= WH_COLL_COPY) == local) run_step(m, r, s);
                }
}

static float expected(const struct wh_coll_request *q, uint32_t rank, uint64_t i) {
    uint64_t each = q->count / q->ranks;
    if (q->op == WH_COLL_REDUCE_SCATTER) return canonical(q, wh_coll_slice(q, rank).first + i);
    if (q->op == WH_COLL_BROADCAST) return input(q, q->root, i);
    if (q->op == WH_COLL_ALL_TO_ALL) return input(q, (uint32_t)(i / each), rank * each + i % each);
    if (q->op != WH_COLL_ALL_GATHER) return canonical(q, i);
    for (uint32_t r = 0;; r++) {
        struct wh_coll_range s = wh_coll_slice(q, r);
        if (i >= s.first && i - s.first < s.count) return input(q, r, i - s.first);
    }
}

/* Bits of the canonical sum; other orders must come near: n additions, each wrong by half a unit of the largest sum. */
static void compare(struct machine *m, const struct wh_coll_algorithm *a) {
    const struct wh_coll_request *q = &m->plan->request;
    bool exact = !wh_coll_op_adds(q->op) || (a->canonical && a->canonical(q));
    float bound = (float)q->ranks * 1e6f * (q->dtype == WH_BF16 ? 0x1p-8f : (float)q->ranks * 0x1p-24f);
    for (uint32_t r = 0; r < q->ranks; r++) {
        const float *out = at(m, r, (struct wh_coll_place){WH_COLL_OUT, 0});
        for (uint64_t i = 0; i < wh_coll_out_elems(q, r); i++) {
            float want = expected(q, r, i), off = out[i] - want;
            if (exact ? memcmp(&out[i], &want, sizeof want) != 0 : off > bound || off < -bound)
                fail_msg("%s %s, %u ranks, root %u: rank %u has %a at %llu instead of %a", a->name,
                         wh_coll_op_name(q->op), q->ranks, q->root, r, (double)out[i], (unsigned long long)i,
                         (double)want);
            if (q->op != WH_COLL_ALL_REDUCE) continue;
            assert_memory_equal(&out[i], at(m, 0, (struct wh_coll_place){WH_COLL_OUT, i}), sizeof(float));
        }
    }
}

static void numbers_are_the_canonical_sums(void **state) {
    (void)state;
    for (int i = 0; wh_coll_algorithms[i]; i++)
        for (int op = 0; op < WH_COLL_BARRIER; op++)
            for (uint32_t n = 2; n <= RANKS_MAX; n++)
                for (int variant = 0; variant < 4; variant++) {
                    const struct wh_coll_algorithm *a = wh_coll_algorithms[i];
                    struct wh_coll_request q = {
                        (enum wh_coll_op)op, n, n / 3, variant < 2 ? 601 : 32 * n, variant % 2 ? WH_BF16 : WH_F32,
                        variant > 1 || n % 2};
                    q.chunks = (uint32_t)variant + 1;
                    q.ranks_per_machine = n % 4 == 0 ? 4 : n % 3 == 0 ? 3 : 2;
                    if (q.op == WH_COLL_ALL_TO_ALL) q.count = q.count / n * n;
                    struct wh_coll_plan p;
                    if (wh_coll_plan_new(&q, a, &p) != WH_OK) continue;
                    struct machine m = {.plan = &p};
                    start(&m);
                    run(&m);
                    compare(&m, a);
                    finish(&m);
                    wh_coll_plan_free(&p);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_the_canonical_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
