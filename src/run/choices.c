#include "run/choices.h"

#include <string.h>

struct list {
    struct wh_choice *items;
    uint32_t count;
};

static void add(struct list *l, const char *row, const struct wh_comm_plan *plan) {
    if (!plan) return;
    for (uint32_t i = 0; i < l->count; i++) {
        struct wh_choice *c = &l->items[i];
        if (strcmp(c->row, row) != 0 || strcmp(wh_comm_plan_way(c->largest), wh_comm_plan_way(plan)) != 0) continue;
        if (wh_comm_plan_bytes(plan) > wh_comm_plan_bytes(c->largest)) c->largest = plan;
        c->plans++;
        return;
    }
    WH_ASSERT(l->count < WH_CHOICES_MAX); /* 3 rows of at most 8 ways */
    l->items[l->count++] = (struct wh_choice){row, 1, plan};
}

uint32_t wh_choices(const struct wh_replica *r, struct wh_choice out[WH_CHOICES_MAX]) {
    struct list l = {.items = out};
    for (uint32_t b = 0; b < r->plan->zero.bucket_count; b++)
        add(&l, wh_traffic_row_name(r->plan, WH_TRAFFIC_GRADS), r->bucket[b]);
    for (uint32_t u = 0; r->unit && u < r->plan->zero.units; u++)
        add(&l, wh_traffic_row_name(r->plan, WH_TRAFFIC_WEIGHTS), r->unit[u]);
    add(&l, wh_traffic_row_name(r->plan, WH_TRAFFIC_EMBED), r->embed);
    return l.count;
}

void wh_choice_describe(const struct wh_choice *c, struct wh_text *out) {
    wh_text_add(out, "%s", c->row);
    if (c->plans > 1) wh_text_add(out, ", %u, the largest", c->plans);
    wh_text_add(out, ": ");
    wh_comm_plan_describe(c->largest, out);
}
