/* A micro-batch through the whole model, and what surrounds it. */
#include <string.h>

#include "base/tree.h"
#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"

static void *row_of(const struct wh_net *net, const void *matrix, size_t row) {
    return wh_rows_at(net, matrix, row * net->shape.model->C);
}

static void backward_layer(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, int l, void *dx) {
    struct wh_layer_acts *a = &net->acts[l];
    const struct wh_net_shape *s = &net->shape;
    const enum wh_keep keep = wh_net_keep(s, (uint32_t)l);
    /* the last of the layers that share one set of activations finds it as its own forward pass left it, but for the
     * elementwise part, which the layers above it share too */
    const bool intact = l + 1 == (int)(s->keep == WH_KEEP_INPUTS ? s->model->L : s->full_layers);
    if (keep == WH_KEEP_INPUTS && !intact)
        wh_layer_forward(net, pass, l, net->x[l], a, NULL);
    else if (keep != WH_KEEP_ALL)
        wh_layer_recompute(net, pass, l, net->x[l], a);
    wh_layer_backward(net, pass, piece, l, net->x[l], a, dx);
}

void wh_net_train(struct wh_net *net, uint32_t index, const struct wh_net_batch *batch, float grad_scale,
                  uint32_t step) {
    const struct wh_net_shape *s = &net->shape;
    const size_t first_seq = (size_t)index * s->micro_batch, first = first_seq * s->T;
    const int L = (int)s->model->L;
    const struct wh_pass pass = {.ids = batch->ids + first,
                                 .labels = batch->labels + first,
                                 .document_start = batch->document_start ? batch->document_start + first : NULL,
                                 .sequences = s->micro_batch,
                                 .T = s->T,
                                 .first_seq = (uint32_t)first_seq,
                                 .step = step,
                                 .dropout = true};
    void *dx = row_of(net, net->dx, first);
    const void *x = wh_net_forward(net, &pass);
    wh_head_train(net, &pass, index, x, grad_scale, net->token_loss + first, dx);
    for (int l = L - 1; l >= 0; l--) backward_layer(net, &pass, index, l, dx);
}

/* Token losses of leaf `leaf` (group, then chunk of Q*S) in order. */
static double leaf_loss(const struct wh_net *net, uint32_t leaf, uint32_t chunks) {
    const struct wh_net_shape *s = &net->shape;
    const size_t each = s->global_batch / s->grain.data, group = leaf / chunks;
    const struct wh_range r = wh_grain_chunk(s->T, chunks, leaf % chunks);
    double sum = 0.0;
    for (size_t i = group * each; i < (group + 1) * each; i++)
        for (size_t t = r.begin; t < r.end; t++) sum += net->token_loss[i * s->T + t];
    return sum;
}

double wh_net_finish(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step) {
    const uint32_t chunks = net->shape.grain.sequence * net->shape.grain.tensor,
                   leaves = net->shape.grain.data * chunks;
    double stack[WH_TREE_DEPTH_MAX];
    uint32_t depth = 0;
    wh_gradient_finish(net);
    wh_embed_backward(net, batch, step);
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        stack[depth++] = leaf_loss(net, leaf, chunks);
        for (unsigned m = wh_tree_merges(leaf, leaves); m > 0; m--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

const void *wh_net_forward(struct wh_net *net, const struct wh_pass *pass) {
    const int L = (int)net->shape.model->L;
    wh_embed_forward(net, pass, net->x[0]);
    for (int l = 0; l < L; l++) wh_layer_forward(net, pass, l, net->x[l], &net->acts[l], net->x[l + 1]);
    return net->x[L];
}

void wh_net_evaluate(struct wh_net *net, const struct wh_net_batch *batch, uint32_t sequences, double *sum) {
    const struct wh_pass pass = {.ids = batch->ids,
                                 .labels = batch->labels,
                                 .document_start = batch->document_start,
                                 .sequences = sequences,
                                 .T = net->shape.T};
    WH_ASSERT(sequences <= net->shape.micro_batch);
    wh_head_evaluate(net, &pass, wh_net_forward(net, &pass), net->token_loss);
    for (size_t i = 0; i < sequences; i++) {
        double sequence = 0.0;
        for (size_t t = 0; t < net->shape.T; t++) sequence += net->token_loss[i * net->shape.T + t];
        *sum += sequence;
    }
}

void wh_net_logits(struct wh_net *net, const uint32_t *ids, uint32_t tokens, float *logits) {
    const struct wh_pass pass = {.ids = ids, .sequences = 1, .T = tokens};
    WH_ASSERT(tokens >= 1 && tokens <= net->shape.T);
    const void *x = wh_net_forward(net, &pass);
    wh_head_logits(net, row_of(net, x, tokens - 1), 1, logits);
}
