/* The timeline's file, from events with times of our own: it is JSON, blocks lie where they belong, and idle shares are those
 * that can be counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after its needs */
#include <cmocka.h>
#include <jansson.h>

#include "os/file.h"
#include "run/trace_int.h"
#include "sched/timing.h"

enum { RANKS = 2, STEP = 7, UNIT_NS = 1000000 };

static char path[] = "/tmp/wh_trace_XXXXXX";
static struct wh_config config;
static struct wh_stage stage;

static int set_up(void **state) {
    static const char text[] =
        "model: {model_config: {model_type: gpt2, n_embd: 16, n_layer: 4, n_head: 2, vocab_size: 256}}\n"
        "data: {train: a}\nparallelism: {pp: 2}\n"
        "tokens: {global_batch_size: 4, micro_batch_size: 1, sequence_length: 8, train_steps: 9}\n";
    struct wh_faults faults = {0};
    (void)state;
    wh_config_parse(text, sizeof text - 1, "test.yaml", NULL, 0, &config, &faults);
    wh_config_check(&config, &faults);
    close(mkstemp(path));
    return faults.count || wh_stage_new(&config, 0, &stage) != WH_OK;
}

static int tear_down(void **state) {
    (void)state;
    wh_stage_free(&stage);
    wh_config_free(&config);
    return unlink(path);
}

/* The program of every rank, as sched/timing.h would run it with these times of a forward and a backward, in units. */
static void fill(struct wh_trace_part *part, double forward, double backward) {
    const struct wh_sched_cost cost = {.forward = forward * UNIT_NS, .backward = backward * UNIT_NS};
    struct wh_sched_timing t;
    assert_int_equal(wh_sched_time(&stage.plan, &cost, WH_SCHED_DEPTH, &t), WH_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct wh_sched_program *p = &stage.plan.rank[r];
        struct wh_trace_event *e = calloc(p->count + 2, sizeof *e);
        part[r] = (struct wh_trace_part){.event = e, .count = p->count + 2, .dropped = r};
        for (size_t i = 0; i < p->count; i++) { /* backwards: the writer sorts */
            const enum wh_sched_op op = (enum wh_sched_op)p->instrs[i].op;
            const uint64_t begin = UNIT_NS + (uint64_t)t.rank[r].start[i],
                           took = (uint64_t)wh_sched_duration(&cost, op);
            e[p->count - 1 - i] = (struct wh_trace_event){
                begin, begin + took, 0, STEP, (uint32_t)i, wh_sched_computes(op) ? WH_TRACK_COMPUTE : WH_TRACK_PIPELINE,
                ""};
        }
        e[p->count] =
            (struct wh_trace_event){UNIT_NS, 20 * UNIT_NS, 0, STEP, WH_TRACE_NO_INSTR, WH_TRACK_COMPUTE, "step"};
        e[p->count + 1] = (struct wh_trace_event){19 * UNIT_NS,      20 * UNIT_NS,       0,      STEP,
                                                  WH_TRACE_NO_INSTR, WH_TRACK_OPTIMIZER, "AdamW"};
    }
    wh_sched_timing_free(&t);
}

static double sum_of(json_t *events, const char *name, int pid) {
    double sum = 0;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e) {
        if (strcmp(json_string_value(json_object_get(e, "name")), name) != 0 ||
            json_integer_value(json_object_get(e, "pid")) != pid)
            continue;
        sum += json_number_value(json_object_get(e, "dur"));
    }
    return sum;
}

/* 4 micro-batches on 2 ranks, a backward as two forwards: 15 units, of which each rank computes 12. */
static void shares_and_blocks(void **state) {
    struct wh_trace_part part[RANKS];
    struct wh_trace_shares shares = {0};
    char *text;
    size_t bytes;
    json_error_t error;
    (void)state;
    fill(part, 1, 2);
    assert_int_equal(wh_trace_write_file(&stage, part, path, &shares), WH_OK);
    assert_true(shares.idle > 0.2 - 1e-9 && shares.idle < 0.2 + 1e-9);
    assert_true(shares.predicted_idle > 0.2 - 1e-9 && shares.predicted_idle < 0.2 + 1e-9);
    assert_int_equal(shares.steps, 1);
    assert_int_equal(shares.dropped, 1);
    assert_int_equal(wh_file_read(path, (size_t)1 << 20, &text, &bytes), WH_OK);
    json_t *file = json_loadb(text, bytes, 0, &error);
    if (!file) fail_msg("line %d: %s", error.line, error.text);
    json_t *events = json_object_get(file, "traceEvents");
    for (int r = 0; r < RANKS; r++) {
        assert_true(sum_of(events, "B2", r) == 2000.0); /* microseconds */
        assert_true(sum_of(events, "F3", r) == 1000.0);
        assert_true(sum_of(events, "B2", RANKS + r) == 2000.0); /* predicted */
        assert_true(sum_of(events, "AdamW", r) == 1000.0);
        assert_true(sum_of(events, "idle", r) == 1000.0 * (19 - 12 - 1));
    }
    json_decref(file);
    free(text);
    for (int r = 0; r < RANKS; r++) free(part[r].event);
}

static void nothing_recorded(void **state) {
    struct wh_trace_part part[RANKS] = {0};
    struct wh_trace_shares shares = {0};
    (void)state;
    assert_int_equal(wh_trace_write_file(&stage, part, path, &shares), WH_OK);
    assert_int_equal(shares.steps, 0);
}

/* What has no room is counted, not lost without a word. */
static void full(void **state) {
    struct wh_trace t;
    (void)state;
    assert_int_equal(wh_trace_open(&stage, 1 << 20, 2, 2, &t), WH_OK);
    wh_trace_step(&t, 1);
    wh_trace_span(&t, WH_TRACK_COMPUTE, "before", wh_trace_now(&t));
    assert_int_equal(t.count, 0);
    wh_trace_step(&t, 2);
    for (size_t i = 0; i < t.capacity + 3; i++)
        wh_trace_span(&t, WH_TRACK_DISK, "a name that is longer than its room", 1);
    assert_int_equal(t.count, t.capacity);
    assert_int_equal(t.dropped, 3);
    assert_int_equal(strlen(t.event[0].name), WH_TRACE_NAME_BYTES - 1);
    wh_trace_step(&t, 3);
    assert_int_equal(wh_trace_now(&t), 0);
    wh_trace_close(&t);
    wh_trace_step(NULL, 1);
    wh_trace_pause(NULL);
    wh_trace_span(NULL, WH_TRACK_DISK, "nowhere", 1);
    wh_trace_instr(NULL, 0, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_and_blocks), cmocka_unit_test(nothing_recorded),
                                       cmocka_unit_test(full)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
