/* The file: Chrome's trace events. Times are microseconds of the machine's monotonic clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "run/trace_int.h"
#include "sched/timing.h"

enum { PIECE_BYTES = 1 << 20 };

/* Of a step of one pipeline: from its first to its last computing instruction, on whichever rank. */
struct window {
    uint64_t begin_ns, end_ns, busy_ns;
};

struct writer {
    const struct wh_stage *stage;
    const struct wh_trace_part *part; /* [world], sorted */
    uint32_t world;
    uint64_t first, last; /* steps that were recorded */
    struct wh_file_writer file;
    enum wh_status status;      /* of writing */
    struct wh_text text;        /* not written yet */
    struct window *window;      /* [steps][world], at the first rank of the pipeline */
    uint64_t *predicted_end_ns; /* [world] of the step before */
};

/* ---- looking at events ---- */

static int by_time(const void *a, const void *b) {
    const struct wh_trace_event *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1; /* what contains others first */
    return x->instr < y->instr ? -1 : x->instr > y->instr;
}

static const struct wh_sched_program *program_of(const struct writer *w, uint32_t rank) {
    return &w->stage->plan.rank[wh_mesh_place(&w->stage->mesh, rank).pp];
}

/* NULL: it is none of the program. */
static const struct wh_sched_instr *instr_of(const struct writer *w, uint32_t rank, const struct wh_trace_event *e) {
    return e->instr == WH_TRACE_NO_INSTR ? NULL : &program_of(w, rank)->instrs[e->instr];
}

static bool computes(const struct writer *w, uint32_t rank, const struct wh_trace_event *e) {
    const struct wh_sched_instr *i = instr_of(w, rank, e);
    return i && wh_sched_computes((enum wh_sched_op)i->op);
}

static void find_steps(struct writer *w) {
    w->first = UINT64_MAX, w->last = 0;
    for (size_t i = 0; i < w->part[0].count; i++) {
        const uint64_t step = w->part[0].event[i].step;
        if (step < w->first) w->first = step;
        if (step > w->last) w->last = step;
    }
}

static struct window *window_of(const struct writer *w, uint32_t rank, uint64_t step) {
    struct wh_mesh_place first = wh_mesh_place(&w->stage->mesh, rank);
    first.pp = 0;
    return &w->window[(step - w->first) * w->world + wh_mesh_rank(&w->stage->mesh, &first)];
}

static void measure_windows(struct writer *w) {
    for (uint32_t r = 0; r < w->world; r++)
        for (size_t i = 0; i < w->part[r].count; i++) {
            const struct wh_trace_event *e = &w->part[r].event[i];
            if (!computes(w, r, e)) continue;
            struct window *v = window_of(w, r, e->step);
            if (v->busy_ns == 0 || e->begin_ns < v->begin_ns) v->begin_ns = e->begin_ns;
            if (e->end_ns > v->end_ns) v->end_ns = e->end_ns;
            v->busy_ns += e->end_ns - e->begin_ns;
        }
}

/* ---- the prediction ---- */

/* Means over all ranks, nanoseconds. */
static struct wh_sched_cost measure_costs(const struct writer *w, uint64_t step) {
    double sum[WH_SCHED_OP_COUNT] = {0};
    uint64_t count[WH_SCHED_OP_COUNT] = {0};
    for (uint32_t r = 0; r < w->world; r++)
        for (size_t i = 0; i < w->part[r].count; i++) {
            const struct wh_trace_event *e = &w->part[r].event[i];
            if (e->step != step || !computes(w, r, e)) continue;
            const uint16_t op = instr_of(w, r, e)->op;
            sum[op] += (double)(e->end_ns - e->begin_ns), count[op]++;
        }
    for (int op = 0; op < WH_SCHED_OP_COUNT; op++)
        if (count[op]) sum[op] /= (double)count[op];
    return (struct wh_sched_cost){.forward = sum[WH_SCHED_FORWARD],
                                  .backward = sum[WH_SCHED_BACKWARD],
                                  .input = sum[WH_SCHED_BACKWARD_INPUT],
                                  .weight = sum[WH_SCHED_BACKWARD_WEIGHT]};
}

