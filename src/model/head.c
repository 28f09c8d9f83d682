/* Final norm, logits, cross-entropy and their gradients, by blocks of tokens: never more than one block of logits.
 *
 *   l = norm(x) W^T      m = max l      z = tree over S vocabulary slices of 16-lane sums of exp(l - m)
 *   token loss = log z + m - l[label]                     (double)
 *   dl = exp(l - m) * (grad_scale / z), minus grad_scale at the label; 0 for tokens that don't count
 *   dW = dl^T norm(x)    d norm(x) = dl W                 (sum over the vocabulary in S slices)
 *
 * The block's logits become their own gradient in place, and the block's rows of final_norm theirs. */
#include <string.h>

#include "base/tree.h"
#include "base/elementary.h"
#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"

static void logits_of(struct wh_net *net, const void *rows, size_t n, float *logits) {
    const struct wh_model *m = net->shape.model;
    const enum wh_dtype t = net->shape.dtype;
    const struct wh_gemm g = {.m = n,
                              .n = m->V,
                              .k = m->C,
                              .a = {rows, t, m->C, false},
                              .b = {wh_net_weight(net, wh_net_head_id(net), -1), t, m->C, true},
                              .c = {logits, WH_F32, m->V}};
    wh_net_gemm(net, WH_TIME_GEMM_HEAD, &g);
}

/* row becomes exp(row - max); returns the sum over the vocabulary. */
static float exponentials(const struct wh_net *net, float *row, float max) {
    const size_t V = net->shape.model->V;
    const uint32_t S = net->shape.grain.tensor;
    float stack[WH_TREE_DEPTH_MAX];
    uint32_t depth = 0, slices = 0;
    while (slices < S && wh_grain_slice(V, S, slices).begin < V) slices++;
    for (uint32_t s = 0; s < slices; s++) {
        struct wh_range r = wh_grain_slice(V, S, s);
        stack[depth++] = net->vec->exp_sum(row + r.begin, row + r.begin, max, r.end - r.begin);
        for (unsigned k = wh_tree_merges(s, slices); k > 0; k--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

/* Loss of one token; with grad_scale above 0 the row becomes the gradient. */
static double token_loss(const struct wh_net *net, float *row, int32_t label, float grad_scale) {
    const size_t V = net->shape.model->V;
    if (label < 0) {
        if (grad_scale > 0.0f) memset(row, 0, V * sizeof *row);
        return 0.0;
    }
    const float max = net->vec->max(row, V), at_label = row[label];
    const float z = exponentials(net, row, max);
    if (grad_scale > 0.0f) {
        net->vec->scale(row, row, grad_scale / z, V);
        row[label] -= grad_scale;
    }
    return wh_log((double)z) + (double)max - (double)at_label;
}

static void block_losses(struct wh_net *net, size_t n, const int32_t *labels, float grad_scale, double *losses) {
    const uint64_t since = wh_clock_ns();
    const size_t V = net->shape.model->V;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) losses[t] = token_loss(net, net->logits + t * V, labels[t], grad_scale);
    wh_net_book(net, WH_TIME_LOSS, since);
}

/* rows [n, C] become the gradient of themselves. */
static void block_backward(struct wh_net *net, uint32_t head_piece, size_t n, void *rows) {
    const struct wh_model *m = net->shape.model;
    const enum wh_dtype t = net->shape.dtype;
    const enum wh_param_id id = wh_net_head_id(net);
    wh_gradient_matrix(net, &net->sum_head, head_piece, wh_net_param(net, id, -1), net->logits, WH_F32, m->V, rows,
                       m->C);
    const struct wh_gemm g = {.m = n,
                              .n = m->C,
                              .k = m->V,
                              .a = {net->logits, WH_F32, m->V, false},
                              .b = {wh_net_weight(net, id, -1), t, m->C, false},
                              .c = {rows, t, m->C},
                              .parts = net->parts_vocab.list,
                              .part_count = net->parts_vocab.count};
    wh_net_gemm(net, WH_TIME_GEMM_HEAD, &g);
}

static void run_blocks(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, const void *x, float grad_scale,
                       double *losses) {
    const size_t n = wh_pass_tokens(pass), C = net->shape.model->C;
    uint32_t head_piece = piece * (uint32_t)((n + net->loss_block - 1) / net->loss_block);
    wh_norm_forward(net, n, x, WH_P_FINAL_NORM_GAIN, -1, net->final_norm, net->final_stats);
    for (size_t t = 0; t < n; t += net->loss_block, head_piece++) {
        size_t block = n - t < net->loss_block ? n - t : net->loss_block;
        char *rows = wh_rows_at(net, net->final_norm, t * C);
        logits_of(net, rows, block, net->logits);
        block_losses(net, block, pass->labels + t, grad_scale, losses + t);
        if (grad_scale > 0.0f) block_backward(net, head_piece, block, rows);
    }
}

void wh_head_train(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, const void *x, float grad_scale,
                   double *losses, void *dx) {
    WH_ASSERT(grad_scale > 0.0f);
    run_blocks(net, pass, piece, x, grad_scale, losses);
    wh_norm_backward(net, piece, wh_pass_tokens(pass), x, net->final_stats, net->final_norm, WH_P_FINAL_NORM_GAIN, -1,
                     false, dx);
}

void wh_head_logits(struct wh_net *net, const void *x, size_t n, float *logits) {
    wh_norm_forward(net, n, x, WH_P_FINAL_NORM_GAIN, -1, net->final_norm, net->final_stats);
    logits_of(net, net->final_norm, n, logits);
}

void wh_head_evaluate(struct wh_net *net, const struct wh_pass *pass, const void *x, double *losses) {
    run_blocks(net, pass, 0, x, 0.0f, losses);
}
