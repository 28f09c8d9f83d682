#include "comm/exec.h"

#include <stdlib.h>
#include <string.h>

#include "coll/plan.h"
#include "comm/comm_int.h"
#include "tensor/vec.h"

enum { TILE_ELEMS = 1024, LINE_BYTES = 64 };

struct wh_list {
    struct wh_comm *comm;
    struct wh_comm_call call;
    struct wh_coll_request request;
    const struct wh_coll_algorithm *algorithm;
    struct wh_coll_list list;
    char *base[WH_COLL_BUFFER_COUNT];
    char *own_room;               /* NULL: LANDING and PARTIAL lie in the group's */
    struct wh_comm_plan *message; /* one for each step; those of COPY and ADD are unused */
    size_t first, end;            /* steps of this round */
};

struct wh_comm_exec {
    struct wh_comm_plan *plan;
};

static enum wh_dtype format_of(const struct wh_list *e, enum wh_coll_buffer b) {
    return b == WH_COLL_PARTIAL ? wh_coll_sum_dtype(e->request.dtype) : e->request.dtype;
}

static char *at(const struct wh_list *e, struct wh_coll_place p) {
    p = wh_coll_resolve(&e->request, e->comm->rank, p);
    char *base = e->base[p.buffer];
    return base ? base + p.first * wh_dtype_bytes(format_of(e, p.buffer)) : NULL;
}

static void copy(const struct wh_list *e, const struct wh_coll_step *s) {
    if (s->count) memmove(at(e, s->out), at(e, s->left), s->count * wh_dtype_bytes(format_of(e, s->out.buffer)));
}

/* bf16 and fp32 partial sums mixed: through tiles of fp32. */
static void add_mixed(const struct wh_list *e, const struct wh_coll_step *s) {
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

static void add(const struct wh_list *e, const struct wh_coll_step *s) {
    if (e->request.dtype == WH_BF16) {
        add_mixed(e, s);
        return;
    }
    const void *const in[2] = {at(e, s->left), at(e, s->right)};
    void *const out[1] = {at(e, s->out)};
    if (s->count) wh_reduce_run(e->comm->job->reduce, e->request.dtype, e->call.redop, in, 2, out, 1, s->count);
}

static bool is_message(const struct wh_coll_step *s) { return s->kind == WH_COLL_SEND || s->kind == WH_COLL_RECV; }

/* Starts the messages of the round that begins with step `first`; all are concurrent. */
static void begin_round(struct wh_list *e, size_t first, uint64_t start_ns) {
    const struct wh_coll_step *s = e->list.steps;
    e->first = e->end = first;
    while (e->end < e->list.step_count && s[e->end].round == s[first].round) e->end++;
    for (size_t i = first; i < e->end; i++) {
        if (!is_message(&s[i])) continue;
        e->message[i].finished = false;
        e->message[i].entry.start_ns = start_ns;
        wh_message_start(&e->message[i]);
    }
}

static const struct wh_comm_call meeting = {.op = WH_BARRIER, .dtype = WH_U8};

/* The members meet in the flags as all operations do, so that one that calls something else is found out; it costs no time
 * of its own, since the messages don't wait for it. */
void wh_list_start(struct wh_comm_plan *p) {
    p->action[0] = (struct wh_action){
        .comm = p->comm, .call = &meeting, .path = WH_PATH_INLINE, .fingerprint = p->call_hash, .in = NULL};
    wh_action_start(&p->action[0], &p->entry);
    p->comm->listed = p;
    begin_round(p->list, 0, p->start_ns);
}

struct wh_comm_plan *wh_list_awaits(const struct wh_comm_plan *p) {
    const struct wh_list *e = p->list;
    for (size_t i = e->first; i < e->end; i++)
        if (is_message(&e->list.steps[i]) && !e->message[i].finished) return &e->message[i];
    return NULL;
}

bool wh_list_move(struct wh_comm *comm) {
    struct wh_comm_plan *p = comm->listed;
    struct wh_list *e = p->list;
    if (wh_list_awaits(p)) return false;
    for (size_t i = e->first; i < e->end; i++) {
        if (e->list.steps[i].kind == WH_COLL_COPY) copy(e, &e->list.steps[i]);
        if (e->list.steps[i].kind == WH_COLL_ADD) add(e, &e->list.steps[i]);
    }
    e->first = e->end;
    if (e->end < e->list.step_count) {
        begin_round(e, e->end, p->start_ns);
        return true;
    }
    p->finished = p->action[0].finished;
    if (p->finished) comm->listed = NULL;
    return false;
}

static enum wh_status make_messages(struct wh_list *e) {
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
    }
    return WH_OK;
}

