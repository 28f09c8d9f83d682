#include "plan/layout.h"

#include <stdlib.h>

#include "arch/owners.h"
#include "arch/part.h"
#include "plan/states.h"

struct builder {
    const struct wh_config *c;
    struct wh_layout *l;
    struct wh_params params;
    bool *held;     /* [params.count] by the ranks of one stage */
    size_t *border; /* [data ranks + 1] */
};

static bool has_copy(const struct wh_layout *l, const struct wh_param *p, uint32_t pp) {
    return l->tied_copy && pp == 0 && p->id == WH_P_EMBED_TOKEN;
}

/* Fills b->held with what ranks at (pp, tp) hold; their parameters, and those of a copy among them. */
static uint64_t hold(struct builder *b, uint32_t pp, uint32_t tp, uint64_t *copied) {
    uint64_t params = 0;
    *copied = 0;
    for (size_t i = 0; i < b->params.count; i++) {
        const struct wh_param *p = &b->params.list[i];
        const uint64_t elems = wh_param_held_elems(p, b->c->grain.tensor, b->l->mesh.degrees.tp, tp);
        b->held[i] = wh_stages_hold(b->c, &b->l->shape, b->l->layer_border, pp, p);
        if (has_copy(b->l, p, pp)) *copied += elems;
        if (b->held[i]) params += elems;
    }
    return params + *copied;
}

static struct wh_layout_rank rank_of(const struct builder *b, uint64_t params, uint64_t line, uint64_t share) {
    const struct wh_config *c = b->c;
    const uint32_t zero = b->l->zero_stage;
    const enum wh_dtype gradients = c->optimizer.accumulate_grad_in_fp32 ? WH_F32 : c->model.dtype;
    const struct wh_state_bytes bytes = wh_state_bytes(line, share, zero, c->model.dtype, gradients);
    return (struct wh_layout_rank){.params = params,
                                   .line_elems = line,
                                   .owned_elems = zero >= 1 ? share : line,
                                   .weight_bytes = bytes.weights,
                                   .grad_bytes = bytes.gradients,
                                   .optimizer_bytes = bytes.optimizer};
}

static enum wh_status find_owners(struct builder *b, uint32_t tp, uint32_t data) {
    const uint32_t S = b->c->grain.tensor;
    struct wh_params part;
    WH_TRY(wh_params_part(&b->params, b->held, S, b->l->mesh.degrees.tp, tp, &part));
    const enum wh_status status = wh_owners(&part, S, data, b->border);
    wh_params_free(&part);
    return status;
}

static enum wh_status fill_ranks(struct builder *b) {
    const struct wh_mesh *m = &b->l->mesh;
    const uint32_t data = wh_mesh_group_size(m, WH_AXIS_DATA);
    for (uint32_t group = 0; group < wh_mesh_group_count(m, WH_AXIS_DATA); group++) {
        const struct wh_mesh_place place = wh_mesh_place(m, wh_mesh_group_member(m, WH_AXIS_DATA, group, 0));
        uint64_t copied;
        const uint64_t params = hold(b, place.pp, place.tp, &copied);
        WH_TRY(find_owners(b, place.tp, data));
        for (uint32_t d = 0; d < data; d++) {
            struct wh_layout_rank *k = &b->l->rank[wh_mesh_group_member(m, WH_AXIS_DATA, group, d)];
            *k = rank_of(b, params, b->border[data], b->border[d + 1] - b->border[d]);
            k->weight_bytes += copied * wh_dtype_bytes(b->c->model.dtype);
        }
    }
    return WH_OK;
}

/* Of n, cut into grain.tensor slices, those of tensor rank t. */
static struct wh_range slices_of(const struct builder *b, size_t n, uint32_t t) {
    const uint32_t S = b->c->grain.tensor, each = S / b->l->mesh.degrees.tp;
    return (struct wh_range){wh_grain_slice(n, S, t * each).begin, wh_grain_slice(n, S, (t + 1) * each - 1).end};
}

static struct wh_range positions_of(const struct builder *b, uint32_t t) {
    const struct wh_mesh_degrees *d = &b->l->mesh.degrees;
    const bool cut = b->c->parallelism.tp_mode == WH_TP_REDUCE_SCATTER;
    if (d->cp > 1) return (struct wh_range){0, 0};
    return wh_grain_chunk(b->c->tokens.sequence_length, cut ? d->tp : 1, cut ? t : 0);
}

static void fill_slices(struct builder *b) {
    const struct wh_model *m = &b->c->arch;
    for (uint32_t t = 0; t < b->l->mesh.degrees.tp; t++)
        b->l->slices[t] = (struct wh_layout_slices){.heads = slices_of(b, m->H, t),
                                                    .kv_heads = slices_of(b, m->Hkv, t),
                                                    .channels = slices_of(b, m->F, t),
                                                    .tokens = slices_of(b, m->V, t),
                                                    .positions = positions_of(b, t)};
}

static enum wh_status allocate(struct builder *b) {
    const struct wh_mesh *m = &b->l->mesh;
    b->held = calloc(b->params.count, sizeof *b->held);
    b->border = calloc((size_t)wh_mesh_group_size(m, WH_AXIS_DATA) + 1, sizeof *b->border);
    b->l->rank = calloc(m->world, sizeof *b->l->rank);
    b->l->slices = calloc(m->degrees.tp, sizeof *b->l->slices);
    if (b->held && b->border && b->l->rank && b->l->slices) return WH_OK;
    return WH_FAIL(WH_NOMEM, "no memory for a layout of %u ranks", m->world);
}

static enum wh_status share_layers(const struct wh_config *c, enum wh_stages_balance balance, struct wh_layout *l) {
    WH_TRY(wh_stages_shape(c, &l->shape));
    const uint32_t stages = wh_sched_stages(&l->shape);
    l->tied_copy = wh_stages_copy_table(c->arch.tied, &l->shape);
    l->layer_border = calloc((size_t)stages + 1, sizeof *l->layer_border);
    if (!l->layer_border) return WH_FAIL(WH_NOMEM, "no memory for %u stages", stages);
    return balance == WH_BALANCE_COST ? wh_stages_borders(c, &l->shape, l->layer_border)
                                      : wh_stages_what_if(c, &l->shape, balance, l->layer_border);
}

enum wh_status wh_layout_new(const struct wh_config *c, const struct wh_layout_options *options,
                             struct wh_layout *out) {
    const struct wh_mesh_degrees d = wh_config_degrees(c);
    struct wh_layout l = {.zero_stage = c->optimizer.zero_stage};
    struct builder b = {.c = c, .l = &l};
    struct wh_faults faults = {0};
    wh_mesh_init(&d, options->ranks_per_machine, &l.mesh, &faults);
    WH_TRY(wh_faults_status(&faults, WH_CONFIG));
    enum wh_status status = wh_params_new(&c->arch, &b.params);
    if (status == WH_OK) status = share_layers(c, options->balance, &l);
    if (status == WH_OK) status = allocate(&b);
    if (status == WH_OK) status = fill_ranks(&b);
    if (status == WH_OK) fill_slices(&b);
    wh_params_free(&b.params);
    free(b.held);
    free(b.border);
    if (status == WH_OK)
        *out = l;
    else
        wh_layout_free(&l);
    return status;
}

void wh_layout_free(struct wh_layout *l) {
    free(l->layer_border);
    free(l->slices);
    free(l->rank);
    l->layer_border = NULL, l->slices = NULL, l->rank = NULL;
}
