#include "coll/symbolic.h"

#include <stdlib.h>
#include <string.h>

#include "base/tree.h"

static uint32_t hash(uint32_t left, uint32_t right, bool rounded) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u + rounded;
    return (uint32_t)(h >> 32);
}

static uint32_t *slot_of(const struct wh_coll_expressions *e, uint32_t left, uint32_t right, bool rounded) {
    for (uint32_t at = hash(left, right, rounded);; at++) {
        uint32_t *slot = &e->slots[at & (e->slot_count - 1)];
        if (*slot == 0) return slot;
        const struct wh_coll_expression *x = &e->items[*slot - 1];
        if (x->left == left && x->right == right && x->rounded == rounded) return slot;
    }
}

/* At most half of the slots are used. */
static bool grow(struct wh_coll_expressions *e) {
    if (e->count < e->capacity) return true;
    uint32_t capacity = e->capacity ? 2 * e->capacity : 64, slot_count = 2 * capacity;
    struct wh_coll_expression *items = realloc(e->items, capacity * sizeof *items);
    if (items) e->items = items;
    uint32_t *slots = calloc(slot_count, sizeof *slots);
    if (!items || !slots) {
        free(slots);
        return false;
    }
    free(e->slots);
    e->slots = slots;
    e->slot_count = slot_count;
    e->capacity = capacity;
    for (uint32_t i = e->ranks; i < e->count; i++)
        *slot_of(e, e->items[i].left, e->items[i].right, e->items[i].rounded) = i + 1;
    return true;
}

bool wh_coll_expressions_init(struct wh_coll_expressions *e, uint32_t ranks) {
    *e = (struct wh_coll_expressions){.ranks = ranks};
    for (; e->count < ranks; e->count++) {
        if (!grow(e)) return false;
        e->items[e->count] = (struct wh_coll_expression){.left = e->count, .right = e->count, .leaves = 1};
    }
    return grow(e);
}

void wh_coll_expressions_free(struct wh_coll_expressions *e) {
    free(e->items);
    free(e->slots);
    *e = (struct wh_coll_expressions){0};
}

uint32_t wh_coll_expression_add(struct wh_coll_expressions *e, uint32_t left, uint32_t right, bool rounded) {
    if (left == UINT32_MAX || right == UINT32_MAX || !grow(e)) return UINT32_MAX;
    uint32_t *slot = slot_of(e, left, right, rounded);
    if (*slot) return *slot - 1;
    const struct wh_coll_expression *l = &e->items[left], *r = &e->items[right];
    uint64_t leaves = (uint64_t)l->leaves + r->leaves;
    e->items[e->count] = (struct wh_coll_expression){
        .left = left,
        .right = right,
        .leaves = leaves > UINT32_MAX ? UINT32_MAX : (uint32_t)leaves,
        .rounded = rounded,
        .rounded_inside = l->rounded || r->rounded || l->rounded_inside || r->rounded_inside,
    };
    *slot = ++e->count;
    return e->count - 1;
}

/* Marks the inputs under `id`; false if one was marked before. Visits as many nodes as there are leaves. */
static bool mark(const struct wh_coll_expressions *e, uint32_t id, bool *seen) {
    while (id >= e->ranks) {
        if (!mark(e, e->items[id].left, seen)) return false;
        id = e->items[id].right;
    }
    if (seen[id]) return false;
    seen[id] = true;
    return true;
}

bool wh_coll_expression_is_whole(struct wh_coll_expressions *e, uint32_t id) {
    struct wh_coll_expression *x = &e->items[id];
    if (x->asked) return x->once;
    bool *seen = x->leaves == e->ranks ? calloc(e->ranks, sizeof *seen) : NULL;
    x->once = seen && mark(e, id, seen);
    x->asked = true;
    free(seen);
    return x->once;
}

