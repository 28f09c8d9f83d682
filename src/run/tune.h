/* What links were measured to be against what operations then take: every algorithm that serves an operation, predicted and
 * measured, and which one a run would use.
 *
 *     WH_TRY(wh_tune_open(job, rank, ranks, max_bytes, &t));       // in every rank, after wh_comm_job_join
 *     WH_TRY(wh_probe_links(wh_tune_comm(t), ..., &links));
 *     WH_TRY(wh_tune_row(t, &links, WH_ALL_REDUCE, 1 << 20, 0.02, &row));
 *     wh_tune_close(t);
 *
 * Operations are in place, on fp32 in the arena, on inputs that have just been written. */
#ifndef WH_RUN_TUNE_H
#define WH_RUN_TUNE_H

#include "coll/links.h"
#include "comm/comm.h"

enum { WH_TUNE_CANDIDATES_MAX = 16 };

struct wh_tune_candidate {
    const char *name; /* "arena", or of an algorithm */
    uint32_t chunks;
    bool canonical; /* sums have the contract's order */
    double predicted_s;
    double best_s, median_s; /* of the batches, slowest rank; the links are made of bests too */
};

struct wh_tune_row {
    enum wh_comm_op op;
    uint64_t bytes;                                             /* of the vector: whole slices */
    struct wh_tune_candidate candidate[WH_TUNE_CANDIDATES_MAX]; /* fastest predicted first */
    uint32_t count;
    uint32_t contract; /* index of the candidate that is predicted fastest among those that keep the contract */
};

struct wh_tune;

/* Bytes of arena that the job must have for each rank. */
size_t wh_tune_arena_bytes(size_t max_bytes);

/* Errors: NOMEM, those of comm. */
enum wh_status wh_tune_open(struct wh_comm_job *job, uint32_t rank, uint32_t ranks, size_t max_bytes,
                            struct wh_tune **out);
void wh_tune_close(struct wh_tune *t); /* takes NULL */
struct wh_comm *wh_tune_comm(struct wh_tune *t);
/* For wh_probe_links; max_bytes of the arena. */
void *wh_tune_scratch(struct wh_tune *t);

/* In every rank, with the same arguments. `seconds`: about how long each candidate is measured. Errors: those of comm. */
enum wh_status wh_tune_row(struct wh_tune *t, const struct wh_coll_links *links, enum wh_comm_op op, size_t bytes,
                           double seconds, struct wh_tune_row *out);

/* How good the model was over some rows. */
struct wh_tune_summary {
    uint32_t count;             /* predictions */
    uint32_t within_25;         /* of them within 25% of what was measured, either way */
    double least, median, most; /* predicted / measured */
    double worst_choice;        /* the fast choice's measured time / the best measured one, the worst row */
    double worst_contract;      /* the same of those that keep the contract */
};

/* Errors: NOMEM. */
enum wh_status wh_tune_summarize(const struct wh_tune_row *rows, size_t count, struct wh_tune_summary *out);

#endif
