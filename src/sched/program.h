/* Pipeline schedules as plain data: for every rank a program, the list of instructions that it executes in order. One
 * interpreter runs programs, one checker proves them (check.h), one model times them (timing.h), one drawing shows them
 * (draw.h).
 *
 *     struct wh_sched_request q = {.ranks = 4, .micro_batches = 8, .chunks = 1};
 *     WH_TRY(wh_sched_plan_new(&q, wh_sched_generator("1f1b"), &plan));
 *     for (i = 0; i < plan.rank[me].count; i++) execute(&plan.rank[me].instrs[i]);      // what run/ does
 *
 * Stages. The model is cut into ranks * chunks stages, numbered in the order of the layers; each rank holds `chunks` of
 * them. Stage s is chunk s / ranks, on the rank
 *
 *     placement   of 4 ranks, 2 chunks: stages of rank 0   1      2      3
 *     LOOP        s % ranks                         0, 4   1, 5   2, 6   3, 7
 *     V           back and forth                    0, 7   1, 6   2, 5   3, 4
 *
 * Messages. Those from one rank to another arrive in the order they were sent, activations and gradients in one queue;
 * RECV takes the oldest, which must be the one it names. A SEND copies its output into one of `depth` buffers of the
 * queue and goes on; it waits only while all are full, a RECV while all are empty. What a RECV took out is copied to a
 * slot, and the buffer is free. WH_SCHED_DEPTH is enough for every schedule here (the checker proves it).
 *
 * Slots are numbered from 0 on each rank, shared by its chunks; an instruction names those it works with. So memory is
 * known before the run: act_slots, grad_slots of the program.
 *
 * Micro-batches: the backward of each chunk handles them in ascending order, both parts, whatever the schedule; sums of
 * weight gradients are chains through samples in order (docs/numbers.md). Forwards may come in any order.
 *
 * Pure; allocates with malloc, at start-up only. */
#ifndef WH_SCHED_PROGRAM_H
#define WH_SCHED_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum wh_sched_op {
#define X(id, ...) WH_SCHED_##id,
#include "sched/ops.def"
#undef X
    WH_SCHED_OP_COUNT
};

/* What an instruction does to a slot or an output. TOUCH: takes and frees at once. */
enum wh_sched_effect { WH_SCHED_NOTHING, WH_SCHED_TAKE, WH_SCHED_USE, WH_SCHED_FREE, WH_SCHED_TOUCH };
enum wh_sched_message { WH_SCHED_NO_MESSAGE, WH_SCHED_SENDS, WH_SCHED_RECEIVES };

struct wh_sched_effects {
    enum wh_sched_effect act, grad, act_out, grad_out;
};

struct wh_sched_op_row {
    const char *mark; /* "F" */
    struct wh_sched_effects effects;
    enum wh_sched_message message;
    const char *meaning;
};

extern const struct wh_sched_op_row wh_sched_ops[WH_SCHED_OP_COUNT];
static inline bool wh_sched_computes(enum wh_sched_op op) { return op <= WH_SCHED_BACKWARD_WEIGHT; }

enum wh_sched_placement { WH_SCHED_LOOP, WH_SCHED_V, WH_SCHED_PLACEMENTS };

enum {
    WH_SCHED_RANKS_MAX = 4096,
    WH_SCHED_MICRO_BATCHES_MAX = 1 << 20,
    WH_SCHED_CHUNKS_MAX = 26,      /* the chart calls them a .. z */
    WH_SCHED_BLOCKS_MAX = 1 << 24, /* ranks * chunks * micro-batches */
    WH_SCHED_DEPTH = 2,            /* buffers per ordered pair of ranks */
};

/* Everything that a schedule depends on. Equal on all ranks. */
struct wh_sched_request {
    uint32_t ranks, micro_batches, chunks; /* chunks: per rank */
};

struct wh_sched_shape {
    uint32_t ranks, micro_batches, chunks;
    enum wh_sched_placement placement;
};

