/* One transformer layer, forward: norm, attention, residual, norm, feed-forward, residual. Pre-norm, as GPT-2 and Llama.
 *
 *   norm1 = norm(x_in)                     qkv = norm1 Wqkv^T + b, q and k rotated
 *   attn  = attention(qkv)                 x_mid = x_in + drop(attn Wo^T + b)         sum over heads in S slices
 *   norm2 = norm(x_mid)                    up = norm2 Wup^T + b
 *   act   = gelu(up) or silu(gate)*up      x_out = x_mid + drop(act Wdown^T + b)      sum over channels in S slices
 *
 * x_in, norm1, x_mid, norm2, x_out are rows of the stream; attn, up, act, qkv those of all tokens: norm1 and norm2 are gathered,
 * the sums scattered (model/tensor_sums.h). */
#include "model/layer.h"
#include "model/rows.h"

/* y [n, rows] = x [n, cols] W^T + b for the matrix `id` and those joined to it; `parts` NULL: one chain. */
static struct wh_gemm linear(const struct wh_net *net, size_t n, const void *x, size_t cols, enum wh_param_id weight,
                             enum wh_param_id bias, int layer, size_t rows, const struct wh_net_parts *parts, void *y) {
    const enum wh_dtype t = net->shape.dtype;
    return (struct wh_gemm){.m = n,
                            .n = rows,
                            .k = cols,
                            .a = {x, t, cols, false},
                            .b = {wh_net_weight(net, weight, layer), t, cols, true},
                            .c = {y, t, rows},
                            .parts = parts ? parts->list : NULL,
                            .part_count = parts ? parts->count : 0,
                            .bias = wh_net_weight(net, bias, layer),
                            .bias_dtype = t};
}

static void rotate_heads(const struct wh_net *net, float *row, size_t heads, size_t t) {
    const size_t D = net->local.D, half = D / 2;
    for (size_t h = 0; h < heads; h++)
        net->vec->rotate(row + h * D, net->rope_cos + t * half, net->rope_sin + t * half, half);
}

static void rotate(struct wh_net *net, const struct wh_pass *pass, void *qkv) {
    const uint64_t since = wh_clock_ns();
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), heads = m->H + m->Hkv, width = (heads + m->Hkv) * m->D;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) {
        float *scratch = wh_rows_scratch(net), *row = wh_rows_target(net, qkv, t * width, scratch);
        wh_rows_read(net, qkv, t * width, heads * m->D, scratch);
        rotate_heads(net, row, heads, pass->first_position + t % pass->T);
        wh_rows_done(net, qkv, t * width, heads * m->D, row);
    }
    wh_net_book(net, WH_TIME_ACTIVATION, since);
}

void wh_attention_fill(const struct wh_net *net, const struct wh_pass *pass, int layer, size_t seq, size_t kv_head,
                       const struct wh_layer_acts *a, struct wh_attention *out) {
    const struct wh_model *m = &net->local;
    const size_t T = pass->T, D = m->D, R = m->H / m->Hkv, q_width = m->H * D, width = q_width + 2 * m->Hkv * D;
    const size_t head = kv_head * R, token = seq * T;
    const struct wh_dropout d = wh_dropout_at(net, pass, layer, WH_SITE_ATTENTION);
    *out = (struct wh_attention){
        .T = T,
        .D = D,
        .R = R,
        .dtype = net->shape.dtype,
        .scale = net->attention_scale,
        .q = wh_rows_at(net, a->qkv, token * width + head * D),
        .k = wh_rows_at(net, a->qkv, token * width + q_width + kv_head * D),
        .v = wh_rows_at(net, a->qkv, token * width + q_width + (m->Hkv + kv_head) * D),
        .q_stride = width,
        .k_stride = width,
        .v_stride = width,
        .o = wh_rows_at(net, a->attn, token * q_width + head * D),
        .o_stride = q_width,
        .stats = a->attn_stats + (seq * m->H + head) * T * 2,
        .document_start = pass->document_start ? pass->document_start + token : NULL,
        .chunks = net->shape.grain.sequence,
        .rng = d.rng,
        .first_element =
            ((uint64_t)(pass->first_seq + seq) * net->shape.model->H + wh_net_first_head(net) + head) * T * T,
        .dropout_threshold = d.threshold,
        .dropout_scale = d.scale,
    };
}

static void attention(struct wh_net *net, const struct wh_pass *pass, int layer, struct wh_layer_acts *a) {
    const uint64_t since = wh_clock_ns();
    const size_t H = net->local.H, R = H / net->local.Hkv;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t i = 0; i < pass->sequences * H; i++) {
        struct wh_attention job;
        wh_attention_fill(net, pass, layer, i / H, i % H / R, a, &job);
        net->attention->forward(&job, i % H % R,
                                net->attention_scratch + (size_t)omp_get_thread_num() * net->attention_scratch_bytes);
    }
    wh_net_book(net, WH_TIME_ATTENTION, since);
}

