#include "coll/links.h"

#include <math.h>

const char *wh_coll_way_name(enum wh_coll_way way) { return way == WH_COLL_SHARED ? "arena" : "staged"; }

/* Figures of a level, or between two. */
static double blend(double low, double high, double t) { return low + (high - low) * t; }

static struct wh_coll_level level_at(const struct wh_coll_links *l, uint64_t bytes) {
    const struct wh_coll_level *last = &l->level[l->level_count - 1];
    if (bytes <= l->level[0].bytes) return l->level[0];
    if (bytes >= last->bytes) return *last;
    const struct wh_coll_level *high = l->level;
    while (high->bytes < bytes) high++;
    const struct wh_coll_level *low = high - 1;
    const double t = log((double)bytes / (double)low->bytes) / log((double)high->bytes / (double)low->bytes);
    struct wh_coll_level at = {.bytes = bytes,
                               .message = blend(low->message, high->message, t),
                               .copy = blend(low->copy, high->copy, t),
                               .add = blend(low->add, high->add, t)};
    for (int w = 0; w < WH_COLL_WAY_COUNT; w++) at.way[w] = blend(low->way[w], high->way[w], t);
    return at;
}

struct wh_coll_topology wh_coll_links_topology(const struct wh_coll_links *l, uint64_t bytes) {
    const struct wh_coll_level at = level_at(l, bytes);
    const struct wh_coll_link link = {l->latency_s, l->message_s, 1 / at.message, true, l->piece_bytes};
    return (struct wh_coll_topology){
        .memory = link, .network = link, .copy_s_per_byte = at.copy, .add_s_per_byte = at.add};
}

double wh_coll_moved(enum wh_coll_op op, uint32_t ranks, bool in_place) {
    const double n = ranks;
    switch (op) {
    case WH_COLL_ALL_REDUCE:
    case WH_COLL_ALL_TO_ALL:
        return 2 * n;
    case WH_COLL_REDUCE_SCATTER:
    case WH_COLL_REDUCE:
        return n + 1;
    case WH_COLL_ALL_GATHER:
    case WH_COLL_BROADCAST:
        return in_place ? n : n + 1;
    default:
        return 0;
    }
}

static double vector_bytes(const struct wh_coll_request *q) {
    return (double)q->count * (double)wh_dtype_bytes(q->dtype);
}

/* What memory moves for it: lines that are written without having been read are fetched first. */
static double fetched(const struct wh_coll_request *q) {
    const double n = q->ranks, blind = q->in_place ? n - 1 : n;
    switch (q->op) {
    case WH_COLL_ALL_REDUCE:
    case WH_COLL_ALL_TO_ALL:
        return q->in_place ? 0 : n;
    case WH_COLL_REDUCE_SCATTER:
    case WH_COLL_REDUCE:
        return q->in_place ? 0 : 1;
    case WH_COLL_ALL_GATHER:
    case WH_COLL_BROADCAST:
        return blind;
    default:
        return 0;
    }
}

double wh_coll_way_s(const struct wh_coll_links *l, const struct wh_coll_request *q, enum wh_coll_way way) {
    const double bytes = vector_bytes(q), vectors = wh_coll_moved(q->op, q->ranks, q->in_place) + fetched(q);
    return l->start_s[way] + vectors / q->ranks * bytes * level_at(l, (uint64_t)bytes).way[way];
}

enum wh_status wh_coll_choose(const struct wh_coll_links *l, const struct wh_coll_request *q, enum wh_coll_way way,
                              bool fast, struct wh_coll_choice *out) {
    const struct wh_coll_topology t = wh_coll_links_topology(l, (uint64_t)vector_bytes(q));
    struct wh_coll_choice c = {.way_s = wh_coll_way_s(l, q, way)};
    const enum wh_status status = wh_coll_select(q, &t, fast, &c.ranking);
    if (status != WH_OK && status != WH_UNSUPPORTED) return status; /* no list serves it: then `way` does */
    c.lists = c.ranking.count > 0 && c.ranking.items[0].usable && c.ranking.items[0].seconds < c.way_s;
    *out = c;
    return WH_OK;
}

void wh_coll_choice_free(struct wh_coll_choice *c) { wh_coll_ranking_free(&c->ranking); }
