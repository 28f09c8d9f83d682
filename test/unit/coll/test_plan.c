/* Slices, names, refusals, and the closed forms of steps and bytes that the literature gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/check.h"

static void cuts_cover_the_range(void **state) {
    (void)state;
    for (uint32_t parts = 1; parts <= 20; parts++)
        for (uint64_t count = 0; count < 400; count++) {
            uint64_t at = 5, largest = wh_coll_cut((struct wh_coll_range){5, count}, WH_F32, parts, 0).count;
            for (uint32_t i = 0; i < parts; i++) {
                struct wh_coll_range r = wh_coll_cut((struct wh_coll_range){5, count}, WH_F32, parts, i);
                assert_int_equal(r.first, at);
                assert_true(r.count <= largest);
                if (count % parts == 0) assert_int_equal(r.count, count / parts);
                if (count % parts && r.count && at + r.count < 5 + count) assert_int_equal(r.count % 16, 0);
                at += r.count;
            }
            assert_int_equal(at, 5 + count);
        }
}

static void names_are_found(void **state) {
    (void)state;
    enum wh_coll_op op;
    assert_true(wh_coll_op_from_name("allreduce", &op) && op == WH_COLL_ALL_REDUCE);
    assert_true(wh_coll_op_from_name("all_to_all", &op) && op == WH_COLL_ALL_TO_ALL);
    assert_true(wh_coll_op_from_name("reduce-scatter", &op) && op == WH_COLL_REDUCE_SCATTER);
    assert_false(wh_coll_op_from_name("all-reduc", &op));
    assert_false(wh_coll_op_from_name("", &op));
    assert_string_equal(wh_coll_algorithm("halving-doubling")->name, "halving_doubling");
    assert_null(wh_coll_algorithm("rings"));
}

static void refusals_say_what_would_do(void **state) {
    (void)state;
    struct wh_coll_plan p;
    struct wh_coll_request q = {WH_COLL_ALL_TO_ALL, 3, 5, 10, WH_F32};
    assert_int_equal(wh_coll_plan_new(&q, wh_coll_algorithm("ring"), &p), WH_UNSUPPORTED);
    assert_non_null(strstr(wh_error()->message, "root 5: ranks are numbered 0 to 2"));
    assert_non_null(strstr(wh_error()->message, "9 or 12 do"));
    assert_non_null(strstr(wh_error()->message, "ring does not do all-to-all; these would: direct, bruck"));
    q = (struct wh_coll_request){WH_COLL_ALL_REDUCE, 6, 0, 10, WH_F32, .ranks_per_machine = 4};
    assert_int_equal(wh_coll_can(&q, wh_coll_algorithm("two_level")), WH_UNSUPPORTED);
    assert_non_null(strstr(wh_error()->message, "ranks_per_machine of two or more that divides"));
}

struct form {
    const char *algorithm;
    enum wh_coll_op op;
    uint64_t rounds, messages, bytes_max; /* of all ranks; of one */
    bool bytes_equal;                     /* all ranks send as much */
};

static void assert_form(const struct form *form, const struct wh_coll_request *q) {
    struct wh_coll_plan p;
    struct wh_coll_findings f;
    assert_int_equal(wh_coll_plan_new(q, wh_coll_algorithm(form->algorithm), &p), WH_OK);
    assert_int_equal(wh_coll_check(&p, NULL, &f), WH_OK);
    if (p.rounds != form->rounds || f.messages != form->messages || f.bytes_max != form->bytes_max)
        fail_msg("%s %s over %u: rounds %u, messages %llu, bytes %llu; the closed form says %llu, %llu, %llu",
                 form->algorithm, wh_coll_op_name(q->op), q->ranks, p.rounds, (unsigned long long)f.messages,
                 (unsigned long long)f.bytes_max, (unsigned long long)form->rounds, (unsigned long long)form->messages,
                 (unsigned long long)form->bytes_max);
    if (form->bytes_equal) assert_int_equal(f.bytes, q->ranks * f.bytes_max);
    wh_coll_findings_free(&f);
    wh_coll_plan_free(&p);
}

static uint32_t log2_up(uint32_t n) {
    uint32_t l = 0;
    while (1u << l < n) l++;
    return l;
}

