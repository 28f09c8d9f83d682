/* How a net's sums are cut, and where its tensors, units and slots are found. */
#include "model/tables.h"

#include <stdlib.h>

#include "model/state.h"

enum { LOGITS_BYTES_MAX = 112 << 20 }; /* a block of logits: big enough for the GEMM, small beside the states */

/* Tokens per block of logits: whole sequences, or an even part of one (whole ones if chunks must stay together). */
uint32_t wh_net_loss_block(const struct wh_net_shape *s) {
    uint32_t T = s->T, n = s->micro_batch * T;
    /* equal on all tensor ranks: by the longest part of the vocabulary */
    const uint64_t V =
        (s->model->V + s->grain.tensor - 1) / s->grain.tensor * (s->grain.tensor / wh_net_tensor_ranks(s));
    uint64_t fit = (uint64_t)LOGITS_BYTES_MAX / ((V < s->model->V ? V : s->model->V) * sizeof(float));
    uint32_t wanted = s->loss_block_tokens ? s->loss_block_tokens : fit < 1 ? 1 : fit > n ? n : (uint32_t)fit;
    if (wanted >= n) return n;
    if (wanted >= T || s->grain.sequence > 1) return wanted / T ? wanted / T * T : T;
    uint32_t parts = (T + wanted - 1) / wanted;
    return (T + parts - 1) / parts;
}

uint32_t wh_net_longest_chunk(const struct wh_net *net) {
    uint32_t most = 0;
    for (uint32_t c = 0; c < wh_net_chunks(&net->shape); c++) {
        const struct wh_net_chunk *k = wh_net_chunk(net, c);
        if (k->end - k->first > most) most = k->end - k->first;
    }
    return most;
}

/* This tensor rank's share of what is cut. */
static void set_local(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    const uint32_t n = wh_net_tensor_ranks(s), S = s->grain.tensor, each = S / n;
    net->local = *s->model;
    net->local.H /= n, net->local.Hkv /= n, net->local.F /= n;
    net->first_token = wh_grain_slice(s->model->V, S, s->tensor.rank * each).begin;
    net->local.V = (uint32_t)(wh_grain_slice(s->model->V, S, (s->tensor.rank + 1) * each - 1).end - net->first_token);
}

/* Slices of a sum over `n` channels that lie at `begin` in each of `pieces` blocks of the GEMM's k: slice s takes its
 * share of each block (q, k, v; gate, up) before slice s + 1 begins. Empty slices are left out. */
static enum wh_status new_parts(uint32_t slices, const size_t *blocks, size_t block_count, struct wh_net_parts *out) {
    out->list = calloc((size_t)slices * block_count, sizeof *out->list);
    if (!out->list) return WH_FAIL(WH_NOMEM, "no memory for %u slices", slices);
    for (uint32_t s = 0; s < slices; s++) {
        size_t at = 0, before = out->count;
        for (size_t b = 0; b < block_count; at += blocks[b++]) {
            struct wh_range r = wh_grain_slice(blocks[b], slices, s);
            if (r.begin == r.end) continue;
            out->list[out->count++] =
                (struct wh_gemm_part){.begin = (uint32_t)(at + r.begin), .length = (uint32_t)(r.end - r.begin)};
        }
        if (out->count > before) out->list[out->count - 1].ends_grain = true;
    }
    return WH_OK;
}

/* Slices of the vocabulary that is held here; those of the end may be shorter, or empty. */
static enum wh_status new_vocabulary_parts(struct wh_net *net) {
    const uint32_t S = net->shape.grain.tensor, each = S / wh_net_tensor_ranks(&net->shape);
    struct wh_net_parts *p = &net->parts_vocab;
    p->list = calloc(each, sizeof *p->list);
    if (!p->list) return WH_FAIL(WH_NOMEM, "no memory for %u slices", each);
    for (uint32_t s = 0; s < each; s++) {
        const struct wh_range r = wh_grain_slice(net->shape.model->V, S, net->shape.tensor.rank * each + s);
        if (r.begin == r.end) continue;
        p->list[p->count++] = (struct wh_gemm_part){
            .begin = (uint32_t)(r.begin - net->first_token), .length = (uint32_t)(r.end - r.begin), .ends_grain = true};
    }
    return WH_OK;
}

static enum wh_status new_all_parts(struct wh_net *net) {
    const struct wh_model *m = &net->local;
    const uint32_t S = net->shape.grain.tensor / wh_net_tensor_ranks(&net->shape);
    const size_t q = (size_t)m->H * m->D, kv = (size_t)m->Hkv * m->D, F = m->F;
    WH_TRY(new_parts(S, (size_t[]){q}, 1, &net->parts_o));
    WH_TRY(new_parts(S, (size_t[]){F}, 1, &net->parts_down));
    WH_TRY(new_parts(S, (size_t[]){q, kv, kv}, 3, &net->parts_qkv));
    WH_TRY(new_parts(S, (size_t[]){F, F}, m->gated ? 2 : 1, &net->parts_up));
    return new_vocabulary_parts(net);
}

