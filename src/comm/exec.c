#include "comm/exec.h"

#include <stdlib.h>
#include <string.h>

#include "coll/plan.h"
#include "comm/comm_int.h"
#include "os/clock.h"
#include "tensor/vec.h"

enum { TILE_ELEMS = 1024 };

struct wh_comm_exec {
    struct wh_comm *comm;
    struct wh_comm_call call;
    struct wh_coll_request request;
    struct wh_coll_list list;
    char *base[WH_COLL_BUFFER_COUNT];
    struct wh_comm_plan *message; /* one for each step; those of COPY and ADD are unused */
    struct wh_comm_row *row, messages_row;
    uint64_t sent_bytes;
};

static enum wh_dtype format_of(const struct wh_comm_exec *e, enum wh_coll_buffer b) {
    return b == WH_COLL_PARTIAL ? wh_coll_sum_dtype(e->request.dtype) : e->request.dtype;
}

static char *at(const struct wh_comm_exec *e, struct wh_coll_place p) {
    p = wh_coll_resolve(&e->request, e->comm->rank, p);
    char *base = e->base[p.buffer];
    return base ? base + p.first * wh_dtype_bytes(format_of(e, p.buffer)) : NULL;
}

static void copy(const struct wh_comm_exec *e, const struct wh_coll_step *s) {
    if (s->count) memmove(at(e, s->out), at(e, s->left), s->count * wh_dtype_bytes(format_of(e, s->out.buffer)));
}

/* bf16 and fp32 partial sums mixed: through tiles of fp32. */
static void add_mixed(const struct wh_comm_exec *e, const struct wh_coll_step *s) {
    const struct wh_vec *v = wh_vec_select(wh_reduce_name(e->comm->job->reduce));
    float left[TILE_ELEMS], right[TILE_ELEMS];
    bool wide_left = s->left.buffer == WH_COLL_PARTIAL, wide_right = s->right.buffer == WH_COLL_PARTIAL;
    bool wide_out = s->out.buffer == WH_COLL_PARTIAL;
    char *l = at(e, s->left), *r = at(e, s->right), *o = at(e, s->out);
    for (size_t i = 0; i < s->count; i += TILE_ELEMS) {
        size_t n = s->count - i < TILE_ELEMS ? s->count - i : TILE_ELEMS;
        if (wide_left) memcpy(left, l + 4 * i, 4 * n);
        if (!wide_left) v->widen(left, (const uint16_t *)(const void *)(l + 2 * i), n);
        if (wide_right) memcpy(right, r + 4 * i, 4 * n);
        if (!wide_right) v->widen(right, (const uint16_t *)(const void *)(r + 2 * i), n);
        const void *const in[2] = {left, right};
        void *const sum[1] = {left};
        wh_reduce_run(e->comm->job->reduce, WH_F32, e->call.redop, in, 2, sum, 1, n);
        if (wide_out) memcpy(o + 4 * i, left, 4 * n);
        if (!wide_out) v->narrow((uint16_t *)(void *)(o + 2 * i), left, n);
    }
}

static void add(const struct wh_comm_exec *e, const struct wh_coll_step *s) {
    if (e->request.dtype == WH_BF16) {
        add_mixed(e, s);
        return;
    }
    const void *const in[2] = {at(e, s->left), at(e, s->right)};
    void *const out[1] = {at(e, s->out)};
    if (s->count) wh_reduce_run(e->comm->job->reduce, e->request.dtype, e->call.redop, in, 2, out, 1, s->count);
}

static bool is_message(const struct wh_coll_step *s) { return s->kind == WH_COLL_SEND || s->kind == WH_COLL_RECV; }

/* The steps of one round, from `first` to before the returned one: all messages at once, then the rest in order. */
static enum wh_status run_round(struct wh_comm_exec *e, size_t first, size_t *end) {
    const struct wh_coll_step *s = e->list.steps;
    size_t stop = first;
    while (stop < e->list.step_count && s[stop].round == s[first].round) stop++;
    for (size_t i = first; i < stop; i++)
        if (is_message(&s[i])) WH_TRY(wh_comm_start(&e->message[i]));
    for (size_t i = first; i < stop; i++)
        if (is_message(&s[i])) WH_TRY(wh_comm_wait(&e->message[i]));
    for (size_t i = first; i < stop; i++) {
        if (s[i].kind == WH_COLL_COPY) copy(e, &s[i]);
        if (s[i].kind == WH_COLL_ADD) add(e, &s[i]);
    }
    *end = stop;
    return WH_OK;
}

