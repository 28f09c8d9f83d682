/* One replica of a model in one process: its memory, and the training step of one micro-batch.
 *
 *     struct wh_net net;
 *     WH_TRY(wh_net_new(&shape, &net));                  // measures, reserves, places; weights undefined
 *     wh_net_init_weights(&net, seed);
 *     for each step:
 *         for each micro-batch i: wh_net_train(&net, i, &batch, 1.0f / valid_tokens, step);
 *         loss = wh_net_finish(&net, &batch, step) / valid_tokens;         // net.grads are now those of the whole batch
 *     wh_net_free(&net);
 *
 * Life of a micro-batch: embed.c -> layer_forward.c per layer -> head.c (loss and its gradient, by blocks of tokens) ->
 * layer_backward.c per layer in reverse. Gradients of parameters go through gradient.c, which follows the sum plans of
 * sched/gradsum.h, so that micro-batches, and later ranks, never change a bit.
 *
 * Memory: one arena for the job, laid out by one function (layout.c) that runs twice. The step allocates nothing.
 * Threads: OpenMP inside each operation; results don't depend on their number. */
#ifndef WH_MODEL_NET_H
#define WH_MODEL_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/grain.h"
#include "arch/params.h"
#include "base/dtype.h"
#include "ledger/arena.h"
#include "ledger/times.h"
#include "sched/gradsum.h"
#include "sched/zero.h"
#include "tensor/attention.h"
#include "tensor/gemm.h"
#include "tensor/vec.h"

struct wh_comm;
struct wh_comm_job;
struct wh_reduce;
struct wh_states;

enum wh_keep { WH_KEEP_ALL, WH_KEEP_SELECTIVE, WH_KEEP_INPUTS }; /* recompute: none, selective, full */

/* Which part of a data-parallel job a net is; all zero: alone. Rank r of n works on the sequences [r B / n, (r + 1) B / n)
 * of the global batch B, which are whole groups of grain.data. */
struct wh_net_data {
    uint32_t ranks, rank;
    uint32_t zero_stage;
    const size_t *owner_border; /* [ranks + 1], elements of the flat line (arch/owners.h); borrowed */
    uint32_t prefetch;          /* stage 3: units gathered ahead */
    struct wh_comm_job *job;    /* has the memory that collectives touch; wh_net_predict doesn't read it */
};

/* Consecutive layers that a rank runs in one go: a stage of a pipeline, or one of several on this rank. */
struct wh_net_chunk {
    uint32_t first, end; /* layers [first, end) of the model */
    bool embed, head;    /* begins with the embeddings; ends with the final norm and the loss */
};

/* The tensor rank that a net is: it holds slices [t S / n, (t + 1) S / n) of what is cut (S: grain.tensor). All zero: alone. */
struct wh_net_tensor {
    uint32_t ranks, rank;
    bool
        sequence; /* sequence parallelism: of what isn't cut, and is done for each token, it does its part of the positions */
    struct wh_comm *comm; /* adds partial sums; wh_net_predict doesn't read it */
};

struct wh_net_shape {
    const struct wh_model *model;      /* borrowed, as params */
    const struct wh_params *params;    /* the model's, or the part of it that this rank holds */
    const struct wh_net_chunk *chunks; /* borrowed, [chunk_count]; chunk_count 0: the whole model as one */
    uint32_t chunk_count;
    uint32_t act_slots, grad_slots; /* (chunk, micro-batch) pairs in flight at once; 0: 1 */
    bool split_backward;            /* the two parts of the backward pass are run apart */
    struct wh_grain grain;
    uint32_t T, micro_batch, global_batch; /* positions, sequences, sequences */
    enum wh_dtype dtype;                   /* of weights and activations: fp32 or bf16 */
    enum wh_dtype grad_dtype;              /* of net.grads: fp32, or bf16 rounded once from the sum */
    enum wh_keep keep;
    uint32_t full_layers;       /* the first layers, kept as WH_KEEP_INPUTS whatever `keep` says of the others */
    bool train;                 /* false: forward only, no gradients and optimizer states */
    uint32_t loss_block_tokens; /* 0: chosen here */
    int threads;
    const char *kernels; /* NULL: best */
    uint64_t seed;       /* of dropout */
    struct wh_net_data data;
    struct wh_net_tensor tensor;
};

