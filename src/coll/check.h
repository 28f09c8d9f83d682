/* Proves a plan, or says what is wrong with it, by running it for all ranks on symbols instead of numbers.
 *
 * A plan is right if
 *   - its lists are in the order of plan.h and name only ranks, rounds and elements that exist; IN is never written;
 *   - every message sent in a round is received in it, and the other way about, with one length and one format (so no
 *     rank can wait for ever: round k waits for sends of round k only); nothing is received where something else is
 *     received or sent from in that round;
 *   - nothing is read before it was written, LANDING and PARTIAL above all;
 *   - every element of every rank's OUT ends with what the operation says: each rank's input exactly once, or the input
 *     of the rank it should come from; sums are rounded once. A barrier ends with everyone having heard of everyone.
 *
 * It also finds the order of every sum. Cost: as many operations as steps (times a logarithm), whatever the count. */
#ifndef WH_COLL_CHECK_H
#define WH_COLL_CHECK_H

#include "base/text.h"
#include "coll/plan.h"

struct wh_coll_findings {
    /* For operations that don't add all three are true. */
    bool canonical;            /* every sum is the contract's tree over ranks (base/tree.h) */
    bool same_on_ranks;        /* elements that several ranks end with have one order: equal bits */
    bool same_for_elements;    /* all elements have one order */
    uint32_t orders;           /* different orders of summation */
    struct wh_text order_text; /* a line for each stretch: "elements 0 .. 124: ((0 + 1) + 2)"; the first 64 */
    uint64_t messages, bytes;  /* sent by all ranks */
    uint64_t bytes_max;        /* sent by the rank that sends most */
    uint64_t adds_max;         /* elements added by the rank that adds most */
};

/* What happened in a RECV (`rank` is the receiver), COPY or ADD: `count` elements of the vector from `elem` on came to be
 * `value`, "(0 + 1)" for the sum of two ranks' inputs. In an all-to-all `elem` counts in the input of the rank named by
 * `value`. Called in order of rounds, with one stretch after the other. */
struct wh_coll_event {
    const struct wh_coll_step *step;
    uint32_t rank;
    uint64_t elem, count;
    const char *value;
};

struct wh_coll_watcher {
    void (*see)(void *context, const struct wh_coll_event *event);
    void *context;
};

/* `watcher` may be NULL. Errors: INTERNAL, with all that is wrong in the first faulty round or at the end; NOMEM. Free with
 * wh_coll_findings_free after success. */
enum wh_status wh_coll_check(const struct wh_coll_plan *p, const struct wh_coll_watcher *watcher,
                             struct wh_coll_findings *out);
void wh_coll_findings_free(struct wh_coll_findings *f);

#endif
