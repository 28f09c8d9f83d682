/* Every algorithm, operation and number of ranks is proved by the checker; and the checker catches plans that are
 * broken on purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "base/rng.h"
#include "coll/check.h"

enum { RANKS_MAX = 64, FEW_RANKS = 20 };

/* What the checker finds must be what the table promises, in both directions. */
static void prove(const struct wh_coll_request *q, const struct wh_coll_algorithm *a) {
    struct wh_coll_plan p;
    struct wh_coll_findings f;
    assert_int_equal(wh_coll_plan_new(q, a, &p), WH_OK);
    if (wh_coll_check(&p, NULL, &f) != WH_OK)
        fail_msg("%s %s ranks %u count %llu root %u %s chunks %u per machine %u%s:\n%s", a->name,
                 wh_coll_op_name(q->op), q->ranks, (unsigned long long)q->count, q->root, wh_dtype_name(q->dtype),
                 q->chunks, q->ranks_per_machine, q->in_place ? " in place" : "", wh_error()->message);
    assert_true(f.same_on_ranks);
    if (wh_coll_op_adds(q->op) && q->count > 64 * RANKS_MAX) {
        bool promised = q->ranks == 1 || (a->canonical && a->canonical(q));
        if (promised != f.canonical)
            fail_msg("%s %s ranks %u root %u: canonical is %d, promised %d\n%s", a->name, wh_coll_op_name(q->op),
                     q->ranks, q->root, f.canonical, promised, f.order_text.data);
    }
    wh_coll_findings_free(&f);
    wh_coll_plan_free(&p);
}

static void prove_shapes(struct wh_coll_request q, const struct wh_coll_algorithm *a) {
    uint64_t counts[] = {0, 1, q.ranks - 1, 37, 64 * RANKS_MAX + 333, 1000003ull * q.ranks};
    uint32_t roots = q.op == WH_COLL_BROADCAST || q.op == WH_COLL_REDUCE ? q.ranks : 1;
    size_t few = q.ranks > FEW_RANKS ? 4 : 0; /* of many ranks, two counts and one of the buffers each */
    for (size_t i = few; i < sizeof counts / sizeof *counts; i++) {
        q.count = q.op == WH_COLL_ALL_TO_ALL ? counts[i] / q.ranks * q.ranks : counts[i];
        q.dtype = i % 2 ? WH_F32 : WH_BF16;
        q.root = (uint32_t)(i * 7 + 1) % roots;
        q.chunks = a->pipelined ? (uint32_t)i : 0;
        q.in_place = (i + q.ranks) % 2;
        prove(&q, a);
        q.in_place = !q.in_place;
        if (!few) prove(&q, a);
        if (q.op == WH_COLL_BARRIER) return;
    }
}

static void every_plan_is_right(void **state) {
    (void)state;
    for (int i = 0; wh_coll_algorithms[i]; i++)
        for (int op = 0; op < WH_COLL_OP_COUNT; op++)
            for (uint32_t n = 1; n <= RANKS_MAX; n++)
                for (uint32_t p = 0; p < n; p++) {
                    struct wh_coll_request q = {(enum wh_coll_op)op, n, .ranks_per_machine = p};
                    const struct wh_coll_algorithm *a = wh_coll_algorithms[i];
                    bool uses_machines = a->can != NULL;
                    if (p > 0 && !uses_machines) break;
                    if ((a->operations >> op & 1) && (n == 1 || !a->can || a->can(&q))) prove_shapes(q, a);
                }
}

/* All roots for the two rooted operations, few ranks. */
static void every_root_is_right(void **state) {
    (void)state;
    for (int i = 0; wh_coll_algorithms[i]; i++)
        for (uint32_t n = 2; n <= 12; n++)
            for (uint32_t root = 0; root < n; root++) {
                const struct wh_coll_algorithm *a = wh_coll_algorithms[i];
                struct wh_coll_request q = {WH_COLL_BROADCAST, n, root, 5000, WH_BF16, .chunks = 3};
                q.ranks_per_machine = n % 2 ? 3 : n / 2;
                if (!(a->operations >> WH_COLL_BROADCAST & 1) || (a->can && !a->can(&q))) continue;
                prove(&q, a);
                q.op = WH_COLL_REDUCE;
                prove(&q, a);
                q.in_place = true;
                prove(&q, a);
            }
}

