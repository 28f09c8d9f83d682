/* Every schedule is proved by the checker for all sizes, keeps what was published, and takes the published time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "sched/check.h"
#include "sched/timing.h"

#ifdef __SANITIZE_ADDRESS__
enum { RANKS_MAX = 9, MICRO_BATCHES_MAX = 20, CHUNKS_MAX = 3 };
#else
enum { RANKS_MAX = 16, MICRO_BATCHES_MAX = 64, CHUNKS_MAX = 4 };
#endif

enum { UNLIMITED = 1 << 30 };
static const struct wh_sched_cost costs[] = {{1, 2, 1, 1}, {1, 1, 0.5, 0.5}, {1, 3, 1.5, 1.5}, {2, 3, 2, 1}};

static struct wh_sched_plan plan_of(const char *name, uint32_t p, uint32_t m, uint32_t v) {
    struct wh_sched_request q = {p, m, v};
    struct wh_sched_plan plan;
    if (wh_sched_plan_new(&q, wh_sched_generator(name), &plan) != WH_OK) fail_msg("%s", wh_error()->message);
    return plan;
}

static void prove(const struct wh_sched_plan *p, uint32_t depth) {
    struct wh_faults faults = {0};
    if (!wh_sched_check(p, depth, NULL, &faults))
        fail_msg("%s ranks %u micro-batches %u chunks %u depth %u:\n%s", p->generator->name, p->shape.ranks,
                 p->shape.micro_batches, p->shape.chunks, depth, faults.text.data);
}

static void keeps_what_was_published(const struct wh_sched_plan *p) {
    bool v = p->shape.placement == WH_SCHED_V;
    for (uint32_t r = 0; r < p->shape.ranks; r++) {
        uint32_t published = p->generator->resident(&p->shape, r);
        /* In the V an input may arrive while the last slot that it will find free is still taken. */
        if (p->rank[r].resident > published || p->rank[r].act_slots > p->rank[r].resident + v)
            fail_msg("%s ranks %u micro-batches %u chunks %u, rank %u: %u resident, %u slots, published %u",
                     p->generator->name, p->shape.ranks, p->shape.micro_batches, p->shape.chunks, r,
                     p->rank[r].resident, p->rank[r].act_slots, published);
        if (strcmp(p->generator->name, "interleaved") != 0 || p->shape.micro_batches % p->shape.ranks == 0)
            assert_int_equal(p->rank[r].resident, published);
    }
}

static bool near(double a, double b) { return a - b < 1e-12 && b - a < 1e-12; }

static void takes_what_was_published(const struct wh_sched_plan *p, const struct wh_sched_cost *c) {
    struct wh_sched_timing t, free_running;
    double published = p->generator->idle(&p->shape, c);
    assert_int_equal(wh_sched_time(p, c, WH_SCHED_DEPTH, &t), WH_OK);
    assert_int_equal(wh_sched_time(p, c, UNLIMITED, &free_running), WH_OK);
    if (t.makespan != free_running.makespan || (published >= 0 && !near(t.idle, published)))
        fail_msg(
            "%s ranks %u micro-batches %u chunks %u costs %g %g %g %g: idle %.6f, published %.6f; takes %g, with "
            "unlimited queues %g",
            p->generator->name, p->shape.ranks, p->shape.micro_batches, p->shape.chunks, c->forward, c->backward,
            c->input, c->weight, t.idle, published, t.makespan, free_running.makespan);
    wh_sched_timing_free(&t);
    wh_sched_timing_free(&free_running);
}

static void every_schedule_is_right(void **state) {
    (void)state;
    for (int i = 0; wh_sched_generators[i]; i++) {
        const struct wh_sched_generator *g = wh_sched_generators[i];
        for (uint32_t p = 1; p <= RANKS_MAX; p++)
            for (uint32_t m = 1; m <= MICRO_BATCHES_MAX; m++)
                for (uint32_t v = g->chunks_min; v <= g->chunks_max && v <= CHUNKS_MAX; v++) {
                    struct wh_sched_plan plan = plan_of(g->name, p, m, v);
                    prove(&plan, WH_SCHED_DEPTH);
                    keeps_what_was_published(&plan);
                    for (size_t k = 0; k < sizeof costs / sizeof *costs; k++)
                        takes_what_was_published(&plan, &costs[k]);
                    wh_sched_plan_free(&plan);
                }
    }
}

