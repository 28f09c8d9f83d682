#include "run/traffic.h"

#include <stdlib.h>

#include "arch/norm_blocks.h"

static enum wh_net_pass pass_of(enum wh_sched_op op) {
    return op == WH_SCHED_FORWARD           ? WH_NET_FORWARD
           : op == WH_SCHED_BACKWARD_WEIGHT ? WH_NET_BACKWARD_WEIGHT
                                            : WH_NET_BACKWARD;
}

/* Units in the order in which the program, or an evaluation, reads them; `out` NULL: only counts. */
static uint32_t step_reads(const struct wh_stage *s, uint32_t *out) {
    uint32_t count = 0;
    for (size_t i = 0; i < s->program->count; i++) {
        const struct wh_sched_instr *in = &s->program->instrs[i];
        if (!wh_sched_computes((enum wh_sched_op)in->op)) continue;
        count += wh_net_chunk_reads(&s->shape, &s->chunks[in->chunk], pass_of((enum wh_sched_op)in->op),
                                    out ? out + count : NULL);
    }
    return count;
}

static uint32_t eval_reads(const struct wh_stage *s, uint32_t *out) {
    uint32_t count = 0;
    for (uint32_t c = 0; c < s->plan.shape.chunks; c++)
        count += wh_net_chunk_reads(&s->shape, &s->chunks[c], WH_NET_EVALUATE, out ? out + count : NULL);
    return count;
}

static enum wh_status new_plan(struct wh_traffic *t, uint64_t bucket_bytes) {
    const struct wh_net_shape *s = &t->stage->shape;
    const uint64_t elems = bucket_bytes / wh_dtype_bytes(wh_net_sum_dtype(s));
    const struct wh_param *table = wh_params_find(s->params, WH_P_EMBED_TOKEN, -1);
    const uint32_t train = step_reads(t->stage, NULL), eval = eval_reads(t->stage, NULL);
    uint32_t *reads = calloc((size_t)train + eval + 1, sizeof *reads);
    if (!reads) return WH_FAIL(WH_NOMEM, "no memory for %u reads", train + eval);
    step_reads(t->stage, reads), eval_reads(t->stage, reads + train);
    const struct wh_zero_shape zero = {.stage = s->data.zero_stage,
                                       .layers = s->model->L,
                                       .unit_border = t->unit_border,
                                       .tied = s->model->tied,
                                       .table_elems = table && s->model->tied ? table->elems : 0,
                                       .bucket_elems = elems ? (size_t)elems : 1,
                                       .prefetch = s->data.prefetch,
                                       .by_unit = wh_net_by_unit(s),
                                       .train = reads,
                                       .eval = reads + train,
                                       .train_count = train,
                                       .eval_count = eval};
    enum wh_status status = wh_sum_joins(s->grain.data, s->grain.sequence, s->data.ranks, &t->joins);
    if (status == WH_OK) status = wh_zero_plan_new(&zero, &t->zero);
    free(reads);
    return status;
}

static enum wh_status new_borders(struct wh_traffic *t) {
    const struct wh_net_shape *s = &t->stage->shape;
    const uint32_t units = s->model->L + 2;
    t->unit_border = calloc(units + 1, sizeof *t->unit_border);
    t->vector_border = calloc(units + 1, sizeof *t->vector_border);
    if (!t->unit_border || !t->vector_border) return WH_FAIL(WH_NOMEM, "no memory for %u units", units);
    wh_params_units(s->params, s->model->L, t->unit_border);
    wh_net_vector_units(s, t->vector_border);
    return WH_OK;
}

enum wh_status wh_traffic_new(const struct wh_stage *stage, uint64_t bucket_bytes, struct wh_traffic *out) {
    const struct wh_net_shape *s = &stage->shape;
    struct wh_traffic t = {.stage = stage, .norm_blocks = wh_norm_block_count(&stage->whole, s->grain.tensor)};
    enum wh_status status = new_borders(&t);
    if (status == WH_OK) status = new_plan(&t, bucket_bytes);
    if (status == WH_OK)
        *out = t;
    else
        wh_traffic_free(&t);
    return status;
}

void wh_traffic_free(struct wh_traffic *t) {
    wh_zero_plan_free(&t->zero);
    free(t->unit_border), free(t->vector_border);
    *t = (struct wh_traffic){0};
}

