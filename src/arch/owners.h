/* Who owns which part of the parameters: the one map that every ZeRO stage reads.
 *
 *     size_t border[N + 1];
 *     WH_TRY(wh_owners(&params, grain.tensor, N, border));
 *     rank r of N data-parallel ranks owns elements [border[r], border[r + 1]) of the line
 *
 * The line is a rank's flat buffer in elements, gaps of alignment included; a gap belongs to the tensor before it. It is
 * cut where blocks of the gradient norm begin (arch/norm_blocks.h) and nowhere else, so that no block has two owners.
 *
 * Where the rank holds the whole model, the line is [0, params.buffer_elems) with the offsets of the parameter table.
 * Else it is what the rank holds (a slice of tensors, the tensors of a stage), placed by the table's own rule: a tensor
 * begins on a multiple of WH_PARAM_ALIGN, a joined one directly behind the tensor before it. */
#ifndef WH_ARCH_OWNERS_H
#define WH_ARCH_OWNERS_H

#include "arch/params.h"

/* What a rank holds of the model. */
struct wh_owner_part {
    uint32_t tp, t;   /* tensor rank t of tp */
    const bool *held; /* [params.count] tensors of its pipeline stage; NULL: all */
};

/* Elements of tensor `p` that tensor rank t of tp holds: S / tp slices, or all of it where the tensor isn't cut. */
size_t wh_owner_held_elems(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t);

/* Legal cuts of the line, ascending from 0 to its length, both included; returns how many (at least 1). S: grain.tensor.
 * `out` NULL: only counts. `part` NULL: the whole model. */
size_t wh_owner_cuts(const struct wh_params *params, uint32_t S, const struct wh_owner_part *part, size_t *out);

/* The line in `parts` ranges, each border at the cut nearest to its even place (mesh/shard.h); ranges are empty where
 * there are too few cuts. border[parts] is the line's length. Start-up only (allocates). Errors: NOMEM. */
enum wh_status wh_owners_of_part(const struct wh_params *params, uint32_t S, const struct wh_owner_part *part,
                                 uint32_t parts, size_t *border);

/* Of the whole model. */
enum wh_status wh_owners(const struct wh_params *params, uint32_t S, uint32_t parts, size_t *border);

#endif
