/* How a plan is run: by comm's own paths or by a step list, whichever is predicted to be faster (coll/links.h). */
#include <stdlib.h>
#include <string.h>

#include "coll/draw.h"
#include "coll/links.h"
#include "comm/comm_int.h"
#include "os/memory.h"

enum { OTHERS_TOLD = 3 };

static enum wh_status share(struct wh_comm *comm, struct wh_coll_links *links) {
    const struct wh_comm_call call = {.op = WH_BROADCAST, .out = links, .count = sizeof *links, .dtype = WH_U8};
    return wh_comm_run(comm, &call);
}

enum wh_status wh_comm_set_links(struct wh_comm *comm, const struct wh_coll_links *links, size_t room_bytes) {
    WH_ASSERT(!comm->links);
    struct wh_coll_links *copy = malloc(sizeof *copy);
    void *room = NULL;
    if (!copy) return WH_FAIL(WH_NOMEM, "no memory for the figures of links");
    *copy = *links;
    enum wh_status status = wh_memory_reserve(room_bytes, &room);
    if (status == WH_OK) status = share(comm, copy);
    if (status != WH_OK) {
        wh_memory_release(room, room_bytes);
        free(copy);
        return status;
    }
    comm->links = copy, comm->room = room, comm->room_bytes = room_bytes;
    return WH_OK;
}

size_t wh_comm_room_bytes(const struct wh_comm *comm) { return comm->room_bytes; }

/* The links' figures are of few operations; step lists know equal slices, one contribution of each rank, no order that a
 * call gives but any, and round a sum once. NULL: lists serve the call. */
static const char *why_no_list(const struct wh_comm_call *call, uint32_t size) {
    const enum wh_comm_op op = call->op;
    if (op != WH_ALL_REDUCE && op != WH_REDUCE_SCATTER && op != WH_ALL_GATHER) return "nothing was measured for it";
    if (call->border) return "slices at given borders";
    if (wh_comm_blocks(call) > 1) return "slices in blocks";
    if (wh_comm_inputs_most(call, size) > 1) return "several contributions of a rank";
    if (call->sum && call->order != WH_ORDER_ANY) return "joined in a given order";
    if (call->dtype == WH_BF16 && call->redop == WH_SUM_ROUNDED) return "rounded at every join";
    return NULL;
}

bool wh_comm_call_has_lists(const struct wh_comm_call *call, uint32_t size) {
    const uint64_t payload = call->op == WH_ALL_GATHER ? call->count / size : call->count;
    return size > 1 && !why_no_list(call, size) && payload * wh_dtype_bytes(call->dtype) > WH_COMM_INLINE_BYTES;
}

/* test_order_noalloc.c: direct, ring and, in all-reduces over powers of two, halving_doubling fit for every number of ranks. */
size_t wh_comm_call_room_bytes(const struct wh_comm_call *call, uint32_t size) {
    if (!wh_comm_call_has_lists(call, size) || call->op == WH_ALL_GATHER) return 0;
    return 2 * call->count * wh_dtype_bytes(wh_coll_sum_dtype(call->dtype)) + size * WH_LINE_BYTES;
}

static const char *order_name(const struct wh_comm_plan *p, bool canonical) {
    if (!wh_comm_op_reduces(p->call.op)) return "";
    return canonical ? ", contract order" : ", an order of its own";
}

static void add_candidate(const char *before, const char *name, double seconds, struct wh_text *out) {
    wh_text_add(out, "%s%s ", before, name);
    wh_coll_draw_seconds(seconds, out);
}

/* "ring, an order of its own (predicted 310 us; arena 400 us, direct 420 us)" */
static void tell(const struct wh_comm_plan *p, enum wh_coll_way way, const struct wh_coll_choice *c,
                 struct wh_text *out) {
    const struct wh_coll_candidate *item = c->ranking.items;
    const char *name = c->lists ? item->algorithm->name : wh_coll_way_name(way), *before = "; ";
    int told = 0;
    wh_text_add(out, "%s%s (", name, order_name(p, !c->lists || item->canonical));
    add_candidate("predicted", "", c->lists ? item->seconds : c->way_s, out);
    if (c->lists) add_candidate(before, wh_coll_way_name(way), c->way_s, out), before = ", ", told++;
    for (size_t i = c->lists ? 1 : 0; i < c->ranking.count && item[i].usable && told < OTHERS_TOLD; i++, told++)
        add_candidate(before, item[i].algorithm->name, item[i].seconds, out), before = ", ";
    wh_text_add(out, ")");
}

