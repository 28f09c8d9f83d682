#include "sched/draw.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 1 << 16 }; /* of the whole chart */

struct canvas {
    const struct wh_sched_plan *plan;
    const struct wh_sched_cost *cost;
    const struct wh_sched_timing *timing;
    const struct wh_sched_style *style;
    double unit, columns_per_time;
    uint32_t width;    /* columns of the whole chart */
    uint32_t cell;     /* of the shortest block */
    uint32_t from, to; /* columns of the strip being drawn */
    int margin;        /* columns before it: "rank 12  " */
    char *cells;       /* [width] of one rank */
    uint8_t *ops;      /* [width] 1 + operation, 0: idle; for colours */
    struct wh_text *out;
};

void wh_sched_block_label(const struct wh_sched_shape *s, const struct wh_sched_instr *i, struct wh_text *out) {
    size_t at = out->bytes;
    wh_sched_label(s, i, out);
    if (i->op == WH_SCHED_BACKWARD_INPUT) out->data[at] = 'B';
}

static int digits_of(uint32_t n) { return n < 10 ? 1 : 1 + digits_of(n / 10); }

/* The shortest block that takes any time. */
static double shortest(const struct wh_sched_plan *p, const struct wh_sched_cost *c) {
    double least = 0;
    for (size_t i = 0; i < p->rank[0].count; i++) {
        double d = wh_sched_duration(c, (enum wh_sched_op)p->rank[0].instrs[i].op);
        if (d > 0 && (least == 0 || d < least)) least = d;
    }
    return least;
}

static uint32_t column(const struct canvas *c, double time) {
    double at = floor(time * c->columns_per_time + 0.5);
    return at < c->width ? (uint32_t)at : c->width;
}

/* So that every block holds its label and a blank. */
static void set_scale(struct canvas *c) {
    const struct wh_sched_shape *s = &c->plan->shape;
    double block = shortest(c->plan, c->cost);
    c->cell = (uint32_t)(2 + digits_of(s->micro_batches - 1) + (s->chunks > 1));
    c->columns_per_time = block > 0 ? c->cell / block : 1;
    double width = ceil(c->timing->makespan * c->columns_per_time);
    if (width > COLUMNS_MAX) c->columns_per_time *= COLUMNS_MAX / width;
    c->width = width < 1 ? 1 : width > COLUMNS_MAX ? COLUMNS_MAX : (uint32_t)width;
    c->margin = 7 + digits_of(s->ranks - 1);
}

static void lay_block(struct canvas *c, const struct wh_sched_instr *i, double start) {
    struct wh_text label = {0};
    double took = wh_sched_duration(c->cost, (enum wh_sched_op)i->op);
    uint32_t from = column(c, start), to = column(c, start + took);
    if (to <= c->from || from >= c->to) return;
    wh_sched_block_label(&c->plan->shape, i, &label);
    for (uint32_t k = from; k < to; k++) {
        uint32_t n = k - from;
        c->cells[k] = n < label.bytes ? label.data[n] : k + 1 == to ? ' ' : '-';
        c->ops[k] = (uint8_t)(1 + i->op);
    }
    wh_text_fini(&label);
}

static void lay_rank(struct canvas *c, uint32_t rank) {
    const struct wh_sched_program *p = &c->plan->rank[rank];
    memset(c->cells, ' ', c->width);
    memset(c->ops, 0, c->width);
    for (uint32_t k = 0; k < c->width; k += c->cell) c->cells[k] = '.';
    for (size_t i = 0; i < p->count; i++)
        if (wh_sched_computes((enum wh_sched_op)p->instrs[i].op))
            lay_block(c, &p->instrs[i], c->timing->rank[rank].start[i]);
}

static const char *color_of(uint8_t op) {
    switch (op) {
    case 1 + WH_SCHED_FORWARD:
        return "\033[44;97m";
    case 1 + WH_SCHED_BACKWARD:
    case 1 + WH_SCHED_BACKWARD_INPUT:
        return "\033[42;30m";
    case 1 + WH_SCHED_BACKWARD_WEIGHT:
        return "\033[43;30m";
    default:
        return "\033[0m";
    }
}

static void draw_cells(struct canvas *c) {
    uint32_t from = c->from, to = c->to;
    if (!c->style->color) {
        while (to > from && c->cells[to - 1] == ' ') to--;
        wh_text_add_bytes(c->out, c->cells + from, to - from);
        return;
    }
    for (uint32_t k = from; k < to; k++) {
        bool gap = c->ops[k] && c->cells[k] == ' '; /* the blank between blocks keeps them apart */
        uint8_t now = gap ? 0 : c->ops[k], before = k == from ? 0 : c->ops[k - 1];
        if (k > from && before && c->cells[k - 1] == ' ') before = 0;
        if (now != before) wh_text_add(c->out, "%s", color_of(now));
        wh_text_add_bytes(c->out, c->cells + k, 1);
    }
    wh_text_add(c->out, "\033[0m");
}

/* A mark at round times, at least 12 columns apart. */
static void draw_times(struct canvas *c) {
    static const int steps[] = {1, 2, 5};
    double step = 1;
    uint32_t at = c->from;
    for (int i = 0; step * c->unit * c->columns_per_time < 12; i++) step = steps[(i + 1) % 3] * pow(10, (i + 1) / 3);
    wh_text_add(c->out, "%*s", c->margin, "time  ");
    for (double n = ceil(c->from / (c->columns_per_time * c->unit * step));; n++) {
        uint32_t k = column(c, n * step * c->unit);
        size_t before = c->out->bytes;
        if (k + 8 > c->to) break;
        if (k < at) continue;
        wh_text_add(c->out, "%*s%g", (int)(k - at), "", n * step);
        at = k + (uint32_t)(c->out->bytes - before) - (k - at);
    }
    wh_text_add(c->out, "\n");
}

void wh_sched_draw(const struct wh_sched_plan *p, const struct wh_sched_cost *cost, const struct wh_sched_timing *t,
                   double unit, const struct wh_sched_style *style, struct wh_text *out) {
    struct canvas c = {.plan = p, .cost = cost, .timing = t, .style = style, .unit = unit, .out = out};
    set_scale(&c);
    uint32_t strip = c.width;
    if (style->columns) strip = style->columns > (uint32_t)c.margin + 20 ? style->columns - (uint32_t)c.margin : 20;
    if (style->columns) strip -= strip % c.cell; /* no block is cut where all are equal */
    c.cells = malloc(c.width);
    c.ops = malloc(c.width);
    WH_ASSERT(c.cells && c.ops);
    for (uint32_t from = 0; from < c.width; from += strip) {
        c.from = from;
        c.to = c.width - from > strip ? from + strip : c.width;
        if (from) wh_text_add(out, "\n");
        draw_times(&c);
        for (uint32_t r = 0; r < p->shape.ranks; r++) {
            lay_rank(&c, r);
            wh_text_add(out, "rank %*" PRIu32 "  ", c.margin - 7, r);
            draw_cells(&c);
            wh_text_add(out, "\n");
        }
    }
    free(c.cells);
    free(c.ops);
}
