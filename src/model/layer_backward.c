/* One transformer layer, backward; the mirror of layer_forward.c.
 *
 * dx enters as the gradient of x_out and leaves as that of x_in. Input gradients of column-cut matrices (qkv, up) are
 * sums over channels that tensor parallelism splits: S slices (parts_qkv, parts_up); those of row-cut ones (o, down)
 * are one chain over C. Activations that have served become the room for gradients, in
 * the order written. Where the two parts of the pass are run apart, gradients stand in the gradient slot instead. */
#include <string.h>

#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"

/* dx [n, cols] = dy [n, rows] W for the matrix `id` and those joined to it. */
static void input_gradient(struct wh_net *net, size_t n, const void *dy, size_t rows, enum wh_param_id weight,
                           int layer, size_t cols, const struct wh_net_parts *parts, void *dx) {
    const enum wh_dtype t = net->shape.dtype;
    struct wh_gemm g = {.m = n,
                        .n = cols,
                        .k = rows,
                        .a = {dy, t, rows, false},
                        .b = {wh_net_weight(net, weight, layer), t, cols, false},
                        .c = {dx, t, cols},
                        .parts = parts ? parts->list : NULL,
                        .part_count = parts ? parts->count : 0};
    if (parts)
        wh_tensor_gemm(net, WH_TIME_GEMM_INPUT, &g, WH_TENSOR_BACKWARD);
    else
        wh_net_gemm(net, WH_TIME_GEMM_INPUT, &g);
}

static void weight_gradient(struct wh_net *net, uint32_t piece, enum wh_param_id weight, int layer, const void *dy,
                            size_t rows, const void *x, size_t cols) {
    wh_gradient_matrix(net, &net->sum_matrix, piece, wh_net_param(net, weight, layer), dy, net->shape.dtype, rows, x,
                       cols);
}

/* up (in place) from activation input to its gradient, given that of the output. */
static void activate_back(struct wh_net *net, size_t n, void *up, const void *d_act) {
    const uint64_t since = wh_clock_ns();
    const size_t F = net->local.F;
    const bool gated = net->local.gated;
    const size_t width = gated ? 2 * F : F;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) {
        float *scratch = wh_rows_scratch(net), *out = wh_rows_target(net, up, t * width, scratch);
        const float *x = wh_rows_read(net, up, t * width, width, scratch);
        const float *dy = wh_rows_read(net, d_act, t * F, F, scratch + width);
        if (gated)
            net->vec->swiglu_back(out, out + F, dy, x, x + F, F);
        else
            net->vec->gelu_back(out, dy, x, F);
        wh_rows_done(net, up, t * width, width, out);
    }
    wh_net_book(net, WH_TIME_ACTIVATION, since);
}

static void attention_back(struct wh_net *net, const struct wh_pass *pass, int layer, const struct wh_layer_acts *a,
                           const void *d_attn, void *d_qkv) {
    const uint64_t since = wh_clock_ns();
    const struct wh_model *m = &net->local;
    const size_t Hkv = m->Hkv, R = m->H / Hkv, D = m->D, q_width = m->H * D, width = q_width + 2 * Hkv * D;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t i = 0; i < pass->sequences * Hkv; i++) {
        struct wh_attention job;
        const size_t token = i / Hkv * pass->T, kv = i % Hkv;
        wh_attention_fill(net, pass, layer, i / Hkv, kv, a, &job);
        job.d_o = wh_rows_at(net, d_attn, token * q_width + kv * R * D), job.do_stride = q_width;
        job.dq = wh_rows_at(net, d_qkv, token * width + kv * R * D), job.dq_stride = width;
        job.dk = wh_rows_at(net, d_qkv, token * width + q_width + kv * D), job.dk_stride = width;
        job.dv = wh_rows_at(net, d_qkv, token * width + q_width + (Hkv + kv) * D), job.dv_stride = width;
        net->attention->backward(&job,
                                 net->attention_scratch + (size_t)omp_get_thread_num() * net->attention_scratch_bytes);
    }
    wh_net_book(net, WH_TIME_ATTENTION_BACK, since);
}

static void rotate_back(struct wh_net *net, const struct wh_pass *pass, void *d_qkv) {
    const uint64_t since = wh_clock_ns();
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), D = m->D, half = D / 2, heads = m->H + m->Hkv, width = (heads + m->Hkv) * D;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) {
        float *scratch = wh_rows_scratch(net), *row = wh_rows_target(net, d_qkv, t * width, scratch);
        const size_t angle = t % pass->T * half;
        wh_rows_read(net, d_qkv, t * width, heads * D, scratch);
        for (size_t h = 0; h < heads; h++)
            net->vec->rotate_back(row + h * D, net->rope_cos + angle, net->rope_sin + angle, half);
        wh_rows_done(net, d_qkv, t * width, heads * D, row);
    }
    wh_net_book(net, WH_TIME_ACTIVATION, since);
}

