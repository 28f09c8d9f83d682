#include "model/gradient.h"

#include <string.h>

#include "base/tree.h"
#include "model/rows.h"

/* Which plan a tensor's sum follows; embeddings that aren't the head are summed at the end of the step (embed.c). */
static const struct wh_sum_plan *plan_of(const struct wh_net *net, const struct wh_param *p) {
    if (p->id == wh_net_head_id(net)) return &net->sum_head.plan;
    if (p->id == WH_P_EMBED_TOKEN || p->id == WH_P_EMBED_POSITION) return NULL;
    return p->cols ? &net->sum_matrix.plan : &net->sum_vector.plan;
}

/* bf16 gradients that are not the result of one call are summed in an fp32 buffer first; among ranks all are summed in
 * net->unit_sums. */
static bool sums_aside(const struct wh_net *net, const struct wh_sum_plan *plan) {
    return wh_net_ranks(&net->shape) == 1 && net->shape.grad_dtype != WH_F32 && plan->call_count > 1;
}

/* How many of a plan's buffers lie elsewhere than in net->pending. */
static uint32_t placed_buffers(const struct wh_net *net, const struct wh_sum_plan *plan) {
    return sums_aside(net, plan) ? 0 : plan->roots;
}

static size_t index_of(const struct wh_net *net, const struct wh_param *p) {
    return (size_t)(p - net->shape.params->list);
}

static size_t group_elems(const struct wh_net *net, const struct wh_param *first) {
    const struct wh_params *all = net->shape.params;
    size_t elems = first->elems;
    for (size_t i = index_of(net, first) + 1; i < all->count && all->list[i].joined; i++) elems += all->list[i].elems;
    return elems;
}

static size_t group_rows(const struct wh_net *net, const struct wh_param *first) {
    return group_elems(net, first) / (first->cols ? first->cols : 1);
}

size_t wh_gradient_pending_elems(const struct wh_net *net, size_t *pending_offset) {
    const struct wh_params *all = net->shape.params;
    size_t at = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct wh_param *p = &all->list[i];
        const struct wh_sum_plan *plan = p->joined ? NULL : plan_of(net, p);
        if (pending_offset) pending_offset[i] = at;
        if (!plan) continue;
        at += (plan->buffers - placed_buffers(net, plan)) * ((group_elems(net, p) + 15) / 16 * 16);
    }
    return at;
}

/* Buffer `k` of the sum of `first` (and joined tensors) and its dtype. */
static void *buffer_of(const struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                       uint32_t k, enum wh_dtype *dtype) {
    const uint32_t placed = placed_buffers(net, plan), unit = wh_net_unit(net, first);
    const bool alone = wh_net_ranks(&net->shape) == 1;
    *dtype = k < placed && alone ? net->shape.grad_dtype : WH_F32;
    if (k < placed && alone) return (char *)net->grads + first->offset * wh_dtype_bytes(net->shape.grad_dtype);
    if (k < placed)
        return net->unit_sums[unit] + k * wh_net_sums_stride(net, unit) + (first->offset - net->unit_border[unit]);
    size_t each = (group_elems(net, first) + 15) / 16 * 16;
    return net->pending + net->pending_offset[index_of(net, first)] + (size_t)(k - placed) * each;
}

static void add_buffers(const struct wh_net *net, float *left, const float *right, size_t n) {
    enum { CHUNK = 1 << 14 };
#pragma omp parallel for num_threads(net->shape.threads) schedule(static) if (n > CHUNK)
    for (size_t at = 0; at < n; at += CHUNK)
        net->vec->add(left + at, left + at, right + at, n - at < CHUNK ? n - at : CHUNK);
}

/* The merges behind a call. They only follow calls of plans with several calls, whose buffers are fp32. */
static void merge_buffers(const struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                          const struct wh_sum_call *call) {
    enum wh_dtype dtype;
    for (uint32_t i = 0; i < call->merges; i++) {
        float *left = buffer_of(net, first, plan, call->merge[i].left, &dtype);
        const float *right = buffer_of(net, first, plan, call->merge[i].right, &dtype);
        add_buffers(net, left, right, group_elems(net, first));
    }
}

void wh_gradient_matrix(struct wh_net *net, const struct wh_net_sums *sums, uint32_t piece,
                        const struct wh_param *first, const void *dy, enum wh_dtype dy_dtype, size_t dy_ld,
                        const void *x, size_t x_ld) {
    const struct wh_sum_plan *plan = &sums->plan;
    const struct wh_sum_piece *p = &plan->pieces[piece];
    for (uint32_t i = p->first_call; i < p->first_call + p->call_count; i++) {
        const struct wh_sum_call *call = &plan->calls[i];
        const struct wh_gemm_part *parts = sums->parts + call->first_part, *last = parts + call->part_count - 1;
        struct wh_gemm g = {.m = group_rows(net, first),
                            .n = first->cols,
                            .k = last->begin + last->length, /* bounds only: parts say which */
                            .a = {dy, dy_dtype, dy_ld, true},
                            .b = {x, net->shape.dtype, x_ld, false},
                            .parts = parts,
                            .part_count = call->part_count,
                            .accumulate = call->accumulate};
        g.c.data = buffer_of(net, first, plan, call->buffer, &g.c.dtype);
        g.c.ld = first->cols;
        if (call->add_left) g.residual = (struct wh_gemm_in){g.c.data, WH_F32, g.c.ld, false};
        wh_net_gemm(net, sums == &net->sum_head ? WH_TIME_GEMM_HEAD : WH_TIME_GEMM_WEIGHT, &g);
        merge_buffers(net, first, plan, call);
    }
}

