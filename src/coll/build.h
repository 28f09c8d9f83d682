/* What the algorithms (algo_*.c) append steps with. Only they and plan.c include this.
 *
 * A build function describes one rank: `b->rank` of `b->q->ranks` (two or more). It may append in any order; the list is
 * sorted afterwards as plan.h asks: by round, messages first, otherwise as appended. Steps of no elements vanish, on both
 * sides of a message alike; so do copies onto themselves (in place). Sizes of scratch are found by looking at the
 * steps. */
#ifndef WH_COLL_BUILD_H
#define WH_COLL_BUILD_H

#include "coll/plan.h"

struct wh_coll_builder {
    const struct wh_coll_request *q;
    uint32_t rank;
    struct wh_coll_list list;
    bool no_memory;
};

static inline struct wh_coll_place wh_coll_at(enum wh_coll_buffer buffer, uint64_t first) {
    return (struct wh_coll_place){buffer, first};
}
/* `elems` further on. */
static inline struct wh_coll_place wh_coll_past(struct wh_coll_place p, uint64_t elems) {
    return (struct wh_coll_place){p.buffer, p.first + elems};
}

void wh_coll_send(struct wh_coll_builder *b, uint32_t round, uint32_t to, struct wh_coll_place from, uint64_t count);
void wh_coll_recv(struct wh_coll_builder *b, uint32_t round, uint32_t from, struct wh_coll_place to, uint64_t count);
void wh_coll_copy(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out, struct wh_coll_place from,
                  uint64_t count);
void wh_coll_add(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out, struct wh_coll_place left,
                 struct wh_coll_place right, uint64_t count);
/* The messages of a barrier: no elements. */
void wh_coll_signal(struct wh_coll_builder *b, uint32_t round, uint32_t to);
void wh_coll_await(struct wh_coll_builder *b, uint32_t round, uint32_t from);

/* Operands of a sum: number `i` of `count` lies at first + i * stride, except number `own`, which lies at `own_place`. */
struct wh_coll_operands {
    uint32_t count, own;
    struct wh_coll_place first, own_place;
    uint64_t stride;
};
struct wh_coll_place wh_coll_operand(const struct wh_coll_operands *o, uint32_t i);
/* Adds all operands (two or more) in the canonical order (base/tree.h). Subtrees go to PARTIAL from `scratch` on, less
 * than wh_tree_depth(count) times `elems`. */
void wh_coll_add_tree(struct wh_coll_builder *b, uint32_t round, struct wh_coll_place out,
                      const struct wh_coll_operands *o, uint64_t scratch, uint64_t elems);

/* The whole vector. */
static inline struct wh_coll_range wh_coll_whole(const struct wh_coll_request *q) {
    return (struct wh_coll_range){0, q->count};
}
/* Largest power of two that is at most n (n >= 1), and the one below n (n >= 2), where the canonical tree splits. */
static inline uint32_t wh_coll_power_of_two(uint32_t n) { return 1u << (31 - __builtin_clz(n)); }
static inline uint32_t wh_coll_split(uint32_t n) { return wh_coll_power_of_two(n - 1); }
/* Number of halvings until one is left: ceil(log2 n). */
static inline uint32_t wh_coll_log2(uint32_t n) { return n < 2 ? 0 : 32 - (uint32_t)__builtin_clz(n - 1); }

static inline uint32_t wh_coll_chunks(const struct wh_coll_request *q) { return q->chunks ? q->chunks : 1; }

/* The rows of the table. */
extern const struct wh_coll_algorithm wh_coll_ring, wh_coll_halving_doubling, wh_coll_binomial, wh_coll_double_tree,
    wh_coll_bruck, wh_coll_direct, wh_coll_two_level;

#endif
