#include "model/tensor_sums.h"

#include <string.h>

#include "comm/comm.h"
#include "model/rows.h"

static void run(struct wh_net *net, void *values, size_t count, enum wh_dtype dtype, enum wh_redop op,
                const char *row) {
    const struct wh_comm_call call = {
        .op = WH_ALL_REDUCE, .in = values, .out = values, .count = count, .dtype = dtype, .redop = op, .row = row};
    const uint64_t since = wh_clock_ns();
    if (net->status == WH_OK) net->status = wh_comm_run(net->shape.tensor.comm, &call);
    wh_net_book(net, WH_TIME_COMM, since);
}

void wh_tensor_sum(struct wh_net *net, float *values, size_t count, const char *ledger_row) {
    if (wh_net_tensor_ranks(&net->shape) > 1) run(net, values, count, WH_F32, WH_SUM, ledger_row);
}

void wh_tensor_max(struct wh_net *net, float *values, size_t count, const char *ledger_row) {
    if (wh_net_tensor_ranks(&net->shape) > 1) run(net, values, count, WH_F32, WH_MAX, ledger_row);
}

void wh_tensor_select(struct wh_net *net, void *values, size_t bytes, const char *ledger_row) {
    if (wh_net_tensor_ranks(&net->shape) > 1) run(net, values, bytes / 4, WH_I32, WH_SUM, ledger_row);
}

/* c = residual + (bias + sum), each step rounded to fp32, as the product's own epilogue. */
static void finish(struct wh_net *net, const struct wh_gemm *g, const float *sums) {
    const uint64_t since = wh_clock_ns();
    const size_t n = g->n;
#pragma omp parallel num_threads(net->shape.threads)
    {
        float *scratch = wh_rows_scratch(net), *other = scratch + n;
        const float *bias = g->bias ? wh_rows_read(net, g->bias, 0, n, scratch + 2 * n) : NULL;
#pragma omp for schedule(static)
        for (size_t i = 0; i < g->m; i++) {
            float *out = wh_rows_target(net, g->c.data, i * g->c.ld, scratch);
            const float *v = sums + i * n;
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

void wh_tensor_gemm(struct wh_net *net, enum wh_time row, struct wh_gemm *g, const char *ledger_row) {
    if (wh_net_tensor_ranks(&net->shape) == 1) {
        wh_net_gemm(net, row, g);
        return;
    }
    struct wh_gemm partial = *g;
    partial.c = (struct wh_gemm_out){net->tp_partial, WH_F32, g->n};
    partial.bias = NULL;
    partial.residual = (struct wh_gemm_in){0};
    wh_net_gemm(net, row, &partial);
    wh_tensor_sum(net, net->tp_partial, g->m * g->n, ledger_row);
    finish(net, g, net->tp_partial);
}
