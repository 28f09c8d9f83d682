/* Which algorithm to use: builds and prices every candidate on the measured topology and ranks them. There are no
 * thresholds; what is slower today is chosen tomorrow if the measurements say so.
 *
 * Operations that add take part only with plans that keep the numbers contract, unless `fast` is allowed: then all
 * orders do. What needs more work space than there is takes no part. Every rank must ask with equal figures (one rank measures, the others get its topology), so that all choose
 * the same. Cost: all candidates' steps; at start-up. */
#ifndef WH_COLL_SELECT_H
#define WH_COLL_SELECT_H

#include "base/text.h"
#include "coll/cost.h"

struct wh_coll_candidate {
    const struct wh_coll_algorithm *algorithm;
    struct wh_coll_request request; /* with the candidate's chunks and ranks_per_machine */
    bool usable;
    bool canonical;
    double seconds;        /* predicted; not set if the algorithm does not serve the request */
    uint64_t room_bytes;   /* work space of the rank that needs most: its LANDING and PARTIAL */
    struct wh_text reason; /* one line */
};

struct wh_coll_ranking {
    struct wh_coll_candidate *items; /* usable ones first, fastest first; equal times in the table's order */
    size_t count;
};

/* What a choice may take. */
struct wh_coll_limits {
    bool fast;           /* any order of summation */
    uint64_t room_bytes; /* of work space; UINT64_MAX: any */
};

/* Pipelined algorithms are tried with 1, 2, 4, ... pieces and stand with the best; `q->chunks` is not read. The request's
 * ranks_per_machine is the topology's. Errors: UNSUPPORTED (nothing serves the request), NOMEM. */
enum wh_status wh_coll_select(const struct wh_coll_request *q, const struct wh_coll_topology *t,
                              const struct wh_coll_limits *limits, struct wh_coll_ranking *out);
void wh_coll_ranking_free(struct wh_coll_ranking *r);

#endif