/* Token ids and targets of a global batch, [sequences][T]; borrowed. */
struct wh_net_batch {
    const uint32_t *ids;
    const int32_t *labels;          /* -1: not counted */
    const uint32_t *document_start; /* first position of the document that each position lies in; NULL: 0 */
};

/* What one layer keeps of a micro-batch of n tokens, of which r are this rank's of the residual stream (all, unless positions
 * are cut: model/tensor_sums.h). q, k and v of a token lie side by side, so do gate and up. */
struct wh_layer_acts {
    void *norm1;        /* [r, C] */
    float *norm1_stats; /* [r, 2] mean, rstd (RMSNorm: rstd in the second) */
    void *qkv;          /* [n, (H + 2 Hkv) D], rotated */
    float *attn_stats;  /* [b, H, T, 2] */
    void *attn;         /* [n, H D] */
    void *x_mid;        /* [r, C] residual stream after attention */
    void *norm2;        /* [r, C] */
    float *norm2_stats;
    void *up;  /* [n, F] or [n, 2F]: before the activation; backward: their gradients, then those of qkv */
    void *act; /* [n, F]; backward: its gradient, then that of attn */
};

/* What the input part of a layer's backward pass leaves for the weight part, where they are apart. */
struct wh_layer_saved {
    void *dy_down, *dy_o;    /* [r, C] gradients of the two branches' outputs */
    void *d_norm1, *d_norm2; /* [r, C] of the norms' outputs */
    void *d_qkv;             /* [n, (H + 2 Hkv) D] */
    void *d_up;              /* [n, F] or [n, 2F]; NULL: stands in acts.up */
};

/* A sum over channels cut into slices for the GEMM. */
struct wh_net_parts {
    struct wh_gemm_part *list;
    size_t count;
};

/* A sum plan with its parts as the GEMM wants them. */
struct wh_net_sums {
    struct wh_sum_plan plan;
    struct wh_gemm_part *parts; /* [plan.part_count] */
};

/* What a data-parallel job does around the units of sched/zero.h; members may be NULL. Anything but WH_OK ends the pass. */
struct wh_net_hooks {
    void *context;
    /* Read number `read` of a pass (wh_zero_read) is next: its unit's weights must be there. */
    enum wh_status (*need)(void *context, bool train, uint32_t read);
    /* The room for a unit's gradients will be written. */
    enum wh_status (*room)(void *context, uint32_t unit);
    /* The unit's gradients of all this rank's sequences are complete. */
    enum wh_status (*done)(void *context, uint32_t unit);
};

/* What the forward pass of a chunk keeps of one micro-batch for its backward pass. */
struct wh_net_slot {
    void **x; /* [layers + 1]: residual stream entering each layer; behind the last one: with the head only */
    struct wh_layer_acts *acts; /* [layers] */
};

enum { WH_NET_OUTPUTS = 3 }; /* being filled, and two on their way */

struct wh_net {
    struct wh_net_shape shape;
    struct wh_model local; /* the model with this tensor rank's H, Hkv, F, V */
    size_t first_token;    /* of the vocabulary, that is held: V of them */
    enum wh_status
        status;        /* of the sums over tensor ranks: after the first that failed, passes compute nothing of use and
                              return it */
    float *tp_partial; /* [n, C]: partial sums; rows of the embedding */
    void *tp_full;     /* [n, C]: gathered rows; NULL unless positions are cut */
    float *tp_rows;    /* [3][loss_block] */
    struct wh_net_chunk whole; /* the only chunk, if the shape gives none */
    struct wh_net_hooks hooks;
    const struct wh_vec *vec;
    const struct wh_reduce *reduce; /* joins gradient sums */
    const struct wh_attention_kernels *attention;
    struct wh_gemm_pool pool;
    float attention_scale; /* 1/sqrt(D) */

