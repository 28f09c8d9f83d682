#include "coll/select.h"

#include <stdlib.h>

#include "coll/draw.h"

enum { CHUNKS_MAX = 256 };

static bool keeps_contract(const struct wh_coll_request *q, const struct wh_coll_algorithm *a) {
    return !wh_coll_op_adds(q->op) || q->ranks == 1 || (a->canonical && a->canonical(q));
}

static uint64_t bytes_max(const struct wh_coll_plan *p) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < p->request.ranks; r++) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < p->rank[r].step_count; i++) {
            const struct wh_coll_step *s = &p->rank[r].steps[i];
            if (s->kind == WH_COLL_SEND) bytes += s->count * wh_coll_elem_bytes(&p->request, s->left.buffer);
        }
        if (bytes > most) most = bytes;
    }
    return most;
}

static uint64_t room_bytes(const struct wh_coll_plan *p) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < p->request.ranks; r++) {
        const uint64_t bytes = wh_coll_room_bytes(&p->request, &p->rank[r]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Keeps the better of what the candidate has and the plan for `q`. */
static enum wh_status try_plan(const struct wh_coll_request *q, const struct wh_coll_topology *t,
                               struct wh_coll_candidate *c) {
    struct wh_coll_plan p;
    struct wh_coll_price price;
    WH_TRY(wh_coll_plan_new(q, c->algorithm, &p));
    enum wh_status status = wh_coll_price(&p, t, &price);
    if (status == WH_OK && (!c->reason.bytes || price.seconds < c->seconds)) {
        c->request = *q;
        c->seconds = price.seconds;
        c->room_bytes = room_bytes(&p);
        wh_text_clear(&c->reason);
        wh_text_add(&c->reason, "%u round%s, the busiest rank sends ", p.rounds, p.rounds == 1 ? "" : "s");
        wh_coll_draw_bytes((double)bytes_max(&p), &c->reason);
        if (q->chunks > 1) wh_text_add(&c->reason, ", %u pieces", q->chunks);
    }
    if (status == WH_OK) wh_coll_price_free(&price);
    wh_coll_plan_free(&p);
    return status;
}

static void too_large(struct wh_coll_candidate *c, uint64_t room) {
    c->usable = false;
    wh_text_add(&c->reason, "; not used: needs work space of ");
    wh_coll_draw_bytes((double)c->room_bytes, &c->reason);
    wh_text_add(&c->reason, ", there is ");
    wh_coll_draw_bytes((double)room, &c->reason);
}

static enum wh_status fill(const struct wh_coll_request *q, const struct wh_coll_topology *t,
                           const struct wh_coll_limits *limits, struct wh_coll_candidate *c) {
    struct wh_coll_request piecewise = *q;
    uint32_t chunks_max = c->algorithm->pipelined ? CHUNKS_MAX : 1;
    if (!(c->algorithm->operations >> q->op & 1)) {
        wh_text_add(&c->reason, "does not do %s", wh_coll_op_name(q->op));
        return WH_OK;
    }
    if (q->ranks > 1 && c->algorithm->can && !c->algorithm->can(q)) {
        wh_text_add(&c->reason, "needs %s", c->algorithm->demands);
        return WH_OK;
    }
    c->canonical = keeps_contract(q, c->algorithm);
    c->usable = c->canonical || limits->fast;
    for (piecewise.chunks = 1; piecewise.chunks <= chunks_max; piecewise.chunks *= 2)
        WH_TRY(try_plan(&piecewise, t, c));
    if (!c->usable) wh_text_add(&c->reason, "; not used: its order of summation is not the contract's (fast is off)");
    if (c->usable && c->room_bytes > limits->room_bytes) too_large(c, limits->room_bytes);
    return WH_OK;
}

/* Stable: usable before priced before others, then by time. */
static bool before(const struct wh_coll_candidate *a, const struct wh_coll_candidate *b) {
    bool a_priced = a->seconds > 0 || a->usable, b_priced = b->seconds > 0 || b->usable;
    if (a->usable != b->usable) return a->usable;
    if (a_priced != b_priced) return a_priced;
    return a->seconds < b->seconds;
}

static void sort(struct wh_coll_ranking *r) {
    for (size_t i = 1; i < r->count; i++) {
        struct wh_coll_candidate moved = r->items[i];
        size_t at = i;
        for (; at > 0 && before(&moved, &r->items[at - 1]); at--) r->items[at] = r->items[at - 1];
        r->items[at] = moved;
    }
}

enum wh_status wh_coll_select(const struct wh_coll_request *q, const struct wh_coll_topology *t,
                              const struct wh_coll_limits *limits, struct wh_coll_ranking *out) {
    struct wh_coll_ranking r = {0};
    struct wh_coll_request request = *q;
    enum wh_status status = WH_OK;
    size_t count = 0;
    while (wh_coll_algorithms[count]) count++;
    request.ranks_per_machine = t->ranks_per_machine;
    r.items = calloc(count, sizeof *r.items);
    if (!r.items) return WH_FAIL(WH_NOMEM, "no memory to compare %zu algorithms", count);
    for (; r.count < count && status == WH_OK; r.count++) {
        r.items[r.count].algorithm = wh_coll_algorithms[r.count];
        status = fill(&request, t, limits, &r.items[r.count]);
    }
    if (status == WH_OK) sort(&r);
    if (status == WH_OK && !r.items[0].usable)
        status = WH_FAIL(WH_UNSUPPORTED, "no algorithm for %s over %u ranks: %s", wh_coll_op_name(q->op), q->ranks,
                         r.items[0].reason.data);
    if (status != WH_OK)
        wh_coll_ranking_free(&r);
    else
        *out = r;
    return status;
}

void wh_coll_ranking_free(struct wh_coll_ranking *r) {
    for (size_t i = 0; i < r->count; i++) wh_text_fini(&r->items[i].reason);
    free(r->items);
    *r = (struct wh_coll_ranking){0};
}
