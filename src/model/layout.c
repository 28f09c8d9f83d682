/* Where everything lies: one function over an arena, run once to measure and once to place. */
#include <math.h>

#include "arch/norm_blocks.h"
#include "base/tree.h"
#include "comm/reduce.h"
#include "model/gradient.h"
#include "model/rope.h"
#include "model/tables.h"
#include "os/memory.h"

static size_t max2(size_t a, size_t b) { return a > b ? a : b; }

static size_t qkv_width(const struct wh_model *m) { return ((size_t)m->H + 2 * (size_t)m->Hkv) * m->D; }
static size_t up_width(const struct wh_model *m) { return (size_t)m->F * (m->gated ? 2 : 1); }

static void *take(struct wh_arena *a, enum wh_row row, size_t count, size_t elem_bytes) {
    WH_ASSERT(elem_bytes == 0 || count <= SIZE_MAX / 2 / elem_bytes);
    return wh_arena_take(a, row, count * elem_bytes);
}

/* Of the residual stream in a micro-batch, held here. */
static size_t stream_rows(const struct wh_net *net) { return wh_net_stream_elems(&net->shape) / net->shape.model->C; }

/* Activations of one layer; `kept` says which set of buffers stays for the backward pass. */
static void place_whole_layer(struct wh_net *net, struct wh_arena *a, enum wh_row row, struct wh_layer_acts *acts) {
    const struct wh_model *m = &net->local;
    size_t n = (size_t)net->shape.micro_batch * net->shape.T, e = wh_dtype_bytes(net->shape.dtype);
    size_t rows = stream_rows(net);
    acts->norm1_stats = take(a, row, rows * 2, sizeof(float));
    acts->qkv = take(a, row, n * qkv_width(m), e);
    acts->attn_stats = take(a, row, n * m->H * 2, sizeof(float));
    acts->attn = take(a, row, n * m->H * m->D, e);
    acts->x_mid = take(a, row, rows * m->C, e);
    acts->norm2_stats = take(a, row, rows * 2, sizeof(float));
    acts->up = take(a, row, n * max2(up_width(m), qkv_width(m)), e);
}

/* What selective recompute drops. */
static void place_elementwise(struct wh_net *net, struct wh_arena *a, enum wh_row row, struct wh_layer_acts *acts) {
    const struct wh_model *m = &net->local;
    size_t n = (size_t)net->shape.micro_batch * net->shape.T, e = wh_dtype_bytes(net->shape.dtype);
    acts->norm1 = take(a, row, stream_rows(net) * m->C, e);
    acts->norm2 = take(a, row, stream_rows(net) * m->C, e);
    acts->act = take(a, row, n * max2(m->F, (size_t)m->H * m->D), e);
}

/* Where what the collectives of data-parallel ranks touch is taken from. */
static struct wh_arena *data_arena(struct wh_net *net, struct wh_arena *own) {
    return wh_net_ranks(&net->shape) > 1 ? &net->shared : own;
}

static bool has_head(const struct wh_net *net) {
    bool has = false;
    for (uint32_t c = 0; c < wh_net_chunks(&net->shape); c++) has = has || wh_net_chunk(net, c)->head;
    return has;
}

/* Do chunks put out to other ranks, or take in from them? */
static bool is_pipeline(const struct wh_net *net) {
    bool all = false;
    for (uint32_t c = 0; c < wh_net_chunks(&net->shape); c++)
        all = all || (wh_net_chunk(net, c)->embed && wh_net_chunk(net, c)->head);
    return !all;
}

/* The strictest of what the chunks' i-th layers keep: a slot serves all of them. */
static enum wh_keep slot_keep(const struct wh_net *net, uint32_t i) {
    enum wh_keep keep = WH_KEEP_INPUTS;
    for (uint32_t c = 0; c < wh_net_chunks(&net->shape); c++) {
        const struct wh_net_chunk *k = wh_net_chunk(net, c);
        if (i >= k->end - k->first) continue;
        const enum wh_keep one = wh_net_keep(&net->shape, k->first + i);
        if (one < keep) keep = one;
    }
    return keep;
}

