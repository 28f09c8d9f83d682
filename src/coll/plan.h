/* Collective operations as step lists: plain data that one interpreter runs, one checker proves and one model prices.
 *
 *     struct wh_coll_request q = {.op = WH_COLL_ALL_REDUCE, .ranks = 8, .count = 1000, .dtype = WH_F32};
 *     WH_TRY(wh_coll_list_new(&q, wh_coll_algorithm("direct"), my_rank, &list));   // one rank: what comm/ runs
 *     WH_TRY(wh_coll_plan_new(&q, wh_coll_algorithm("direct"), &plan));            // all ranks: what check, cost read
 *
 * Buffers. A step names places: a buffer and the first element in it.
 *
 *     buffer   format                  who provides it                         written by the plan
 *     IN       request.dtype           the user, wh_coll_in_elems elements     never
 *     OUT      request.dtype           the user, wh_coll_out_elems elements    every element
 *     LANDING  request.dtype           the interpreter, list.landing_elems     before it is read
 *     PARTIAL  wh_coll_sum_dtype()     the interpreter, list.partial_elems     before it is read
 *
 * Partial sums of bf16 and f16 are fp32: they lie in PARTIAL and travel as fp32. ADD widens its operands, and rounds its
 * result, to nearest even, if it goes to OUT or LANDING; a rounded sum is never added to, so there is one rounding. COPY
 * and messages keep the format: PARTIAL goes to PARTIAL only, the others to one another.
 *
 *     operation       IN, elements          OUT, elements           in place: one memory, so that
 *     all-reduce      count                 count                   IN = OUT
 *     reduce-scatter  count                 slice(rank).count       OUT = IN + slice(rank).first
 *     all-gather      slice(rank).count     count                   IN = OUT + slice(rank).first
 *     broadcast       count on the root, 0  count                   IN = OUT
 *     reduce          count                 count on the root, 0    IN = OUT
 *     all-to-all      count                 count                   IN = OUT
 *     barrier         0                     0                       -
 *
 * `slice(i)` is wh_coll_slice(request, i). All-to-all needs a count that the number of ranks divides: slice j of rank i
 * becomes slice i of rank j.
 *
 * Rounds. A list is sorted by round. In a round come first all SENDs and RECVs, which are concurrent (start all, then
 * finish all), then COPYs and ADDs, in order. A rank enters a round when it has finished the one before; it does not
 * wait for other ranks. A message is sent and received in rounds of the same number; messages from one rank to another
 * within a round match in order. So no plan can have a cycle of waits: round k waits for sends of round k only. A place
 * that is received into is not sent from in the same round. Messages of no elements exist in the barrier only; for
 * ranges that are empty (count < ranks) there is no step on either side.
 *
 * ADD is out = left + right, element by element; left and right tell the order, which is what the numbers contract
 * (docs/numbers.md section 3) is about. `out` may be the same place as `left` or `right`, it does not overlap otherwise.
 * An interpreter may use another operation that commutes and associates exactly (max) in its place.
 *
 * Units: elements, unless a name ends in _bytes. Counts up to 2^57, and 2^60 / ranks. Pure; allocates with malloc, at start-up only. */
#ifndef WH_COLL_PLAN_H
#define WH_COLL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

enum wh_coll_op {
    WH_COLL_ALL_REDUCE,
    WH_COLL_REDUCE_SCATTER,
    WH_COLL_ALL_GATHER,
    WH_COLL_BROADCAST,
    WH_COLL_REDUCE,
    WH_COLL_ALL_TO_ALL,
    WH_COLL_BARRIER,
    WH_COLL_OP_COUNT
};

enum wh_coll_kind { WH_COLL_SEND, WH_COLL_RECV, WH_COLL_COPY, WH_COLL_ADD };
enum wh_coll_buffer { WH_COLL_IN, WH_COLL_OUT, WH_COLL_LANDING, WH_COLL_PARTIAL, WH_COLL_BUFFER_COUNT };

struct wh_coll_place {
    uint64_t buffer : 3; /* enum wh_coll_buffer */
    uint64_t first : 61; /* element */
};

struct wh_coll_step {
    enum wh_coll_kind kind;
    uint32_t round;
    uint32_t peer;              /* SEND: to; RECV: from; else the rank itself */
    uint64_t count;             /* elements */
    struct wh_coll_place out;   /* RECV, COPY, ADD: written */
    struct wh_coll_place left;  /* SEND, COPY, ADD: read */
    struct wh_coll_place right; /* ADD: read */
};

/* Everything that a plan depends on. Equal on all ranks. */
struct wh_coll_request {
    enum wh_coll_op op;
    uint32_t ranks, root; /* root: broadcast and reduce */
    uint64_t count;       /* elements; see the table above */
    enum wh_dtype dtype;
    bool in_place;
    uint32_t chunks;            /* pieces that pipelined algorithms cut the vector into; 0 is 1 */
    uint32_t ranks_per_machine; /* two_level: rank r is on machine r / ranks_per_machine; 0 is all of them on one */
};

