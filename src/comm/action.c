/* Operations of the inline and the arena path: publish, see all others, do chunks, count them.
 *
 * Chunks. Once all members have published, whoever waits takes the next chunk by fetch-add, computes it for everybody and
 * counts it. What a chunk holds depends on (operation, count, members) alone, and its bits not on who does it. */
#include <string.h>

#include "coll/plan.h"
#include "comm/comm_int.h"

enum { CHUNK_BYTES_LEAST = 4096, CHUNK_BYTES_MOST = 256 << 10, COPY_BYTES = 16 << 10 };

static struct wh_coll_range slice(const struct wh_action *a, uint32_t i) {
    return (struct wh_coll_range){a->border[i], a->border[i + 1] - a->border[i]};
}

static uint64_t chunks_of(const struct wh_action *a, uint64_t elems) {
    return (elems + a->chunk_elems - 1) / a->chunk_elems;
}

/* Those of the slices of one block. */
static uint64_t chunks_of_block(const struct wh_action *a) {
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < a->comm->size; i++) chunks += chunks_of(a, slice(a, i).count);
    return chunks;
}

/* Twice as many chunks as ranks, for those that come late, within the limits; cut at 64 bytes from the begin of the vector
 * or of a slice. Their length doesn't depend on borders: a slice that is the whole vector is work for all ranks. */
void wh_action_cut(struct wh_action *a) {
    size_t elem = wh_dtype_bytes(a->call->dtype), n = a->comm->size, bytes = a->count * elem / (2 * n);
    if (bytes < CHUNK_BYTES_LEAST) bytes = CHUNK_BYTES_LEAST;
    if (bytes > CHUNK_BYTES_MOST) bytes = CHUNK_BYTES_MOST;
    a->chunk_elems = bytes / 64 * 64 / elem;
    if (!wh_comm_op_slices(a->call->op)) {
        a->chunks = chunks_of(a, a->count);
        return;
    }
    a->chunks = chunks_of_block(a) * (a->block_elems ? a->count / a->block_elems : 1);
    if (a->call->op == WH_ALL_TO_ALL) a->chunks *= n; /* a slice from each to each; all are equal */
}

static struct wh_slot *slot_of(const struct wh_action *a, uint32_t member) {
    return &a->comm->lines[member]->slot[a->sequence % WH_SLOTS];
}

static struct wh_work *work_of(const struct wh_action *a, uint32_t member) {
    return &a->comm->lines[member]->work[a->sequence % WH_SLOTS];
}

static char *at(const struct wh_action *a, uint32_t member, uint64_t offset) {
    return offset == WH_NOWHERE ? NULL : a->comm->segment[member] + offset;
}

/* Own memory by its own pointer: the root's result of a REDUCE may lie outside the segment. */
static char *in_of(const struct wh_action *a, uint32_t m) {
    return m == a->comm->rank ? a->in : at(a, m, slot_of(a, m)->payload.at.in);
}

static char *out_of(const struct wh_action *a, uint32_t m) {
    return m == a->comm->rank ? a->out : at(a, m, slot_of(a, m)->payload.at.out);
}

/* To all outputs, in blocks that stay in the first-level cache in between. */
static void copy_to(const char *from, void *const *to, uint32_t outs, size_t bytes) {
    for (size_t b = 0; b < bytes; b += COPY_BYTES) {
        size_t some = bytes - b < COPY_BYTES ? bytes - b : COPY_BYTES;
        for (uint32_t o = 0; o < outs; o++)
            if (to[o] != from) memcpy((char *)to[o] + b, from + b, some);
    }
}

/* Elements [first, first + count) of the vector, from all contributions to where the outputs hold them. INLINE: the
 * contributions lie in the flags, one after the other. */
static void reduce_range(const struct wh_action *a, size_t first, size_t count, void *const *out, uint32_t outs) {
    const struct wh_comm_call *c = a->call;
    const struct wh_reduce *r = a->comm->job->reduce;
    bool flags = a->path == WH_PATH_INLINE;
    size_t elem = wh_dtype_bytes(c->dtype), stride = (flags ? a->count : a->stride) * elem;
    const void *in[WH_COMM_RANKS_MAX * WH_COMM_INPUTS_MAX];
    uint32_t n = 0;
    for (uint32_t m = 0; m < a->comm->size; m++) {
        const char *from = flags ? (const char *)slot_of(a, m)->payload.bytes : in_of(a, m);
        for (uint32_t k = 0; k < wh_comm_inputs(c, m); k++) in[n++] = from + k * stride + first * elem;
    }
    if (c->sum) wh_reduce_merge(r, c->dtype, c->redop, in, n, c->sum->merges, out, outs, count);
    if (!c->sum) wh_reduce_run(r, c->dtype, c->redop, in, n, out, outs, count);
}