/* A choice that was made: many buckets are of one length, and with many ranks to compare takes milliseconds. */
struct wh_order_made {
    struct wh_coll_request request;
    enum wh_coll_way way;
    enum wh_comm_order order;
    const struct wh_coll_algorithm *algorithm; /* NULL: `way` */
    uint32_t chunks;
    struct wh_text how;
    struct wh_order_made *next;
};

static const struct wh_order_made *made_before(const struct wh_comm *comm, const struct wh_coll_request *q,
                                               enum wh_coll_way way, enum wh_comm_order order) {
    const struct wh_order_made *m = comm->made;
    while (m && !(m->request.op == q->op && m->request.count == q->count && m->request.dtype == q->dtype &&
                  m->request.in_place == q->in_place && m->way == way && m->order == order))
        m = m->next;
    return m;
}

static enum wh_status make_choice(const struct wh_comm_plan *p, struct wh_order_made *m) {
    const struct wh_coll_limits limits = {m->order == WH_ORDER_ANY, p->comm->room_bytes};
    struct wh_coll_choice c;
    WH_TRY(wh_coll_choose(p->comm->links, &m->request, m->way, &limits, &c));
    tell(p, m->way, &c, &m->how);
    if (c.lists) m->algorithm = c.ranking.items[0].algorithm, m->chunks = c.ranking.items[0].request.chunks;
    wh_coll_choice_free(&c);
    return WH_OK;
}

/* Whether a slice is in place is each rank's affair, so the choice, which must be everybody's, takes it for granted. */
static enum wh_status choose(struct wh_comm_plan *p, const struct wh_comm_call *call, enum wh_coll_way way,
                             const struct wh_order_made **out) {
    const struct wh_coll_request q = {.op = (enum wh_coll_op)call->op,
                                      .ranks = p->comm->size,
                                      .count = call->count,
                                      .dtype = call->dtype,
                                      .in_place = call->op != WH_ALL_REDUCE || p->in_place};
    *out = made_before(p->comm, &q, way, call->order);
    if (*out) return WH_OK;
    struct wh_order_made *m = calloc(1, sizeof *m);
    if (!m) return WH_FAIL(WH_NOMEM, "no memory for a choice of algorithms");
    m->request = q, m->way = way, m->order = call->order;
    const enum wh_status status = make_choice(p, m);
    if (status != WH_OK) {
        free(m);
        return status;
    }
    m->next = p->comm->made;
    *out = p->comm->made = m;
    return WH_OK;
}

void wh_order_forget(struct wh_comm *comm) {
    for (struct wh_order_made *m; (m = comm->made) != NULL; free(m)) {
        comm->made = m->next;
        wh_text_fini(&m->how);
    }
}

enum wh_status wh_order_choose(struct wh_comm_plan *p, const struct wh_comm_call *call) {
    const enum wh_coll_way way = p->path == WH_PATH_ARENA ? WH_COLL_SHARED : WH_COLL_STAGED;
    const char *why = why_no_list(call, p->comm->size);
    const struct wh_order_made *m = NULL;
    struct wh_text text = {0};
    if (!p->comm->links || (p->path != WH_PATH_ARENA && p->path != WH_PATH_STAGED)) return WH_OK;
    if (!why) WH_TRY(choose(p, call, way, &m));
    if (m)
        wh_text_add(&text, "%s", m->how.data);
    else
        wh_text_add(&text, "%s%s (no step list: %s)", wh_coll_way_name(way), order_name(p, true), why);
    p->choice = text.data;
    return m && m->algorithm ? wh_list_make(p, m->algorithm, m->chunks, p->comm->room) : WH_OK;
}

static void add_size(double bytes, struct wh_text *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    wh_text_add(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

const char *wh_comm_plan_way(const struct wh_comm_plan *p) {
    static const char *const path[] = {"alone", "inline", "arena", "staged", "message"};
    return p->path == WH_PATH_LIST ? wh_list_name(p->list) : path[p->path];
}

size_t wh_comm_plan_bytes(const struct wh_comm_plan *p) { return p->call.count * wh_dtype_bytes(p->call.dtype); }

void wh_comm_plan_describe(const struct wh_comm_plan *p, struct wh_text *out) {
    wh_text_add(out, "%s of ", wh_comm_op_name(p->call.op));
    add_size((double)wh_comm_plan_bytes(p), out);
    if (p->choice)
        wh_text_add(out, ": %s", p->choice);
    else
        wh_text_add(out, ": %s%s", wh_comm_plan_way(p), order_name(p, true));
}
