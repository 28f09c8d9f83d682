/* Recursive halving with the nearest partner first, recursive doubling back (Rabenseifner).
 *
 * Halving: in round k partners 2^k apart swap halves of what they still hold and add; the range of ranks summed so far
 * doubles and stays aligned, so for powers of two the order is canonical. The vector is seen as `units` pieces in
 * bit-reversed order, which makes what a rank keeps one range. For 4 ranks ("0: 01" piece 0, summed over ranks 0, 1):
 *
 *     round    0 sends      1 sends      2 sends      3 sends        then 0, 1, 2, 3 hold
 *     0        2,3 to 1     0,1 to 0     2,3 to 3     0,1 to 2       0,1: 01   2,3: 01   0,1: 23   2,3: 23
 *     1        1 to 2       3 to 3       0 to 0       2 to 1         0: 0123   2: 0123   1: 0123   3: 0123
 *     2, 3     the same exchanges backwards, finished pieces
 *
 * Other counts: n = units + extra; ranks 2i and 2i + 1, i < extra, are one unit: the odd one hands its vector to the even
 * one beforehand and gets the result afterwards. That is canonical if n plus its lowest one bit is a power of two
 * (3, 6, 7, 12, 14, ...).
 *
 * Reduce-scatter has to end with slice u at unit u, so the input is first put in bit-reversed order: S more to copy.
 * All-gather is the doubling alone, nearest first, slices in place.
 * Cost, powers of two: 2 log2(n) a + 2(n-1)/n S b + (n-1)/n S g; other counts 2a + 2 S b more.
 * Source: Thakur, Rabenseifner and Gropp, 2005. */
#include "coll/build.h"

struct halves {
    uint32_t units, extra, levels; /* units = 2^levels */
    uint32_t unit;                 /* of this rank */
};

static struct halves find(const struct wh_coll_builder *b) {
    uint32_t units = wh_coll_power_of_two(b->q->ranks), extra = b->q->ranks - units, r = b->rank;
    return (struct halves){units, extra, wh_coll_log2(units), r < 2 * extra ? r / 2 : r - extra};
}

static bool is_pair(const struct halves *h, uint32_t unit) { return unit < h->extra; }
/* The rank that acts for a unit. */
static uint32_t head(const struct halves *h, uint32_t unit) { return is_pair(h, unit) ? 2 * unit : unit + h->extra; }

static uint32_t reversed(const struct halves *h, uint32_t unit) {
    uint32_t r = 0;
    for (uint32_t k = 0; k < h->levels; k++) r |= (unit >> k & 1) << (h->levels - 1 - k);
    return r;
}

/* Slices of the unit's ranks. */
static struct wh_coll_range unit_slices(const struct wh_coll_builder *b, const struct halves *h, uint32_t unit) {
    struct wh_coll_range range = wh_coll_slice(b->q, head(h, unit));
    if (is_pair(h, unit)) range.count += wh_coll_slice(b->q, head(h, unit) + 1).count;
    return range;
}

/* Pieces [begin, end) of the vector in the order in which halving sees it. */
static struct wh_coll_range pieces(const struct wh_coll_builder *b, const struct halves *h, uint32_t begin,
                                   uint32_t end) {
    if (b->q->op == WH_COLL_ALL_REDUCE) {
        struct wh_coll_range first = wh_coll_cut(wh_coll_whole(b->q), b->q->dtype, h->units, begin);
        struct wh_coll_range last = wh_coll_cut(wh_coll_whole(b->q), b->q->dtype, h->units, end - 1);
        return (struct wh_coll_range){first.first, last.first + last.count - first.first};
    }
    struct wh_coll_range range = {0, 0};
    for (uint32_t p = 0; p < begin; p++) range.first += unit_slices(b, h, reversed(h, p)).count;
    for (uint32_t p = begin; p < end; p++) range.count += unit_slices(b, h, reversed(h, p)).count;
    return range;
}

/* The pieces that this unit holds before round k of halving. */
static void held(const struct halves *h, uint32_t k, uint32_t *begin, uint32_t *end) {
    *end = h->units >> k;
    *begin = 0;
    for (uint32_t j = 0; j < k; j++) *begin += (h->unit >> j & 1) * (h->units >> (j + 1));
    *end += *begin;
}

