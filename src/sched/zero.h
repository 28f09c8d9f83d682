/* What data-parallel ranks move in a step, and when: which pieces of the gradients are reduced after which unit's backward
 * pass, which units' weights are gathered before they are read. Read by the engine (run/replica), which carries it out,
 * and by the ledger, which counts it.
 *
 * The flat line of parameters is cut into units: 0 the embeddings, 1 .. L the layers, L + 1 what lies behind them (final
 * norm, head); a stage of a pipeline holds some of them, the others are empty. A step reads their weights in an order that
 * the caller gives, and lookahead follows it; alone in the pipeline, for each micro-batch
 *
 *     0  1 .. L | L+1  L .. 1          forward | loss and backward (layers are still in their slots where the direction turns)
 *
 * Stages (owners: consecutive ranges of the line, arch/owners.h):
 *     0   gradients all-reduced                         everybody updates everything
 *     1   gradients reduce-scattered to their owners    owners update; weights all-gathered in place before their first use
 *     2   as 1; gradients outside the own range are given back after each bucket
 *     3   as 2; weights gathered into slots before each use: one for what lies outside the layers, prefetch + 1 for layers
 *
 * Gradients of the embeddings are not reduced here but for a tied table's part from the head: they are summed from the
 * gathered gradients of the embedded tokens (model/embed.c).
 *
 * Pure; allocates in wh_zero_plan_new only. */
#ifndef WH_SCHED_ZERO_H
#define WH_SCHED_ZERO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct wh_zero_shape {
    uint32_t stage; /* 0 .. 3 */
    uint32_t layers;
    const size_t *unit_border; /* [layers + 3], elements of the flat line; read by wh_zero_plan_new only */
    bool tied;                 /* the head is the token table, the first `table_elems` of unit 0 */
    size_t table_elems;
    size_t bucket_elems;          /* most elements reduced at once; >= 1 */
    uint32_t prefetch;            /* units gathered ahead; at most WH_ZERO_AHEAD_MAX */
    bool by_unit;                 /* a bucket never reaches over a unit's border: its room is given back (stage 2, 3) */
    const uint32_t *train, *eval; /* units in the order in which a step, and an evaluation, read them; copied */
    uint32_t train_count, eval_count;
};

/* Elements [first, end) of the line are reduced once the gradients of `unit` are complete, in the order of the list. */
struct wh_zero_bucket {
    size_t first, end;
    uint32_t unit;
};

struct wh_zero_plan {
    struct wh_zero_shape shape; /* its unit_border is not kept */
    struct wh_zero_bucket *bucket;
    uint32_t bucket_count;
    uint32_t units, slots;
    uint32_t *reads; /* of a step, then of an evaluation */
    uint32_t *slot;  /* [units] */
    uint32_t *held;  /* [slots]: the unit whose current weights are there; WH_ZERO_NOTHING. State, not plan */
};

enum { WH_ZERO_NOTHING = UINT32_MAX / 2, WH_ZERO_AHEAD_MAX = 1024 };

/* Errors: NOMEM. From stage 1 on the plan starts with nothing held: each owner has loaded or made its own part. */
enum wh_status wh_zero_plan_new(const struct wh_zero_shape *shape, struct wh_zero_plan *out);
void wh_zero_plan_free(struct wh_zero_plan *p);

/* How many units a step or an evaluation reads, and the i-th of them. */
uint32_t wh_zero_reads(const struct wh_zero_plan *p, bool train);
uint32_t wh_zero_read(const struct wh_zero_plan *p, bool train, uint32_t i);

/* Where a unit's weights stand when they are gathered. Stage 3: 0 and 1 outside the layers, from 2 on the layers that are
 * held, in turn; below stage 3 every unit has its own place. */
uint32_t wh_zero_slot(const struct wh_zero_plan *p, uint32_t unit);

/* Read number `i` of a step or an evaluation is about to happen: writes the units to gather now, in order: its own, if its
 * slot holds something else, and those of the next `prefetch` reads whose slots no read before them needs. Marks them held.
 * At most prefetch + 1 are written to `units`; returns how many. */
uint32_t wh_zero_need(struct wh_zero_plan *p, bool train, uint32_t i, uint32_t *units);

/* The unit is wanted out of turn: true if it must be gathered. Marks it held. */
bool wh_zero_take(struct wh_zero_plan *p, uint32_t unit);

/* Owners have changed their weights: what other ranks hold is old. */
void wh_zero_updated(struct wh_zero_plan *p);

#endif
