/* Starts the ranks of a job on this machine as processes, watches them and ends the job in order.
 *
 *     struct wh_comm_job *job;
 *     WH_TRY(wh_comm_job_create(&config, &job));
 *     const struct wh_launch_options options = {.ranks = 4, .job = job, .folder = "runs/x", .console = say};
 *     status = wh_launch_run(&options, body, &context, &result);   // body runs in every rank
 *     wh_comm_job_destroy(job);
 *
 * Rank 0's standard output is ours and what it says goes to the console. Of the other ranks the console shows warnings and
 * errors, each with "[rank N] " in front; the log RUN/ranks/N.log has all that rank N said.
 *
 * How a job ends:
 * - every rank returns WH_OK: WH_OK.
 * - SIGTERM, SIGUSR1, SIGHUP or SIGINT comes: passed on to all ranks, which finish their step, save and return WH_RETRY;
 *   a second SIGINT (RETRY too), or stop_grace_ns without an end (PEER), kills them.
 * - a rank fails, dies or is silent: the others are woken (wh_comm_job_ended, wh_comm_job_abort) and have grace_ns to
 *   leave, then they are killed. The status and the error record are those of the FIRST cause, which names rank, step and
 *   operation; what follows from it is in the logs alone. What all ranks found in the same words is told as of one.
 *   What it left half written in the run folder (*.part) is removed.
 * In every case all ranks are reaped before the call returns, and what they had started is killed with them. When this
 * process itself dies the kernel kills the ranks. Shared memory has no name, so nothing is left of it.
 *
 * The calling process must have no other threads yet (os/process.h). */
#ifndef WH_RUN_LAUNCH_H
#define WH_RUN_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct wh_comm_job;
struct wh_launch_page;

struct wh_launch_options {
    uint32_t ranks;
    struct wh_comm_job *job; /* NULL: ranks that don't talk; after a failure they are killed when grace_ns is over */
    const char *folder;      /* run folder: locked for the job (ranks don't take the lock again); NULL: no logs */
    bool pin;                /* bind ranks to cores (os/topology.h) */
    uint64_t grace_ns;       /* 0: 3 s */
    uint64_t stop_grace_ns;  /* 0: 60 s */
    uint64_t silence_ns;     /* a rank that for this long neither calls wh_launch_at nor wants its processors fails the
                              * job, unless it only waits for one that does (comm/); with what all were doing in rank 0's
                              * log; 0: never */
    enum wh_status (*prepare)(void *context); /* called here once the folder is locked, before any rank; may be NULL */
    void (*console)(void *context, const char *line); /* a line without its end */
    void *console_context;
};

/* What body gets, in the rank's process. */
struct wh_launch_rank {
    uint32_t rank, world;
    struct wh_comm_job *job; /* not joined yet */
    struct wh_launch_page *page;
};

/* Rank: "I am alive, in step `step`, doing this". `doing` is a string literal. Costs a few stores; NULL is fine. */
void wh_launch_at(struct wh_launch_rank *self, int64_t step, const char *doing);

/* The same, more closely: `text` is copied, cut to WH_LAUNCH_NOTE_BYTES - 1, and holds until the next of these calls. Cheap
 * enough for every instruction of a step. A report may, at the worst, show a mixture of two of them. */
enum { WH_LAUNCH_NOTE_BYTES = 64 };
void wh_launch_note(struct wh_launch_rank *self, const char *text);

struct wh_launch_result {
    int32_t culprit;   /* rank of the first cause; -1: none */
    int stopped_by;    /* signal that asked us to stop; 0: none */
    uint32_t killed;   /* ranks that had to be killed */
    uint64_t ended_ns; /* from the first cause to the last rank's end */
};

/* Errors: those of a rank (its own code and message); PEER (a rank died or was silent); RETRY (stopped on request);
 * NOMEM, IO, CONFIG (the folder is locked). *result is written in every case. */
enum wh_status wh_launch_run(const struct wh_launch_options *options,
                             enum wh_status (*body)(struct wh_launch_rank *self, void *context), void *context,
                             struct wh_launch_result *result);

/* ---- being started by others ---- */

/* What a launcher says about this process in its environment, in this order: RANK and WORLD_SIZE;
 * OMPI_COMM_WORLD_*; PMI_*; SLURM_* (only inside a step: sbatch and salloc set SLURM_NTASKS for a single process too). */
struct wh_launch_place {
    uint32_t rank, world, local_rank, local_world;
    const char *launcher; /* "mpirun (Open MPI)"; NULL: started alone */
    const char *variable; /* that gave `world`; NULL: started alone */
};

/* For a command line that doesn't say it itself. `lookup` is getenv or a test's. Errors: CONFIG (a variable that is no
 * number, a rank that is missing or not below the world). */
enum wh_status wh_launch_detect(const char *(*lookup)(const char *name), struct wh_launch_place *out);

/* Refuses to be one of several processes that a launcher started, since there is no transport between them in this build:
 * each would silently be a whole job of its own (case B69). Errors: UNSUPPORTED, and those of wh_launch_detect. */
enum wh_status wh_launch_refuse_singletons(const char *(*lookup)(const char *name));

#endif