/* Reduce-scatter: the input, pieces in order; returns where it begins. Messages can go one round later. */
static struct wh_coll_place reorder(struct wh_coll_builder *b, const struct halves *h, struct wh_coll_place in) {
    struct wh_coll_place out =
        in.buffer == WH_COLL_PARTIAL ? wh_coll_at(WH_COLL_PARTIAL, b->q->count) : wh_coll_at(WH_COLL_LANDING, 0);
    uint64_t at = 0;
    for (uint32_t p = 0; p < h->units; p++) {
        struct wh_coll_range from = unit_slices(b, h, reversed(h, p));
        wh_coll_copy(b, 0, wh_coll_past(out, at), wh_coll_past(in, from.first), from.count);
        at += from.count;
    }
    return out;
}

/* Where the last sum goes: to OUT if it is all this rank's, else to LANDING, whence both ranks of a pair get theirs. */
static struct wh_coll_place result_place(const struct wh_coll_builder *b, const struct halves *h,
                                         struct wh_coll_range piece) {
    if (b->q->op == WH_COLL_ALL_REDUCE) return wh_coll_at(WH_COLL_OUT, piece.first);
    return is_pair(h, h->unit) ? wh_coll_at(WH_COLL_LANDING, 0) : wh_coll_at(WH_COLL_OUT, 0);
}

/* `in`: the unit's own contribution, pieces in order. Sums lie in PARTIAL where their piece is; what arrives lands behind
 * them and behind `in`. */
static void halve(struct wh_coll_builder *b, const struct halves *h, struct wh_coll_place in, uint32_t round) {
    uint64_t behind_landing = in.buffer == WH_COLL_LANDING ? b->q->count : 0;
    uint64_t behind_partial = in.buffer == WH_COLL_PARTIAL ? in.first + b->q->count : b->q->count;
    for (uint32_t k = 0; k < h->levels; k++) {
        uint32_t begin, end, peer_unit = h->unit ^ 1u << k, peer = head(h, peer_unit);
        held(h, k, &begin, &end);
        bool upper = h->unit >> k & 1, wide = k > 0 || is_pair(h, peer_unit);
        struct wh_coll_range low = pieces(b, h, begin, (begin + end) / 2), high = pieces(b, h, (begin + end) / 2, end);
        struct wh_coll_range keep = upper ? high : low, give = upper ? low : high;
        struct wh_coll_place arrived =
            wide ? wh_coll_at(WH_COLL_PARTIAL, behind_partial) : wh_coll_at(WH_COLL_LANDING, behind_landing);
        struct wh_coll_place own = wh_coll_past(in, keep.first);
        struct wh_coll_place sum =
            k + 1 == h->levels ? result_place(b, h, keep) : wh_coll_at(WH_COLL_PARTIAL, keep.first);
        wh_coll_send(b, round + k, peer, wh_coll_past(in, give.first), give.count);
        wh_coll_recv(b, round + k, peer, arrived, keep.count);
        wh_coll_add(b, round + k, sum, upper ? arrived : own, upper ? own : arrived, keep.count);
        in = wh_coll_at(WH_COLL_PARTIAL, 0);
    }
}

/* The exchanges of halving backwards, on finished pieces in OUT. */
static void halve_back(struct wh_coll_builder *b, const struct halves *h, uint32_t round) {
    for (uint32_t k = h->levels; k-- > 0; round++) {
        uint32_t begin, end, peer = head(h, h->unit ^ 1u << k);
        held(h, k, &begin, &end);
        bool upper = h->unit >> k & 1;
        struct wh_coll_range low = pieces(b, h, begin, (begin + end) / 2), high = pieces(b, h, (begin + end) / 2, end);
        struct wh_coll_range have = upper ? high : low, want = upper ? low : high;
        wh_coll_send(b, round, peer, wh_coll_at(WH_COLL_OUT, have.first), have.count);
        wh_coll_recv(b, round, peer, wh_coll_at(WH_COLL_OUT, want.first), want.count);
    }
}

/* Slices of units [first, first + count), which are neighbours. */
static struct wh_coll_range aligned_slices(const struct wh_coll_builder *b, const struct halves *h, uint32_t first,
                                           uint32_t count) {
    struct wh_coll_range a = unit_slices(b, h, first), z = unit_slices(b, h, first + count - 1);
    return (struct wh_coll_range){a.first, z.first + z.count - a.first};
}

