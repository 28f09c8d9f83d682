#include "run/bench_coll.h"

#include <stdlib.h>
#include <string.h>

#include "comm/exec.h"
#include "comm/reduce.h"
#include "os/clock.h"
#include "os/memory.h"
#include "run/bench_coll_data.h"

enum { BATCHES_MAX = 1000, BATCHES_MIN = 3, WARM_UP_CALLS = 2, ROOT = 0, SLACK_BYTES = 1 << 16, AGREED = 4 };
static const double batch_us = 100; /* long against a clock's resolution and the barrier before it */

struct wh_bench_coll {
    struct wh_bench_coll_what what;
    uint32_t rank, ranks;
    struct wh_comm *comm;
    char *in, *out;                         /* max_bytes each */
    double *agree;                          /* [AGREED], shared */
    struct wh_comm_plan *barrier, *largest; /* between batches */
    const struct wh_reduce *reduce;
    double us[BATCHES_MAX];
};

size_t wh_bench_coll_arena_bytes(const struct wh_bench_coll_what *what) {
    return (what->private_memory ? 0 : 2 * what->max_bytes) + SLACK_BYTES;
}

static enum wh_status take(struct wh_bench_coll *b, struct wh_comm_job *job, char **out) {
    void *memory;
    if (b->what.private_memory)
        WH_TRY(wh_memory_reserve(b->what.max_bytes, &memory));
    else
        WH_TRY(wh_comm_buffer(job, b->what.max_bytes, &memory));
    *out = memory;
    return WH_OK;
}

static enum wh_status prepare(struct wh_bench_coll *b, struct wh_comm_job *job) {
    uint32_t members[WH_COMM_RANKS_MAX];
    void *agree;
    for (uint32_t i = 0; i < b->ranks; i++) members[i] = i;
    WH_TRY(wh_comm_open(job, 0, "bench", members, b->ranks, &b->comm));
    WH_TRY(take(b, job, &b->in));
    WH_TRY(take(b, job, &b->out));
    WH_TRY(wh_comm_buffer(job, AGREED * sizeof *b->agree, &agree));
    b->agree = agree;
    const struct wh_comm_call barrier = {.op = WH_BARRIER};
    const struct wh_comm_call largest = {
        .op = WH_ALL_REDUCE, .in = agree, .out = agree, .count = AGREED, .dtype = WH_F64, .redop = WH_MAX};
    WH_TRY(wh_comm_plan_make(b->comm, &barrier, &b->barrier));
    return wh_comm_plan_make(b->comm, &largest, &b->largest);
}

enum wh_status wh_bench_coll_open(struct wh_comm_job *job, uint32_t rank, uint32_t ranks,
                                  const struct wh_bench_coll_what *what, struct wh_bench_coll **out) {
    struct wh_bench_coll *b = calloc(1, sizeof *b);
    if (!b) return WH_FAIL(WH_NOMEM, "no memory for the benchmark");
    b->what = *what, b->rank = rank, b->ranks = ranks, b->reduce = wh_reduce_select(NULL);
    const enum wh_status status = prepare(b, job);
    if (status == WH_OK)
        *out = b;
    else
        wh_bench_coll_close(b);
    return status;
}

void wh_bench_coll_close(struct wh_bench_coll *b) {
    if (!b) return;
    if (b->barrier) wh_comm_plan_free(b->barrier);
    if (b->largest) wh_comm_plan_free(b->largest);
    if (b->comm) wh_comm_close(b->comm);
    if (b->what.private_memory) {
        wh_memory_release(b->in, b->what.max_bytes);
        wh_memory_release(b->out, b->what.max_bytes);
    }
    free(b);
}

/* --- what an operation reads and writes --- */

static bool sliced(enum wh_comm_op op) { return op == WH_REDUCE_SCATTER || op == WH_ALL_GATHER || op == WH_ALL_TO_ALL; }

/* Elements of the full vector, of a slice; that this rank gives and gets. */
struct shape {
    size_t full, slice, in, out;
};

static struct shape shape_of(const struct wh_bench_coll *b, size_t bytes) {
    const enum wh_comm_op op = b->what.op;
    struct shape s = {.full = bytes / wh_dtype_bytes(b->what.dtype)};
    s.slice = s.full / b->ranks;
    if (sliced(op)) s.full = s.slice * b->ranks;
    s.in = op == WH_ALL_GATHER ? s.slice : op == WH_BROADCAST && b->rank != ROOT ? 0 : s.full;
    s.out = op == WH_REDUCE_SCATTER ? s.slice : op == WH_REDUCE && b->rank != ROOT ? 0 : s.full;
    return s;
}

static struct wh_comm_call call_of(const struct wh_bench_coll *b, const struct shape *s, bool in_place) {
    const size_t own = b->rank * s->slice * wh_dtype_bytes(b->what.dtype);
    struct wh_comm_call c = {.op = b->what.op,
                             .in = b->in,
                             .out = b->out,
                             .count = s->full,
                             .dtype = b->what.dtype,
                             .redop = b->what.redop,
                             .root = b->what.op == WH_SEND ? !b->rank : ROOT};
    if (in_place) {
        c.in = c.op == WH_ALL_GATHER ? b->out + own : c.op == WH_BROADCAST ? NULL : b->out;
        c.out = c.op == WH_REDUCE_SCATTER ? b->out + own : b->out;
    }
    return c;
}

