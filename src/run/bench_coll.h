/* Measures collectives between the ranks of a job: time of the slowest rank, result checked bit by bit against the
 * canonical sum, beside the machine's limit found in the same minute.
 *
 *     WH_TRY(wh_bench_coll_open(job, rank, ranks, &what, &b));        // in every rank, after wh_comm_job_join
 *     WH_TRY(wh_bench_coll_row(b, bytes, &row));                      // in every rank, the same sizes in the same order
 *     wh_bench_coll_close(b);
 *
 * Sizes as nccl-tests counts them: `bytes` is the full vector, of which reduce-scatter, all-gather and all-to-all give
 * each rank an equal slice.
 *
 * The limit: every rank makes its share of the operation's reads and writes on memory of its own, all ranks at once, with
 * the kernel of the collectives: nothing is shared and nobody is waited for. Measured for each form and size just before
 * and just after the operation, the best of both; so up to about the size of a core's caches it is their limit, and beyond,
 * the memory's with what the ranks together ask of it. It is a floor for `us_min`, but for noise: neighbours slow whichever
 * of the two they meet. A rank that reads another's cache pays more: for small sizes the limit is out of reach. (It used to
 * be one figure for all operations: rewriting S bytes in place, scaled by the least bytes that an operation moves. That was
 * beaten: by reduce-scatter in cache, where a core loads twice as fast as it stores, and by anything after a busy moment.)
 * With more ranks than processors there is none: what ranks do alone then measures how the kernel shares processors out. */
#ifndef WH_RUN_BENCH_COLL_H
#define WH_RUN_BENCH_COLL_H

#include "comm/comm.h"

struct wh_bench_coll_what {
    enum wh_comm_op op; /* SEND, 2 ranks: there and back, of which half counts */
    enum wh_dtype dtype;
    enum wh_redop redop;
    const char *algorithm; /* of coll/plan.h, over messages (comm/exec.h); NULL: what comm.h does by itself */
    size_t max_bytes;
    bool private_memory; /* buffers outside the arena */
    bool crowded;        /* more ranks than processors: no limits */
    uint32_t iters;      /* calls to time, in one go; 0: batches of about 0.1 ms until `seconds` are over */
    double seconds;
};

struct wh_bench_coll_time {
    bool measured;       /* false: this operation has no such form */
    double us;           /* median of batches, per call; slowest rank */
    double us_min;       /* best batch */
    double algbw, busbw; /* GB/s, as nccl-tests defines them */
    uint64_t wrong;  /* elements with other bits than the canonical result, over all ranks; an algorithm that adds in an
                     * order of its own has some */
    double limit_us; /* 0: none */
};

struct wh_bench_coll_row {
    size_t bytes;
    uint64_t count; /* elements of the full vector */
    struct wh_bench_coll_time out_of_place, in_place;
};

struct wh_bench_coll;

/* What the job's arena must have for these sizes. */
size_t wh_bench_coll_arena_bytes(const struct wh_bench_coll_what *what);

/* Errors: NOMEM, those of comm. */
enum wh_status wh_bench_coll_open(struct wh_comm_job *job, uint32_t rank, uint32_t ranks,
                                  const struct wh_bench_coll_what *what, struct wh_bench_coll **out);
void wh_bench_coll_close(struct wh_bench_coll *b); /* takes NULL */

/* `bytes` <= max_bytes, rounded down to equal slices of whole elements. Errors: those of comm. */
enum wh_status wh_bench_coll_row(struct wh_bench_coll *b, size_t bytes, struct wh_bench_coll_row *row);

#endif
