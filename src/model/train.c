/* A micro-batch through the whole model, and what surrounds it. */
#include <string.h>

#include "base/tree.h"
#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"
#include "model/state.h"

static void *row_of(const struct wh_net *net, const void *matrix, size_t row) {
    return wh_rows_at(net, matrix, row * net->local.C);
}

/* A slot's activations of layer `l` of chunk c. */
static struct wh_layer_acts *acts_of(const struct wh_net *net, const struct wh_net_chunk *c, uint32_t slot,
                                     uint32_t l) {
    return &net->slot[slot].acts[l - c->first];
}

/* What the layer's forward pass didn't keep, again. */
static void restore(struct wh_net *net, const struct wh_net_chunk *c, const struct wh_pass *pass, uint32_t slot,
                    uint32_t l) {
    struct wh_layer_acts *a = acts_of(net, c, slot, l);
    const void *x = net->slot[slot].x[l - c->first];
    const enum wh_keep keep = wh_net_keep(&net->shape, l);
    /* the layer that used the common set of activations last finds it as its own forward pass left it, but for the
     * elementwise part, which layers share that keep the rest */
    const bool intact = net->fresh_slot == slot && net->fresh_layer == l;
    if (keep == WH_KEEP_INPUTS && !intact)
        wh_layer_forward(net, pass, (int)l, x, a, NULL);
    else if (keep != WH_KEEP_ALL)
        wh_layer_recompute(net, pass, (int)l, x, a);
    if (keep == WH_KEEP_INPUTS) net->fresh_slot = UINT32_MAX;
}

static enum wh_status need(struct wh_net *net, bool train) {
    const uint32_t read = net->read++;
    return net->hooks.need ? net->hooks.need(net->hooks.context, train, read) : WH_OK;
}

static enum wh_status room(struct wh_net *net, uint32_t unit) {
    return net->hooks.room ? net->hooks.room(net->hooks.context, unit) : WH_OK;
}

static enum wh_status done(struct wh_net *net, uint32_t unit, bool last) {
    if (!last) return WH_OK;
    wh_gradient_join_vectors(net, unit);
    WH_TRY(net->status);
    return net->hooks.done ? net->hooks.done(net->hooks.context, unit) : WH_OK;
}

static void add_read(uint32_t *units, uint32_t *count, uint32_t unit) {
    if (units) units[*count] = unit;
    ++*count;
}

uint32_t wh_net_chunk_reads(const struct wh_net_shape *s, const struct wh_net_chunk *c, enum wh_net_pass pass,
                            uint32_t *units) {
    uint32_t n = 0;
    if (pass == WH_NET_FORWARD || pass == WH_NET_EVALUATE) {
        if (c->embed) add_read(units, &n, 0);
        for (uint32_t l = c->first; l < c->end; l++) add_read(units, &n, l + 1);
    }
    if ((pass == WH_NET_BACKWARD || pass == WH_NET_EVALUATE) && c->head) {
        if (s->model->tied) add_read(units, &n, 0);
        add_read(units, &n, s->model->L + 1);
    }
    for (uint32_t l = c->end; pass == WH_NET_BACKWARD && l-- > c->first;) add_read(units, &n, l + 1);
    for (uint32_t l = c->end; pass == WH_NET_BACKWARD_WEIGHT && l-- > c->first;)
        if (wh_net_keep(s, l) != WH_KEEP_ALL) add_read(units, &n, l + 1); /* computed again */
    return n;
}

/* The reads of the head, as above. */
static enum wh_status need_head(struct wh_net *net, bool train) {
    if (net->local.tied) WH_TRY(need(net, train));
    return need(net, train);
}

static enum wh_status forward(struct wh_net *net, const struct wh_net_chunk *c, const struct wh_pass *pass, bool train,
                              uint32_t slot, void *out) {
    void **x = net->slot[slot].x;
    if (c->embed) {
        WH_TRY(need(net, train));
        wh_embed_forward(net, pass, x[0]);
    }
    for (uint32_t l = c->first; l < c->end; l++) {
        const uint32_t i = l - c->first;
        WH_TRY(need(net, train));
        wh_layer_forward(net, pass, (int)l, x[i], acts_of(net, c, slot, l), out && l + 1 == c->end ? out : x[i + 1]);
        if (wh_net_keep(&net->shape, l) == WH_KEEP_INPUTS) net->fresh_slot = slot, net->fresh_layer = l;
    }
    return net->status;
}

static struct wh_pass pass_of(const struct wh_net *net, const struct wh_net_micro *m) {
    const struct wh_net_shape *s = &net->shape;
    const size_t first_seq = wh_net_first_sequence(s) + (size_t)m->index * s->micro_batch, first = first_seq * s->T;
    const struct wh_net_batch *b = m->batch;
    return (struct wh_pass){.ids = b->ids + first,
                            .labels = b->labels + first,
                            .document_start = b->document_start ? b->document_start + first : NULL,
                            .sequences = s->micro_batch,
                            .T = s->T,
                            .first_seq = (uint32_t)first_seq,
                            .step = m->step,
                            .dropout = true};
}

