#include "coll/build.h"

#include <stdlib.h>

#include "base/tree.h"

static void append(struct wh_coll_builder *b, const struct wh_coll_step *step) {
    struct wh_coll_list *l = &b->list;
    if (b->no_memory) return;
    if (l->step_count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 16;
        void *longer = realloc(l->steps, capacity * sizeof *l->steps);
        if (!longer) {
            b->no_memory = true;
            return;
        }
        l->steps = longer;
        l->capacity = capacity;
    }
    l->steps[l->step_count++] = *step;
}

void wh_coll_send(struct wh_coll_builder *b, uint32_t round, uint32_t to, struct wh_coll_place from, uint64_t count) {
    if (count) append(b, &(struct wh_coll_step){WH_COLL_SEND, round, to, count, .left = from});
}

void wh_coll_recv(struct wh_coll_builder *b, uint32_t round, uint32_t from, struct wh_coll_place to, uint64_t count) {
    if (count) append(b, &(struct wh_coll_step){WH_COLL_RECV, round, from, count, .out = to});
}

void wh_coll_copy(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out, struct wh_coll_place from,
                  uint64_t count) {
    struct wh_coll_place to = wh_coll_resolve(b->q, b->rank, out), at = wh_coll_resolve(b->q, b->rank, from);
    if (count == 0 || (to.buffer == at.buffer && to.first == at.first)) return;
    append(b, &(struct wh_coll_step){WH_COLL_COPY, round, b->rank, count, .out = out, .left = from});
}

void wh_coll_add(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out, struct wh_coll_place left,
                 struct wh_coll_place right, uint64_t count) {
    if (count) append(b, &(struct wh_coll_step){WH_COLL_ADD, round, b->rank, count, out, left, right});
}

void wh_coll_signal(struct wh_coll_builder *b, uint32_t round, uint32_t to) {
    append(b, &(struct wh_coll_step){.kind = WH_COLL_SEND, .round = round, .peer = to});
}

void wh_coll_await(struct wh_coll_builder *b, uint32_t round, uint32_t from) {
    append(b, &(struct wh_coll_step){.kind = WH_COLL_RECV, .round = round, .peer = from});
}

struct wh_coll_place wh_coll_operand(const struct wh_coll_operands *o, uint32_t i) {
    return i == o->own ? o->own_place : wh_coll_past(o->first, i * o->stride);
}

void wh_coll_add_tree(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out,
                      const struct wh_coll_operands *o, uint64_t scratch, uint64_t elems) {
    struct wh_coll_place stack[WH_TREE_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        stack[depth++] = wh_coll_operand(o, i);
        for (unsigned merges = wh_tree_merges(i, o->count); merges > 0; merges--, depth--) {
            bool last = i + 1 == o->count && depth == 2;
            struct wh_coll_place sum = last ? out : wh_coll_at(WH_COLL_PARTIAL, scratch + (depth - 2) * elems);
            wh_coll_add(b, round, sum, stack[depth - 2], stack[depth - 1], elems);
            stack[depth - 2] = sum;
        }
    }
}