/* Where a chunk lies. Operations on slices: it is part of slice `slice` of a block that begins at `block`; ALL_TO_ALL: of
 * slice `slice` of rank `receiver`, which is the sender's slice `receiver`. */
struct place {
    size_t block, first; /* elements; `first` within the slice, or the vector */
    uint32_t slice, receiver;
};

static struct place place_of(const struct wh_action *a, uint64_t chunk) {
    struct place p = {0};
    if (wh_comm_op_slices(a->call->op)) {
        const uint64_t chunks = a->call->op == WH_ALL_TO_ALL ? a->comm->size * chunks_of(a, slice(a, 0).count)
                                : a->block_elems             ? chunks_of_block(a)
                                                             : a->chunks;
        if (a->call->op == WH_ALL_TO_ALL)
            p.receiver = (uint32_t)(chunk / chunks);
        else
            p.block = chunk / chunks * a->block_elems;
        chunk %= chunks;
        for (uint64_t k; chunk >= (k = chunks_of(a, slice(a, p.slice).count)); p.slice++) chunk -= k;
    }
    p.first = chunk * a->chunk_elems;
    return p;
}

static void do_chunk(const struct wh_action *a, uint64_t chunk) {
    const struct place p = place_of(a, chunk);
    uint32_t n = a->comm->size, outs = 0;
    size_t elem = wh_dtype_bytes(a->call->dtype), first = p.block + p.first;
    struct wh_coll_range r = {0, a->count};
    if (wh_comm_op_slices(a->call->op)) r = slice(a, p.slice);
    size_t count = r.count - p.first < a->chunk_elems ? r.count - p.first : a->chunk_elems;
    void *out[WH_COMM_RANKS_MAX];
    switch (a->call->op) {
    case WH_ALL_REDUCE:
        for (; outs < n; outs++) out[outs] = out_of(a, outs) + first * elem;
        reduce_range(a, first, count, out, outs);
        break;
    case WH_REDUCE:
        out[0] = out_of(a, a->call->root) + first * elem;
        reduce_range(a, first, count, out, 1);
        break;
    case WH_REDUCE_SCATTER:
        out[0] = out_of(a, p.slice) + first * elem;
        reduce_range(a, r.first + first, count, out, 1);
        break;
    case WH_BROADCAST:
        for (; outs < n; outs++) out[outs] = out_of(a, outs) + first * elem;
        copy_to(out[a->call->root], out, outs, count * elem);
        break;
    case WH_ALL_GATHER:
        for (; outs < n; outs++) out[outs] = out_of(a, outs) + (r.first + first) * elem;
        copy_to(in_of(a, p.slice) + first * elem, out, outs, count * elem);
        break;
    default: /* WH_ALL_TO_ALL */
        out[0] = out_of(a, p.receiver) + (r.first + first) * elem;
        copy_to(in_of(a, p.slice) + (slice(a, p.receiver).first + first) * elem, out, 1, count * elem);
    }
}

/* Every member computes its own result from the payloads. */
static void finish_inline(const struct wh_action *a) {
    uint32_t n = a->comm->size, me = a->comm->rank, root = a->call->root;
    size_t elem = wh_dtype_bytes(a->call->dtype);
    struct wh_coll_range mine = {0, 0};
    if (wh_comm_op_slices(a->call->op)) mine = slice(a, me);
    const void *in[WH_COMM_RANKS_MAX];
    void *const out = a->out;
    for (uint32_t m = 0; m < n; m++) in[m] = slot_of(a, m)->payload.bytes;
    switch (a->call->op) {
    case WH_REDUCE:
        if (me != root) break; /* else: the same as */
        __attribute__((fallthrough));
    case WH_ALL_REDUCE:
        reduce_range(a, 0, a->count, &out, 1);
        break;
    case WH_REDUCE_SCATTER:
        reduce_range(a, mine.first, mine.count, &out, 1);
        break;
    case WH_BROADCAST:
        if (me != root) memcpy(out, in[root], a->count * elem);
        break;
    case WH_ALL_GATHER:
        for (uint32_t m = 0; m < n; m++)
            memcpy((char *)out + slice(a, m).first * elem, in[m], slice(a, m).count * elem);
        break;
    case WH_ALL_TO_ALL:
        for (uint32_t m = 0; m < n; m++)
            memcpy((char *)out + slice(a, m).first * elem, (const char *)in[m] + mine.first * elem, mine.count * elem);
        break;
    default:
        break;
    }
}

