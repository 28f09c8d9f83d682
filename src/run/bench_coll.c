#include "run/bench_coll.h"

#include <stdlib.h>
#include <string.h>

#include "comm/exec.h"
#include "comm/reduce.h"
#include "os/memory.h"
#include "run/bench_coll_data.h"
#include "run/time_coll.h"

enum { ROOT = 0, SLACK_BYTES = 1 << 16, COPY_BYTES = 16 << 10 };

struct wh_bench_coll {
    struct wh_bench_coll_what what;
    uint32_t rank, ranks;
    struct wh_comm *comm;
    char *in, *out; /* max_bytes each */
    const struct wh_reduce *reduce;
    struct wh_time_coll timer;
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
    for (uint32_t i = 0; i < b->ranks; i++) members[i] = i;
    WH_TRY(wh_comm_open(job, 0, "bench", members, b->ranks, &b->comm));
    WH_TRY(take(b, job, &b->in));
    WH_TRY(take(b, job, &b->out));
    return wh_time_coll_open(b->comm, &b->timer);
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
    wh_time_coll_close(&b->timer);
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
    bool first;                       /* SEND: this rank begins */
    struct wh_comm_exec *exec;
};

static enum wh_status run_plan(struct wh_comm_plan *plan) {
    WH_TRY(wh_comm_start(plan));
    return wh_comm_wait(plan);
}

static enum wh_status make_operation(const struct wh_bench_coll *b, const struct wh_comm_call *c,
                                     struct operation *out) {
    *out = (struct operation){.first = b->rank == ROOT};
    if (b->what.algorithm) return wh_comm_exec_make(b->comm, c, b->what.algorithm, 0, &out->exec);
    struct wh_comm_call back = *c;
    back.op = WH_RECV;
    if (c->op == WH_SEND) WH_TRY(wh_comm_plan_make(b->comm, &back, &out->back));
    return wh_comm_plan_make(b->comm, c, &out->plan);
}

/* The root's message goes first. */
static enum wh_status there_and_back(const struct operation *o) {
    if (o->first) WH_TRY(wh_comm_start(o->plan));
    WH_TRY(run_plan(o->back));
    if (!o->first) WH_TRY(wh_comm_start(o->plan));
    return wh_comm_wait(o->plan);
}