static void measure_shares(const struct writer *w, struct wh_trace_shares *out) {
    const uint64_t steps = w->last - w->first + 1;
    uint32_t windows = 0;
    for (uint64_t k = 0; k < steps * w->world; k++) {
        const struct window *v = &w->window[k];
        if (v->busy_ns == 0) continue;
        out->idle += 1.0 - (double)v->busy_ns / ((double)w->stage->mesh.degrees.pp * (double)(v->end_ns - v->begin_ns));
        windows++;
    }
    if (windows) out->idle /= windows;
    out->steps = steps;
    for (uint32_t r = 0; r < w->world; r++) out->dropped += w->part[r].dropped;
}

/* ---- words ---- */

static void flush(struct writer *w) {
    if (w->status == WH_OK) w->status = wh_file_write(&w->file, w->text.data, w->text.bytes);
    wh_text_clear(&w->text);
}

/* `phase`, name and place; the caller adds the rest and the end. ns: to three decimals of a microsecond. */
static void begin(struct writer *w, const char *phase, const char *name, uint32_t pid, int tid, uint64_t ns) {
    if (w->text.bytes >= PIECE_BYTES) flush(w);
    wh_text_add(&w->text, ",\n{\"ph\":\"%s\",\"name\":\"%s\",\"pid\":%u,\"tid\":%d,\"ts\":%llu.%03u", phase, name, pid,
                tid, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static void block(struct writer *w, const char *name, uint32_t pid, int tid, uint64_t begin_ns, uint64_t end_ns) {
    const uint64_t ns = end_ns - begin_ns;
    begin(w, "X", name, pid, tid, begin_ns);
    wh_text_add(&w->text, ",\"dur\":%llu.%03u,\"args\":{", (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static void metadata(struct writer *w, const char *what, uint32_t pid, int tid, const char *value) {
    const bool first = w->text.data[w->text.bytes - 1] == '[';
    wh_text_add(&w->text, "%s{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%d,\"args\":{%s}}", first ? "\n" : ",\n",
                what, pid, tid, value);
}

static void name_process(struct writer *w, uint32_t rank, bool predicted) {
    static const char *const tracks[] = {
#define X(id, name) "\"name\":\"" name "\"",
        WH_TRACKS(X)
#undef X
    };
    const struct wh_mesh_place p = wh_mesh_place(&w->stage->mesh, rank);
    const uint32_t pid = predicted ? w->world + rank : rank;
    struct wh_text t = {0};
    wh_text_add(&t, "\"name\":\"rank %u (dp %u, pp %u, tp %u)%s\"", rank, p.dp, p.pp, p.tp,
                predicted ? ", predicted" : "");
    metadata(w, "process_name", pid, 0, t.data);
    wh_text_clear(&t);
    wh_text_add(&t, "\"sort_index\":%u", 2 * rank + predicted);
    metadata(w, "process_sort_index", pid, 0, t.data);
    wh_text_fini(&t);
    for (int track = 0; track < (predicted ? 1 : WH_TRACK_COUNT); track++) {
        char order[32];
        metadata(w, "thread_name", pid, track, tracks[track]);
        snprintf(order, sizeof order, "\"sort_index\":%d", track); /* else viewers sort by name */
        metadata(w, "thread_sort_index", pid, track, order);
    }
}

static void add_instr_args(struct writer *w, uint32_t rank, const struct wh_sched_instr *i, uint64_t step) {
    const uint32_t stage = wh_sched_stage(&w->stage->plan.shape, wh_mesh_place(&w->stage->mesh, rank).pp, i->chunk);
    wh_text_add(&w->text, "\"step\":%llu,\"instruction\":%zu,\"chunk\":%u,\"microbatch\":%u,\"layer\":\"%zu-%zu\"",
                (unsigned long long)step, (size_t)(i - program_of(w, rank)->instrs), i->chunk, i->micro_batch,
                w->stage->layer_border[stage], w->stage->layer_border[stage + 1] - 1);
}

/* ---- blocks ---- */

/* A message is one from the stage that sends it, of a micro-batch, in a step and a replica: the same number on both sides. */
static uint64_t flow_number(const struct writer *w, uint32_t rank, const struct wh_sched_instr *i, uint64_t step) {
    const struct wh_sched_shape *s = &w->stage->plan.shape;
    const struct wh_mesh_place place = wh_mesh_place(&w->stage->mesh, rank);
    const uint64_t own = wh_sched_stage(s, place.pp, i->chunk);
    const bool grad = i->op == WH_SCHED_SEND_GRAD || i->op == WH_SCHED_RECV_GRAD;
    const uint64_t from = i->op == WH_SCHED_RECV_ACT ? own - 1 : i->op == WH_SCHED_RECV_GRAD ? own + 1 : own;
    const struct wh_mesh_place first = {.dp = place.dp, .cp = place.cp, .tp = place.tp};
    const uint64_t replica = wh_mesh_rank(&w->stage->mesh, &first);
    return (((step * w->world + replica) * 2 + grad) * wh_sched_stages(s) + from) * s->micro_batches + i->micro_batch;
}

static void add_flow(struct writer *w, uint32_t rank, const struct wh_sched_instr *i, const struct wh_trace_event *e) {
    const enum wh_sched_message message = wh_sched_ops[i->op].message;
    if (message == WH_SCHED_NO_MESSAGE) return;
    const bool sends = message == WH_SCHED_SENDS;
    const uint64_t last = e->end_ns > e->begin_ns ? e->end_ns - 1 : e->begin_ns;
    begin(w, sends ? "s" : "f", i->op == WH_SCHED_SEND_ACT || i->op == WH_SCHED_RECV_ACT ? "activations" : "gradients",
          rank, WH_TRACK_PIPELINE, sends ? e->begin_ns : last);
    wh_text_add(&w->text, ",\"cat\":\"message\",\"id\":%llu%s}", (unsigned long long)flow_number(w, rank, i, e->step),
                sends ? "" : ",\"bp\":\"e\"");
}

static void add_event(struct writer *w, uint32_t rank, const struct wh_trace_event *e) {
    const struct wh_sched_instr *i = instr_of(w, rank, e);
    struct wh_text label = {0};
    if (i) wh_sched_label(&w->stage->plan.shape, i, &label);
    block(w, i ? label.data : e->name, rank, (int)e->track, e->begin_ns, e->end_ns);
    if (i)
        add_instr_args(w, rank, i, e->step);
    else
        wh_text_add(&w->text, "\"step\":%llu", (unsigned long long)e->step);
    if (e->bytes) wh_text_add(&w->text, ",\"bytes\":%llu", (unsigned long long)e->bytes);
    wh_text_add(&w->text, "}}");
    if (i) add_flow(w, rank, i, e);
    wh_text_fini(&label);
}

/* Forwards that wait for their backward, counted at their beginnings and ends. */
static void add_kept(struct writer *w, uint32_t rank) {
    int kept = 0;
    for (size_t k = 0; k < w->part[rank].count; k++) {
        const struct wh_trace_event *e = &w->part[rank].event[k];
        const struct wh_sched_instr *i = instr_of(w, rank, e);
        if (!computes(w, rank, e) || i->op == WH_SCHED_BACKWARD_INPUT) continue;
        kept += i->op == WH_SCHED_FORWARD ? 1 : -1;
        begin(w, "C", "micro-batches kept", rank, 0, i->op == WH_SCHED_FORWARD ? e->begin_ns : e->end_ns);
        wh_text_add(&w->text, ",\"args\":{\"kept\":%d}}", kept);
    }
}

static bool is_step(const struct wh_trace_event *e) {
    return e->track == WH_TRACK_COMPUTE && strcmp(e->name, "step") == 0;
}

/* Time of a step in which the rank neither computed nor updated. */
static void add_idle(struct writer *w, uint32_t rank) {
    uint64_t at = 0, end = 0, step = 0;
    for (size_t k = 0; k <= w->part[rank].count; k++) {
        const struct wh_trace_event *e = &w->part[rank].event[k];
        const bool over = k == w->part[rank].count;
        if (!over && e->track != WH_TRACK_COMPUTE && e->track != WH_TRACK_OPTIMIZER) continue;
        if (!over && !is_step(e) && e->begin_ns >= end) continue; /* between steps */
        const uint64_t until = over || is_step(e) ? end : e->begin_ns;
        if (until > at) {
            block(w, "idle", rank, WH_TRACK_IDLE, at, until);
            wh_text_add(&w->text, "\"step\":%llu}}", (unsigned long long)step);
        }
        if (over) break;
        if (is_step(e))
            at = e->begin_ns, end = e->end_ns, step = e->step;
        else if (e->end_ns > at)
            at = e->end_ns;
    }
}

/* From the step's beginning of the whole pipeline on, or from where the prediction of the step before ends. */
static void add_predicted(struct writer *w, uint32_t rank, uint64_t step, const struct wh_sched_cost *cost,
                          const struct wh_sched_timing *t) {
    const uint32_t pp = wh_mesh_place(&w->stage->mesh, rank).pp;
    const struct wh_sched_program *p = &w->stage->plan.rank[pp];
    const uint64_t measured_ns = window_of(w, rank, step)->begin_ns, before_ns = w->predicted_end_ns[rank];
    const uint64_t begin_ns = measured_ns > before_ns ? measured_ns : before_ns;
    struct wh_text label = {0};
    for (size_t k = 0; k < p->count; k++) {
        if (!wh_sched_computes((enum wh_sched_op)p->instrs[k].op)) continue;
        const double start = t->rank[pp].start[k];
        const double end = start + wh_sched_duration(cost, (enum wh_sched_op)p->instrs[k].op);
        wh_text_clear(&label);
        wh_sched_label(&w->stage->plan.shape, &p->instrs[k], &label);
        w->predicted_end_ns[rank] = begin_ns + (uint64_t)end;
        block(w, label.data, w->world + rank, WH_TRACK_COMPUTE, begin_ns + (uint64_t)start, w->predicted_end_ns[rank]);
        add_instr_args(w, rank, &p->instrs[k], step);
        wh_text_add(&w->text, "}}");
    }
    wh_text_fini(&label);
}

static enum wh_status predict(struct writer *w, struct wh_trace_shares *out) {
    for (uint64_t step = w->first; step <= w->last; step++) {
        const struct wh_sched_cost cost = measure_costs(w, step);
        struct wh_sched_timing t;
        WH_TRY(wh_sched_time(&w->stage->plan, &cost, WH_SCHED_DEPTH, &t));
        for (uint32_t r = 0; r < w->world; r++) add_predicted(w, r, step, &cost, &t);
        out->predicted_idle += t.idle / (double)out->steps;
        wh_sched_timing_free(&t);
    }
    return WH_OK;
}

static void add_measured(struct writer *w) {
    for (uint32_t r = 0; r < w->world; r++) name_process(w, r, false), name_process(w, r, true);
    for (uint32_t r = 0; r < w->world; r++) {
        for (size_t k = 0; k < w->part[r].count; k++) add_event(w, r, &w->part[r].event[k]);
        add_idle(w, r);
        add_kept(w, r);
    }
}

static enum wh_status write_all(struct writer *w, struct wh_trace_shares *out) {
    const size_t windows = (w->last - w->first + 1) * w->world;
    w->window = calloc(windows, sizeof *w->window);
    w->predicted_end_ns = calloc(w->world, sizeof *w->predicted_end_ns);
    if (!w->window || !w->predicted_end_ns) return WH_FAIL(WH_NOMEM, "no memory for the steps of %u ranks", w->world);
    measure_windows(w);
    measure_shares(w, out);
    wh_text_add(&w->text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    add_measured(w);
    WH_TRY(predict(w, out));
    wh_text_add(&w->text, "\n]}\n");
    flush(w);
    return w->status;
}

enum wh_status wh_trace_write_file(const struct wh_stage *stage, struct wh_trace_part *part, const char *path,
                                   struct wh_trace_shares *out) {
    struct writer w = {.stage = stage, .part = part, .world = stage->mesh.world};
    if (part[0].count == 0) return WH_OK;
    for (uint32_t r = 0; r < w.world; r++) qsort(part[r].event, part[r].count, sizeof *part[r].event, by_time);
    find_steps(&w);
    WH_TRY(wh_file_create(path, &w.file));
    enum wh_status status = write_all(&w, out);
    if (status == WH_OK)
        status = wh_file_commit(&w.file);
    else
        wh_file_abandon(&w.file);
    wh_text_fini(&w.text);
    free(w.window);
    free(w.predicted_end_ns);
    return status;
}