const char *wh_traffic_row_name(const struct wh_traffic *t, enum wh_traffic_row row) {
    static const char *const names[WH_TRAFFIC_TENSOR] = {
#define X(id, name, meaning) name,
        WH_TRAFFIC_ROWS(X)
#undef X
    };
    if (row >= WH_TRAFFIC_TENSOR)
        return wh_tensor_row_name(&t->stage->shape, (enum wh_tensor_row)(row - WH_TRAFFIC_TENSOR));
    return row == WH_TRAFFIC_GRADS && t->zero.shape.stage >= 1 ? "dp.grad.reduce_scatter" : names[row];
}

/* Owners' parts of [first, end), counted from `first`. */
static void clip(const struct wh_traffic *t, size_t first, size_t end, size_t *border) {
    const struct wh_net_data *d = &t->stage->shape.data;
    for (uint32_t r = 0; r <= d->ranks; r++) {
        const size_t b = d->owner_border[r];
        border[r] = (b < first ? first : b > end ? end : b) - first;
    }
}

struct wh_comm_call wh_traffic_bucket(const struct wh_traffic *t, uint32_t bucket, size_t *border,
                                      struct wh_comm_sum *sum) {
    const struct wh_zero_bucket *b = &t->zero.bucket[bucket];
    const struct wh_grain *g = &t->stage->shape.grain;
    struct wh_comm_call call = {.op = WH_ALL_REDUCE,
                                .count = b->end - b->first,
                                .dtype = g->wire,
                                .redop = g->wire == WH_F32 || g->fast ? WH_SUM : WH_SUM_ROUNDED,
                                .order = g->fast ? WH_ORDER_ANY : WH_ORDER_CONTRACT,
                                .row = wh_traffic_row_name(t, WH_TRAFFIC_GRADS)};
    if (t->joins.count > t->joins.ranks) {
        *sum = (struct wh_comm_sum){.inputs = t->joins.inputs, .merges = t->joins.merges};
        call.sum = sum;
    }
    if (t->zero.shape.stage == 0) return call;
    clip(t, b->first, b->end, border);
    call.op = WH_REDUCE_SCATTER, call.border = border;
    return call;
}

struct wh_comm_call wh_traffic_unit(const struct wh_traffic *t, uint32_t unit, size_t *border) {
    const size_t first = t->unit_border[unit], end = t->unit_border[unit + 1];
    clip(t, first, end, border);
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = end - first,
                                 .dtype = t->stage->shape.dtype,
                                 .border = border,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_WEIGHTS)};
}

struct wh_comm_call wh_traffic_embed(const struct wh_traffic *t) {
    const struct wh_net_shape *s = &t->stage->shape;
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = (size_t)s->global_batch * s->T * s->model->C,
                                 .dtype = s->dtype,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_EMBED)};
}

static struct wh_comm_call sum_of_doubles(const struct wh_traffic *t, enum wh_traffic_row row, size_t count) {
    return (struct wh_comm_call){
        .op = WH_ALL_REDUCE, .count = count, .dtype = WH_F64, .redop = WH_SUM, .row = wh_traffic_row_name(t, row)};
}

struct wh_comm_call wh_traffic_loss(const struct wh_traffic *t) {
    const struct wh_grain *g = &t->stage->shape.grain;
    return sum_of_doubles(t, WH_TRAFFIC_LOSS, (size_t)g->data * g->sequence * g->tensor);
}

struct wh_comm_call wh_traffic_norm(const struct wh_traffic *t) {
    return sum_of_doubles(t, WH_TRAFFIC_NORM, t->norm_blocks);
}

struct wh_comm_call wh_traffic_eval(const struct wh_traffic *t) {
    return sum_of_doubles(t, WH_TRAFFIC_EVAL, (size_t)t->stage->shape.data.ranks * t->stage->shape.micro_batch);
}

static enum wh_mesh_axis check_axis(enum wh_traffic_row row) {
    return row == WH_TRAFFIC_CHECK ? WH_AXIS_DP : WH_AXIS_TP;
}

struct wh_comm_call wh_traffic_check(const struct wh_traffic *t, enum wh_traffic_row row) {
    const uint32_t ranks = wh_mesh_group_size(&t->stage->mesh, check_axis(row));
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = (size_t)ranks * WH_TRAFFIC_HASHES,
                                 .dtype = WH_I64,
                                 .row = wh_traffic_row_name(t, row)};
}

