/* Who owns which part of the parameters: the one map that every ZeRO stage reads.
 *
 *     size_t border[N + 1];
 *     WH_TRY(wh_owners(&params, grain.tensor, N, border));
 *     rank r of N data-parallel ranks owns elements [border[r], border[r + 1]) of the line
 *
 * The line is a rank's flat buffer in elements, gaps of alignment included; a gap belongs to the tensor before it. It is
 * cut where blocks of the gradient norm begin (arch/norm_blocks.h) and nowhere else, so that no block has two owners.
 *
 * The line is that of a parameter table: of the model's, or of the part of it that a rank holds (arch/part.h), which has its
 * own. */
#ifndef WH_ARCH_OWNERS_H
#define WH_ARCH_OWNERS_H

#include "arch/params.h"

/* Legal cuts of the line, ascending from 0 to its length, both included; returns how many (at least 1). S: grain.tensor.
 * `out` NULL: only counts. */
size_t wh_owner_cuts(const struct wh_params *params, uint32_t S, size_t *out);

/* The line in `parts` ranges, each border at the cut nearest to its even place (mesh/shard.h); ranges are empty where
 * there are too few cuts. border[parts] is the line's length. Start-up only (allocates). Errors: NOMEM. */
enum wh_status wh_owners(const struct wh_params *params, uint32_t S, uint32_t parts, size_t *border);

#endif
