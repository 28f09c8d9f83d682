/* How a plan is run: by comm's own paths or by a step list, whichever is predicted to be faster (coll/links.h). */
#include <stdlib.h>
#include <string.h>

#include "coll/draw.h"
#include "coll/links.h"
#include "comm/comm_int.h"

enum { OTHERS_TOLD = 3 };

enum wh_status wh_comm_set_links(struct wh_comm *comm, const struct wh_coll_links *links) {
    struct wh_coll_links *copy = malloc(sizeof *copy);
    if (!copy) return WH_FAIL(WH_NOMEM, "no memory for the figures of links");
    *copy = *links;
    const struct wh_comm_call call = {.op = WH_BROADCAST, .out = copy, .count = sizeof *copy, .dtype = WH_U8};
    const enum wh_status status = wh_comm_run(comm, &call);
    if (status != WH_OK) {
        free(copy);
        return status;
    }
    free(comm->links);
    comm->links = copy;
    return WH_OK;
}

/* The links' figures are of these operations; step lists know equal slices, one contribution of each rank, no order that a
 * call gives but any, and round a sum once. */
static bool has_lists(const struct wh_comm_plan *p, const struct wh_comm_call *call) {
    const enum wh_comm_op op = call->op;
    if (p->path != WH_PATH_ARENA && p->path != WH_PATH_STAGED) return false;
    if (call->border || wh_comm_blocks(call) > 1 || wh_comm_inputs_most(call, p->comm->size) > 1) return false;
    if (call->sum && call->order != WH_ORDER_ANY) return false;
    if (call->dtype == WH_BF16 && call->redop == WH_SUM_ROUNDED) return false;
    return op == WH_ALL_REDUCE || op == WH_REDUCE_SCATTER || op == WH_ALL_GATHER;
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
enum wh_status wh_order_choose(struct wh_comm_plan *p, const struct wh_comm_call *call) {
    if (!p->comm->links || !has_lists(p, call)) return WH_OK;
    const enum wh_coll_way way = p->path == WH_PATH_ARENA ? WH_COLL_SHARED : WH_COLL_STAGED;
    const struct wh_coll_request q = {.op = (enum wh_coll_op)call->op,
                                      .ranks = p->comm->size,
                                      .count = call->count,
                                      .dtype = call->dtype,
                                      .in_place = call->op != WH_ALL_REDUCE || p->in_place};
    struct wh_coll_choice c;
    struct wh_text text = {0};
    WH_TRY(wh_coll_choose(p->comm->links, &q, way, call->order == WH_ORDER_ANY, &c));
    tell(p, way, &c, &text);
    p->choice = text.data;
    const struct wh_coll_candidate *best = c.ranking.items;
    const enum wh_status status = c.lists ? wh_list_make(p, best->algorithm, best->request.chunks) : WH_OK;
    wh_coll_choice_free(&c);
    return status;
}

static void add_size(double bytes, struct wh_text *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    wh_text_add(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

void wh_comm_plan_describe(const struct wh_comm_plan *p, struct wh_text *out) {
    static const char *const path[] = {"alone", "inline", "arena", "staged", "message", "list"};
    wh_text_add(out, "%s of ", wh_comm_op_name(p->call.op));
    add_size((double)p->call.count * (double)wh_dtype_bytes(p->call.dtype), out);
    if (p->choice)
        wh_text_add(out, ": %s", p->choice);
    else
        wh_text_add(out, ": %s%s", path[p->path], order_name(p, true));
}