struct wh_comm_call wh_traffic_message(const struct wh_traffic *t, enum wh_traffic_row row, bool sends, uint32_t peer) {
    const struct wh_net_shape *s = &t->stage->shape;
    const size_t C = s->model->C;
    const size_t elems = row == WH_TRAFFIC_TABLE_MOVE   ? wh_stage_table_rows(t->stage) * C
                         : row == WH_TRAFFIC_EMBED_MOVE ? (size_t)wh_net_sequences(s) * s->T * C
                                                        : wh_net_stream_elems(s);
    return (struct wh_comm_call){.op = sends ? WH_SEND : WH_RECV,
                                 .count = elems,
                                 .dtype = s->dtype,
                                 .root = peer,
                                 .row = wh_traffic_row_name(t, row)};
}

enum wh_mesh_axis wh_traffic_norm_axis(const struct wh_traffic *t) {
    return t->zero.shape.stage >= 1 ? WH_AXIS_WORLD : WH_AXIS_MODEL;
}

/* ---- counting ---- */

static void count_for(struct wh_traffic *t, enum wh_traffic_row row, const struct wh_comm_call *call, uint32_t rank,
                      uint32_t ranks) {
    t->row[row].calls++;
    t->row[row].sent_bytes += wh_comm_call_bytes(call, rank, ranks);
}

/* Among data-parallel ranks, if there are any. */
static void count_data(struct wh_traffic *t, enum wh_traffic_row row, const struct wh_comm_call *call) {
    const struct wh_net_data *d = &t->stage->shape.data;
    if (d->ranks > 1) count_for(t, row, call, d->rank, d->ranks);
}

static void count_on(struct wh_traffic *t, enum wh_traffic_row row, enum wh_mesh_axis axis,
                     const struct wh_comm_call *call) {
    const struct wh_stage *s = t->stage;
    const uint32_t size = wh_mesh_group_size(&s->mesh, axis);
    if (size > 1) count_for(t, row, call, wh_mesh_position(&s->mesh, axis, s->rank), size);
}

static void count_reads(struct wh_traffic *t, bool train) {
    size_t border[WH_COMM_RANKS_MAX + 1];
    uint32_t unit[WH_ZERO_AHEAD_MAX + 1];
    if (t->zero.shape.stage == 0) return;
    for (uint32_t i = 0; i < wh_zero_reads(&t->zero, train); i++) {
        const uint32_t n = wh_zero_need(&t->zero, train, i, unit);
        for (uint32_t k = 0; k < n; k++) {
            const struct wh_comm_call call = wh_traffic_unit(t, unit[k], border);
            if (call.count) count_data(t, WH_TRAFFIC_WEIGHTS, &call);
        }
    }
}

static void count_message(struct wh_traffic *t, enum wh_traffic_row row, bool sends) {
    const struct wh_comm_call call = wh_traffic_message(t, row, sends, 0);
    count_for(t, row, &call, 1, 2);
}

/* The tied table goes from the last stage, which has all of it then, to the first before its first use. */
static void count_table(struct wh_traffic *t) {
    const struct wh_stage *s = t->stage;
    size_t border[WH_COMM_RANKS_MAX + 1];
    if (!wh_stage_copies_table(s) || t->table_fresh) return;
    t->table_fresh = true;
    if (!wh_stage_owns_table(s)) {
        if (wh_stage_is_first(s)) count_message(t, WH_TRAFFIC_TABLE_MOVE, false);
        return;
    }
    if (t->zero.shape.stage >= 1 && wh_zero_take(&t->zero, 0)) {
        const struct wh_comm_call call = wh_traffic_unit(t, 0, border);
        count_data(t, WH_TRAFFIC_WEIGHTS, &call);
    }
    count_message(t, WH_TRAFFIC_TABLE_MOVE, true);
}

/* ---- tensor ranks ---- */

/* The collective for rows of `tokens` tokens (wh_tensor_call). */
static void count_tensor(struct wh_traffic *t, enum wh_tensor_row row, size_t tokens) {
    size_t border[WH_COMM_RANKS_MAX + 1];
    if (!wh_tensor_row_name(&t->stage->shape, row)) return;
    const struct wh_comm_call call = wh_tensor_call(&t->stage->shape, row, tokens, border);
    count_on(t, (enum wh_traffic_row)(WH_TRAFFIC_TENSOR + row), WH_AXIS_TP, &call);
}

