#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/select.h"

static const struct wh_coll_candidate *find(const struct wh_coll_ranking *r, const char *name) {
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->items[i].algorithm->name, name) == 0) return &r->items[i];
    fail_msg("%s is missing", name);
    return NULL;
}

static const char *best(enum wh_coll_op op, uint32_t ranks, uint64_t count, const struct wh_coll_topology *t,
                        bool fast) {
    struct wh_coll_request q = {op, ranks, 0, count, WH_F32};
    struct wh_coll_ranking r;
    assert_int_equal(wh_coll_select(&q, t, &(struct wh_coll_limits){fast, UINT64_MAX}, &r), WH_OK);
    const char *name = r.items[0].algorithm->name;
    assert_true(r.items[0].usable);
    for (size_t i = 1; i < r.count; i++) {
        if (r.items[i].usable) assert_true(r.items[i - 1].usable && r.items[i - 1].seconds <= r.items[i].seconds);
        assert_true(r.items[i].reason.bytes > 0);
        assert_null(strchr(r.items[i].reason.data, '\n'));
    }
    wh_coll_ranking_free(&r);
    return name;
}

/* What is best follows from the figures, whatever they are. */
static void choice_follows_the_figures(void **state) {
    (void)state;
    struct wh_coll_topology t = {.ranks_per_machine = 1, .network = {1e-6, 0, 10e9}, .memory = {0, 0, 1e12}};
    assert_string_equal(best(WH_COLL_ALL_REDUCE, 16, 1 << 24, &t, false), "direct");
    t.network.message_s = 100e-6; /* messages are dear: fewest of them */
    assert_string_equal(best(WH_COLL_ALL_REDUCE, 16, 1 << 24, &t, false), "halving_doubling");
    assert_string_equal(best(WH_COLL_ALL_REDUCE, 13, 16, &t, false), "binomial");
    assert_string_equal(best(WH_COLL_BARRIER, 16, 0, &t, false), "bruck");
    t = wh_coll_topology_typical(4);
    assert_string_equal(best(WH_COLL_ALL_REDUCE, 20, 1 << 24, &t, false), "two_level");
}

static void contract_comes_before_speed(void **state) {
    (void)state;
    struct wh_coll_topology t = {.ranks_per_machine = 1, .network = {1e-6, 50e-6, 10e9}, .memory = {0, 0, 1e12}};
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 11, 0, 11 << 16, WH_F32};
    struct wh_coll_ranking r;
    assert_int_equal(wh_coll_select(&q, &t, &(struct wh_coll_limits){false, UINT64_MAX}, &r), WH_OK);
    assert_false(find(&r, "ring")->usable);
    assert_true(find(&r, "ring")->seconds > 0);
    assert_non_null(strstr(find(&r, "ring")->reason.data, "not the contract's"));
    assert_false(find(&r, "two_level")->usable);
    assert_non_null(strstr(find(&r, "bruck")->reason.data, "does not do all-reduce"));
    for (size_t i = 0; i < r.count && r.items[i].usable; i++) assert_true(r.items[i].canonical);
    wh_coll_ranking_free(&r);
    assert_int_equal(wh_coll_select(&q, &t, &(struct wh_coll_limits){true, UINT64_MAX}, &r), WH_OK);
    assert_true(find(&r, "ring")->usable && !find(&r, "ring")->canonical);
    wh_coll_ranking_free(&r);
    q.op = WH_COLL_ALL_GATHER; /* nothing is added: everything may be used */
    assert_int_equal(wh_coll_select(&q, &t, &(struct wh_coll_limits){false, UINT64_MAX}, &r), WH_OK);
    assert_true(find(&r, "ring")->usable && find(&r, "bruck")->usable);
    wh_coll_ranking_free(&r);
}

static void pieces_are_chosen(void **state) {
    (void)state;
    struct wh_coll_topology t = {.ranks_per_machine = 1, .network = {5e-6, 0, 50e9}, .memory = {0, 0, 1e12}};
    struct wh_coll_request q = {WH_COLL_BROADCAST, 16, 3, 1 << 22, WH_F32};
    struct wh_coll_ranking r;
    assert_int_equal(wh_coll_select(&q, &t, &(struct wh_coll_limits){false, UINT64_MAX}, &r), WH_OK);
    assert_string_equal(r.items[0].algorithm->name, "double_tree");
    assert_true(r.items[0].request.chunks > 1 && r.items[0].request.chunks < 256);
    wh_coll_ranking_free(&r);
    q.count = 4;
    assert_int_equal(wh_coll_select(&q, &t, &(struct wh_coll_limits){false, UINT64_MAX}, &r), WH_OK);
    assert_int_equal(find(&r, "double_tree")->request.chunks, 1);
    wh_coll_ranking_free(&r);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    struct wh_coll_topology t = wh_coll_topology_typical(0);
    struct wh_coll_request q = {WH_COLL_REDUCE, 4, 4, 10, WH_F32};
    struct wh_coll_ranking r;
    assert_int_equal(wh_coll_select(&q, &t, &(struct wh_coll_limits){true, UINT64_MAX}, &r), WH_UNSUPPORTED);
    assert_non_null(strstr(wh_error()->message, "root 4: ranks are numbered 0 to 3"));
    assert_string_equal(best(WH_COLL_ALL_REDUCE, 1, 10, &t, false), "direct");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice_follows_the_figures),
        cmocka_unit_test(contract_comes_before_speed),
        cmocka_unit_test(pieces_are_chosen),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
