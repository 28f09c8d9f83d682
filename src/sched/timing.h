/* When each instruction of a plan happens, if every chunk takes the same time and messages take none.
 *
 * Ranks execute their programs with bounded queues: a SEND waits while `depth` messages of its queue haven't been received,
 * a RECV while there is none. With depth 0 a SEND waits until it is received (rendezvous). Each queue has one sender and one
 * receiver, so the result doesn't depend on the order in which ranks are looked at: one execution proves that the programs
 * end, or shows who waits for whom for ever; and a plan that ends with some depth ends with every greater one. */
#ifndef WH_SCHED_TIMING_H
#define WH_SCHED_TIMING_H

#include "sched/program.h"

struct wh_sched_timeline {
    double *start;  /* [count] of the program; the end is start + wh_sched_duration */
    double end;     /* of the last instruction */
    double busy;    /* time spent computing */
    size_t reached; /* instructions done; the program's count unless stuck */
};

struct wh_sched_timing {
    struct wh_sched_timeline *rank; /* [ranks] */
    uint32_t ranks;
    bool stuck;
    double makespan; /* from 0 to the end of the last rank */
    double idle;     /* share of ranks * makespan in which nothing is computed */
    double overhead; /* the same time as a share of the time spent computing */
};

/* Time of one instruction; 0 for those that don't compute. */
double wh_sched_duration(const struct wh_sched_cost *c, enum wh_sched_op op);

/* `p` must be such that every message's peer is the neighbour wh_sched_peer names (assert). Cost: linear in the number of
 * instructions. Free with wh_sched_timing_free. Errors: NOMEM. */
enum wh_status wh_sched_time(const struct wh_sched_plan *p, const struct wh_sched_cost *c, uint32_t depth,
                             struct wh_sched_timing *out);
void wh_sched_timing_free(struct wh_sched_timing *t);

#endif
