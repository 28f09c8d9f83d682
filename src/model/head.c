/* Final norm, logits, cross-entropy and their gradients, by blocks of tokens: never more than one block of logits.
 *
 *   l = norm(x) W^T      m = max l      z = tree over S vocabulary slices of 16-lane sums of exp(l - m)
 *   token loss = log z + m - l[label]                     (double)
 *   dl = exp(l - m) * (grad_scale / z), minus grad_scale at the label; 0 for tokens that don't count
 *   dW = dl^T norm(x)    d norm(x) = dl W                 (sum over the vocabulary in S slices)
 *
 * Tensor ranks hold a part of the vocabulary each and never see the others' logits: max, the label's logit and z go over all
 * of them, and the sum of d norm(x), of which the blocks' parts wait until all are there.
 *
 * The block's logits become their own gradient in place, and the block's rows of final_norm theirs. */
#include <math.h>
#include <string.h>

#include "base/tree.h"
#include "base/elementary.h"
#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"

static void logits_of(struct wh_net *net, const void *rows, size_t n, float *logits) {
    const struct wh_model *m = &net->local;
    const enum wh_dtype t = net->shape.dtype;
    const struct wh_gemm g = {.m = n,
                              .n = m->V,
                              .k = m->C,
                              .a = {rows, t, m->C, false},
                              .b = {wh_net_weight(net, wh_net_head_id(net), -1), t, m->C, true},
                              .c = {logits, WH_F32, m->V}};
    wh_net_gemm(net, WH_TIME_GEMM_HEAD, &g);
}

/* row becomes exp(row - max); returns the sum over the vocabulary that is held here, in its slices. */
static float exponentials(const struct wh_net *net, float *row, float max) {
    const uint32_t S = net->shape.grain.tensor, each = S / wh_net_tensor_ranks(&net->shape);
    const uint32_t first = net->shape.tensor.rank * each;
    const size_t V = net->shape.model->V, begin = net->first_token;
    float stack[WH_TREE_DEPTH_MAX] = {0.0f};
    uint32_t depth = 0, slices = 0;
    while (slices < each && wh_grain_slice(V, S, first + slices).begin < V) slices++;
    for (uint32_t s = 0; s < slices; s++) {
        struct wh_range r = wh_grain_slice(V, S, first + s);
        float *at = row + (r.begin - begin);
        stack[depth++] = net->vec->exp_sum(at, at, max, r.end - r.begin);
        for (unsigned k = wh_tree_merges(s, slices); k > 0; k--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

/* What the loss of a block needs of each row, [loss_block]; among tensor ranks each first has its own part's. */
struct losses {
    float *max, *at_label, *z;
};

static struct losses losses_at(const struct wh_net *net) {
    return (struct losses){net->tp_rows, net->tp_rows + net->loss_block, net->tp_rows + 2 * (size_t)net->loss_block};
}

/* The label's logit stands here. */
static bool has_label(const struct wh_net *net, int32_t label) {
    return label >= 0 && (size_t)label >= net->first_token && (size_t)label < net->first_token + net->local.V;
}

static void find_extremes(struct wh_net *net, size_t n, const int32_t *labels, const struct losses *l) {
    const size_t V = net->local.V;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) {
        const float *row = net->logits + t * V;
        l->max[t] = V ? net->vec->max(row, V) : -INFINITY;
        l->at_label[t] = has_label(net, labels[t]) ? row[labels[t] - (int32_t)net->first_token] : 0.0f;
    }
}

static void sum_exponentials(struct wh_net *net, size_t n, const int32_t *labels, const struct losses *l) {
    const size_t V = net->local.V;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) l->z[t] = labels[t] < 0 ? 0.0f : exponentials(net, net->logits + t * V, l->max[t]);
}

/* Loss of one token; with grad_scale above 0 the row becomes the gradient. */
static double token_loss(const struct wh_net *net, float *row, int32_t label, float grad_scale, float max,
                         float at_label, float z) {
    const size_t V = net->local.V;
    if (label < 0) {
        if (grad_scale > 0.0f) memset(row, 0, V * sizeof *row);
        return 0.0;
    }
    if (grad_scale > 0.0f) {
        net->vec->scale(row, row, grad_scale / z, V);
        if (has_label(net, label)) row[label - (int32_t)net->first_token] -= grad_scale;
    }
    return wh_log((double)z) + (double)max - (double)at_label;
}

static void block_losses(struct wh_net *net, size_t n, const int32_t *labels, float grad_scale, double *losses) {
    uint64_t since = wh_clock_ns();
    const uint64_t waited = net->times.ns[WH_TIME_COMM];
    const size_t V = net->local.V;
    const struct losses l = losses_at(net);
    find_extremes(net, n, labels, &l);
    wh_tensor_max(net, l.max, n);
    wh_tensor_select(net, l.at_label, n);
    sum_exponentials(net, n, labels, &l);
    wh_tensor_sum(net, l.z, n);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++)
        losses[t] = token_loss(net, net->logits + t * V, labels[t], grad_scale, l.max[t], l.at_label[t], l.z[t]);
    since += net->times.ns[WH_TIME_COMM] - waited;
    wh_net_book(net, WH_TIME_LOSS, since);
}

