#include "run/probe_links.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exec.h"
#include "comm/reduce.h"
#include "os/memory.h"
#include "os/probe.h"
#include "run/time_coll.h"

enum {
    MESSAGES = 4,
    MESSAGE_BYTES = 64,
    START_BYTES = 1024,
    FIRST_BYTES = 16 << 10,
    LAST_BYTES = 4 << 20,
    FACTOR = 16
};

struct probe {
    struct wh_comm *comm;
    const struct wh_reduce *reduce;
    const struct wh_probe_links_what *what;
    uint32_t n;
    float *shared, *own; /* the second is this rank's alone */
    size_t own_bytes;
    struct wh_time_coll timer;
};

void wh_probe_links_machine(char out[WH_COLL_LINKS_MACHINE_BYTES]) {
    struct wh_text text = {0};
    wh_probe_machine(&text);
    json_t *j = json_loadb(text.data, text.bytes, 0, NULL);
    const char *processor = json_string_value(json_object_get(j, "processor"));
    const char *kernels = json_string_value(json_array_get(json_object_get(j, "kernels"), 0));
    snprintf(out, WH_COLL_LINKS_MACHINE_BYTES, "%.100s, %d processors, %.20s", processor ? processor : "processor",
             wh_probe_processors(), kernels ? kernels : "");
    json_decref(j);
    wh_text_fini(&text);
}

/* Seconds per call. */
static enum wh_status seconds_of(struct probe *p, enum wh_status (*run)(void *), void *context, double *out) {
    const struct wh_time_coll_what what = {
        .run = run, .context = context, .seconds = p->what->seconds > 0 ? p->what->seconds : 1e-3};
    struct wh_time_coll_result r;
    WH_TRY(wh_time_coll_run(&p->timer, &what, &r));
    *out = r.least_us * 1e-6;
    return WH_OK;
}

/* --- messages --- */

struct messages {
    struct wh_comm_plan *plan[2 * MESSAGES];
    char bytes[2 * MESSAGES][MESSAGE_BYTES];
    int count;
};

static enum wh_status send_and_receive(void *context) {
    struct messages *m = context;
    for (int i = 0; i < m->count; i++) WH_TRY(wh_comm_start(m->plan[i]));
    for (int i = 0; i < m->count; i++) WH_TRY(wh_comm_wait(m->plan[i]));
    return WH_OK;
}

/* `each` messages from every rank at once, to the next ones and round again. */
static enum wh_status time_messages(struct probe *p, int each, double *seconds) {
    struct messages m = {.count = 2 * each};
    enum wh_status status = WH_OK;
    for (int i = 0; i < m.count && status == WH_OK; i++) {
        const uint32_t away = 1 + (uint32_t)(i / 2) % (p->n - 1), me = wh_comm_rank(p->comm);
        const struct wh_comm_call c = {.op = i % 2 ? WH_RECV : WH_SEND,
                                       .in = i % 2 ? NULL : m.bytes[i],
                                       .out = i % 2 ? m.bytes[i] : NULL,
                                       .count = MESSAGE_BYTES,
                                       .dtype = WH_U8,
                                       .root = (i % 2 ? me + p->n - away : me + away) % p->n};
        status = wh_comm_plan_make(p->comm, &c, &m.plan[i]);
    }
    if (status == WH_OK) status = seconds_of(p, send_and_receive, &m, seconds);
    for (int i = 0; i < m.count; i++) wh_comm_plan_free(m.plan[i]);
    return status;
}

static enum wh_status run_exec(void *context) { return wh_comm_exec_run(context); }

/* A round of the ring's all-gather of `bytes`: a slice out and a slice in. */
static enum wh_status time_round(struct probe *p, size_t bytes, double *seconds) {
    const size_t slice = bytes / sizeof(float) / p->n;
    const struct wh_comm_call c = {.op = WH_ALL_GATHER,
                                   .in = p->shared + wh_comm_rank(p->comm) * slice,
                                   .out = p->shared,
                                   .count = slice * p->n,
                                   .dtype = WH_F32};
    struct wh_comm_exec *e;
    WH_TRY(wh_comm_exec_make(p->comm, &c, "ring", 0, &e));
    const enum wh_status status = seconds_of(p, run_exec, e, seconds);
    wh_comm_exec_free(e);
    *seconds /= p->n - 1;
    return status;
}

/* A rank's port works message_s on what it sends and as long on what it receives; the rest of a round is latency. */
static enum wh_status probe_messages(struct probe *p, struct wh_coll_links *l) {
    double one, several, round;
    WH_TRY(time_messages(p, 1, &one));
    WH_TRY(time_messages(p, MESSAGES, &several));
    WH_TRY(time_round(p, p->n * MESSAGE_BYTES, &round));
    l->message_s = several > one ? (several - one) / (2 * (MESSAGES - 1)) : 0;
    if (2 * l->message_s > round) l->message_s = round / 2;
    l->latency_s = round - 2 * l->message_s;
    return WH_OK;
}

static enum wh_status probe_message_bytes(struct probe *p, const struct wh_coll_links *l, struct wh_coll_level *at) {
    const double dead = l->latency_s + 2 * l->message_s, bytes = 2.0 * (double)at->bytes / p->n;
    double round;
    WH_TRY(time_round(p, at->bytes, &round));
    at->message = (round > dead ? round - dead : round / 2) / bytes;
    return WH_OK;
}

