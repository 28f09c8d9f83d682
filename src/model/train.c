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

static enum wh_status need(struct wh_net *net, bool train, uint32_t read) {
    return net->hooks.need ? net->hooks.need(net->hooks.context, train, read) : WH_OK;
}

static enum wh_status room(struct wh_net *net, uint32_t unit) {
    return net->hooks.room ? net->hooks.room(net->hooks.context, unit) : WH_OK;
}

static enum wh_status done(struct wh_net *net, uint32_t unit, bool last) {
    return net->hooks.done && last ? net->hooks.done(net->hooks.context, unit) : WH_OK;
}

static enum wh_status forward(struct wh_net *net, const struct wh_pass *pass, bool train, const void **x) {
    const uint32_t L = net->shape.model->L;
    WH_TRY(need(net, train, 0));
    wh_embed_forward(net, pass, net->x[0]);
    for (uint32_t l = 0; l < L; l++) {
        WH_TRY(need(net, train, l + 1));
        wh_layer_forward(net, pass, (int)l, net->x[l], &net->acts[l], net->x[l + 1]);
    }
    WH_TRY(need(net, train, L + 1));
    *x = net->x[L];
    return WH_OK;
}

static enum wh_status backward(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, void *dx, bool last) {
    const uint32_t L = net->shape.model->L;
    for (uint32_t l = L; l-- > 0;) {
        WH_TRY(need(net, true, 2 * L + 1 - l));
        WH_TRY(room(net, l + 1));
        backward_layer(net, pass, piece, (int)l, dx);
        WH_TRY(done(net, l + 1, last));
    }
    return WH_OK;
}

enum wh_status wh_net_train(struct wh_net *net, uint32_t index, const struct wh_net_batch *batch, float grad_scale,
                            uint32_t step) {
    const struct wh_net_shape *s = &net->shape;
    const size_t first_seq = wh_net_first_sequence(s) + (size_t)index * s->micro_batch, first = first_seq * s->T;
    const bool last = (index + 1) * s->micro_batch == wh_net_sequences(s);
    const struct wh_pass pass = {.ids = batch->ids + first,
                                 .labels = batch->labels + first,
                                 .document_start = batch->document_start ? batch->document_start + first : NULL,
                                 .sequences = s->micro_batch,
                                 .T = s->T,
                                 .first_seq = (uint32_t)first_seq,
                                 .step = step,
                                 .dropout = true};
    void *dx = row_of(net, net->dx, first);
    const void *x;
    WH_TRY(forward(net, &pass, true, &x));
    WH_TRY(room(net, s->model->L + 1));
    wh_head_train(net, &pass, index, x, grad_scale, net->token_loss + first, dx);
    WH_TRY(done(net, s->model->L + 1, last));
    return backward(net, &pass, index, dx, last);
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

static uint32_t loss_chunks(const struct wh_net *net) { return net->shape.grain.sequence * net->shape.grain.tensor; }

void wh_net_finish_leaves(struct wh_net *net) {
    const uint32_t chunks = loss_chunks(net), own = net->shape.grain.data / wh_net_ranks(&net->shape) * chunks;
    const uint32_t first = net->shape.data.rank * own;
    for (uint32_t leaf = first; leaf < first + own; leaf++) net->leaf_loss[leaf] = leaf_loss(net, leaf, chunks);
}

void wh_net_finish_gradients(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step) {
    wh_gradient_finish(net);
    wh_embed_backward(net, batch, step);
}

double wh_net_finish_loss(const struct wh_net *net) {
    const uint32_t leaves = net->shape.grain.data * loss_chunks(net);
    double stack[WH_TREE_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        stack[depth++] = net->leaf_loss[leaf];
        for (unsigned m = wh_tree_merges(leaf, leaves); m > 0; m--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

double wh_net_finish(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step) {
    WH_ASSERT(wh_net_ranks(&net->shape) == 1);
    wh_net_finish_leaves(net);
    wh_net_finish_gradients(net, batch, step);
    return wh_net_finish_loss(net);
}

const void *wh_net_forward(struct wh_net *net, const struct wh_pass *pass) {
    const void *x = NULL;
    WH_ASSERT(!net->hooks.need);
    if (forward(net, pass, false, &x) != WH_OK) return NULL; /* without hooks nothing fails */
    return x;
}

enum wh_status wh_net_evaluate(struct wh_net *net, const struct wh_net_batch *batch, uint32_t sequences) {
    const struct wh_pass pass = {.ids = batch->ids,
                                 .labels = batch->labels,
                                 .document_start = batch->document_start,
                                 .sequences = sequences,
                                 .T = net->shape.T};
    const void *x;
    WH_ASSERT(sequences <= net->shape.micro_batch);
    if (sequences == 0) {
        for (uint32_t i = 0; i < net->shape.model->L + 2; i++) WH_TRY(need(net, false, i));
        return WH_OK;
    }
    WH_TRY(forward(net, &pass, false, &x));
    wh_head_evaluate(net, &pass, x, net->token_loss);
    for (size_t i = 0; i < sequences; i++) {
        net->sequence_loss[i] = 0.0;
        for (size_t t = 0; t < net->shape.T; t++) net->sequence_loss[i] += net->token_loss[i * net->shape.T + t];
    }
    return WH_OK;
}

void wh_net_logits(struct wh_net *net, const uint32_t *ids, uint32_t tokens, float *logits) {
    const struct wh_pass pass = {.ids = ids, .sequences = 1, .T = tokens};
    WH_ASSERT(tokens >= 1 && tokens <= net->shape.T);
    const void *x = wh_net_forward(net, &pass);
    wh_head_logits(net, row_of(net, x, tokens - 1), 1, logits);
}