static struct wh_coll_request request_of(const struct wh_comm_plan *p, uint32_t chunks) {
    const struct wh_comm_call *c = &p->call;
    return (struct wh_coll_request){
        .op = (enum wh_coll_op)c->op,
        .ranks = p->comm->size,
        .root = c->root,
        .count = c->count,
        .dtype = c->dtype,
        .in_place = c->op == WH_REDUCE ? c->in == c->out : p->in_place && c->op != WH_BARRIER,
        .chunks = chunks};
}

static enum wh_status fill(struct wh_list *e, void *room) {
    WH_TRY(wh_coll_list_new(&e->request, e->algorithm, e->comm->rank, &e->list));
    bool in_is_larger = e->call.op == WH_REDUCE_SCATTER || e->call.op == WH_REDUCE;
    e->base[WH_COLL_IN] = (char *)(uintptr_t)e->call.in; /* never written */
    e->base[WH_COLL_OUT] = e->request.in_place && in_is_larger ? e->base[WH_COLL_IN] : e->call.out;
    if (!room) room = e->own_room = aligned_alloc(LINE_BYTES, wh_coll_room_bytes(&e->request, &e->list) + LINE_BYTES);
    if (!room) return WH_FAIL(WH_NOMEM, "no memory for the work space of %s", e->algorithm->name);
    e->base[WH_COLL_LANDING] = room;
    e->base[WH_COLL_PARTIAL] = (char *)room + wh_coll_landing_bytes(&e->request, &e->list);
    return make_messages(e);
}

void wh_list_free(struct wh_list *e) {
    if (!e) return;
    free(e->own_room);
    free(e->message);
    wh_coll_list_free(&e->list);
    free(e);
}

/* Part of the fingerprint: all members must run the same list. */
static uint64_t list_number(const struct wh_coll_algorithm *a, uint32_t chunks) {
    uint64_t number = 1;
    while (wh_coll_algorithms[number - 1] != a) number++;
    return number + 64 * (uint64_t)chunks;
}

const char *wh_list_name(const struct wh_list *e) { return e->algorithm->name; }

enum wh_status wh_list_make(struct wh_comm_plan *p, const struct wh_coll_algorithm *a, uint32_t chunks, void *room) {
    struct wh_list *e = calloc(1, sizeof *e);
    if (!e) return WH_FAIL(WH_NOMEM, "no memory for a step list");
    e->comm = p->comm, e->call = p->call, e->request = request_of(p, chunks), e->algorithm = a;
    enum wh_status status = fill(e, room);
    if (status != WH_OK) {
        wh_list_free(e);
        return status;
    }
    p->list = e, p->path = WH_PATH_LIST;
    p->call_hash += list_number(a, chunks) * 0x9E3779B97F4A7C15u;
    return WH_OK;
}

/* ---- exec.h ---- */

size_t wh_comm_piece_bytes(const struct wh_comm *comm) { return wh_message_piece_bytes(comm->job); }

static enum wh_status make_list(struct wh_comm_plan *p, const struct wh_comm_call *call, const char *name,
                                uint32_t chunks) {
    const struct wh_coll_algorithm *a = wh_coll_algorithm(name);
    if (p->call.op >= WH_SEND) return WH_FAIL(WH_UNSUPPORTED, "%s has no algorithms", wh_comm_op_name(p->call.op));
    if (call->border || call->sum)
        return WH_FAIL(WH_UNSUPPORTED, "%s: step lists know no borders and one contribution a rank",
                       wh_comm_op_name(p->call.op));
    if (call->dtype == WH_BF16 && call->redop == WH_SUM_ROUNDED)
        return WH_FAIL(WH_UNSUPPORTED, "%s: step lists round a sum once", wh_comm_op_name(p->call.op));
    if (!a) return WH_FAIL(WH_CONFIG, "there is no algorithm '%s'", name);
    return wh_list_make(p, a, chunks, NULL);
}

enum wh_status wh_comm_exec_make(struct wh_comm *comm, const struct wh_comm_call *call, const char *algorithm,
                                 uint32_t chunks, struct wh_comm_exec **out) {
    struct wh_comm_exec *e = calloc(1, sizeof *e);
    if (!e) return WH_FAIL(WH_NOMEM, "no memory for a step list");
    enum wh_status status = wh_plan_new(comm, call, &e->plan);
    if (status == WH_OK) status = make_list(e->plan, call, algorithm, chunks);
    if (status != WH_OK) {
        wh_comm_exec_free(e);
        return status;
    }
    *out = e;
    return WH_OK;
}

enum wh_status wh_comm_exec_run(struct wh_comm_exec *e) {
    WH_TRY(wh_comm_start(e->plan));
    return wh_comm_wait(e->plan);
}

void wh_comm_exec_free(struct wh_comm_exec *e) {
    if (!e) return;
    wh_comm_plan_free(e->plan);
    free(e);
}
