/* How the sum over the tokens of a global batch is put together when the tokens arrive in pieces (micro-batches, or
 * blocks of tokens inside them): the same chains and the same tree whatever the pieces.
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
    uint32_t buffer; /* where the result goes */
    bool accumulate; /* the (single) leaf's chain goes on from the buffer */
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
    uint32_t buffers;    /* how many are needed */
    uint32_t leaves;     /* groups * chunks */
    uint32_t leaves_max; /* most leaves in one call */
};

struct wh_sum_shape {
    uint32_t sequences, positions; /* of the global batch */
    uint32_t groups, chunks;
    uint32_t piece_tokens; /* a piece is this many consecutive tokens (the last may be shorter), but ...*/
    uint32_t span_tokens;  /* ... never reaches over a multiple of this (the micro-batch); 0: no such bound */
};

/* Errors: NOMEM (also for more than 2^16 leaves in separate pieces).
 * With chunks > 1, pieces must consist of whole sequences. */
enum wh_status wh_sum_plan_new(const struct wh_sum_shape *shape, struct wh_sum_plan *out);
void wh_sum_plan_free(struct wh_sum_plan *p);

#endif