uint32_t wh_coll_expression_canonical(struct wh_coll_expressions *e, bool rounded) {
    uint32_t stack[WH_TREE_DEPTH_MAX], depth = 0;
    for (uint32_t i = 0; i < e->ranks; i++) {
        stack[depth++] = i;
        for (unsigned m = wh_tree_merges(i, e->ranks); m > 0; m--, depth--)
            stack[depth - 2] = wh_coll_expression_add(e, stack[depth - 2], stack[depth - 1],
                                                      rounded && i + 1 == e->ranks && depth == 2);
    }
    return stack[0];
}

void wh_coll_expression_text(const struct wh_coll_expressions *e, uint32_t id, struct wh_text *out) {
    if (id < e->ranks) {
        wh_text_add(out, "%u", id);
        return;
    }
    wh_text_add(out, "(");
    wh_coll_expression_text(e, e->items[id].left, out);
    wh_text_add(out, " + ");
    wh_coll_expression_text(e, e->items[id].right, out);
    wh_text_add(out, ")");
}

static bool reserve(struct wh_coll_stretch **items, size_t *capacity, size_t wanted) {
    if (wanted <= *capacity) return true;
    size_t larger = wanted > 2 * *capacity ? wanted : 2 * *capacity;
    struct wh_coll_stretch *longer = realloc(*items, larger * sizeof *longer);
    if (!longer) return false;
    *items = longer;
    *capacity = larger;
    return true;
}

bool wh_coll_stretches_push(struct wh_coll_stretches *list, const struct wh_coll_stretch *s) {
    struct wh_coll_stretch *last = list->count ? &list->items[list->count - 1] : NULL;
    if (last && last->id == s->id && last->first + last->count == s->first && last->elem + last->count == s->elem) {
        last->count += s->count;
        return true;
    }
    if (!reserve(&list->items, &list->capacity, list->count + 1)) return false;
    list->items[list->count++] = *s;
    return true;
}

/* First stretch that ends behind `at`. */
static size_t find(const struct wh_coll_memory *m, uint64_t at) {
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->items[middle].first + m->items[middle].count > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The part of `s` from `begin` to `end`. */
static struct wh_coll_stretch clip(const struct wh_coll_stretch *s, uint64_t begin, uint64_t end) {
    uint64_t first = s->first > begin ? s->first : begin;
    uint64_t last = s->first + s->count < end ? s->first + s->count : end;
    return (struct wh_coll_stretch){first, last - first, s->elem + (first - s->first), s->id};
}

enum wh_coll_read wh_coll_memory_read(const struct wh_coll_memory *m, uint64_t first, uint64_t count,
                                      struct wh_coll_stretches *out) {
    uint64_t at = first, end = first + count;
    out->count = 0;
    for (size_t i = find(m, first); at < end; i++) {
        if (i == m->count || m->items[i].first > at) return WH_COLL_UNWRITTEN;
        struct wh_coll_stretch s = clip(&m->items[i], at, end);
        at += s.count;
        s.first -= first;
        if (!wh_coll_stretches_push(out, &s)) return WH_COLL_READ_NO_MEMORY;
    }
    return WH_COLL_READ;
}

bool wh_coll_memory_write(struct wh_coll_memory *m, uint64_t first, uint64_t count,
                          const struct wh_coll_stretches *what) {
    uint64_t end = first + count;
    size_t from = find(m, first), to = from, before = 0, after = 0;
    struct wh_coll_stretch left, right;
    if (from < m->count && m->items[from].first < first) {
        left = clip(&m->items[from], 0, first);
        before = 1;
    }
    while (to < m->count && m->items[to].first < end) to++;
    if (to > from && m->items[to - 1].first + m->items[to - 1].count > end) {
        right = clip(&m->items[to - 1], end, UINT64_MAX);
        after = 1;
    }
    size_t added = before + what->count + after, total = m->count - (to - from) + added;
    if (!reserve(&m->items, &m->capacity, total)) return false;
    memmove(m->items + from + added, m->items + to, (m->count - to) * sizeof *m->items);
    struct wh_coll_stretch *at = m->items + from;
    if (before) *at++ = left;
    for (size_t i = 0; i < what->count; i++) {
        *at = what->items[i];
        at++->first += first;
    }
    if (after) *at = right;
    m->count = total;
    return true;
}
