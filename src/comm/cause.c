/* Failures: who says it first, and in which words. */
#include <string.h>

#include "comm/comm_int.h"
#include "os/clock.h"

enum { CAUSE_NONE, CAUSE_WRITING, CAUSE_WRITTEN };
static const uint64_t writing_limit_ns = 50000000; /* a writer that takes longer has died at it */
static const uint64_t sample_ns = 20000000;

void wh_cause_set(struct wh_cause *c, enum wh_status code, const char *message) {
    uint32_t none = CAUSE_NONE;
    if (!atomic_compare_exchange_strong(&c->state, &none, CAUSE_WRITING)) return;
    c->code = code;
    size_t n = strnlen(message, WH_CAUSE_BYTES - 1);
    memcpy(c->message, message, n);
    c->message[n] = '\0';
    atomic_store(&c->state, CAUSE_WRITTEN); /* with the acquire in wh_cause_is_set and wh_cause_status */
}

enum wh_status wh_cause_status(struct wh_cause *c) {
    if (!wh_cause_is_set(c)) return WH_OK;
    uint64_t begin = wh_clock_ns();
    while (atomic_load_explicit(&c->state, memory_order_acquire) != CAUSE_WRITTEN) {
        if (wh_clock_ns() - begin > writing_limit_ns)
            return WH_FAIL(WH_PEER, "a rank died while it reported a failure");
        wh_cpu_yield();
    }
    return WH_FAIL((enum wh_status)c->code, "%s", c->message);
}

static struct wh_cause *group_cause(struct wh_comm *comm) { return &comm->lines[0]->cause; }

enum wh_status wh_comm_cause(struct wh_comm *comm) {
    /* the group's first: after it failed its ranks go, and the first that goes is not what was wrong */
    if (wh_cause_is_set(group_cause(comm))) return wh_cause_status(group_cause(comm));
    return wh_cause_status(&comm->job->control->cause);
}

enum wh_status wh_comm_poison(struct wh_comm *comm, struct wh_text *message) {
    wh_cause_set(group_cause(comm), WH_PEER, message->data);
    wh_text_fini(message);
    atomic_thread_fence(memory_order_seq_cst); /* before the look for sleepers in wh_comm_wake */
    wh_comm_wake(comm);
    return wh_comm_cause(comm);
}

/* "all_reduce of 100 F32 (dp.grad.all_reduce), sequence 12" */
void wh_comm_describe_entry(const struct wh_log_entry *e, struct wh_text *out) {
    static const char *const redop[WH_REDOP_COUNT] = {"", " max", " min", " rounded"};
    const char *name = wh_comm_op_name((enum wh_comm_op)e->op);
    wh_text_add(out, "%s", name);
    if (wh_comm_op_reduces((enum wh_comm_op)e->op)) wh_text_add(out, "%s", redop[e->redop]);
    if (e->op != WH_BARRIER) wh_text_add(out, " of %llu %s", (unsigned long long)e->count, wh_dtype_name(e->dtype));
    if (e->op == WH_SEND) wh_text_add(out, " to %u", e->root);
    if (e->op == WH_RECV) wh_text_add(out, " from %u", e->root);
    if (e->op == WH_REDUCE || e->op == WH_BROADCAST) wh_text_add(out, ", root %u", e->root);
    if (e->in_place && e->op != WH_BROADCAST) wh_text_add(out, ", in place");
    if (strcmp(e->row, name) != 0) wh_text_add(out, " (%s)", e->row);
    wh_text_add(out, ", sequence %llu", (unsigned long long)e->sequence);
}

/* The entry of operation `sequence` of a group in a rank's log; 0: the newest of the group. NULL: none is left. Read only
 * of a rank that waits or for a report: it may go on writing meanwhile, which costs at most a wrong word in a message. */
static const struct wh_log_entry *find_entry(const struct wh_comm *comm, uint32_t rank, uint64_t sequence) {
    const struct wh_rank_lines *l = &comm->job->lines[rank];
    uint64_t next = atomic_load_explicit(&l->log_next, memory_order_acquire);
    for (uint64_t i = next; i > 0 && next - i < WH_LOG_ENTRIES; i--) {
        const struct wh_log_entry *e = &l->log[(i - 1) % WH_LOG_ENTRIES];
        if (e->group != comm->id) continue;
        if (sequence == 0 || (e->op < WH_SEND && e->sequence == sequence)) return e; /* messages count for themselves */
    }
    return NULL;
}

static void add_place(struct wh_text *t, uint32_t rank, const struct wh_log_entry *e) {
    wh_text_add(t, "rank %u ", rank);
    if (e->in == WH_NOWHERE) wh_text_add(t, "outside its arena");
    if (e->in != WH_NOWHERE) wh_text_add(t, "at byte %llu of its arena", (unsigned long long)e->in);
    if (e->out != WH_NOWHERE && e->out != e->in) wh_text_add(t, ", out at %llu", (unsigned long long)e->out);
}

