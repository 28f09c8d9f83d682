#include "coll/draw.h"

#include <inttypes.h>
#include <string.h>

enum { VALUE_CHARS_MAX = 72, ORDER_LINES_MAX = 8 };

struct canvas {
    const struct wh_coll_plan *plan;
    const struct wh_coll_style *style;
    const struct wh_coll_price *price;
    struct wh_text *out;
    int64_t round; /* being drawn */
    int digits;    /* of the last element's number */
    size_t lines, left_out;
};

static void scaled(double value, const char *const *units, double step, struct wh_text *out) {
    size_t u = 0;
    while (units[u + 1] && value >= 0.9995 * step) {
        value /= step;
        u++;
    }
    wh_text_add(out, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[u]);
}

void wh_coll_draw_seconds(double seconds, struct wh_text *out) {
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    scaled(seconds * 1e9, units, 1000, out);
}

void wh_coll_draw_bytes(double bytes, struct wh_text *out) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", NULL};
    if (bytes < 1000)
        wh_text_add(out, "%.0f B", bytes);
    else
        scaled(bytes / 1000, units, 1000, out);
}

static const char *code(const struct canvas *c, const char *ansi) { return c->style->color ? ansi : ""; }

static void draw_round(struct canvas *c, uint32_t round) {
    c->round = round;
    wh_text_add(c->out, "\n%sround %u of %u%s, done after ", code(c, "\033[1m"), round + 1, c->plan->rounds,
                code(c, "\033[0m"));
    wh_coll_draw_seconds(c->price->round_s[round], c->out);
    wh_text_add(c->out, "\n");
}

/* Sums of many ranks are cut; the end of the drawing has them whole. */
static void draw_value(struct canvas *c, const char *value) {
    bool cut = strlen(value) > VALUE_CHARS_MAX;
    wh_text_add(c->out, "%s%.*s%s%s\n", code(c, "\033[36m"), VALUE_CHARS_MAX, value, cut ? "..." : "",
                code(c, "\033[0m"));
}

/* The slice that the elements are, if they are one. */
static void draw_elements(struct canvas *c, const struct wh_coll_event *e) {
    const struct wh_coll_request *q = &c->plan->request;
    bool by_slices = wh_coll_op_adds(q->op) || q->op == WH_COLL_ALL_GATHER;
    wh_text_add(c->out, "elements %*" PRIu64 " .. %*" PRIu64, c->digits, e->elem, c->digits, e->elem + e->count - 1);
    for (uint32_t r = 0; by_slices && r < q->ranks; r++) {
        struct wh_coll_range slice = wh_coll_slice(q, r);
        if (slice.first != e->elem || slice.count != e->count) continue;
        wh_text_add(c->out, " (slice %u)", r);
        return;
    }
}

static void draw_message(struct canvas *c, const struct wh_coll_event *e) {
    const char *arrow = c->style->plain ? "->" : "→";
    wh_text_add(c->out, "  %3u %s%s%s %-3u ", e->step->peer, code(c, "\033[32m"), arrow, code(c, "\033[0m"), e->rank);
    if (e->count == 0) {
        wh_text_add(c->out, "signal\n");
        return;
    }
    draw_elements(c, e);
    wh_text_add(c->out, "  ");
    wh_coll_draw_bytes((double)(e->count * wh_coll_elem_bytes(&c->plan->request, e->step->out.buffer)), c->out);
    wh_text_add(c->out, "  ");
    draw_value(c, e->value);
}

static void draw_local(struct canvas *c, const struct wh_coll_event *e) {
    bool adds = e->step->kind == WH_COLL_ADD, ends = e->step->out.buffer == WH_COLL_OUT;
    wh_text_add(c->out, "  rank %u %s ", e->rank, adds ? "adds" : "copies");
    draw_elements(c, e);
    wh_text_add(c->out, "%s ", ends ? c->style->plain ? " -> result:" : " → result:" : ":");
    draw_value(c, e->value);
}

static void see(void *context, const struct wh_coll_event *e) {
    struct canvas *c = context;
    bool message = e->step->kind == WH_COLL_RECV, near = e->rank == c->style->rank;
    if (message) near = near || e->step->peer == c->style->rank;
    if (c->style->one_rank && !near) return;
    if (c->style->lines_max && c->lines >= c->style->lines_max) {
        c->left_out++;
        return;
    }
    if (c->round != e->step->round) draw_round(c, e->step->round);
    c->lines++;
    if (message)
        draw_message(c, e);
    else
        draw_local(c, e);
}

