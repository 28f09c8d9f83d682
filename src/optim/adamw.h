/* AdamW with decoupled weight decay and clipping by the global norm, over flat buffers with the parameter table's
 * offsets.
 *
 *     struct wh_adamw a;
 *     WH_TRY(wh_adamw_new(&settings, &buffers, &a));
 *     double norm = wh_adamw_grad_norm(&a);                 // before clipping
 *     wh_adamw_update(&a, lr, t, norm);                     // t = 1, 2, ...
 *
 * Where every rank owns a part of the parameters (arch/owners.h), the norm comes in two steps:
 *
 *     wh_adamw_partials(&a);                                // a.partial: sums of own blocks, +0 for all others
 *     ... a.partial becomes the sum of all ranks' arrays, element by element ...
 *     double norm = wh_adamw_norm(&a);                      // the same bits on every rank
 *
 * The norm is the square root of partial sums over fixed blocks of the logical tensors, added once in
 * table order in double; every logical parameter counts once. A block has one owner, and a partial is never -0, so
 * adding the other ranks' zeros is exact. The update is elementwise. So neither depends on threads or on who owns which
 * part. Nothing is allocated after wh_adamw_new. */
#ifndef WH_OPTIM_ADAMW_H
#define WH_OPTIM_ADAMW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/norm_blocks.h"
#include "base/dtype.h"
#include "tensor/vec.h"

struct wh_adamw_settings {
    double beta1, beta2, eps;
    double weight_decay; /* of tensors that the table marks */
    double clip;         /* largest global norm; 0: no clipping */
};

/* Borrowed. A buffer may hold a part of the line of parameters only: element e of the line lies at buffer[e - first]. Each
 * holds at least what is owned. */
struct wh_adamw_buffers {
    const struct wh_params *params; /* the model's table, or the part of it that is held */
    struct wh_grain grain;
    const struct wh_vec *vec;
    int threads;
    const void *grads;
    enum wh_dtype grad_dtype; /* fp32 or bf16 */
    float *master, *m, *v;
    void *weights;              /* compute weights, refreshed from the master */
    enum wh_dtype weight_dtype; /* fp32: `weights` is `master` */
    struct wh_range own;        /* elements of the line that this rank updates; whole: {0, params->buffer_elems} */
    size_t grads_first, master_first, states_first, weights_first; /* states: m and v */
    bool skip_uncut; /* tensors that aren't cut count for the norm on another tensor rank */
    double *partial; /* [wh_norm_block_count], where others can read it; NULL: allocated here */
};

/* A run of elements of one tensor. */
struct wh_adamw_span {
    size_t offset;
    uint32_t elems;
    bool decay;
};

struct wh_adamw {
    struct wh_adamw_settings settings;
    struct wh_adamw_buffers buffers;
    double *partial; /* [block_count] sums of squares, of every block of the model in table order */
    size_t block_count;
    struct wh_norm_block *blocks; /* [own_blocks] */
    size_t *place;                /* [own_blocks] in `partial` */
    size_t own_blocks;
    struct wh_adamw_span *spans; /* of own elements */
    size_t span_count;
    float *scratch; /* per thread, for bf16 gradients */
};

/* No block may lie on both sides of an end of `own` (assert). Errors: NOMEM. */
enum wh_status wh_adamw_new(const struct wh_adamw_settings *settings, const struct wh_adamw_buffers *buffers,
                            struct wh_adamw *out);
void wh_adamw_free(struct wh_adamw *a);

/* Sums of squares of the own gradients into a->partial; +0 for blocks that others own. */
void wh_adamw_partials(struct wh_adamw *a);

/* Global norm of the gradients, before clipping, from the partial sums of all blocks. Not finite if a gradient isn't. */
double wh_adamw_norm(const struct wh_adamw *a);

/* Both, for a rank that owns all. */
double wh_adamw_grad_norm(struct wh_adamw *a);

/* Update number t = 1, 2, ... of the own elements, with gradients scaled by min(1, clip / (norm + 1e-6)). */
void wh_adamw_update(struct wh_adamw *a, double lr, uint64_t t, double norm);

#endif