/* The gradient of a branch's output: dx itself, or dx through the branch's dropout (in d_norm). Rows of the stream. */
static const void *branch_gradient(struct wh_net *net, const struct wh_pass *pass, int layer, enum wh_dropout_site site,
                                   const void *dx) {
    const struct wh_dropout d = wh_dropout_at(net, pass, layer, site);
    const struct wh_stream s = wh_pass_stream(net, pass);
    if (!d.threshold) return dx;
    wh_dropout_rows(net, pass, &s, &d, net->d_norm, dx);
    return net->d_norm;
}

/* Of a matrix that is cut on its input side, and its bias, which isn't cut; `rows` of the stream are gathered. Returns dy for
 * all tokens. */
static const void *row_cut_gradients(struct wh_net *net, uint32_t piece, size_t n, enum wh_param_id weight,
                                     enum wh_param_id bias, int layer, const void *rows, enum wh_tensor_row gather,
                                     const void *x, size_t cols) {
    const size_t C = net->local.C;
    const void *dy = wh_tensor_gather(net, n, rows, gather);
    weight_gradient(net, piece, weight, layer, dy, C, x, cols);
    wh_gradient_bias(net, piece, wh_net_param(net, bias, layer), rows, C);
    return dy;
}

/* Of a matrix that is cut on its output side, and its bias, which is cut with it; `rows` of its input are gathered again. */
static void column_cut_gradients(struct wh_net *net, uint32_t piece, size_t n, enum wh_param_id weight,
                                 enum wh_param_id bias, int layer, const void *dy, size_t width, const void *rows) {
    const void *x = wh_tensor_gather(net, n, rows, WH_TENSOR_AGAIN);
    weight_gradient(net, piece, weight, layer, dy, width, x, net->local.C);
    wh_gradient_bias(net, piece, wh_net_param(net, bias, layer), dy, width);
}

static void feed_forward_back(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, int layer,
                              struct wh_layer_acts *a, void *dx) {
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), C = m->C, F = m->F, width = m->gated ? 2 * F : F;
    const enum wh_param_id up = m->gated ? WH_P_MLP_GATE : WH_P_MLP_UP;
    const void *rows = branch_gradient(net, pass, layer, WH_SITE_MLP_OUT, dx);

    const void *dy = row_cut_gradients(net, piece, n, WH_P_MLP_DOWN, WH_P_MLP_DOWN_BIAS, layer, rows,
                                       WH_TENSOR_GATHER_GRAD, a->act, F);
    input_gradient(net, n, dy, C, WH_P_MLP_DOWN, layer, F, NULL, a->act);
    activate_back(net, n, a->up, a->act); /* both now hold their own gradients */
    column_cut_gradients(net, piece, n, up, WH_P_MLP_UP_BIAS, layer, a->up, width, a->norm2);
    input_gradient(net, n, a->up, width, up, layer, C, &net->parts_up, net->d_norm);
    wh_norm_backward(net, piece, wh_pass_stream(net, pass).rows, a->x_mid, a->norm2_stats, net->d_norm,
                     WH_P_MLP_NORM_GAIN, layer, true, dx);
}

static void attention_branch_back(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, int layer,
                                  const void *x_in, struct wh_layer_acts *a, void *dx) {
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), C = m->C, q = (size_t)m->H * m->D, width = q + 2 * (size_t)m->Hkv * m->D;
    const void *rows = branch_gradient(net, pass, layer, WH_SITE_ATTN_OUT, dx);
    void *d_attn = a->act, *d_qkv = a->up; /* the feed-forward half is done with them */

    const void *dy =
        row_cut_gradients(net, piece, n, WH_P_ATTN_O, WH_P_ATTN_O_BIAS, layer, rows, WH_TENSOR_GATHER_GRAD, a->attn, q);
    input_gradient(net, n, dy, C, WH_P_ATTN_O, layer, q, NULL, d_attn);
    attention_back(net, pass, layer, a, d_attn, d_qkv);
    if (!m->learned_positions) rotate_back(net, pass, d_qkv);
    column_cut_gradients(net, piece, n, WH_P_ATTN_Q, WH_P_ATTN_Q_BIAS, layer, d_qkv, width, a->norm1);
    input_gradient(net, n, d_qkv, width, WH_P_ATTN_Q, layer, C, &net->parts_qkv, net->d_norm);
    wh_norm_backward(net, piece, wh_pass_stream(net, pass).rows, x_in, a->norm1_stats, net->d_norm, WH_P_ATTN_NORM_GAIN,
                     layer, true, dx);
}

void wh_layer_backward(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, int layer, const void *x_in,
                       struct wh_layer_acts *a, void *dx) {
    feed_forward_back(net, pass, piece, layer, a, dx);
    attention_branch_back(net, pass, piece, layer, x_in, a, dx);
}

/* ---- in two parts ---- */