/* What one rank does. */
struct wh_coll_list {
    struct wh_coll_step *steps;
    size_t step_count, capacity;
    uint32_t rounds;                       /* one more than the last step's round; 0 for an empty list */
    uint64_t landing_elems, partial_elems; /* sizes of the two scratch buffers */
};

struct wh_coll_plan {
    struct wh_coll_request request;
    const struct wh_coll_algorithm *algorithm;
    struct wh_coll_list *rank; /* request.ranks lists */
    uint32_t rounds;           /* most of any rank */
};

struct wh_coll_builder;

/* A row of the table of algorithms (table.c). To add one: a file algo_NAME.c and a row. */
struct wh_coll_algorithm {
    const char *name;
    const char *summary; /* one line */
    unsigned operations; /* bit 1u << enum wh_coll_op */
    const char *demands; /* what `can` asks for, as text; NULL: nothing */
    /* Further demands on the request; NULL: none. */
    bool (*can)(const struct wh_coll_request *q);
    /* True if each sum is the contract's canonical tree over ranks. Only asked for operations that add. NULL: never. */
    bool (*canonical)(const struct wh_coll_request *q);
    bool pipelined; /* reads request.chunks */
    /* Appends the steps of one rank; at least two ranks. */
    void (*build)(struct wh_coll_builder *b); /* build.h */
};

extern const struct wh_coll_algorithm *const wh_coll_algorithms[]; /* ends with NULL */

/* NULL if there is none of that name. */
const struct wh_coll_algorithm *wh_coll_algorithm(const char *name);
const char *wh_coll_op_name(enum wh_coll_op op); /* "all-reduce" */
/* Dashes and underscores don't matter. False if `name` is none. */
bool wh_coll_op_from_name(const char *name, enum wh_coll_op *out);
bool wh_coll_op_adds(enum wh_coll_op op); /* all-reduce, reduce-scatter, reduce */

/* Format of partial sums: fp32 for bf16 and f16, otherwise `t` itself. */
enum wh_dtype wh_coll_sum_dtype(enum wh_dtype t);
/* Bytes of an element in `buffer`. */
size_t wh_coll_elem_bytes(const struct wh_coll_request *q, enum wh_coll_buffer buffer);

struct wh_coll_range {
    uint64_t first, count;
};

/* Part `i` of `parts` of `range`: parts are consecutive and cover it. Equal if `parts` divides the count; otherwise cut
 * at multiples of 64 bytes from the range's first element, as evenly as those allow; later parts may be shorter or
 * empty. */
struct wh_coll_range wh_coll_cut(struct wh_coll_range range, enum wh_dtype t, uint32_t parts, uint32_t i);
/* The slice of the whole vector that belongs to `rank`. */
struct wh_coll_range wh_coll_slice(const struct wh_coll_request *q, uint32_t rank);
/* Elements of the user's buffers. */
uint64_t wh_coll_in_elems(const struct wh_coll_request *q, uint32_t rank);
uint64_t wh_coll_out_elems(const struct wh_coll_request *q, uint32_t rank);

/* Where a place is in memory: in place, IN and OUT become one buffer, called OUT, which begins where the larger of the two
 * begins. Otherwise `p` itself. */
struct wh_coll_place wh_coll_resolve(const struct wh_coll_request *q, uint32_t rank, struct wh_coll_place p);

/* The algorithm serves the request. Errors: UNSUPPORTED, with all reasons and the algorithms that would serve it. */
enum wh_status wh_coll_can(const struct wh_coll_request *q, const struct wh_coll_algorithm *a);

/* The list of one rank. Free with wh_coll_list_free. Errors: those of wh_coll_can, NOMEM. */
enum wh_status wh_coll_list_new(const struct wh_coll_request *q, const struct wh_coll_algorithm *a, uint32_t rank,
                                struct wh_coll_list *out);
void wh_coll_list_free(struct wh_coll_list *l);
/* Work space for the list: LANDING, and behind it, on a cache line of its own, PARTIAL. */
uint64_t wh_coll_landing_bytes(const struct wh_coll_request *q, const struct wh_coll_list *l); /* whole lines */
uint64_t wh_coll_room_bytes(const struct wh_coll_request *q, const struct wh_coll_list *l);    /* of both */

/* The lists of all ranks. Free with wh_coll_plan_free. Errors: as above. */
enum wh_status wh_coll_plan_new(const struct wh_coll_request *q, const struct wh_coll_algorithm *a,
                                struct wh_coll_plan *out);
void wh_coll_plan_free(struct wh_coll_plan *p);

#endif