/* Counts beyond 32 bits, with no more work. */
static void counts_are_64_bits_wide(void **state) {
    (void)state;
    for (int i = 0; wh_coll_algorithms[i]; i++)
        for (int op = 0; op < WH_COLL_BARRIER; op++) {
            struct wh_coll_request q = {(enum wh_coll_op)op, 12, 0, (((uint64_t)1 << 60) / 144 - 5) * 12, WH_BF16};
            q.ranks_per_machine = 4;
            if (wh_coll_algorithms[i]->operations >> op & 1) prove(&q, wh_coll_algorithms[i]);
            q.count -= q.op == WH_COLL_ALL_TO_ALL ? 12 : 7;
            if (wh_coll_algorithms[i]->operations >> op & 1) prove(&q, wh_coll_algorithms[i]);
        }
}

static void findings_are_right(void **state) {
    (void)state;
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 3, 0, 48, WH_F32};
    struct wh_coll_plan p;
    struct wh_coll_findings f;
    assert_int_equal(wh_coll_plan_new(&q, wh_coll_algorithm("ring"), &p), WH_OK);
    assert_int_equal(wh_coll_check(&p, NULL, &f), WH_OK);
    assert_string_equal(f.order_text.data,
                        "elements 0 .. 15: (0 + (1 + 2))\n"
                        "elements 16 .. 31: ((0 + 2) + 1)\n"
                        "elements 32 .. 47: ((0 + 1) + 2)\n");
    assert_int_equal(f.orders, 3);
    assert_true(f.same_on_ranks && !f.same_for_elements && !f.canonical);
    assert_int_equal(f.messages, 3 * 4);
    assert_int_equal(f.bytes, 3 * 4 * 16 * 4);
    assert_int_equal(f.bytes_max, 4 * 16 * 4);
    assert_int_equal(f.adds_max, 32);
    wh_coll_findings_free(&f);
    wh_coll_plan_free(&p);
}

/* Ways to break a step. Each returns false if it doesn't apply. */
static bool shorten(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    return s->count > 1 && s->count--;
}
static bool wrong_peer(struct wh_coll_step *s, uint32_t ranks) {
    s->peer = (s->peer + 1) % ranks;
    return s->kind <= WH_COLL_RECV;
}
static bool other_round(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    s->round++;
    return s->kind <= WH_COLL_RECV;
}
static bool double_add(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    s->right = s->left;
    return s->kind == WH_COLL_ADD;
}
static bool swap_operands(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    struct wh_coll_place left = s->left;
    s->left = s->right;
    s->right = left;
    return s->kind == WH_COLL_ADD;
}
static bool shift_out(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    s->out.first++;
    return s->kind != WH_COLL_SEND && s->count;
}
static bool shift_left(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    s->left.first++;
    return s->kind != WH_COLL_RECV && s->count;
}
static bool into_input(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    s->out.buffer = WH_COLL_IN;
    return s->kind != WH_COLL_SEND && s->count;
}
static bool other_format(struct wh_coll_step *s, uint32_t ranks) {
    (void)ranks;
    s->out.buffer = s->out.buffer == WH_COLL_PARTIAL ? WH_COLL_LANDING : WH_COLL_PARTIAL;
    return s->kind == WH_COLL_RECV && s->count;
}
static bool dropped(struct wh_coll_step *s, uint32_t ranks) {
    (void)s, (void)ranks;
    return true;
}

