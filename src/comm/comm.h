/* Collectives between the ranks of a run. Transport here: processes of one machine over shared memory. The interface
 * promises nothing that MPI point-to-point could not keep: only wh_comm_job_create would differ there.
 *
 * The launcher creates a job and forks the ranks; each rank joins, takes buffers, opens groups, makes plans and runs them:
 *
 *     launcher                                   rank
 *     wh_comm_job_create(&config, &job)          wh_comm_job_join(job, rank)
 *     fork ranks                                 wh_comm_buffer(job, bytes, &grads)
 *     wait; for each child that ended:           wh_comm_open(job, 0, "dp", members, size, &dp)
 *         wh_comm_job_ended(job, rank, status)   wh_comm_plan_make(dp, &call, &plan)       once
 *     wh_comm_job_destroy(job)                   wh_comm_start(plan) ... wh_comm_wait(plan)  each step
 *                                                wh_comm_plan_free, wh_comm_close, wh_comm_job_leave
 *
 * Numbers. A sum over ranks is the canonical tree (base/tree.h) over the group's ranks in order, left plus right, or has the
 * order that the call gives, for each element by itself: it depends on no size, bucket, path or timing, and all ranks get
 * the same bits. bf16 is widened, summed in fp32 and rounded once, to nearest even (WH_SUM_ROUNDED: at every join).
 * Integers wrap. Max and min keep a NaN if there is one; of two zeros they keep the right one.
 *
 * Order. All members start the operations of a group in the same order; groups are independent of each other. An
 * operation that finds its group's members doing something else fails on all of them (WH_PEER), naming both. Messages are
 * apart from the group's other operations: those from one member to another match in the order in which each side starts
 * them.
 *
 * Failure. A call returns WH_PEER when a rank has died, stalled beyond the deadline or called something else; the message
 * names rank, operation and sequence number. From then on the group (after a death: every group) is poisoned: calls
 * return the same cause at once. Buffers of an operation that failed hold anything. There is no repair but a new job.
 *
 * Progress. An operation is executed by whoever waits for it (wh_comm_wait, wh_comm_test, or waiting for anything else
 * in the job): no helper threads. Started operations whose last member has not arrived cost nothing. A message from a
 * buffer of wh_comm_buffer is its receiver's work alone: the sender may compute from start to wait.
 *
 * Threads: one thread of a rank at a time. No function prints; joining, opening and making plans allocate, nothing else
 * does. Nothing is left behind by any end of any process: memory has no name and ends with the last that maps it. */
#ifndef WH_COMM_COMM_H
#define WH_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

enum { WH_COMM_RANKS_MAX = 64, WH_COMM_GROUPS_MAX = 16, WH_COMM_INLINE_BYTES = 496, WH_COMM_ROWS_MAX = 48 };
enum { WH_COMM_MESSAGES = 64 }; /* that go from rank to rank without their sender: see wh_comm_start */
enum { WH_COMM_INPUTS_MAX = 16, WH_COMM_STACK_MAX = 16 }; /* of struct wh_comm_sum */

struct wh_comm_job;
struct wh_comm;
struct wh_comm_plan;
struct wh_coll_links; /* coll/links.h */

/* ---- job: the memory that the ranks of one machine share ---- */

struct wh_comm_job_config {
    uint32_t ranks;       /* 1 .. WH_COMM_RANKS_MAX */
    size_t arena_bytes;   /* of each rank, for its wh_comm_buffer's; may be 0 */
    uint64_t deadline_ns; /* how long a call waits for ranks that don't arrive; 0: 10 minutes */
    const char *kernels;  /* "reference", "avx2", "avx512"; NULL: the best this processor has */
};

/* Launcher, before it forks. The job is inherited by fork; its pointers mean the same memory in every rank. Checks that
 * the memory for all ranks is there. Errors: CONFIG (out of range, unknown kernels), NOMEM with needed and free bytes. */
enum wh_status wh_comm_job_create(const struct wh_comm_job_config *config, struct wh_comm_job **out);

/* Rank, once, pinned already if it will be: reserves and touches its arena, then waits until all ranks have. From here on
 * this process is `rank`. Errors: NOMEM with needed and free bytes (told to all ranks), PEER. */
