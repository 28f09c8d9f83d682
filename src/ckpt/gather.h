/* How the rank that writes a checkpoint gets at what other ranks hold: it asks for one piece after the other in the order
 * of the file, and the others answer. Private to this folder.
 *
 *     rank 0                                        the others
 *     wh_ckpt_gather_sign(&g)                       wh_ckpt_gather_serve(view) {
 *       "still here" ------- ckpt.ask ------------->    hears it
 *     wh_ckpt_gather_piece(&g, ...)
 *       "[a, b) of adam_m" - ckpt.ask ------------->    finds it in its slab
 *                 <--------- ckpt.send -------------    sends it
 *     wh_ckpt_gather_end(view, status)
 *       "that was all" ----- ckpt.ask ------------->    returns what rank 0 tells
 *       status, message ---- ckpt.end (broadcast) -> }
 *
 * So a failure of rank 0, at any point, ends everybody's save with the next word: nobody has sent what nobody takes.
 *
 * A rank's part of a tensor is a rectangle, in the rank's line as in the tensor row by row: what it has of a run of the
 * tensor is one range of its line. So one ask and one answer bring all its rows or columns of a piece, and those who answer
 * know no tensors. */
#ifndef WH_CKPT_GATHER_H
#define WH_CKPT_GATHER_H

#include "ckpt/checkpoint.h"

enum wh_ckpt_class { WH_CKPT_WEIGHTS, WH_CKPT_ADAM_M, WH_CKPT_ADAM_V, WH_CKPT_CLASSES };

struct wh_ckpt_gather {
    const struct wh_ckpt_view *view;
    float *piece;  /* the last one that wasn't in place */
    float *answer; /* of one rank */
    bool *filled;  /* [elements of the piece] */
};

void wh_ckpt_gather_begin(const struct wh_ckpt_view *view, struct wh_ckpt_gather *out);
void wh_ckpt_gather_free(struct wh_ckpt_gather *g);

/* To all others, at least once for each tensor: without a word they hold rank 0 for dead after the job's deadline. */
enum wh_status wh_ckpt_gather_sign(const struct wh_ckpt_gather *g);

/* Elements of tensor number `tensor` of the model from `at` on: in place as far as this rank keeps them, else at most 1 MiB
 * that lasts until the next call. Errors: PEER, INTERNAL if there are elements that no rank keeps. */
enum wh_status wh_ckpt_gather_piece(const struct wh_ckpt_gather *g, enum wh_ckpt_class class, size_t tensor, size_t at,
                                    const float **data, size_t *elems);

/* Tells all others how the save ended; returns `status`, its error record untouched, or that they couldn't be told. */
enum wh_status wh_ckpt_gather_end(const struct wh_ckpt_view *view, enum wh_status status);

/* All ranks but rank 0. */
enum wh_status wh_ckpt_gather_serve(const struct wh_ckpt_view *view);

#endif
