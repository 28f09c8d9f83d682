/* A schedule as pictures: for terminals and as SVG. What is drawn is the programs, executed (timing.h).
 *
 *     rank 0  F0 F1 F2 F3 .  .  .  .  .  B0 -- F4 B1 -- ...      a block begins where its label stands
 *
 * With more than one chunk per rank the label ends in the chunk's letter; B is the whole backward or its input part, W the
 * weight part. */
#ifndef WH_SCHED_DRAW_H
#define WH_SCHED_DRAW_H

#include "base/text.h"
#include "sched/timing.h"

struct wh_sched_style {
    bool color;       /* ANSI colours */
    uint32_t columns; /* of a line; longer charts are cut into strips, one below the other. 0: no limit */
};

/* Appends the chart: a line per rank in every strip, and above it the time, in units of `unit` of the cost's. */
void wh_sched_draw(const struct wh_sched_plan *p, const struct wh_sched_cost *c, const struct wh_sched_timing *t,
                   double unit, const struct wh_sched_style *style, struct wh_text *out);

/* Appends a whole SVG document with a title, a legend, resident micro-batches and idle share per rank. Colours come with
 * letters and hatching; no scripts, fonts or links. */
void wh_sched_svg(const struct wh_sched_plan *p, const struct wh_sched_cost *c, const struct wh_sched_timing *t,
                  double unit, struct wh_text *out);

/* "F3b": what the chart writes on a block. */
void wh_sched_block_label(const struct wh_sched_shape *s, const struct wh_sched_instr *i, struct wh_text *out);

#endif