static size_t tokens(const struct wh_traffic *t) { return (size_t)t->stage->shape.micro_batch * t->stage->shape.T; }

/* A layer's forward pass over `n` tokens, or what of it recompute runs: all but the last product. */
static void count_layer(struct wh_traffic *t, size_t n, bool whole) {
    for (int k = 0; k < 2; k++) count_tensor(t, WH_TENSOR_GATHER, n);
    for (int k = 0; k < 1 + whole; k++) count_tensor(t, WH_TENSOR_FORWARD, n);
}

/* Forward pass over `n` tokens of the chunk. */
static void count_forward(struct wh_traffic *t, const struct wh_net_chunk *c, size_t n) {
    if (c->embed) count_tensor(t, WH_TENSOR_EMBED, n);
    for (uint32_t l = c->first; l < c->end; l++) count_layer(t, n, true);
}

/* Logits by blocks: maximum, label's logit, sum. */
static void count_head(struct wh_traffic *t, size_t n, bool train) {
    const size_t block = wh_net_loss_block(&t->stage->shape);
    count_tensor(t, WH_TENSOR_GATHER, n);
    for (size_t at = 0; at < n; at += block)
        for (int k = 0; k < 3; k++) count_tensor(t, WH_TENSOR_HEAD, n - at < block ? n - at : block);
    if (train) count_tensor(t, WH_TENSOR_BACKWARD, n);
}

/* What the layers' common buffers hold (model/train.c): full recompute runs a layer's forward pass again, but for its last
 * product, unless they are as it left them. */
struct fresh {
    uint32_t slot, layer;
};

static void count_restore(struct wh_traffic *t, struct fresh *f, uint32_t slot, uint32_t l) {
    if (wh_net_keep(&t->stage->shape, l) != WH_KEEP_INPUTS) return;
    if (f->slot != slot || f->layer != l) count_layer(t, tokens(t), false);
    f->slot = UINT32_MAX;
}

/* The input part of a layer's backward pass: gradients of two outputs, sums of two inputs. */
static void count_backward_input(struct wh_traffic *t) {
    for (int k = 0; k < 2; k++) count_tensor(t, WH_TENSOR_GATHER_GRAD, tokens(t));
    for (int k = 0; k < 2; k++) count_tensor(t, WH_TENSOR_BACKWARD, tokens(t));
}

/* The weight part: inputs of two matrices; and the gradients of the outputs of two others, unless they are still there. */
static void count_backward_weight(struct wh_traffic *t, bool apart) {
    for (int k = 0; k < (apart ? 4 : 2); k++) count_tensor(t, WH_TENSOR_AGAIN, tokens(t));
}

static void count_computing(struct wh_traffic *t, const struct wh_sched_instr *in, struct fresh *f) {
    const struct wh_net_chunk *c = &t->stage->chunks[in->chunk];
    if (in->op == WH_SCHED_FORWARD) {
        count_forward(t, c, tokens(t));
        for (uint32_t l = c->first; l < c->end; l++)
            if (wh_net_keep(&t->stage->shape, l) == WH_KEEP_INPUTS) *f = (struct fresh){in->act, l};
        return;
    }
    if (in->op != WH_SCHED_BACKWARD_WEIGHT && c->head) count_head(t, tokens(t), true);
    for (uint32_t l = c->end; l-- > c->first;) {
        count_restore(t, f, in->act, l);
        if (in->op != WH_SCHED_BACKWARD_WEIGHT) count_backward_input(t);
        if (in->op != WH_SCHED_BACKWARD_INPUT) count_backward_weight(t, in->op == WH_SCHED_BACKWARD_WEIGHT);
    }
}

