#include "model/gradient.h"

#include <string.h>

#include "base/tree.h"
#include "comm/reduce.h"
#include "model/rows.h"
#include "model/tensor_sums.h"

/* Which plan a tensor's sum follows; embeddings that aren't the head are summed at the end of the step (embed.c). */
static const struct wh_sum_plan *plan_of(const struct wh_net *net, const struct wh_param *p) {
    if (p->id == wh_net_head_id(net)) return &net->sum_head.plan;
    if (p->id == WH_P_EMBED_TOKEN || p->id == WH_P_EMBED_POSITION) return NULL;
    if (p->cols) return &net->sum_matrix.plan;
    return wh_net_cuts_sum(&net->shape, p) ? &net->sum_groups.plan : &net->sum_vector.plan;
}

/* Alone: sums that aren't made in their place in net->grads, because their nodes have another format; but one call rounds
 * its result to bf16 itself. Among ranks all are made in net->unit_sums. */
static bool sums_aside(const struct wh_net *net, const struct wh_sum_plan *plan) {
    const enum wh_dtype nodes = wh_net_sum_dtype(&net->shape);
    return wh_net_ranks(&net->shape) == 1 && net->shape.grad_dtype != nodes &&
           (nodes != WH_F32 || plan->call_count > 1);
}

/* How many of a plan's buffers lie elsewhere than in net->pending. */
static uint32_t placed_buffers(const struct wh_net *net, const struct wh_sum_plan *plan) {
    return sums_aside(net, plan) ? 0 : plan->roots;
}

/* How many open buffers do: the tensor's place in net->grads, which nobody uses before its sum is complete. */
static uint32_t placed_opens(const struct wh_net *net, const struct wh_sum_plan *plan) {
    return plan->opens > 0 && net->shape.grad_dtype == WH_F32 && !wh_net_grads_in_parts(&net->shape);
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

/* fp32 elements that `count` buffers of `elems` in format `t` take: whole cache lines each. */
static size_t room_of(uint32_t count, size_t elems, enum wh_dtype t) {
    const size_t lines = (elems * wh_dtype_bytes(t) + 63) / 64;
    return count * lines * 64 / sizeof(float);
}

/* Layout: of each tensor its open buffers, then those that are kept between pieces; behind all, at pending_offset[params],
 * what the pieces of all tensors use in turn. */
size_t wh_gradient_pending_elems(const struct wh_net *net, size_t *pending_offset) {
    const struct wh_params *all = net->shape.params;
    const enum wh_dtype t = wh_net_sum_dtype(&net->shape);
    size_t at = 0, scratch = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct wh_param *p = &all->list[i];
        const struct wh_sum_plan *plan = p->joined ? NULL : plan_of(net, p);
        if (pending_offset) pending_offset[i] = at;
        if (!plan) continue;
        const size_t elems = group_elems(net, p), turn = room_of(plan->buffers - plan->kept, elems, t);
        at += room_of(plan->opens - placed_opens(net, plan), elems, WH_F32);
        at += room_of(plan->kept - placed_buffers(net, plan), elems, t);
        if (turn > scratch) scratch = turn;
    }
    if (pending_offset) pending_offset[all->count] = at;
    return at + scratch;
}

static void *grads_at(const struct wh_net *net, size_t e) {
    return (char *)net->grads + (e - net->grads_first) * wh_dtype_bytes(net->shape.grad_dtype);
}

/* Buffer `k` of the sum over this tensor rank's positions. */
static void *own_buffer_of(const struct wh_net *net, const struct wh_param *first, uint32_t k) {
    const size_t *border = &net->vector_border[wh_net_unit(net, first)], *all = net->vector_border;
    const size_t at = net->vector_at[index_of(net, first)], e = wh_dtype_bytes(wh_net_sum_dtype(&net->shape));
    const uint32_t groups = wh_net_groups(&net->shape);
    if (k < groups)
        return (char *)net->vector_sums + (groups * border[0] + k * (border[1] - border[0]) + at - border[0]) * e;
    return (char *)net->vector_rest + ((k - groups) * all[net->shape.model->L + 2] + at) * e;
}

/* Buffer `k` of the sum of `first` (and joined tensors) and its dtype. */
static void *buffer_of(const struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                       uint32_t k, enum wh_dtype *dtype) {
    *dtype = wh_net_sum_dtype(&net->shape);
    if (plan == &net->sum_own.plan) return own_buffer_of(net, first, k);
    const uint32_t placed = placed_buffers(net, plan), unit = wh_net_unit(net, first);
    const bool alone = wh_net_ranks(&net->shape) == 1;
    const enum wh_dtype t = wh_net_sum_dtype(&net->shape);
    const size_t elems = group_elems(net, first);
    *dtype = k < placed && alone ? net->shape.grad_dtype : t;
    if (k < placed && alone) return grads_at(net, first->offset);
    if (k < placed)
        return (char *)net->unit_sums[unit] +
               (k * wh_net_sums_stride(net, unit) + (first->offset - net->unit_border[unit])) * wh_dtype_bytes(t);
    if (k >= plan->kept)
        return net->pending + net->pending_offset[net->shape.params->count] + room_of(k - plan->kept, elems, t);
    return net->pending + net->pending_offset[index_of(net, first)] +
           room_of(plan->opens - placed_opens(net, plan), elems, WH_F32) + room_of(k - placed, elems, t);
}

