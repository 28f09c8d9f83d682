/* RUN/metrics.jsonl: one JSON object per line; docs/formats/metrics.md. Numbers that must be comparable to the bit are
 * written twice, as decimal and as hexadecimal floating point (loss_hex, grad_norm_hex, valid_loss_hex). */
#ifndef WH_RUN_METRICS_H
#define WH_RUN_METRICS_H

#include <stdint.h>

#include "run/session.h"

struct wh_metrics_step {
    uint64_t step, tokens; /* tokens: counted labels since the run began */
    struct wh_step_result result;
    double step_ms, tokens_per_s, mfu;
};

enum wh_status wh_metrics_step(const char *path, const struct wh_metrics_step *m);
enum wh_status wh_metrics_validation(const char *path, uint64_t step, const struct wh_evaluation *e);

/* Drops the lines of steps after `step` (a run that goes on from an older checkpoint), so that the file reads as if it
 * had never been interrupted. Also drops a last line that was cut. No file: fine. */
enum wh_status wh_metrics_rewind(const char *path, uint64_t step);

#endif
