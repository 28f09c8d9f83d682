/* The chart as an SVG document. */
#include <inttypes.h>

#include "sched/draw.h"

enum { ROW = 26, GAP = 6, LEFT = 70, RIGHT = 190, TOP = 60, BOTTOM = 50, LEGEND = 190, CHART_MAX = 12000 };

struct svg {
    const struct wh_sched_plan *plan;
    const struct wh_sched_cost *cost;
    const struct wh_sched_timing *timing;
    double unit, scale; /* pixels per unit of the cost's time */
    int chart;          /* pixels that the makespan takes */
    struct wh_text *out;
};

static const char head[] =
    "<style>text{font:12px sans-serif;fill:#222}.t{font-weight:bold}.l{font-size:11px;text-anchor:middle}"
    ".f{fill:#a8c8f0}.b{fill:#a9dcb0}.w{fill:#f5d78e}.f,.b,.w{stroke:#444;stroke-width:.6}"
    ".i{fill:url(#idle)}.m{stroke:#999;stroke-width:.6}</style>\n"
    "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">"
    "<rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/><line x2=\"0\" y2=\"6\" stroke=\"#ccc\" stroke-width=\"2\"/>"
    "</pattern></defs>\n";

/* Pixels of a block that holds such a label, in the wider ones of common fonts. */
static double label_width(const struct wh_text *label) { return 8.0 * (double)label->bytes + 6; }

static int row_y(uint32_t rank) { return TOP + (int)rank * (ROW + GAP); }

static char class_of(uint16_t op) { return op == WH_SCHED_FORWARD ? 'f' : op == WH_SCHED_BACKWARD_WEIGHT ? 'w' : 'b'; }

static void draw_block(struct svg *g, uint32_t rank, const struct wh_sched_instr *i, double start) {
    struct wh_text label = {0};
    double took = wh_sched_duration(g->cost, (enum wh_sched_op)i->op);
    double x = LEFT + start * g->scale, width = took * g->scale;
    wh_sched_block_label(&g->plan->shape, i, &label);
    wh_text_add(g->out, "<rect class=\"%c\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">", class_of(i->op), x,
                row_y(rank), width, ROW);
    wh_text_add(g->out, "<title>%s on rank %" PRIu32 ", %g to %g</title></rect>", label.data, rank, start / g->unit,
                (start + took) / g->unit);
    if (width + 0.01 >= label_width(&label)) /* rounded */
        wh_text_add(g->out, "<text class=\"l\" x=\"%.2f\" y=\"%d\">%s</text>", x + width / 2, row_y(rank) + 17,
                    label.data);
    wh_text_add(g->out, "\n");
    wh_text_fini(&label);
}

static void draw_rank(struct svg *g, uint32_t rank) {
    const struct wh_sched_program *p = &g->plan->rank[rank];
    const struct wh_sched_timeline *t = &g->timing->rank[rank];
    double makespan = g->timing->makespan;
    wh_text_add(g->out, "<text x=\"8\" y=\"%d\">rank %" PRIu32 "</text>", row_y(rank) + 17, rank);
    wh_text_add(g->out, "<rect class=\"i\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, row_y(rank),
                g->chart, ROW);
    for (size_t i = 0; i < p->count; i++)
        if (wh_sched_computes((enum wh_sched_op)p->instrs[i].op)) draw_block(g, rank, &p->instrs[i], t->start[i]);
    wh_text_add(g->out, "<text x=\"%d\" y=\"%d\">keeps %" PRIu32 ", idle %.2f %%</text>\n", LEFT + g->chart + 10,
                row_y(rank) + 17, p->resident, makespan > 0 ? 100 * (makespan - t->busy) / makespan : 0.0);
}

static void draw_legend(struct svg *g, int y) {
    bool splits = false;
    for (size_t i = 0; i < g->plan->rank[0].count; i++)
        splits |= g->plan->rank[0].instrs[i].op == WH_SCHED_BACKWARD_WEIGHT;
    const char *names[] = {"F forward", splits ? "B backward, input part" : "B backward", "W backward, weight part"};
    int x = LEFT;
    for (int i = 0; i < 2 + splits; i++, x += LEGEND)
        wh_text_add(
            g->out,
            "<rect class=\"%c\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
            "fbw"[i], x, y, x + 20, y + 12, names[i]);
    wh_text_add(g->out,
                "<rect class=\"i\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/><text x=\"%d\" y=\"%d\">idle</text>\n",
                x, y, x + 20, y + 12);
}

/* Lines at about ten round times. */
static void draw_times(struct svg *g, int bottom) {
    double end = g->timing->makespan / g->unit, step = 1;
    while (end / step > 12) step *= 10;
    if (end / step < 3) step /= 5;
    for (int n = 0; n * step <= end && n < 100; n++) {
        double x = LEFT + n * step * g->unit * g->scale;
        wh_text_add(g->out, "<line class=\"m\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\"/>", x, x, TOP - 6, bottom);
        wh_text_add(g->out, "<text class=\"l\" x=\"%.2f\" y=\"%d\">%g</text>\n", x, TOP - 10, n * step);
    }
}

/* Of a forward: the longest label fits, "F12b". */
static double forward_width(const struct wh_sched_plan *p) {
    const struct wh_sched_instr last = {.op = WH_SCHED_FORWARD, .micro_batch = p->shape.micro_batches - 1};
    struct wh_text label = {0};
    wh_sched_block_label(&p->shape, &last, &label);
    const double width = label_width(&label);
    wh_text_fini(&label);
    return width > ROW ? width : ROW;
}

void wh_sched_svg(const struct wh_sched_plan *p, const struct wh_sched_cost *c, const struct wh_sched_timing *t,
                  double unit, struct wh_text *out) {
    struct svg g = {p, c, t, unit, .out = out};
    int bottom = row_y(p->shape.ranks);
    g.scale = forward_width(p) / (c->forward > 0 ? c->forward : 1);
    if (t->makespan * g.scale > CHART_MAX) g.scale = CHART_MAX / t->makespan;
    g.chart = (int)(t->makespan * g.scale + 0.5);
    int width = LEFT + g.chart + RIGHT, height = bottom + BOTTOM;
    if (width < LEFT + 4 * LEGEND) width = LEFT + 4 * LEGEND;
    wh_text_add(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
                width, height, width, height);
    wh_text_add(out, "<title>Pipeline schedule %s, %" PRIu32 " ranks, %" PRIu32 " micro-batches</title>\n%s",
                p->generator ? p->generator->name : "of a file", p->shape.ranks, p->shape.micro_batches, head);
    wh_text_add(out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
    wh_text_add(out,
                "<text class=\"t\" x=\"8\" y=\"22\">%s: %" PRIu32 " ranks, %" PRIu32 " micro-batches, %" PRIu32
                " chunk%s per rank; takes %g, idle %.2f %%</text>\n",
                p->generator ? p->generator->name : "own schedule", p->shape.ranks, p->shape.micro_batches,
                p->shape.chunks, p->shape.chunks > 1 ? "s" : "", t->makespan / unit, 100 * t->idle);
    draw_times(&g, bottom);
    for (uint32_t r = 0; r < p->shape.ranks; r++) draw_rank(&g, r);
    draw_legend(&g, bottom + 14);
    wh_text_add(out, "</svg>\n");
}