/* --- a rank by itself --- */

struct alone {
    const struct wh_reduce *reduce;
    float *from;
    size_t half; /* elements */
};

static enum wh_status copy_half(void *context) {
    const struct alone *a = context;
    memcpy(a->from, a->from + a->half, a->half * sizeof *a->from);
    return WH_OK;
}

static enum wh_status add_half(void *context) {
    const struct alone *a = context;
    const void *const in[2] = {a->from, a->from + a->half};
    void *const out[1] = {a->from};
    wh_reduce_run(a->reduce, WH_F32, WH_SUM, in, 2, out, 1, a->half);
    return WH_OK;
}

static enum wh_status probe_alone(struct probe *p, struct wh_coll_level *at) {
    struct alone a = {p->reduce, p->shared, at->bytes / sizeof(float) / 2};
    const double bytes = (double)(a.half * sizeof(float));
    WH_TRY(seconds_of(p, copy_half, &a, &at->copy));
    WH_TRY(seconds_of(p, add_half, &a, &at->add));
    at->copy /= bytes, at->add /= bytes;
    return WH_OK;
}

/* --- the paths of comm.h --- */

static enum wh_status run_plan(void *context) {
    WH_TRY(wh_comm_start(context));
    return wh_comm_wait(context);
}

static enum wh_status time_way(struct probe *p, enum wh_coll_way way, size_t bytes, double *seconds) {
    float *const vector = way == WH_COLL_SHARED ? p->shared : p->own;
    const struct wh_comm_call c = {
        .op = WH_ALL_REDUCE, .in = vector, .out = vector, .count = bytes / sizeof(float), .dtype = WH_F32};
    struct wh_comm_plan *plan;
    WH_TRY(wh_comm_plan_make(p->comm, &c, &plan));
    const enum wh_status status = seconds_of(p, run_plan, plan, seconds);
    wh_comm_plan_free(plan);
    return status;
}

static enum wh_status probe_start(struct probe *p, enum wh_coll_way way, struct wh_coll_links *l) {
    return time_way(p, way, START_BYTES, &l->start_s[way]);
}

static enum wh_status probe_way(struct probe *p, const struct wh_coll_links *l, enum wh_coll_way way,
                                struct wh_coll_level *at) {
    const double moved = wh_coll_moved(WH_COLL_ALL_REDUCE, p->n, true) / p->n * (double)at->bytes;
    double seconds;
    WH_TRY(time_way(p, way, at->bytes, &seconds));
    at->way[way] = (seconds > l->start_s[way] ? seconds - l->start_s[way] : seconds / 2) / moved;
    return WH_OK;
}

/* --- all of it --- */

static enum wh_status probe_level(struct probe *p, const struct wh_coll_links *l, struct wh_coll_level *at) {
    WH_TRY(probe_alone(p, at));
    if (p->n == 1) {
        at->message = at->copy;
        return WH_OK;
    }
    WH_TRY(probe_message_bytes(p, l, at));
    for (int way = 0; way < WH_COLL_WAY_COUNT; way++) WH_TRY(probe_way(p, l, (enum wh_coll_way)way, at));
    return WH_OK;
}

static enum wh_status probe_all(struct probe *p, struct wh_coll_links *l) {
    const size_t limit = p->own_bytes, factor = p->what->factor ? p->what->factor : FACTOR;
    memset(p->shared, 0, limit); /* sums of zeros: no overflow, no denormals */
    memset(p->own, 0, limit);
    if (p->n > 1) {
        WH_TRY(probe_messages(p, l));
        for (int way = 0; way < WH_COLL_WAY_COUNT; way++) WH_TRY(probe_start(p, (enum wh_coll_way)way, l));
    }
    for (size_t bytes = FIRST_BYTES; bytes <= limit && l->level_count < WH_COLL_LEVELS_MAX; bytes *= factor) {
        struct wh_coll_level *at = &l->level[l->level_count++];
        at->bytes = bytes;
        WH_TRY(probe_level(p, l, at));
    }
    return WH_OK;
}

enum wh_status wh_probe_links(struct wh_comm *comm, const struct wh_probe_links_what *what, struct wh_coll_links *out) {
    const size_t most = what->max_bytes ? what->max_bytes : LAST_BYTES;
    struct wh_coll_links l = {.ranks = wh_comm_size(comm), .piece_bytes = (double)wh_comm_piece_bytes(comm)};
    struct probe p = {.comm = comm, .reduce = wh_reduce_select(NULL), .what = what, .n = l.ranks};
    p.shared = what->scratch, p.own_bytes = most < what->scratch_bytes ? most : what->scratch_bytes;
    if (p.own_bytes < FIRST_BYTES)
        return WH_FAIL(WH_CONFIG, "%zu bytes are too few to measure with: %d at the least", p.own_bytes, FIRST_BYTES);
    if (what->machine) snprintf(l.machine, sizeof l.machine, "%s", what->machine);
    void *own;
    WH_TRY(wh_memory_reserve(p.own_bytes, &own));
    p.own = own;
    enum wh_status status = wh_time_coll_open(comm, &p.timer);
    if (status == WH_OK) status = probe_all(&p, &l);
    wh_time_coll_close(&p.timer);
    wh_memory_release(own, p.own_bytes);
    if (status == WH_OK) *out = l;
    return status;
}
