#include "arch/owners.h"

#include <stdlib.h>

#include "arch/norm_blocks.h"
#include "mesh/shard.h"

size_t wh_owner_cuts(const struct wh_params *params, uint32_t S, size_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < params->count; i++) {
        const struct wh_param *p = &params->list[i], *logical = &wh_params_whole(params)->list[p->index];
        count += wh_norm_cuts(logical, S, params->tp, params->t, p->offset, out ? out + count : NULL);
    }
    if (out) out[count] = params->buffer_elems;
    return count + 1;
}

enum wh_status wh_owners(const struct wh_params *params, uint32_t S, uint32_t parts, size_t *border) {
    const size_t cuts = wh_owner_cuts(params, S, NULL);
    size_t *cut = malloc(cuts * sizeof *cut);
    if (!cut) return WH_FAIL(WH_NOMEM, "no memory for %zu places where parameters may be cut", cuts);
    wh_owner_cuts(params, S, cut);
    wh_shard_owners(cut, cuts, parts, border);
    free(cut);
    return WH_OK;
}
