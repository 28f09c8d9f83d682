/* A rank's own side of a job, its groups, plans and operations in flight. Private to comm. */
#ifndef WH_COMM_COMM_INT_H
#define WH_COMM_COMM_INT_H

#include "coll/plan.h"
#include "comm/control.h"
#include "comm/reduce.h"
#include "os/shm.h"

enum wh_path {
    WH_PATH_NOTHING, /* one rank, or nothing to move: at most a copy */
    WH_PATH_INLINE,  /* payload in the flag */
    WH_PATH_ARENA,   /* chunks, straight from and to the members' arenas */
    WH_PATH_STAGED,  /* through the staging space, piece by piece; each piece is an operation of the arena path */
    WH_PATH_MESSAGE, /* SEND and RECV: a post in the ring between two ranks */
    WH_PATH_LIST,    /* a step list over messages, behind a meeting of the members */
};

/* An operation in flight: one sequence number of a group. */
struct wh_action {
    struct wh_comm *comm;
    const struct wh_comm_call *call; /* its count is not used: see below */
    enum wh_path path;               /* INLINE or ARENA */
    bool finished;
    uint64_t sequence, fingerprint;
    struct wh_log_entry *log;
    uint32_t arrived;     /* members whose publication has been seen, from the first on */
    size_t count;         /* elements of the vector: of the call or of a piece */
    const size_t *border; /* [size + 1], operations on slices: of a block of the call, or of a piece */
    size_t block_elems;   /* 0: one block */
    size_t stride;        /* elements between contributions of a rank */
    void *in, *out;       /* of this rank */
    /* ARENA: the vector or each slice is cut into chunks of `chunk_elems`, the last one of each may be shorter. */
    size_t chunk_elems;
    uint64_t chunks;
};

struct wh_list;
struct wh_order_made;

struct wh_comm_plan {
    struct wh_comm *comm;
    struct wh_comm_call call;
    struct wh_list *list; /* LIST */
    char *choice;         /* what wh_comm_plan_describe adds; NULL: nothing was compared */
    size_t *border;       /* room for size + 1, filled for operations on slices; then call.border is this */
    struct wh_comm_sum sum;
    enum wh_path path;
    bool in_place, started, finished;
    uint64_t call_hash;
    struct wh_comm_row *row;
    uint64_t sent_bytes;
    struct wh_log_entry entry; /* what the log will say */
    struct wh_log_entry *log;
    uint64_t start_ns, exposed_ns;
    struct wh_action action[WH_PIECES];
    uint64_t pieces, pieces_started, pieces_done; /* STAGED */
    struct wh_comm_plan *next;                    /* MESSAGE: in a queue of the group */
    bool posted;
    uint64_t post; /* its number, once posted */
    size_t moved_bytes;
};

struct wh_queue {
    struct wh_comm_plan *first, *last;
};

struct wh_comm {
    struct wh_comm_job *job;
    const char *name;
    uint32_t id, rank, size;
    uint32_t member[WH_COMM_RANKS_MAX];
    struct wh_group_lines *lines[WH_COMM_RANKS_MAX]; /* of each member */
    char *segment[WH_COMM_RANKS_MAX];                /* of each member, here */
    uint32_t members_hash;
    bool dead;                   /* failed; nothing is in flight any more */
    uint64_t started, oldest;    /* sequence numbers: last started; first unfinished */
    struct wh_comm_plan *staged; /* the one with pieces to go; nothing of the group is started before it is finished */
    struct wh_comm_plan *listed; /* the one with rounds to go; likewise */
    struct wh_coll_links *links; /* NULL: nothing is compared */
    void *room;                  /* work space of the lists that are chosen; one of them is under way at a time */
    size_t room_bytes;
    struct wh_order_made *made; /* choices, newest first */
    struct wh_action *in_flight[WH_WINDOW];
    uint64_t messages; /* started */
    uint32_t queued;   /* of them, in the queues, which are by the other side's rank in the group: */
    struct wh_queue send[WH_COMM_RANKS_MAX];   /* to be posted, or to be piped on */
    struct wh_queue placed[WH_COMM_RANKS_MAX]; /* posted; the receiver reads them where they lie */
    struct wh_queue recv[WH_COMM_RANKS_MAX];
    char *staging[WH_PIECES];
    size_t piece_border[WH_PIECES][WH_COMM_RANKS_MAX + 1];
    struct wh_comm_plan once; /* of wh_comm_run */
    size_t once_border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm *next;
};

