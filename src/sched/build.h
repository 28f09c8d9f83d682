/* What schedules are made with: generators (gen_*.c) and the reader of schedule files append what each rank computes;
 * wh_sched_connect adds the messages; wh_sched_place adds the slots. */
#ifndef WH_SCHED_BUILD_H
#define WH_SCHED_BUILD_H

#include "sched/program.h"

extern const struct wh_sched_generator wh_sched_gpipe, wh_sched_1f1b, wh_sched_interleaved, wh_sched_zb_h1,
    wh_sched_zb_v;

struct wh_sched_builder {
    struct wh_sched_shape shape;
    uint32_t rank;
    uint32_t line; /* of what is added, in the user's file; 0: generated */
    struct wh_sched_program program;
    bool no_memory;
};

/* Appends; a micro-batch that doesn't exist (m and above) is left out, so that a generator may describe more than there
 * are: a legal schedule without one of its micro-batches is legal. */
void wh_sched_add(struct wh_sched_builder *b, enum wh_sched_op op, uint32_t chunk, uint32_t micro_batch);
/* The instruction as it is. */
void wh_sched_append(struct wh_sched_builder *b, const struct wh_sched_instr *i);

static inline uint32_t wh_sched_min(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Idle share where every micro-batch passes all ranks forward, then all back: (p - 1) / (m + p - 1). */
double wh_sched_idle_of_passes(const struct wh_sched_shape *s, const struct wh_sched_cost *c);

/* An empty plan of this shape. Errors: NOMEM. */
enum wh_status wh_sched_plan_alloc(const struct wh_sched_shape *s, struct wh_sched_plan *out);

/* Programs of computing instructions only become programs with messages:
 *   - an output is sent as soon as it is made, or, to a chunk of the same rank, passed on when it is needed or the next
 *     one is made;
 *   - what an instruction needs is received right before it, after all that its sender sent before: queues are in order.
 * Any order of computing instructions is accepted; the checker finds what is wrong with it. Errors: NOMEM. */
enum wh_status wh_sched_connect(struct wh_sched_plan *p);

/* Gives every instruction its slots, what was freed last first, and fills in what the programs need. Errors: NOMEM. */
enum wh_status wh_sched_place(struct wh_sched_plan *p);

#endif