static const uint32_t WH_SCHED_NO_SLOT = UINT32_MAX;

struct wh_sched_instr {
    uint16_t op, chunk; /* enum wh_sched_op; chunk of this rank */
    uint32_t micro_batch;
    uint32_t peer;      /* messages: the other rank; else this one */
    uint32_t act, grad; /* slots it takes, uses or frees; NO_SLOT: none */
    uint32_t line;      /* in the user's file; 0: generated */
};

struct wh_sched_program {
    struct wh_sched_instr *instrs;
    size_t count, capacity;
    uint32_t act_slots, grad_slots; /* that it needs */
    uint32_t resident;              /* most forwards whose backward wasn't finished: what papers count */
};

struct wh_sched_plan {
    struct wh_sched_shape shape;
    const struct wh_sched_generator *generator; /* NULL: a user's own */
    struct wh_sched_program *rank;              /* shape.ranks programs */
};

/* Times of one chunk for one micro-batch, in any unit. */
struct wh_sched_cost {
    double forward, backward, input, weight; /* backward: the whole; input, weight: its parts, where it is split */
};

struct wh_sched_builder;

/* A row of the table of schedules (table.c). To add one: a file gen_NAME.c and a row. */
struct wh_sched_generator {
    const char *name, *summary;
    enum wh_sched_placement placement;
    uint32_t chunks_min, chunks_max, chunks_default;
    bool splits; /* backward in two parts */
    /* Appends what one rank computes, in order; messages and slots are added to it. */
    void (*build)(struct wh_sched_builder *b); /* build.h */
    /* What was published: most resident micro-batches (times chunks) on a rank. */
    uint32_t (*resident)(const struct wh_sched_shape *s, uint32_t rank);
    /* What was published: idle share of the ranks' time, without messages. Negative: no closed form here. */
    double (*idle)(const struct wh_sched_shape *s, const struct wh_sched_cost *c);
    const char *formula; /* of `idle`, as text */
};

extern const struct wh_sched_generator *const wh_sched_generators[]; /* ends with NULL */

/* NULL if there is none of that name; dashes, underscores and case don't matter, "afab" is gpipe. */
const struct wh_sched_generator *wh_sched_generator(const char *name);

/* Adds all that is wrong with the sizes to `why` ("..; .."). True if nothing is. */
bool wh_sched_sizes_legal(uint64_t ranks, uint64_t micro_batches, uint64_t chunks, struct wh_text *why);

/* Free with wh_sched_plan_free. Errors: CONFIG (sizes or chunks that the schedule can't have), NOMEM. */
enum wh_status wh_sched_plan_new(const struct wh_sched_request *q, const struct wh_sched_generator *g,
                                 struct wh_sched_plan *out);
void wh_sched_plan_free(struct wh_sched_plan *p);

uint32_t wh_sched_stage(const struct wh_sched_shape *s, uint32_t rank, uint32_t chunk);
uint32_t wh_sched_stage_rank(const struct wh_sched_shape *s, uint32_t stage);
static inline uint32_t wh_sched_stages(const struct wh_sched_shape *s) { return s->ranks * s->chunks; }

/* What an instruction of `rank` does to memory, the ends of the pipeline considered. */
struct wh_sched_effects wh_sched_effects(const struct wh_sched_shape *s, uint32_t rank, const struct wh_sched_instr *i);

/* The rank at the other end of a message that `chunk` of `rank` sends or receives; the rank itself where op is no message;
 * UINT32_MAX at an end of the pipeline. */
uint32_t wh_sched_peer(const struct wh_sched_shape *s, uint32_t rank, enum wh_sched_op op, uint32_t chunk);

/* "B3", with more than one chunk "B3b" (micro-batch 3, second chunk), messages "SA3b>1", "RA3b<0". */
void wh_sched_label(const struct wh_sched_shape *s, const struct wh_sched_instr *i, struct wh_text *out);

const char *wh_sched_placement_name(enum wh_sched_placement p); /* "loop", "v" */

#endif
