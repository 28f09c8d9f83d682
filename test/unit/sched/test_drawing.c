#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "sched/draw.h"

static const struct wh_sched_cost cost = {1, 2, 1, 1};

struct drawn {
    struct wh_sched_plan plan;
    struct wh_sched_timing timing;
    struct wh_text text;
};

static void prepare(struct drawn *d, const char *name, uint32_t p, uint32_t m, uint32_t v) {
    struct wh_sched_request q = {p, m, v};
    *d = (struct drawn){0};
    assert_int_equal(wh_sched_plan_new(&q, wh_sched_generator(name), &d->plan), WH_OK);
    assert_int_equal(wh_sched_time(&d->plan, &cost, WH_SCHED_DEPTH, &d->timing), WH_OK);
}

static void done(struct drawn *d) {
    wh_text_fini(&d->text);
    wh_sched_timing_free(&d->timing);
    wh_sched_plan_free(&d->plan);
}

static void expect_chart(const char *name, uint32_t p, uint32_t m, uint32_t v, struct wh_sched_style style,
                         const char *want) {
    struct drawn d;
    prepare(&d, name, p, m, v);
    wh_sched_draw(&d.plan, &cost, &d.timing, v, &style, &d.text);
    if (strcmp(d.text.data, want) != 0) fail_msg("got:\n%s\nwanted:\n%s", d.text.data, want);
    done(&d);
}

/* The pictures in the generators' headers. */
static void charts(void **state) {
    (void)state;
    expect_chart("gpipe", 3, 4, 1, (struct wh_sched_style){0},
                 "  time  0              5              10             15\n"
                 "rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B0--- B1--- B2--- B3---\n"
                 "rank 1  .  F0 F1 F2 F3 .  .  .  B0--- B1--- B2--- B3--- .  .\n"
                 "rank 2  .  .  F0 F1 F2 F3 B0--- B1--- B2--- B3--- .  .  .  .\n");
    expect_chart("1f1b", 3, 4, 1, (struct wh_sched_style){0},
                 "  time  0              5              10             15\n"
                 "rank 0  F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---\n"
                 "rank 1  .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .\n"
                 "rank 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .\n");
    expect_chart("zb-h1", 3, 4, 1, (struct wh_sched_style){0},
                 "  time  0              5              10\n"
                 "rank 0  F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3\n"
                 "rank 1  .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3\n"
                 "rank 2  .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3\n");
}

/* Cut between blocks; the second chunk's blocks carry a letter. */
static void strips(void **state) {
    (void)state;
    expect_chart("zb-v", 2, 3, 2, (struct wh_sched_style){.columns = 50},
                 "  time  0               2               4\n"
                 "rank 0  F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a\n"
                 "rank 1  .   F0a F0b F1a F1b B0b W0b F2a B0a W0a\n"
                 "\n"
                 "  time          6               8\n"
                 "rank 0  W0a F2b B2b W2b B1a W1a B2a W2a .\n"
                 "rank 1  F2b B1b W1b B1a B2b B2a W1a W2b W2a\n");
}

static void colors(void **state) {
    (void)state;
    expect_chart("1f1b", 1, 1, 1, (struct wh_sched_style){.color = true},
                 "  time  0\nrank 0  \033[44;97mF0\033[0m \033[42;30mB0---\033[0m \033[0m\n");
}

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* Every block once, inside the picture, none over another one of its row. */
static void svg(void **state) {
    (void)state;
    struct drawn d;
    prepare(&d, "zb-v", 4, 8, 2);
    wh_sched_svg(&d.plan, &cost, &d.timing, 2, &d.text);
    const char *s = d.text.data;
    int width = 0, height = 0, last_y = -1;
    double end = 0;
    assert_int_equal(sscanf(s, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", &width, &height),
                     2);
    assert_int_equal(count(s, "<rect class=\"f\"") + count(s, "<rect class=\"b\"") + count(s, "<rect class=\"w\""),
                     4 * 8 * 2 * 3 + 3); /* and the legend */
    assert_int_equal(count(s, "<title>"), 4 * 8 * 2 * 3 + 1);
    assert_int_equal(count(s, "keeps 8, idle 5.88 %"), 4);
    assert_int_equal(count(s, "takes 25.5, idle 5.88 %"), 1);
    for (const char *at = s; (at = strstr(at, "<rect class=\"")); at++) {
        double x, w;
        char kind;
        int y, h;
        assert_int_equal(
            sscanf(at, "<rect class=\"%c\" x=\"%lf\" y=\"%d\" width=\"%lf\" height=\"%d\"", &kind, &x, &y, &w, &h), 5);
        assert_true(x >= 0 && x + w <= width && y >= 0 && y + h <= height && w > 0);
        if (kind == 'i') continue;
        assert_true(y != last_y || x >= end - 0.011);
        last_y = y, end = x + w;
    }
    assert_string_equal(s + d.text.bytes - 7, "</svg>\n");
    done(&d);
}

/* Where there is room for a picture of that size, every block says what it is. */
static void svg_labels(void **state) {
    (void)state;
    static const struct {
        const char *schedule;
        uint32_t micro_batches, chunks;
    } cases[] = {{"gpipe", 8, 1}, {"1f1b", 100, 1}, {"interleaved", 16, 4}, {"zb-h1", 12, 1}, {"zb-v", 11, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct drawn d;
        prepare(&d, cases[i].schedule, 4, cases[i].micro_batches, cases[i].chunks);
        wh_sched_svg(&d.plan, &cost, &d.timing, 2, &d.text);
        const size_t blocks = count(d.text.data, "<title>") - 1, times = count(d.text.data, "<line class=\"m\"");
        assert_int_equal(count(d.text.data, "<text class=\"l\""), blocks + times);
        done(&d);
    }
}

/* Blocks of odd lengths, and more of them than columns: nothing overflows. */
static void any_cost(void **state) {
    (void)state;
    static const struct wh_sched_cost costs[] = {
        {1, 0.3, 0.2, 0.1}, {1, 1e-3, 5e-4, 5e-4}, {1, 1000, 999, 1}, {0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        struct drawn d;
        prepare(&d, "zb-h1", 4, 40, 1);
        wh_sched_timing_free(&d.timing);
        assert_int_equal(wh_sched_time(&d.plan, &costs[i], WH_SCHED_DEPTH, &d.timing), WH_OK);
        wh_sched_draw(&d.plan, &costs[i], &d.timing, 1, &(struct wh_sched_style){.columns = 80}, &d.text);
        for (const char *line = d.text.data; line; line = strchr(line, '\n'), line += line != NULL)
            assert_true(strcspn(line, "\n") <= 80);
        wh_sched_svg(&d.plan, &costs[i], &d.timing, 1, &d.text);
        done(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charts), cmocka_unit_test(strips),     cmocka_unit_test(colors),
        cmocka_unit_test(svg),    cmocka_unit_test(svg_labels), cmocka_unit_test(any_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
