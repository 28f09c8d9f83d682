/* Blocks of a tensor over which the gradient norm and other sums per parameter run. A block never crosses the border of a
 * slice of the cut axis, so whoever owns a slice can sum its blocks alone; its size depends on the tensor and the grain,
 * never on a layout. */
#ifndef WH_ARCH_NORM_BLOCKS_H
#define WH_ARCH_NORM_BLOCKS_H

#include "arch/grain.h"
#include "arch/params.h"

enum { WH_NORM_BLOCK_ELEMS = 16384 };

/* `cols` elements each of `rows` rows that are `ld` apart. */
struct wh_norm_block {
    size_t offset; /* of the first element in the flat buffer */
    uint32_t rows, cols;
    size_t ld;
};

/* The tensor's blocks in their order; `out` NULL: only counts. S: grain.tensor. */
size_t wh_norm_blocks(const struct wh_param *p, uint32_t S, struct wh_norm_block *out);

/* Blocks of all tensors of the model. */
size_t wh_norm_block_count(const struct wh_params *params, uint32_t S);

/* Where the tensor, or the part of it that tensor rank `t` of `tp` holds (S / tp slices), can be cut without splitting a
 * block: offsets of block borders in the rank's part, counted row by row from `first`; the part's end is not among them.
 * `out` NULL: only counts. */
size_t wh_norm_cuts(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t, size_t first, size_t *out);

#endif