struct wh_comm_job {
    uint32_t ranks, rank; /* rank: WH_COMM_RANKS_MAX in the launcher */
    uint64_t deadline_ns;
    bool crowded; /* more ranks than processors: don't spin */
    int launcher_process, launcher_pidfd;
    const struct wh_reduce *reduce;
    struct wh_shm control_shm, segment_shm[WH_COMM_RANKS_MAX];
    struct wh_control *control;
    struct wh_rank_lines *lines; /* [ranks] */
    struct wh_group_lines *groups;
    char *segment[WH_COMM_RANKS_MAX]; /* after the skew */
    size_t ring_bytes, pipe_bytes, arena_offset, arena_bytes, arena_used_bytes;
    struct wh_comm *comms; /* open groups of this rank */
    uint32_t opened;       /* bit for each id */
    bool moved;            /* a message, at the last look at them: another look may be worth it */
    struct wh_comm_row row[WH_COMM_ROWS_MAX];
    uint32_t rows;
    void (*watch)(void *context, const struct wh_comm_call *call, uint64_t begin_ns, uint64_t end_ns);
    void *watch_context;
};

static inline bool wh_comm_op_reduces(enum wh_comm_op op) {
    return op == WH_ALL_REDUCE || op == WH_REDUCE_SCATTER || op == WH_REDUCE;
}

static inline bool wh_comm_op_slices(enum wh_comm_op op) {
    return op == WH_REDUCE_SCATTER || op == WH_ALL_GATHER || op == WH_ALL_TO_ALL;
}

static inline uint32_t wh_comm_blocks(const struct wh_comm_call *c) { return c->blocks ? c->blocks : 1; }

/* Contributions of a member. */
static inline uint32_t wh_comm_inputs(const struct wh_comm_call *c, uint32_t member) {
    return c->sum ? c->sum->inputs[member] : 1;
}

static inline uint32_t wh_comm_inputs_all(const struct wh_comm_call *c, uint32_t size) {
    uint32_t all = 0;
    for (uint32_t m = 0; m < size; m++) all += wh_comm_inputs(c, m);
    return all;
}

static inline uint32_t wh_comm_inputs_most(const struct wh_comm_call *c, uint32_t size) {
    uint32_t most = 1;
    for (uint32_t m = 0; m < size && c->sum; m++)
        if (c->sum->inputs[m] > most) most = c->sum->inputs[m];
    return most;
}

/* ---- cause.c: failures ---- */

/* Sets a cause unless there is one. */
void wh_cause_set(struct wh_cause *c, enum wh_status code, const char *message);
/* WH_OK, or the cause as this thread's error record. */
enum wh_status wh_cause_status(struct wh_cause *c);
static inline bool wh_cause_is_set(struct wh_cause *c) {
    return atomic_load_explicit(&c->state, memory_order_acquire) != 0; /* with the release in wh_cause_set */
}
/* The job's or the group's. */
enum wh_status wh_comm_cause(struct wh_comm *comm);
/* Poisons the group because member `other` calls something else; returns the cause. */
enum wh_status wh_comm_poison(struct wh_comm *comm, struct wh_text *message); /* frees the message */
enum wh_status wh_comm_mismatch(struct wh_comm *comm, const struct wh_action *a, uint32_t other);
/* Poisons the group because `plan` has waited too long or for a rank that has ended; returns the cause. */
enum wh_status wh_comm_stalled(struct wh_comm_plan *plan, uint64_t waited_ns);
/* A member has ended without having called what is in flight. */
bool wh_comm_waits_for_ended(struct wh_comm_plan *plan);
void wh_comm_describe_entry(const struct wh_log_entry *e, struct wh_text *out);

