/* Times what the ranks of a group do together: batches of calls between barriers, the figures agreed on by all.
 *
 *     WH_TRY(wh_time_coll_open(comm, &timer));                      // in every member
 *     const struct wh_time_coll_what what = {.run = operation, .context = &o, .seconds = 0.1};
 *     WH_TRY(wh_time_coll_run(&timer, &what, &t));                  // in every member, in the same order
 *     wh_time_coll_close(&timer);
 *
 * A batch is as many calls as take about 0.1 ms. They follow each other behind one barrier, so that neither it nor the clock's
 * resolution show. Or, with `rewrite`, each call is timed by itself behind a barrier of its own, after its input has been
 * written, so that it lies in its writer's caches as that of a step does. */
#ifndef WH_RUN_TIME_COLL_H
#define WH_RUN_TIME_COLL_H

#include "comm/comm.h"

enum { WH_TIME_COLL_BATCHES_MAX = 1000 };

struct wh_time_coll {
    struct wh_comm *comm;
    struct wh_comm_plan *barrier, *largest;
    uint64_t
        until_ns;    /* on wh_clock_ns: after it the fewest batches will do, one; 0: never. Each member's own affair */
    double agree[4]; /* in and out of `largest`: stays where it is */
    double us[WH_TIME_COLL_BATCHES_MAX];
};

struct wh_time_coll_what {
    enum wh_status (*run)(void *context);
    void *context;
    void *rewrite; /* zeros into every line of it before each call, not timed; NULL: nothing */
    size_t rewrite_bytes;
    double seconds; /* about how long; five batches at the least */
    uint32_t calls; /* in one batch and no more; 0: batches until the seconds are over */
    bool
        from_first_to_last; /* else: of the slowest member. For what members do alone: those that share a processor take turns */
};

struct wh_time_coll_result {
    double median_us, least_us; /* of the batches, per call; equal on all members */
};

/* Local. Errors: those of wh_comm_plan_make. `out` must not move. */
enum wh_status wh_time_coll_open(struct wh_comm *comm, struct wh_time_coll *out);
void wh_time_coll_close(struct wh_time_coll *t); /* also of what was never opened, if zeroed */

int wh_time_coll_ascending(const void *a, const void *b); /* doubles, for qsort */

/* Whether `until_ns` is over for any member: the same answer for all. Errors: those of comm. */
enum wh_status wh_time_coll_late(struct wh_time_coll *t, bool *late);

/* Errors: those of the run, of comm. */
enum wh_status wh_time_coll_run(struct wh_time_coll *t, const struct wh_time_coll_what *what,
                                struct wh_time_coll_result *out);

#endif
