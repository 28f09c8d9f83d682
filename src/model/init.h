/* Initial values of any part of the parameters, without the rest: an element is a function of (seed, tensor, element)
 * alone, so each owner makes its own (arch/owners.h). */
#ifndef WH_MODEL_INIT_H
#define WH_MODEL_INIT_H

#include <stddef.h>
#include <stdint.h>

#include "arch/params.h"

/* Elements [first, first + elems) of the flat line of parameters into out[0..elems), gaps between tensors as zeros. Bits
 * don't depend on how the line is cut nor on `threads`. first + elems <= params->buffer_elems (assert). */
void wh_init_range(const struct wh_params *params, const struct wh_model *model, uint64_t seed, size_t first,
                   size_t elems, float *out, int threads);

#endif