static void activate(struct wh_net *net, size_t n, const void *up, void *act) {
    const uint64_t since = wh_clock_ns();
    const size_t F = net->local.F;
    const bool gated = net->local.gated;
    const size_t width = gated ? 2 * F : F;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < n; t++) {
        float *scratch = wh_rows_scratch(net), *y = wh_rows_target(net, act, t * F, scratch + width);
        const float *x = wh_rows_read(net, up, t * width, width, scratch);
        if (gated)
            net->vec->swiglu(y, x, x + F, F);
        else
            net->vec->gelu(y, x, F);
        wh_rows_done(net, act, t * F, F, y);
    }
    wh_net_book(net, WH_TIME_ACTIVATION, since);
}

/* out = residual + drop(g's result). Without dropout the residual is part of the product's epilogue. */
static void add_branch(struct wh_net *net, const struct wh_pass *pass, int layer, enum wh_dropout_site site,
                       struct wh_gemm *g, const void *residual) {
    const struct wh_dropout d = wh_dropout_at(net, pass, layer, site);
    const struct wh_stream s = wh_pass_stream(net, pass);
    const size_t C = net->local.C;
    if (!d.threshold) g->residual = (struct wh_gemm_in){residual, net->shape.dtype, C, false};
    wh_tensor_gemm(net, WH_TIME_GEMM_FORWARD, g, WH_TENSOR_FORWARD);
    if (!d.threshold) return;
    void *x = g->c.data;
    wh_dropout_rows(net, pass, &s, &d, x, x);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < s.rows; t++) {
        float *scratch = wh_rows_scratch(net), *y = wh_rows_target(net, x, t * C, scratch);
        const float *branch = wh_rows_read(net, x, t * C, C, scratch);
        net->vec->add(y, wh_rows_read(net, residual, t * C, C, scratch + C), branch, C);
        wh_rows_done(net, x, t * C, C, y);
    }
}

void wh_layer_forward(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                      struct wh_layer_acts *a, void *x_out) {
    const struct wh_model *m = &net->local;
    const size_t n = wh_pass_tokens(pass), rows = wh_pass_stream(net, pass).rows;
    const size_t C = m->C, q = (size_t)m->H * m->D, kv = (size_t)m->Hkv * m->D, F = m->F;

    wh_norm_forward(net, rows, x_in, WH_P_ATTN_NORM_GAIN, layer, a->norm1, a->norm1_stats);
    const void *norm = wh_tensor_gather(net, n, a->norm1, WH_TENSOR_GATHER);
    struct wh_gemm g = linear(net, n, norm, C, WH_P_ATTN_Q, WH_P_ATTN_Q_BIAS, layer, q + 2 * kv, NULL, a->qkv);
    wh_net_gemm(net, WH_TIME_GEMM_FORWARD, &g);
    if (!m->learned_positions) rotate(net, pass, a->qkv);
    if (pass->cache)
        wh_decode_attention(net, pass->cache, layer, a);
    else
        attention(net, pass, layer, a);
    g = linear(net, n, a->attn, q, WH_P_ATTN_O, WH_P_ATTN_O_BIAS, layer, C, &net->parts_o, a->x_mid);
    add_branch(net, pass, layer, WH_SITE_ATTN_OUT, &g, x_in);

    wh_norm_forward(net, rows, a->x_mid, WH_P_MLP_NORM_GAIN, layer, a->norm2, a->norm2_stats);
    norm = wh_tensor_gather(net, n, a->norm2, WH_TENSOR_GATHER);
    g = linear(net, n, norm, C, m->gated ? WH_P_MLP_GATE : WH_P_MLP_UP, WH_P_MLP_UP_BIAS, layer, m->gated ? 2 * F : F,
               NULL, a->up);
    const bool fused = !m->gated && net->shape.dtype == WH_F32; /* bf16: from the rounded value, as recompute does */
    if (fused) {
        g.pre = g.c;
        g.c = (struct wh_gemm_out){a->act, net->shape.dtype, F};
        g.activation = WH_GEMM_GELU_TANH;
    }
    wh_net_gemm(net, WH_TIME_GEMM_FORWARD, &g);
    if (!fused) activate(net, n, a->up, a->act);
    if (!x_out) return;
    g = linear(net, n, a->act, F, WH_P_MLP_DOWN, WH_P_MLP_DOWN_BIAS, layer, C, &net->parts_down, x_out);
    add_branch(net, pass, layer, WH_SITE_MLP_OUT, &g, a->x_mid);
}

void wh_layer_recompute(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                        struct wh_layer_acts *a) {
    const size_t rows = wh_pass_stream(net, pass).rows;
    wh_norm_forward(net, rows, x_in, WH_P_ATTN_NORM_GAIN, layer, a->norm1, a->norm1_stats);
    wh_norm_forward(net, rows, a->x_mid, WH_P_MLP_NORM_GAIN, layer, a->norm2, a->norm2_stats);
    activate(net, wh_pass_tokens(pass), a->up, a->act);
}