    struct wh_times times; /* spent since the net was made, or since the caller zeroed them */

    struct wh_arena arena;  /* this process' own memory */
    struct wh_arena shared; /* what collectives touch; empty if alone */
    void *memory;
    size_t memory_bytes;

    /* Flat buffers with the offsets of the parameter table; element e of the line lies at [e - ..._first]. */
    void *weights;          /* compute dtype */
    void *grads;            /* grad_dtype */
    float *master;          /* fp32; is `weights` itself in fp32 runs */
    float *adam_m, *adam_v; /* of the own range */
    struct wh_range own;    /* what this rank updates; alone: the whole line */
    size_t weights_first, grads_first, master_first;
    float *pending;         /* see gradient.h */
    size_t *pending_offset; /* [params + 1] */
    size_t *unit_border;    /* [L + 3]: units of sched/zero.h */
    void **unit_weights;    /* [L + 2]: where a unit's weights are read */
    void **unit_sums;       /* [L + 2]: where its gradient sums are written; NULL if alone. See gradient.h */
    size_t sums_elems;      /* whole sums: from one contribution to the next; 0: by unit */
    /* Positions are cut: sums of the vectors that all tensor ranks hold, over each one's positions (gradient.h). */
    size_t *vector_border; /* [L + 3]: of a line of these vectors alone, by unit */
    size_t *vector_at;     /* [params]: of each its place there */
    void *vector_sums, *vector_rest;
    float *vector_open;
    struct wh_sum_joins joins; /* of the ranks' contributions to sums over the batch */
    uint32_t contributions;    /* the most that a rank has */
    double *norm_partial;      /* [blocks of the gradient norm, of the whole model]: their sums of squares */

    struct wh_net_slot *slot;      /* [act_slots] */
    void **grad;                   /* [grad_slots]: gradient [r, C] of what a chunk has put out, then of what came in */
    struct wh_layer_saved **saved; /* [grad_slots][layers of a chunk], if the backward pass is split */
    void *d_act;                   /* [n, F or H D] while it is: gradient of acts.act, then of attn */
    void *act_out[WH_NET_OUTPUTS], *grad_out[WH_NET_OUTPUTS]; /* [r, C] for other stages, taken in turn */
    uint32_t fresh_slot,
        fresh_layer; /* whose activations the layers' common buffers hold, as its forward pass left them */
    uint32_t read;   /* of the units in the step or evaluation so far */
    float *final_stats;
    void *final_norm; /* [r, C]; its gradient afterwards */
    float *logits;    /* [loss_block, V]; their gradient afterwards */
    uint32_t loss_block;
    double *token_loss;    /* [global_batch * T] */
    double *sequence_loss; /* [micro_batch] of an evaluation */
    double *leaf_loss;     /* [leaves of the batch]: token losses of each leaf of sum_vector, in their order */

    void *
        dx; /* [global_batch * T, C] gradient of the residual stream, at the end that of the embedded tokens; NULL where
                 no embedding is held */
    void *table_copy; /* [V, C] the tied table on a first stage that isn't the last, which owns it; else NULL */
    void *d_norm;     /* [r, C] */

    float *rope_cos, *rope_sin; /* [T, D/2] */
    float *row_scratch;         /* per thread: row_scratch_elems */
    size_t row_scratch_elems;
    float *leaf_scratch;     /* [leaves_max, widest vector] */
    char *attention_scratch; /* per thread */
    size_t attention_scratch_bytes;
    uint32_t *token_order, *token_first; /* tokens of the global batch sorted by id (embed.c) */

    struct wh_net_parts parts_o, parts_down, parts_qkv, parts_up, parts_vocab;
    struct wh_net_sums sum_matrix, sum_head, sum_vector;
    struct wh_net_sums sum_own, sum_groups; /* positions are cut: over this rank's in each group; over the groups */
    const struct wh_param **param;          /* [L + 1][WH_P_COUNT]; row L for tensors outside the layers */
    struct wh_states *states;               /* debug builds: model/state.h */
};

