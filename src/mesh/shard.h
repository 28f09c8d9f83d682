/* Who owns which piece. Every way of sharing something out is a partition of a line of `n` things (rows, columns,
 * elements of a flat buffer, layers) into `parts` consecutive ranges, written as parts + 1 ascending borders:
 *
 *     size_t border[5];
 *     wh_shard_even(30, 4, border);             // 0 8 16 23 30
 *     part k owns [border[k], border[k + 1])     // may be empty where stated
 *
 * so that one function (wh_shard_moves) answers who must send what to whom when the partition changes. The caller owns
 * the borders. No call allocates unless it says so. Sizes are given by the caller: this folder knows no models. */
#ifndef WH_MESH_SHARD_H
#define WH_MESH_SHARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Differs by at most one, the larger ones first. */
void wh_shard_even(size_t n, uint32_t parts, size_t *border);

/* Tensor parallelism: `n` rows or columns in S slices of ceil(n / S) (the last ones shorter or empty: arch/grain.h), S /
 * parts whole slices each. parts divides S (assert). */
void wh_shard_slices(size_t n, uint32_t S, uint32_t parts, size_t *border);

/* Flat buffers as DeepSpeed and Megatron cut them, for reading and comparing: n is padded to a multiple of
 * lcm(alignment, parts) and cut evenly; the padding is at the end of the line and in no border. 57 values at alignment 4:
 * 30 and 27 on two, 20, 20 and 17 on three. case B40. */
void wh_shard_padded(size_t n, size_t alignment, uint32_t parts, size_t *border);

/* ZeRO owners: borders only at the given legal places (cut[0] = 0 < cut[1] < ... < cut[cuts - 1] = n; the optimizer puts
 * them where none of its norm blocks is split), each the one nearest to its even place, the lower at a tie. A part is at
 * most n / parts + the longest distance of two places; parts are empty only where there are too few places or one
 * distance exceeds n / parts. Works for every number of parts. cuts >= 1 (n = 0). */
void wh_shard_owners(const size_t *cut, size_t cuts, uint32_t parts, size_t *border);

/* The part that owns thing `i` < n. */
uint32_t wh_shard_owner(const size_t *border, uint32_t parts, size_t i);

/* Layers per pipeline stage: contiguous, each layer once, no stage without a layer. cost[layer] in any unit (NULL: 1
 * each); `before` and `after` (embedding, head) are added to the first and last stage. The dearest stage is as cheap as
 * can be; among those the sum of squares is least; then earlier stages hold more. So 30 layers on 4 stages are 8 8 7 7
 * (case B17), and 70 with before = after = 1 on 12 are 5 6 ... 6 5 (B79). Allocates; O(layers^2 * stages) at worst.
 * Errors: CONFIG if there are fewer layers than stages (names the nearest legal stage count), NOMEM. */
enum wh_status wh_shard_layers(const uint64_t *cost, uint32_t layers, uint64_t before, uint64_t after, uint32_t stages,
                               size_t *border);

/* Part `from` of the old partition and part `to` of the new one share [begin, end), never empty. */
struct wh_shard_move {
    uint32_t from, to;
    size_t begin, end;
};

/* Every shared range once, in ascending order; at most from_parts + to_parts - 1 of them are written to `out`. Both
 * partitions are of the same n (assert). Returns how many. */
size_t wh_shard_moves(const size_t *from, uint32_t from_parts, const size_t *to, uint32_t to_parts,
                      struct wh_shard_move *out);

/* A rectangle of a matrix of rows x cols; vectors are one column. */
struct wh_shard_box {
    size_t row, rows, col, cols;
};

/* Part `part` of `parts` of a matrix whose rows or columns (or neither: the whole) are cut by wh_shard_slices. */
enum wh_shard_axis { WH_SHARD_WHOLE, WH_SHARD_ROWS, WH_SHARD_COLS };
struct wh_shard_box wh_shard_box(enum wh_shard_axis axis, size_t rows, size_t cols, uint32_t S, uint32_t parts,
                                 uint32_t part);
/* What two rectangles share; rows and cols are 0 if nothing. */
struct wh_shard_box wh_shard_box_shared(const struct wh_shard_box *a, const struct wh_shard_box *b);
/* Elements [begin, end) of a row-major matrix of `cols` columns as at most three rectangles: rest of a row, whole rows,
 * start of a row. Returns how many. */
int wh_shard_boxes_of_run(size_t cols, size_t begin, size_t end, struct wh_shard_box out[3]);

#endif
