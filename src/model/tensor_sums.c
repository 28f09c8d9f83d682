#include "model/tensor_sums.h"

#include <string.h>

#include "model/rows.h"

const char *wh_tensor_row_name(const struct wh_net_shape *s, enum wh_tensor_row row) {
    static const char *const names[WH_TENSOR_ROW_COUNT][2] = {
#define X(id, name, sequence, meaning) {name, sequence},
        WH_TENSOR_ROWS(X)
#undef X
    };
    return names[row][wh_net_cuts_stream(s)];
}

/* Elements of a token's row, and their format: sums are fp32, in bf16 runs too; rows of the table are taken as words. */
static size_t row_elems(const struct wh_net_shape *s, enum wh_tensor_row row) {
    return row == WH_TENSOR_EMBED ? wh_tensor_row_words(s) : s->model->C;
}

static enum wh_dtype row_dtype(const struct wh_net_shape *s, enum wh_tensor_row row) {
    switch (row) {
    case WH_TENSOR_EMBED:
        return WH_I32;
    case WH_TENSOR_GATHER:
    case WH_TENSOR_GATHER_GRAD:
    case WH_TENSOR_AGAIN:
    case WH_TENSOR_EMBED_GRAD:
        return s->dtype;
    case WH_TENSOR_VECTORS:
        return wh_net_sum_dtype(s);
    default:
        return WH_F32;
    }
}

static bool gathers(enum wh_tensor_row row) {
    return row == WH_TENSOR_GATHER || row == WH_TENSOR_GATHER_GRAD || row == WH_TENSOR_AGAIN ||
           row == WH_TENSOR_EMBED_GRAD;
}

struct wh_comm_call wh_tensor_call(const struct wh_net_shape *s, enum wh_tensor_row row, size_t tokens,
                                   size_t *border) {
    const bool numbers = row == WH_TENSOR_HEAD || row == WH_TENSOR_VECTORS;
    const size_t elems = numbers ? 1 : row_elems(s, row);
    struct wh_comm_call call = {.op = WH_ALL_REDUCE,
                                .count = tokens * elems,
                                .dtype = row_dtype(s, row),
                                .redop = row == WH_TENSOR_VECTORS ? WH_SUM_ROUNDED : WH_SUM,
                                .row = wh_tensor_row_name(s, row)};
    if (numbers || !wh_net_cuts_stream(s)) return call;
    const uint32_t ranks = wh_net_tensor_ranks(s);
    call.op = gathers(row) ? WH_ALL_GATHER : WH_REDUCE_SCATTER;
    call.blocks = (uint32_t)(tokens / s->T);
    call.border = border;
    for (uint32_t r = 0; r <= ranks; r++) border[r] = wh_net_stream_border(s, r) * elems;
    return call;
}

struct wh_stream wh_stream_of(const struct wh_net *net, size_t tokens) {
    const struct wh_net_shape *s = &net->shape;
    if (!wh_net_cuts_stream(s)) return (struct wh_stream){tokens, tokens, 0, tokens};
    const size_t first = wh_net_stream_border(s, s->tensor.rank);
    const size_t length = wh_net_stream_border(s, s->tensor.rank + 1) - first;
    return (struct wh_stream){tokens / s->T * length, length, first, s->T};
}

static void run(struct wh_net *net, struct wh_comm_call call, void *values) {
    const uint64_t since = wh_clock_ns();
    char *own = values;
    if (call.border) own += call.border[net->shape.tensor.rank] * wh_dtype_bytes(call.dtype);
    call.in = call.op == WH_ALL_GATHER ? own : values;
    call.out = call.op == WH_REDUCE_SCATTER ? own : values;
    if (net->status == WH_OK) net->status = wh_comm_run(net->shape.tensor.comm, &call);
    wh_net_book(net, WH_TIME_COMM, since);
}

static void run_row(struct wh_net *net, enum wh_tensor_row row, size_t tokens, void *values) {
    size_t border[WH_COMM_RANKS_MAX + 1];
    run(net, wh_tensor_call(&net->shape, row, tokens, border), values);
}

static void run_head(struct wh_net *net, float *values, size_t count, enum wh_dtype dtype, enum wh_redop op) {
    if (wh_net_tensor_ranks(&net->shape) == 1) return;
    struct wh_comm_call call = wh_tensor_call(&net->shape, WH_TENSOR_HEAD, count, NULL);
    call.dtype = dtype, call.redop = op;
    run(net, call, values);
}

