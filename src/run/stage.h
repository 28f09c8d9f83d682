/* What one rank of a layout works on: its place, the tensors and layers it holds, what of them it owns, the program it runs,
 * and the shape of the net that does it. From the configuration alone: the launcher and the predictions build any rank's.
 *
 *     struct wh_stage stage;
 *     WH_TRY(wh_stage_new(&config, rank, &stage));     // in place: it points into itself
 *     stage.shape, stage.program ...
 *     wh_stage_free(&stage); */
#ifndef WH_RUN_STAGE_H
#define WH_RUN_STAGE_H

#include "config/config.h"
#include "mesh/mesh.h"
#include "model/net.h"
#include "plan/stages.h"
#include "sched/program.h"

struct wh_stage {
    uint32_t rank;
    struct wh_mesh mesh;
    struct wh_mesh_place place;
    struct wh_params whole; /* the model's table */
    struct wh_params part;  /* what this rank holds of it */
    size_t *layer_border;   /* [stages + 1]: layers of each stage of the pipeline */
    struct wh_sched_plan plan;
    const struct wh_sched_program *program; /* of this rank, in `plan` */
    struct wh_net_chunk *chunks;            /* [plan.shape.chunks] */
    size_t *owner_border;                   /* [dp + 1] on the part's line */
    struct wh_net_shape shape;              /* data.job and tensor.comm are left NULL */
};

/* Errors: CONFIG (fewer layers than stages, a schedule that can't be), NOMEM. */
enum wh_status wh_stage_new(const struct wh_config *c, uint32_t rank, struct wh_stage *out);
void wh_stage_free(struct wh_stage *s);

static inline bool wh_stage_is_first(const struct wh_stage *s) { return s->place.pp == 0; }

/* The model has one table for embedding and head, and they are on different ranks: the last stage owns it. */
static inline bool wh_stage_copies_table(const struct wh_stage *s) {
    return wh_stages_copy_table(s->shape.model->tied, &s->plan.shape);
}

/* Of the token table, those that this tensor rank has of it. */
size_t wh_stage_table_rows(const struct wh_stage *s);

static inline bool wh_stage_owns_table(const struct wh_stage *s) {
    return wh_params_find(&s->part, WH_P_EMBED_TOKEN, -1) != NULL;
}

#endif
