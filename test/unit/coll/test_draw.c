#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/draw.h"

static void draw(const char *algorithm, const struct wh_coll_request *q, struct wh_coll_style style,
                 struct wh_text *out) {
    struct wh_coll_topology t = {.memory = {.latency_s = 1e-6, .bytes_per_s = 1e9}};
    struct wh_coll_plan p;
    assert_int_equal(wh_coll_plan_new(q, wh_coll_algorithm(algorithm), &p), WH_OK);
    assert_int_equal(wh_coll_draw(&p, &t, &style, NULL, NULL, out), WH_OK);
    wh_coll_plan_free(&p);
}

static const char three_ranks[] =
    "all-reduce over 3 ranks, binomial: the canonical tree, up and down; few rounds, whole vector in each\n"
    "1000 elements of F32, 4.00 kB\n"
    "(0 + 1) is the sum of what ranks 0 and 1 put in\n"
    "\n"
    "round 1 of 4, done after 5.00 us\n"
    "    1 -> 0   elements   0 .. 999  4.00 kB  1\n"
    "  rank 0 adds elements   0 .. 999: (0 + 1)\n"
    "\n"
    "round 2 of 4, done after 10.0 us\n"
    "    2 -> 0   elements   0 .. 999  4.00 kB  2\n"
    "  rank 0 adds elements   0 .. 999 -> result: ((0 + 1) + 2)\n"
    "\n"
    "round 3 of 4, done after 15.0 us\n"
    "    0 -> 2   elements   0 .. 999  4.00 kB  ((0 + 1) + 2)\n"
    "\n"
    "round 4 of 4, done after 19.0 us\n"
    "    0 -> 1   elements   0 .. 999  4.00 kB  ((0 + 1) + 2)\n"
    "\n"
    "4 rounds, 4 messages; the busiest rank sends 8.00 kB and adds 2000 elements; predicted 19.0 us\n"
    "order of summation:\n"
    "  elements 0 .. 999: ((0 + 1) + 2)\n"
    "numbers contract: kept\n"
    "  every element is the canonical tree over ranks, on all ranks that get it\n";

static void a_small_plan_whole(void **state) {
    (void)state;
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 3, 0, 1000, WH_F32};
    struct wh_text out = {0};
    draw("binomial", &q, (struct wh_coll_style){.plain = true}, &out);
    assert_string_equal(out.data, three_ranks);
    wh_text_fini(&out);
}

static void plain_is_ascii_and_color_is_not(void **state) {
    (void)state;
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 40, 0, 4000, WH_BF16};
    for (int i = 0; wh_coll_algorithms[i]; i++) {
        struct wh_text plain = {0}, color = {0};
        if (wh_coll_can(&q, wh_coll_algorithms[i]) != WH_OK) continue;
        draw(wh_coll_algorithms[i]->name, &q, (struct wh_coll_style){.plain = true}, &plain);
        draw(wh_coll_algorithms[i]->name, &q, (struct wh_coll_style){.color = true}, &color);
        for (size_t c = 0; c < plain.bytes; c++)
            assert_true(plain.data[c] == '\n' || (plain.data[c] >= ' ' && plain.data[c] < 127));
        assert_non_null(strstr(color.data, "\033["));
        assert_non_null(strstr(color.data, "→"));
        wh_text_fini(&plain);
        wh_text_fini(&color);
    }
}

static void long_plans_are_cut(void **state) {
    (void)state;
    struct wh_coll_request q = {WH_COLL_ALL_GATHER, 10, 0, 1000, WH_F32};
    struct wh_text out = {0};
    draw("ring", &q, (struct wh_coll_style){.plain = true, .lines_max = 7}, &out);
    assert_non_null(strstr(out.data, "  ... and 93 lines more\n"));
    wh_text_clear(&out);
    draw("ring", &q, (struct wh_coll_style){.plain = true, .one_rank = true, .rank = 3}, &out);
    assert_non_null(strstr(out.data, "    2 -> 3 "));
    assert_non_null(strstr(out.data, "    3 -> 4 "));
    assert_null(strstr(out.data, "    4 -> 5 "));
    assert_non_null(strstr(out.data, "nothing is added"));
    wh_text_fini(&out);
}

static void units_are_rounded_once(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *seconds, *bytes;
    } cases[] = {{0, "0.00 ns", "0 B"},           {999, "999 s", "999 B"},    {1e-6, "1.00 us", "0 B"},
                 {9.996e-3, "10.0 ms", "0 B"},    {1e3, "1000 s", "1.00 kB"}, {33554432, "33554432 s", "33.6 MB"},
                 {999.9e3, "999900 s", "1.00 MB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wh_text t = {0};
        wh_coll_draw_seconds(cases[i].value, &t);
        assert_string_equal(t.data, cases[i].seconds);
        wh_text_clear(&t);
        wh_coll_draw_bytes(cases[i].value, &t);
        assert_string_equal(t.data, cases[i].bytes);
        wh_text_fini(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_plan_whole),
        cmocka_unit_test(plain_is_ascii_and_color_is_not),
        cmocka_unit_test(long_plans_are_cut),
        cmocka_unit_test(units_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
