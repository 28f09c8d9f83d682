/* How the sum over the tokens of a global batch is put together when the tokens arrive in pieces (micro-batches, or
 * blocks of tokens inside them) on one rank or several: the same chains and the same tree whatever the pieces and ranks.
 *
 * Leaves: the batch is `groups` equal groups of consecutive sequences (grain.data), each sequence `chunks` chunks of
 * positions; leaf = group * chunks + chunk. A leaf's chain runs over its tokens in order (sequence, position); the leaves
 * are joined by the canonical tree (base/tree.h).
 *
 * A plan says for each piece which products (calls) to run: the leaves one call covers are a complete subtree that it
 * joins itself, or one leaf that began in an earlier piece or goes on in a later one. Results go to numbered buffers;
 * the sum of the whole batch ends in buffer 0. `buffers` is the price of the grain: buffers - 1 pending subtree sums.
 *
 *     piece 0           piece 1           piece 2           piece 3           4 groups, 1 chunk, a group per piece
 *     b0 = leaf 0       b0 = b0 + leaf 1  b1 = leaf 2       b1 = b1 + leaf 3, b0 = b0 + b1
 *
 * A rank that holds a range of the groups makes the merges of the same tree whose both sides it has. What is left at the
 * end are its contributions, the largest complete subtrees inside its range, in ascending order of leaves: one where
 * ranges are equal and have a power of two of leaves, else a few (at most two of each power of two). wh_sum_joins says
 * how the contributions of all ranks become the sum.
 *
 *     rank 0            rank 1                               6 groups, ((0 1)(2 3))(4 5), on two ranks
 *     b0 = (0 1)        b0 = 3                               contributions: (0 1), 2 | 3, (4 5)
 *     b1 = 2            b1 = (4 5)                           merges after each:  0,  0 | 2, 1
 *
 * Rounded plans (shape.rounded). Every node of the tree, each leaf when its chain is complete and each join, is rounded to a
 * narrower format in which the numbered buffers hold it (grain.wire). A leaf that its piece doesn't hold whole is kept in
 * full precision until then, in one of plan.opens further buffers, one for each chunk. No call adds to a left sibling.
 *
 * Sequence parallelism (shape.own_chunks). A tensor rank that holds the rows of some chunks of each sequence, a complete
 * subtree of them, joins those of each group; groups stay apart, as contributions, until the tensor ranks' have been joined.
 * A plan of 1 chunk with a piece for each group then goes on.
 *
 * Pure; allocates at start-up only. */
#ifndef WH_SCHED_GRADSUM_H
#define WH_SCHED_GRADSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Tokens of a piece, in rows counted from the piece's first token; parts are taken in order. */
struct wh_sum_part {
    uint32_t begin, length;
    bool ends_leaf;
};

enum { WH_SUM_MERGES_MAX = 16 };

struct wh_sum_call {
    uint32_t first_part, part_count; /* in the plan's parts */
    uint32_t leaves;
    uint32_t buffer; /* where the result goes; rounded plans: if `ends` */
    uint32_t
        open; /* rounded plans: the open buffer of a leaf that began earlier (`accumulate`) or goes on later (not `ends`) */
    bool accumulate; /* the (single) leaf's chain goes on from the buffer */
    bool ends;       /* the result is complete; not: it is a leaf that goes on in a later piece */
    bool add_left;   /* the buffer holds the left sibling: buffer = buffer + result */
    uint32_t merges; /* afterwards, `merges` times: buffer[merge[i].left] += buffer[merge[i].right] */
    struct {
        uint32_t left, right;
    } merge[WH_SUM_MERGES_MAX];
};

struct wh_sum_piece {
    uint32_t first_call, call_count;
};

struct wh_sum_plan {
    struct wh_sum_piece *pieces;
    struct wh_sum_call *calls;
    struct wh_sum_part *parts;
    uint32_t piece_count, call_count, part_count;
    uint32_t buffers;    /* how many are needed; ranges of one batch may need different numbers */
    uint32_t kept;       /* those from here on hold nothing between pieces */
    uint32_t opens;      /* open buffers of a rounded plan: 0 or the chunks */
    uint32_t roots;      /* contributions; the j-th ends in buffer j */
    uint32_t leaves;     /* groups * chunks, of the whole batch; with own_chunks of a group */
    uint32_t leaves_max; /* most leaves in one call */
};

struct wh_sum_shape {
    uint32_t sequences, positions; /* of the global batch */
    uint32_t groups, chunks;
    uint32_t piece_tokens; /* a piece is this many consecutive tokens (the last may be shorter), but ...*/
    uint32_t span_tokens;  /* ... never reaches over a multiple of this (the micro-batch); 0: no such bound */
    /* The plan's own range of groups; group_count 0: all. Tokens of pieces and spans count from its first token. */
    uint32_t first_group, group_count;
    /* Of each sequence's chunks those whose rows the pieces have, one behind the other, without the others'; a power of two
     * from a multiple of it on. Then contribution j is the subtree of group first_group + j. own_chunks 0: all. */
    uint32_t first_chunk, own_chunks;
    bool rounded;
    bool leaf_calls; /* a call covers one leaf, of which it joins nothing: who carries it out can't round in between */
};

/* In a call of a rounded plan: is the leaf in its open buffer? */
static inline bool wh_sum_call_open(const struct wh_sum_call *c) { return c->accumulate || !c->ends; }

/* Errors: NOMEM (also for more than 2^16 leaves in separate pieces).
 * With chunks > 1, pieces must consist of whole sequences. */
enum wh_status wh_sum_plan_new(const struct wh_sum_shape *shape, struct wh_sum_plan *out);
void wh_sum_plan_free(struct wh_sum_plan *p);

/* How contributions join when rank r of `ranks` holds the groups [r * groups / ranks, (r + 1) * groups / ranks):
 *
 *     for (r = i = 0; r < ranks; r++)
 *         for (j = 0; j < inputs[r]; j++, i++) {
 *             push(contribution j of rank r);
 *             for (m = merges[i]; m > 0; m--) { right = pop(); left = pop(); push(left + right); }
 *         }
 *
 * One value is left, the sum of the batch; the stack never holds more than WH_TREE_DEPTH_MAX. */
enum { WH_SUM_RANKS_MAX = 64, WH_SUM_ROOTS_MAX = 64 };

struct wh_sum_joins {
    uint32_t ranks, count; /* count: contributions of all ranks */
    uint8_t inputs[WH_SUM_RANKS_MAX];
    uint8_t merges[WH_SUM_RANKS_MAX * WH_SUM_ROOTS_MAX]; /* [count] */
};

/* Errors: CONFIG if there are more than WH_SUM_RANKS_MAX ranks, or their number (1 or more) doesn't divide the groups. */
enum wh_status wh_sum_joins(uint32_t groups, uint32_t chunks, uint32_t ranks, struct wh_sum_joins *out);

#endif
