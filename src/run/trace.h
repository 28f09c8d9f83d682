/* What each rank did in some steps of a run, and when: a timeline that Perfetto and chrome://tracing open
 * (docs/formats/trace.md), measured above, predicted below.
 *
 *     struct wh_trace t;
 *     WH_TRY(wh_trace_open(&stage, bucket_bytes, 3, 5, &t));      // steps 3 to 5; room for all that will be recorded
 *     wh_trace_watch(&t, team);                                   // calls of comm/
 *     for each step:
 *         wh_trace_step(&t, step);
 *         since = wh_trace_now(&t); ... wh_trace_span(&t, WH_TRACK_OPTIMIZER, "AdamW", since);
 *         wh_trace_pause(&t);
 *     WH_TRY(wh_trace_write(&t, team, path, &shares));            // all ranks; rank 0 writes
 *     wh_trace_close(&t);
 *
 * Recording allocates nothing and costs two looks at the clock a span, in the steps that are traced; else a branch. `t` may be
 * NULL everywhere but in open and write. */
#ifndef WH_RUN_TRACE_H
#define WH_RUN_TRACE_H

#include "os/clock.h"
#include "run/stage.h"
#include "run/team.h"

/* Tracks of a rank: X(id, name). The id is the tid in the file. */
#define WH_TRACKS(X)                      \
    X(COMPUTE, "compute")                 \
    X(TENSOR, "tensor communication")     \
    X(PIPELINE, "pipeline communication") \
    X(DATA, "data communication")         \
    X(DISK, "disk")                       \
    X(OPTIMIZER, "optimizer")             \
    X(IDLE, "idle")

enum wh_track {
#define X(id, name) WH_TRACK_##id,
    WH_TRACKS(X)
#undef X
        WH_TRACK_COUNT
};

enum { WH_TRACE_NAME_BYTES = 28 };
static const uint32_t WH_TRACE_NO_INSTR = UINT32_MAX;

struct wh_trace_event {
    uint64_t begin_ns, end_ns, bytes, step;
    uint32_t instr; /* of the rank's program; NO_INSTR: `name` says what */
    enum wh_track track;
    char name[WH_TRACE_NAME_BYTES];
};

struct wh_trace {
    const struct wh_stage *stage; /* borrowed */
    struct wh_trace_event *event; /* [capacity] */
    size_t count, capacity, dropped;
    uint64_t first, last; /* steps to be traced */
    uint64_t step, step_ns;
    bool on;        /* in a step that is traced, or right behind one */
    bool between;   /* behind it: calls of comm/ are not recorded */
    uint32_t instr; /* being executed; NO_INSTR */
};

/* Room for what this rank's program and collectives do in the steps `first` to `last`. Errors: NOMEM. */
enum wh_status wh_trace_open(const struct wh_stage *stage, uint64_t bucket_bytes, uint64_t first, uint64_t last,
                             struct wh_trace *out);
void wh_trace_close(struct wh_trace *t);

/* From now on calls of comm/ are recorded. team NULL: there are none. */
void wh_trace_watch(struct wh_trace *t, const struct wh_team *team);

/* Step `step` begins: recorded if it is one of those. It ends at wh_trace_pause; spans that follow (saving, validating) are
 * recorded until the next step, without what comm/ does in them. */
void wh_trace_step(struct wh_trace *t, uint64_t step);
void wh_trace_pause(struct wh_trace *t);

/* Now, for the beginning of a span; 0: nothing is recorded. */
static inline uint64_t wh_trace_now(const struct wh_trace *t) { return t && t->on ? wh_clock_ns() : 0; }

/* `name` is cut to what there is room for. */
void wh_trace_span(struct wh_trace *t, enum wh_track track, const char *name, uint64_t since_ns);

/* Which instruction of the program is next; wh_trace_instr records it, with `bytes` of a message. */
static inline void wh_trace_at(struct wh_trace *t, uint32_t instr) {
    if (t) t->instr = instr;
}
void wh_trace_instr(struct wh_trace *t, uint64_t bytes, uint64_t since_ns);

/* Of the ranks' time between a step's first and last instruction of the pipeline, means over the steps and replicas: in which
 * no instruction computed, and what sched/timing.h predicts if each kind of instruction takes its mean time of that step
 * everywhere. */
struct wh_trace_shares {
    uint64_t steps; /* 0: nothing was recorded, and no file written */
    double idle, predicted_idle;
    uint64_t dropped; /* events of all ranks that had no room */
};

/* Gathers the events of all ranks (which call it) and has rank 0 write the file. *out on rank 0 alone. Errors: IO, PEER. */
enum wh_status wh_trace_write(const struct wh_trace *t, const struct wh_team *team, const char *path,
                              struct wh_trace_shares *out);

#endif
