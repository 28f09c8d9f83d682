/* The books of a run (docs/formats/metrics.md), written when it ends: what was predicted before the start beside what was
 * measured, the same rows in both. Rank 0 writes into the run folder, rank N into RUN/ranks/N/. */
#ifndef WH_RUN_RECORD_H
#define WH_RUN_RECORD_H

#include "run/session.h"
#include "run/train.h"

/* What a run from step `first` (exclusive) to `last` will move, validations included. s->replica is open. Errors: NOMEM. */
enum wh_status wh_record_predict(const struct wh_session *s, uint64_t first, uint64_t last, struct wh_traffic *out);

/* memory.json, times.json and, among ranks, communication.json in `folder`, which is made if missing. Errors: IO, NOMEM. */
enum wh_status wh_record_write(const struct wh_session *s, const struct wh_train_summary *summary, const char *folder);

#endif
