#include "run/probe_links.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exec.h"
#include "comm/reduce.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/probe.h"
#include "run/time_coll.h"

enum {
    MESSAGES = 4,
    MESSAGE_BYTES = 64,
    START_BYTES = 1024,
    PASSES_MAX = 5,
    LEVEL_UNIT_BYTES = 4096,
    LINE_BYTES = 64,
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
static enum wh_status seconds_of(struct probe *p, struct wh_time_coll_what what, double *out) {
    struct wh_time_coll_result r;
    what.seconds = p->what->seconds > 0 ? p->what->seconds : 1e-3;
    WH_TRY(wh_time_coll_run(&p->timer, &what, &r));
    *out = r.least_us * 1e-6;
    return WH_OK;
}

/* Seconds beyond those that need no bytes. Where those seem to be all of it, half. */
static double beyond(double seconds, double dead) { return seconds > dead ? seconds - dead : seconds / 2; }

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
    const struct wh_time_coll_what what = {.run = send_and_receive, .context = &m};
    if (status == WH_OK) status = seconds_of(p, what, seconds);
    for (int i = 0; i < m.count; i++) wh_comm_plan_free(m.plan[i]);
    return status;
}

/* What every rank sends to the next one, and gets from the one before. */
struct exchange {
    struct wh_comm_plan *send, *recv;
};

static enum wh_status run_exchange(void *context) {
    struct exchange *e = context;
    WH_TRY(wh_comm_start(e->send));
    WH_TRY(wh_comm_start(e->recv));
    WH_TRY(wh_comm_wait(e->send));
    return wh_comm_wait(e->recv);
}

/* `memory` has `bytes` for each direction. */
static enum wh_status time_exchange(struct probe *p, void *memory, size_t bytes, double *seconds) {
    const uint32_t me = wh_comm_rank(p->comm);
    struct exchange e = {0};
    const struct wh_time_coll_what what = {
        .run = run_exchange, .context = &e, .rewrite = memory, .rewrite_bytes = bytes};
    struct wh_comm_call c = {.op = WH_SEND, .in = memory, .count = bytes, .dtype = WH_U8, .root = (me + 1) % p->n};
    enum wh_status status = wh_comm_plan_make(p->comm, &c, &e.send);
    c.op = WH_RECV, c.in = NULL, c.out = (char *)memory + bytes, c.root = (me + p->n - 1) % p->n;
    if (status == WH_OK) status = wh_comm_plan_make(p->comm, &c, &e.recv);
    if (status == WH_OK) status = seconds_of(p, what, seconds);
    wh_comm_plan_free(e.send), wh_comm_plan_free(e.recv);
    return status;
}

/* A rank's port works message_s on what it sends and as long on what it receives; the rest of a round is latency. */
static enum wh_status probe_messages(struct probe *p, struct wh_coll_links *l) {
    double one, several, round;
    WH_TRY(time_messages(p, 1, &one));
    WH_TRY(time_messages(p, MESSAGES, &several));
    WH_TRY(time_exchange(p, p->shared, MESSAGE_BYTES, &round));
    l->message_s = several > one ? (several - one) / (2 * (MESSAGES - 1)) : 0;
    if (2 * l->message_s > round) l->message_s = round / 2;
    l->latency_s = round - 2 * l->message_s;
    return WH_OK;
}

/* The sender of a placed message hears of its end a latency later. */
static enum wh_status probe_message_bytes(struct probe *p, const struct wh_coll_links *l, struct wh_coll_level *at) {
    const size_t half = at->bytes / 2;
    const double dead = l->latency_s + 2 * l->message_s;
    double piped, placed;
    WH_TRY(time_exchange(p, p->own, half, &piped));
    WH_TRY(time_exchange(p, p->shared, half, &placed));
    at->piped = beyond(piped, dead) / (2 * (double)half);
    at->placed = beyond(placed, dead + l->latency_s) / (double)half;
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
    WH_TRY(seconds_of(p, (struct wh_time_coll_what){.run = copy_half, .context = &a}, &at->copy));
    WH_TRY(seconds_of(p, (struct wh_time_coll_what){.run = add_half, .context = &a}, &at->add));
    at->copy /= bytes, at->add /= bytes;
    return WH_OK;
}