static void goldens(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t p, m, v;
        double backward, makespan, idle;
    } rows[] = {
        {"1f1b", 4, 8, 1, 1, 22, 3.0 / 11},        {"1f1b", 4, 8, 1, 2, 33, 3.0 / 11},    /* LAB g10 */
        {"1f1b", 4, 57, 1, 2, 180, 0.05},          {"gpipe", 4, 57, 1, 2, 180, 0.05},     /* g11 */
        {"1f1b", 8, 32, 1, 2, 117, 7.0 / 39},      {"gpipe", 8, 32, 1, 2, 117, 7.0 / 39}, /* case B83 */
        {"1f1b", 4, 64, 1, 2, 201, 3.0 / 67},      {"1f1b", 4, 16, 1, 2, 57, 3.0 / 19},   /* B81 */
        {"1f1b", 12, 128, 1, 2, 417, 11.0 / 139},  {"1f1b", 12, 12, 1, 2, 69, 11.0 / 23}, /* B79 */
        {"interleaved", 4, 8, 2, 2, 57, 3.0 / 19}, {"zb-h1", 4, 8, 1, 2, 27, 3.0 / 27},
        {"zb-v", 4, 8, 2, 2, 51, 3.0 / 51},        {"1f1b", 1, 1, 1, 2, 3, 0},
        {"1f1b", 2, 8, 1, 2, 27, 1.0 / 9},         {"1f1b", 3, 8, 1, 2, 30, 2.0 / 10}, /* g12 */
        {"1f1b", 5, 8, 1, 2, 36, 4.0 / 12},        {"1f1b", 6, 8, 1, 2, 39, 5.0 / 13},
        {"1f1b", 7, 8, 1, 2, 42, 6.0 / 14},        {"1f1b", 8, 8, 1, 2, 45, 7.0 / 15},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wh_sched_plan p = plan_of(rows[i].name, rows[i].p, rows[i].m, rows[i].v);
        struct wh_sched_cost c = {1, rows[i].backward, rows[i].backward / 2, rows[i].backward / 2};
        struct wh_sched_timing t;
        assert_int_equal(wh_sched_time(&p, &c, WH_SCHED_DEPTH, &t), WH_OK);
        assert_true(t.makespan == rows[i].makespan);
        if (t.idle != rows[i].idle) fail_msg("row %zu: idle %.17g, not %.17g", i, t.idle, rows[i].idle);
        wh_sched_timing_free(&t);
        wh_sched_plan_free(&p);
    }
}

static void expect_resident(const char *name, uint32_t p, uint32_t m, uint32_t v, const uint32_t *want) {
    struct wh_sched_plan plan = plan_of(name, p, m, v);
    for (uint32_t r = 0; r < p; r++) assert_int_equal(plan.rank[r].resident, want[r]);
    wh_sched_plan_free(&plan);
}

static void residents(void **state) {
    (void)state;
    expect_resident("1f1b", 8, 32, 1, (const uint32_t[]){8, 7, 6, 5, 4, 3, 2, 1}); /* B83 */
    expect_resident("gpipe", 8, 32, 1, (const uint32_t[]){32, 32, 32, 32, 32, 32, 32, 32});
    expect_resident("1f1b", 4, 57, 1, (const uint32_t[]){4, 3, 2, 1}); /* LAB g13 */
    expect_resident("gpipe", 4, 57, 1, (const uint32_t[]){57, 57, 57, 57});
    expect_resident("1f1b", 4, 2, 1, (const uint32_t[]){2, 2, 2, 1});
    expect_resident("interleaved", 4, 8, 2, (const uint32_t[]){11, 9, 7, 5});
    expect_resident("zb-h1", 4, 8, 1, (const uint32_t[]){4, 4, 4, 4});
    expect_resident("zb-v", 4, 8, 2, (const uint32_t[]){8, 8, 8, 8});
}

/* What interpreters must offer. Rendezvous is enough for GPipe, one message for the other schedules of one chunk and, but on
 * two ranks, for interleaved. */
static void depths(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t v, depth;
    } rows[] = {{"gpipe", 1, 0}, {"1f1b", 1, 1}, {"zb-h1", 1, 1}, {"interleaved", 2, 2}, {"zb-v", 2, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wh_sched_plan p = plan_of(rows[i].name, 2, 8, rows[i].v);
        struct wh_faults faults = {0};
        prove(&p, rows[i].depth);
        assert_true(rows[i].depth == 0 || !wh_sched_check(&p, rows[i].depth - 1, NULL, &faults));
        assert_true(rows[i].depth == 0 || strstr(faults.text.data, "waits in a circle"));
        wh_text_fini(&faults.text);
        wh_sched_plan_free(&p);
        for (uint32_t ranks = 1; ranks <= 8; ranks++)
            for (uint32_t m = 1; m <= 20; m++) {
                p = plan_of(rows[i].name, ranks, m, rows[i].v);
                prove(&p, strcmp(rows[i].name, "interleaved") == 0 && ranks != 2 ? 1 : rows[i].depth);
                wh_sched_plan_free(&p);
            }
    }
}

static void chunks_and_sizes_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t p, m, v;
        const char *says;
    } rows[] = {
        {"1f1b", 4, 8, 2, "schedule 1f1b has 1 chunk per rank, not 2"},
        {"interleaved", 4, 8, 1, "schedule interleaved has 2 to 26 chunks per rank, not 1"},
        {"zb-v", 4, 8, 3, "schedule zb-v has 2 chunks per rank, not 3"},
        {"1f1b", 0, 8, 1, "0 ranks: 1 to 4096 are legal"},
        {"1f1b", 0, 0, 99,
         "0 ranks: 1 to 4096 are legal; 0 micro-batches: 1 to 1048576 are legal; 99 chunks: 1 to 26 are "
         "legal"},
        {"1f1b", 4096, 1 << 20, 1, "4096 ranks * 1048576 micro-batches * 1 chunks: 16777216 blocks are the most"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wh_sched_request q = {rows[i].p, rows[i].m, rows[i].v};
        struct wh_sched_plan p;
        assert_int_equal(wh_sched_plan_new(&q, wh_sched_generator(rows[i].name), &p), WH_CONFIG);
        assert_string_equal(wh_error()->message, rows[i].says);
    }
    assert_ptr_equal(wh_sched_generator("ZB_H1"), wh_sched_generator("zb-h1"));
    assert_ptr_equal(wh_sched_generator("afab"), wh_sched_generator("gpipe"));
    assert_null(wh_sched_generator("1f1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_is_right),
        cmocka_unit_test(goldens),
        cmocka_unit_test(residents),
        cmocka_unit_test(depths),
        cmocka_unit_test(chunks_and_sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
