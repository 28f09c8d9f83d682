/* AdamW with decoupled weight decay and clipping by the global norm, over flat buffers with the parameter table's
 * offsets.
 *
 *     struct wh_adamw a;
 *     WH_TRY(wh_adamw_new(&settings, &buffers, &a));
 *     double norm = wh_adamw_grad_norm(&a);                 // before clipping
 *     wh_adamw_update(&a, lr, t, norm);                     // t = 1, 2, ...
 *
 * The norm is the square root of partial sums over fixed blocks of the logical tensors, added once in
 * table order in double; every logical parameter counts once. The update is elementwise. So neither depends on threads
 * or, later, on who owns which part. Nothing is allocated after wh_adamw_new. */
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

/* Borrowed. */
struct wh_adamw_buffers {
    const struct wh_params *params;
    struct wh_grain grain;
    const struct wh_vec *vec;
    int threads;
    const void *grads;
    enum wh_dtype grad_dtype; /* fp32 or bf16 */
    float *master, *m, *v;
    void *weights;              /* compute weights, refreshed from the master */
    enum wh_dtype weight_dtype; /* fp32: `weights` is `master` */
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
    struct wh_norm_block *blocks;
    double *partial; /* [block_count] */
    size_t block_count;
    struct wh_adamw_span *spans;
    size_t span_count;
    float *scratch; /* per thread, for bf16 gradients */
};

/* Errors: NOMEM. */
enum wh_status wh_adamw_new(const struct wh_adamw_settings *settings, const struct wh_adamw_buffers *buffers,
                            struct wh_adamw *out);
void wh_adamw_free(struct wh_adamw *a);

/* Global norm of the gradients, before clipping. Not finite if a gradient isn't. */
double wh_adamw_grad_norm(struct wh_adamw *a);

/* Update number t = 1, 2, ... with gradients scaled by min(1, clip / (norm + 1e-6)). */
void wh_adamw_update(struct wh_adamw *a, double lr, uint64_t t, double norm);

#endif
