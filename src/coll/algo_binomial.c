/* Binomial trees, which are the canonical tree: reduce, broadcast (reduce backwards), all-reduce (one after the other).
 *
 * A node of the canonical tree is a range of ranks; its sum is made by its holder: the root if it is among them, else the
 * first of them. The holder of one half is the holder of the whole; the holder of the other half sends. So every root
 * gets the canonical order. For 5 ranks, root 0 and root 3:
 *
 *     round    root 0                            root 3
 *     0        0 <- 1: 01     2 <- 3: 23         0 <- 1: 01     3 <- 2: 23
 *     1        0 <- 2: 01+23                     3 <- 0: 01+23
 *     2        0 <- 4: (01+23)+4                 3 <- 4: (01+23)+4
 *
 * Rounds ceil(log2 n) each way. With request.chunks the vector goes in pieces, piece c one round behind piece c - 1; then
 * a round moves up to log2(n) pieces into the root.
 * Cost, one piece: log2(n) (a + S b + S g) for reduce, without g for broadcast. Best for small S. */
#include "coll/build.h"

/* One merge that this rank takes part in. */
struct merge {
    uint32_t height; /* of the node; leaves have 0 */
    uint32_t peer;
    bool holds, left; /* this rank holds the node; its half is the left operand */
    bool peer_is_leaf;
};

enum { MERGES_MAX = 32 };

static uint32_t holder(uint32_t first, uint32_t count, uint32_t root) {
    return root >= first && root - first < count ? root : first;
}

/* Goes down from the whole range to this rank; the merges come out highest first. */
static uint32_t find_merges(uint32_t n, uint32_t rank, uint32_t root, struct merge *merges) {
    uint32_t found = 0, first = 0, count = n;
    while (count > 1) {
        uint32_t left = wh_coll_split(count);
        uint32_t holders[2] = {holder(first, left, root), holder(first + left, count - left, root)};
        bool right = rank >= first + left, leaf = right ? left == 1 : count - left == 1;
        if (rank == holders[right])
            merges[found++] =
                (struct merge){wh_coll_log2(count), holders[!right], rank == holder(first, count, root), !right, leaf};
        first += right ? left : 0;
        count = right ? count - left : left;
    }
    return found;
}

/* Sums lie in PARTIAL at their place in the vector; what arrives comes behind, or, if it is a peer's IN, to LANDING. */
static void reduce(struct wh_coll_builder *b, const struct merge *merges, uint32_t count, struct wh_coll_range chunk,
                   uint32_t round) {
    struct wh_coll_place sum = wh_coll_at(WH_COLL_IN, chunk.first);
    for (uint32_t i = count; i-- > 0;) {
        const struct merge *m = &merges[i];
        uint32_t when = round + m->height - 1;
        if (!m->holds) {
            wh_coll_send(b, when, m->peer, sum, chunk.count);
            return;
        }
        struct wh_coll_place arrived = m->peer_is_leaf ? wh_coll_at(WH_COLL_LANDING, chunk.first)
                                                       : wh_coll_at(WH_COLL_PARTIAL, b->q->count + chunk.first);
        struct wh_coll_place out = wh_coll_at(i == 0 ? WH_COLL_OUT : WH_COLL_PARTIAL, chunk.first);
        wh_coll_recv(b, when, m->peer, arrived, chunk.count);
        wh_coll_add(b, when, out, m->left ? sum : arrived, m->left ? arrived : sum, chunk.count);
        sum = out;
    }
}

static void broadcast(struct wh_coll_builder *b, const struct merge *merges, uint32_t count, struct wh_coll_place from,
                      uint64_t elems, uint32_t round) {
    uint32_t height = wh_coll_log2(b->q->ranks);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t when = round + height - merges[i].height;
        if (merges[i].holds)
            wh_coll_send(b, when, merges[i].peer, from, elems);
        else
            wh_coll_recv(b, when, merges[i].peer, from, elems);
    }
}

static void build(struct wh_coll_builder *b) {
    const struct wh_coll_request *q = b->q;
    struct merge merges[MERGES_MAX];
    uint32_t root = q->op == WH_COLL_ALL_REDUCE ? 0 : q->root, chunks = wh_coll_chunks(q);
    uint32_t count = find_merges(q->ranks, b->rank, root, merges);
    bool reduces = q->op != WH_COLL_BROADCAST, spreads = q->op != WH_COLL_REDUCE;
    for (uint32_t c = 0; c < chunks; c++) {
        struct wh_coll_range chunk = wh_coll_cut(wh_coll_whole(q), q->dtype, chunks, c);
        struct wh_coll_place in = wh_coll_at(WH_COLL_IN, chunk.first), out = wh_coll_at(WH_COLL_OUT, chunk.first);
        bool source = !reduces && b->rank == root;
        if (reduces) reduce(b, merges, count, chunk, c);
        if (spreads)
            broadcast(b, merges, count, source ? in : out, chunk.count, c + (reduces ? wh_coll_log2(q->ranks) : 0));
        if (source) wh_coll_copy(b, c, out, in, chunk.count);
    }
}

static bool canonical(const struct wh_coll_request *q) {
    (void)q;
    return true;
}

const struct wh_coll_algorithm wh_coll_binomial = {
    .name = "binomial",
    .summary = "the canonical tree, up and down; few rounds, whole vector in each",
    .operations = 1u << WH_COLL_ALL_REDUCE | 1u << WH_COLL_BROADCAST | 1u << WH_COLL_REDUCE,
    .canonical = canonical,
    .pipelined = true,
    .build = build,
};
