#include "run/traffic.h"

#include <stdlib.h>

#include "arch/norm_blocks.h"

static enum wh_status new_plan(struct wh_traffic *t, uint64_t bucket_bytes) {
    const struct wh_net_shape *s = &t->shape;
    const uint64_t elems = bucket_bytes / wh_dtype_bytes(wh_net_sum_dtype(s));
    const struct wh_zero_shape zero = {.stage = s->data.zero_stage,
                                       .layers = s->model->L,
                                       .unit_border = t->unit_border,
                                       .tied = s->model->tied,
                                       .table_elems = (size_t)s->model->V * s->model->C,
                                       .bucket_elems = elems ? (size_t)elems : 1,
                                       .prefetch = s->data.prefetch,
                                       .by_unit = wh_net_by_unit(s)};
    WH_TRY(wh_sum_joins(s->grain.data, s->grain.sequence, s->data.ranks, &t->joins));
    return wh_zero_plan_new(&zero, &t->zero);
}

enum wh_status wh_traffic_new(const struct wh_net_shape *shape, uint64_t bucket_bytes, struct wh_traffic *out) {
    struct wh_traffic t = {.shape = *shape, .norm_blocks = wh_norm_block_count(shape->params, shape->grain.tensor)};
    WH_ASSERT(shape->data.ranks > 1);
    t.unit_border = calloc(shape->model->L + 3, sizeof *t.unit_border);
    if (!t.unit_border) return WH_FAIL(WH_NOMEM, "no memory for %u units", shape->model->L + 2);
    wh_params_units(shape->params, shape->model->L, t.unit_border);
    enum wh_status status = new_plan(&t, bucket_bytes);
    if (status == WH_OK)
        *out = t;
    else
        wh_traffic_free(&t);
    return status;
}

void wh_traffic_free(struct wh_traffic *t) {
    wh_zero_plan_free(&t->zero);
    free(t->unit_border);
    *t = (struct wh_traffic){0};
}

const char *wh_traffic_row_name(const struct wh_traffic *t, enum wh_traffic_row row) {
    static const char *const names[WH_TRAFFIC_COUNT] = {
        "dp.grad.all_reduce", "dp.weight.all_gather", "dp.embed.all_gather", "dp.loss.all_gather",
        "dp.norm.all_reduce", "dp.eval.all_gather",   "dp.check.all_gather"};
    return row == WH_TRAFFIC_GRADS && t->zero.shape.stage >= 1 ? "dp.grad.reduce_scatter" : names[row];
}

/* Owners' parts of [first, end), counted from `first`. */
static void clip(const struct wh_traffic *t, size_t first, size_t end, size_t *border) {
    const struct wh_net_data *d = &t->shape.data;
    for (uint32_t r = 0; r <= d->ranks; r++) {
        const size_t b = d->owner_border[r];
        border[r] = (b < first ? first : b > end ? end : b) - first;
    }
}

struct wh_comm_call wh_traffic_bucket(const struct wh_traffic *t, uint32_t bucket, size_t *border,
                                      struct wh_comm_sum *sum) {
    const struct wh_zero_bucket *b = &t->zero.bucket[bucket];
    const enum wh_dtype sums = wh_net_sum_dtype(&t->shape);
    struct wh_comm_call call = {.op = WH_ALL_REDUCE,
                                .count = b->end - b->first,
                                .dtype = sums,
                                .redop = sums == WH_F32 ? WH_SUM : WH_SUM_ROUNDED,
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
                                 .dtype = t->shape.dtype,
                                 .border = border,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_WEIGHTS)};
}

struct wh_comm_call wh_traffic_embed(const struct wh_traffic *t) {
    const struct wh_net_shape *s = &t->shape;
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = (size_t)s->global_batch * s->T * s->model->C,
                                 .dtype = s->dtype,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_EMBED)};
}

struct wh_comm_call wh_traffic_loss(const struct wh_traffic *t) {
    const struct wh_grain *g = &t->shape.grain;
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = (size_t)g->data * g->sequence * g->tensor,
                                 .dtype = WH_F64,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_LOSS)};
}

struct wh_comm_call wh_traffic_norm(const struct wh_traffic *t) {
    return (struct wh_comm_call){.op = WH_ALL_REDUCE,
                                 .count = t->norm_blocks,
                                 .dtype = WH_F64,
                                 .redop = WH_SUM,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_NORM)};
}

struct wh_comm_call wh_traffic_eval(const struct wh_traffic *t) {
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = (size_t)t->shape.data.ranks * t->shape.micro_batch,
                                 .dtype = WH_F64,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_EVAL)};
}

struct wh_comm_call wh_traffic_check(const struct wh_traffic *t) {
    return (struct wh_comm_call){.op = WH_ALL_GATHER,
                                 .count = (size_t)t->shape.data.ranks * WH_TRAFFIC_HASHES,
                                 .dtype = WH_I64,
                                 .row = wh_traffic_row_name(t, WH_TRAFFIC_CHECK)};
}

/* ---- counting ---- */

static void count(struct wh_traffic *t, enum wh_traffic_row row, const struct wh_comm_call *call) {
    t->row[row].calls++;
    t->row[row].sent_bytes += wh_comm_call_bytes(call, t->shape.data.rank, t->shape.data.ranks);
}

static void count_pass(struct wh_traffic *t, bool train) {
    size_t border[WH_COMM_RANKS_MAX + 1];
    uint32_t unit[WH_ZERO_AHEAD_MAX + 1];
    if (t->zero.shape.stage == 0) return;
    for (uint32_t i = 0; i < wh_zero_reads(&t->zero, train); i++) {
        const uint32_t n = wh_zero_need(&t->zero, train, i, unit);
        for (uint32_t k = 0; k < n; k++) {
            const struct wh_comm_call call = wh_traffic_unit(t, unit[k], border);
            count(t, WH_TRAFFIC_WEIGHTS, &call);
        }
    }
}

void wh_traffic_step(struct wh_traffic *t, bool with_check) {
    const struct wh_net_shape *s = &t->shape;
    size_t border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm_sum sum;
    for (uint32_t i = 0; i < wh_net_sequences(s) / s->micro_batch; i++) count_pass(t, true);
    for (uint32_t b = 0; b < t->zero.bucket_count; b++) {
        const struct wh_comm_call call = wh_traffic_bucket(t, b, border, &sum);
        count(t, WH_TRAFFIC_GRADS, &call);
    }
    const struct wh_comm_call embed = wh_traffic_embed(t), loss = wh_traffic_loss(t), norm = wh_traffic_norm(t);
    count(t, WH_TRAFFIC_EMBED, &embed);
    count(t, WH_TRAFFIC_LOSS, &loss);
    if (t->zero.shape.stage >= 1) count(t, WH_TRAFFIC_NORM, &norm); /* else everybody has all gradients */
    if (with_check) {
        const struct wh_comm_call check = wh_traffic_check(t);
        count(t, WH_TRAFFIC_CHECK, &check);
    }
    wh_zero_updated(&t->zero);
}

void wh_traffic_evaluate(struct wh_traffic *t, uint64_t passes) {
    const struct wh_comm_call eval = wh_traffic_eval(t);
    for (uint64_t i = 0; i < passes; i++) {
        count_pass(t, false);
        count(t, WH_TRAFFIC_EVAL, &eval);
    }
}
