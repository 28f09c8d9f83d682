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
                               .piped = blend(low->piped, high->piped, t),
                               .placed = blend(low->placed, high->placed, t),
                               .copy = blend(low->copy, high->copy, t),
                               .add = blend(low->add, high->add, t)};
    for (int w = 0; w < WH_COLL_WAY_COUNT; w++)
        for (int op = 0; op < WH_COLL_MEASURED_OPS; op++) at.way[w][op] = blend(low->way[w][op], high->way[w][op], t);
    return at;
}

struct wh_coll_topology wh_coll_links_topology(const struct wh_coll_links *l, uint64_t bytes, enum wh_coll_way way) {
    const struct wh_coll_level at = level_at(l, bytes);
    const struct wh_coll_link link = {.latency_s = l->latency_s,
                                      .message_s = l->message_s,
                                      .bytes_per_s = 1 / at.piped,
                                      .half_duplex = true,
                                      .piece_bytes = l->piece_bytes,
                                      .placed_bytes_per_s = way == WH_COLL_SHARED ? 1 / at.placed : 0,
                                      .piped_most_bytes = l->piped_most_bytes};
    return (struct wh_coll_topology){
        .memory = link, .network = link, .copy_s_per_byte = at.copy, .add_s_per_byte = at.add};
}

static double vector_bytes(const struct wh_coll_request *q) {
    return (double)q->count * (double)wh_dtype_bytes(q->dtype);
}

/* Vectors that are read or written, and that are fetched because they are written blindly. */
static double vectors_moved(const struct wh_coll_request *q) {
    const double n = q->ranks;
    switch (q->op) {
    case WH_COLL_ALL_REDUCE:
    case WH_COLL_ALL_TO_ALL:
        return q->in_place ? 2 * n : 3 * n;
    case WH_COLL_REDUCE_SCATTER:
    case WH_COLL_REDUCE:
        return q->in_place ? n + 1 : n + 2;
    case WH_COLL_ALL_GATHER:
    case WH_COLL_BROADCAST:
        return q->in_place ? 2 * n - 1 : 2 * n + 1;
    default:
        return 0;
    }
}

double wh_coll_moved(const struct wh_coll_request *q) { return vectors_moved(q) / q->ranks * vector_bytes(q); }

double wh_coll_way_s(const struct wh_coll_links *l, const struct wh_coll_request *q, enum wh_coll_way way) {
    const enum wh_coll_op like = (int)q->op < WH_COLL_MEASURED_OPS ? q->op : WH_COLL_ALL_REDUCE;
    return l->start_s[way] + wh_coll_moved(q) * level_at(l, (uint64_t)vector_bytes(q)).way[way][like];
}

enum wh_status wh_coll_choose(const struct wh_coll_links *l, const struct wh_coll_request *q, enum wh_coll_way way,
                              const struct wh_coll_limits *limits, struct wh_coll_choice *out) {
    const struct wh_coll_topology t = wh_coll_links_topology(l, (uint64_t)vector_bytes(q), way);
    struct wh_coll_choice c = {.way_s = wh_coll_way_s(l, q, way)};
    const enum wh_status status = wh_coll_select(q, &t, limits, &c.ranking);
    if (status != WH_OK && status != WH_UNSUPPORTED) return status; /* no list serves it: then `way` does */
    c.lists = c.ranking.count > 0 && c.ranking.items[0].usable && c.ranking.items[0].seconds < c.way_s;
    *out = c;
    return WH_OK;
}

void wh_coll_choice_free(struct wh_coll_choice *c) { wh_coll_ranking_free(&c->ranking); }
