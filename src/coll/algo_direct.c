/* Direct: everyone talks to everyone; two dependent rounds however many ranks.
 *
 * Reduce-scatter: each rank receives its slice from all others and adds all n in the canonical order. All-reduce: then it
 * sends the finished slice to all. For 4 ranks ("2: 1" is rank 1's share of slice 2):
 *
 *     round    rank 0 sends       rank 1 sends       rank 2 sends       rank 3 sends
 *     0        1:0 2:0 3:0        2:1 3:1 0:1        3:2 0:2 1:2        0:3 1:3 2:3
 *              rank r: slice r = (0 + 1) + (2 + 3)
 *     1        finished slice 0   finished slice 1   finished slice 2   finished slice 3, to all
 *
 * Bytes sent by a rank are the ring's, (n-1)/n S each round; messages n - 1 each round; landing S. Always
 * canonical. Each rank starts with its right neighbour so that no one is everybody's first.
 * Cost: 2a + 2(n-2)o + 2(n-1)/n S b + (n-1)/n S g, o being what a message costs its sender. */
#include "coll/build.h"

static uint32_t turn(const struct wh_coll_builder *b, uint32_t i) { return (b->rank + i) % b->q->ranks; }
/* Who is rank r's i-th receiver sends to r as i-th: all messages of one turn can go at once. */
static uint32_t turn_back(const struct wh_coll_builder *b, uint32_t i) {
    return (b->rank + b->q->ranks - i) % b->q->ranks;
}

/* Block i of LANDING came from rank i; the own one is in IN. Their sum goes to `out`. */
static void add_all(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out, uint64_t own_first,
                    uint64_t elems) {
    struct wh_coll_operands o = {.count = b->q->ranks,
                                 .own = b->rank,
                                 .first = wh_coll_at(WH_COLL_LANDING, 0),
                                 .own_place = wh_coll_at(WH_COLL_IN, own_first),
                                 .stride = elems};
    wh_coll_add_tree(b, round, out, &o, 0, elems);
}

static void reduce_scatter(struct wh_coll_builder *b, struct wh_coll_place out) {
    struct wh_coll_range own = wh_coll_slice(b->q, b->rank);
    for (uint32_t i = 1; i < b->q->ranks; i++) {
        struct wh_coll_range other = wh_coll_slice(b->q, turn(b, i));
        wh_coll_send(b, 0, turn(b, i), wh_coll_at(WH_COLL_IN, other.first), other.count);
        wh_coll_recv(b, 0, turn_back(b, i), wh_coll_at(WH_COLL_LANDING, turn_back(b, i) * own.count), own.count);
    }
    add_all(b, 0, out, own.first, own.count);
}

/* The own slice is at `own_place` and goes to all. */
static void all_gather(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place own_place) {
    struct wh_coll_range own = wh_coll_slice(b->q, b->rank);
    for (uint32_t i = 1; i < b->q->ranks; i++) {
        struct wh_coll_range other = wh_coll_slice(b->q, turn_back(b, i));
        wh_coll_send(b, round, turn(b, i), own_place, own.count);
        wh_coll_recv(b, round, turn_back(b, i), wh_coll_at(WH_COLL_OUT, other.first), other.count);
    }
    wh_coll_copy(b, round, wh_coll_at(WH_COLL_OUT, own.first), own_place, own.count);
}

/* Slice j goes to rank j. In place a slice must not arrive where one is still to be sent from. */
static void all_to_all(struct wh_coll_builder *b) {
    uint64_t each = b->q->count / b->q->ranks;
    enum wh_coll_buffer arrives = b->q->in_place ? WH_COLL_LANDING : WH_COLL_OUT;
    for (uint32_t i = 1; i < b->q->ranks; i++) {
        uint32_t to = turn(b, i), from = turn_back(b, i);
        wh_coll_send(b, 0, to, wh_coll_at(WH_COLL_IN, to * each), each);
        wh_coll_recv(b, 0, from, wh_coll_at(arrives, from * each), each);
        if (b->q->in_place)
            wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, from * each), wh_coll_at(arrives, from * each), each);
    }
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, b->rank * each), wh_coll_at(WH_COLL_IN, b->rank * each), each);
}

static void broadcast(struct wh_coll_builder *b) {
    struct wh_coll_place in = wh_coll_at(WH_COLL_IN, 0), out = wh_coll_at(WH_COLL_OUT, 0);
    if (b->rank != b->q->root) {
        wh_coll_recv(b, 0, b->q->root, out, b->q->count);
        return;
    }
    for (uint32_t i = 1; i < b->q->ranks; i++) wh_coll_send(b, 0, turn(b, i), in, b->q->count);
    wh_coll_copy(b, 0, out, in, b->q->count);
}

static void reduce(struct wh_coll_builder *b) {
    uint64_t count = b->q->count;
    if (b->rank != b->q->root) {
        wh_coll_send(b, 0, b->q->root, wh_coll_at(WH_COLL_IN, 0), count);
        return;
    }
    for (uint32_t i = 1; i < b->q->ranks; i++)
        wh_coll_recv(b, 0, turn_back(b, i), wh_coll_at(WH_COLL_LANDING, turn_back(b, i) * count), count);
    add_all(b, 0, wh_coll_at(WH_COLL_OUT, 0), 0, count);
}

static void barrier(struct wh_coll_builder *b) {
    for (uint32_t i = 1; i < b->q->ranks; i++) {
        wh_coll_signal(b, 0, turn(b, i));
        wh_coll_await(b, 0, turn_back(b, i));
    }
}

static void build(struct wh_coll_builder *b) {
    struct wh_coll_place own = wh_coll_at(WH_COLL_OUT, wh_coll_slice(b->q, b->rank).first);
    switch (b->q->op) {
    case WH_COLL_ALL_REDUCE:
        reduce_scatter(b, own);
        all_gather(b, 1, own);
        break;
    case WH_COLL_REDUCE_SCATTER:
        reduce_scatter(b, wh_coll_at(WH_COLL_OUT, 0));
        break;
    case WH_COLL_ALL_GATHER:
        all_gather(b, 0, wh_coll_at(WH_COLL_IN, 0));
        break;
    case WH_COLL_ALL_TO_ALL:
        all_to_all(b);
        break;
    case WH_COLL_BROADCAST:
        broadcast(b);
        break;
    case WH_COLL_REDUCE:
        reduce(b);
        break;
    default:
        barrier(b);
        break;
    }
}

static bool canonical(const struct wh_coll_request *q) {
    (void)q;
    return true;
}

const struct wh_coll_algorithm wh_coll_direct = {
    .name = "direct",
    .summary = "everyone to everyone; fewest rounds, most messages",
    .operations = (1u << WH_COLL_OP_COUNT) - 1,
    .canonical = canonical,
    .build = build,
};