enum wh_status wh_comm_mismatch(struct wh_comm *comm, const struct wh_action *a, uint32_t other) {
    uint32_t mine = comm->member[comm->rank], theirs = comm->member[other];
    const struct wh_log_entry *e = find_entry(comm, theirs, a->sequence);
    struct wh_text t = {0};
    wh_text_add(&t, "group %s: the ranks call different things: rank %u ", comm->name, mine);
    wh_comm_describe_entry(a->log, &t);
    wh_text_add(&t, "; rank %u ", theirs);
    if (!e) {
        wh_text_add(&t, "something else");
    } else {
        wh_comm_describe_entry(e, &t);
        if (e->members != a->log->members) wh_text_add(&t, "; they opened the group with different members");
        bool same = e->op == a->log->op && e->dtype == a->log->dtype && e->count == a->log->count;
        if (same && e->cut != a->log->cut) wh_text_add(&t, "; they cut it at different borders");
        if (same && e->sum != a->log->sum) wh_text_add(&t, "; they join different contributions");
        if (e->in != a->log->in || e->out != a->log->out) {
            wh_text_add(&t, "; the buffers lie at different places: ");
            add_place(&t, mine, a->log);
            wh_text_add(&t, ", ");
            add_place(&t, theirs, e);
        }
    }
    return wh_comm_poison(comm, &t);
}

/* What a process that keeps others waiting does. */
static const char *condition(const struct wh_rank_lines *l) {
    uint64_t before, after;
    int process = (int)atomic_load_explicit(&l->process, memory_order_relaxed);
    if (atomic_load_explicit(&l->state, memory_order_acquire) == WH_RANK_ENDED) return "has ended";
    char state = process ? wh_process_state(process, &before) : 'A';
    if (state == 'A') return "has not joined";
    if (state == 'T' || state == 't') return "is stopped";
    if (state == 0 || state == 'Z' || state == 'X') return "is dead";
    wh_sleep_ns(sample_ns);
    state = wh_process_state(process, &after);
    if (state == 'D') return "waits for a disk";
    return after > before || state == 'R' ? "is busy with something else" : "sleeps outside of operations";
}

static void add_rank(struct wh_comm *comm, uint32_t member, struct wh_text *t) {
    uint32_t rank = comm->member[member];
    const struct wh_rank_lines *l = &comm->job->lines[rank];
    const struct wh_log_entry *e = find_entry(comm, rank, 0);
    uint64_t beat = atomic_load_explicit(&l->heartbeat_ns, memory_order_relaxed), now = wh_clock_ns();
    wh_text_add(t, "; rank %u %s", rank, condition(l));
    if (beat && now > beat) wh_text_add(t, ", last seen %.1f s ago", 1e-9 * (double)(now - beat));
    if (e) wh_text_add(t, ", its last operation here: ");
    if (e) wh_comm_describe_entry(e, t);
    if (!e) wh_text_add(t, ", it has called nothing here");
}

/* Members that have not published operation `a`, each with its condition; how many. */
static uint32_t add_missing(struct wh_comm *comm, const struct wh_action *a, struct wh_text *t) {
    uint32_t missing = 0;
    for (uint32_t m = 0; m < comm->size; m++) {
        const struct wh_slot *s = &comm->lines[m]->slot[a->sequence % WH_SLOTS];
        if (atomic_load_explicit(&s->sequence, memory_order_acquire) == a->sequence) continue;
        add_rank(comm, m, t);
        missing++;
    }
    return missing;
}

/* All are there but not all chunks are done: who holds one is not recorded, but a process that works is running. */
static void add_slow(struct wh_comm *comm, const struct wh_action *a, struct wh_text *t) {
    const struct wh_work *w = &comm->lines[0]->work[a->sequence % WH_SLOTS];
    wh_text_add(t, "; all have arrived, %llu of %llu chunks are done",
                (unsigned long long)atomic_load_explicit(&w->done, memory_order_relaxed),
                (unsigned long long)a->chunks);
    for (uint32_t m = 0; m < comm->size; m++)
        if (m != comm->rank) add_rank(comm, m, t);
}

/* What keeps a plan that waits for messages: one of a step list's, or itself. */
static struct wh_comm_plan *awaited(struct wh_comm_plan *plan) {
    struct wh_comm_plan *message = plan->comm->listed ? wh_list_awaits(plan->comm->listed) : NULL;
    return message ? message : plan;
}

enum wh_status wh_comm_stalled(struct wh_comm_plan *plan, uint64_t waited_ns) {
    struct wh_comm *comm = plan->comm;
    if (comm->oldest > comm->started) plan = awaited(plan);
    const struct wh_action *a = comm->in_flight[comm->oldest % WH_WINDOW];
    struct wh_text t = {0};
    wh_text_add(&t, "group %s: rank %u waited %.1f s in ", comm->name, comm->member[comm->rank],
                1e-9 * (double)waited_ns);
    bool message = plan->path == WH_PATH_MESSAGE || comm->oldest > comm->started;
    wh_comm_describe_entry(message ? &plan->entry : a->log, &t); /* of many messages some have left the log */
    if (message) {
        add_rank(comm, plan->call.root, &t);
    } else if (add_missing(comm, a, &t) == 0) {
        add_slow(comm, a, &t);
    }
    return wh_comm_poison(comm, &t);
}

bool wh_comm_waits_for_ended(struct wh_comm_plan *plan) {
    struct wh_comm *comm = plan->comm;
    plan = awaited(plan);
    for (uint32_t m = 0; m < comm->size; m++) {
        const struct wh_rank_lines *l = &comm->job->lines[comm->member[m]];
        if (atomic_load_explicit(&l->state, memory_order_acquire) != WH_RANK_ENDED) continue;
        if (plan->path == WH_PATH_MESSAGE && m == plan->call.root) return true;
        for (uint64_t s = comm->oldest; s <= comm->started; s++) {
            const struct wh_slot *slot = &comm->lines[m]->slot[s % WH_SLOTS];
            if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != s) return true;
        }
    }
    return false;
}