/* Bytes of each ledger row that a net of this shape will take of its own memory, and of the job's (NULL: not asked),
 * without taking them. Errors as wh_net_new. */
enum wh_status wh_net_predict(const struct wh_net_shape *shape, struct wh_arena *own, struct wh_arena *shared);

/* Errors: NOMEM; CONFIG for a kernel name that can't run here. */
enum wh_status wh_net_new(const struct wh_net_shape *shape, struct wh_net *out);
void wh_net_free(struct wh_net *net);

/* Initial weights of the own range, a function of (seed, parameter, element) alone: see init.h. Zeroes the moments. */
void wh_net_init_weights(struct wh_net *net, uint64_t seed);

/* Rounds the own range of the fp32 master to the compute weights (nothing to do in fp32). */
void wh_net_refresh_weights(struct wh_net *net);

/* One micro-batch of a step: `index` counts this rank's own; `grad_scale` = 1 / number of valid labels in the global batch. */
struct wh_net_micro {
    const struct wh_net_batch *batch;
    uint32_t index, step;
    float grad_scale;
};

/* Forward pass of chunk `c` in slot `slot`, whose x[0] is there unless the chunk begins with the embeddings. The result goes
 * to `out` [r, C] (wh_net_stream_elems); NULL with the head, where it stays in the slot. */
enum wh_status wh_net_chunk_forward(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro, uint32_t slot,
                                    void *out);

/* Backward pass: dx [r, C] (wh_net_grad_rows) goes from the gradient of what the chunk has put out to that of what came in;
 * with the head it begins with the loss, token losses go to net->token_loss. For each chunk micro-batches must come in
 * order. Errors: those of the hooks. */
enum wh_status wh_net_chunk_backward(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro, uint32_t slot,
                                     void *dx);

/* The backward pass in two parts. The first leaves in gradient slot `grad_slot` what the second needs; weight gradients of the
 * head belong to the first. */
enum wh_status wh_net_chunk_backward_input(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro,
                                           uint32_t slot, uint32_t grad_slot, void *dx);
enum wh_status wh_net_chunk_backward_weight(struct wh_net *net, uint32_t c, const struct wh_net_micro *micro,
                                            uint32_t slot, uint32_t grad_slot);

/* Where chunk `c` has the gradient of micro-batch `index`: gradient slot `slot`, or, if the chunk is the whole model, its rows
 * of net->dx. */
void *wh_net_grad_rows(const struct wh_net *net, uint32_t c, uint32_t index, uint32_t slot);
/* `dx` is that of the embedded tokens of micro-batch `index`: it goes to its rows of net->dx, unless it is there. */
void wh_net_keep_embedded(struct wh_net *net, uint32_t index, const void *dx);
/* After all of them, where positions are cut: net->dx has those of all positions of this rank's sequences. */
enum wh_status wh_net_gather_embedded(struct wh_net *net);

/* A new step or evaluation: units are read from the first on. */
static inline void wh_net_restart(struct wh_net *net) { net->read = 0; }

/* The units that a pass over a chunk reads, in order (at most L + 3 are written; NULL: only counts); returns how many. The weight
 * part of a backward reads those of layers that it computes again. */
enum wh_net_pass { WH_NET_FORWARD, WH_NET_BACKWARD, WH_NET_BACKWARD_WEIGHT, WH_NET_EVALUATE };
uint32_t wh_net_chunk_reads(const struct wh_net_shape *s, const struct wh_net_chunk *c, enum wh_net_pass pass,
                            uint32_t *units);

/* Both passes of micro-batch `index` with the whole model in this process. Errors: those of the hooks; none without. */
enum wh_status wh_net_train(struct wh_net *net, uint32_t index, const struct wh_net_batch *batch, float grad_scale,
                            uint32_t step);

