/* Token and position tables.
 *
 * The backward pass waits for the end of the step, when net->dx holds the embedding's gradient for every token of the
 * batch: then each table row is one complete sum (chain over a leaf's tokens, canonical tree over leaves) and needs no
 * pending buffers, whatever the micro-batches were. Tokens are brought into order by a counting sort, so a row's tokens
 * are found together and in the order of the chain. A tied table already holds the head's gradient: the finished row sum
 * is added to it; rows of tokens that the batch does not contain are left alone. In a data-parallel job net->dx has been
 * gathered from all ranks, and each rank makes the rows that it owns. */
#include <string.h>

#include "base/tree.h"
#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"

/* Rows of the token table, collected in tp_partial from the tensor ranks that have them. */
static void select_rows(struct wh_net *net, const struct wh_pass *pass, const void *table) {
    const size_t words = wh_tensor_row_words(&net->shape), n = wh_pass_tokens(pass);
    const size_t bytes = net->local.C * wh_dtype_bytes(net->shape.dtype);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) {
        const size_t row = (size_t)pass->ids[t] - net->first_token; /* wraps below the first */
        float *to = net->tp_partial + t * words;
        memset(to, 0, words * sizeof *to);
        if (row < net->local.V) memcpy(to, (const char *)table + row * bytes, bytes);
    }
    wh_tensor_select_rows(net, n);
}

/* The compute-dtype row of the token table of token t. */
static const void *token_row(const struct wh_net *net, const struct wh_pass *pass, const void *table, size_t t) {
    if (wh_net_tensor_ranks(&net->shape) > 1) return net->tp_partial + t * wh_tensor_row_words(&net->shape);
    return wh_rows_at(net, table, pass->ids[t] * (size_t)net->local.C);
}

void wh_embed_forward(struct wh_net *net, const struct wh_pass *pass, void *x) {
    const uint64_t since = wh_clock_ns(), waited = net->times.ns[WH_TIME_COMM];
    const size_t C = net->local.C;
    const void *token = net->table_copy ? net->table_copy : wh_net_weight(net, WH_P_EMBED_TOKEN, -1);
    const void *position = wh_net_weight(net, WH_P_EMBED_POSITION, -1);
    const struct wh_dropout d = wh_dropout_at(net, pass, -1, WH_SITE_EMBED);
    const struct wh_stream s = wh_pass_stream(net, pass);
    if (wh_net_tensor_ranks(&net->shape) > 1) select_rows(net, pass, token);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t r = 0; r < s.rows; r++) {
        const size_t t = wh_stream_token(&s, r);
        float *a = wh_rows_scratch(net), *b = a + C, *y = wh_rows_target(net, x, r * C, a);
        const float *row = wh_rows_read(net, token_row(net, pass, token, t), 0, C, a);
        if (position)
            net->vec->add(y, row, wh_rows_read(net, position, (pass->first_position + t % pass->T) * C, C, b), C);
        else if (y != row)
            memcpy(y, row, C * sizeof *y);
        wh_rows_done(net, x, r * C, C, y);
    }
    if (d.threshold) wh_dropout_rows(net, pass, &s, &d, x, x);
    wh_net_book(net, WH_TIME_EMBED, since + (net->times.ns[WH_TIME_COMM] - waited));
}

/* order[first[v] .. first[v+1]) = the tokens with id v, ascending. */
static void sort_tokens(struct wh_net *net, const uint32_t *ids, size_t n) {
    const size_t V = net->shape.model->V;
    uint32_t *first = net->token_first;
    memset(first, 0, (V + 1) * sizeof *first);
    for (size_t t = 0; t < n; t++) first[ids[t] + 1]++;
    for (size_t v = 0; v < V; v++) first[v + 1] += first[v];
    for (size_t t = 0; t < n; t++) net->token_order[first[ids[t]]++] = (uint32_t)t;
    for (size_t v = V; v > 0; v--) first[v] = first[v - 1];
    first[0] = 0;
}

/* A stack of partial sums of one table row, canonical tree over `leaves`. */
struct row_tree {
    const struct wh_net *net;
    float *rows; /* [depth][C] */
    size_t C, depth, leaves;
};

static float *tree_open(struct row_tree *t) {
    float *leaf = t->rows + t->depth++ * t->C;
    memset(leaf, 0, t->C * sizeof *leaf);
    return leaf;
}

static void tree_close(struct row_tree *t, size_t leaf) {
    for (unsigned m = wh_tree_merges((uint32_t)leaf, (uint32_t)t->leaves); m > 0; m--, t->depth--) {
        float *left = t->rows + (t->depth - 2) * t->C, *right = left + t->C;
        t->net->vec->add(left, left, right, t->C);
    }
}

