#include "plan/layout.h"

#include <stdlib.h>

#include "arch/norm_blocks.h"
#include "mesh/shard.h"

struct builder {
    const struct wh_config *c;
    struct wh_layout *l;
    struct wh_params params;
    size_t *cut;    /* where the flat parameters of one rank may be cut */
    size_t *border; /* [data ranks + 1] */
};

static bool stage_holds(const struct wh_layout *l, const struct wh_param *p, uint32_t stage) {
    const uint32_t last = l->mesh.degrees.pp - 1;
    if (p->layer >= 0)
        return l->layer_border[stage] <= (size_t)p->layer && (size_t)p->layer < l->layer_border[stage + 1];
    if (p->id == WH_P_EMBED_TOKEN) return stage == 0 || (l->tied_copy && stage == last);
    return stage == (p->id == WH_P_EMBED_POSITION ? 0 : last);
}

static size_t held_elems(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t) {
    static const enum wh_shard_axis axis[] = {
        [WH_CUT_NONE] = WH_SHARD_WHOLE, [WH_CUT_ROWS] = WH_SHARD_ROWS, [WH_CUT_COLS] = WH_SHARD_COLS};
    const struct wh_shard_box box = wh_shard_box(axis[p->cut], p->rows, p->cols ? p->cols : 1, S, tp, t);
    return box.rows * box.cols;
}

/* Legal cuts of what (stage, t) holds, one tensor behind the other; their number. The last one is the sum. */
static size_t find_cuts(struct builder *b, uint32_t stage, uint32_t t) {
    const uint32_t S = b->c->grain.tensor, tp = b->l->mesh.degrees.tp;
    size_t count = 0, elems = 0;
    for (size_t i = 0; i < b->params.count; i++) {
        const struct wh_param *p = &b->params.list[i];
        const size_t held = stage_holds(b->l, p, stage) ? held_elems(p, S, tp, t) : 0;
        if (held == 0) continue;
        count += wh_norm_cuts(p, S, tp, t, elems, b->cut + count);
        elems += held;
    }
    b->cut[count++] = elems;
    return count;
}

static void fill_rank(struct builder *b, uint32_t rank, uint64_t params, uint64_t share) {
    const uint32_t zero = b->l->zero_stage;
    const uint64_t weight = wh_dtype_bytes(b->c->model.dtype), real = sizeof(float);
    const uint64_t owned = zero >= 1 ? share : params;
    b->l->rank[rank] = (struct wh_layout_rank){
        .params = params,
        .owned = owned,
        .weight_bytes = weight * (zero >= 3 ? share : params),
        .grad_bytes = real * (zero >= 2 ? share : params), /* gradients are summed in fp32 */
        .optimizer_bytes = owned * (2 * real + (b->c->model.dtype == WH_F32 ? 0 : real)),
    };
}

static void fill_ranks(struct builder *b) {
    const struct wh_mesh *m = &b->l->mesh;
    const uint32_t data = wh_mesh_group_size(m, WH_AXIS_DATA);
    for (uint32_t group = 0; group < wh_mesh_group_count(m, WH_AXIS_DATA); group++) {
        const struct wh_mesh_place place = wh_mesh_place(m, wh_mesh_group_member(m, WH_AXIS_DATA, group, 0));
        const size_t cuts = find_cuts(b, place.pp, place.tp);
        wh_shard_owners(b->cut, cuts, data, b->border);
        for (uint32_t d = 0; d < data; d++)
            fill_rank(b, wh_mesh_group_member(m, WH_AXIS_DATA, group, d), b->cut[cuts - 1],
                      b->border[d + 1] - b->border[d]);
    }
}

static enum wh_status allocate(struct builder *b) {
    const struct wh_mesh *m = &b->l->mesh;
    size_t cuts = 1;
    for (size_t i = 0; i < b->params.count; i++)
        cuts += wh_norm_cuts(&b->params.list[i], b->c->grain.tensor, 1, 0, 0, NULL);
    b->cut = calloc(cuts, sizeof *b->cut);
    b->border = calloc((size_t)wh_mesh_group_size(m, WH_AXIS_DATA) + 1, sizeof *b->border);
    b->l->rank = calloc(m->world, sizeof *b->l->rank);
    if (b->cut && b->border && b->l->rank) return WH_OK;
    return WH_FAIL(WH_NOMEM, "no memory for a layout of %u ranks", m->world);
}

static enum wh_status share_layers(struct wh_layout *l, uint32_t layers, bool blocks) {
    const uint32_t pp = l->mesh.degrees.pp;
    l->layer_border = calloc((size_t)pp + 1, sizeof *l->layer_border);
    if (!l->layer_border) return WH_FAIL(WH_NOMEM, "no memory for %u stages", pp);
    return wh_shard_layers(NULL, layers, blocks, blocks, pp, l->layer_border);
}

enum wh_status wh_layout_new(const struct wh_config *c, const struct wh_layout_options *options,
                             struct wh_layout *out) {
    const struct wh_mesh_degrees d = {c->parallelism.dp, c->parallelism.cp, c->parallelism.tp, c->parallelism.pp,
                                      c->parallelism.ep};
    struct wh_layout l = {.zero_stage = c->optimizer.zero_stage, .tied_copy = c->arch.tied && d.pp > 1};
    struct builder b = {.c = c, .l = &l};
    struct wh_faults faults = {0};
    wh_mesh_init(&d, options->ranks_per_machine, &l.mesh, &faults);
    WH_TRY(wh_faults_status(&faults, WH_CONFIG));
    enum wh_status status = wh_params_new(&c->arch, &b.params);
    if (status == WH_OK) status = share_layers(&l, c->arch.L, options->balance_blocks);
    if (status == WH_OK) status = allocate(&b);
    if (status == WH_OK) fill_ranks(&b);
    wh_params_free(&b.params);
    free(b.cut);
    free(b.border);
    if (status == WH_OK)
        *out = l;
    else
        wh_layout_free(&l);
    return status;
}

void wh_layout_free(struct wh_layout *l) {
    free(l->layer_border);
    free(l->rank);
    l->layer_border = NULL, l->rank = NULL;
}
