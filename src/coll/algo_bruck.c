/* Bruck's algorithms: in round k everyone sends 2^k ranks on; ceil(log2 n) rounds for every n, not only powers of two.
 *
 * All-gather: rank r collects slices r, r + 1, r + 2, ... in that order. 5 ranks:
 *
 *     round    rank r sends to r - 2^k    has then
 *     0        r                          r r+1
 *     1        r r+1                      r r+1 r+2 r+3
 *     2        r                          all
 *
 * All-to-all: block i (of tmp) is for rank r + i; in round k all blocks with bit k of i set go on by 2^k. So a block
 * travels once for each one bit of its distance; log2(n)/2 S sent instead of (n-1)/n S, in log2(n) instead of n - 1
 * messages: for small blocks.
 *
 * Barrier: dissemination, the same pattern with empty messages.
 * Cost: all-gather log2(n) a + (n-1)/n S b, and S to copy; all-to-all log2(n) (a + S/2 b). Nothing is added.
 * Source: Bruck, Ho, Kipnis, Upfal and Weathersby, 1997; Hensgen, Finkel and Manber, 1988. */
#include "coll/build.h"

/* Elements in the `count` slices from `rank` on, round the end. */
static uint64_t slices_from(const struct wh_coll_builder *b, uint32_t rank, uint32_t count) {
    uint64_t elems = 0;
    for (uint32_t i = 0; i < count; i++) elems += wh_coll_slice(b->q, (rank + i) % b->q->ranks).count;
    return elems;
}

static void all_gather(struct wh_coll_builder *b) {
    uint32_t n = b->q->ranks, r = b->rank, round = 0;
    struct wh_coll_range own = wh_coll_slice(b->q, r);
    struct wh_coll_place in = wh_coll_at(WH_COLL_IN, 0), landing = wh_coll_at(WH_COLL_LANDING, 0);
    wh_coll_copy(b, 0, landing, in, own.count);
    for (uint32_t have = 1; have < n; have *= 2, round++) {
        uint32_t more = have < n - have ? have : n - have, from = (r + have) % n;
        wh_coll_send(b, round, (r + n - have) % n, round ? landing : in, slices_from(b, r, more));
        wh_coll_recv(b, round, from, wh_coll_past(landing, slices_from(b, r, have)), slices_from(b, from, more));
    }
    uint64_t to_end = b->q->count - own.first;
    wh_coll_copy(b, round - 1, wh_coll_at(WH_COLL_OUT, own.first), landing, to_end);
    wh_coll_copy(b, round - 1, wh_coll_at(WH_COLL_OUT, 0), wh_coll_past(landing, to_end), own.first);
}

/* Copies the blocks of tmp whose number has bit k set to `packed`, or back; they come in runs of 2^k. Returns how many
 * elements. */
static uint64_t pack(struct wh_coll_builder *b, uint32_t round, uint32_t k, struct wh_coll_place packed, bool back) {
    uint32_t n = b->q->ranks;
    uint64_t each = b->q->count / n, at = 0;
    for (uint32_t i = 1u << k; i < n; i += 2u << k) {
        uint64_t run = (n - i < 1u << k ? n - i : 1u << k) * each;
        struct wh_coll_place tmp = wh_coll_at(WH_COLL_LANDING, i * each), there = wh_coll_past(packed, at);
        wh_coll_copy(b, round, back ? tmp : there, back ? there : tmp, run);
        at += run;
    }
    return at;
}

/* LANDING: tmp, then what is sent, then what arrives, a vector each. Round k + 1 carries bit k. */
static void all_to_all(struct wh_coll_builder *b) {
    uint32_t n = b->q->ranks, r = b->rank, levels = wh_coll_log2(n);
    uint64_t count = b->q->count, each = count / n;
    struct wh_coll_place leaves = wh_coll_at(WH_COLL_LANDING, count), arrives = wh_coll_at(WH_COLL_LANDING, 2 * count);
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, r * each), wh_coll_at(WH_COLL_IN, r * each), each);
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_LANDING, each), wh_coll_at(WH_COLL_IN, (r + 1) * each), (n - r - 1) * each);
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_LANDING, (n - r) * each), wh_coll_at(WH_COLL_IN, 0), r * each);
    for (uint32_t k = 0; k < levels; k++) {
        uint64_t elems = pack(b, k, k, leaves, false);
        wh_coll_send(b, k + 1, (r + (1u << k)) % n, leaves, elems);
        wh_coll_recv(b, k + 1, (r + n - (1u << k)) % n, arrives, elems);
        pack(b, k + 1, k, arrives, true);
    }
    for (uint32_t i = 1; i < n; i++)
        wh_coll_copy(b, levels, wh_coll_at(WH_COLL_OUT, (r + n - i) % n * each), wh_coll_at(WH_COLL_LANDING, i * each),
                     each);
}

static void barrier(struct wh_coll_builder *b) {
    uint32_t n = b->q->ranks;
    for (uint32_t k = 0; 1u << k < n; k++) {
        wh_coll_signal(b, k, (b->rank + (1u << k)) % n);
        wh_coll_await(b, k, (b->rank + n - (1u << k)) % n);
    }
}

static void build(struct wh_coll_builder *b) {
    if (b->q->op == WH_COLL_ALL_GATHER)
        all_gather(b);
    else if (b->q->op == WH_COLL_ALL_TO_ALL)
        all_to_all(b);
    else
        barrier(b);
}

const struct wh_coll_algorithm wh_coll_bruck = {
    .name = "bruck",
    .summary = "doubling distances; fewest rounds for any number of ranks, at the price of copies",
    .operations = 1u << WH_COLL_ALL_GATHER | 1u << WH_COLL_ALL_TO_ALL | 1u << WH_COLL_BARRIER,
    .build = build,
};
