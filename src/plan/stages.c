#include "plan/stages.h"

#include <stdlib.h>

#include "base/options.h"
#include "mesh/shard.h"
#include "sched/check.h"
#include "sched/format.h"
#include "sched/timing.h"

enum { SHOWN_STAGES_MAX = 16, GAIN_WORTH_UNEVEN = 20 /* a 20th */ };

/* ---- programs ---- */

static enum wh_status parse(const struct wh_config *c, struct wh_sched_plan *out) {
    struct wh_faults faults = {0};
    wh_sched_parse(c->schedule.text, c->schedule.bytes, c->parallelism.pp_schedule, out, &faults);
    return wh_faults_status(&faults, WH_CONFIG);
}

static const struct wh_sched_generator *generator_of(const struct wh_config *c) {
    return wh_sched_generator(c->parallelism.pp == 1 ? "1f1b" : wh_config_schedule(c));
}

static struct wh_sched_shape shape_of(const struct wh_config *c) {
    const struct wh_sched_generator *g = generator_of(c);
    const uint32_t asked = c->parallelism.pp == 1 ? 1 : c->parallelism.pp_chunks;
    return (struct wh_sched_shape){c->parallelism.pp, c->tokens.accumulation, asked ? asked : g->chunks_default,
                                   g->placement};
}

enum wh_status wh_stages_plan(const struct wh_config *c, struct wh_sched_plan *out) {
    if (wh_config_wants_schedule(c)) return parse(c, out);
    const struct wh_sched_shape s = shape_of(c);
    const struct wh_sched_request q = {s.ranks, s.micro_batches, s.chunks};
    return wh_sched_plan_new(&q, generator_of(c), out);
}

enum wh_status wh_stages_shape(const struct wh_config *c, struct wh_sched_shape *out) {
    struct wh_sched_plan plan;
    if (!wh_config_wants_schedule(c)) {
        *out = shape_of(c);
        return WH_OK;
    }
    WH_TRY(parse(c, &plan));
    *out = plan.shape;
    wh_sched_plan_free(&plan);
    return WH_OK;
}

enum wh_status wh_stages_prove(const struct wh_sched_plan *p) {
    struct wh_faults faults = {0};
    wh_sched_check(p, WH_SCHED_DEPTH, NULL, &faults);
    return wh_faults_status(&faults, WH_INTERNAL);
}

/* ---- layers ---- */

/* Multiply-adds of a token, forward. The embeddings cost nothing beside them. */
static uint64_t layer_cost(const struct wh_config *c) {
    const struct wh_model *m = &c->arch;
    const uint64_t q = (uint64_t)m->H * m->D, kv = (uint64_t)m->Hkv * m->D;
    return m->C * (2 * q + 2 * kv + (m->gated ? 3 : 2) * (uint64_t)m->F) + q * c->tokens.sequence_length;
}

static void take_given(const struct wh_config_list *list, size_t *border) {
    uint64_t n = 0;
    border[0] = 0;
    for (uint32_t s = 0; s < list->count; s++) {
        WH_ASSERT(wh_text_to_uint(list->item[s], &n));
        border[s + 1] = border[s] + n;
    }
}

/* Of the dearest stage. */
static uint64_t dearest(const size_t *border, uint32_t stages, uint64_t layer, uint64_t head) {
    uint64_t most = 0;
    for (uint32_t s = 0; s < stages; s++) {
        const uint64_t cost = (border[s + 1] - border[s]) * layer + (s + 1 == stages ? head : 0);
        if (cost > most) most = cost;
    }
    return most;
}

/* By cost, but of equal numbers, as far as that goes, where other ones hardly make a step shorter. */
static enum wh_status share_by_cost(const struct wh_config *c, uint32_t stages, size_t *border) {
    const uint32_t L = c->arch.L;
    const uint64_t layer = layer_cost(c), head = (uint64_t)c->arch.V * c->arch.C;
    uint64_t *cost = malloc(L * sizeof *cost);
    if (!cost) return WH_FAIL(WH_NOMEM, "no memory for the costs of %u layers", L);
    for (uint32_t l = 0; l < L; l++) cost[l] = layer;
    wh_shard_even(L, stages, border);
    const uint64_t even = dearest(border, stages, layer, head);
    enum wh_status status = wh_shard_layers(cost, L, 0, head, stages, border);
    free(cost);
    if (status != WH_OK) return status;
    const uint64_t least = dearest(border, stages, layer, head);
    if (even <= least + least / GAIN_WORTH_UNEVEN) wh_shard_even(L, stages, border);
    return WH_OK;
}