/* S bytes a vector, n divides it. */
static void closed_forms_for_all_counts_of_ranks(void **state) {
    (void)state;
    for (uint64_t n = 2; n <= 40; n++) {
        uint64_t slice = 12 * 4, S = n * slice, l = log2_up((uint32_t)n), tree_bytes = (n < 4 ? n : 4) * S / 2;
        const struct form forms[] = {
            {"ring", WH_COLL_ALL_REDUCE, 2 * (n - 1), 2 * n * (n - 1), 2 * (n - 1) * slice, true},
            {"ring", WH_COLL_REDUCE_SCATTER, n - 1, n * (n - 1), (n - 1) * slice, true},
            {"ring", WH_COLL_ALL_GATHER, n - 1, n * (n - 1), (n - 1) * slice, true},
            {"direct", WH_COLL_ALL_REDUCE, 2, 2 * n * (n - 1), 2 * (n - 1) * slice, true},
            {"direct", WH_COLL_REDUCE_SCATTER, 1, n * (n - 1), (n - 1) * slice, true},
            {"direct", WH_COLL_ALL_GATHER, 1, n * (n - 1), (n - 1) * slice, true},
            {"direct", WH_COLL_ALL_TO_ALL, 1, n * (n - 1), (n - 1) * slice, true},
            {"direct", WH_COLL_BROADCAST, 1, n - 1, (n - 1) * S, false},
            {"direct", WH_COLL_REDUCE, 1, n - 1, S, false},
            {"direct", WH_COLL_BARRIER, 1, n * (n - 1), 0, true},
            {"binomial", WH_COLL_BROADCAST, l, n - 1, l * S, false},
            {"binomial", WH_COLL_REDUCE, l, n - 1, S, false},
            {"binomial", WH_COLL_ALL_REDUCE, 2 * l, 2 * (n - 1), l * S, false},
            {"bruck", WH_COLL_ALL_GATHER, l, n * l, (n - 1) * slice, true},
            {"bruck", WH_COLL_BARRIER, l, n * l, 0, true},
            {"double_tree", WH_COLL_ALL_REDUCE, 2 * l, 4 * (n - 1), tree_bytes, false},
        };
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct wh_coll_request q = {forms[i].op, (uint32_t)n, 0, n * 12, WH_F32};
            assert_form(&forms[i], &q);
        }
    }
}

static void closed_forms_for_powers_of_two(void **state) {
    (void)state;
    for (uint64_t l = 1, n = 2; n <= 64; n *= 2, l++) {
        uint64_t slice = 16 * 4;
        const struct form forms[] = {
            {"halving_doubling", WH_COLL_ALL_REDUCE, 2 * l, 2 * l * n, 2 * (n - 1) * slice, true},
            {"halving_doubling", WH_COLL_REDUCE_SCATTER, l + 1, l * n, (n - 1) * slice, true},
            {"halving_doubling", WH_COLL_ALL_GATHER, l + 1, l * n, (n - 1) * slice, true},
            {"bruck", WH_COLL_ALL_TO_ALL, l + 1, l * n, l * n / 2 * slice, true},
        };
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct wh_coll_request q = {forms[i].op, (uint32_t)n, 0, n * 16, WH_F32};
            assert_form(&forms[i], &q);
        }
    }
}

/* k pieces: k - 1 more rounds; every rank of a double tree sends at most 2 S. */
static void pipelines_add_a_round_a_piece(void **state) {
    (void)state;
    for (uint32_t k = 1; k <= 8; k++) {
        struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 16, 0, 16 * 8 * 1680, WH_F32, .chunks = k};
        uint64_t S = q.count * 4;
        assert_form(&(struct form){"double_tree", q.op, 8 + k - 1, 4 * 15 * k, 2 * S, false}, &q);
        assert_form(&(struct form){"binomial", q.op, 8 + k - 1, 2 * 15 * k, 4 * S, false}, &q);
    }
}

/* Partial sums of bf16 travel as fp32: reducing costs twice the bytes of gathering. */
static void bf16_sums_travel_as_fp32(void **state) {
    (void)state;
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 4, 0, 4 * 32, WH_BF16};
    uint64_t slice = 32;
    assert_form(&(struct form){"direct", q.op, 2, 24, 2 * 3 * slice * 2, true}, &q);
    assert_form(&(struct form){"ring", q.op, 6, 24, slice * (1 * 2 + 2 * 4 + 3 * 2), true}, &q);
    assert_form(&(struct form){"halving_doubling", q.op, 4, 16, slice * (2 * 2 + 1 * 4 + 3 * 2), true}, &q);
}

/* Two levels, m machines of p: what crosses machines is 2 (m-1)/m S/p for each rank. */
static void two_levels_save_the_network(void **state) {
    (void)state;
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 12, 0, 12 * 100, WH_F32, .ranks_per_machine = 4};
    struct wh_coll_plan p;
    uint64_t across = 0;
    assert_int_equal(wh_coll_plan_new(&q, wh_coll_algorithm("two_level"), &p), WH_OK);
    assert_int_equal(p.rounds, 4);
    for (size_t i = 0; i < p.rank[5].step_count; i++) {
        const struct wh_coll_step *s = &p.rank[5].steps[i];
        if (s->kind == WH_COLL_SEND && s->peer / 4 != 5 / 4) across += s->count;
    }
    assert_int_equal(across, 2 * 2 * q.count / (3 * 4));
    wh_coll_plan_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_cover_the_range),           cmocka_unit_test(names_are_found),
        cmocka_unit_test(refusals_say_what_would_do),     cmocka_unit_test(closed_forms_for_all_counts_of_ranks),
        cmocka_unit_test(closed_forms_for_powers_of_two), cmocka_unit_test(pipelines_add_a_round_a_piece),
        cmocka_unit_test(bf16_sums_travel_as_fp32),       cmocka_unit_test(two_levels_save_the_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