/* --- running it: one of the two --- */

struct operation {
    struct wh_comm_plan *plan, *back; /* back: the receive of a SEND */
    struct wh_comm_exec *exec;
};

static enum wh_status run_plan(struct wh_comm_plan *plan) {
    WH_TRY(wh_comm_start(plan));
    return wh_comm_wait(plan);
}

static enum wh_status make_operation(const struct wh_bench_coll *b, const struct wh_comm_call *c,
                                     struct operation *out) {
    *out = (struct operation){0};
    if (b->what.algorithm) return wh_comm_exec_make(b->comm, c, b->what.algorithm, 0, &out->exec);
    struct wh_comm_call back = *c;
    back.op = WH_RECV;
    if (c->op == WH_SEND) WH_TRY(wh_comm_plan_make(b->comm, &back, &out->back));
    return wh_comm_plan_make(b->comm, c, &out->plan);
}

/* The root's message goes first. */
static enum wh_status there_and_back(const struct operation *o, bool first) {
    if (first) WH_TRY(wh_comm_start(o->plan));
    WH_TRY(run_plan(o->back));
    if (!first) WH_TRY(wh_comm_start(o->plan));
    return wh_comm_wait(o->plan);
}

static enum wh_status run_operation(const struct wh_bench_coll *b, const struct operation *o) {
    if (o->back) return there_and_back(o, b->rank == ROOT);
    return o->exec ? wh_comm_exec_run(o->exec) : run_plan(o->plan);
}

static void free_operation(struct operation *o) {
    if (o->plan) wh_comm_plan_free(o->plan);
    if (o->back) wh_comm_plan_free(o->back);
    wh_comm_exec_free(o->exec);
}

/* --- correctness --- */

static void fill(const struct wh_bench_coll *b, const struct shape *s, const struct wh_comm_call *c) {
    const size_t each = wh_dtype_bytes(b->what.dtype), own = b->rank * s->slice * each;
    char *in = c->in == b->in ? b->in : c->op == WH_ALL_GATHER ? b->out + own : b->out;
    memset(b->out, 0xa5, s->full * each); /* a result that is not written is wrong */
    for (size_t i = 0; i < s->in; i++) wh_bench_coll_input(b->what.dtype, b->rank, i, in + i * each);
}

static void expect(const struct wh_bench_coll *b, const struct shape *s, size_t i, void *out) {
    const struct wh_bench_coll_what *w = &b->what;
    switch (w->op) {
    case WH_ALL_GATHER:
        wh_bench_coll_input(w->dtype, (uint32_t)(i / s->slice), i % s->slice, out);
        break;
    case WH_ALL_TO_ALL:
        wh_bench_coll_input(w->dtype, (uint32_t)(i / s->slice), b->rank * s->slice + i % s->slice, out);
        break;
    case WH_BROADCAST:
        wh_bench_coll_input(w->dtype, ROOT, i, out);
        break;
    case WH_SEND:
        wh_bench_coll_input(w->dtype, !b->rank, i, out);
        break;
    case WH_REDUCE_SCATTER:
        wh_bench_coll_reduced(w->dtype, w->redop, b->ranks, b->rank * s->slice + i, out);
        break;
    default:
        wh_bench_coll_reduced(w->dtype, w->redop, b->ranks, i, out);
        break;
    }
}

static enum wh_status verify(struct wh_bench_coll *b, const struct shape *s, const struct wh_comm_call *c,
                             const struct operation *o, uint64_t *wrong) {
    const size_t each = wh_dtype_bytes(b->what.dtype);
    int64_t found = 0;
    fill(b, s, c);
    WH_TRY(run_operation(b, o));
    for (size_t i = 0; i < s->out; i++) {
        char want[8];
        expect(b, s, i, want);
        found += memcmp(want, (const char *)c->out + i * each, each) != 0;
    }
    const struct wh_comm_call sum = {.op = WH_ALL_REDUCE, .in = &found, .out = &found, .count = 1, .dtype = WH_I64};
    WH_TRY(wh_comm_run(b->comm, &sum));
    *wrong = (uint64_t)found;
    return WH_OK;
}

/* --- time --- */

/* Reads and writes `elems` floats of this rank's own once: the second half is added to the first, the sum goes to both.
 * Two streams are faster than one here, and the kernel is that of the collectives, so only the talking is left out. */
static void rewrite(const struct wh_bench_coll *b, size_t elems) {
    float *own = (float *)(void *)b->out;
    void *const halves[] = {own, own + elems / 2};
    if (elems > 1) wh_reduce_run(b->reduce, WH_F32, WH_SUM, (const void *const *)halves, 2, halves, 2, elems / 2);
}

/* Time per call. `o`: of the slowest rank. NULL: each rank rewrites `elems` floats; from the first start to the last end,
 * since ranks that share a core take turns. *more: whether any rank wants more. */