/* What is left after the last micro-batch, in three parts between which a job of several ranks gathers the others' dx and
 * adds up leaf_loss. First the losses of this rank's leaves (0 for others'); then, with all of net->dx, the gradients (embedding, rounding to
 * bf16); then the sum of the token losses in the contract's order. */
void wh_net_finish_leaves(struct wh_net *net);
void wh_net_finish_gradients(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step);
double wh_net_finish_loss(const struct wh_net *net);

/* All three, alone. */
double wh_net_finish(struct wh_net *net, const struct wh_net_batch *batch, uint32_t step);

/* Forward only of chunk `c` for `sequences` <= micro_batch sequences of `batch`, in slot 0; with the head each one's loss,
 * summed over its valid labels, goes to net->sequence_loss. 0 sequences: takes part in the job's gathers only. Errors:
 * those of the hooks. */
enum wh_status wh_net_chunk_evaluate(struct wh_net *net, uint32_t c, const struct wh_net_batch *batch,
                                     uint32_t sequences, void *out);
/* The same with the whole model in this process. */
enum wh_status wh_net_evaluate(struct wh_net *net, const struct wh_net_batch *batch, uint32_t sequences);

/* Forward of one sequence of `tokens` <= T ids, no loss; writes the logits of its last position, [V]. Alone only. */
void wh_net_logits(struct wh_net *net, const uint32_t *ids, uint32_t tokens, float *logits);

/* What layer `l` keeps for its backward pass; nothing but inputs where there is none. */
static inline enum wh_keep wh_net_keep(const struct wh_net_shape *s, uint32_t l) {
    return s->train && l >= s->full_layers ? s->keep : WH_KEEP_INPUTS;
}

static inline uint32_t wh_net_chunks(const struct wh_net_shape *s) { return s->chunk_count ? s->chunk_count : 1; }
static inline const struct wh_net_chunk *wh_net_chunk(const struct wh_net *net, uint32_t c) {
    return net->shape.chunk_count ? &net->shape.chunks[c] : &net->whole;
}
static inline uint32_t wh_net_tensor_ranks(const struct wh_net_shape *s) {
    return s->tensor.ranks ? s->tensor.ranks : 1;
}
/* Positions are cut: tensor rank t holds [border(t), border(t + 1)) of each sequence of the residual stream, whole chunks of
 * those that sums of vectors are cut in. */
static inline bool wh_net_cuts_stream(const struct wh_net_shape *s) {
    return s->tensor.sequence && wh_net_tensor_ranks(s) > 1;
}
static inline size_t wh_net_stream_border(const struct wh_net_shape *s, uint32_t t) {
    return wh_grain_chunk(s->T, wh_net_tensor_ranks(s), t).begin;
}
/* Tensor ranks gather the gradients of the embedded tokens (wh_net_gather_embedded). */
static inline bool wh_net_gathers_embedded(const struct wh_net *net) {
    return wh_net_cuts_stream(&net->shape) && wh_net_chunk(net, 0)->embed;
}
static inline uint32_t wh_net_ranks(const struct wh_net_shape *s) { return s->data.ranks ? s->data.ranks : 1; }
/* Sequences of the global batch that are this rank's. */
static inline uint32_t wh_net_sequences(const struct wh_net_shape *s) { return s->global_batch / wh_net_ranks(s); }
static inline uint32_t wh_net_first_sequence(const struct wh_net_shape *s) {
    return wh_net_sequences(s) * s->data.rank;
}
/* Groups of grain.data that are this rank's. */
static inline uint32_t wh_net_groups(const struct wh_net_shape *s) { return s->grain.data / wh_net_ranks(s); }
/* Elements of the residual stream that this rank has of a micro-batch. */
static inline size_t wh_net_stream_elems(const struct wh_net_shape *s) {
    const uint32_t t = s->tensor.rank;
    const size_t positions = wh_net_cuts_stream(s) ? wh_net_stream_border(s, t + 1) - wh_net_stream_border(s, t) : s->T;
    return s->micro_batch * positions * s->model->C;
}
/* Borders of the units [L + 3] on a line of the vectors alone whose sums are made over each tensor rank's positions; 0 unless
 * these are cut. */
