/* SEND and RECV: a ring of posts for each group and ordered pair of ranks. A post says what the message is and where:
 *
 *     placed   in the sender's arena: the receiver copies it from there when it comes to it, and the sender is finished when
 *              that is acknowledged. In between the sender has nothing to do.
 *     piped    elsewhere, or small: through the bytes behind the ring; the sender is finished when all are in there, the
 *              receiver when all are out.
 *
 * A send is in comm->send until it is posted and piped, in comm->placed until it is acknowledged. Receives wait in
 * comm->recv; nobody else learns of them. All queues are in the order of starting, as the posts are. */
#include <string.h>

#include "comm/comm_int.h"
#include "comm/exec.h"

enum { LINE_BYTES = 64 };
static const size_t piped_most_bytes = 4096; /* up to here both take the same time: bench/notes/collectives.md */
static const size_t step_bytes = 1 << 20;    /* of placed messages, from one rank, at one look */

static struct wh_ring *ring_between(const struct wh_comm *comm, uint32_t from, uint32_t to) {
    const struct wh_comm_job *job = comm->job;
    return (struct wh_ring *)(void *)(comm->segment[from] + (size_t)WH_COMM_GROUPS_MAX * WH_PIECES * WH_PIECE_BYTES +
                                      ((size_t)comm->id * job->ranks + comm->member[to]) * job->ring_bytes);
}

static size_t total_bytes(const struct wh_comm_plan *p) { return p->call.count * wh_dtype_bytes(p->call.dtype); }

static size_t lines_of(size_t bytes) { return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void append(struct wh_queue *q, struct wh_comm_plan *p) {
    p->next = NULL;
    if (q->last) q->last->next = p;
    if (!q->last) q->first = p;
    q->last = p;
}

static struct wh_comm_plan *take_first(struct wh_queue *q) {
    struct wh_comm_plan *p = q->first;
    q->first = p->next;
    if (!q->first) q->last = NULL;
    return p;
}

size_t wh_comm_piped_most_bytes(void) { return piped_most_bytes; }

static void finish(struct wh_comm_plan *p) {
    p->finished = true;
    p->comm->queued--;
    wh_log_finish(p->log, p->entry.sequence);
}

/* After a sequentially consistent store of what is news. */
static void wake(const struct wh_comm *comm, uint32_t member) {
    if (atomic_load(&comm->job->control->sleepers)) wh_comm_wake_rank(comm->job, comm->member[member]);
}

/* ---- the sender ---- */

static size_t room_in_pipe(const struct wh_comm *comm, struct wh_ring *r) {
    return comm->job->pipe_bytes - (size_t)(atomic_load_explicit(&r->piped, memory_order_relaxed) -
                                            atomic_load_explicit(&r->drained, memory_order_acquire));
}

/* Whether the message stays where it is. A small one does so only if the pipe is full. */
static bool is_placed(const struct wh_comm_plan *p, struct wh_ring *r) {
    if (p->entry.in == WH_NOWHERE || total_bytes(p) == 0) return false;
    return total_bytes(p) > piped_most_bytes || lines_of(total_bytes(p)) > room_in_pipe(p->comm, r);
}

/* As much as there is room for; true: all of it. */
static bool fill(struct wh_comm_plan *p, struct wh_ring *r) {
    size_t size = p->comm->job->pipe_bytes, left, some;
    uint64_t piped = atomic_load_explicit(&r->piped, memory_order_relaxed); /* own */
    for (; (left = total_bytes(p) - p->moved_bytes) > 0; p->moved_bytes += some) {
        some = least(least(left, room_in_pipe(p->comm, r)),
                     least(size - piped % size, wh_message_piece_bytes(p->comm->job)));
        if (some == 0) return false;
        memcpy(r->pipe + piped % size, (const char *)p->call.in + p->moved_bytes, some);
        piped += lines_of(some); /* only the last part is no whole number of lines */
        atomic_store(&r->piped, piped);
    }
    return true;
}

static void post(struct wh_comm_plan *p, struct wh_ring *r, bool placed) {
    p->post = atomic_load_explicit(&r->posted, memory_order_relaxed); /* own */
    p->posted = true;
    r->post[p->post % WH_COMM_MESSAGES] = (struct wh_post){.fingerprint = p->call_hash,
                                                           .bytes = total_bytes(p),
                                                           .place = placed ? p->entry.in : WH_NOWHERE,
                                                           .count = p->call.count,
                                                           .sequence = p->entry.sequence,
                                                           .dtype = p->call.dtype};
    atomic_store(&r->posted, p->post + 1);
}

static void send_to(struct wh_comm *comm, uint32_t to) {
    struct wh_queue *q = &comm->send[to], *placed = &comm->placed[to];
    struct wh_ring *r = ring_between(comm, comm->rank, to);
    uint64_t taken = atomic_load_explicit(&r->taken, memory_order_acquire);
    for (; placed->first && placed->first->post < taken; comm->job->moved = true) finish(take_first(placed));
    bool news = false;
    for (struct wh_comm_plan *p; (p = q->first) != NULL;) {
        bool first = !p->posted, stays = first && is_placed(p, r);
        size_t before = p->moved_bytes;
        if (first && atomic_load_explicit(&r->posted, memory_order_relaxed) - taken == WH_COMM_MESSAGES) break;
        bool all = stays || fill(p, r); /* before the post: who sees that finds bytes */
        if (first) post(p, r, stays);
        news |= first || p->moved_bytes > before;
        if (!all) break;
        take_first(q);
        if (stays) append(placed, p);
        if (!stays) finish(p);
    }
    comm->job->moved |= news;
    if (news) wake(comm, to);
}

/* ---- the receiver ---- */

static void differs(struct wh_comm_plan *p, const struct wh_post *post) {
    struct wh_comm_job *job = p->comm->job;
    struct wh_text t = {0};
    wh_text_add(&t, "group %s: rank %u calls ", p->comm->name, job->rank);
    wh_comm_describe_entry(&p->entry, &t);
    wh_text_add(&t, "; the next message from rank %u has %llu bytes: send of %llu %s, sequence %llu",
                p->comm->member[p->call.root], (unsigned long long)post->bytes, (unsigned long long)post->count,
                wh_dtype_name((enum wh_dtype)post->dtype), (unsigned long long)post->sequence);
    if (post->count == p->call.count && post->dtype == (uint32_t)p->call.dtype)
        wh_text_add(&t, "; they opened the group with different members");
    wh_comm_die(p->comm, wh_comm_poison(p->comm, &t)); /* empties the queues */
}

/* A list whose members have not all met: if one calls something else, its flag says what. */
static bool to_be_told_by_flags(const struct wh_comm *comm) {
    return comm->listed && !comm->listed->action[0].finished;
}

/* What the pipe has; true: all of the message. */
static bool drain(struct wh_comm_plan *p, struct wh_ring *r) {
    size_t size = p->comm->job->pipe_bytes, left, some;
    uint64_t drained = atomic_load_explicit(&r->drained, memory_order_relaxed); /* own */
    for (; (left = total_bytes(p) - p->moved_bytes) > 0; p->moved_bytes += some) {
        some = (size_t)(atomic_load_explicit(&r->piped, memory_order_acquire) - drained);
        some = least(least(left, some), size - drained % size);
        if (some == 0) return false;
        memcpy((char *)p->call.out + p->moved_bytes, r->pipe + drained % size, some);
        drained += lines_of(some);
        atomic_store(&r->drained, drained);
    }
    return true;
}

/* From the sender's arena, by the budget; true: all of it. */
static bool fetch(struct wh_comm_plan *p, const struct wh_post *post, size_t *budget) {
    size_t some = least(total_bytes(p) - p->moved_bytes, *budget);
    const char *in = p->comm->segment[p->call.root] + post->place;
    memcpy((char *)p->call.out + p->moved_bytes, in + p->moved_bytes, some);
    p->moved_bytes += some;
    *budget -= some;
    return p->moved_bytes == total_bytes(p);
}

/* A sender that fails may write into its buffer again, but not before the cause is set: what was read then is no result. */
static bool is_void(struct wh_comm *comm) {
    atomic_thread_fence(memory_order_acquire); /* the look comes after the reading */
    return wh_cause_is_set(&comm->job->control->cause) || wh_cause_is_set(&comm->lines[0]->cause);
}

static void receive_from(struct wh_comm *comm, uint32_t from) {
    struct wh_queue *q = &comm->recv[from];
    struct wh_ring *r = ring_between(comm, from, comm->rank);
    uint64_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed); /* own */
    size_t budget = step_bytes;
    bool news = false;
    while (q->first && atomic_load_explicit(&r->posted, memory_order_acquire) != taken) {
        struct wh_comm_plan *p = q->first;
        const struct wh_post *post = &r->post[taken % WH_COMM_MESSAGES];
        if (post->fingerprint != p->call_hash || post->bytes != total_bytes(p)) {
            if (!to_be_told_by_flags(comm)) differs(p, post);
            break;
        }
        bool stays = post->place != WH_NOWHERE;
        size_t before = p->moved_bytes;
        bool all = stays ? fetch(p, post, &budget) : drain(p, r);
        news |= !stays && p->moved_bytes > before;
        comm->job->moved |= p->moved_bytes > before;
        if (!all || is_void(comm)) break;
        atomic_store(&r->taken, ++taken);
        news = comm->job->moved = true;
        finish(take_first(q));
    }
    if (news) wake(comm, from);
}

