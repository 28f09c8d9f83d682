#include "run/stage.h"

#include <stdlib.h>

#include "arch/owners.h"
#include "arch/part.h"
#include "mesh/shard.h"
#include "os/probe.h"

static enum wh_status new_plan(const struct wh_config *c, struct wh_sched_plan *out) {
    const bool alone = c->parallelism.pp == 1; /* forward and backward in turn, whatever is configured */
    const struct wh_sched_generator *g = wh_sched_generator(alone ? "1f1b" : wh_config_schedule(c));
    struct wh_sched_request q = {c->parallelism.pp, c->tokens.accumulation, g->chunks_default};
    if (!alone && c->parallelism.pp_chunks) q.chunks = c->parallelism.pp_chunks;
    return wh_sched_plan_new(&q, g, out);
}

/* Multiply-adds of a token, forward: what stages are balanced by. The embeddings cost nothing beside them. */
static uint64_t layer_cost(const struct wh_config *c) {
    const struct wh_model *m = &c->arch;
    const uint64_t q = (uint64_t)m->H * m->D, kv = (uint64_t)m->Hkv * m->D;
    return m->C * (2 * q + 2 * kv + (m->gated ? 3 : 2) * (uint64_t)m->F) + q * c->tokens.sequence_length;
}

static enum wh_status new_borders(const struct wh_config *c, struct wh_stage *s) {
    const uint32_t stages = wh_sched_stages(&s->plan.shape), L = c->arch.L;
    uint64_t *cost = calloc(L, sizeof *cost);
    s->layer_border = calloc((size_t)stages + 1, sizeof *s->layer_border);
    enum wh_status status = cost && s->layer_border ? WH_OK : WH_FAIL(WH_NOMEM, "no memory for %u stages", stages);
    for (uint32_t l = 0; l < L && status == WH_OK; l++) cost[l] = layer_cost(c);
    if (status == WH_OK) status = wh_shard_layers(cost, L, 0, (uint64_t)c->arch.V * c->arch.C, stages, s->layer_border);
    free(cost);
    return status;
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

static bool holds(const struct wh_stage *s, const struct wh_param *p, bool tied) {
    bool first = false, last = false;
    for (uint32_t k = 0; k < s->plan.shape.chunks; k++) {
        const struct wh_net_chunk *c = &s->chunks[k];
        if (p->layer >= 0 && c->first <= (uint32_t)p->layer && (uint32_t)p->layer < c->end) return true;
        first = first || c->embed, last = last || c->head;
    }
    if (p->layer >= 0) return false;
    if (p->id == WH_P_EMBED_POSITION) return first;
    return p->id == WH_P_EMBED_TOKEN && !tied ? first : last;
}

static enum wh_status new_part(const struct wh_config *c, struct wh_stage *s) {
    bool *held = calloc(s->whole.count, sizeof *held);
    if (!held) return WH_FAIL(WH_NOMEM, "no memory for a table of %zu tensors", s->whole.count);
    for (size_t i = 0; i < s->whole.count; i++) held[i] = holds(s, &s->whole.list[i], c->arch.tied);
    enum wh_status status = wh_params_part(&s->whole, held, c->grain.tensor, s->mesh.degrees.tp, s->place.tp, &s->part);
    const struct wh_owner_part part = {s->mesh.degrees.tp, s->place.tp, held};
    const uint32_t dp = s->mesh.degrees.dp;
    if (status == WH_OK) {
        s->owner_border = calloc((size_t)dp + 1, sizeof *s->owner_border);
        status = s->owner_border ? wh_owners_of_part(&s->whole, c->grain.tensor, &part, dp, s->owner_border)
                                 : WH_FAIL(WH_NOMEM, "no memory for the owners' borders");
    }
    free(held);
    return status;
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
        .split_backward = s->plan.generator->splits,
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
    const struct wh_mesh_degrees d = {c->parallelism.dp, c->parallelism.cp, c->parallelism.tp, c->parallelism.pp,
                                      c->parallelism.ep};
    enum wh_status status;
    *s = (struct wh_stage){.rank = rank};
    wh_mesh_init(&d, 0, &s->mesh, &faults);
    WH_TRY(wh_faults_status(&faults, WH_CONFIG));
    s->place = wh_mesh_place(&s->mesh, rank);
    WH_TRY_GOTO(wh_params_new(&c->arch, &s->whole), fail);
    WH_TRY_GOTO(new_plan(c, &s->plan), fail);
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

void wh_stage_free(struct wh_stage *s) {
    wh_sched_plan_free(&s->plan);
    wh_params_free(&s->part);
    wh_params_free(&s->whole);
    free(s->layer_border);
    free(s->chunks);
    free(s->owner_border);
    *s = (struct wh_stage){0};
}
