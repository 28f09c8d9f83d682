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

/* Whether a slice is in place is each rank's affair, so the choice, which must be everybody's, takes it for granted. */
static enum wh_status choose(struct wh_comm_plan *p, const struct wh_comm_call *call, enum wh_coll_way way,
                             struct wh_text *text) {
    const struct wh_coll_request q = {.op = (enum wh_coll_op)call->op,
                                      .ranks = p->comm->size,
                                      .count = call->count,
                                      .dtype = call->dtype,
                                      .in_place = call->op != WH_ALL_REDUCE || p->in_place};
    const struct wh_coll_limits limits = {call->order == WH_ORDER_ANY, p->comm->room_bytes};
    struct wh_coll_choice c;
    WH_TRY(wh_coll_choose(p->comm->links, &q, way, &limits, &c));
    tell(p, way, &c, text);
    const struct wh_coll_candidate *best = c.ranking.items;
    const enum wh_status status =
        c.lists ? wh_list_make(p, best->algorithm, best->request.chunks, p->comm->room) : WH_OK;
    wh_coll_choice_free(&c);
    return status;
}

enum wh_status wh_order_choose(struct wh_comm_plan *p, const struct wh_comm_call *call) {
    const enum wh_coll_way way = p->path == WH_PATH_ARENA ? WH_COLL_SHARED : WH_COLL_STAGED;
    const char *why = why_no_list(call, p->comm->size);
    struct wh_text text = {0};
    enum wh_status status = WH_OK;
    if (!p->comm->links || (p->path != WH_PATH_ARENA && p->path != WH_PATH_STAGED)) return WH_OK;
    if (why)
        wh_text_add(&text, "%s%s (no step list: %s)", wh_coll_way_name(way), order_name(p, true), why);
    else
        status = choose(p, call, way, &text);
    p->choice = text.data;
    return status;
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