/* ---- wait.c ---- */

/* Wakes members that sleep; called after something they may wait for was published with a sequentially consistent store
 * or before a sequentially consistent fence. */
void wh_comm_wake(struct wh_comm *comm);
void wh_comm_wake_rank(struct wh_comm_job *job, uint32_t rank);
void wh_comm_wake_job(struct wh_comm_job *job);

/* Moves everything that is in flight until `ready` says so. */
enum wh_status wh_comm_wait_until(struct wh_comm_plan *plan, bool (*ready)(const struct wh_comm_plan *));

/* ---- action.c: operations of the inline and the arena path ---- */

void wh_action_cut(struct wh_action *a);
/* True if the window has room for one more. */
bool wh_comm_has_room(const struct wh_comm *comm);
/* Publishes; there is room. */
void wh_action_start(struct wh_action *a, const struct wh_log_entry *entry);
/* Moves the group's operations, oldest first, by at most `budget` chunks. */
enum wh_status wh_comm_move(struct wh_comm *comm, uint64_t budget);
/* This rank is done with the group; returns `status`. */
enum wh_status wh_comm_die(struct wh_comm *comm, enum wh_status status);
/* Moves all groups and messages of this rank. Faults of groups other than `comm` stay with them. */
enum wh_status wh_job_move(struct wh_comm *comm, uint64_t budget);
/* Writes the entry into this rank's log, with the sequence number. */
struct wh_log_entry *wh_log_write(struct wh_comm_job *job, const struct wh_log_entry *entry, uint64_t sequence);
void wh_log_finish(struct wh_log_entry *e, uint64_t sequence);

/* ---- staged.c, message.c ---- */

void wh_staged_prepare(struct wh_comm_plan *plan);
void wh_staged_start(struct wh_comm_plan *plan);
/* Takes finished pieces out and starts the next; forgets the plan when all are done. */
void wh_staged_move(struct wh_comm *comm);
void wh_message_start(struct wh_comm_plan *plan);
/* What one side puts into a pipe before the other may begin. */
static inline size_t wh_message_piece_bytes(const struct wh_comm_job *job) { return job->pipe_bytes / 4; }
/* Moves the messages of all groups by at most so much as doesn't keep the caller for long; sets job->moved. */
void wh_messages_move(struct wh_comm_job *job);
/* Drops what a dead group had queued. */
void wh_messages_drop(struct wh_comm *comm);

/* ---- plan.c ---- */

/* wh_comm_plan_make without a choice. */
enum wh_status wh_plan_new(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan **out);
/* Checks the call and fills a plan (of a finished call, or zeroed but for `border`, which SEND and RECV don't need). What
 * the call points to must live as long as the plan. */
enum wh_status wh_plan_prepare(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan *p);

/* ---- exec.c: step lists ---- */

/* Makes a plan (ready, not started) one that runs this algorithm's list, in the work space `room` or, if that is NULL, in
 * its own. Errors: UNSUPPORTED, NOMEM. */
enum wh_status wh_list_make(struct wh_comm_plan *plan, const struct wh_coll_algorithm *algorithm, uint32_t chunks,
                            void *room);
const char *wh_list_name(const struct wh_list *list); /* its algorithm's */
void wh_list_free(struct wh_list *list);              /* takes NULL */
void wh_list_start(struct wh_comm_plan *plan);
/* Goes on to the next round if this one's messages are through; forgets the plan when all are. True: it has begun one. */
bool wh_list_move(struct wh_comm *comm);
/* A message that the list waits for; NULL: none. */
struct wh_comm_plan *wh_list_awaits(const struct wh_comm_plan *plan);

/* ---- order.c ---- */

/* Chooses how to run a plan that was made for `call`. Errors: NOMEM. */
enum wh_status wh_order_choose(struct wh_comm_plan *plan, const struct wh_comm_call *call);
/* Frees what the group has kept for that. */
void wh_order_forget(struct wh_comm *comm);

#endif
