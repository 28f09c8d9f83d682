/* A plan as text for people: round by round who sends what to whom, what is added to what, when it is done by the model,
 * and the order of summation that results. What is drawn comes out of the checker's run, so a drawn plan is a proved one.
 *
 *     round 1 of 4, done after 1.20 us
 *       0 -> 1   elements 256 .. 511 (slice 1)   1024 B   (0 + 3)
 *       ...
 *       rank 1 adds elements 256 .. 511 (slice 1): ((0 + 3) + 1)
 */
#ifndef WH_COLL_DRAW_H
#define WH_COLL_DRAW_H

#include "coll/check.h"
#include "coll/cost.h"

struct wh_coll_style {
    bool plain;    /* ASCII only */
    bool color;    /* ANSI colours */
    bool one_rank; /* only lines that `rank` has a part in */
    uint32_t rank;
    size_t lines_max; /* of rounds; then a line says how many were left out. 0: no limit */
};

/* Appends to `out`. `findings` and `price` may be NULL; if not they are filled and the caller frees them. Errors: those of
 * wh_coll_check and wh_coll_price. */
enum wh_status wh_coll_draw(const struct wh_coll_plan *p, const struct wh_coll_topology *t,
                            const struct wh_coll_style *style, struct wh_coll_findings *findings,
                            struct wh_coll_price *price, struct wh_text *out);

/* "1.20 us", "3.50 ms": three digits and a unit. */
void wh_coll_draw_seconds(double seconds, struct wh_text *out);
/* Bytes likewise: "512 B", "33.6 MB" (powers of ten). */
void wh_coll_draw_bytes(double bytes, struct wh_text *out);

#endif