static size_t payload_bytes(const struct wh_action *a) {
    size_t elem = wh_dtype_bytes(a->call->dtype);
    switch (a->call->op) {
    case WH_BARRIER:
        return 0;
    case WH_ALL_GATHER:
        return slice(a, a->comm->rank).count * elem;
    case WH_BROADCAST:
        return a->comm->rank == a->call->root ? a->count * elem : 0;
    default:
        return a->count * elem * wh_comm_inputs(a->call, a->comm->rank);
    }
}

static void write_payload(const struct wh_action *a, unsigned char *payload) {
    const char *from = a->call->op == WH_BROADCAST ? a->out : a->in;
    uint32_t inputs = wh_comm_inputs(a->call, a->comm->rank);
    size_t elem = wh_dtype_bytes(a->call->dtype), bytes = payload_bytes(a) / inputs;
    for (uint32_t k = 0; k < inputs && bytes; k++) memcpy(payload + k * bytes, from + k * a->stride * elem, bytes);
}

static uint64_t offset_of(const struct wh_comm *comm, const void *p) {
    const struct wh_comm_job *job = comm->job;
    uintptr_t begin = (uintptr_t)job->segment[job->rank], at_byte = (uintptr_t)p;
    return p && at_byte >= begin && at_byte < begin + job->arena_offset + job->arena_bytes ? at_byte - begin
                                                                                           : WH_NOWHERE;
}

struct wh_log_entry *wh_log_write(struct wh_comm_job *job, const struct wh_log_entry *entry, uint64_t sequence) {
    struct wh_rank_lines *l = &job->lines[job->rank];
    uint64_t i = atomic_load_explicit(&l->log_next, memory_order_relaxed);
    struct wh_log_entry *e = &l->log[i % WH_LOG_ENTRIES];
    *e = *entry;
    e->sequence = sequence;
    atomic_store_explicit(&l->log_next, i + 1, memory_order_release); /* with the acquire of whoever reports */
    atomic_store_explicit(&l->heartbeat_ns, e->start_ns, memory_order_relaxed);
    return e;
}

void wh_log_finish(struct wh_log_entry *e, uint64_t sequence) {
    if (e->sequence == sequence)
        atomic_store_explicit(&e->finished, 1, memory_order_relaxed); /* else it is another's by now */
}

bool wh_comm_has_room(const struct wh_comm *comm) { return comm->started + 1 - comm->oldest < WH_WINDOW; }

void wh_action_start(struct wh_action *a, const struct wh_log_entry *entry) {
    struct wh_comm *comm = a->comm;
    a->sequence = ++comm->started;
    a->arrived = 0;
    a->finished = false;
    a->log = wh_log_write(comm->job, entry, a->sequence);
    comm->in_flight[a->sequence % WH_WINDOW] = a;
    struct wh_slot *s = slot_of(a, comm->rank);
    s->fingerprint = a->fingerprint;
    if (a->path == WH_PATH_INLINE) {
        write_payload(a, s->payload.bytes);
    } else {
        s->payload.at.in = offset_of(comm, a->in);
        s->payload.at.out = offset_of(comm, a->out);
        struct wh_work *w = work_of(a, comm->rank); /* invariant 3; ordered by the publication below */
        atomic_store_explicit(&w->next, 0, memory_order_relaxed);
        atomic_store_explicit(&w->done, 0, memory_order_relaxed);
    }
    atomic_store(&s->sequence, a->sequence); /* release, with the acquire in see_all; total order, for wh_comm_wake */
    wh_comm_wake(comm);
}

