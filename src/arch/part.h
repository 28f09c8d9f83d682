/* The part of a model's parameters that a rank holds: the tensors of its pipeline stage, of each the slices of its tensor
 * rank. A part is a parameter table like the model's own, with local shapes and a flat line of its own by the same rule of
 * alignment, so that what reads a table (layout, optimizer, units, owners) needn't know that it is a part. */
#ifndef WH_ARCH_PART_H
#define WH_ARCH_PART_H

#include "arch/params.h"

/* Tensors i with held[i] (NULL: all), tensor rank t of tp of each (S / tp slices of the axis it is cut on, S: grain.tensor).
 * Tensors of which nothing is left are left out. `whole` is borrowed. Start-up only. Errors: NOMEM. */
enum wh_status wh_params_part(const struct wh_params *whole, const bool *held, uint32_t S, uint32_t tp, uint32_t t,
                              struct wh_params *out);

/* Elements of the model's tensor `p` that tensor rank t of tp holds: S / tp slices, or all of it where it isn't cut. */
size_t wh_param_held_elems(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t);

/* Element `e` of tensor p, which may be a part's, as an element of the logical tensor; *run: how many follow each other there
 * from it on, p->elems - e at most. */
size_t wh_param_logical(const struct wh_param *p, size_t e, size_t *run);

#endif