/* Over the tokens of this rank's groups. */
static struct wh_sum_shape sum_shape(const struct wh_net_shape *s, uint32_t chunks, uint32_t piece_tokens) {
    return (struct wh_sum_shape){.sequences = s->global_batch,
                                 .positions = s->T,
                                 .groups = s->grain.data,
                                 .first_group = s->data.rank * wh_net_groups(s),
                                 .group_count = wh_net_groups(s),
                                 .chunks = chunks,
                                 .piece_tokens = piece_tokens,
                                 .span_tokens = s->micro_batch * s->T,
                                 .rounded = wh_net_sum_dtype(s) != WH_F32};
}

static enum wh_status new_sums(const struct wh_sum_shape *shape, struct wh_net_sums *out) {
    WH_TRY(wh_sum_plan_new(shape, &out->plan));
    out->parts = calloc(out->plan.part_count, sizeof *out->parts);
    if (!out->parts) return WH_FAIL(WH_NOMEM, "no memory for a plan of %u parts", out->plan.part_count);
    for (uint32_t i = 0; i < out->plan.part_count; i++) {
        const struct wh_sum_part *p = &out->plan.parts[i];
        out->parts[i] = (struct wh_gemm_part){p->begin, p->length, p->ends_leaf};
    }
    return WH_OK;
}

/* Matrices: the GEMM rounds its result but no node inside. */
static enum wh_status new_matrix_sums(const struct wh_net_shape *s, uint32_t piece_tokens, struct wh_net_sums *out) {
    struct wh_sum_shape shape = sum_shape(s, s->grain.sequence, piece_tokens);
    shape.leaf_calls = shape.rounded;
    return new_sums(&shape, out);
}

/* Vectors: over all positions; where these are cut, over this tensor rank's, then, a piece for each group, over the groups. */
static enum wh_status new_vector_sums(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    struct wh_sum_shape shape = sum_shape(s, s->grain.sequence * s->grain.tensor, s->micro_batch * s->T);
    WH_TRY(new_sums(&shape, &net->sum_vector));
    if (!wh_net_cuts_stream(s)) return WH_OK;
    shape.own_chunks = shape.chunks / wh_net_tensor_ranks(s);
    shape.first_chunk = s->tensor.rank * shape.own_chunks;
    WH_TRY(new_sums(&shape, &net->sum_own));
    shape = sum_shape(s, 1, 1);
    shape.sequences = s->grain.data, shape.positions = 1, shape.span_tokens = 0;
    return new_sums(&shape, &net->sum_groups);
}

void wh_net_vector_units(const struct wh_net_shape *s, size_t *border) {
    const uint32_t units = s->model->L + 2;
    for (uint32_t u = 0; u <= units; u++) border[u] = 0;
    for (size_t i = 0; i < s->params->count; i++) {
        const struct wh_param *p = &s->params->list[i];
        if (wh_net_cuts_sum(s, p)) border[wh_params_unit(p, s->model->L) + 1] += p->elems;
    }
    for (uint32_t u = 0; u < units; u++) border[u + 1] += border[u];
}

/* The line of vectors that are summed over positions apart. */
static enum wh_status new_vectors(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    const uint32_t units = s->model->L + 2;
    net->vector_border = calloc(units + 1, sizeof *net->vector_border);
    net->vector_at = calloc(s->params->count, sizeof *net->vector_at);
    if (!net->vector_border || !net->vector_at) return WH_FAIL(WH_NOMEM, "no memory for tables of %u units", units);
    wh_net_vector_units(s, net->vector_border);
    for (size_t i = 0, at = 0; i < s->params->count; i++) {
        net->vector_at[i] = at;
        if (wh_net_cuts_sum(s, &s->params->list[i])) at += s->params->list[i].elems;
    }
    return WH_OK;
}

/* All sums have the same contributions: chunks are a power of two among ranks (config/check.c). */
static enum wh_status new_joins(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    const uint32_t ranks = wh_net_ranks(s);
    WH_TRY(wh_sum_joins(s->grain.data, s->grain.sequence, ranks, &net->joins));
    for (uint32_t r = 0; r < ranks; r++)
        if (net->joins.inputs[r] > net->contributions) net->contributions = net->joins.inputs[r];
    WH_ASSERT(net->sum_matrix.plan.roots == net->joins.inputs[s->data.rank] &&
              net->sum_head.plan.roots == net->sum_matrix.plan.roots &&
              net->sum_vector.plan.roots == net->sum_matrix.plan.roots &&
              (!wh_net_cuts_stream(s) || net->sum_groups.plan.roots == net->sum_matrix.plan.roots));
    return WH_OK;
}

