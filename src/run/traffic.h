/* What a data-parallel rank moves: the collectives of a run, each described once, for the engine (run/replica.h) that makes
 * and starts them and for the prediction that counts their calls and bytes without running anything.
 *
 *     struct wh_traffic t;
 *     WH_TRY(wh_traffic_new(&shape, bucket_bytes, &t));
 *     for each step:          wh_traffic_step(&t, false);
 *     for each validation:    wh_traffic_evaluate(&t, passes);
 *     t.row[i].calls, t.row[i].sent_bytes                    // what wh_comm_rows will say of this rank
 *     wh_traffic_free(&t);
 *
 * Bytes are those that a rank sends with private memory and the direct algorithm (wh_comm_call_bytes). */
#ifndef WH_RUN_TRAFFIC_H
#define WH_RUN_TRAFFIC_H

#include "comm/comm.h"
#include "model/net.h"

enum wh_traffic_row {
    WH_TRAFFIC_GRADS,   /* dp.grad.all_reduce, dp.grad.reduce_scatter (stage 1 on) */
    WH_TRAFFIC_WEIGHTS, /* dp.weight.all_gather */
    WH_TRAFFIC_EMBED,   /* dp.embed.all_gather: gradients of the embedded tokens */
    WH_TRAFFIC_LOSS,    /* dp.loss.all_gather */
    WH_TRAFFIC_NORM,    /* dp.norm.all_reduce: partial sums of the gradient norm (stage 1 on) */
    WH_TRAFFIC_EVAL,    /* dp.eval.all_gather */
    WH_TRAFFIC_CHECK,   /* dp.check.all_gather: hashes of what must be equal */
    WH_TRAFFIC_COUNT
};

struct wh_traffic {
    struct wh_net_shape shape; /* borrows what it borrows */
    struct wh_zero_plan zero;
    struct wh_sum_joins joins;
    size_t *unit_border; /* [L + 3] */
    size_t norm_blocks;
    struct {
        uint64_t calls, sent_bytes;
    } row[WH_TRAFFIC_COUNT];
};

/* shape->data.ranks > 1. Errors: NOMEM. */
enum wh_status wh_traffic_new(const struct wh_net_shape *shape, uint64_t bucket_bytes, struct wh_traffic *out);
void wh_traffic_free(struct wh_traffic *t);

const char *wh_traffic_row_name(const struct wh_traffic *t, enum wh_traffic_row row);

/* The calls, without buffers. `border` [ranks + 1] and `sum` are room that the call then points to. */
struct wh_comm_call wh_traffic_bucket(const struct wh_traffic *t, uint32_t bucket, size_t *border,
                                      struct wh_comm_sum *sum);
struct wh_comm_call wh_traffic_unit(const struct wh_traffic *t, uint32_t unit, size_t *border);
struct wh_comm_call wh_traffic_embed(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_loss(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_norm(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_eval(const struct wh_traffic *t);
struct wh_comm_call wh_traffic_check(const struct wh_traffic *t);

enum { WH_TRAFFIC_HASHES = 5 }; /* weights, gradients, master weights, first and second moments */

/* Counts. An evaluation of `passes` forward passes; with weights owned in parts the units that are old are gathered. */
void wh_traffic_step(struct wh_traffic *t, bool with_check);
void wh_traffic_evaluate(struct wh_traffic *t, uint64_t passes);

#endif
