#include "run/stage.h"

#include <stdlib.h>

#include "arch/owners.h"
#include "arch/part.h"
#include "os/probe.h"

static enum wh_status new_borders(const struct wh_config *c, struct wh_stage *s) {
    const uint32_t stages = wh_sched_stages(&s->plan.shape);
    s->layer_border = calloc((size_t)stages + 1, sizeof *s->layer_border);
    if (!s->layer_border) return WH_FAIL(WH_NOMEM, "no memory for %u stages", stages);
    return wh_stages_borders(c, &s->plan.shape, s->layer_border);
}

static enum wh_status new_chunks(struct wh_stage *s) {
    const uint32_t n = s->plan.shape.chunks, stages = wh_sched_stages(&s->plan.shape);
    s->chunks = calloc(n, sizeof *s->chunks);
    if (!s->chunks) return WH_FAIL(WH_NOMEM, "no memory for %u chunks", n);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t stage = wh_sched_stage(&s->plan.shape, s->place.pp, k);
        s->chunks[k] = (struct wh_net_chunk){.first = (uint32_t)s->layer_border[stage],
                                             .end = (uint32_t)s->layer_border[stage + 1],
                                             .embed = stage == 0,
                                             .head = stage + 1 == stages};
    }
    return WH_OK;
}

static enum wh_status new_part(const struct wh_config *c, struct wh_stage *s) {
    bool *held = calloc(s->whole.count, sizeof *held);
    if (!held) return WH_FAIL(WH_NOMEM, "no memory for a table of %zu tensors", s->whole.count);
    for (size_t i = 0; i < s->whole.count; i++)
        held[i] = wh_stages_hold(c, &s->plan.shape, s->layer_border, s->place.pp, &s->whole.list[i]);
    enum wh_status status = wh_params_part(&s->whole, held, c->grain.tensor, s->mesh.degrees.tp, s->place.tp, &s->part);
    free(held);
    WH_TRY(status);
    s->owner_border = calloc((size_t)s->mesh.degrees.dp + 1, sizeof *s->owner_border);
    if (!s->owner_border) return WH_FAIL(WH_NOMEM, "no memory for the owners' borders");
    return wh_owners(&s->part, c->grain.tensor, s->mesh.degrees.dp, s->owner_border);
}

static bool splits(const struct wh_sched_program *p) {
    for (size_t i = 0; i < p->count; i++)
        if (p->instrs[i].op == WH_SCHED_BACKWARD_WEIGHT) return true;
    return false;
}

static struct wh_net_shape shape_of(const struct wh_config *c, const struct wh_stage *s) {
    static const char *const kernels[] = {NULL, "reference", "avx2", "avx512"};
    static const enum wh_keep keep[] = {WH_KEEP_ALL, WH_KEEP_SELECTIVE, WH_KEEP_INPUTS};
    return (struct wh_net_shape){
        .model = &c->arch,
        .params = &s->part,
        .chunks = s->chunks,
        .chunk_count = s->plan.shape.chunks,
        .act_slots = s->program->act_slots,
        .grad_slots = s->program->grad_slots,
        .split_backward = splits(s->program),
        .grain = c->grain,
        .T = c->tokens.sequence_length,
        .micro_batch = c->tokens.micro_batch,
        .global_batch = c->tokens.global_batch,
        .dtype = c->model.dtype,
        .grad_dtype = c->optimizer.accumulate_grad_in_fp32 ? WH_F32 : c->model.dtype,
        .keep = keep[c->recompute],
        .full_layers = c->recompute_full_layers,
        .train = true,
        .loss_block_tokens = c->loss_block_tokens,
        .threads = c->threads ? (int)c->threads : wh_probe_processors(),
        .kernels = kernels[c->kernels],
        .seed = c->general.seed,
        .tensor = {.ranks = s->mesh.degrees.tp,
                   .rank = s->place.tp,
                   .sequence = c->parallelism.tp_mode == WH_TP_REDUCE_SCATTER},
        .data = {.ranks = s->mesh.degrees.dp,
                 .rank = s->place.dp,
                 .zero_stage = s->mesh.degrees.dp > 1 ? c->optimizer.zero_stage : 0,
                 .owner_border = s->owner_border,
                 .prefetch = c->optimizer.prefetch},
    };
}

enum wh_status wh_stage_new(const struct wh_config *c, uint32_t rank, struct wh_stage *out) {
    struct wh_stage *s = out;
    struct wh_faults faults = {0};
    const struct wh_mesh_degrees d = wh_config_degrees(c);
    enum wh_status status;
    *s = (struct wh_stage){.rank = rank};
    wh_mesh_init(&d, 0, &s->mesh, &faults);
    WH_TRY(wh_faults_status(&faults, WH_CONFIG));
    s->place = wh_mesh_place(&s->mesh, rank);
    WH_TRY_GOTO(wh_params_new(&c->arch, &s->whole), fail);
    WH_TRY_GOTO(wh_stages_plan(c, &s->plan), fail);
    s->program = &s->plan.rank[s->place.pp];
    WH_TRY_GOTO(new_borders(c, s), fail);
    WH_TRY_GOTO(new_chunks(s), fail);
    WH_TRY_GOTO(new_part(c, s), fail);
    s->shape = shape_of(c, s);
    return WH_OK;
fail:
    wh_stage_free(s);
    return status;
}

size_t wh_stage_table_rows(const struct wh_stage *s) {
    const struct wh_param *p = wh_params_find(&s->whole, WH_P_EMBED_TOKEN, -1);
    return wh_param_held_elems(p, s->shape.grain.tensor, s->mesh.degrees.tp, s->place.tp) / p->cols;
}

void wh_stage_free(struct wh_stage *s) {
    wh_sched_plan_free(&s->plan);
    wh_params_free(&s->part);
    wh_params_free(&s->whole);
    free(s->layer_border);
    free(s->chunks);
    free(s->owner_border);
    *s = (struct wh_stage){0};
}