static void place_slot(struct wh_net *net, struct wh_arena *a, struct wh_net_slot *slot,
                       const struct wh_layer_acts *common) {
    const size_t elems = wh_net_stream_elems(&net->shape), e = wh_dtype_bytes(net->shape.dtype);
    const uint32_t layers = wh_net_longest_chunk(net), last = layers - !has_head(net);
    struct wh_arena *first = is_pipeline(net) ? &net->shared : a; /* x[0] comes from another rank */
    for (uint32_t l = 0; l <= last; l++)                          /* forward only: two take turns */
        slot->x[l] =
            net->shape.train || l < 2 ? take(l == 0 ? first : a, WH_ROW_ACTIVATIONS, elems, e) : slot->x[l - 2];
    for (uint32_t l = 0; l < layers; l++) {
        const enum wh_keep keep = slot_keep(net, l);
        slot->acts[l] = *common;
        if (keep != WH_KEEP_INPUTS) place_whole_layer(net, a, WH_ROW_ACTIVATIONS, &slot->acts[l]);
        if (keep == WH_KEEP_ALL) place_elementwise(net, a, WH_ROW_ACTIVATIONS, &slot->acts[l]);
    }
}

/* Room for what goes to other stages and comes from them. */
static void place_messages(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    const size_t n = wh_net_stream_elems(s), e = wh_dtype_bytes(s->dtype);
    struct wh_arena *shared = &net->shared;
    for (uint32_t i = 0; i < WH_NET_OUTPUTS; i++) net->act_out[i] = take(shared, WH_ROW_PIPE, n, e);
    for (uint32_t i = 0; i < WH_NET_OUTPUTS && s->train; i++) net->grad_out[i] = take(shared, WH_ROW_PIPE, n, e);
}

/* A chunk's gradient on its way back, unless it can stand in net->dx. */
static void place_grad(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    const bool pipeline = is_pipeline(net);
    if (!s->train || (!pipeline && !wh_net_cuts_stream(s))) return;
    for (uint32_t i = 0; i < s->grad_slots; i++)
        net->grad[i] =
            take(pipeline ? &net->shared : a, WH_ROW_BACKWARD, wh_net_stream_elems(s), wh_dtype_bytes(s->dtype));
}

/* What the parts of a split backward pass hand over. */
static void place_saved(struct wh_net *net, struct wh_arena *a) {
    const struct wh_model *m = &net->local;
    const size_t n = (size_t)net->shape.micro_batch * net->shape.T, e = wh_dtype_bytes(net->shape.dtype);
    net->d_act = take(a, WH_ROW_BACKWARD, n * max2(m->F, (size_t)m->H * m->D), e);
    for (uint32_t i = 0; i < net->shape.grad_slots; i++)
        for (uint32_t l = 0; l < wh_net_longest_chunk(net); l++) {
            struct wh_layer_saved *s = &net->saved[i][l];
            void **rows[] = {&s->dy_down, &s->dy_o, &s->d_norm1, &s->d_norm2};
            for (size_t k = 0; k < 4; k++) *rows[k] = take(a, WH_ROW_BACKWARD, stream_rows(net) * m->C, e);
            s->d_qkv = take(a, WH_ROW_BACKWARD, n * qkv_width(m), e);
            if (slot_keep(net, l) != WH_KEEP_ALL) s->d_up = take(a, WH_ROW_BACKWARD, n * up_width(m), e);
        }
}

/* Gradients of the embedded tokens of the whole batch. */
static void place_dx(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    const bool shared = is_pipeline(net) || wh_net_cuts_stream(s);
    net->dx = take(shared ? &net->shared : data_arena(net, a), WH_ROW_BACKWARD,
                   (size_t)s->global_batch * s->T * s->model->C, wh_dtype_bytes(s->dtype));
}

/* Sums of vectors over the positions of this rank. */
static void place_vectors(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    const size_t all = net->vector_border[s->model->L + 2], e = wh_dtype_bytes(wh_net_sum_dtype(s));
    const struct wh_sum_plan *plan = &net->sum_own.plan;
    net->vector_sums = take(&net->shared, WH_ROW_TENSOR, wh_net_groups(s) * all, e);
    net->vector_rest = take(a, WH_ROW_GRADS_PENDING, (plan->buffers - wh_net_groups(s)) * all, e);
    net->vector_open = take(a, WH_ROW_GRADS_PENDING, plan->opens * all, sizeof(float));
}

/* What tensor ranks add up and gather. It lies at the same place on all of them. */
static void place_tensor(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    const bool cut = wh_net_tensor_ranks(s) > 1;
    const size_t elems = (size_t)s->micro_batch * s->T * s->model->C;
    net->tp_rows = take(cut ? &net->shared : a, WH_ROW_LOGITS, 3 * (size_t)net->loss_block, sizeof(float));
    if (cut) net->tp_partial = take(&net->shared, WH_ROW_TENSOR, elems, sizeof(float));
    if (!wh_net_cuts_stream(s)) return;
    net->tp_full = take(&net->shared, WH_ROW_TENSOR, elems, wh_dtype_bytes(s->dtype));
    if (!s->train) return;
    place_vectors(net, a);
    if (wh_net_gathers_embedded(net)) place_dx(net, a);
}