void wh_tensor_sum(struct wh_net *net, float *values, size_t count) { run_head(net, values, count, WH_F32, WH_SUM); }
void wh_tensor_max(struct wh_net *net, float *values, size_t count) { run_head(net, values, count, WH_F32, WH_MAX); }
void wh_tensor_select(struct wh_net *net, float *values, size_t count) {
    run_head(net, values, count, WH_I32, WH_SUM); /* sums with zeros as integers: the others' bits are 0 */
}

void wh_tensor_select_rows(struct wh_net *net, size_t tokens) {
    run_row(net, WH_TENSOR_EMBED, tokens, net->tp_partial);
}

void wh_tensor_gather_embedded(struct wh_net *net, size_t tokens, void *rows) {
    run_row(net, WH_TENSOR_EMBED_GRAD, tokens, rows);
}

void wh_tensor_join_vectors(struct wh_net *net, uint32_t unit) {
    const size_t first = net->vector_border[unit], elems = net->vector_border[unit + 1] - first;
    const size_t groups = wh_net_groups(&net->shape), e = wh_dtype_bytes(wh_net_sum_dtype(&net->shape));
    if (elems) run_row(net, WH_TENSOR_VECTORS, groups * elems, (char *)net->vector_sums + groups * first * e);
}

const void *wh_tensor_gather(struct wh_net *net, size_t tokens, const void *rows, enum wh_tensor_row row) {
    if (!wh_net_cuts_stream(&net->shape)) return rows;
    const uint64_t since = wh_clock_ns();
    const struct wh_stream s = wh_stream_of(net, tokens);
    const size_t C = net->local.C, bytes = s.length * C * wh_dtype_bytes(net->shape.dtype);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t at = 0; at < s.rows; at += s.length)
        memcpy(wh_rows_at(net, net->tp_full, wh_stream_token(&s, at) * C), wh_rows_at(net, rows, at * C), bytes);
    wh_net_book(net, WH_TIME_ACTIVATION, since);
    run_row(net, row, tokens, net->tp_full);
    return net->tp_full;
}

/* c = residual + (bias + sum), each step rounded to fp32, as the product's own epilogue. */
static void finish(struct wh_net *net, const struct wh_gemm *g, const float *sums) {
    const uint64_t since = wh_clock_ns();
    const struct wh_stream s = wh_stream_of(net, g->m);
    const size_t n = g->n;
#pragma omp parallel num_threads(net->shape.threads)
    {
        float *scratch = wh_rows_scratch(net), *other = scratch + n;
        const float *bias = g->bias ? wh_rows_read(net, g->bias, 0, n, scratch + 2 * n) : NULL;
#pragma omp for schedule(static)
        for (size_t i = 0; i < s.rows; i++) {
            float *out = wh_rows_target(net, g->c.data, i * g->c.ld, scratch);
            const float *v = sums + wh_stream_token(&s, i) * n;
            if (bias) net->vec->add(scratch, bias, v, n), v = scratch;
            if (g->residual.data)
                net->vec->add(out, wh_rows_read(net, g->residual.data, i * g->residual.ld, n, other), v, n);
            else if (out != v)
                memcpy(out, v, n * sizeof *out);
            wh_rows_done(net, g->c.data, i * g->c.ld, n, out);
        }
    }
    wh_net_book(net, WH_TIME_ACTIVATION, since);
}

void wh_tensor_product(struct wh_net *net, enum wh_time time, const struct wh_gemm *g, size_t first) {
    struct wh_gemm partial = *g;
    if (wh_net_tensor_ranks(&net->shape) > 1) {
        partial.c = (struct wh_gemm_out){net->tp_partial + first * g->n, WH_F32, g->n};
        partial.bias = NULL;
        partial.residual = (struct wh_gemm_in){0};
    }
    wh_net_gemm(net, time, &partial);
}

void wh_tensor_join(struct wh_net *net, const struct wh_gemm *g, enum wh_tensor_row row) {
    if (wh_net_tensor_ranks(&net->shape) == 1) return;
    WH_ASSERT(g->n == net->local.C);
    run_row(net, row, g->m, net->tp_partial);
    finish(net, g, net->tp_partial);
}

void wh_tensor_gemm(struct wh_net *net, enum wh_time time, struct wh_gemm *g, enum wh_tensor_row row) {
    wh_tensor_product(net, time, g, 0);
    wh_tensor_join(net, g, row);
}
