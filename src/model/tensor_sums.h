/* What tensor ranks move: each collective described once, for the passes that run it and for run/traffic.h that counts it.
 *
 * A matrix that is cut on its input side, or the input gradient of one that is cut on its output side, gives each rank the
 * subtree sum of its own slices; the ranks' sums are joined by the rest of the canonical tree. What isn't cut (norms,
 * residual stream, dropout) is done by all ranks alike; with sequence parallelism (wh_net_tensor.sequence) each does the rows
 * of its positions: then sums are scattered to the rows' holders, and rows are gathered before a matrix needs all of them.
 *
 *     forward     norm -> GATHER -> cut matrices -> FORWARD sum -> residual
 *     backward    gradient of a sum's result -> GATHER_GRAD -> cut matrices, for whose own gradients their input is gathered
 *                 AGAIN -> BACKWARD sum -> norm */
#ifndef WH_MODEL_TENSOR_SUMS_H
#define WH_MODEL_TENSOR_SUMS_H

#include "comm/comm.h"
#include "model/net.h"

/* X(id, ledger row, the row's name with sequence parallelism; NULL: not there, meaning) */
#define WH_TENSOR_ROWS(X)                                                                                              \
    X(FORWARD, "tp.fwd.all_reduce", "tp.fwd.reduce_scatter", "partial sums of attention and feed-forward outputs")     \
    X(BACKWARD, "tp.bwd.all_reduce", "tp.bwd.reduce_scatter", "partial sums of input gradients")                       \
    X(GATHER, NULL, "tp.fwd.all_gather", "inputs of matrices that are cut on their output side")                       \
    X(GATHER_GRAD, NULL, "tp.bwd.all_gather", "gradients of the outputs of matrices that are cut on their input side") \
    X(AGAIN, NULL, "tp.again.all_gather", "what was gathered before, once more, for the gradients of matrices")        \
    X(EMBED, "tp.embed.all_reduce", "tp.embed.reduce_scatter", "rows of a token table that is cut")                    \
    X(EMBED_GRAD, NULL, "tp.embed.all_gather", "gradients of the embedded tokens")                                     \
    X(HEAD, "tp.head.all_reduce", "tp.head.all_reduce",                                                                \
      "maximum, label's logit and sum of the softmax over a vocabulary that is cut")                                   \
    X(VECTORS, NULL, "tp.grad.all_reduce", "gradients of vectors that all ranks hold, from each one's positions")

enum wh_tensor_row {
#define X(id, name, sequence, meaning) WH_TENSOR_##id,
    WH_TENSOR_ROWS(X)
#undef X
        WH_TENSOR_ROW_COUNT
};

/* NULL: there is no such row. */
const char *wh_tensor_row_name(const struct wh_net_shape *s, enum wh_tensor_row row);

/* The collective of `row` for rows of `tokens` tokens, whole sequences where they are cut, without buffers; in place. `border`
 * [ranks + 1] is room that the call then points to. HEAD: one of `tokens` fp32 numbers. VECTORS: of `tokens` elements. */
struct wh_comm_call wh_tensor_call(const struct wh_net_shape *s, enum wh_tensor_row row, size_t tokens, size_t *border);

/* Which of the rows of `tokens` tokens a rank has of the residual stream: all, or those of its positions, one sequence's behind
 * the other's. */
struct wh_stream {
    size_t rows;
    size_t length, first, stride; /* of a sequence: rows, place of the first, tokens */
};
struct wh_stream wh_stream_of(const struct wh_net *net, size_t tokens);
/* The token of a row. */
static inline size_t wh_stream_token(const struct wh_stream *s, size_t row) {
    return row / s->length * s->stride + s->first + row % s->length;
}

/* Runs g, whose C is [rows of the stream, n <= C] in the compute dtype, with its epilogue of bias and residual (rows of the
 * stream), over all tensor ranks. With one rank: the product alone. */
void wh_tensor_gemm(struct wh_net *net, enum wh_time time, struct wh_gemm *g, enum wh_tensor_row row);
/* The same in two steps, the first for some of the rows, from token `first` on: with one rank it is all there is to do, into
 * g's C; else the second wants g with all rows. */
void wh_tensor_product(struct wh_net *net, enum wh_time time, const struct wh_gemm *g, size_t first);
void wh_tensor_join(struct wh_net *net, const struct wh_gemm *g, enum wh_tensor_row row);

/* All rows [tokens, C] of what this rank has the stream's rows of: those themselves, or gathered into net->tp_full, where they
 * stay until the next call. */
const void *wh_tensor_gather(struct wh_net *net, size_t tokens, const void *rows, enum wh_tensor_row row);

/* In place: rows of net->dx, of which this rank has written those of the stream. */
void wh_tensor_gather_embedded(struct wh_net *net, size_t tokens, void *rows);

/* In place in net->tp_partial: of ranks that hold zeros and one that holds a token's row, the row, bit by bit (so that -0 stays
 * -0), for the rows of the stream. A row begins on a multiple of 4 bytes: wh_tensor_row_words. */
void wh_tensor_select_rows(struct wh_net *net, size_t tokens);
static inline size_t wh_tensor_row_words(const struct wh_net_shape *s) {
    return (s->model->C * wh_dtype_bytes(s->dtype) + 3) / 4;
}

/* The head's sums, extremes and selections of `count` numbers of each rank, in place, in the net's shared memory. */
void wh_tensor_sum(struct wh_net *net, float *values, size_t count);
void wh_tensor_max(struct wh_net *net, float *values, size_t count);
void wh_tensor_select(struct wh_net *net, float *values, size_t count);

/* Sequence parallelism: what a unit's vectors have summed over this rank's positions becomes what all ranks have. */
void wh_tensor_join_vectors(struct wh_net *net, uint32_t unit);

#endif
