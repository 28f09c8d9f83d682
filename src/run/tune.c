#include "run/tune.h"

#include <stdlib.h>
#include <string.h>

#include "comm/exec.h"
#include "run/time_coll.h"

enum { SLACK_BYTES = 1 << 16 };

struct wh_tune {
    struct wh_comm *comm;
    float *vector;
    uint32_t rank, ranks;
    size_t max_bytes;
    struct wh_time_coll timer;
};

size_t wh_tune_arena_bytes(size_t max_bytes) { return max_bytes + SLACK_BYTES; }

enum wh_status wh_tune_open(struct wh_comm_job *job, uint32_t rank, uint32_t ranks, size_t max_bytes,
                            struct wh_tune **out) {
    uint32_t members[WH_COMM_RANKS_MAX];
    void *vector = NULL;
    struct wh_tune *t = calloc(1, sizeof *t);
    if (!t) return WH_FAIL(WH_NOMEM, "no memory for the measurement");
    t->rank = rank, t->ranks = ranks, t->max_bytes = max_bytes;
    for (uint32_t i = 0; i < ranks; i++) members[i] = i;
    enum wh_status status = wh_comm_open(job, 0, "tune", members, ranks, &t->comm);
    if (status == WH_OK) status = wh_comm_buffer(job, max_bytes, &vector);
    if (status == WH_OK) status = wh_time_coll_open(t->comm, &t->timer);
    t->vector = vector;
    if (status == WH_OK)
        *out = t;
    else
        wh_tune_close(t);
    return status;
}

void wh_tune_close(struct wh_tune *t) {
    if (!t) return;
    wh_time_coll_close(&t->timer);
    if (t->comm) wh_comm_close(t->comm);
    free(t);
}

struct wh_comm *wh_tune_comm(struct wh_tune *t) {
    return t->comm;
}

void *wh_tune_scratch(struct wh_tune *t) { return t->vector; }

/* A candidate. */
struct operation {
    struct wh_comm_plan *plan; /* or */
    struct wh_comm_exec *exec;
};

static enum wh_status run_operation(void *context) {
    struct operation *o = context;
    if (o->exec) return wh_comm_exec_run(o->exec);
    WH_TRY(wh_comm_start(o->plan));
    return wh_comm_wait(o->plan);
}

static struct wh_comm_call call_of(const struct wh_tune *t, const struct wh_coll_request *q) {
    float *const own = t->vector + wh_coll_slice(q, t->rank).first;
    return (struct wh_comm_call){.op = (enum wh_comm_op)q->op, /* the same order, comm/comm.h */
                                 .in = q->op == WH_COLL_ALL_GATHER ? own : t->vector,
                                 .out = q->op == WH_COLL_REDUCE_SCATTER ? own : t->vector,
                                 .count = q->count,
                                 .dtype = q->dtype};
}

/* `c->chunks` 0: what comm.h does by itself. */
static enum wh_status measure(struct wh_tune *t, const struct wh_comm_call *call, double seconds,
                              struct wh_tune_candidate *c) {
    struct operation o = {0};
    const struct wh_time_coll_what what = {
        .run = run_operation,
        .context = &o,
        .rewrite = (void *)(uintptr_t)call->in,
        .rewrite_bytes = call->count / (call->op == WH_ALL_GATHER ? t->ranks : 1) * sizeof(float),
        .seconds = seconds};
    struct wh_time_coll_result r;
    if (c->chunks == 0)
        WH_TRY(wh_comm_plan_make(t->comm, call, &o.plan));
    else
        WH_TRY(wh_comm_exec_make(t->comm, call, c->name, c->chunks, &o.exec));
    const enum wh_status status = wh_time_coll_run(&t->timer, &what, &r);
    wh_comm_plan_free(o.plan);
    wh_comm_exec_free(o.exec);
    if (status == WH_OK) c->best_s = r.least_us * 1e-6, c->median_s = r.median_us * 1e-6;
    return status;
}

