#include "run/time_coll.h"

#include <stdlib.h>

#include "os/clock.h"

enum { BATCHES_MIN = 5, WARM_UP_CALLS = 2, LINE_BYTES = 64 };
static const double batch_us = 100;

/* What members tell each other after a batch: the largest of each is everybody's. */
enum { OWN_US, MINUS_START_US, END_US, WANTS_MORE, AGREED };

enum wh_status wh_time_coll_open(struct wh_comm *comm, struct wh_time_coll *t) {
    const struct wh_comm_call barrier = {.op = WH_BARRIER};
    const struct wh_comm_call largest = {
        .op = WH_ALL_REDUCE, .in = t->agree, .out = t->agree, .count = AGREED, .dtype = WH_F64, .redop = WH_MAX};
    t->comm = comm, t->barrier = t->largest = NULL, t->until_ns = 0;
    WH_TRY(wh_comm_plan_make(comm, &barrier, &t->barrier));
    return wh_comm_plan_make(comm, &largest, &t->largest);
}

void wh_time_coll_close(struct wh_time_coll *t) {
    wh_comm_plan_free(t->barrier);
    wh_comm_plan_free(t->largest);
    t->barrier = t->largest = NULL;
}

static enum wh_status run_plan(struct wh_comm_plan *plan) {
    WH_TRY(wh_comm_start(plan));
    return wh_comm_wait(plan);
}

static double now_us(void) { return (double)wh_clock_ns() * 1e-3; }

/* All of it is this processor's then, as far as its caches go. */
static void write_lines(void *memory, size_t bytes) {
    volatile char *at = memory;
    for (size_t i = 0; i < bytes; i += LINE_BYTES) at[i] = 0;
}

static enum wh_status run_calls(struct wh_time_coll *t, const struct wh_time_coll_what *what, uint32_t calls) {
    double own = 0, start = 0, end = 0;
    for (uint32_t i = 0; i < calls; i++) {
        if (what->rewrite) write_lines(what->rewrite, what->rewrite_bytes);
        if (i == 0 || what->rewrite) {
            WH_TRY(run_plan(t->barrier));
            start = now_us();
        }
        WH_TRY(what->run(what->context));
        if (i + 1 < calls && !what->rewrite) continue;
        end = now_us();
        own += end - start;
    }
    t->agree[OWN_US] = own, t->agree[MINUS_START_US] = -start, t->agree[END_US] = end;
    return WH_OK;
}

/* Time per call. *more: whether any member wants more. */
static enum wh_status batch(struct wh_time_coll *t, const struct wh_time_coll_what *what, uint32_t calls,
                            bool wants_more, double *us, bool *more) {
    WH_TRY(run_calls(t, what, calls));
    t->agree[WANTS_MORE] = wants_more;
    WH_TRY(run_plan(t->largest));
    *us = (what->from_first_to_last ? t->agree[END_US] + t->agree[MINUS_START_US] : t->agree[OWN_US]) / calls;
    *more = t->agree[WANTS_MORE] > 0;
    return WH_OK;
}

static bool is_late(const struct wh_time_coll *t) { return t->until_ns && wh_clock_ns() >= t->until_ns; }

enum wh_status wh_time_coll_late(struct wh_time_coll *t, bool *late) {
    for (int i = 0; i < AGREED; i++) t->agree[i] = is_late(t);
    WH_TRY(run_plan(t->largest));
    *late = t->agree[WANTS_MORE] > 0;
    return WH_OK;
}

int wh_time_coll_ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum wh_status wh_time_coll_run(struct wh_time_coll *t, const struct wh_time_coll_what *what,
                                struct wh_time_coll_result *out) {
    double once;
    bool more;
    WH_TRY(batch(t, what, WARM_UP_CALLS, false, &once, &more));
    const bool fixed = what->calls > 0;
    const uint32_t calls = fixed ? what->calls : once > batch_us ? 1 : (uint32_t)(batch_us / (once + 1e-3)) + 1;
    const uint64_t began = wh_clock_ns(), budget_ns = (uint64_t)(what->seconds * 1e9);
    int count = 0;
    for (more = true; more; count++) {
        const bool wants_more = !fixed && count + 1 < WH_TIME_COLL_BATCHES_MAX && !is_late(t) &&
                                (count + 1 < BATCHES_MIN || wh_clock_ns() - began < budget_ns);
        WH_TRY(batch(t, what, calls, wants_more, &t->us[count], &more));
    }
    qsort(t->us, (size_t)count, sizeof *t->us, wh_time_coll_ascending);
    *out = (struct wh_time_coll_result){t->us[count / 2], t->us[0]};
    return WH_OK;
}
