/* What each rank of a layout holds: its place, its layers, its slices, its parameters and the bytes of their state.
 *
 *     struct wh_layout l;
 *     WH_TRY(wh_layout_new(&config, &options, &l));
 *     l.rank[r].weight_bytes ...
 *     wh_layout_free(&l);
 *
 * Counted from the parameter table (arch/params.h), so a rank's numbers are sums of pieces that exist, not the model's
 * size divided by something. `params` counts parameters; elements and bytes are those of the flat buffers, gaps of
 * alignment included, and shares are those of arch/owners.h, which the training step reads too. Without activations,
 * buckets and scratch. */
#ifndef WH_PLAN_LAYOUT_H
#define WH_PLAN_LAYOUT_H

#include "arch/params.h"
#include "config/config.h"
#include "mesh/mesh.h"
#include "plan/stages.h"

struct wh_layout_options {
    uint32_t ranks_per_machine;     /* 0: all on one */
    enum wh_stages_balance balance; /* other than COST: a what-if; pp_layers would have to say it */
};

struct wh_layout_rank {
    uint64_t params;          /* of its stages and tensor slice; with the copy of a tied table */
    uint64_t line_elems;      /* of a flat buffer that holds them */
    uint64_t owned_elems;     /* of those: whose optimizer state it keeps; with ZeRO >= 1 a share of the data group's */
    uint64_t weight_bytes;    /* compute weights; ZeRO 3: of the share. And a tied table's copy */
    uint64_t grad_bytes;      /* ZeRO >= 2: of the share */
    uint64_t optimizer_bytes; /* two moments, and fp32 master weights where the compute weights are bf16 */
};

/* What a tensor rank has of each layer, of the vocabulary and of each sequence; the same in all stages and replicas. */
struct wh_layout_slices {
    struct wh_range heads, kv_heads, channels; /* channels: of the feed-forward */
    struct wh_range tokens;                    /* of the vocabulary; may be empty */
    /* Whose rows it has of what isn't cut (residual stream, norms, dropout): all, unless tp_mode is REDUCE_SCATTER. Empty: not
     * known, because context ranks, which aren't built, would cut them too. */
    struct wh_range positions;
};

struct wh_layout {
    struct wh_mesh mesh;
    uint32_t zero_stage;
    struct wh_sched_shape shape;     /* of the pipeline: which stages its ranks hold */
    size_t *layer_border;            /* [stages + 1] */
    struct wh_layout_slices *slices; /* [tp] */
    bool tied_copy;              /* the first stage has a copy of the token embedding, which the last one's head is */
    struct wh_layout_rank *rank; /* [world] */
};

/* The configuration has passed its check. Errors: CONFIG (fewer layers than stages), NOMEM. */
enum wh_status wh_layout_new(const struct wh_config *c, const struct wh_layout_options *options, struct wh_layout *out);
void wh_layout_free(struct wh_layout *l);

#endif