/* ---- both ---- */

void wh_message_start(struct wh_comm_plan *p) {
    struct wh_comm *comm = p->comm;
    uint32_t other = p->call.root;
    p->moved_bytes = 0;
    p->posted = false;
    p->entry.sequence = ++comm->messages;
    p->log = wh_log_write(comm->job, &p->entry, p->entry.sequence);
    comm->queued++;
    append(p->call.op == WH_SEND ? &comm->send[other] : &comm->recv[other], p);
    if (p->call.op == WH_SEND) send_to(comm, other);
}

static bool lists_go_on(struct wh_comm_job *job) {
    bool any = false;
    for (struct wh_comm *c = job->comms; c; c = c->next)
        if (c->listed) any |= wh_list_move(c);
    return any;
}

void wh_messages_move(struct wh_comm_job *job) {
    job->moved = false;
    do {
        for (struct wh_comm *c = job->comms; c; c = c->next)
            for (uint32_t m = 0; m < c->size && c->queued > 0; m++) {
                if (c->send[m].first || c->placed[m].first) send_to(c, m);
                if (c->recv[m].first) receive_from(c, m);
            }
    } while (lists_go_on(job));
}

static void drop(struct wh_queue *q) {
    for (struct wh_comm_plan *p = q->first; p; p = p->next) wh_log_finish(p->log, p->entry.sequence);
    *q = (struct wh_queue){0};
}

void wh_messages_drop(struct wh_comm *comm) {
    comm->listed = NULL;
    for (uint32_t m = 0; m < comm->size; m++) drop(&comm->send[m]), drop(&comm->placed[m]), drop(&comm->recv[m]);
    comm->queued = 0;
}