/* --- the paths of comm.h --- */

static enum wh_status run_plan(void *plan) {
    WH_TRY(wh_comm_start(plan));
    return wh_comm_wait(plan);
}

/* In place; `q` has the vector. */
static enum wh_status time_way(struct probe *p, enum wh_coll_way way, const struct wh_coll_request *q,
                               double *seconds) {
    float *const vector = way == WH_COLL_SHARED ? p->shared : p->own;
    float *const slice = vector + wh_coll_slice(q, wh_comm_rank(p->comm)).first;
    const bool gather = q->op == WH_COLL_ALL_GATHER;
    const struct wh_comm_call c = {.op = (enum wh_comm_op)q->op,
                                   .in = gather ? slice : vector,
                                   .out = q->op == WH_COLL_REDUCE_SCATTER ? slice : vector,
                                   .count = q->count,
                                   .dtype = q->dtype};
    struct wh_comm_plan *plan;
    WH_TRY(wh_comm_plan_make(p->comm, &c, &plan));
    const struct wh_time_coll_what what = {
        .run = run_plan,
        .context = plan,
        .rewrite = gather ? slice : vector,
        .rewrite_bytes = wh_coll_in_elems(q, wh_comm_rank(p->comm)) * sizeof *vector};
    const enum wh_status status = seconds_of(p, what, seconds);
    wh_comm_plan_free(plan);
    return status;
}

static struct wh_coll_request request(const struct probe *p, enum wh_coll_op op, size_t bytes) {
    return (struct wh_coll_request){
        .op = op, .ranks = p->n, .count = bytes / sizeof(float), .dtype = WH_F32, .in_place = true};
}

static enum wh_status probe_start(struct probe *p, enum wh_coll_way way, struct wh_coll_links *l) {
    const struct wh_coll_request q = request(p, WH_COLL_ALL_REDUCE, START_BYTES);
    return time_way(p, way, &q, &l->start_s[way]);
}

static enum wh_status probe_way(struct probe *p, const struct wh_coll_links *l, enum wh_coll_way way,
                                struct wh_coll_level *at) {
    for (int op = 0; op < WH_COLL_MEASURED_OPS; op++) {
        const struct wh_coll_request q = request(p, (enum wh_coll_op)op, at->bytes);
        double seconds;
        WH_TRY(time_way(p, way, &q, &seconds));
        at->way[way][op] = beyond(seconds, l->start_s[way]) / wh_coll_moved(&q);
    }
    return WH_OK;
}

/* --- all of it --- */

static enum wh_status probe_level(struct probe *p, const struct wh_coll_links *l, struct wh_coll_level *at) {
    WH_TRY(probe_alone(p, at));
    if (p->n == 1) {
        at->piped = at->placed = at->copy;
        return WH_OK;
    }
    WH_TRY(probe_message_bytes(p, l, at));
    for (int way = 0; way < WH_COLL_WAY_COUNT; way++) WH_TRY(probe_way(p, l, (enum wh_coll_way)way, at));
    return WH_OK;
}

static enum wh_status probe_all(struct probe *p, struct wh_coll_links *l) {
    const size_t limit = p->own_bytes / LEVEL_UNIT_BYTES * LEVEL_UNIT_BYTES;
    const size_t factor = p->what->factor ? p->what->factor : FACTOR;
    memset(p->shared, 0, limit); /* sums of zeros: no overflow, no denormals */
    memset(p->own, 0, limit);
    if (p->n > 1) {
        WH_TRY(probe_messages(p, l));
        for (int way = 0; way < WH_COLL_WAY_COUNT; way++) WH_TRY(probe_start(p, (enum wh_coll_way)way, l));
    }
    bool late = false;
    for (size_t bytes = WH_PROBE_LINKS_LEVEL_BYTES; !late; bytes = bytes * factor < limit ? bytes * factor : limit) {
        struct wh_coll_level *at = &l->level[l->level_count++];
        at->bytes = bytes;
        WH_TRY(probe_level(p, l, at));
        if (bytes == limit || l->level_count == WH_COLL_LEVELS_MAX) break;
        WH_TRY(wh_time_coll_late(&p->timer, &late));
    }
    return WH_OK;
}