static int by_prediction(const void *a, const void *b) {
    const double x = ((const struct wh_tune_candidate *)a)->predicted_s;
    const double y = ((const struct wh_tune_candidate *)b)->predicted_s;
    return (x > y) - (x < y);
}

static void fill(const struct wh_coll_choice *choice, struct wh_tune_row *row) {
    row->candidate[row->count++] =
        (struct wh_tune_candidate){wh_coll_way_name(WH_COLL_SHARED), .canonical = true, .predicted_s = choice->way_s};
    for (size_t i = 0; i < choice->ranking.count && row->count < WH_TUNE_CANDIDATES_MAX; i++) {
        const struct wh_coll_candidate *c = &choice->ranking.items[i];
        if (c->usable)
            row->candidate[row->count++] =
                (struct wh_tune_candidate){c->algorithm->name, c->request.chunks, c->canonical, c->seconds};
    }
    qsort(row->candidate, row->count, sizeof *row->candidate, by_prediction);
    while (!row->candidate[row->contract].canonical) row->contract++;
}

enum wh_status wh_tune_row(struct wh_tune *t, const struct wh_coll_links *links, enum wh_comm_op op, size_t bytes,
                           double seconds, struct wh_tune_row *out) {
    struct wh_coll_request q = {.op = (enum wh_coll_op)op, .ranks = t->ranks, .dtype = WH_F32, .in_place = true};
    q.count = bytes / sizeof(float) / t->ranks * t->ranks;
    struct wh_tune_row row = {.op = op, .bytes = q.count * sizeof(float)};
    const struct wh_coll_limits any = {true, UINT64_MAX};
    struct wh_coll_choice choice;
    WH_ASSERT(bytes <= t->max_bytes);
    WH_TRY(wh_coll_choose(links, &q, WH_COLL_SHARED, &any, &choice));
    fill(&choice, &row);
    wh_coll_choice_free(&choice);
    const struct wh_comm_call call = call_of(t, &q);
    memset(t->vector, 0, row.bytes); /* sums of sums would overflow */
    for (uint32_t i = 0; i < row.count; i++) WH_TRY(measure(t, &call, seconds, &row.candidate[i]));
    *out = row;
    return WH_OK;
}

/* --- how good the model was --- */

/* The choice's time over the best. */
static double regret(const struct wh_tune_row *r, uint32_t chosen, bool contract) {
    double best = r->candidate[chosen].best_s;
    for (uint32_t i = 0; i < r->count; i++)
        if ((!contract || r->candidate[i].canonical) && r->candidate[i].best_s < best) best = r->candidate[i].best_s;
    return r->candidate[chosen].best_s / best;
}

enum wh_status wh_tune_summarize(const struct wh_tune_row *rows, size_t count, struct wh_tune_summary *out) {
    struct wh_tune_summary s = {.worst_choice = 1, .worst_contract = 1};
    double *ratio = malloc((count * WH_TUNE_CANDIDATES_MAX + 1) * sizeof *ratio);
    if (!ratio) return WH_FAIL(WH_NOMEM, "no memory to sum up %zu rows", count);
    for (size_t r = 0; r < count; r++) {
        const double any = regret(&rows[r], 0, false), contract = regret(&rows[r], rows[r].contract, true);
        if (any > s.worst_choice) s.worst_choice = any;
        if (contract > s.worst_contract) s.worst_contract = contract;
        for (uint32_t i = 0; i < rows[r].count; i++) {
            const double x = rows[r].candidate[i].predicted_s / rows[r].candidate[i].best_s;
            s.within_25 += x >= 0.75 && x <= 1.25;
            ratio[s.count++] = x;
        }
    }
    qsort(ratio, s.count, sizeof *ratio, wh_time_coll_ascending);
    if (s.count) s.least = ratio[0], s.median = ratio[s.count / 2], s.most = ratio[s.count - 1];
    free(ratio);
    *out = s;
    return WH_OK;
}