static void doubling(struct wh_coll_builder *b, const struct halves *h, uint32_t round) {
    for (uint32_t k = 0; k < h->levels; k++) {
        uint32_t mine = h->unit >> k << k, size = 1u << k, peer = head(h, h->unit ^ size);
        struct wh_coll_range have = aligned_slices(b, h, mine, size), want = aligned_slices(b, h, mine ^ size, size);
        wh_coll_send(b, round + k, peer, wh_coll_at(WH_COLL_OUT, have.first), have.count);
        wh_coll_recv(b, round + k, peer, wh_coll_at(WH_COLL_OUT, want.first), want.count);
    }
}

/* The odd rank of a pair: hands its part over in the first round, has its result in the last. */
static void follow(struct wh_coll_builder *b, uint32_t last_round) {
    uint64_t in = wh_coll_in_elems(b->q, b->rank), out = wh_coll_out_elems(b->q, b->rank);
    wh_coll_send(b, 0, b->rank - 1, wh_coll_at(WH_COLL_IN, 0), in);
    wh_coll_recv(b, last_round, b->rank - 1, wh_coll_at(WH_COLL_OUT, 0), out);
}

static void gather(struct wh_coll_builder *b, const struct halves *h) {
    struct wh_coll_range own = wh_coll_slice(b->q, b->rank);
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, own.first), wh_coll_at(WH_COLL_IN, 0), own.count);
    if (is_pair(h, h->unit)) {
        struct wh_coll_range other = wh_coll_slice(b->q, b->rank + 1);
        wh_coll_recv(b, 0, b->rank + 1, wh_coll_at(WH_COLL_OUT, other.first), other.count);
        wh_coll_send(b, 1 + h->levels, b->rank + 1, wh_coll_at(WH_COLL_OUT, 0), b->q->count);
    }
    doubling(b, h, 1);
}

static void reduce(struct wh_coll_builder *b, const struct halves *h) {
    bool scatter = b->q->op == WH_COLL_REDUCE_SCATTER, pair = is_pair(h, h->unit);
    struct wh_coll_place in = wh_coll_at(WH_COLL_IN, 0), landing = wh_coll_at(WH_COLL_LANDING, 0);
    uint32_t first_round = scatter || h->extra > 0;
    if (pair) {
        wh_coll_recv(b, 0, b->rank + 1, landing, b->q->count);
        wh_coll_add(b, 0, wh_coll_at(WH_COLL_PARTIAL, 0), in, landing, b->q->count);
        in = wh_coll_at(WH_COLL_PARTIAL, 0);
    }
    if (scatter) in = reorder(b, h, in);
    halve(b, h, in, first_round);
    uint32_t round = first_round + h->levels;
    if (!scatter) {
        halve_back(b, h, round);
        if (pair) wh_coll_send(b, round + h->levels, b->rank + 1, wh_coll_at(WH_COLL_OUT, 0), b->q->count);
    } else if (pair) {
        uint64_t own = wh_coll_slice(b->q, b->rank).count;
        wh_coll_send(b, round, b->rank + 1, wh_coll_past(landing, own), wh_coll_slice(b->q, b->rank + 1).count);
        wh_coll_copy(b, round - 1, wh_coll_at(WH_COLL_OUT, 0), landing, own);
    }
}

static void build(struct wh_coll_builder *b) {
    struct halves h = find(b);
    if (b->rank < 2 * h.extra && b->rank % 2)
        follow(b, b->q->op == WH_COLL_ALL_REDUCE ? 1 + 2 * h.levels : 1 + h.levels);
    else if (b->q->op == WH_COLL_ALL_GATHER)
        gather(b, &h);
    else
        reduce(b, &h);
}

static bool canonical(const struct wh_coll_request *q) {
    uint32_t next = q->ranks + (q->ranks & -q->ranks);
    return (q->ranks & (q->ranks - 1)) == 0 || (next & (next - 1)) == 0;
}

const struct wh_coll_algorithm wh_coll_halving_doubling = {
    .name = "halving_doubling",
    .summary = "swap halves with ever farther partners, then back; few rounds and least bytes for powers of two",
    .operations = 1u << WH_COLL_ALL_REDUCE | 1u << WH_COLL_REDUCE_SCATTER | 1u << WH_COLL_ALL_GATHER,
    .canonical = canonical,
    .build = build,
};
