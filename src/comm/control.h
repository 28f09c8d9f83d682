/* Layout of the memory that the ranks of a job share, and who writes what. Private to comm.
 *
 *     control segment      struct wh_control, then struct wh_rank_lines [ranks], then struct wh_group_lines
 *                          [WH_COMM_GROUPS_MAX][ranks]
 *     segment of rank r    skew | staging [WH_COMM_GROUPS_MAX] | struct wh_ring with pipe [WH_COMM_GROUPS_MAX][ranks] | arena
 *
 * Invariants
 *  1. A line (128 bytes, the pair that the prefetcher fetches) has one writer, `struct wh_work` and the words of
 *     `struct wh_control` excepted, which are read-modify-written.
 *  2. Sequence numbers of a group count its operations from 1. A rank publishes operation s in slot s % WH_SLOTS, by a
 *     release store of s after everything else in the slot. A slot is reused only when all members have read it: a rank
 *     publishes s only after it has finished s - WH_WINDOW, which needs that all published s - WH_WINDOW, which they did
 *     only after they had finished s - 2 * WH_WINDOW = s - WH_SLOTS.
 *  3. A rank resets its counters of an operation before it publishes it; nobody touches them before he has seen all
 *     members' publications.
 *  4. The segments are skewed by 9 lines of 64 bytes a rank: equal offsets of up to 64 ranks lie in different sets of the
 *     first-level cache.
 *  5. A message is post number n of its ring. The sender writes the post, then stores posted = n + 1 (release), and writes
 *     neither the post nor a placed message's memory again before it sees taken > n. The receiver stores taken = n + 1
 *     (release) after its last read of both. The same holds for the bytes of the pipe with piped and drained. */
#ifndef WH_COMM_CONTROL_H
#define WH_COMM_CONTROL_H

#include <stdatomic.h>
#include <stddef.h>

#include "comm/comm.h"

enum {
    WH_LINE_BYTES = 128,
    WH_WINDOW = 8, /* operations of a group in flight */
    WH_SLOTS = 2 * WH_WINDOW,
    WH_LOG_ENTRIES = 64,
    WH_CAUSE_BYTES = 1400,
    WH_PIECE_BYTES = 128 << 10, /* staging: what one operation on other memory moves at a time */
    WH_PIECES = 2,              /* of them in flight */
};

/* Why a group or a job is dead. state: 0 none, 1 being written, 2 written; the first writer takes it by 0 -> 1. */
struct wh_cause {
    _Atomic uint32_t state;
    uint32_t code; /* enum wh_status */
    char message[WH_CAUSE_BYTES];
};

/* One operation of one rank: its flag. Whoever waits looks at its first line (of 64 bytes) all the time and fetches it from
 * the writer's cache: what lies elsewhere is written before anything in that line, else the writer has to fetch it back once
 * more, which costs it 0.1 us. */
struct wh_slot {
    _Alignas(WH_LINE_BYTES) _Atomic uint64_t sequence;
    uint64_t fingerprint; /* of everything in the call that must be equal on all members */
    union {
        unsigned char bytes[WH_COMM_INLINE_BYTES]; /* small operations: this rank's contribution */
        struct {
            uint64_t in, out; /* others: offsets in this rank's segment; WH_NOWHERE */
        } at;
    } payload;
};
#define WH_NOWHERE UINT64_MAX
enum { WH_SLOT_HEAD_BYTES = 64 - offsetof(struct wh_slot, payload) }; /* of the payload, in the first line */
_Static_assert(sizeof(struct wh_slot) == 512, "a power of two: small operations take 3 % longer with 384");

/* Chunks of one operation: each member has a part of them, taken by it first and by others when they have done theirs. */
struct wh_work {
    _Alignas(WH_LINE_BYTES) _Atomic uint64_t next; /* chunk of this rank's part that nobody has taken yet */
    _Alignas(WH_LINE_BYTES) _Atomic uint64_t done; /* in the first member's lines: chunks that are finished, of all */
};

/* Of one rank in one group. Ranks of disjoint groups with one id use their own lines. */
struct wh_group_lines {
    struct wh_slot slot[WH_SLOTS];
    struct wh_work work[WH_SLOTS];
    _Alignas(WH_LINE_BYTES) struct wh_cause cause; /* the first member's is the group's */
};

/* An operation in the log, for messages; written by its rank before it publishes, read by others after. */
struct wh_log_entry {
    uint64_t sequence, count, start_ns;
    _Atomic uint32_t finished;
    uint64_t in, out;  /* offsets in the segment of what must lie at equal ones, or WH_NOWHERE */
    uint64_t cut, sum; /* hashes of the borders, of struct wh_comm_sum */
    uint8_t group, op, dtype, redop, root, in_place;
    char row[34], group_name[16];
    uint32_t members; /* hash */
};

/* A message. One line. */
struct wh_post {
    _Alignas(64) uint64_t fingerprint;
    uint64_t bytes;
    uint64_t place; /* offset in the sender's segment, or WH_NOWHERE: it comes through the pipe */
    uint64_t count, sequence;
    uint32_t dtype;
};

/* Messages of a group from one rank to another, in the order of sending, in the sender's segment. Each ordered pair has one
 * for each group, so that neither groups nor directions wait for each other. Aligned to 64 bytes only, because the segments
 * are skewed by that; the words of the two writers are two lines apart. */
struct wh_ring {
    _Alignas(64) _Atomic uint64_t posted; /* messages, by the sender */
    _Atomic uint64_t piped;               /* bytes, likewise; every message begins at a line */
    char apart[WH_LINE_BYTES - 2 * sizeof(uint64_t)];
    _Atomic uint64_t taken;   /* messages, by the receiver */
    _Atomic uint64_t drained; /* bytes, likewise */
    char apart_too[WH_LINE_BYTES - 2 * sizeof(uint64_t)];
    struct wh_post post[WH_COMM_MESSAGES];
    _Alignas(64) unsigned char pipe[]; /* job->pipe_bytes */
};

enum wh_rank_state { WH_RANK_AWAITED, WH_RANK_JOINED, WH_RANK_ENDED };

struct wh_rank_lines {
    _Alignas(WH_LINE_BYTES) _Atomic uint32_t bell;         /* futex: changed by whoever has news for this rank */
    _Atomic uint32_t sleeping;                             /* written by the rank itself */
    _Alignas(WH_LINE_BYTES) _Atomic uint64_t heartbeat_ns; /* when it last called or looked */
    _Atomic uint32_t process, state;
    _Alignas(WH_LINE_BYTES) _Atomic uint64_t log_next; /* entries written so far */
    struct wh_log_entry log[WH_LOG_ENTRIES];
};

struct wh_control {
    _Alignas(WH_LINE_BYTES) _Atomic uint32_t sleepers; /* ranks that registered on their bell */
    _Alignas(WH_LINE_BYTES) _Atomic uint32_t joined;
    _Alignas(WH_LINE_BYTES) struct wh_cause cause; /* the job's abort word */
};

#endif