static float *open_of(const struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                      uint32_t k) {
    const uint32_t placed = placed_opens(net, plan);
    if (plan == &net->sum_own.plan)
        return net->vector_open + k * net->vector_border[net->shape.model->L + 2] +
               net->vector_at[index_of(net, first)];
    if (k < placed) return grads_at(net, first->offset);
    return net->pending + net->pending_offset[index_of(net, first)] +
           room_of(k - placed, group_elems(net, first), WH_F32);
}

/* Where a call's own result goes. */
static void *result_of(const struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                       const struct wh_sum_call *call, enum wh_dtype *dtype) {
    if (plan->opens == 0 || !wh_sum_call_open(call)) return buffer_of(net, first, plan, call->buffer, dtype);
    *dtype = WH_F32;
    return open_of(net, first, plan, call->open);
}

enum { CHUNK = 1 << 14 };

/* Elements from one of fp32 and bf16 to another. */
static void convert_some(const struct wh_net *net, void *to, enum wh_dtype to_dtype, const void *from,
                         enum wh_dtype from_dtype, size_t n) {
    if (to_dtype == from_dtype)
        memcpy(to, from, n * wh_dtype_bytes(to_dtype));
    else if (to_dtype == WH_F32)
        net->vec->widen(to, from, n);
    else
        net->vec->narrow(to, from, n);
}

static void convert(const struct wh_net *net, void *to, enum wh_dtype to_dtype, const void *from,
                    enum wh_dtype from_dtype, size_t n) {
#pragma omp parallel for num_threads(net->shape.threads) schedule(static) if (n > CHUNK)
    for (size_t at = 0; at < n; at += CHUNK)
        convert_some(net, (char *)to + at * wh_dtype_bytes(to_dtype), to_dtype,
                     (const char *)from + at * wh_dtype_bytes(from_dtype), from_dtype, n - at < CHUNK ? n - at : CHUNK);
}

/* left += right; bf16: rounded. */
static void add_buffers(const struct wh_net *net, enum wh_dtype dtype, void *left, const void *right, size_t n) {
    const size_t e = wh_dtype_bytes(dtype);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static) if (n > CHUNK)
    for (size_t at = 0; at < n; at += CHUNK) {
        const void *const in[2] = {(char *)left + at * e, (const char *)right + at * e};
        void *const out[1] = {(char *)left + at * e};
        wh_reduce_run(net->reduce, dtype, WH_SUM_ROUNDED, in, 2, out, 1, n - at < CHUNK ? n - at : CHUNK);
    }
}

/* What is left to do when a call's own result is there: an open leaf that is complete is rounded; merges. */
static void complete(const struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                     const struct wh_sum_call *call) {
    const size_t n = group_elems(net, first);
    enum wh_dtype dtype;
    if (plan->opens && call->ends && wh_sum_call_open(call)) {
        void *node = buffer_of(net, first, plan, call->buffer, &dtype);
        convert(net, node, dtype, open_of(net, first, plan, call->open), WH_F32, n);
    }
    for (uint32_t i = 0; i < call->merges; i++) {
        void *left = buffer_of(net, first, plan, call->merge[i].left, &dtype);
        add_buffers(net, dtype, left, buffer_of(net, first, plan, call->merge[i].right, &dtype), n);
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
        g.c.data = result_of(net, first, plan, call, &g.c.dtype);
        g.c.ld = first->cols;
        if (call->add_left) g.residual = (struct wh_gemm_in){g.c.data, WH_F32, g.c.ld, false};
        wh_net_gemm(net, sums == &net->sum_head ? WH_TIME_GEMM_HEAD : WH_TIME_GEMM_WEIGHT, &g);
        const uint64_t since = wh_clock_ns();
        complete(net, first, plan, call);
        wh_net_book(net, WH_TIME_SUMS, since);
    }
}

/* To bf16 and back. */
static void round_values(const struct wh_net *net, float *x, size_t n) {
    uint16_t half[256];
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < 256 ? n - at : 256;
        net->vec->narrow(half, x + at, some);
        net->vec->widen(x + at, half, some);
    }
}

/* Joins leaf rows acc[leaf][width] to acc[0] in tree order. */
static void join_leaves(const struct wh_net *net, float *acc, size_t width, uint32_t leaves, bool rounded) {
    uint32_t stack[WH_TREE_DEPTH_MAX], depth = 0;
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        stack[depth++] = leaf;
        if (rounded) round_values(net, acc + leaf * width, width);
        for (unsigned m = wh_tree_merges(leaf, leaves); m > 0; m--, depth--) {
            float *left = acc + stack[depth - 2] * width;
            net->vec->add(left, left, acc + stack[depth - 1] * width, width);
            if (rounded) round_values(net, left, width);
        }
    }
}