static void draw_head(struct canvas *c) {
    const struct wh_coll_request *q = &c->plan->request;
    wh_text_add(c->out, "%s%s over %u ranks, %s%s: %s\n", code(c, "\033[1m"), wh_coll_op_name(q->op), q->ranks,
                c->plan->algorithm->name, code(c, "\033[0m"), c->plan->algorithm->summary);
    if (q->op == WH_COLL_BARRIER) return;
    wh_text_add(c->out, "%" PRIu64 " elements of %s, ", q->count, wh_dtype_name(q->dtype));
    wh_coll_draw_bytes((double)q->count * (double)wh_dtype_bytes(q->dtype), c->out);
    if (q->op == WH_COLL_BROADCAST || q->op == WH_COLL_REDUCE) wh_text_add(c->out, "; root %u", q->root);
    if (q->chunks > 1) wh_text_add(c->out, "; %u pieces", q->chunks);
    if (q->in_place) wh_text_add(c->out, "; in place");
    wh_text_add(c->out, "\n%s\n",
                wh_coll_op_adds(q->op) ? "(0 + 1) is the sum of what ranks 0 and 1 put in"
                                       : "the last column is the rank whose input it is");
}

static void draw_totals(struct canvas *c, const struct wh_coll_findings *f) {
    wh_text_add(c->out, "\n%u round%s, %" PRIu64 " messages; the busiest rank sends ", c->plan->rounds,
                c->plan->rounds == 1 ? "" : "s", f->messages);
    wh_coll_draw_bytes((double)f->bytes_max, c->out);
    if (f->adds_max) wh_text_add(c->out, " and adds %" PRIu64 " elements", f->adds_max);
    wh_text_add(c->out, "; predicted ");
    wh_coll_draw_seconds(c->price->seconds, c->out);
    wh_text_add(c->out, "\n");
}

static void draw_orders(struct canvas *c, const struct wh_coll_findings *f) {
    const char *line = f->order_text.data;
    wh_text_add(c->out, "order of summation:\n");
    for (int i = 0; line && *line; i++) {
        const char *end = strchr(line, '\n') + 1;
        if (i == ORDER_LINES_MAX) {
            wh_text_add(c->out, "  ... %u different orders in all\n", f->orders);
            return;
        }
        wh_text_add(c->out, "  %.*s", (int)(end - line), line);
        line = end;
    }
}

static void draw_verdict(struct canvas *c, const struct wh_coll_findings *f) {
    const char *style = code(c, f->canonical ? "\033[32m" : "\033[33m");
    if (wh_coll_op_adds(c->plan->request.op)) draw_orders(c, f);
    wh_text_add(c->out, "%snumbers contract: %s%s\n", style, f->canonical ? "kept" : "not kept", code(c, "\033[0m"));
    if (!wh_coll_op_adds(c->plan->request.op))
        wh_text_add(c->out, "  nothing is added, so bits are copies of bits\n");
    else if (f->canonical)
        wh_text_add(c->out, "  every element is the canonical tree over ranks, on all ranks that get it\n");
    else
        wh_text_add(c->out, "  not every sum is the canonical tree over ranks; %s\n",
                    f->same_on_ranks ? "ranks get equal bits all the same" : "ranks get different bits");
}

enum wh_status wh_coll_draw(const struct wh_coll_plan *p, const struct wh_coll_topology *t,
                            const struct wh_coll_style *style, struct wh_coll_findings *findings,
                            struct wh_coll_price *price, struct wh_text *out) {
    struct wh_coll_price cost;
    struct wh_coll_findings found;
    WH_TRY(wh_coll_price(p, t, &cost));
    struct canvas c = {.plan = p, .style = style, .price = &cost, .out = out, .round = -1, .digits = 1};
    struct wh_coll_watcher watcher = {see, &c};
    for (uint64_t rest = p->request.count; rest > 10; rest /= 10) c.digits++;
    draw_head(&c);
    enum wh_status status = wh_coll_check(p, &watcher, &found);
    if (status != WH_OK) {
        wh_coll_price_free(&cost);
        return status;
    }
    if (c.left_out) wh_text_add(out, "  ... and %zu lines more\n", c.left_out);
    draw_totals(&c, &found);
    draw_verdict(&c, &found);
    if (findings)
        *findings = found;
    else
        wh_coll_findings_free(&found);
    if (price)
        *price = cost;
    else
        wh_coll_price_free(&cost);
    return WH_OK;
}
