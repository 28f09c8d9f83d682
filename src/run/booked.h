/* Calls of comm whose time goes to the ledger row time.comm of a net. */
#ifndef WH_RUN_BOOKED_H
#define WH_RUN_BOOKED_H

#include "comm/comm.h"
#include "model/rows.h"

static inline enum wh_status wh_booked_start(struct wh_net *net, struct wh_comm_plan *plan) {
    const uint64_t since = wh_clock_ns();
    const enum wh_status status = wh_comm_start(plan);
    wh_net_book(net, WH_TIME_COMM, since);
    return status;
}

static inline enum wh_status wh_booked_wait(struct wh_net *net, struct wh_comm_plan *plan) {
    const uint64_t since = wh_clock_ns();
    const enum wh_status status = wh_comm_wait(plan);
    wh_net_book(net, WH_TIME_COMM, since);
    return status;
}

static inline enum wh_status wh_booked_run(struct wh_net *net, struct wh_comm_plan *plan) {
    WH_TRY(wh_booked_start(net, plan));
    return wh_booked_wait(net, plan);
}

#endif