/* Puts values [n] where the call says. */
static void store_vector(struct wh_net *net, const struct wh_param *first, const struct wh_sum_plan *plan,
                         const struct wh_sum_call *call, float *values, size_t n) {
    enum wh_dtype dtype;
    void *result = result_of(net, first, plan, call, &dtype);
    if (call->add_left)
        net->vec->add(result, result, values, n);
    else
        convert_some(net, result, dtype, values, WH_F32, n);
    complete(net, first, plan, call);
}

void wh_gradient_vectors(struct wh_net *net, uint32_t piece, const struct wh_param *first,
                         const struct wh_param *second, wh_gradient_row_fn *row, const void *context) {
    const bool cut = wh_net_cuts_sum(&net->shape, first);
    const struct wh_sum_plan *plan = cut ? &net->sum_own.plan : &net->sum_vector.plan;
    const struct wh_sum_piece *p = &plan->pieces[piece];
    const bool rounded = wh_net_sum_dtype(&net->shape) != WH_F32;
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
                memcpy(acc, result_of(net, first, plan, call, &dtype), n1 * sizeof *acc);
                if (n2) memcpy(acc + n1, result_of(net, second, plan, call, &dtype), n2 * sizeof *acc);
            }
            for (uint32_t k = call->first_part + leaf * each; k < call->first_part + (leaf + 1) * each; k++)
                for (uint32_t r = plan->parts[k].begin; r < plan->parts[k].begin + plan->parts[k].length; r++)
                    row(context, r, acc, scratch);
        }
        join_leaves(net, net->leaf_scratch, width, call->leaves, rounded && call->ends);
        store_vector(net, first, plan, call, net->leaf_scratch, n1);
        if (second) store_vector(net, second, plan, call, net->leaf_scratch + n1, n2);
    }
}

/* The sum of group `group` over all positions is the next leaf of the sum over the groups. */
static void join_group(struct wh_net *net, const struct wh_param *p, uint32_t group) {
    const struct wh_sum_plan *plan = &net->sum_groups.plan;
    const struct wh_sum_piece *piece = &plan->pieces[group];
    const void *sum = own_buffer_of(net, p, group);
    float *values = net->leaf_scratch;
    WH_ASSERT(piece->call_count == 1);
    convert_some(net, values, WH_F32, sum, wh_net_sum_dtype(&net->shape), p->elems);
    store_vector(net, p, plan, &plan->calls[piece->first_call], values, p->elems);
}

void wh_gradient_join_vectors(struct wh_net *net, uint32_t unit) {
    const struct wh_params *all = net->shape.params;
    if (!wh_net_cuts_stream(&net->shape)) return;
    wh_tensor_join_vectors(net, unit);
    const uint64_t since = wh_clock_ns();
    for (size_t i = 0; i < all->count; i++) {
        const struct wh_param *p = &all->list[i];
        if (!wh_net_cuts_sum(&net->shape, p) || wh_net_unit(net, p) != unit) continue;
        for (uint32_t group = 0; group < wh_net_groups(&net->shape); group++) join_group(net, p, group);
    }
    wh_net_book(net, WH_TIME_SUMS, since);
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
    const uint64_t since = wh_clock_ns();
    const struct wh_params *all = net->shape.params;
    for (size_t i = 0; i < all->count; i++) {
        const struct wh_param *p = &all->list[i];
        const struct wh_sum_plan *plan = p->joined ? NULL : plan_of(net, p);
        if (!plan || !sums_aside(net, plan)) continue;
        enum wh_dtype dtype;
        const void *sum = buffer_of(net, p, plan, 0, &dtype);
        convert(net, grads_at(net, p->offset), net->shape.grad_dtype, sum, dtype, group_elems(net, p));
    }
    wh_net_book(net, WH_TIME_SUMS, since);
}

void wh_gradient_keep(struct wh_net *net, size_t first, size_t end) {
    const enum wh_dtype t = wh_net_sum_dtype(&net->shape);
    const struct wh_range own = net->own;
    const uint64_t since = wh_clock_ns();
    if (first < own.begin) first = own.begin;
    if (end > own.end) end = own.end;
    if (first >= end) return;
    const uint32_t unit = wh_net_unit_at(net, first);
    const void *sums = (char *)net->unit_sums[unit] + (first - net->unit_border[unit]) * wh_dtype_bytes(t);
    if (sums == grads_at(net, first)) return;
    convert(net, grads_at(net, first), net->shape.grad_dtype, sums, t, end - first);
    wh_net_book(net, WH_TIME_SUMS, since);
}

void wh_gradient_store(struct wh_net *net, size_t offset, const float *values, size_t n) {
    convert_some(net, grads_at(net, offset), net->shape.grad_dtype, values, WH_F32, n);
}

void wh_gradient_add(struct wh_net *net, size_t offset, const float *values, size_t n, float *scratch) {
    const float *before = grads_at(net, offset);
    if (net->shape.grad_dtype != WH_F32) net->vec->widen(scratch, grads_at(net, offset), n), before = scratch;
    net->vec->add(scratch, before, values, n);
    wh_gradient_store(net, offset, scratch, n);
}