/* The gradient of a branch's output, kept in `to`. */
static void save_branch_gradient(struct wh_net *net, const struct wh_pass *pass, int layer, enum wh_dropout_site site,
                                 const void *dx, void *to) {
    const struct wh_dropout d = wh_dropout_at(net, pass, layer, site);
    const struct wh_stream s = wh_pass_stream(net, pass);
    if (d.threshold)
        wh_dropout_rows(net, pass, &s, &d, to, dx);
    else
        memcpy(to, dx, s.rows * net->local.C * wh_dtype_bytes(net->shape.dtype));
}

static void feed_forward_back_input(struct wh_net *net, const struct wh_pass *pass, int layer, struct wh_layer_acts *a,
                                    struct wh_layer_saved *s, void *dx) {
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), C = m->C, F = m->F, width = m->gated ? 2 * F : F;
    void *d_up = s->d_up ? s->d_up : a->up;
    save_branch_gradient(net, pass, layer, WH_SITE_MLP_OUT, dx, s->dy_down);
    const void *dy = wh_tensor_gather(net, n, s->dy_down, WH_TENSOR_GATHER_GRAD);
    input_gradient(net, n, dy, C, WH_P_MLP_DOWN, layer, F, NULL, net->d_act);
    if (s->d_up) memcpy(s->d_up, a->up, n * width * wh_dtype_bytes(net->shape.dtype));
    activate_back(net, n, d_up, net->d_act);
    input_gradient(net, n, d_up, width, m->gated ? WH_P_MLP_GATE : WH_P_MLP_UP, layer, C, &net->parts_up, s->d_norm2);
    wh_norm_input_gradient(net, wh_pass_stream(net, pass).rows, a->x_mid, a->norm2_stats, s->d_norm2,
                           WH_P_MLP_NORM_GAIN, layer, true, dx);
}

static void attention_branch_back_input(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                                        struct wh_layer_acts *a, struct wh_layer_saved *s, void *dx) {
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), C = m->C, q = (size_t)m->H * m->D, width = q + 2 * (size_t)m->Hkv * m->D;
    save_branch_gradient(net, pass, layer, WH_SITE_ATTN_OUT, dx, s->dy_o);
    const void *dy = wh_tensor_gather(net, n, s->dy_o, WH_TENSOR_GATHER_GRAD);
    input_gradient(net, n, dy, C, WH_P_ATTN_O, layer, q, NULL, net->d_act);
    attention_back(net, pass, layer, a, net->d_act, s->d_qkv);
    if (!m->learned_positions) rotate_back(net, pass, s->d_qkv);
    input_gradient(net, n, s->d_qkv, width, WH_P_ATTN_Q, layer, C, &net->parts_qkv, s->d_norm1);
    wh_norm_input_gradient(net, wh_pass_stream(net, pass).rows, x_in, a->norm1_stats, s->d_norm1, WH_P_ATTN_NORM_GAIN,
                           layer, true, dx);
}

void wh_layer_backward_input(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                             struct wh_layer_acts *a, struct wh_layer_saved *saved, void *dx) {
    feed_forward_back_input(net, pass, layer, a, saved, dx);
    attention_branch_back_input(net, pass, layer, x_in, a, saved, dx);
}

void wh_layer_backward_weight(struct wh_net *net, uint32_t piece, int layer, const void *x_in,
                              const struct wh_layer_acts *a, const struct wh_layer_saved *s) {
    const struct wh_model *m = &net->local;
    const size_t n = (size_t)net->shape.micro_batch * net->shape.T;
    const size_t F = m->F, q = (size_t)m->H * m->D, width = q + 2 * (size_t)m->Hkv * m->D;
    const void *d_up = s->d_up ? s->d_up : a->up;
    const size_t up_width = m->gated ? 2 * F : F;
    row_cut_gradients(net, piece, n, WH_P_MLP_DOWN, WH_P_MLP_DOWN_BIAS, layer, s->dy_down, WH_TENSOR_AGAIN, a->act, F);
    column_cut_gradients(net, piece, n, m->gated ? WH_P_MLP_GATE : WH_P_MLP_UP, WH_P_MLP_UP_BIAS, layer, d_up, up_width,
                         a->norm2);
    wh_norm_gain_gradient(net, piece, a->x_mid, a->norm2_stats, s->d_norm2, WH_P_MLP_NORM_GAIN, layer);
    row_cut_gradients(net, piece, n, WH_P_ATTN_O, WH_P_ATTN_O_BIAS, layer, s->dy_o, WH_TENSOR_AGAIN, a->attn, q);
    column_cut_gradients(net, piece, n, WH_P_ATTN_Q, WH_P_ATTN_Q_BIAS, layer, s->d_qkv, width, a->norm1);
    wh_norm_gain_gradient(net, piece, x_in, a->norm1_stats, s->d_norm1, WH_P_ATTN_NORM_GAIN, layer);
}
