/* What a rank moves: the collectives and messages of a run, each described once, for the engine (run/replica.h,
 * run/pipeline.h) that makes and starts them and for the prediction that counts their calls and bytes without running
 * anything.
 *
 *     struct wh_traffic t;
 *     WH_TRY(wh_traffic_new(&stage, bucket_bytes, &t));
 *     for each step:          wh_traffic_step(&t, with_check);
 *     for each validation:    wh_traffic_evaluate(&t, sequences);
 *     t.row[i].calls, t.row[i].sent_bytes                    // what wh_comm_rows will say of this rank
 *     wh_traffic_free(&t);
 *
 * Bytes are those that a rank sends with private memory and the direct algorithm (wh_comm_call_bytes). */
#ifndef WH_RUN_TRAFFIC_H
#define WH_RUN_TRAFFIC_H

#include "comm/comm.h"
#include "model/tensor_sums.h"
#include "run/stage.h"

/* X(id, name, meaning); besides those of tensor ranks (model/tensor_sums.h) */
#define WH_TRAFFIC_ROWS(X)                                                                                         \
    X(GRADS, "dp.grad.all_reduce", "gradients, in buckets; from stage 1 on dp.grad.reduce_scatter")                \
    X(WEIGHTS, "dp.weight.all_gather", "weights from their owners (stage 1 on)")                                   \
    X(EMBED, "dp.embed.all_gather", "gradients of the embedded tokens")                                            \
    X(CHECK, "dp.check.all_gather", "hashes of what must be equal on replicas")                                    \
    X(CHECK_UNCUT, "tp.check.all_gather", "hashes of what isn't cut on tensor ranks")                              \
    X(ACT, "pp.act.send", "activations to the next stage")                                                         \
    X(GRAD, "pp.grad.send", "their gradients to the stage before")                                                 \
    X(EMBED_MOVE, "pp.embed.send", "gradients of the embedded tokens, to the last stage, which owns a tied table") \
    X(TABLE_MOVE, "pp.table.send", "the tied table after its update, to the first stage")                          \
    X(LOSS, "loss.all_reduce", "losses of the leaves of the batch, 0 where another rank has them")                 \
    X(NORM, "norm.all_reduce", "partial sums of the gradient norm, 0 where another rank has them")                 \
    X(EVAL, "eval.all_reduce", "losses of an evaluation's sequences, 0 where another rank has them")

enum wh_traffic_row {
#define X(id, name, meaning) WH_TRAFFIC_##id,
    WH_TRAFFIC_ROWS(X)
#undef X
#define X(id, name, sequence, meaning) WH_TRAFFIC_TP_##id,
        WH_TENSOR_ROWS(X)
#undef X
            WH_TRAFFIC_COUNT,
    WH_TRAFFIC_TENSOR = WH_TRAFFIC_TP_FORWARD /* the first of tensor ranks */
};

struct wh_traffic {
    const struct wh_stage *stage; /* borrowed */
    struct wh_zero_plan zero;
    struct wh_sum_joins joins;
    size_t *unit_border, *vector_border; /* [L + 3], the second of wh_net_vector_units */
    size_t norm_blocks;                  /* of the whole model */
    bool table_fresh;                    /* the first stage has the table as it is now */
    struct {
        uint64_t calls, sent_bytes;
    } row[WH_TRAFFIC_COUNT];
};

/* Errors: NOMEM. */
enum wh_status wh_traffic_new(const struct wh_stage *stage, uint64_t bucket_bytes, struct wh_traffic *out);
void wh_traffic_free(struct wh_traffic *t);

/* NULL: a run of this kind has no such row. */
const char *wh_traffic_row_name(const struct wh_traffic *t, enum wh_traffic_row row);

/* The calls, without buffers. `border` [dp + 1] and `sum` are room that the call then points to. */
struct wh_comm_call wh_traffic_bucket(const struct wh_traffic *t, uint32_t bucket, size_t *border,
                                      struct wh_comm_sum *sum);
struct wh_comm_call wh_traffic_unit(const struct wh_traffic *t, uint32_t unit, size_t *border);
struct wh_comm_call wh_traffic_embed(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_loss(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_norm(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_eval(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_check(const struct wh_traffic *t, enum wh_traffic_row row); /* CHECK or CHECK_UNCUT */
/* A message of a micro-batch's activations or gradients; of this rank's rows of the embedded tokens; of a tied table. */
struct wh_comm_call wh_traffic_message(const struct wh_traffic *t, enum wh_traffic_row row, bool sends, uint32_t peer);

enum { WH_TRAFFIC_HASHES = 5 }; /* weights, gradients, master weights, first and second moments */

/* Which ranks add their partial sums of the norm: those that own different parameters. */
enum wh_mesh_axis wh_traffic_norm_axis(const struct wh_traffic *t);

/* Counts. An evaluation of so many sequences; with weights owned in parts the units that are old are gathered. */
void wh_traffic_step(struct wh_traffic *t, bool with_check);
void wh_traffic_evaluate(struct wh_traffic *t, uint64_t sequences);

#endif