static void count_program(struct wh_traffic *t) {
    const struct wh_sched_program *p = t->stage->program;
    struct fresh fresh = {UINT32_MAX, 0};
    for (size_t i = 0; i < p->count; i++) switch (p->instrs[i].op) {
        case WH_SCHED_FORWARD:
        case WH_SCHED_BACKWARD:
        case WH_SCHED_BACKWARD_INPUT:
        case WH_SCHED_BACKWARD_WEIGHT:
            count_computing(t, &p->instrs[i], &fresh);
            break;
        case WH_SCHED_SEND_ACT:
        case WH_SCHED_RECV_ACT:
            count_message(t, WH_TRAFFIC_ACT, p->instrs[i].op == WH_SCHED_SEND_ACT);
            break;
        case WH_SCHED_SEND_GRAD:
        case WH_SCHED_RECV_GRAD:
            count_message(t, WH_TRAFFIC_GRAD, p->instrs[i].op == WH_SCHED_SEND_GRAD);
            break;
        default:
            break;
        }
}

static void count_gradients(struct wh_traffic *t) {
    size_t border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm_sum sum;
    for (uint32_t b = 0; b < t->zero.bucket_count && t->stage->shape.data.ranks > 1; b++) {
        const struct wh_comm_call call = wh_traffic_bucket(t, b, border, &sum);
        count_data(t, WH_TRAFFIC_GRADS, &call);
    }
    if (wh_stage_copies_table(t->stage)) {
        if (wh_stage_is_first(t->stage)) count_message(t, WH_TRAFFIC_EMBED_MOVE, true);
        if (wh_stage_owns_table(t->stage)) count_message(t, WH_TRAFFIC_EMBED_MOVE, false);
    }
    const struct wh_net_shape *s = &t->stage->shape;
    for (uint32_t u = 0; u < s->model->L + 2; u++) {
        const size_t elems = t->vector_border[u + 1] - t->vector_border[u];
        if (elems) count_tensor(t, WH_TENSOR_VECTORS, wh_net_groups(s) * elems);
    }
    if (t->stage->chunks[0].embed) count_tensor(t, WH_TENSOR_EMBED_GRAD, (size_t)wh_net_sequences(s) * s->T);
    const struct wh_comm_call embed = wh_traffic_embed(t);
    if (wh_params_have_embedding(&t->stage->part)) count_data(t, WH_TRAFFIC_EMBED, &embed);
}

static void count_check(struct wh_traffic *t, enum wh_traffic_row row) {
    const struct wh_comm_call call = wh_traffic_check(t, row);
    count_on(t, row, check_axis(row), &call);
}

void wh_traffic_step(struct wh_traffic *t, bool with_check) {
    const struct wh_comm_call loss = wh_traffic_loss(t), norm = wh_traffic_norm(t);
    count_table(t);
    count_reads(t, true);
    count_program(t);
    count_gradients(t);
    count_on(t, WH_TRAFFIC_LOSS, WH_AXIS_WORLD, &loss);
    count_on(t, WH_TRAFFIC_NORM, wh_traffic_norm_axis(t), &norm);
    if (with_check) count_check(t, WH_TRAFFIC_CHECK), count_check(t, WH_TRAFFIC_CHECK_UNCUT);
    wh_zero_updated(&t->zero);
    t->table_fresh = false;
}

/* Activations of one pass: sent by each chunk but the last, received by each but the first, not within a rank. */
static void count_chunks(struct wh_traffic *t, size_t n) {
    const struct wh_stage *s = t->stage;
    for (uint32_t c = 0; c < s->plan.shape.chunks; c++) {
        if (n) count_forward(t, &s->chunks[c], n);
        if (n && s->chunks[c].head) count_head(t, n, false);
        const uint32_t to = wh_sched_peer(&s->plan.shape, s->place.pp, WH_SCHED_SEND_ACT, c),
                       from = wh_sched_peer(&s->plan.shape, s->place.pp, WH_SCHED_RECV_ACT, c);
        if (from != UINT32_MAX && from != s->place.pp) count_message(t, WH_TRAFFIC_ACT, false);
        if (to != UINT32_MAX && to != s->place.pp) count_message(t, WH_TRAFFIC_ACT, true);
    }
}

void wh_traffic_evaluate(struct wh_traffic *t, uint64_t sequences) {
    const struct wh_comm_call eval = wh_traffic_eval(t);
    const struct wh_net_shape *s = &t->stage->shape;
    count_table(t);
    for (uint64_t at = 0; at < sequences; at += (uint64_t)s->micro_batch * s->data.ranks) {
        count_reads(t, false);
        count_chunks(t, (size_t)wh_net_eval_share(s, sequences - at) * s->T);
        count_on(t, WH_TRAFFIC_EVAL, WH_AXIS_WORLD, &eval);
    }
}