static void place_activations(struct wh_net *net, struct wh_arena *a) {
    const struct wh_model *m = &net->local;
    bool whole = false, elementwise = false; /* is there a layer that shares these */
    size_t e = wh_dtype_bytes(net->shape.dtype);
    struct wh_layer_acts common = {0};
    for (uint32_t l = 0; l < wh_net_longest_chunk(net); l++) {
        whole = whole || slot_keep(net, l) == WH_KEEP_INPUTS;
        elementwise = elementwise || slot_keep(net, l) != WH_KEEP_ALL;
    }
    if (whole) place_whole_layer(net, a, WH_ROW_RECOMPUTE, &common);
    if (elementwise) place_elementwise(net, a, WH_ROW_RECOMPUTE, &common);
    for (uint32_t i = 0; i < net->shape.act_slots; i++) place_slot(net, a, &net->slot[i], &common);
    if (is_pipeline(net)) place_messages(net);
    place_grad(net, a);
    net->sequence_loss = take(a, WH_ROW_BATCH, net->shape.micro_batch, sizeof(double));
    net->token_loss = take(a, WH_ROW_BATCH, (size_t)net->shape.global_batch * net->shape.T, sizeof(double));
    if (!has_head(net)) return;
    net->final_stats = take(a, WH_ROW_ACTIVATIONS, stream_rows(net) * 2, sizeof(float));
    net->final_norm = take(a, WH_ROW_ACTIVATIONS, stream_rows(net) * m->C, e);
    net->logits = take(a, WH_ROW_LOGITS, (size_t)net->loss_block * m->V + 1, sizeof(float)); /* never NULL */
}

static size_t unit_elems(const struct wh_net *net, uint32_t unit) {
    return net->unit_border[unit + 1] - net->unit_border[unit];
}

static size_t longest_share(const struct wh_net_data *d) {
    size_t most = 0;
    for (uint32_t r = 0; r < d->ranks; r++) most = max2(most, d->owner_border[r + 1] - d->owner_border[r]);
    return most;
}

static void *at_elem(void *buffer, size_t elem, size_t elem_bytes) { /* NULL while measuring */
    return buffer ? (char *)buffer + elem * elem_bytes : NULL;
}

/* Room for one layer's unit; those that use it in turn are equally long. Unit u uses rooms[(how many layers are held before
 * it) % count]. */
static void share_rooms(const struct wh_net *net, struct wh_arena *a, enum wh_row row, size_t elem_bytes,
                        uint32_t count, void **units) {
    const uint32_t L = net->shape.model->L;
    void *rooms[WH_ZERO_AHEAD_MAX + 1];
    uint32_t position = 0;
    for (uint32_t u = 1; u <= L; u++) {
        if (unit_elems(net, u) == 0) continue;
        if (position < count) rooms[position] = take(a, row, unit_elems(net, u), elem_bytes);
        units[u] = rooms[position++ % count];
    }
}

/* Slots that units are gathered into: outside the layers, then layers (wh_zero_slot). */
static void place_gathered(struct wh_net *net, struct wh_arena *shared) {
    const struct wh_net_shape *s = &net->shape;
    const uint32_t tail = s->model->L + 1;
    const size_t e = wh_dtype_bytes(s->dtype);
    const size_t outside = s->model->tied ? unit_elems(net, 0) : max2(unit_elems(net, 0), unit_elems(net, tail));
    net->unit_weights[0] = take(shared, WH_ROW_GATHERED, outside, e);
    net->unit_weights[tail] =
        s->model->tied ? take(shared, WH_ROW_GATHERED, unit_elems(net, tail), e) : net->unit_weights[0];
    share_rooms(net, shared, WH_ROW_GATHERED, e, s->data.prefetch + 1, net->unit_weights);
}

static void place_weights(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    const uint32_t zero = s->data.zero_stage, units = s->model->L + 2;
    const size_t e = wh_dtype_bytes(s->dtype), own = net->own.end - net->own.begin;
    net->weights_first = zero == 3 ? net->own.begin : 0;
    net->weights = take(zero >= 1 ? data_arena(net, a) : a, WH_ROW_WEIGHTS,
                        zero == 3 ? longest_share(&s->data) : s->params->buffer_elems, e);
    if (zero == 3) place_gathered(net, data_arena(net, a));
    for (uint32_t u = 0; u < units && zero < 3; u++)
        net->unit_weights[u] = at_elem(net->weights, net->unit_border[u], e);
    if (wh_net_chunk(net, 0)->embed && !wh_net_param(net, WH_P_EMBED_TOKEN, -1))
        net->table_copy = take(&net->shared, WH_ROW_WEIGHTS, (size_t)net->local.V * s->model->C, e);
    net->master = net->weights, net->master_first = net->weights_first;
    if (s->dtype == WH_F32) return;
    net->master = s->train ? take(a, WH_ROW_MASTER, own, sizeof(float)) : NULL;
    net->master_first = net->own.begin;
}

