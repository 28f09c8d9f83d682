/* Comparing by hashes what must be equal on several ranks (checks.replicas): replicas of weights, gradients, master weights and
 * moments on data-parallel ranks; what isn't cut, norms and some biases, on tensor ranks (case B22).
 *
 *     WH_TRY(wh_compare_open(comm, wh_traffic_check(&traffic, row), &c));
 *     every now and then, on all ranks:  wh_compare_run(&c, net, step)      // before the update
 *
 * Weights are compared below ZeRO stage 3; gradients, masters and moments, which are shared out from stage 1 on, at stage 0. */
#ifndef WH_RUN_COMPARE_H
#define WH_RUN_COMPARE_H

#include "run/traffic.h"

struct wh_compare {
    struct wh_comm *comm; /* borrowed; NULL: nobody to compare with */
    bool uncut;           /* tensors that aren't cut alone, whose places may differ */
    uint64_t *hashes;     /* [ranks * WH_TRAFFIC_HASHES] */
    struct wh_comm_plan *plan;
};

/* `call` gathers WH_TRAFFIC_HASHES hashes of each rank. A group of one compares nothing. Errors: NOMEM, CONFIG. */
enum wh_status wh_compare_open(struct wh_comm *comm, struct wh_comm_call call, bool uncut, struct wh_compare *out);
void wh_compare_close(struct wh_compare *c);

/* Errors: INTERNAL naming what differs and where, PEER. */
enum wh_status wh_compare_run(struct wh_compare *c, struct wh_net *net, uint64_t step);

#endif
