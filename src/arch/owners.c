#include "arch/owners.h"

#include <stdlib.h>

#include "arch/norm_blocks.h"
#include "mesh/shard.h"

size_t wh_owner_held_elems(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t) {
    static const enum wh_shard_axis axis[] = {
        [WH_CUT_NONE] = WH_SHARD_WHOLE, [WH_CUT_ROWS] = WH_SHARD_ROWS, [WH_CUT_COLS] = WH_SHARD_COLS};
    const struct wh_shard_box box = wh_shard_box(axis[p->cut], p->rows, p->cols ? p->cols : 1, S, tp, t);
    return box.rows * box.cols;
}

static size_t aligned(size_t at) { return (at + WH_PARAM_ALIGN - 1) / WH_PARAM_ALIGN * WH_PARAM_ALIGN; }

size_t wh_owner_cuts(const struct wh_params *params, uint32_t S, const struct wh_owner_part *part, size_t *out) {
    static const struct wh_owner_part whole = {1, 0, NULL};
    const struct wh_owner_part *k = part ? part : &whole;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < params->count; i++) {
        const struct wh_param *p = &params->list[i];
        const size_t held = k->held && !k->held[i] ? 0 : wh_owner_held_elems(p, S, k->tp, k->t);
        if (held == 0) continue;
        if (!p->joined) at = aligned(at);
        WH_ASSERT(part || at == p->offset);
        count += wh_norm_cuts(p, S, k->tp, k->t, at, out ? out + count : NULL);
        at += held;
    }
    if (out) out[count] = aligned(at);
    return count + 1;
}

enum wh_status wh_owners_of_part(const struct wh_params *params, uint32_t S, const struct wh_owner_part *part,
                                 uint32_t parts, size_t *border) {
    const size_t cuts = wh_owner_cuts(params, S, part, NULL);
    size_t *cut = malloc(cuts * sizeof *cut);
    if (!cut) return WH_FAIL(WH_NOMEM, "no memory for %zu places where parameters may be cut", cuts);
    wh_owner_cuts(params, S, part, cut);
    wh_shard_owners(cut, cuts, parts, border);
    free(cut);
    return WH_OK;
}

enum wh_status wh_owners(const struct wh_params *params, uint32_t S, uint32_t parts, size_t *border) {
    return wh_owners_of_part(params, S, NULL, parts, border);
}
