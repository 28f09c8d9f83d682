/* A training run in its folder: steps, metrics, validation, checkpoints, resume.
 *
 * With one rank it runs in the calling process. With more (parallelism.dp) that process checks what can be checked, forks
 * the ranks (run/launch.h) and watches them; it must have no other threads yet. Rank 0 writes all files, RUN/ranks/ apart.
 *
 *     RUN/lock             held while the run lives: one run per folder
 *     RUN/config.yaml      the effective configuration, each value with its source
 *     RUN/tokenizer.json   the tokenizer of the run, unless that is `bytes`
 *     RUN/metrics.jsonl    one line per step (docs/formats/metrics.md)
 *     RUN/checkpoints/     ckpt/checkpoint.h
 *     RUN/memory.json      the memory ledger: predicted and measured bytes of each row
 *     RUN/times.json       where the time of a step goes
 *     RUN/log.txt          what was said
 *     RUN/ranks/N.log      what rank N of several said
 *
 * Library code doesn't print: everything said goes to `say`. */
#ifndef WH_RUN_TRAIN_H
#define WH_RUN_TRAIN_H

#include "config/config.h"
#include "ledger/times.h"

enum wh_train_start {
    WH_TRAIN_FRESH,             /* refuses a folder that holds checkpoints */
    WH_TRAIN_RESUME,            /* refuses a folder that holds none */
    WH_TRAIN_RESUME_IF_PRESENT, /* what a restart loop wants */
};

struct wh_train_options {
    const char *out; /* run folder; made if missing */
    enum wh_train_start start;
    void (*say)(void *context, const char *text);      /* lasting messages; with several ranks also rank 0's progress */
    void (*progress)(void *context, const char *text); /* one line per interval */
    void *context;
    const char *(*environment)(const char *name); /* getenv: says where `wanhe tune` keeps its files; NULL: nowhere */
    uint64_t silence_ns; /* a rank that gives no sign of life for so long ends the run; 0: 10 minutes */
};

struct wh_train_summary {
    uint32_t ranks, threads;    /* threads: of a rank */
    uint64_t first_step, steps; /* steps done by this call, and in all */
    double loss, valid_loss;    /* of the last step; NaN if not known */
    double tokens_per_s, seconds;
    double peak_gflops, mfu; /* measured multiply-add peak, share of it used; 0 if not measured */
    size_t peak_bytes;       /* of the rank with the most */
    struct wh_times times;   /* of the steps of this call, without the first */
    double timed_seconds;    /* of those steps */
    uint64_t timed_steps;
    int stopped_by; /* signal that ended the run early after a checkpoint, or 0 */
};

/* Errors: CONFIG (folder in use, wrong start), FIT, DATA, DAMAGED, IO, PEER (a rank died, or was silent). On a signal, to
 * whichever of the processes, the step is completed, a checkpoint is saved and RETRY is returned, with *out filled. RETRY
 * with nothing but out->stopped_by: interrupted twice, or before the first step. */
enum wh_status wh_train_run(const struct wh_config *config, const struct wh_train_options *options,
                            struct wh_train_summary *out);

#endif
