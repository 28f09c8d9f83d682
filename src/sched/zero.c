#include "sched/zero.h"

#include <stdlib.h>

enum { SLOTS_OUTSIDE = 2 };

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
        while (!s->by_unit && first > 1 && border[first - 1] < border[first] &&
               border[last + 1] - border[first - 1] <= s->bucket_elems)
            first--;
        count += cut(border[first], border[last + 1], first, s->bucket_elems, out ? out + count : NULL);
        last = first - 1;
    }
    return count;
}

/* Slots by unit; the number of slots. */
static uint32_t assign_slots(const struct wh_zero_shape *s, uint32_t *slot) {
    const uint32_t units = s->layers + 2, tail = units - 1;
    uint32_t layer = 0;
    for (uint32_t u = 0; u < units && s->stage < 3; u++) slot[u] = u;
    if (s->stage < 3) return units;
    slot[0] = 0;
    slot[tail] = s->tied ? 1 : 0; /* a tied table stays until the head has read it */
    for (uint32_t u = 1; u < tail; u++) {
        slot[u] = SLOTS_OUTSIDE + layer % (s->prefetch + 1);
        if (s->unit_border[u] < s->unit_border[u + 1]) layer++;
    }
    return SLOTS_OUTSIDE + s->prefetch + 1;
}

enum wh_status wh_zero_plan_new(const struct wh_zero_shape *shape, struct wh_zero_plan *out) {
    struct wh_zero_plan p = {.shape = *shape, .units = shape->layers + 2};
    WH_ASSERT(shape->bucket_elems >= 1 && shape->prefetch <= WH_ZERO_AHEAD_MAX);
    p.bucket_count = make_buckets(shape, shape->unit_border, NULL);
    p.bucket = calloc(p.bucket_count, sizeof *p.bucket);
    p.slot = calloc(p.units, sizeof *p.slot);
    p.held = calloc((size_t)p.units + SLOTS_OUTSIDE + shape->prefetch + 1, sizeof *p.held);
    p.reads = calloc((size_t)shape->train_count + shape->eval_count + 1, sizeof *p.reads);
    p.shape.unit_border = NULL, p.shape.train = p.shape.eval = NULL;
    if (!p.bucket || !p.held || !p.slot || !p.reads) {
        wh_zero_plan_free(&p);
        return WH_FAIL(WH_NOMEM, "no memory for a plan of %u buckets", p.bucket_count);
    }
    make_buckets(shape, shape->unit_border, p.bucket);
    p.slots = assign_slots(shape, p.slot);
    for (uint32_t i = 0; i < shape->train_count; i++) p.reads[i] = shape->train[i];
    for (uint32_t i = 0; i < shape->eval_count; i++) p.reads[shape->train_count + i] = shape->eval[i];
    for (uint32_t i = 0; i < p.slots; i++) p.held[i] = shape->stage == 0 ? i : WH_ZERO_NOTHING;
    *out = p;
    return WH_OK;
}

void wh_zero_plan_free(struct wh_zero_plan *p) {
    free(p->bucket);
    free(p->held);
    free(p->slot);
    free(p->reads);
    *p = (struct wh_zero_plan){0};
}

uint32_t wh_zero_reads(const struct wh_zero_plan *p, bool train) {
    return train ? p->shape.train_count : p->shape.eval_count;
}

uint32_t wh_zero_read(const struct wh_zero_plan *p, bool train, uint32_t i) {
    return p->reads[train ? i : p->shape.train_count + i];
}

uint32_t wh_zero_slot(const struct wh_zero_plan *p, uint32_t unit) { return p->slot[unit]; }

/* Does one of the reads [i, k) use the slot, for another unit? */
static bool is_wanted(const struct wh_zero_plan *p, bool train, uint32_t i, uint32_t k, uint32_t slot) {
    for (; i < k; i++)
        if (p->slot[wh_zero_read(p, train, i)] == slot) return true;
    return false;
}

uint32_t wh_zero_need(struct wh_zero_plan *p, bool train, uint32_t i, uint32_t *units) {
    const uint32_t reads = wh_zero_reads(p, train);
    uint32_t count = 0;
    for (uint32_t k = i; k < reads && k <= i + p->shape.prefetch; k++) {
        const uint32_t unit = wh_zero_read(p, train, k), slot = p->slot[unit];
        if (p->held[slot] == unit) continue;
        if (is_wanted(p, train, i, k, slot)) break;
        p->held[slot] = unit;
        units[count++] = unit;
    }
    return count;
}

bool wh_zero_take(struct wh_zero_plan *p, uint32_t unit) {
    const bool old = p->held[p->slot[unit]] != unit;
    p->held[p->slot[unit]] = unit;
    return old;
}

void wh_zero_updated(struct wh_zero_plan *p) {
    if (p->shape.stage == 0) return;
    for (uint32_t i = 0; i < p->slots; i++) p->held[i] = WH_ZERO_NOTHING;
}
