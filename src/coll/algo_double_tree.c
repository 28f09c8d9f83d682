/* Two binary trees at once, each for half of the vector; a rank that is inside one is a leaf of the other, so every rank
 * sends and receives about the same. All-reduce, broadcast, reduce; pipelined by request.chunks.
 *
 * Ranks are renumbered from the root: v = (rank - root) mod n. v = 0 is the source of both trees and stands above them;
 * the trees cover v = 1 .. m, m = n - 1. Tree 1 is in order (odd v are leaves; a node with lowest one bit b has children
 * v - b/2 and v + b/2, brought below m). Tree 2 is tree 1 mirrored (v -> m + 1 - v) for even m, shifted (v -> v mod m + 1)
 * for odd m, which makes odd v its inner nodes. For 6 ranks, root 0:
 *
 *     tree 1:  0 - 4        tree 2:  0 - 5
 *                 / \                   / \
 *                2   5                 3   1
 *               / \                   / \
 *              1   3                 2   4
 *
 * Up: a node adds (lower child + own) + higher child. Down: it passes on. Piece c goes c rounds behind piece 0, and down
 * follows up as soon as a piece is complete at the source.
 * Rounds: 2 d + k - 1 for all-reduce, d + k - 1 for the others, d = depth of the trees, k = pieces. A round moves at most
 * 2 S/k into a rank (up and down). Cost about (2 d + k) a + 2 (1 + 2 d/k) S b: 2 S b for many pieces.
 * Order: not canonical, differs between the halves; equal on all ranks.
 * Source: Sanders, Speck and Traff, 2009. */
#include "coll/build.h"

struct node {
    uint32_t parent, child[2]; /* as v; 0: the source, or no child */
    uint32_t depth;            /* below the source: 1 for the node that the source talks to */
};

enum { NOBODY = 0 };

/* The node under v of the in-order tree over 1 .. m that stands at the middle of `span` (a power of two) numbers. */
static uint32_t brought_below(uint32_t base, uint32_t span, uint32_t m) {
    while (span && base + span > m) span /= 2;
    return span ? base + span : NOBODY;
}

static struct node in_order(uint32_t v, uint32_t m) {
    uint32_t at = wh_coll_power_of_two(m), parent = 0, depth = 1;
    while (at != v) { /* down from the top */
        uint32_t half = (at & -at) / 2;
        parent = at;
        at = v < at ? at - half : brought_below(at, half, m);
        depth++;
    }
    uint32_t half = (v & -v) / 2;
    return (struct node){parent, {half ? v - half : NOBODY, half ? brought_below(v, half, m) : NOBODY}, depth};
}

/* Tree 2 is tree 1 under this renaming, and back. */
static uint32_t renamed(uint32_t v, uint32_t m) { return v == 0 ? 0 : m % 2 ? v % m + 1 : m + 1 - v; }
static uint32_t renamed_back(uint32_t v, uint32_t m) { return v == 0 ? 0 : m % 2 ? (v + m - 2) % m + 1 : m + 1 - v; }

static struct node find(uint32_t v, uint32_t m, int tree) {
    uint32_t top = wh_coll_power_of_two(m);
    if (v == 0) return (struct node){.child = {tree ? renamed(top, m) : top}};
    if (!tree) return in_order(v, m);
    struct node node = in_order(renamed_back(v, m), m);
    node.parent = renamed(node.parent, m);
    for (int i = 0; i < 2; i++) node.child[i] = renamed(node.child[i], m);
    if (node.child[1] && node.child[1] < node.child[0]) {
        uint32_t lower = node.child[1];
        node.child[1] = node.child[0];
        node.child[0] = lower;
    }
    return node;
}

struct part {
    const struct node *node;
    struct wh_coll_range range;
    uint32_t round; /* when the deepest nodes send this piece */
    uint32_t depth; /* of the tree */
    uint32_t m;
};

