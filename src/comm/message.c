/* SEND and RECV: cells in a ring for each ordered pair of ranks, in the sender's segment; one producer, one consumer. A
 * message is one or more cells. Messages from one rank to another are received in the order in which they were sent. */
#include <string.h>

#include "comm/comm_int.h"

static struct wh_ring *ring_between(const struct wh_comm_job *job, uint32_t from, uint32_t to) {
    return (struct wh_ring *)(void *)(job->segment[from] + (size_t)WH_COMM_GROUPS_MAX * WH_PIECES * WH_PIECE_BYTES +
                                      to * job->ring_bytes);
}

static struct wh_cell *cell_of(const struct wh_comm_job *job, struct wh_ring *r, uint64_t i) {
    return (struct wh_cell *)(void *)((char *)(r + 1) + i % WH_CELLS * job->cell_bytes);
}

static size_t room_of_cell(const struct wh_comm_job *job) { return job->cell_bytes - sizeof(struct wh_cell); }

static size_t total_bytes(const struct wh_comm_plan *p) { return p->call.count * wh_dtype_bytes(p->call.dtype); }

static struct wh_queue *queue_of(const struct wh_comm_plan *p) {
    struct wh_comm_job *job = p->comm->job;
    uint32_t peer = p->comm->member[p->call.root];
    return p->call.op == WH_SEND ? &job->send[peer] : &job->recv[peer];
}

void wh_message_start(struct wh_comm_plan *p) {
    struct wh_queue *q = queue_of(p);
    p->moved_bytes = 0;
    p->cells = 0;
    p->next = NULL;
    p->entry.sequence = ++p->comm->messages;
    p->log = wh_log_write(p->comm->job, &p->entry, p->entry.sequence);
    if (q->last) q->last->next = p;
    if (!q->last) q->first = p;
    q->last = p;
}

static void finish(struct wh_queue *q) {
    struct wh_comm_plan *p = q->first;
    p->finished = true;
    wh_log_finish(p->log, p->entry.sequence);
    q->first = p->next;
    if (!q->first) q->last = NULL;
}

static void send_cells(struct wh_comm_job *job, uint32_t to) {
    struct wh_queue *q = &job->send[to];
    struct wh_ring *r = ring_between(job, job->rank, to);
    uint64_t sent = atomic_load_explicit(&r->sent, memory_order_relaxed); /* own */
    while (q->first) {
        struct wh_comm_plan *p = q->first;
        /* acquire, with the store in recv_cells: the cell has been read */
        if (sent - atomic_load_explicit(&r->received, memory_order_acquire) == WH_CELLS) break;
        struct wh_cell *c = cell_of(job, r, sent);
        size_t left = total_bytes(p) - p->moved_bytes;
        c->bytes = left < room_of_cell(job) ? left : room_of_cell(job);
        c->total_bytes = total_bytes(p);
        c->fingerprint = p->call_hash;
        if (c->bytes) memcpy(c->data, (const char *)p->call.in + p->moved_bytes, c->bytes);
        p->moved_bytes += c->bytes;
        atomic_store(&r->sent, ++sent); /* release, with the acquire in recv_cells; total order, for the wake */
        if (atomic_load(&job->control->sleepers)) wh_comm_wake_rank(job, to);
        if (p->moved_bytes == total_bytes(p)) finish(q);
    }
}

static void differs(struct wh_comm_plan *p, const struct wh_cell *c) {
    struct wh_comm_job *job = p->comm->job;
    struct wh_text t = {0};
    wh_text_add(&t, "group %s: rank %u calls ", p->comm->name, job->rank);
    wh_comm_describe_entry(p->log, &t);
    wh_text_add(&t, "; the next message from rank %u has %llu bytes%s", p->comm->member[p->call.root],
                (unsigned long long)c->total_bytes,
                c->total_bytes == total_bytes(p) ? " of another type or from another group" : "");
    wh_comm_die(p->comm, wh_comm_poison(p->comm, &t)); /* takes the message out of the queue */
}

/* A list whose members have not all met: if one calls something else, its flag says what. */
static bool to_be_told_by_flags(const struct wh_comm *comm) {
    return comm->listed && !comm->listed->action[0].finished;
}

static void recv_cells(struct wh_comm_job *job, uint32_t from) {
    struct wh_queue *q = &job->recv[from];
    struct wh_ring *r = ring_between(job, from, job->rank);
    uint64_t received = atomic_load_explicit(&r->received, memory_order_relaxed); /* own */
    while (q->first) {
        struct wh_comm_plan *p = q->first;
        if (atomic_load_explicit(&r->sent, memory_order_acquire) == received)
            break; /* with send_cells: cell is filled */
        const struct wh_cell *c = cell_of(job, r, received);
        if (p->moved_bytes == 0 && (c->fingerprint != p->call_hash || c->total_bytes != total_bytes(p))) {
            if (to_be_told_by_flags(p->comm)) break;
            differs(p, c);
            continue;
        }
        if (c->bytes) memcpy((char *)p->call.out + p->moved_bytes, c->data, c->bytes);
        p->moved_bytes += c->bytes;
        atomic_store(&r->received, ++received); /* release, with the acquire in send_cells; total order, for the wake */
        if (atomic_load(&job->control->sleepers)) wh_comm_wake_rank(job, from);
        if (p->moved_bytes == total_bytes(p)) finish(q);
    }
}

static bool lists_go_on(struct wh_comm_job *job) {
    bool any = false;
    for (struct wh_comm *c = job->comms; c; c = c->next)
        if (c->listed) any |= wh_list_move(c);
    return any;
}

void wh_messages_move(struct wh_comm_job *job) {
    do {
        for (uint32_t r = 0; r < job->ranks; r++) {
            if (job->send[r].first) send_cells(job, r);
            if (job->recv[r].first) recv_cells(job, r);
        }
    } while (lists_go_on(job));
}

static void drop_from(struct wh_queue *q, const struct wh_comm *comm) {
    struct wh_comm_plan *p = q->first;
    *q = (struct wh_queue){0};
    for (struct wh_comm_plan *next; p; p = next) {
        next = p->next;
        p->next = NULL;
        if (p->comm == comm) {
            wh_log_finish(p->log, p->entry.sequence);
            continue;
        }
        if (q->last) q->last->next = p;
        if (!q->last) q->first = p;
        q->last = p;
    }
}

void wh_messages_drop(struct wh_comm *comm) {
    comm->listed = NULL;
    for (uint32_t r = 0; r < comm->job->ranks; r++) {
        drop_from(&comm->job->send[r], comm);
        drop_from(&comm->job->recv[r], comm);
    }
}