/* *all: every member has published the operation. */
static enum wh_status see_all(struct wh_action *a, bool *all) {
    for (; a->arrived < a->comm->size; a->arrived++) {
        const struct wh_slot *s = slot_of(a, a->arrived);
        /* acquire, with the store in wh_action_start: fingerprint, payload, log and the member's buffer are there */
        if (atomic_load_explicit(&s->sequence, memory_order_acquire) != a->sequence) break;
        if (s->fingerprint != a->fingerprint) return wh_comm_mismatch(a->comm, a, a->arrived);
    }
    *all = a->arrived == a->comm->size;
    return WH_OK;
}

/* A REDUCE whose root keeps its result outside the arena is the root's work alone. */
static bool can_work(const struct wh_action *a) { return a->call->op != WH_REDUCE || out_of(a, a->call->root) != NULL; }

/* The next chunk that nobody has taken: first of this rank's own part, so that the same lines are in the same caches each
 * time and nobody else writes the counter's line; then of the parts of those that come later. False: none is left. */
static bool take_chunk(const struct wh_action *a, uint64_t *chunk) {
    uint32_t n = a->comm->size;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = (a->comm->rank + i) % n;
        uint64_t begin = a->chunks * m / n, count = a->chunks * (m + 1) / n - begin;
        _Atomic uint64_t *next = &work_of(a, m)->next;
        if (atomic_load_explicit(next, memory_order_relaxed) >= count) continue; /* spares the line a write */
        uint64_t k = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);   /* decides only who does what */
        if (k >= count) continue;
        *chunk = begin + k;
        return true;
    }
    return false;
}

static void do_chunks(struct wh_action *a, uint64_t *budget) {
    struct wh_work *w = work_of(a, 0);
    uint64_t chunk;
    while (*budget > 0 && can_work(a) && take_chunk(a, &chunk)) {
        do_chunk(a, chunk);
        --*budget;
        /* release, with the acquire below on the others; acquire, so that the last one's wake comes after all */
        if (atomic_fetch_add_explicit(&w->done, 1, memory_order_acq_rel) + 1 == a->chunks) {
            atomic_thread_fence(memory_order_seq_cst);
            wh_comm_wake(a->comm);
        }
    }
    a->finished =
        atomic_load_explicit(&w->done, memory_order_acquire) == a->chunks; /* all members' chunks are written */
}

static enum wh_status move_action(struct wh_action *a, uint64_t *budget) {
    bool all = false;
    WH_TRY(see_all(a, &all));
    if (!all) return WH_OK;
    if (a->path == WH_PATH_INLINE) {
        finish_inline(a);
        a->finished = true;
    } else {
        do_chunks(a, budget);
    }
    if (a->finished) wh_log_finish(a->log, a->sequence);
    return WH_OK;
}

enum wh_status wh_comm_die(struct wh_comm *comm, enum wh_status status) {
    for (uint64_t s = comm->oldest; s <= comm->started && !comm->dead; s++) {
        struct wh_action *a = comm->in_flight[s % WH_WINDOW];
        wh_log_finish(a->log, a->sequence); /* nobody waits for this rank's part any more */
    }
    comm->dead = true;
    comm->staged = NULL;
    wh_messages_drop(comm);
    return status;
}

enum wh_status wh_comm_move(struct wh_comm *comm, uint64_t budget) {
    if (comm->dead || wh_cause_is_set(&comm->job->control->cause) || wh_cause_is_set(&comm->lines[0]->cause))
        return wh_comm_die(comm, wh_comm_cause(comm));
    for (uint64_t s = comm->oldest; s <= comm->started; s++) {
        struct wh_action *a = comm->in_flight[s % WH_WINDOW];
        enum wh_status status = a->finished ? WH_OK : move_action(a, &budget);
        if (status != WH_OK) return wh_comm_die(comm, status);
        if (s == comm->oldest && a->finished) comm->oldest++;
    }
    if (comm->staged) wh_staged_move(comm);
    return WH_OK;
}

enum wh_status wh_job_move(struct wh_comm *comm, uint64_t budget) {
    enum wh_status status = wh_comm_move(comm, budget);
    if (status != WH_OK) return status;
    for (struct wh_comm *other = comm->job->comms; other; other = other->next)
        if (other != comm && !other->dead && (other->oldest <= other->started || other->staged)) wh_comm_move(other, 1);
    wh_messages_move(comm->job);
    return comm->dead ? wh_comm_cause(comm) : WH_OK;
}
