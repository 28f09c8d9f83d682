/* One rank at work: runs its program of instructions (sched/program.h) on its net, moves what goes between stages, and leaves
 * to run/replica.h what goes between data-parallel ranks. One rank alone runs the same way, with a program of forward and
 * backward passes only.
 *
 *     struct wh_engine e;
 *     WH_TRY(wh_engine_open(&stage, &net, team, bucket_bytes, &e));      // in place: it points into itself
 *     for each step:
 *         WH_TRY(wh_engine_step(&e, &batch, grad_scale, step, &loss));  // net.grads are those of the whole batch
 *         WH_TRY(wh_engine_norm(&e, &adamw, &norm));
 *         wh_adamw_update(...); wh_engine_updated(&e);
 *     wh_engine_close(&e);
 *
 * All ranks of the run make the same calls. Nothing is allocated after opening. Errors of all calls: PEER. */
#ifndef WH_RUN_ENGINE_H
#define WH_RUN_ENGINE_H

#include "optim/adamw.h"
#include "run/compare.h"
#include "run/replica.h"
#include "run/trace.h"

enum wh_engine_kind { WH_ENGINE_ACT, WH_ENGINE_GRAD, WH_ENGINE_KINDS };
enum { WH_ENGINE_PEERS = 2 }; /* the next rank of the pipeline, and the one before */

/* Buffers that a kind of message leaves from, in turn. */
struct wh_engine_outputs {
    struct wh_comm_plan *send[WH_NET_OUTPUTS][WH_ENGINE_PEERS];
    struct wh_comm_plan *busy[WH_NET_OUTPUTS]; /* under way; NULL: free */
    uint32_t current;                          /* being filled, or full */
};

struct wh_engine {
    const struct wh_stage *stage; /* borrowed, as net and team */
    struct wh_net *net;
    const struct wh_team *team; /* NULL: alone */
    struct wh_traffic plan;
    struct wh_replica replica; /* .net NULL: no data-parallel peers */
    struct wh_compare replicas, uncut;
    struct wh_engine_outputs out[WH_ENGINE_KINDS];
    struct wh_comm_plan **receive[WH_ENGINE_KINDS]; /* [slots][WH_ENGINE_PEERS] */
    struct wh_comm_plan *loss, *norm, *eval, *embed_move, *table_move;
    double *eval_loss;                  /* [dp * micro-batch] */
    bool table_fresh;                   /* the first stage has the tied table as it is now */
    struct wh_trace *trace;             /* borrowed; NULL: nobody watches. The owner sets it */
    char (*note)[WH_LAUNCH_NOTE_BYTES]; /* [instructions of the program] for whoever asks what this rank does */
};

/* Errors: NOMEM, CONFIG. */
enum wh_status wh_engine_open(const struct wh_stage *stage, struct wh_net *net, const struct wh_team *team,
                              uint64_t bucket_bytes, struct wh_engine *out);
void wh_engine_close(struct wh_engine *e);

/* Gradients of a whole batch, and the sum of its token losses. */
enum wh_status wh_engine_step(struct wh_engine *e, const struct wh_net_batch *batch, float grad_scale, uint32_t step,
                              double *loss);

/* Norm of the whole gradient, from the parts of all ranks. adamw's partials lie in net->norm_partial. */
enum wh_status wh_engine_norm(struct wh_engine *e, struct wh_adamw *adamw, double *norm);

/* Between a step's gradients and their use: what ranks have more than one of is the same on all of them (run/compare.h). */
enum wh_status wh_engine_compare(struct wh_engine *e, uint64_t step);

/* This rank has changed the weights that it owns. */
void wh_engine_updated(struct wh_engine *e);

/* Losses of `sequences` <= dp * micro-batch sequences of `batch`: *losses has them in order, on all ranks. */
enum wh_status wh_engine_evaluate(struct wh_engine *e, const struct wh_net_batch *batch, uint32_t sequences,
                                  const double **losses);

#endif