enum wh_status wh_comm_job_join(struct wh_comm_job *job, uint32_t rank);

/* Rank: unmaps. Launcher: wh_comm_job_destroy, the same for its process. Both take NULL. */
void wh_comm_job_leave(struct wh_comm_job *job);
void wh_comm_job_destroy(struct wh_comm_job *job);

/* Launcher: rank's process has ended with this status of waitpid(2). An end other than exit code 0 aborts the job: ranks
 * that wait are woken and return WH_PEER naming this rank. An exit with 0 does so too if the rank left an operation
 * unfinished, or as soon as another rank waits for it. */
void wh_comm_job_ended(struct wh_comm_job *job, uint32_t rank, int wait_status);

/* Anyone: ends the job with this cause; the first cause stays. Waits for nobody. */
void wh_comm_job_abort(struct wh_comm_job *job, enum wh_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* WH_OK, or the cause that ended the job as an error record. Launcher and ranks. */
enum wh_status wh_comm_job_status(struct wh_comm_job *job);

uint32_t wh_comm_job_ranks(const struct wh_comm_job *job);

/* Shared memory of a job of `ranks` besides arenas, a rank's share of it: flags, staging space, message rings. */
size_t wh_comm_job_own_bytes(uint32_t ranks);

/* Appends one line per rank: its last operation in each group, finished or not, how long ago it last called, state of its
 * process. Launcher and ranks; for stall reports and the page. */
void wh_comm_job_describe(struct wh_comm_job *job, struct wh_text *out);

/* When a rank last called, or looked around while it waits in a call, as it does many times a second: on wh_clock_ns. 0: has
 * not joined. Launcher and ranks. */
uint64_t wh_comm_job_seen_ns(const struct wh_comm_job *job, uint32_t rank);

/* ---- buffers ---- */

/* Takes `bytes` of this rank's arena, zeroed, 64-byte aligned, for the life of the job. All ranks take the same sizes in
 * the same order, so that a buffer lies at the same offset everywhere; then operations on it (or on parts of it) read and
 * write the other ranks' buffers directly. Buffers of whole vectors must lie at equal offsets; those of slices need not.
 * Other memory is fine for every operation but costs two copies. NOMEM when the arena is used up. */
enum wh_status wh_comm_buffer(struct wh_comm_job *job, size_t bytes, void **out);

/* ---- groups ---- */

/* Opens the group of the given ranks of the job, in ascending order; this rank is one of them. `id` (below
 * WH_COMM_GROUPS_MAX) is the same for all members; groups that share an id are disjoint, as the dp groups of a mesh are.
 * Local: meets nobody. A group can be opened once in a job. `name` must live as long ("dp"). */
enum wh_status wh_comm_open(struct wh_comm_job *job, uint32_t id, const char *name, const uint32_t *members,
                            uint32_t size, struct wh_comm **out);
void wh_comm_close(struct wh_comm *comm);
uint32_t wh_comm_rank(const struct wh_comm *comm); /* within the group */
uint32_t wh_comm_size(const struct wh_comm *comm);

/* Tells the group, once, what its links were measured to do (run/probe_links.h). Plans of ALL_REDUCE, REDUCE_SCATTER and
 * ALL_GATHER that are made from then on are run by what is predicted to be fastest: as ever, or by a step list of
 * coll/plan.h over messages, where the call's order allows its sums. Lists share `room_bytes` of work space, which the group
 * keeps; those that need more are not chosen. All members call it, with what they have in flight finished and the same
 * room; the figures of the group's rank 0 become everybody's. Errors: NOMEM, PEER. */
enum wh_status wh_comm_set_links(struct wh_comm *comm, const struct wh_coll_links *links, size_t room_bytes);

size_t wh_comm_room_bytes(const struct wh_comm *comm); /* what the group keeps */

/* ---- operations ---- */

/*  c = count; slice of a rank: what `border` says, or else wh_coll_cut of c into as many parts as there are ranks
 *  (coll/plan.h): equal ones if that divides c
 *
 *                               in (elements)     out (elements)     in place when
 *  BARRIER                      -                 -
 *  ALL_REDUCE                   c                 c                  in == out
 *  REDUCE_SCATTER               c                 slice              out == in + first of slice
 *  ALL_GATHER                   slice             c                  in == out + first of slice
 *  BROADCAST    from root       - (NULL or out)   c                  always: root's out is what is sent
 *  REDUCE       to root         c                 c (root only)      in == out at root
 *  ALL_TO_ALL                   c, n divides it   c                  never
 *  SEND         to root         c                 -
 *  RECV         from root       -                 c
 * With blocks: a rank's slice begins in the first of them. In place on one rank means in place on all (REDUCE: root alone
 * decides). in and out otherwise don't overlap. Pointers are aligned to their elements. Of an empty slice the buffer may be NULL; otherwise it lies in the arena if the others' do. */
enum wh_comm_op { /* the first are those of enum wh_coll_op, in its order */
                  WH_ALL_REDUCE,
                  WH_REDUCE_SCATTER,
                  WH_ALL_GATHER,
                  WH_BROADCAST,
                  WH_REDUCE,
                  WH_ALL_TO_ALL,
                  WH_BARRIER,
                  WH_SEND,
                  WH_RECV,
                  WH_COMM_OP_COUNT
};
const char *wh_comm_op_name(enum wh_comm_op op); /* "all_reduce" */

/* SUM_ROUNDED: bf16 sums are rounded at every join, so that those of some of the ranks may be kept and joined later. Other
 * types: as SUM. */
enum wh_redop { WH_SUM, WH_MAX, WH_MIN, WH_SUM_ROUNDED, WH_REDOP_COUNT };

static inline bool wh_redop_sums(enum wh_redop op) { return op == WH_SUM || op == WH_SUM_ROUNDED; }

/* Orders in which ranks may be summed. ANY allows the contract's too; which one a plan has, wh_comm_plan_describe tells, and
 * all ranks get the same bits in one call. */
enum wh_comm_order { WH_ORDER_CONTRACT, WH_ORDER_ANY };

/* A sum of several contributions of each rank, all joined in a given order. So a tree over more leaves than ranks keeps its
 * order however the leaves are shared out: a rank joins what is complete among its own and contributes what remains. Here
 * 6 leaves on 2 ranks, ((0 1) (2 | 3)) (4 5), are contributions 0+1, 2 | 3, 4+5: inputs {2, 2}, merges {0, 0, 2, 1}.
 *
 *     for each contribution i, those of rank 0 first:
 *         push(contribution[i]);
 *         for (m = merges[i]; m > 0; m--) { right = pop(); left = pop(); push(left + right); }
 *
 * One value remains; at no time are there more than WH_COMM_STACK_MAX (the canonical tree over n leaves: 1 + log2 n).
 * Everything in here is the same on all ranks. Read while a plan is made, which keeps a copy. */
struct wh_comm_sum {
    const uint8_t *inputs; /* [size] contributions of each rank, 1 .. WH_COMM_INPUTS_MAX */
    const uint8_t *merges; /* [sum of inputs] */
    size_t stride; /* elements: contribution k of a rank lies at in + k * stride; at least count unless all have one */
};

struct wh_comm_call {
    enum wh_comm_op op;
    const void *in;
    void *out;
    size_t count;
    enum wh_dtype dtype; /* reductions: F32, BF16, F64, I32, I64; what only moves: any */
    enum wh_redop redop;
    uint32_t root;            /* rank within the group: root, or the other side of SEND and RECV */
    enum wh_comm_order order; /* ANY: makes a difference only to plans of a group with links */
    /* REDUCE_SCATTER, ALL_GATHER: [size + 1] elements at which the slices begin, 0 first, ascending, count last: rank r has
     * [border[r], border[r + 1]), which may be empty. The same on all ranks. Work is shared out evenly whoever owns the
     * slices. Read while a plan is made, which keeps a copy. NULL: wh_coll_cut. */
    const size_t *border;
    /* REDUCE_SCATTER, ALL_GATHER, from 2 on: the vector is so many equal blocks, one after another, and borders (or
     * wh_coll_cut) are those of one block: a rank's slice is its part of each, as of the positions of several sequences. In
     * place only, in the arena. 0, 1: one block. */
    uint32_t blocks;
    /* Sums; in place: `out` lies in contribution 0. NULL: one of each rank, joined as the canonical tree. */
    const struct wh_comm_sum *sum;
    const char *row; /* ledger row, "dp.grad.reduce_scatter"; lives as long as the job; NULL: the operation's name */
};

/* A plan is made once and started any number of times, not again before it is finished. Local: meets nobody. Errors:
 * CONFIG (all faults of the call at once), UNSUPPORTED. */
enum wh_status wh_comm_plan_make(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan **out);
/* Not while it is started; but where a call of this rank has failed, in whatever group, this gives up what is unfinished. */
void wh_comm_plan_free(struct wh_comm_plan *plan);

/* Appends one line: how it is run, in which order of summation, and, in a group with links, what that and the next best are
 * predicted to take: "all_reduce of 1.0 MiB: arena, contract order (predicted 22.0 us; ring 143 us, direct 143 us)". */
void wh_comm_plan_describe(const struct wh_comm_plan *plan, struct wh_text *out);
/* The first word of that after the colon: "inline", "arena", "staged", "message", "alone" or the list's algorithm. */
const char *wh_comm_plan_way(const struct wh_comm_plan *plan);
size_t wh_comm_plan_bytes(const struct wh_comm_plan *plan); /* of its vector */

/* From start until it is finished, `in` may only be read and `out` not be touched. Start returns at once, with two
 * exceptions: more than 7 operations of the group are unfinished, or buffers outside the arena that don't fit the staging
 * space, or a step list of the group is unfinished: then it works on until they do.
 *
 * SEND and RECV wait for no room. A SEND from the arena is finished when the receiver has copied it, straight to where
 * it wants it (in any memory), in whatever call it waits, tests or makes progress. Up to 4 KiB, and from other memory, it is
 * finished as soon as all of it is in a pipe of at most 128 KiB between the two; what doesn't fit moves while both are in
 * calls. Of more than WH_COMM_MESSAGES that the receiver has not taken, the later ones go out in the sender's next calls. */
enum wh_status wh_comm_start(struct wh_comm_plan *plan);
enum wh_status wh_comm_test(struct wh_comm_plan *plan, bool *finished);
enum wh_status wh_comm_wait(struct wh_comm_plan *plan);

/* Start and wait in one, without a plan to keep. Allocates nothing. */
enum wh_status wh_comm_run(struct wh_comm *comm, const struct wh_comm_call *call);

/* Moves whatever is started in this rank's groups a bit, without waiting; for calls between layers. */
enum wh_status wh_comm_progress(struct wh_comm_job *job);

/* Rank: `watch` is told of every call from now on that may have taken time, when it is over: plans that were started (unless
 * that is a matter of a store or two), tested or waited for, and wh_comm_run. NULL: nobody is. It must not call comm/. */
void wh_comm_watch(struct wh_comm_job *job,
                   void (*watch)(void *context, const struct wh_comm_call *call, uint64_t begin_ns, uint64_t end_ns),
                   void *context);

/* ---- ledger ---- */

struct wh_comm_row {
    const char *name;
    uint64_t calls;      /* finished */
    uint64_t sent_bytes; /* by this rank as wh_comm_call_bytes counts them */
    uint64_t ns;         /* from start to finish as seen by this rank */
    uint64_t exposed_ns; /* of those: spent inside calls of this interface */
};

/* This rank's rows in order of first use; valid until the job is left. */
const struct wh_comm_row *wh_comm_rows(const struct wh_comm_job *job, uint32_t *count);

/* Bytes that rank `rank` of `size` sends in this operation by the direct algorithm, the least that ranks with private
 * memory can do with: what a planner predicts. A rank sends each of its contributions. Shared memory moves them without a
 * message; step lists may move more (docs/collectives.md section 3), which the books don't show. */
uint64_t wh_comm_call_bytes(const struct wh_comm_call *call, uint32_t rank, uint32_t size);

/* Whether a group of `size` with links has a choice; of the call alone, its buffers aside. */
bool wh_comm_call_has_lists(const struct wh_comm_call *call, uint32_t size);
/* Work space that is enough for the lists of least traffic: two vectors in the format of sums, and some lines a rank, as slices
 * are cut at lines; gathering needs none. 0 where there is no choice. Equal on all ranks, and known before anything was measured. */
size_t wh_comm_call_room_bytes(const struct wh_comm_call *call, uint32_t size);

#endif
