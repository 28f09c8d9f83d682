/* Ring: rank r sends to r + 1 and receives from r - 1 only.
 *
 * Reduce-scatter: slice s starts at rank s + 1 and comes round to rank s; everyone adds its own share on the right.
 * All-gather: finished slices go round once more. All-reduce: one after the other. Drawn for 4 ranks, slice s as seen by
 * its owner; "2: 123" says that slice 2 holds the sum of ranks 1, 2, 3:
 *
 *     round    rank 0 sends   rank 1 sends   rank 2 sends   rank 3 sends
 *     0        3: 0           0: 1           1: 2           2: 3
 *     1        2: 30          3: 01          0: 12          1: 23
 *     2        1: 230         2: 301         3: 012         0: 123       then rank r adds its share to slice r
 *     3..5     finished slices r, r - 1, r - 2
 *
 * Rounds: n - 1 for the halves, 2(n-1) for all-reduce. Bytes sent by a rank: (n-1)/n S each half. A slice's order begins
 * at the rank after its owner, so it differs from slice to slice and is canonical for two ranks only.
 * Cost: 2(n-1) a + 2(n-1)/n S b + (n-1)/n S g. Source: Patarasuk and Yuan, 2009. */
#include "coll/build.h"

static uint32_t slice_at(const struct wh_coll_builder *b, uint32_t back) {
    uint32_t n = b->q->ranks;
    return (b->rank + 2 * n - back) % n;
}

/* Leaves slice `rank` in OUT. Partial sums alternate between two slots of PARTIAL. */
static void reduce_scatter(struct wh_coll_builder *b) {
    uint32_t n = b->q->ranks, r = b->rank, next = (r + 1) % n, previous = (r + n - 1) % n;
    uint64_t slot = wh_coll_slice(b->q, 0).count;
    bool whole = b->q->op == WH_COLL_ALL_REDUCE;
    for (uint32_t t = 0; t + 1 < n; t++) {
        struct wh_coll_range out = wh_coll_slice(b->q, slice_at(b, 1 + t));
        struct wh_coll_range in = wh_coll_slice(b->q, slice_at(b, 2 + t));
        struct wh_coll_place from =
            t == 0 ? wh_coll_at(WH_COLL_IN, out.first) : wh_coll_at(WH_COLL_PARTIAL, (t - 1) % 2 * slot);
        struct wh_coll_place arrived =
            t == 0 ? wh_coll_at(WH_COLL_LANDING, 0) : wh_coll_at(WH_COLL_PARTIAL, t % 2 * slot);
        struct wh_coll_place sum =
            t + 2 == n ? wh_coll_at(WH_COLL_OUT, whole ? in.first : 0) : wh_coll_at(WH_COLL_PARTIAL, t % 2 * slot);
        struct wh_coll_place own = wh_coll_at(WH_COLL_IN, in.first);
        wh_coll_send(b, t, next, from, out.count);
        wh_coll_recv(b, t, previous, arrived, in.count);
        if (r == 0)
            wh_coll_add(b, t, sum, own, arrived, in.count);
        else
            wh_coll_add(b, t, sum, arrived, own, in.count);
    }
}

static void all_gather(struct wh_coll_builder *b, uint32_t round) {
    uint32_t n = b->q->ranks, next = (b->rank + 1) % n, previous = (b->rank + n - 1) % n;
    for (uint32_t t = 0; t + 1 < n; t++) {
        struct wh_coll_range out = wh_coll_slice(b->q, slice_at(b, t)), in = wh_coll_slice(b->q, slice_at(b, 1 + t));
        bool own = t == 0 && b->q->op == WH_COLL_ALL_GATHER;
        wh_coll_send(b, round + t, next, own ? wh_coll_at(WH_COLL_IN, 0) : wh_coll_at(WH_COLL_OUT, out.first),
                     out.count);
        wh_coll_recv(b, round + t, previous, wh_coll_at(WH_COLL_OUT, in.first), in.count);
    }
}

static void build(struct wh_coll_builder *b) {
    struct wh_coll_range own = wh_coll_slice(b->q, b->rank);
    if (b->q->op != WH_COLL_ALL_GATHER) reduce_scatter(b);
    if (b->q->op == WH_COLL_ALL_REDUCE) all_gather(b, b->q->ranks - 1);
    if (b->q->op != WH_COLL_ALL_GATHER) return;
    all_gather(b, 0);
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, own.first), wh_coll_at(WH_COLL_IN, 0), own.count);
}

static bool canonical(const struct wh_coll_request *q) { return q->ranks <= 2; }

const struct wh_coll_algorithm wh_coll_ring = {
    .name = "ring",
    .summary = "slices go round the ranks; least bytes, most rounds",
    .operations = 1u << WH_COLL_ALL_REDUCE | 1u << WH_COLL_REDUCE_SCATTER | 1u << WH_COLL_ALL_GATHER,
    .canonical = canonical,
    .build = build,
};