/* Sums by unit: one room for what lies behind the layers, one for a tied table, some that the layers take in turn. */
static void place_sum_slots(struct wh_net *net, struct wh_arena *shared) {
    const uint32_t tail = net->shape.model->L + 1;
    const size_t e = net->contributions * wh_dtype_bytes(wh_net_sum_dtype(&net->shape));
    net->unit_sums[tail] = take(shared, WH_ROW_GRADS_SUMS, unit_elems(net, tail), e);
    net->unit_sums[0] = net->shape.model->tied ? take(shared, WH_ROW_GRADS_SUMS, unit_elems(net, 0), e) : NULL;
    share_rooms(net, shared, WH_ROW_GRADS_SUMS, e, WH_NET_SUM_SLOTS, net->unit_sums);
}

static void place_gradients(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    struct wh_arena *shared = data_arena(net, a);
    const enum wh_dtype t = wh_net_sum_dtype(s);
    const size_t e = wh_dtype_bytes(s->grad_dtype), sum_bytes = wh_dtype_bytes(t), line = s->params->buffer_elems;
    const bool ranks = wh_net_ranks(s) > 1, by_unit = wh_net_by_unit(s), same = s->grad_dtype == t && !by_unit;
    const bool parts = wh_net_grads_in_parts(s);
    const size_t stride = (line * sum_bytes + WH_ARENA_ALIGN - 1) / WH_ARENA_ALIGN * WH_ARENA_ALIGN / sum_bytes;
    net->grads_first = parts ? net->own.begin : 0;
    net->grads = take(same ? shared : a, WH_ROW_GRADS, parts ? net->own.end - net->own.begin : line, e);
    net->sums_elems = by_unit ? 0 : stride;
    if (by_unit) place_sum_slots(net, shared);
    if (ranks && !by_unit) {
        /* contribution 0, then the others; gradients of the same format are contribution 0 */
        void *sums = same ? net->grads : take(shared, WH_ROW_GRADS_SUMS, line, sum_bytes);
        take(shared, WH_ROW_GRADS_SUMS, (net->contributions - 1) * stride, sum_bytes);
        for (uint32_t u = 0; u < s->model->L + 2; u++)
            net->unit_sums[u] = at_elem(sums, net->unit_border[u], sum_bytes);
    }
    net->pending = take(a, WH_ROW_GRADS_PENDING, wh_gradient_pending_elems(net, NULL), sizeof(float));
}

static void place_states(struct wh_net *net, struct wh_arena *a) {
    const size_t own = net->own.end - net->own.begin;
    place_weights(net, a);
    if (!net->shape.train) return;
    place_gradients(net, a);
    net->adam_m = take(a, WH_ROW_ADAM_M, own, sizeof(float));
    net->adam_v = take(a, WH_ROW_ADAM_V, own, sizeof(float));
}

static void place_backward(struct wh_net *net, struct wh_arena *a) {
    const struct wh_net_shape *s = &net->shape;
    const size_t tokens = (size_t)s->global_batch * s->T;
    const size_t leaves = (size_t)s->grain.data * s->grain.sequence * s->grain.tensor;
    if (!s->train) return;
    net->leaf_loss = take(a, WH_ROW_BATCH, leaves, sizeof(double));
    net->norm_partial =
        take(a, WH_ROW_BATCH, wh_norm_block_count(wh_params_whole(s->params), s->grain.tensor), sizeof(double));
    if (s->split_backward) place_saved(net, a);
    net->d_norm = take(a, WH_ROW_BACKWARD, wh_net_stream_elems(s), wh_dtype_bytes(s->dtype));
    if (!wh_params_have_embedding(s->params) && !wh_net_chunk(net, 0)->embed) return;
    if (!wh_net_gathers_embedded(net)) place_dx(net, a);
    net->token_order = take(a, WH_ROW_BATCH, tokens, sizeof(uint32_t));
    net->token_first = take(a, WH_ROW_BATCH, (size_t)s->model->V + 1, sizeof(uint32_t));
}