static enum wh_status new_slots(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    const uint32_t layers = wh_net_longest_chunk(net);
    net->slot = calloc(s->act_slots, sizeof *net->slot);
    net->grad = calloc(s->grad_slots, sizeof *net->grad);
    if (!net->slot || !net->grad) return WH_FAIL(WH_NOMEM, "no memory for %u slots", s->act_slots);
    if (s->split_backward) net->saved = calloc(s->grad_slots, sizeof *net->saved);
    if (s->split_backward && !net->saved) return WH_FAIL(WH_NOMEM, "no memory for %u slots", s->grad_slots);
    for (uint32_t i = 0; i < s->grad_slots && s->split_backward; i++) {
        net->saved[i] = calloc(layers, sizeof **net->saved);
        if (!net->saved[i]) return WH_FAIL(WH_NOMEM, "no memory for the tables of %u layers", layers);
    }
    for (uint32_t i = 0; i < s->act_slots; i++) {
        struct wh_net_slot *slot = &net->slot[i];
        slot->x = calloc(layers + 1, sizeof *slot->x);
        slot->acts = calloc(layers, sizeof *slot->acts);
        if (!slot->x || !slot->acts) return WH_FAIL(WH_NOMEM, "no memory for the tables of %u layers", layers);
    }
    return WH_OK;
}

enum wh_status wh_net_tables_new(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    set_local(net);
    const struct wh_model *m = s->model;
    net->param = calloc((size_t)(m->L + 1) * WH_P_COUNT, sizeof *net->param);
    net->pending_offset = calloc(s->params->count + 1, sizeof *net->pending_offset);
    net->unit_border = calloc(m->L + 3, sizeof *net->unit_border);
    net->unit_weights = calloc(m->L + 2, sizeof *net->unit_weights);
    net->unit_sums = calloc(m->L + 2, sizeof *net->unit_sums);
    if (!net->param || !net->pending_offset || !net->unit_border || !net->unit_weights || !net->unit_sums)
        return WH_FAIL(WH_NOMEM, "no memory for the tables of %u layers", m->L);
    WH_TRY(new_slots(net));
    for (size_t i = 0; i < s->params->count; i++) {
        const struct wh_param *p = &s->params->list[i];
        net->param[(p->layer < 0 ? (int)m->L : p->layer) * WH_P_COUNT + (int)p->id] = p;
    }
    wh_params_units(s->params, m->L, net->unit_border);
    net->own = (struct wh_range){0, s->params->buffer_elems};
    if (s->data.zero_stage >= 1 && wh_net_ranks(s) > 1)
        net->own = (struct wh_range){s->data.owner_border[s->data.rank], s->data.owner_border[s->data.rank + 1]};
    net->loss_block = wh_net_loss_block(s);
    WH_TRY(new_all_parts(net));
    WH_TRY(wh_states_new(net));
    if (!s->train) return WH_OK;
    WH_TRY(new_matrix_sums(s, s->micro_batch * s->T, &net->sum_matrix));
    WH_TRY(new_matrix_sums(s, net->loss_block, &net->sum_head));
    WH_TRY(new_vector_sums(net));
    WH_TRY(new_vectors(net));
    return new_joins(net);
}

static void free_sums(struct wh_net_sums *s) {
    wh_sum_plan_free(&s->plan);
    free(s->parts);
}

void wh_net_tables_free(struct wh_net *net) {
    free(net->param);
    for (uint32_t i = 0; net->slot && i < net->shape.act_slots; i++) {
        free(net->slot[i].x);
        free(net->slot[i].acts);
    }
    for (uint32_t i = 0; net->saved && i < net->shape.grad_slots; i++) free(net->saved[i]);
    free(net->saved);
    free(net->slot);
    free(net->grad);
    free(net->pending_offset);
    free(net->unit_border);
    free(net->unit_weights);
    free(net->unit_sums);
    free(net->parts_o.list), free(net->parts_down.list), free(net->parts_qkv.list);
    free(net->parts_up.list), free(net->parts_vocab.list);
    free_sums(&net->sum_matrix), free_sums(&net->sum_head), free_sums(&net->sum_vector);
    free_sums(&net->sum_own), free_sums(&net->sum_groups);
    free(net->vector_border), free(net->vector_at);
    wh_states_free(net);
}
