/* The data-parallel side of a rank: carries out sched/zero.h around the passes of a net, by the collectives of
 * run/traffic.h.
 *
 *     struct wh_replica r;
 *     WH_TRY(wh_replica_open(&net, team->dp, bucket_bytes, &r));  // sets net.hooks; net.shape.data says who we are
 *     for each step:
 *         for each micro-batch: wh_net_train(...)                 // hooks gather weights, reduce gradients
 *         WH_TRY(wh_replica_finish(&r, &batch, step, &loss));     // net.grads are those of the whole batch
 *         WH_TRY(wh_replica_norm(&r, &adamw, &norm));
 *         wh_adamw_update(...); wh_replica_updated(&r);
 *     wh_replica_close(&r);
 *
 * Every rank of the group makes the same calls in the same order. Nothing is allocated after opening. Errors of all calls:
 * PEER. */
#ifndef WH_RUN_REPLICA_H
#define WH_RUN_REPLICA_H

#include "optim/adamw.h"
#include "run/traffic.h"

struct wh_replica {
    struct wh_net *net;   /* borrowed */
    struct wh_comm *comm; /* borrowed */
    struct wh_comm_job *job;
    struct wh_traffic plan;
    struct wh_comm_plan **unit;   /* [units]: gathers its weights; NULL at stage 0 */
    struct wh_comm_plan **bucket; /* [buckets] */
    struct wh_comm_plan *embed, *loss, *norm, *eval;
    bool *coming;           /* [units]: its gather is under way */
    uint32_t started, kept; /* buckets of this step: started; finished, and in net->grads */
    double *eval_loss;      /* [ranks * micro-batch] */
    uint64_t *hashes;       /* [ranks * WH_TRAFFIC_HASHES] */
    struct wh_comm_plan *compare;
};

/* Errors: NOMEM, CONFIG. */
enum wh_status wh_replica_open(struct wh_net *net, struct wh_comm_job *job, struct wh_comm *dp, uint64_t bucket_bytes,
                               struct wh_replica *out);
void wh_replica_close(struct wh_replica *r);

/* After the last micro-batch: waits for the gradients, completes them, and the loss summed over the whole batch. */
enum wh_status wh_replica_finish(struct wh_replica *r, const struct wh_net_batch *batch, uint32_t step, double *loss);

/* Norm of the whole gradient, from the parts of all owners. adamw's partials lie in net->norm_partial. */
enum wh_status wh_replica_norm(struct wh_replica *r, struct wh_adamw *adamw, double *norm);

/* This rank has changed the weights that it owns. */
void wh_replica_updated(struct wh_replica *r);

/* Losses of ranks * micro-batch sequences, each rank's `sequences` (0 .. micro-batch) of them in `batch`; those of all
 * ranks, in the order of ranks, are in r->eval_loss afterwards. */
enum wh_status wh_replica_evaluate(struct wh_replica *r, const struct wh_net_batch *batch, uint32_t sequences);

/* Compares by a hash what must be equal on all ranks, between finish and update: weights below stage 3; gradients,
 * masters and moments at stage 0. Errors: INTERNAL naming what differs and where, PEER. */
enum wh_status wh_replica_compare(struct wh_replica *r, uint64_t step);

#endif