static uint32_t rank_of(const struct wh_coll_builder *b, uint32_t v) { return (v + b->q->root) % b->q->ranks; }
static bool is_leaf(uint32_t v, uint32_t m, int tree) { return !find(v, m, tree).child[0]; }

/* Adds child `i`'s sum to `sum`. Child 1's lands behind the whole vector, sums at their piece's place. */
static struct wh_coll_place add_child(struct wh_coll_builder *b, const struct part *p, int tree, int i,
                                      struct wh_coll_place sum) {
    uint32_t child = p->node->child[i], round = p->round + p->depth - p->node->depth - 1;
    bool last = p->node->depth == 0;
    struct wh_coll_place arrived =
        wh_coll_at(is_leaf(child, p->m, tree) ? WH_COLL_LANDING : WH_COLL_PARTIAL, i * b->q->count + p->range.first);
    struct wh_coll_place out = wh_coll_at(last ? WH_COLL_OUT : WH_COLL_PARTIAL, p->range.first);
    bool left = !last && i == 0;
    wh_coll_recv(b, round, rank_of(b, child), arrived, p->range.count);
    wh_coll_add(b, round, out, left ? arrived : sum, left ? sum : arrived, p->range.count);
    return out;
}

static void up(struct wh_coll_builder *b, const struct part *p, int tree) {
    struct wh_coll_place sum = wh_coll_at(WH_COLL_IN, p->range.first);
    for (int i = 0; i < 2; i++)
        if (p->node->child[i]) sum = add_child(b, p, tree, i, sum);
    if (p->node->depth)
        wh_coll_send(b, p->round + p->depth - p->node->depth, rank_of(b, p->node->parent), sum, p->range.count);
}

static void down(struct wh_coll_builder *b, const struct part *p, uint32_t round) {
    struct wh_coll_place out = wh_coll_at(WH_COLL_OUT, p->range.first), in = wh_coll_at(WH_COLL_IN, p->range.first);
    bool source = p->node->depth == 0 && b->q->op == WH_COLL_BROADCAST;
    if (p->node->depth) wh_coll_recv(b, round + p->node->depth - 1, rank_of(b, p->node->parent), out, p->range.count);
    for (int i = 0; i < 2; i++)
        if (p->node->child[i])
            wh_coll_send(b, round + p->node->depth, rank_of(b, p->node->child[i]), source ? in : out, p->range.count);
    if (source) wh_coll_copy(b, round, out, in, p->range.count);
}

static void build(struct wh_coll_builder *b) {
    const struct wh_coll_request *q = b->q;
    uint32_t n = q->ranks, m = n - 1, v = (b->rank + n - q->root) % n, chunks = wh_coll_chunks(q);
    uint32_t depth = wh_coll_log2(m + 1);
    for (int tree = 0; tree < 2; tree++) {
        struct node node = find(v, m, tree);
        struct wh_coll_range half = wh_coll_cut(wh_coll_whole(q), q->dtype, 2, (uint32_t)tree);
        for (uint32_t c = 0; c < chunks; c++) {
            struct part p = {&node, wh_coll_cut(half, q->dtype, chunks, c), c, depth, m};
            if (q->op != WH_COLL_BROADCAST) up(b, &p, tree);
            if (q->op != WH_COLL_REDUCE) down(b, &p, q->op == WH_COLL_BROADCAST ? c : c + depth);
        }
    }
}

static bool canonical(const struct wh_coll_request *q) { return q->ranks == 2 && q->root == 0; }

const struct wh_coll_algorithm wh_coll_double_tree = {
    .name = "double_tree",
    .summary = "two binary trees, half of the vector each, pipelined; few rounds and little more than least bytes",
    .operations = 1u << WH_COLL_ALL_REDUCE | 1u << WH_COLL_BROADCAST | 1u << WH_COLL_REDUCE,
    .canonical = canonical,
    .pipelined = true,
    .build = build,
};
