/* The parts of a micro-batch's life; see net.h for the order. `n` tokens = whole sequences of T positions; `first_seq` is
 * the first one's place in the global batch (dropout is counted from there). */
#ifndef WH_MODEL_LAYER_H
#define WH_MODEL_LAYER_H

#include "model/decode.h"
#include "model/net.h"
#include "model/tensor_sums.h"

/* Where in the run a pass is: what dropout depends on. */
struct wh_pass {
    const uint32_t *ids;
    const int32_t *labels;
    const uint32_t *document_start; /* NULL: none */
    uint32_t sequences, T;          /* T may be shorter than the net's */
    uint32_t first_seq, step;
    bool dropout;              /* off in evaluation */
    uint32_t first_position;   /* of the rows; above 0 only with a cache */
    struct wh_kv_cache *cache; /* one row at a time against what came before (decode.c); NULL: whole sequences */
};

static inline size_t wh_pass_tokens(const struct wh_pass *p) { return (size_t)p->sequences * p->T; }
static inline struct wh_stream wh_pass_stream(const struct wh_net *net, const struct wh_pass *p) {
    return wh_stream_of(net, wh_pass_tokens(p));
}

enum wh_dropout_site { WH_SITE_EMBED, WH_SITE_ATTENTION, WH_SITE_ATTN_OUT, WH_SITE_MLP_OUT, WH_SITE_COUNT };

struct wh_dropout {
    struct wh_rng rng;
    uint32_t threshold; /* 0: off */
    float scale;
};
struct wh_dropout wh_dropout_at(const struct wh_net *net, const struct wh_pass *pass, int layer,
                                enum wh_dropout_site site);

/* out = dropout(in), rows of the stream [., C] in the compute dtype; may be in place. */
void wh_dropout_rows(const struct wh_net *net, const struct wh_pass *pass, const struct wh_stream *s,
                     const struct wh_dropout *d, void *out, const void *in);

/* x = token row + position row, dropout. */
void wh_embed_forward(struct wh_net *net, const struct wh_pass *pass, void *x);
/* From net->dx of the whole global batch: gradients of token and position tables. */
void wh_embed_backward(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step);

void wh_norm_forward(struct wh_net *net, size_t n, const void *x, enum wh_param_id gain, int layer, void *y,
                     float *stats);

/* x_out = layer(x_in), keeping `a`. With x_out NULL only what the backward pass needs is computed (recompute). */
void wh_layer_forward(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                      struct wh_layer_acts *a, void *x_out);
/* The elementwise parts that selective recompute drops: norm1, norm2, act. */
void wh_layer_recompute(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                        struct wh_layer_acts *a);
/* dx (in place) from that of x_out to that of x_in; adds parameter gradients of piece `piece`. */
void wh_layer_backward(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, int layer, const void *x_in,
                       struct wh_layer_acts *a, void *dx);
/* The attention job of one key-value head of one sequence; `a` holds q, k, v and, for the backward pass, o and stats. */
void wh_attention_fill(const struct wh_net *net, const struct wh_pass *pass, int layer, size_t seq, size_t kv_head,
                       const struct wh_layer_acts *a, struct wh_attention *out);
/* The same in two parts, for schedules that put the second off: what passes between them is in `saved`. */
void wh_layer_backward_input(struct wh_net *net, const struct wh_pass *pass, int layer, const void *x_in,
                             struct wh_layer_acts *a, struct wh_layer_saved *saved, void *dx);
void wh_layer_backward_weight(struct wh_net *net, uint32_t piece, int layer, const void *x_in,
                              const struct wh_layer_acts *a, const struct wh_layer_saved *saved);
/* Gain and bias gradients of a norm, piece `piece`; gradient through it: dx = (add ? dx : 0) + norm_back(dy); both. */
void wh_norm_gain_gradient(struct wh_net *net, uint32_t piece, const void *x, const float *stats, const void *dy,
                           enum wh_param_id gain, int layer);
void wh_norm_input_gradient(struct wh_net *net, size_t n, const void *x, const float *stats, const void *dy,
                            enum wh_param_id gain, int layer, bool add, void *dx);
void wh_norm_backward(struct wh_net *net, uint32_t piece, size_t n, const void *x, const float *stats, const void *dy,
                      enum wh_param_id gain, int layer, bool add, void *dx);

/* Final norm, logits by blocks, token losses; when training also their gradients: dx is that of x. */
void wh_head_train(struct wh_net *net, const struct wh_pass *pass, uint32_t piece, const void *x, float grad_scale,
                   double *token_loss, void *dx);
/* Logits [n, V] of the last residual stream's rows. */
void wh_head_logits(struct wh_net *net, const void *x, size_t n, float *logits);
/* Embedding and all layers; returns the last residual stream. */
const void *wh_net_forward(struct wh_net *net, const struct wh_pass *pass);
/* Attention of one row with all cached ones, which it joins. */
void wh_decode_attention(struct wh_net *net, struct wh_kv_cache *c, int layer, const struct wh_layer_acts *a);
void wh_head_evaluate(struct wh_net *net, const struct wh_pass *pass, const void *x, double *token_loss);

#endif
