#include "sched/timing.h"

#include <stdlib.h>

/* From one rank to a neighbour. Message k is posted by its sender, then received. */
struct queue {
    double *posted_at, *received_at; /* [as many as are sent] */
    size_t posted, received;
};

struct walk {
    const struct wh_sched_plan *plan;
    const struct wh_sched_cost *cost;
    uint32_t depth;
    struct queue *queues; /* [2 * ranks]: to the next rank, to the rank before */
    double *times;        /* of all queues */
    uint32_t *ready;      /* a ring of ranks to look at; each at most once */
    bool *is_ready;
    uint32_t first, count;
    struct wh_sched_timeline *rank;
};

double wh_sched_duration(const struct wh_sched_cost *c, enum wh_sched_op op) {
    switch (op) {
    case WH_SCHED_FORWARD:
        return c->forward;
    case WH_SCHED_BACKWARD:
        return c->backward;
    case WH_SCHED_BACKWARD_INPUT:
        return c->input;
    case WH_SCHED_BACKWARD_WEIGHT:
        return c->weight;
    default:
        return 0;
    }
}

static double later(double a, double b) { return a > b ? a : b; }

static struct queue *queue_between(const struct walk *w, uint32_t from, uint32_t to) {
    bool next = to == (from + 1) % w->plan->shape.ranks;
    WH_ASSERT(from != to && (next || from == (to + 1) % w->plan->shape.ranks));
    return &w->queues[2 * (size_t)from + !next];
}

static void wake(struct walk *w, uint32_t rank) {
    if (w->is_ready[rank]) return;
    w->is_ready[rank] = true;
    w->ready[(w->first + w->count++) % w->plan->shape.ranks] = rank;
}

/* True when the message is on its way and the sender may go on. A rendezvous posts at once and then waits. */
static bool send(struct walk *w, uint32_t rank, uint32_t peer, bool *posted) {
    struct queue *q = queue_between(w, rank, peer);
    struct wh_sched_timeline *t = &w->rank[rank];
    size_t k = q->posted - *posted; /* its number */
    if (w->depth == 0 && !*posted) {
        q->posted_at[q->posted++] = t->end;
        *posted = true;
        wake(w, peer);
    }
    if (k >= w->depth && q->received <= k - w->depth) return false;
    if (k >= w->depth) t->end = later(t->end, q->received_at[k - w->depth]);
    if (w->depth > 0) q->posted_at[q->posted++] = t->end;
    wake(w, peer);
    *posted = false;
    return true;
}

static bool receive(struct walk *w, uint32_t rank, uint32_t peer) {
    struct queue *q = queue_between(w, peer, rank);
    struct wh_sched_timeline *t = &w->rank[rank];
    if (q->received == q->posted) return false;
    t->end = later(t->end, q->posted_at[q->received]);
    q->received_at[q->received++] = t->end;
    wake(w, peer);
    return true;
}

/* As far as it gets. */
static void run_rank(struct walk *w, uint32_t rank, bool *posted) {
    const struct wh_sched_program *p = &w->plan->rank[rank];
    struct wh_sched_timeline *t = &w->rank[rank];
    for (; t->reached < p->count; t->reached++) {
        const struct wh_sched_instr *i = &p->instrs[t->reached];
        enum wh_sched_message message = wh_sched_ops[i->op].message;
        double took = wh_sched_duration(w->cost, (enum wh_sched_op)i->op);
        if (message == WH_SCHED_SENDS && !send(w, rank, i->peer, &posted[rank])) return;
        if (message == WH_SCHED_RECEIVES && !receive(w, rank, i->peer)) return;
        t->start[t->reached] = t->end;
        t->end += took;
        t->busy += took;
    }
}

/* Each queue has room for the times of all its messages: they lie behind each other in `times`. */
static bool make_queues(struct walk *w) {
    size_t ranks = w->plan->shape.ranks, messages = 0;
    w->queues = calloc(2 * ranks, sizeof *w->queues);
    if (!w->queues) return false;
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t n = 0; n < w->plan->rank[r].count; n++) {
            const struct wh_sched_instr *i = &w->plan->rank[r].instrs[n];
            if (wh_sched_ops[i->op].message != WH_SCHED_SENDS) continue;
            queue_between(w, r, i->peer)->posted++;
            messages++;
        }
    double *rest = w->times = malloc((2 * messages + 1) * sizeof *w->times);
    for (size_t k = 0; rest && k < 2 * ranks; k++) {
        size_t count = w->queues[k].posted;
        w->queues[k] = (struct queue){.posted_at = rest, .received_at = rest + count};
        rest += 2 * count;
    }
    return w->times != NULL;
}

static bool make_timelines(const struct wh_sched_plan *p, struct wh_sched_timing *t) {
    t->ranks = p->shape.ranks;
    t->rank = calloc(t->ranks, sizeof *t->rank);
    for (uint32_t r = 0; t->rank && r < t->ranks; r++)
        if (!(t->rank[r].start = malloc((p->rank[r].count + 1) * sizeof(double)))) return false;
    return t->rank != NULL;
}

static void sum_up(const struct wh_sched_plan *p, struct wh_sched_timing *t) {
    double idle = 0, busy = 0;
    for (uint32_t r = 0; r < t->ranks; r++) {
        t->makespan = later(t->makespan, t->rank[r].end);
        t->stuck |= t->rank[r].reached < p->rank[r].count;
    }
    for (uint32_t r = 0; r < t->ranks; r++) {
        idle += t->makespan - t->rank[r].busy;
        busy += t->rank[r].busy;
    }
    t->idle = t->makespan > 0 ? idle / (t->ranks * t->makespan) : 0;
    t->overhead = busy > 0 ? idle / busy : 0;
}

enum wh_status wh_sched_time(const struct wh_sched_plan *p, const struct wh_sched_cost *c, uint32_t depth,
                             struct wh_sched_timing *out) {
    struct wh_sched_timing t = {0};
    struct walk w = {.plan = p, .cost = c, .depth = depth};
    uint32_t ranks = p->shape.ranks;
    bool *posted = calloc(ranks, sizeof *posted);
    w.ready = malloc(ranks * sizeof *w.ready);
    w.is_ready = calloc(ranks, sizeof *w.is_ready);
    bool good = make_timelines(p, &t) && posted && w.ready && w.is_ready && make_queues(&w);
    w.rank = t.rank;
    for (uint32_t r = 0; good && r < ranks; r++) wake(&w, r);
    while (good && w.count > 0) {
        uint32_t rank = w.ready[w.first];
        w.first = (w.first + 1) % ranks;
        w.count--;
        w.is_ready[rank] = false;
        run_rank(&w, rank, posted);
    }
    free(posted);
    free(w.ready);
    free(w.is_ready);
    free(w.queues);
    free(w.times);
    if (!good) {
        wh_sched_timing_free(&t);
        return WH_FAIL(WH_NOMEM, "no memory to time a schedule of %u ranks", ranks);
    }
    sum_up(p, &t);
    *out = t;
    return WH_OK;
}

void wh_sched_timing_free(struct wh_sched_timing *t) {
    for (uint32_t r = 0; t->rank && r < t->ranks; r++) free(t->rank[r].start);
    free(t->rank);
    *t = (struct wh_sched_timing){0};
}