static void place_scratch(struct wh_net *net, struct wh_arena *a) {
    const struct wh_model *m = &net->local;
    const struct wh_net_shape *s = &net->shape;
    size_t widest = max2(up_width(m), max2(qkv_width(m), max2(2 * (size_t)m->C, m->F))), threads = (size_t)s->threads;
    size_t half = m->D / 2;
    if (!m->learned_positions) {
        net->rope_cos = take(a, WH_ROW_TABLES, s->T * half, sizeof(float));
        net->rope_sin = take(a, WH_ROW_TABLES, s->T * half, sizeof(float));
    }
    size_t tree_rows = wh_tree_depth(s->grain.data * s->grain.sequence) + 2; /* see embed.c */
    net->row_scratch_elems = (max2(3 * widest, tree_rows * m->C) + 15) / 16 * 16;
    net->row_scratch = take(a, WH_ROW_SCRATCH, threads * net->row_scratch_elems, sizeof(float));
    net->attention_scratch_bytes = (wh_attention_scratch_bytes(s->T, m->D, s->grain.sequence) + 63) / 64 * 64;
    net->attention_scratch = take(a, WH_ROW_SCRATCH, threads, net->attention_scratch_bytes);
    unsigned depth = wh_tree_depth(max2(s->grain.tensor, s->train ? net->sum_matrix.plan.leaves_max : 1));
    net->pool.workspace = take(a, WH_ROW_SCRATCH, 1, wh_gemm_workspace_bytes(s->threads, depth));
    net->pool.grain_depth = depth;
    if (s->train) net->leaf_scratch = take(a, WH_ROW_SCRATCH, net->sum_vector.plan.leaves_max * widest, sizeof(float));
}

static void place(struct wh_net *net, struct wh_arena *a) {
    place_tensor(net, a); /* first: tensor ranks hold parts of different lengths of all that follows */
    place_states(net, a);
    place_activations(net, a);
    place_backward(net, a);
    place_scratch(net, a);
}

static enum wh_status measure(const struct wh_net_shape *shape, struct wh_net *net) {
    *net = (struct wh_net){.shape = *shape,
                           .whole = {0, shape->model->L, true, true},
                           .fresh_slot = UINT32_MAX,
                           .pool.threads = shape->threads};
    if (net->shape.act_slots == 0) net->shape.act_slots = 1;
    if (net->shape.grad_slots == 0) net->shape.grad_slots = 1;
    net->vec = wh_vec_select(shape->kernels);
    net->reduce = wh_reduce_select(shape->kernels);
    net->attention = wh_attention_select(shape->kernels);
    net->pool.kernel = wh_gemm_select(shape->kernels);
    if (!net->vec || !net->reduce || !net->attention || !net->pool.kernel)
        return WH_FAIL(WH_CONFIG, "kernels '%s' can't run on this processor", shape->kernels ? shape->kernels : "auto");
    net->attention_scale = (float)(1.0 / sqrt((double)shape->model->D));
    WH_TRY(wh_net_tables_new(net));
    net->arena = wh_arena_measuring("job");
    net->shared = wh_arena_measuring("shared");
    place(net, &net->arena);
    return WH_OK;
}

enum wh_status wh_net_predict(const struct wh_net_shape *shape, struct wh_arena *own, struct wh_arena *shared) {
    struct wh_net net;
    enum wh_status status = measure(shape, &net);
    if (status == WH_OK) *own = net.arena;
    if (status == WH_OK && shared) *shared = net.shared;
    wh_net_free(&net);
    return status;
}

enum wh_status wh_net_new(const struct wh_net_shape *shape, struct wh_net *out) {
    struct wh_net net;
    void *shared = NULL;
    enum wh_status status;
    WH_TRY_GOTO(measure(shape, &net), free_net);
    WH_TRY_GOTO(wh_memory_reserve(net.arena.used_bytes, &net.memory), free_net);
    net.memory_bytes = net.arena.used_bytes;
    if (net.shared.used_bytes) WH_TRY_GOTO(wh_comm_buffer(shape->data.job, net.shared.used_bytes, &shared), free_net);
    net.arena = wh_arena_over("job", net.memory, net.memory_bytes);
    net.shared = wh_arena_over("shared", shared, net.shared.used_bytes);
    place(&net, &net.arena);
    wh_arena_seal(&net.arena);
    wh_arena_seal(&net.shared);
    if (shape->train) wh_gradient_pending_elems(&net, net.pending_offset);
    if (net.rope_cos) wh_rope_tables(shape->model, shape->T, net.rope_cos, net.rope_sin);
    *out = net;
    return WH_OK;
free_net:
    wh_net_free(&net);
    return status;
}

void wh_net_free(struct wh_net *net) {
    wh_memory_release(net->memory, net->memory_bytes);
    wh_net_tables_free(net);
    *net = (struct wh_net){0};
}
