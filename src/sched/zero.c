#include "sched/zero.h"

#include <stdlib.h>

enum { SLOTS_OUTSIDE = 2 };

static uint32_t tail_unit(const struct wh_zero_plan *p) { return p->units - 1; }

/* Cuts [first, end), whose gradients are complete with `unit`, from its end down; `out` NULL: only counts. */
static uint32_t cut(size_t first, size_t end, uint32_t unit, size_t most, struct wh_zero_bucket *out) {
    uint32_t count = 0;
    for (; end > first; count++) {
        const size_t begin = end - first > most ? end - most : first;
        if (out) out[count] = (struct wh_zero_bucket){begin, end, unit};
        end = begin;
    }
    return count;
}

/* Buckets in the order in which the backward pass completes them: behind the layers, a tied table, the layers from the
 * last down. Layers that fit a bucket together share one. */
static uint32_t make_buckets(const struct wh_zero_shape *s, const size_t *border, struct wh_zero_bucket *out) {
    const uint32_t tail = s->layers + 1;
    uint32_t count = cut(border[tail], border[tail + 1], tail, s->bucket_elems, out);
    if (s->tied) count += cut(0, s->table_elems, tail, s->bucket_elems, out ? out + count : NULL);
    for (uint32_t last = s->layers; last >= 1;) {
        uint32_t first = last;
        while (!s->by_unit && first > 1 && border[last + 1] - border[first - 1] <= s->bucket_elems) first--;
        count += cut(border[first], border[last + 1], first, s->bucket_elems, out ? out + count : NULL);
        last = first - 1;
    }
    return count;
}

enum wh_status wh_zero_plan_new(const struct wh_zero_shape *shape, struct wh_zero_plan *out) {
    struct wh_zero_plan p = {.shape = *shape, .units = shape->layers + 2};
    WH_ASSERT(shape->bucket_elems >= 1 && shape->prefetch <= WH_ZERO_AHEAD_MAX);
    p.slots = shape->stage == 3 ? SLOTS_OUTSIDE + shape->prefetch + 1 : p.units;
    p.bucket_count = make_buckets(shape, shape->unit_border, NULL);
    p.bucket = calloc(p.bucket_count, sizeof *p.bucket);
    p.held = calloc(p.slots, sizeof *p.held);
    p.shape.unit_border = NULL;
    if (!p.bucket || !p.held) {
        wh_zero_plan_free(&p);
        return WH_FAIL(WH_NOMEM, "no memory for a plan of %u buckets", p.bucket_count);
    }
    make_buckets(shape, shape->unit_border, p.bucket);
    for (uint32_t i = 0; i < p.slots; i++) p.held[i] = shape->stage == 0 ? i : WH_ZERO_NOTHING;
    *out = p;
    return WH_OK;
}

void wh_zero_plan_free(struct wh_zero_plan *p) {
    free(p->bucket);
    free(p->held);
    *p = (struct wh_zero_plan){0};
}

uint32_t wh_zero_reads(const struct wh_zero_plan *p, bool train) {
    return p->units + (train ? p->shape.layers : 0);
}

uint32_t wh_zero_read(const struct wh_zero_plan *p, uint32_t i) {
    return i < p->units ? i : p->shape.layers - (i - p->units);
}

uint32_t wh_zero_slot(const struct wh_zero_plan *p, uint32_t unit) {
    if (p->shape.stage < 3) return unit;
    if (unit == 0) return 0;
    if (unit == tail_unit(p)) return p->shape.tied ? 1 : 0; /* a tied table stays until the head has read it */
    return SLOTS_OUTSIDE + (unit - 1) % (p->shape.prefetch + 1);
}

uint32_t wh_zero_need(struct wh_zero_plan *p, bool train, uint32_t i, uint32_t *units) {
    const uint32_t reads = wh_zero_reads(p, train);
    uint32_t count = 0;
    for (uint32_t k = i; k < reads && k <= i + p->shape.prefetch; k++) {
        const uint32_t unit = wh_zero_read(p, k), slot = wh_zero_slot(p, unit);
        if (p->held[slot] == unit) continue;
        /* a slot that a read between now and then still wants is not given away */
        if (k > i && slot == wh_zero_slot(p, wh_zero_read(p, i))) break;
        p->held[slot] = unit;
        units[count++] = unit;
    }
    return count;
}

void wh_zero_updated(struct wh_zero_plan *p) {
    if (p->shape.stage == 0) return;
    for (uint32_t i = 0; i < p->slots; i++) p->held[i] = WH_ZERO_NOTHING;
}
