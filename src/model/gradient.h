/* Gradients of parameters under the contract: chains over the tokens of a group, joined by the canonical tree
 * (sched/gradsum.h). Where the buffers of a sum lie:
 *
 *   alone           buffer 0 is the tensor's place in net->grads; or, where gradients have another format than the nodes of
 *                   sums (and several calls make them), one in net->pending that wh_gradient_finish converts
 *   among ranks     contribution k of this rank's groups is in net->unit_sums[unit] + k * stride, from where it is
 *                   reduced over the ranks; wh_gradient_keep brings the result to net->grads
 *   both            the other buffers are in net->pending
 *
 * Nodes are fp32 or, with grain.wire bf16, rounded to it one by one: then a leaf that is spread over several pieces has an
 * fp32 buffer until it is complete, the tensor's place in net->grads if it is fp32 (the first chunk's), else in net->pending.
 *
 * Where positions are cut over tensor ranks (wh_net_cuts_sum), a vector that all of them hold is summed by each over its own
 * positions, in net->vector_*: buffer k below the number of the rank's groups is group k's, a unit's lie together, groups
 * of vectors; the others and the open leaves lie apart. When the unit is done the tensor ranks' are joined, and then the
 * groups as above.
 *
 * unit_sums are net->grads itself where that is whole and has the format of nodes; else a flat buffer of its own; else
 * (wh_net_by_unit) slots that the layers use in turn. */
#ifndef WH_MODEL_GRADIENT_H
#define WH_MODEL_GRADIENT_H

#include "model/net.h"

/* fp32 elements of net->pending; fills net->pending_offset [params + 1] if it isn't NULL. */
size_t wh_gradient_pending_elems(const struct wh_net *net, size_t *pending_offset);

/* dW [rows, cols] of tensor `first` and those joined to it, for the tokens of `piece`: dy [n, rows], x [n, cols], both in
 * the compute dtype unless dy_dtype says otherwise. */
void wh_gradient_matrix(struct wh_net *net, const struct wh_net_sums *sums, uint32_t piece,
                        const struct wh_param *first, const void *dy, enum wh_dtype dy_dtype, size_t dy_ld,
                        const void *x, size_t x_ld);

/* One or two vectors whose gradient is a sum over token rows: `row` adds token row `r` to acc[0..width). */
typedef void wh_gradient_row_fn(const void *context, size_t r, float *acc, float *scratch);
void wh_gradient_vectors(struct wh_net *net, uint32_t piece, const struct wh_param *first,
                         const struct wh_param *second, wh_gradient_row_fn *row, const void *context);

/* Column sums of dy [n, width] (leading dimension ld): the gradient of a bias. `first` NULL: no such bias. */
void wh_gradient_bias(struct wh_net *net, uint32_t piece, const struct wh_param *first, const void *dy, size_t ld);

/* After the last micro-batch: the unit's vectors that were summed over positions of this rank alone. Errors in net->status. */
void wh_gradient_join_vectors(struct wh_net *net, uint32_t unit);

/* Elements [first, end) of the line, as far as this rank keeps them: from unit_sums, reduced, to net->grads. They lie in
 * one unit if sums are made by unit. */
void wh_gradient_keep(struct wh_net *net, size_t first, size_t end);

/* Alone: brings to net->grads what was summed elsewhere, in its format. */
void wh_gradient_finish(struct wh_net *net);

/* Stores `n` fp32 values as gradient elements from `offset`; add: onto what is there (scratch holds n floats). */
void wh_gradient_store(struct wh_net *net, size_t offset, const float *values, size_t n);
void wh_gradient_add(struct wh_net *net, size_t offset, const float *values, size_t n, float *scratch);

#endif
