/* Waiting: some microseconds of looking, then giving the processor to others, then sleep with looks around.
 *
 * Sleep can't miss news: a sleeper registers (sleepers + 1, sleeping = 1), fences, reads its bell, looks once more, and
 * sleeps only while the bell has not changed. Who has news publishes it, fences (or publishes with a sequentially
 * consistent store), and rings if anyone is registered. Of the two fences one is first: either the sleeper sees the news
 * or the publisher sees the sleeper. */
#include "comm/comm_int.h"
#include "os/clock.h"

enum { SPINS = 200 };
static const uint64_t yield_ns = 1000000, sleep_ns = 10000000;

void wh_comm_wake_rank(struct wh_comm_job *job, uint32_t rank) {
    struct wh_rank_lines *l = &job->lines[rank];
    if (!atomic_load_explicit(&l->sleeping, memory_order_relaxed)) return;
    atomic_fetch_add_explicit(&l->bell, 1, memory_order_release); /* with the acquire of the bell in sleep_a_bit */
    wh_futex_wake_all(&l->bell);
}

void wh_comm_wake(struct wh_comm *comm) {
    if (atomic_load(&comm->job->control->sleepers) == 0) return; /* after the caller's store or fence */
    for (uint32_t m = 0; m < comm->size; m++)
        if (m != comm->rank) wh_comm_wake_rank(comm->job, comm->member[m]);
}

void wh_comm_wake_job(struct wh_comm_job *job) {
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t r = 0; r < job->ranks; r++)
        if (r != job->rank) wh_comm_wake_rank(job, r);
}

struct waiter {
    struct wh_comm_plan *plan;
    bool (*ready)(const struct wh_comm_plan *);
    uint32_t spins;
    uint64_t begin_ns, idle_ns; /* of the wait; of the time since when no message moved; 0: not looked at yet */
    bool saw_end;               /* of an awaited rank, at the look around before this one */
};

static enum wh_status move_and_look(struct waiter *w, bool *ready) {
    WH_TRY(wh_job_move(w->plan->comm, UINT64_MAX));
    *ready = w->ready(w->plan);
    return WH_OK;
}

/* Things that only a long wait asks: the deadline, the end of the launcher or of an awaited rank. */
static enum wh_status look_around(struct waiter *w, uint64_t now) {
    struct wh_comm_job *job = w->plan->comm->job;
    atomic_store_explicit(&job->lines[job->rank].heartbeat_ns, now, memory_order_relaxed);
    if (wh_pidfd_ended(job->launcher_pidfd)) {
        wh_cause_set(&job->control->cause, WH_PEER, "the launcher has ended");
        wh_comm_wake_job(job);
        return wh_comm_cause(w->plan->comm);
    }
    /* A rank may have sent all that is awaited and then ended, after this waiter's last look at its messages. What it did
     * before its end is there to be seen once the end is: one more round of looking, without a sleep in it, then it won't
     * come any more. */
    bool ended = wh_comm_waits_for_ended(w->plan);
    bool stalled = (ended && w->saw_end) || now - w->begin_ns > job->deadline_ns;
    w->saw_end = ended;
    WH_TRY(wh_comm_cause(w->plan->comm)); /* after the look at ends: the launcher sets the cause before the state */
    return stalled ? wh_comm_stalled(w->plan, now - w->begin_ns) : WH_OK;
}

static enum wh_status sleep_a_bit(struct waiter *w, bool *ready) {
    struct wh_comm_job *job = w->plan->comm->job;
    struct wh_rank_lines *l = &job->lines[job->rank];
    atomic_store_explicit(&l->sleeping, 1, memory_order_relaxed);
    atomic_fetch_add(&job->control->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst); /* with the publisher's: see the top */
    uint32_t bell = atomic_load_explicit(&l->bell, memory_order_acquire);
    enum wh_status status = move_and_look(w, ready);
    if (status == WH_OK && !*ready && !job->moved && !w->saw_end) wh_futex_wait(&l->bell, bell, sleep_ns);
    atomic_fetch_sub(&job->control->sleepers, 1);
    atomic_store_explicit(&l->sleeping, 0, memory_order_relaxed);
    if (status == WH_OK && !*ready) status = look_around(w, wh_clock_ns());
    return status;
}

static enum wh_status pause_a_bit(struct waiter *w, bool *ready) {
    if (w->spins < SPINS && !w->plan->comm->job->crowded) {
        w->spins++;
        return WH_OK;
    }
    uint64_t now = wh_clock_ns();
    if (w->begin_ns == 0) w->begin_ns = now;
    if (w->idle_ns == 0) w->idle_ns = now;
    if (now - w->idle_ns > yield_ns) return sleep_a_bit(w, ready);
    wh_cpu_yield();
    return WH_OK;
}

enum wh_status wh_comm_wait_until(struct wh_comm_plan *plan, bool (*ready)(const struct wh_comm_plan *)) {
    struct waiter w = {.plan = plan, .ready = ready};
    for (bool done = false;;) {
        WH_TRY(move_and_look(&w, &done));
        if (plan->comm->job->moved) w.spins = 0, w.idle_ns = 0; /* the other side is at work: more comes soon */
        if (!done && !plan->comm->job->moved) WH_TRY(pause_a_bit(&w, &done));
        if (done) return WH_OK;
    }
}