void wh_net_vector_units(const struct wh_net_shape *s, size_t *border);
static inline bool wh_net_cuts_sum(const struct wh_net_shape *s, const struct wh_param *p) {
    return wh_net_cuts_stream(s) && p->cols == 0 && p->cut == WH_CUT_NONE;
}
/* Format of the nodes of gradient sums, hence of what ranks contribute. */
static inline enum wh_dtype wh_net_sum_dtype(const struct wh_net_shape *s) { return s->grain.wire; }
/* Of the next `sequences` of an evaluation, at most a micro-batch for each data-parallel rank in turn, those of this one. */
static inline uint32_t wh_net_eval_share(const struct wh_net_shape *s, uint64_t sequences) {
    const uint64_t most = s->micro_batch, before = s->data.rank * most;
    return (uint32_t)(sequences <= before ? 0 : sequences - before < most ? sequences - before : most);
}
/* Gradients leave the room they were summed in unit by unit, during the backward pass: where they are kept in parts, or in
 * another format, and no later micro-batch adds to them. */
static inline bool wh_net_by_unit(const struct wh_net_shape *s) {
    return wh_net_ranks(s) > 1 && wh_net_sequences(s) == s->micro_batch &&
           (s->data.zero_stage >= 2 || s->grad_dtype != wh_net_sum_dtype(s));
}
/* net.grads are those of the own range. */
static inline bool wh_net_grads_in_parts(const struct wh_net_shape *s) {
    return wh_net_by_unit(s) && s->data.zero_stage >= 2;
}
/* Tokens whose logits exist at once. */
uint32_t wh_net_loss_block(const struct wh_net_shape *s);

/* How many of a unit's gradient sums are under way at once, layers. */
enum { WH_NET_SUM_SLOTS = 2 };

/* NULL if the model has no such tensor, or this rank doesn't hold it. layer -1: outside the layers. */
static inline const struct wh_param *wh_net_param(const struct wh_net *net, enum wh_param_id id, int layer) {
    return net->param[(layer < 0 ? (int)net->shape.model->L : layer) * WH_P_COUNT + (int)id];
}

/* Of the model's heads, the first that is this tensor rank's. */
static inline size_t wh_net_first_head(const struct wh_net *net) {
    return (size_t)net->shape.tensor.rank * net->local.H;
}

/* The unit (sched/zero.h) that a tensor lies in. */
static inline uint32_t wh_net_unit(const struct wh_net *net, const struct wh_param *p) {
    return wh_params_unit(p, net->shape.model->L);
}

/* From a contribution to the unit's sums to the next one's, in elements. */
static inline size_t wh_net_sums_stride(const struct wh_net *net, uint32_t unit) {
    return net->sums_elems ? net->sums_elems : net->unit_border[unit + 1] - net->unit_border[unit];
}

/* The unit of the rank's line that element `e` lies in. */
static inline uint32_t wh_net_unit_at(const struct wh_net *net, size_t e) {
    uint32_t unit = 0;
    while (e >= net->unit_border[unit + 1]) unit++;
    return unit;
}

/* The compute weights of a tensor, NULL if absent. */
static inline const void *wh_net_weight(const struct wh_net *net, enum wh_param_id id, int layer) {
    const struct wh_param *p = wh_net_param(net, id, layer);
    if (!p) return NULL;
    const uint32_t unit = wh_net_unit(net, p);
    return (const char *)net->unit_weights[unit] +
           (p->offset - net->unit_border[unit]) * wh_dtype_bytes(net->shape.dtype);
}

/* The matrix that turns the last activations into logits: the head, or the token embedding if tied. */
static inline enum wh_param_id wh_net_head_id(const struct wh_net *net) {
    return net->shape.model->tied ? WH_P_EMBED_TOKEN : WH_P_HEAD;
}

#endif