/* A figure of `l`, numbered; NULL behind the last. */
static double *figure(struct wh_coll_links *l, uint32_t i) {
    double *const whole[] = {&l->latency_s, &l->message_s, &l->start_s[WH_COLL_SHARED], &l->start_s[WH_COLL_STAGED]};
    enum { WHOLE = sizeof whole / sizeof *whole, ALONE = 4, WAYS = WH_COLL_WAY_COUNT * WH_COLL_MEASURED_OPS };
    if (i < WHOLE) return whole[i];
    const uint32_t of = (i - WHOLE) / (ALONE + WAYS), k = (i - WHOLE) % (ALONE + WAYS);
    if (of >= l->level_count) return NULL;
    struct wh_coll_level *at = &l->level[of];
    double *const alone[ALONE] = {&at->piped, &at->placed, &at->copy, &at->add};
    return k < ALONE ? alone[k] : &at->way[(k - ALONE) / WH_COLL_MEASURED_OPS][(k - ALONE) % WH_COLL_MEASURED_OPS];
}

/* Each figure's median. A machine's neighbours, and where its virtual processors run, change from one second to the next,
 * and may make it faster than usual, too. */
static void take_medians(struct wh_coll_links *pass, uint32_t passes, struct wh_coll_links *l) {
    double value[PASSES_MAX];
    *l = pass[0];
    for (uint32_t i = 0; figure(l, i); i++) {
        for (uint32_t k = 0; k < passes; k++) value[k] = *figure(&pass[k], i);
        qsort(value, passes, sizeof *value, wh_time_coll_ascending);
        *figure(l, i) = value[passes / 2];
    }
}

enum wh_status wh_probe_links(struct wh_comm *comm, const struct wh_probe_links_what *what, struct wh_coll_links *out) {
    const size_t most = what->max_bytes ? what->max_bytes : LAST_BYTES;
    const uint32_t passes = what->passes < 1 ? 1 : what->passes > PASSES_MAX ? PASSES_MAX : what->passes;
    struct wh_coll_links pass[PASSES_MAX];
    struct wh_coll_links l = {.ranks = wh_comm_size(comm), .piece_bytes = (double)wh_comm_piece_bytes(comm)};
    l.piped_most_bytes = (double)wh_comm_piped_most_bytes();
    struct probe p = {.comm = comm, .reduce = wh_reduce_select(NULL), .what = what, .n = l.ranks};
    const size_t skipped = -(uintptr_t)what->scratch % LINE_BYTES;
    const size_t there = what->scratch_bytes > skipped ? what->scratch_bytes - skipped : 0;
    p.shared = (float *)(void *)((char *)what->scratch + skipped), p.own_bytes = most < there ? most : there;
    if (p.own_bytes < WH_PROBE_LINKS_LEVEL_BYTES)
        return WH_FAIL(WH_CONFIG, "%zu bytes are too few to measure with: %d at the least", p.own_bytes,
                       WH_PROBE_LINKS_LEVEL_BYTES);
    if (what->machine) snprintf(l.machine, sizeof l.machine, "%s", what->machine);
    void *own;
    WH_TRY(wh_memory_reserve(p.own_bytes, &own));
    p.own = own;
    enum wh_status status = wh_time_coll_open(comm, &p.timer);
    if (what->limit_s > 0) p.timer.until_ns = wh_clock_ns() + (uint64_t)(what->limit_s * 1e9);
    for (uint32_t k = 0; k < passes && status == WH_OK; k++) {
        pass[k] = l;
        status = probe_all(&p, &pass[k]);
    }
    wh_time_coll_close(&p.timer);
    wh_memory_release(own, p.own_bytes);
    if (status != WH_OK) return status;
    take_medians(pass, passes, out);
    return WH_OK;
}