enum wh_status wh_net_chunk_forward(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro, uint32_t slot,
                                    void *out) {
    const struct wh_pass pass = pass_of(net, micro);
    return forward(net, wh_net_chunk(net, c), &pass, true, slot, out);
}

/* Of this rank's micro-batches of the step. */
static bool is_last(const struct wh_net *net, const struct wh_net_micro *m) {
    return (m->index + 1) * net->shape.micro_batch == wh_net_sequences(&net->shape);
}

/* Loss of the micro-batch and its gradient as that of the chunk's output. */
static enum wh_status head_backward(struct wh_net *net, const struct wh_net_chunk *c, const struct wh_net_micro *m,
                                    const struct wh_pass *pass, uint32_t slot, bool last, void *dx) {
    const uint32_t unit = net->local.L + 1;
    WH_TRY(need_head(net, true));
    WH_TRY(room(net, unit));
    wh_head_train(net, pass, m->index, net->slot[slot].x[c->end - c->first], m->grad_scale,
                  net->token_loss + (size_t)pass->first_seq * pass->T, dx);
    WH_TRY(net->status);
    return done(net, unit, last);
}

enum wh_status wh_net_chunk_backward(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro, uint32_t slot,
                                     void *dx) {
    const struct wh_net_chunk *chunk = wh_net_chunk(net, c);
    const struct wh_pass pass = pass_of(net, micro);
    const bool last = is_last(net, micro);
    if (chunk->head) WH_TRY(head_backward(net, chunk, micro, &pass, slot, last, dx));
    for (uint32_t l = chunk->end; l-- > chunk->first;) {
        WH_TRY(need(net, true));
        WH_TRY(room(net, l + 1));
        restore(net, chunk, &pass, slot, l);
        wh_layer_backward(net, &pass, micro->index, (int)l, net->slot[slot].x[l - chunk->first],
                          acts_of(net, chunk, slot, l), dx);
        WH_TRY(net->status);
        WH_TRY(done(net, l + 1, last));
    }
    return WH_OK;
}

enum wh_status wh_net_chunk_backward_input(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro,
                                           uint32_t slot, uint32_t grad_slot, void *dx) {
    const struct wh_net_chunk *chunk = wh_net_chunk(net, c);
    const struct wh_pass pass = pass_of(net, micro);
    if (chunk->head) WH_TRY(head_backward(net, chunk, micro, &pass, slot, is_last(net, micro), dx));
    for (uint32_t l = chunk->end; l-- > chunk->first;) {
        WH_TRY(need(net, true));
        restore(net, chunk, &pass, slot, l);
        wh_layer_backward_input(net, &pass, (int)l, net->slot[slot].x[l - chunk->first], acts_of(net, chunk, slot, l),
                                &net->saved[grad_slot][l - chunk->first], dx);
    }
    return net->status;
}

enum wh_status wh_net_chunk_backward_weight(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro,
                                            uint32_t slot, uint32_t grad_slot) {
    const struct wh_net_chunk *chunk = wh_net_chunk(net, c);
    const struct wh_pass pass = pass_of(net, micro);
    const bool last = is_last(net, micro);
    for (uint32_t l = chunk->end; l-- > chunk->first;) {
        if (wh_net_keep(&net->shape, l) != WH_KEEP_ALL) WH_TRY(need(net, true));
        WH_TRY(room(net, l + 1));
        restore(net, chunk, &pass, slot, l);
        wh_layer_backward_weight(net, micro->index, (int)l, net->slot[slot].x[l - chunk->first],
                                 acts_of(net, chunk, slot, l), &net->saved[grad_slot][l - chunk->first]);
        WH_TRY(net->status);
        WH_TRY(done(net, l + 1, last));
    }
    return WH_OK;
}

static void *embedded_rows(const struct wh_net *net, uint32_t index) {
    const struct wh_net_shape *s = &net->shape;
    return row_of(net, net->dx, ((size_t)wh_net_first_sequence(s) + (size_t)index * s->micro_batch) * s->T);
}

void *wh_net_grad_rows(const struct wh_net *net, uint32_t c, uint32_t index, uint32_t slot) {
    const struct wh_net_chunk *chunk = wh_net_chunk(net, c);
    const bool in_place = chunk->embed && chunk->head && !wh_net_cuts_stream(&net->shape);
    return in_place ? embedded_rows(net, index) : net->grad[slot];
}