static const struct breakage {
    const char *name;
    bool (*apply)(struct wh_coll_step *s, uint32_t ranks);
    bool changes_order; /* the sum stays right; what the checker must see is another order */
} breakages[] = {
    {"dropped", dropped},           {"shorten", shorten},       {"wrong_peer", wrong_peer},
    {"other_round", other_round},   {"double_add", double_add}, {"swap_operands", swap_operands, true},
    {"shift_out", shift_out},       {"shift_left", shift_left}, {"into_input", into_input},
    {"other_format", other_format},
};

enum { BREAKAGES = sizeof breakages / sizeof *breakages };

struct dice {
    struct wh_rng rng;
    uint64_t thrown;
};

static uint32_t throw(struct dice * d, uint32_t below) { return wh_rng_u32(&d->rng, d->thrown++) % below; }

/* A random request that some algorithm serves. */
static const struct wh_coll_algorithm *random_request(struct dice *d, struct wh_coll_request *q) {
    for (;;) {
        const struct wh_coll_algorithm *a = wh_coll_algorithms[throw(d, 7)];
        *q = (struct wh_coll_request){(enum wh_coll_op) throw(d, WH_COLL_OP_COUNT), 3 + throw(d, 14)};
        q->root = throw(d, q->ranks);
        q->count = throw(d, 2) ? throw(d, 2000) : throw(d, 40);
        if (q->op == WH_COLL_ALL_TO_ALL) q->count *= q->ranks;
        q->dtype = throw(d, 2) ? WH_F32 : WH_BF16;
        q->in_place = throw(d, 2);
        q->chunks = throw(d, 5);
        q->ranks_per_machine = throw(d, 5);
        if (wh_coll_can(q, a) == WH_OK) return a;
    }
}

/* Breaks a random step; false if there was none to break. */
static bool break_plan(struct wh_coll_plan *p, const struct breakage *how, struct dice *d) {
    for (int tries = 0; tries < 50; tries++) {
        struct wh_coll_list *l = &p->rank[throw(d, p->request.ranks)];
        if (l->step_count == 0) continue;
        size_t at = throw(d, (uint32_t)l->step_count);
        struct wh_coll_step broken = l->steps[at];
        if (!how->apply(&broken, p->request.ranks)) continue;
        l->steps[at] = broken;
        if (how->apply == dropped) memmove(&l->steps[at], &l->steps[at + 1], (--l->step_count - at) * sizeof *l->steps);
        return true;
    }
    return false;
}

static void broken_plans_are_caught(void **state) {
    (void)state;
    struct dice d = {wh_rng_stream(7, WH_RNG_TEST, 0, 0)};
    uint32_t caught[BREAKAGES] = {0};
    for (int i = 0; i < 10000; i++) {
        struct wh_coll_request q;
        struct wh_coll_plan p;
        struct wh_coll_findings before, after;
        const struct breakage *how = &breakages[i % BREAKAGES];
        const struct wh_coll_algorithm *a = random_request(&d, &q);
        assert_int_equal(wh_coll_plan_new(&q, a, &p), WH_OK);
        assert_int_equal(wh_coll_check(&p, NULL, &before), WH_OK);
        if (break_plan(&p, how, &d)) {
            bool right = wh_coll_check(&p, NULL, &after) == WH_OK;
            if (how->changes_order ? !right || strcmp(before.order_text.data, after.order_text.data) == 0 : right)
                fail_msg("%s of %s %s, %u ranks, %llu elements, chunks %u%s was not caught", how->name, a->name,
                         wh_coll_op_name(q.op), q.ranks, (unsigned long long)q.count, q.chunks,
                         q.in_place ? ", in place" : "");
            if (right) assert_true(!a->canonical || !a->canonical(&q) || !after.canonical);
            if (right) wh_coll_findings_free(&after);
            caught[i % BREAKAGES]++;
        }
        wh_coll_findings_free(&before);
        wh_coll_plan_free(&p);
    }
    for (int i = 0; i < BREAKAGES; i++) assert_true(caught[i] > 150);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_is_right),     cmocka_unit_test(every_root_is_right),
        cmocka_unit_test(counts_are_64_bits_wide), cmocka_unit_test(findings_are_right),
        cmocka_unit_test(broken_plans_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