/* Leaf of token t: group of its sequence, chunk of its position. */
static size_t leaf_of(const struct wh_net_shape *s, size_t t) {
    size_t each = s->global_batch / s->grain.data, Q = s->grain.sequence, position = t % s->T, q = 0;
    while (q + 1 < Q && position >= s->T * (q + 1) / Q) q++;
    return t / s->T / each * Q + q;
}

/* Tokens of one id, which come sequence by sequence; the leaves of a group are interleaved if there are chunks, so each
 * leaf picks its own. */
static void sum_token_row(struct row_tree *tree, const uint32_t *tokens, size_t count, float *scratch) {
    const struct wh_net *net = tree->net;
    const struct wh_net_shape *s = &net->shape;
    const size_t each_tokens = (size_t)s->global_batch / s->grain.data * s->T, Q = s->grain.sequence;
    size_t begin = 0;
    for (size_t leaf = 0; leaf < tree->leaves; leaf++) {
        float *acc = tree_open(tree);
        size_t end = begin;
        while (end < count && tokens[end] / each_tokens == leaf / Q) end++;
        for (size_t i = begin; i < end; i++) {
            size_t t = tokens[i];
            if (Q > 1 && leaf_of(s, t) != leaf) continue;
            net->vec->add(acc, acc, wh_rows_read(net, net->dx, t * tree->C, tree->C, scratch), tree->C);
        }
        if (leaf % Q == Q - 1) begin = end;
        tree_close(tree, leaf);
    }
}

/* Rows are never split between owners. */
static bool owns(const struct wh_net *net, size_t offset) { return net->own.begin <= offset && offset < net->own.end; }

static void token_gradient(struct wh_net *net, const uint32_t *ids) {
    const struct wh_model *m = &net->local;
    const struct wh_param *p = wh_net_param(net, WH_P_EMBED_TOKEN, -1);
    const size_t C = m->C, n = (size_t)net->shape.global_batch * net->shape.T;
    const size_t leaves = (size_t)net->shape.grain.data * net->shape.grain.sequence;
    sort_tokens(net, ids, n);
#pragma omp parallel for num_threads(net->shape.threads) schedule(dynamic, 16)
    for (size_t v = 0; v < m->V; v++) {
        if (!owns(net, p->offset + v * C)) continue;
        const size_t id = net->first_token + v;
        size_t first = net->token_first[id], count = net->token_first[id + 1] - first;
        float *scratch = wh_rows_scratch(net);
        struct row_tree tree = {net, scratch + C, C, 0, leaves};
        if (count == 0) {
            if (!m->tied)
                memset(scratch, 0, C * sizeof *scratch), wh_gradient_store(net, p->offset + v * C, scratch, C);
            continue;
        }
        sum_token_row(&tree, net->token_order + first, count, scratch);
        if (m->tied)
            wh_gradient_add(net, p->offset + v * C, tree.rows, C, scratch);
        else
            wh_gradient_store(net, p->offset + v * C, tree.rows, C);
    }
}

static void position_gradient(struct wh_net *net, const struct wh_param *p) {
    const struct wh_net_shape *s = &net->shape;
    const size_t C = s->model->C, each = s->global_batch / s->grain.data;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (size_t t = 0; t < p->rows; t++) {
        if (!owns(net, p->offset + t * C)) continue;
        float *scratch = wh_rows_scratch(net);
        struct row_tree tree = {net, scratch + C, C, 0, s->grain.data};
        memset(tree.rows, 0, C * sizeof *tree.rows);
        for (size_t g = 0; g < s->grain.data && t < s->T; g++) {
            float *acc = tree_open(&tree);
            for (size_t i = g * each; i < (g + 1) * each; i++)
                net->vec->add(acc, acc, wh_rows_read(net, net->dx, (i * s->T + t) * C, C, scratch), C);
            tree_close(&tree, g);
        }
        wh_gradient_store(net, p->offset + t * C, tree.rows, C);
    }
}

void wh_embed_backward(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step) {
    const uint64_t since = wh_clock_ns();
    const struct wh_param *position = wh_net_param(net, WH_P_EMBED_POSITION, -1);
    const bool token = wh_net_param(net, WH_P_EMBED_TOKEN, -1) != NULL;
    if (!position && !token) return;
    const struct wh_pass pass = {
        .sequences = net->shape.global_batch, .T = net->shape.T, .step = step, .dropout = true};
    const struct wh_dropout d = wh_dropout_at(net, &pass, -1, WH_SITE_EMBED);
    const size_t tokens = wh_pass_tokens(&pass);
    const struct wh_stream all = {tokens, tokens, 0, tokens};
    if (d.threshold) wh_dropout_rows(net, &pass, &all, &d, net->dx, net->dx);
    if (token) token_gradient(net, batch->ids);
    if (position) position_gradient(net, position);
    wh_net_book(net, WH_TIME_EMBED, since);
}