static enum wh_status run_operation(void *context) {
    const struct operation *o = context;
    if (o->back) return there_and_back(o);
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
                             struct operation *o, uint64_t *wrong) {
    const size_t each = wh_dtype_bytes(b->what.dtype);
    int64_t found = 0;
    fill(b, s, c);
    WH_TRY(run_operation(o));
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

/* What this rank does of an operation, on memory of its own: as many streams read and written, by the same kernel, so
 * only the others are left out. */
struct alone {
    const struct wh_reduce *reduce;
    enum wh_comm_op op;
    uint32_t streams;
    size_t elems; /* floats of a stream */
    char *in, *out;
};

static void add_alone(const struct alone *a) {
    const size_t bytes = a->elems * sizeof(float);
    const void *in[WH_COMM_RANKS_MAX];
    void *out[WH_COMM_RANKS_MAX];
    for (uint32_t i = 0; i < a->streams; i++) in[i] = a->in + i * bytes, out[i] = a->out + i * bytes;
    wh_reduce_run(a->reduce, WH_F32, WH_SUM, in, a->streams, out, a->op == WH_ALL_REDUCE ? a->streams : 1, a->elems);
}

/* Every stream to its place (all-to-all, send), or the first to all others; in blocks that stay in the first-level cache. */
static void copy_alone(const struct alone *a) {
    const size_t bytes = a->elems * sizeof(float);
    const bool each = a->op == WH_ALL_TO_ALL || a->op == WH_SEND;
    for (size_t at = 0; at < bytes; at += COPY_BYTES)
        for (uint32_t i = a->in == a->out; i < a->streams; i++)
            memcpy(a->out + i * bytes + at, a->in + (each ? i * bytes : 0) + at,
                   bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES);
}

static enum wh_status run_alone(void *context) {
    const struct alone *a = context;
    if (a->op == WH_ALL_REDUCE || a->op == WH_REDUCE_SCATTER || a->op == WH_REDUCE)
        add_alone(a);
    else
        copy_alone(a);
    return WH_OK;
}

/* The best of what *us is (0: nothing yet) and this moment's batches. */
static enum wh_status time_alone(struct wh_bench_coll *b, const struct shape *s, bool in_place, double *us) {
    struct alone a = {b->reduce,
                      b->what.op,
                      b->ranks,
                      s->full * wh_dtype_bytes(b->what.dtype) / sizeof(float) / b->ranks,
                      in_place ? b->out : b->in,
                      b->out};
    const struct wh_time_coll_what what = {.run = run_alone, .context = &a, .seconds = b->what.seconds / 4};
    struct wh_time_coll_result r;
    if (b->what.crowded) return WH_OK;
    WH_TRY(wh_time_coll_run(&b->timer, &what, &r));
    if (*us == 0 || r.least_us < *us) *us = r.least_us;
    return WH_OK;
}

/* --- a row --- */

static double bus_factor(enum wh_comm_op op, double n) {
    if (op == WH_ALL_REDUCE) return 2 * (n - 1) / n;
    return sliced(op) ? (n - 1) / n : 1;
}

static enum wh_status measure_operation(struct wh_bench_coll *b, const struct shape *s, const struct wh_comm_call *c,
                                        struct operation *o, struct wh_bench_coll_time *t) {
    const size_t bytes = s->full * wh_dtype_bytes(b->what.dtype);
    WH_TRY(verify(b, s, c, o, &t->wrong));
    memset(b->in, 0, bytes); /* in place, sums of sums would overflow */
    memset(b->out, 0, bytes);
    const struct wh_time_coll_what what = {
        .run = run_operation, .context = o, .seconds = b->what.seconds, .calls = b->what.iters};
    struct wh_time_coll_result r;
    WH_TRY(wh_time_coll_run(&b->timer, &what, &r));
    t->us = r.median_us, t->us_min = r.least_us;
    return WH_OK;
}

static enum wh_status measure(struct wh_bench_coll *b, const struct shape *s, bool in_place,
                              struct wh_bench_coll_time *t) {
    const struct wh_comm_call c = call_of(b, s, in_place);
    const double bytes = (double)(s->full * wh_dtype_bytes(b->what.dtype)), n = b->ranks;
    struct operation o;
    WH_TRY(make_operation(b, &c, &o));
    enum wh_status status = time_alone(b, s, in_place, &t->limit_us); /* before and after: neighbours come and go */
    if (status == WH_OK) status = measure_operation(b, s, &c, &o, t);
    if (status == WH_OK) status = time_alone(b, s, in_place, &t->limit_us);
    free_operation(&o);
    if (c.op == WH_SEND) t->us /= 2, t->us_min /= 2;
    t->measured = true;
    t->algbw = bytes / t->us * 1e-3;
    t->busbw = t->algbw * bus_factor(b->what.op, n);
    return status;
}

enum wh_status wh_bench_coll_row(struct wh_bench_coll *b, size_t bytes, struct wh_bench_coll_row *row) {
    const struct shape s = shape_of(b, bytes);
    struct wh_bench_coll_row r = {.bytes = s.full * wh_dtype_bytes(b->what.dtype), .count = s.full};
    WH_ASSERT(bytes <= b->what.max_bytes);
    memset(b->in, 0, r.bytes);
    memset(b->out, 0, r.bytes);
    if (b->what.op != WH_BROADCAST) WH_TRY(measure(b, &s, false, &r.out_of_place));
    if (b->what.op != WH_ALL_TO_ALL && b->what.op != WH_SEND) WH_TRY(measure(b, &s, true, &r.in_place));
    *row = r;
    return WH_OK;
}