static enum wh_status batch(struct wh_bench_coll *b, const struct operation *o, size_t elems, uint32_t calls,
                            bool want_more, double *us, bool *more) {
    enum { OWN, MINUS_START, END, MORE };
    WH_TRY(run_plan(b->barrier));
    const double start = (double)wh_clock_ns() * 1e-3;
    for (uint32_t i = 0; i < calls; i++) {
        if (o)
            WH_TRY(run_operation(b, o));
        else
            rewrite(b, elems);
    }
    const double end = (double)wh_clock_ns() * 1e-3;
    b->agree[OWN] = end - start, b->agree[MINUS_START] = -start, b->agree[END] = end, b->agree[MORE] = want_more;
    WH_TRY(run_plan(b->largest));
    *us = (o ? b->agree[OWN] : b->agree[END] + b->agree[MINUS_START]) / calls;
    *more = b->agree[MORE] > 0;
    return WH_OK;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum wh_status time_batches(struct wh_bench_coll *b, const struct operation *o, size_t elems, double seconds,
                                   double *median, double *least) {
    double once;
    bool more;
    WH_TRY(batch(b, o, elems, WARM_UP_CALLS, false, &once, &more));
    const bool fixed = o && b->what.iters > 0;
    const uint32_t calls = fixed ? b->what.iters : once > batch_us ? 1 : (uint32_t)(batch_us / (once + 1e-3)) + 1;
    const uint64_t began = wh_clock_ns(), budget_ns = (uint64_t)(seconds * 1e9);
    int count = 0;
    for (more = true; more; count++) {
        const bool want_more =
            !fixed && count + 1 < BATCHES_MAX && (count + 1 < BATCHES_MIN || wh_clock_ns() - began < budget_ns);
        WH_TRY(batch(b, o, elems, calls, want_more, &b->us[count], &more));
    }
    qsort(b->us, (size_t)count, sizeof *b->us, ascending);
    *median = b->us[count / 2], *least = b->us[0];
    return WH_OK;
}

/* --- a row --- */

/* Bytes that must be read and written at the least, over all ranks, in units of the full vector. */
static double least_vectors(enum wh_comm_op op, double n, bool in_place) {
    switch (op) {
    case WH_ALL_REDUCE:
    case WH_ALL_TO_ALL:
        return 2 * n;
    case WH_REDUCE_SCATTER:
    case WH_REDUCE:
        return n + 1;
    case WH_SEND:
        return 2;
    default:
        return in_place ? n : n + 1; /* all-gather, broadcast: what a rank gives is in its place already */
    }
}

static double bus_factor(enum wh_comm_op op, double n) {
    if (op == WH_ALL_REDUCE) return 2 * (n - 1) / n;
    return sliced(op) ? (n - 1) / n : 1;
}

static enum wh_status measure_operation(struct wh_bench_coll *b, const struct shape *s, const struct wh_comm_call *c,
                                        const struct operation *o, struct wh_bench_coll_time *t) {
    const size_t bytes = s->full * wh_dtype_bytes(b->what.dtype);
    WH_TRY(verify(b, s, c, o, &t->wrong));
    memset(b->in, 0, bytes); /* in place, sums of sums would overflow */
    memset(b->out, 0, bytes);
    return time_batches(b, o, 0, b->what.seconds, &t->us, &t->us_min);
}

static enum wh_status measure(struct wh_bench_coll *b, const struct shape *s, bool in_place, double rewrite_us,
                              struct wh_bench_coll_time *t) {
    const struct wh_comm_call c = call_of(b, s, in_place);
    const double bytes = (double)(s->full * wh_dtype_bytes(b->what.dtype)), n = b->ranks;
    struct operation o;
    WH_TRY(make_operation(b, &c, &o));
    const enum wh_status status = measure_operation(b, s, &c, &o, t);
    free_operation(&o);
    if (c.op == WH_SEND) t->us /= 2, t->us_min /= 2;
    t->measured = true;
    t->algbw = bytes / t->us * 1e-3;
    t->busbw = t->algbw * bus_factor(b->what.op, n);
    t->limit_us = rewrite_us * least_vectors(b->what.op, n, in_place) / (2 * n);
    return status;
}

enum wh_status wh_bench_coll_row(struct wh_bench_coll *b, size_t bytes, struct wh_bench_coll_row *row) {
    const struct shape s = shape_of(b, bytes);
    struct wh_bench_coll_row r = {.bytes = s.full * wh_dtype_bytes(b->what.dtype), .count = s.full};
    double median_us, rewrite_us; /* a limit is the best that was seen */
    WH_ASSERT(bytes <= b->what.max_bytes);
    memset(b->out, 0, r.bytes);
    WH_TRY(time_batches(b, NULL, r.bytes / sizeof(float), b->what.seconds / 2, &median_us, &rewrite_us));
    if (b->what.op != WH_BROADCAST) WH_TRY(measure(b, &s, false, rewrite_us, &r.out_of_place));
    if (b->what.op != WH_ALL_TO_ALL && b->what.op != WH_SEND) WH_TRY(measure(b, &s, true, rewrite_us, &r.in_place));
    *row = r;
    return WH_OK;
}
