/* The pipeline of a run: the programs of its ranks, which layers each stage has, and so which tensors a rank holds. Read by
 * the ranks (run/stage.h) and by what shows a layout without running it (plan/layout.h): the stages shown are those that run.
 *
 *     struct wh_sched_plan plan;
 *     WH_TRY(wh_stages_plan(&config, &plan));
 *     WH_TRY(wh_stages_borders(&config, &plan.shape, border));
 *
 * The configuration has passed its check. */
#ifndef WH_PLAN_STAGES_H
#define WH_PLAN_STAGES_H

#include "arch/params.h"
#include "config/config.h"
#include "sched/program.h"

/* Programs of all ranks of a pipeline: of the user's file, or generated. One rank without a file runs forward and backward in
 * turn, whatever pp_engine says. Free with wh_sched_plan_free. Errors: CONFIG, NOMEM. */
enum wh_status wh_stages_plan(const struct wh_config *c, struct wh_sched_plan *out);

/* Ranks, chunks and placement, without making programs. Errors: CONFIG, NOMEM (of the user's file). */
enum wh_status wh_stages_shape(const struct wh_config *c, struct wh_sched_shape *out);

/* Proves the plan (sched/check.h) with the queues that ranks have. Errors: INTERNAL: a generator is wrong. */
enum wh_status wh_stages_prove(const struct wh_sched_plan *p);

/* What layers are shared out by if parallelism.pp_layers doesn't say it. COST: multiply-adds of a forward pass, head
 * included, so that stages take equally long; where that is less than 5 % better than stages that differ by at most a layer,
 * these (case B17). What-ifs: LAYERS: their number alone; BLOCKS: embedding and head count as a
 * layer each. */
enum wh_stages_balance { WH_BALANCE_COST, WH_BALANCE_LAYERS, WH_BALANCE_BLOCKS };

/* Stage s of the pipeline has the layers [border[s], border[s + 1]); [stages + 1]. Errors: CONFIG (fewer layers than stages),
 * NOMEM. */
enum wh_status wh_stages_borders(const struct wh_config *c, const struct wh_sched_shape *s, size_t *border);
enum wh_status wh_stages_what_if(const struct wh_config *c, const struct wh_sched_shape *s,
                                 enum wh_stages_balance balance, size_t *border);

/* The rank at place `rank` of the pipeline holds `p` as its own. A tied table is the last stage's; if that is on another rank
 * than the first (wh_stages_copy_table), the first has a copy of it besides. */
bool wh_stages_hold(const struct wh_config *c, const struct wh_sched_shape *s, const size_t *border, uint32_t rank,
                    const struct wh_param *p);
static inline bool wh_stages_copy_table(bool tied, const struct wh_sched_shape *s) {
    return tied && wh_sched_stage_rank(s, wh_sched_stages(s) - 1) != 0;
}

/* Appends one line: "stages: layers 0-3 | 4-7; 1f1b, 8 micro-batches, ranks idle 11.1 % of a step if ..., micro-batches kept
 * 2 | 1". Errors: NOMEM. */
enum wh_status wh_stages_describe(const struct wh_config *c, const struct wh_sched_plan *p, const size_t *border,
                                  struct wh_text *out);

#endif