enum wh_status wh_comm_exec_run(struct wh_comm_exec *e) {
    uint64_t begin = wh_clock_ns();
    for (size_t i = 0; i < e->list.step_count;) WH_TRY(run_round(e, i, &i));
    uint64_t ns = wh_clock_ns() - begin;
    e->row->calls++;
    e->row->sent_bytes += e->sent_bytes;
    e->row->ns += ns;
    e->row->exposed_ns += ns;
    return WH_OK;
}

static enum wh_status make_messages(struct wh_comm_exec *e) {
    e->message = calloc(e->list.step_count + 1, sizeof *e->message);
    if (!e->message) return WH_FAIL(WH_NOMEM, "no memory for %zu messages", e->list.step_count);
    for (size_t i = 0; i < e->list.step_count; i++) {
        const struct wh_coll_step *s = &e->list.steps[i];
        if (!is_message(s)) continue;
        bool send = s->kind == WH_COLL_SEND;
        struct wh_comm_call c = {
            .op = send ? WH_SEND : WH_RECV, .count = s->count, .root = s->peer, .row = e->call.row};
        c.dtype = format_of(e, send ? s->left.buffer : s->out.buffer);
        if (send) c.in = at(e, s->left);
        if (!send) c.out = at(e, s->out);
        WH_TRY(wh_plan_prepare(e->comm, &c, &e->message[i]));
        e->message[i].row = &e->messages_row;
        if (send) e->sent_bytes += s->count * wh_dtype_bytes(c.dtype);
    }
    return WH_OK;
}

static enum wh_status fill(struct wh_comm_exec *e, const char *name, uint32_t chunks) {
    struct wh_comm_plan *checked = &e->comm->once; /* the same checks and the same row as for comm.h */
    WH_TRY(wh_plan_prepare(e->comm, &e->call, checked));
    if (e->call.op >= WH_SEND) return WH_FAIL(WH_UNSUPPORTED, "%s has no algorithms", wh_comm_op_name(e->call.op));
    if (e->call.border || e->call.sum)
        return WH_FAIL(WH_UNSUPPORTED, "%s: step lists know no borders and one contribution a rank",
                       wh_comm_op_name(e->call.op));
    if (e->call.dtype == WH_BF16 && e->call.redop == WH_SUM_ROUNDED)
        return WH_FAIL(WH_UNSUPPORTED, "%s: step lists round a sum once", wh_comm_op_name(e->call.op));
    const struct wh_coll_algorithm *a = wh_coll_algorithm(name);
    if (!a) return WH_FAIL(WH_CONFIG, "there is no algorithm '%s'", name);
    e->call = checked->call;
    e->row = checked->row;
    e->request =
        (struct wh_coll_request){.op = (enum wh_coll_op)e->call.op, .ranks = e->comm->size, .root = e->call.root};
    e->request.count = e->call.count;
    e->request.dtype = e->call.dtype;
    e->request.chunks = chunks;
    e->request.in_place = checked->in_place && e->call.op != WH_BARRIER;
    if (e->call.op == WH_REDUCE) e->request.in_place = e->call.in == e->call.out;
    WH_TRY(wh_coll_list_new(&e->request, a, e->comm->rank, &e->list));
    bool in_is_larger = e->call.op == WH_REDUCE_SCATTER || e->call.op == WH_REDUCE;
    e->base[WH_COLL_IN] = (char *)(uintptr_t)e->call.in; /* never written */
    e->base[WH_COLL_OUT] = e->request.in_place && in_is_larger ? e->base[WH_COLL_IN] : e->call.out;
    e->base[WH_COLL_LANDING] = malloc(e->list.landing_elems * wh_dtype_bytes(e->call.dtype) + 64);
    e->base[WH_COLL_PARTIAL] = malloc(e->list.partial_elems * wh_dtype_bytes(wh_coll_sum_dtype(e->call.dtype)) + 64);
    if (!e->base[WH_COLL_LANDING] || !e->base[WH_COLL_PARTIAL])
        return WH_FAIL(WH_NOMEM, "no memory for the work space of %s", name);
    return make_messages(e);
}

enum wh_status wh_comm_exec_make(struct wh_comm *comm, const struct wh_comm_call *call, const char *algorithm,
                                 uint32_t chunks, struct wh_comm_exec **out) {
    struct wh_comm_exec *e = calloc(1, sizeof *e);
    if (!e) return WH_FAIL(WH_NOMEM, "no memory for a step list");
    e->comm = comm;
    e->call = *call;
    enum wh_status status = fill(e, algorithm, chunks);
    if (status != WH_OK) {
        wh_comm_exec_free(e);
        return status;
    }
    *out = e;
    return WH_OK;
}

void wh_comm_exec_free(struct wh_comm_exec *e) {
    if (!e) return;
    free(e->base[WH_COLL_LANDING]);
    free(e->base[WH_COLL_PARTIAL]);
    free(e->message);
    wh_coll_list_free(&e->list);
    free(e);
}