enum wh_status wh_stages_what_if(const struct wh_config *c, const struct wh_sched_shape *s,
                                 enum wh_stages_balance balance, size_t *border) {
    const uint32_t stages = wh_sched_stages(s), ends = balance == WH_BALANCE_BLOCKS;
    if (balance == WH_BALANCE_COST) return share_by_cost(c, stages, border);
    return wh_shard_layers(NULL, c->arch.L, ends, ends, stages, border);
}

enum wh_status wh_stages_borders(const struct wh_config *c, const struct wh_sched_shape *s, size_t *border) {
    if (c->parallelism.pp_layers.count == 0) return wh_stages_what_if(c, s, WH_BALANCE_COST, border);
    take_given(&c->parallelism.pp_layers, border);
    return WH_OK;
}

bool wh_stages_hold(const struct wh_config *c, const struct wh_sched_shape *s, const size_t *border, uint32_t rank,
                    const struct wh_param *p) {
    bool first = false, last = false;
    for (uint32_t k = 0; k < s->chunks; k++) {
        const uint32_t stage = wh_sched_stage(s, rank, k);
        if (p->layer >= 0 && border[stage] <= (size_t)p->layer && (size_t)p->layer < border[stage + 1]) return true;
        first = first || stage == 0, last = last || stage + 1 == wh_sched_stages(s);
    }
    if (p->layer >= 0) return false;
    if (p->id == WH_P_EMBED_POSITION) return first;
    return p->id == WH_P_EMBED_TOKEN && !c->arch.tied ? first : last;
}

/* ---- words ---- */

static void add_layers(const size_t *border, uint32_t stages, struct wh_text *out) {
    for (uint32_t s = 0; s < stages && s < SHOWN_STAGES_MAX; s++) {
        wh_text_add(out, s ? " | %zu" : "%zu", border[s]);
        if (border[s + 1] > border[s] + 1) wh_text_add(out, "-%zu", border[s + 1] - 1);
    }
    if (stages > SHOWN_STAGES_MAX) wh_text_add(out, " | ... %zu", border[stages] - 1);
}

static void add_kept(const struct wh_sched_plan *p, struct wh_text *out) {
    const char *const what = p->shape.chunks > 1 ? "forwards of a stage" : "micro-batches";
    wh_text_add(out, "%s kept by a rank", what);
    for (uint32_t r = 0; r < p->shape.ranks && r < SHOWN_STAGES_MAX; r++)
        wh_text_add(out, "%s%u", r ? " | " : " ", p->rank[r].resident);
    if (p->shape.ranks > SHOWN_STAGES_MAX) wh_text_add(out, " | ...");
}

enum wh_status wh_stages_describe(const struct wh_config *c, const struct wh_sched_plan *p, const size_t *border,
                                  struct wh_text *out) {
    static const struct wh_sched_cost cost = {.forward = 1, .backward = 2, .input = 1, .weight = 1};
    struct wh_sched_timing t;
    WH_TRY(wh_sched_time(p, &cost, WH_SCHED_DEPTH, &t));
    wh_text_add(out, "stages: layers ");
    add_layers(border, wh_sched_stages(&p->shape), out);
    wh_text_add(out, "; %s, %u micro-batch%s, idle %.1f %% of the time if a backward takes two forwards, ",
                p->generator ? p->generator->name : c->parallelism.pp_schedule, p->shape.micro_batches,
                p->shape.micro_batches == 1 ? "" : "es", 100 * t.idle);
    add_kept(p, out);
    wh_sched_timing_free(&t);
    return WH_OK;
}