void wh_net_keep_embedded(struct wh_net *net, uint32_t index, const void *dx) {
    const struct wh_stream s = wh_stream_of(net, (size_t)net->shape.micro_batch * net->shape.T);
    void *rows = embedded_rows(net, index);
    const size_t bytes = s.length * net->local.C * wh_dtype_bytes(net->shape.dtype);
    wh_state_want(net, dx, wh_state_stream(net), "gradients of the embedded tokens", "the tables");
    wh_state_set(net, net->dx, wh_state_stream(net));
    for (size_t r = 0; r < s.rows && rows != dx; r += s.length)
        memcpy(row_of(net, rows, wh_stream_token(&s, r)), row_of(net, dx, r), bytes);
}

enum wh_status wh_net_gather_embedded(struct wh_net *net) {
    const struct wh_net_shape *s = &net->shape;
    if (!wh_net_gathers_embedded(net)) return WH_OK;
    wh_tensor_gather_embedded(net, (size_t)wh_net_sequences(s) * s->T, embedded_rows(net, 0));
    return net->status;
}

enum wh_status wh_net_train(struct wh_net *net, uint32_t index, const struct wh_net_batch *batch, float grad_scale,
                            uint32_t step) {
    const struct wh_net_micro micro = {batch, index, step, grad_scale};
    void *dx = wh_net_grad_rows(net, 0, index, 0);
    WH_TRY(wh_net_chunk_forward(net, 0, &micro, 0, NULL));
    WH_TRY(wh_net_chunk_backward(net, 0, &micro, 0, dx));
    wh_net_keep_embedded(net, index, dx);
    return WH_OK;
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
    const uint32_t chunks = loss_chunks(net), own = wh_net_groups(&net->shape) * chunks;
    const uint32_t first = net->shape.data.rank * own;
    wh_state_set(net, net->leaf_loss, WH_STATE_LOCAL);
    memset(net->leaf_loss, 0, (size_t)net->shape.grain.data * chunks * sizeof *net->leaf_loss);
    if (!net->logits || net->shape.tensor.rank > 0) return; /* others have the same */
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
    wh_state_want(net, net->leaf_loss, WH_STATE_REDUCED, "losses of leaves", "the batch's loss");
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        stack[depth++] = net->leaf_loss[leaf];
        for (unsigned m = wh_tree_merges(leaf, leaves); m > 0; m--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

double wh_net_finish(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step) {
    WH_ASSERT(wh_net_ranks(&net->shape) == 1);
    wh_net_finish_leaves(net);
    wh_state_set(net, net->leaf_loss, WH_STATE_REDUCED); /* all are here */
    wh_net_finish_gradients(net, batch, step);
    return wh_net_finish_loss(net);
}

const void *wh_net_forward(struct wh_net *net, const struct wh_pass *pass) {
    const struct wh_net_chunk *c = wh_net_chunk(net, 0);
    WH_ASSERT(!net->hooks.need && c->embed && c->head);
    return forward(net, c, pass, false, 0, NULL) == WH_OK ? net->slot[0].x[c->end]
                                                          : NULL; /* without hooks nothing fails */
}

static void sequence_losses(struct wh_net *net, uint32_t sequences) {
    for (size_t i = 0; i < sequences; i++) {
        net->sequence_loss[i] = 0.0;
        for (size_t t = 0; t < net->shape.T; t++) net->sequence_loss[i] += net->token_loss[i * net->shape.T + t];
    }
}

enum wh_status wh_net_chunk_evaluate(struct wh_net *net, uint32_t c, const struct wh_net_batch *batch,
                                     uint32_t sequences, void *out) {
    const struct wh_net_chunk *chunk = wh_net_chunk(net, c);
    const struct wh_pass pass = {.ids = batch->ids,
                                 .labels = batch->labels,
                                 .document_start = batch->document_start,
                                 .sequences = sequences,
                                 .T = net->shape.T};
    WH_ASSERT(sequences <= net->shape.micro_batch);
    if (sequences == 0) {
        for (uint32_t i = 0; i < chunk->embed + (chunk->end - chunk->first); i++) WH_TRY(need(net, false));
        return chunk->head ? need_head(net, false) : WH_OK;
    }
    WH_TRY(forward(net, chunk, &pass, false, 0, out));
    if (!chunk->head) return WH_OK;
    WH_TRY(need_head(net, false));
    wh_head_evaluate(net, &pass, net->slot[0].x[chunk->end - chunk->first], net->token_loss);
    sequence_losses(net, sequences);
    return net->status;
}

enum wh_status wh_net_evaluate(struct wh_net *net, const struct wh_net_batch *batch, uint32_t sequences) {
    return wh_net_chunk_evaluate(net, 0, batch, sequences, NULL);
}

void wh_net_logits(struct wh_net *net, const uint32_t *ids, uint32_t tokens, float *logits) {
    const struct wh_pass pass = {.ids = ids, .sequences = 1, .T = tokens};
    WH_ASSERT(tokens >= 1 && tokens <= net->shape.T);
    const void *x = wh_net_forward(net, &pass), *last = row_of(net, x, tokens - 1);
    wh_state_copy(net, last, x);
    wh_head_logits(net, last, 1, logits);
}