/* Joins leaf rows acc[leaf][width] to acc[0] in tree order. */
static void join_leaves(const struct wh_net *net, float *acc, size_t width, uint32_t leaves) {
    uint32_t stack[WH_TREE_DEPTH_MAX], depth = 0;
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        stack[depth++] = leaf;
        for (unsigned m = wh_tree_merges(leaf, leaves); m > 0; m--, depth--) {
            float *left = acc + stack[depth - 2] * width;
            net->vec->add(left, left, acc + stack[depth - 1] * width, width);
        }
    }
}

/* Puts values [n] into the sum's buffer as the call says. */
static void store_vector(struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                         const struct wh_sum_call *call, float *values, size_t n) {
    enum wh_dtype dtype;
    void *buffer = buffer_of(net, first, plan, call->buffer, &dtype);
    if (dtype != WH_F32)
        net->vec->narrow(buffer, values, n);
    else if (call->add_left)
        net->vec->add(buffer, buffer, values, n);
    else
        memcpy(buffer, values, n * sizeof *values);
    merge_buffers(net, first, plan, call);
}

void wh_gradient_vectors(struct wh_net *net, uint32_t piece, const struct wh_param *first,
                         const struct wh_param *second, wh_gradient_row_fn *row, const void *context) {
    const struct wh_sum_plan *plan = &net->sum_vector.plan;
    const struct wh_sum_piece *p = &plan->pieces[piece];
    const size_t n1 = group_elems(net, first), n2 = second ? group_elems(net, second) : 0, width = n1 + n2;
    for (uint32_t i = p->first_call; i < p->first_call + p->call_count; i++) {
        const struct wh_sum_call *call = &plan->calls[i];
        const uint32_t each = call->part_count / call->leaves; /* a call's leaves have equally many parts */
        enum wh_dtype dtype;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
        for (uint32_t leaf = 0; leaf < call->leaves; leaf++) {
            float *acc = net->leaf_scratch + leaf * width, *scratch = wh_rows_scratch(net);
            memset(acc, 0, width * sizeof *acc);
            if (call->accumulate) {
                memcpy(acc, buffer_of(net, first, plan, call->buffer, &dtype), n1 * sizeof *acc);
                if (n2) memcpy(acc + n1, buffer_of(net, second, plan, call->buffer, &dtype), n2 * sizeof *acc);
            }
            for (uint32_t k = call->first_part + leaf * each; k < call->first_part + (leaf + 1) * each; k++)
                for (uint32_t r = plan->parts[k].begin; r < plan->parts[k].begin + plan->parts[k].length; r++)
                    row(context, r, acc, scratch);
        }
        join_leaves(net, net->leaf_scratch, width, call->leaves);
        store_vector(net, first, plan, call, net->leaf_scratch, n1);
        if (second) store_vector(net, second, plan, call, net->leaf_scratch + n1, n2);
    }
}

struct bias_rows {
    const struct wh_net *net;
    const void *dy;
    size_t ld, width;
};

static void bias_row(const void *context, size_t r, float *acc, float *scratch) {
    const struct bias_rows *b = context;
    b->net->vec->add(acc, acc, wh_rows_read(b->net, b->dy, r * b->ld, b->width, scratch), b->width);
}

void wh_gradient_bias(struct wh_net *net, uint32_t piece, const struct wh_param *first, const void *dy, size_t ld) {
    if (!first) return;
    const struct bias_rows b = {net, dy, ld, group_elems(net, first)};
    const uint64_t since = wh_clock_ns();
    wh_gradient_vectors(net, piece, first, NULL, bias_row, &b);
    wh_net_book(net, WH_TIME_BIAS, since);
}

void wh_gradient_finish(struct wh_net *net) {
    const struct wh_params *all = net->shape.params;
    for (size_t i = 0; i < all->count; i++) {
        const struct wh_param *p = &all->list[i];
        const struct wh_sum_plan *plan = p->joined ? NULL : plan_of(net, p);
        if (!plan || !sums_aside(net, plan)) continue;
        const float *sum = net->pending + net->pending_offset[i];
        net->vec->narrow((uint16_t *)net->grads + p->offset, sum, group_elems(net, p));
    }
}

static void *grads_at(const struct wh_net *net, size_t e) {
    return (char *)net->grads + (e - net->grads_first) * wh_dtype_bytes(net->shape.grad_dtype);
}

void wh_gradient_keep(struct wh_net *net, size_t first, size_t end) {
    enum { CHUNK = 1 << 16 };
    const struct wh_range own = net->own;
    if (first < own.begin) first = own.begin;
    if (end > own.end) end = own.end;
    if (first >= end) return;
    uint32_t unit = 0;
    while (first >= net->unit_border[unit + 1]) unit++;
    const float *sums = net->unit_sums[unit] + (first - net->unit_border[unit]);
    if ((const void *)sums == grads_at(net, first)) return;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t e = first; e < end; e += CHUNK)
        wh_gradient_store(net, e, sums + (e - first), end - e < CHUNK ? end - e : CHUNK);
}

void wh_gradient_store(struct wh_net *net, size_t offset, const float *values, size_t n) {
    if (net->shape.grad_dtype == WH_F32)
        memcpy(grads_at(net, offset), values, n * sizeof *values);
    else
        net->vec->narrow(grads_at(net, offset), values, n);
}

void wh_gradient_add(struct wh_net *net, size_t offset, const float *values, size_t n, float *scratch) {
    const float *before = grads_at(net, offset);
    if (net->shape.grad_dtype != WH_F32) net->vec->widen(scratch, grads_at(net, offset), n), before = scratch;
    net->vec->add(scratch, before, values, n);
    wh_gradient_store(net, offset, scratch, n);
}
