/* What recording and writing a trace share. */
#ifndef WH_RUN_TRACE_INT_H
#define WH_RUN_TRACE_INT_H

#include "run/trace.h"

/* Events of one rank. */
struct wh_trace_part {
    struct wh_trace_event *event;
    size_t count;
    uint64_t dropped;
};

/* `part` [ranks of the run]; sorted in place. No file if nothing was recorded. Errors: IO, NOMEM. */
enum wh_status wh_trace_write_file(const struct wh_stage *stage, struct wh_trace_part *part, const char *path,
                                   struct wh_trace_shares *out);

#endif