/* The gradient of rows [first, first + n) of final_norm, in their place; among tensor ranks this one's part of it. */
static void block_backward(struct wh_net *net, uint32_t head_piece, size_t first, size_t n, const void *rows) {
    const struct wh_model *m = &net->local;
    const enum wh_dtype t = net->shape.dtype;
    const enum wh_param_id id = wh_net_head_id(net);
    wh_gradient_matrix(net, &net->sum_head, head_piece, wh_net_param(net, id, -1), net->logits, WH_F32, m->V, rows,
                       m->C);
    struct wh_gemm g = {.m = n,
                        .n = m->C,
                        .k = m->V,
                        .a = {net->logits, WH_F32, m->V, false},
                        .b = {wh_net_weight(net, id, -1), t, m->C, false},
                        .c = {wh_rows_at(net, net->final_norm, first * m->C), t, m->C},
                        .parts = net->parts_vocab.list,
                        .part_count = net->parts_vocab.count};
    wh_tensor_product(net, WH_TIME_GEMM_HEAD, &g, first);
}

static void run_blocks(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, const void *x, float grad_scale,
                       double *losses) {
    const size_t n = wh_pass_tokens(pass), C = net->local.C;
    const struct wh_gemm sum = {.m = n, .n = C, .c = {net->final_norm, net->shape.dtype, C}};
    uint32_t head_piece = piece * (uint32_t)((n + net->loss_block - 1) / net->loss_block);
    wh_norm_forward(net, wh_pass_stream(net, pass).rows, x, WH_P_FINAL_NORM_GAIN, -1, net->final_norm,
                    net->final_stats);
    const void *norm = wh_tensor_gather(net, n, net->final_norm, WH_TENSOR_GATHER);
    for (size_t t = 0; t < n; t += net->loss_block, head_piece++) {
        size_t block = n - t < net->loss_block ? n - t : net->loss_block;
        const char *rows = wh_rows_at(net, norm, t * C);
        logits_of(net, rows, block, net->logits);
        block_losses(net, block, pass->labels + t, grad_scale, losses + t);
        if (grad_scale > 0.0f) block_backward(net, head_piece, t, block, rows);
    }
    if (grad_scale > 0.0f) wh_tensor_join(net, &sum, WH_TENSOR_BACKWARD);
}

void wh_head_train(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, const void *x, float grad_scale,
                   double *losses, void *dx) {
    WH_ASSERT(grad_scale > 0.0f);
    run_blocks(net, pass, piece, x, grad_scale, losses);
    wh_norm_backward(net, piece, wh_pass_stream(net, pass).rows, x, net->final_stats, net->final_norm,
                     WH_P_FINAL_NORM_GAIN, -1, false, dx);
}

void wh_head_logits(struct wh_net *net, const void *x, size_t n, float *logits) {
    wh_norm_forward(net, n, x, WH_P_FINAL_NORM_GAIN, -1, net->final_norm, net->final_stats);
    logits_of(net, net->final_norm, n, logits);
}

void wh_head_evaluate(struct wh_net *net, const struct wh_pass *pass, const void *x, double *losses) {
    run_blocks(net, pass, 0, x, 0.0f, losses);
}
