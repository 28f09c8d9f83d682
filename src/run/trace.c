#include "run/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/trace_int.h"
#include "run/traffic.h"

/* A plan is seen when it is started and when it is waited for; besides: step, batch, norm, update, embeddings. */
enum { SEEN_PER_CALL = 2, BESIDES = 16 };

enum wh_status wh_trace_open(const struct wh_stage *stage, uint64_t bucket_bytes, uint64_t first, uint64_t last,
                             struct wh_trace *out) {
    struct wh_traffic traffic;
    size_t calls = BESIDES;
    WH_TRY(wh_traffic_new(stage, bucket_bytes, &traffic));
    wh_traffic_step(&traffic, true);
    for (int i = 0; i < WH_TRAFFIC_COUNT; i++) calls += SEEN_PER_CALL * traffic.row[i].calls;
    wh_traffic_free(&traffic);
    struct wh_trace t = {.stage = stage, .first = first, .last = last, .instr = WH_TRACE_NO_INSTR};
    t.capacity = (calls + stage->program->count) * (last - first + 1);
    t.event = calloc(t.capacity, sizeof *t.event);
    if (!t.event)
        return WH_FAIL(WH_NOMEM, "no memory to trace %zu events of %llu steps", t.capacity,
                       (unsigned long long)(last - first + 1));
    *out = t;
    return WH_OK;
}

void wh_trace_close(struct wh_trace *t) {
    free(t->event);
    *t = (struct wh_trace){0};
}

static struct wh_trace_event *add(struct wh_trace *t, enum wh_track track, uint64_t begin_ns, uint64_t end_ns) {
    if (t->count == t->capacity) {
        t->dropped++;
        return NULL;
    }
    struct wh_trace_event *e = &t->event[t->count++];
    *e = (struct wh_trace_event){
        .begin_ns = begin_ns, .end_ns = end_ns, .step = t->step, .instr = WH_TRACE_NO_INSTR, .track = track};
    return e;
}

static void set_name(struct wh_trace_event *e, const char *name) {
    if (e) snprintf(e->name, sizeof e->name, "%s", name);
}

void wh_trace_step(struct wh_trace *t, uint64_t step) {
    if (!t) return;
    t->on = t->first <= step && step <= t->last;
    t->between = false;
    t->step = step;
    t->step_ns = wh_trace_now(t);
}

void wh_trace_pause(struct wh_trace *t) {
    wh_trace_span(t, WH_TRACK_COMPUTE, "step", t ? t->step_ns : 0);
    if (t) t->between = true;
}

void wh_trace_span(struct wh_trace *t, enum wh_track track, const char *name, uint64_t since_ns) {
    if (t && t->on) set_name(add(t, track, since_ns, wh_clock_ns()), name);
}

static enum wh_track track_of_instr(const struct wh_sched_instr *i) {
    return wh_sched_computes((enum wh_sched_op)i->op) ? WH_TRACK_COMPUTE : WH_TRACK_PIPELINE;
}

void wh_trace_instr(struct wh_trace *t, uint64_t bytes, uint64_t since_ns) {
    if (!t || !t->on) return;
    const struct wh_sched_instr *i = &t->stage->program->instrs[t->instr];
    struct wh_trace_event *e = add(t, track_of_instr(i), since_ns, wh_clock_ns());
    if (e) e->instr = t->instr, e->bytes = bytes;
}

static enum wh_track track_of_row(const char *row) {
    if (strncmp(row, "tp.", 3) == 0) return WH_TRACK_TENSOR;
    return strncmp(row, "pp.", 3) == 0 ? WH_TRACK_PIPELINE : WH_TRACK_DATA;
}

/* What a message's own instruction records isn't recorded twice. */
static bool is_told(const struct wh_trace *t) {
    return t->instr != WH_TRACE_NO_INSTR && track_of_instr(&t->stage->program->instrs[t->instr]) == WH_TRACK_PIPELINE;
}

static void take_call(void *context, const struct wh_comm_call *call, uint64_t begin_ns, uint64_t end_ns) {
    struct wh_trace *t = context;
    if (!t->on || t->between || is_told(t)) return;
    struct wh_trace_event *e = add(t, track_of_row(call->row), begin_ns, end_ns);
    set_name(e, call->row);
    if (e) e->bytes = call->count * wh_dtype_bytes(call->dtype);
}

void wh_trace_watch(struct wh_trace *t, const struct wh_team *team) {
    if (t && team) wh_comm_watch(team->job, take_call, t);
}

/* ---- gathering ---- */

static enum wh_status move(const struct wh_team *team, enum wh_comm_op op, uint32_t peer, void *data, size_t bytes) {
    struct wh_comm_call call = {.op = op, .count = bytes, .dtype = WH_U8, .root = peer, .row = "control.trace"};
    if (op == WH_SEND)
        call.in = data;
    else
        call.out = data;
    return bytes ? wh_comm_run(team->all, &call) : WH_OK;
}

static enum wh_status receive(const struct wh_team *team, uint32_t rank, struct wh_trace_part *out) {
    uint64_t head[2];
    WH_TRY(move(team, WH_RECV, rank, head, sizeof head));
    out->event = calloc(head[0] + 1, sizeof *out->event);
    if (!out->event) return WH_FAIL(WH_NOMEM, "no memory for %llu events", (unsigned long long)head[0]);
    out->count = head[0], out->dropped = head[1];
    return move(team, WH_RECV, rank, out->event, out->count * sizeof *out->event);
}

static enum wh_status send_all(const struct wh_trace *t, const struct wh_team *team) {
    uint64_t head[2] = {t->count, t->dropped};
    WH_TRY(move(team, WH_SEND, 0, head, sizeof head));
    return move(team, WH_SEND, 0, t->event, t->count * sizeof *t->event);
}

static enum wh_status gather(const struct wh_trace *t, const struct wh_team *team, struct wh_trace_part *part) {
    part[0].event = malloc((t->count + 1) * sizeof *t->event);
    if (!part[0].event) return WH_FAIL(WH_NOMEM, "no memory for %zu events", t->count);
    memcpy(part[0].event, t->event, t->count * sizeof *t->event);
    part[0].count = t->count, part[0].dropped = t->dropped;
    for (uint32_t r = 1; r < wh_team_world(team); r++) WH_TRY(receive(team, r, &part[r]));
    return WH_OK;
}

enum wh_status wh_trace_write(const struct wh_trace *t, const struct wh_team *team, const char *path,
                              struct wh_trace_shares *out) {
    const uint32_t world = wh_team_world(team);
    *out = (struct wh_trace_shares){0};
    if (wh_team_rank(team) != 0) return send_all(t, team);
    struct wh_trace_part *part = calloc(world, sizeof *part);
    if (!part) return WH_FAIL(WH_NOMEM, "no memory for the traces of %u ranks", world);
    enum wh_status status = gather(t, team, part);
    if (status == WH_OK) status = wh_trace_write_file(t->stage, part, path, out);
    for (uint32_t r = 0; r < world; r++) free(part[r].event);
    free(part);
    return status;
}
