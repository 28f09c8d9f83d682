#include "coll/cost.h"

#include <stdlib.h>
#include <string.h>

/* One direction of a port. */
struct lane {
    double free_s;  /* when it is done with earlier rounds */
    double begin_s; /* of this round's first message */
    double load_s;  /* of this round's messages */
};

struct port {
    struct lane out, in;
};

struct message {
    double ready_s;     /* both ranks are in the round */
    double out_s, in_s; /* time that it takes of its sender's port, of its receiver's */
    double tail_s;      /* from its sender's end to its receiver's, at the least */
    double heard_s;     /* placed: from its receiver's end to its sender's; else below 0 */
    uint32_t source, target;
};

struct walk {
    const struct wh_coll_plan *plan;
    const struct wh_coll_topology *topology;
    double *clock;        /* of each rank: when it enters the round */
    double *done;         /* when it leaves it */
    struct port *memory;  /* a port for each rank */
    struct port *network; /* for each rank, or for each machine (as many as ranks suffice) */
    size_t *next;         /* step of each rank */
    struct message *messages;
    size_t capacity;
};

static double max(double a, double b) { return a > b ? a : b; }
static double min(double a, double b) { return a < b ? a : b; }

static bool room_for(struct walk *w, size_t count) {
    if (count <= w->capacity) return true;
    size_t capacity = count > 2 * w->capacity ? count : 2 * w->capacity;
    void *longer = realloc(w->messages, capacity * sizeof *w->messages);
    if (!longer) return false;
    w->messages = longer;
    w->capacity = capacity;
    return true;
}

static const struct wh_coll_link *link_of(const struct walk *w, const struct message *m) {
    bool near = wh_coll_machine(w->topology, m->source) == wh_coll_machine(w->topology, m->target);
    return near ? &w->topology->memory : &w->topology->network;
}

/* The rank's port for this message. */
static struct port *port_of(const struct walk *w, const struct message *m, uint32_t rank) {
    if (link_of(w, m) == &w->topology->memory) return &w->memory[rank];
    return &w->network[w->topology->one_port_per_machine ? wh_coll_machine(w->topology, rank) : rank];
}

/* Where the message waits at its receiver: of half-duplex links, with what the receiver sends. */
static struct lane *entry(const struct walk *w, const struct message *m) {
    struct port *p = port_of(w, m, m->target);
    return link_of(w, m)->half_duplex ? &p->out : &p->in;
}

static void book(struct lane *lane, double ready_s, double load_s) {
    if (lane->load_s == 0 || ready_s < lane->begin_s) lane->begin_s = ready_s;
    lane->load_s += load_s;
}

static double end_s(const struct lane *lane) { return max(lane->free_s, lane->begin_s) + lane->load_s; }

static void close_lane(struct lane *lane) {
    if (lane->load_s > 0) lane->free_s = end_s(lane);
    lane->load_s = 0;
}

static struct message message_of(const struct walk *w, uint32_t rank, const struct wh_coll_step *s) {
    struct message m = {
        .ready_s = max(w->clock[rank], w->clock[s->peer]), .heard_s = -1, .source = rank, .target = s->peer};
    const struct wh_coll_link *link = link_of(w, &m);
    const double bytes = (double)(s->count * wh_coll_elem_bytes(&w->plan->request, s->left.buffer));
    const bool in_arena = s->left.buffer == WH_COLL_IN || s->left.buffer == WH_COLL_OUT;
    m.out_s = m.in_s = link->message_s + bytes / link->bytes_per_s;
    if (!link->half_duplex) return m;
    m.tail_s = link->message_s + min(bytes, link->piece_bytes) / link->bytes_per_s;
    if (link->placed_bytes_per_s == 0 || !in_arena || bytes <= link->piped_most_bytes) return m;
    m.out_s = m.tail_s = link->message_s;
    m.in_s = link->message_s + bytes / link->placed_bytes_per_s;
    m.heard_s = link->latency_s;
    return m;
}

/* The sends of the round; receives are their other ends. */
static bool collect(struct walk *w, uint32_t round, size_t *count) {
    *count = 0;
    for (uint32_t r = 0; r < w->plan->request.ranks; r++) {
        const struct wh_coll_list *l = &w->plan->rank[r];
        for (size_t i = w->next[r]; i < l->step_count && l->steps[i].round == round; i++) {
            const struct wh_coll_step *s = &l->steps[i];
            if (s->kind != WH_COLL_SEND) continue;
            if (!room_for(w, *count + 1)) return false;
            const struct message m = message_of(w, r, s);
            book(&port_of(w, &m, m.source)->out, m.ready_s, m.out_s);
            book(entry(w, &m), m.ready_s, m.in_s);
            w->messages[(*count)++] = m;
        }
    }
    return true;
}

static void carry(struct walk *w, const struct message *m) {
    const struct lane *out = &port_of(w, m, m->source)->out, *in = entry(w, m);
    double left = max(m->ready_s + max(m->out_s, m->in_s), max(end_s(out), end_s(in)));
    double arrived = max(m->ready_s + m->in_s + m->tail_s, left) + link_of(w, m)->latency_s;
    if (m->heard_s >= 0) left = arrived + m->heard_s;
    w->done[m->source] = max(w->done[m->source], left);
    w->done[m->target] = max(w->done[m->target], arrived);
}

static double local_s(const struct walk *w, const struct wh_coll_step *s) {
    const struct wh_coll_request *q = &w->plan->request;
    if (s->kind == WH_COLL_COPY)
        return (double)(s->count * wh_coll_elem_bytes(q, s->out.buffer)) * w->topology->copy_s_per_byte;
    if (s->kind == WH_COLL_ADD)
        return (double)(s->count * wh_coll_elem_bytes(q, WH_COLL_PARTIAL)) * w->topology->add_s_per_byte;
    return 0;
}

static bool walk_round(struct walk *w, uint32_t round) {
    uint32_t n = w->plan->request.ranks;
    size_t count;
    if (!collect(w, round, &count)) return false;
    memcpy(w->done, w->clock, n * sizeof *w->done);
    for (size_t i = 0; i < count; i++) carry(w, &w->messages[i]);
    for (size_t i = 0; i < count; i++) {
        const struct message *m = &w->messages[i];
        close_lane(&port_of(w, m, m->source)->out);
        close_lane(entry(w, m));
    }
    for (uint32_t r = 0; r < n; r++) {
        const struct wh_coll_list *l = &w->plan->rank[r];
        for (; w->next[r] < l->step_count && l->steps[w->next[r]].round == round; w->next[r]++)
            w->done[r] += local_s(w, &l->steps[w->next[r]]);
    }
    memcpy(w->clock, w->done, n * sizeof *w->clock);
    return true;
}

static bool walk_all(struct walk *w, double *round_s) {
    double latest = 0;
    for (uint32_t k = 0; k < w->plan->rounds; k++) {
        if (!walk_round(w, k)) return false;
        for (uint32_t r = 0; r < w->plan->request.ranks; r++) latest = max(latest, w->clock[r]);
        round_s[k] = latest;
    }
    return true;
}

/* Machines are numbered arbitrarily by the caller; ports for all numbers up to the largest. */
static size_t port_count(const struct walk *w) {
    size_t count = w->plan->request.ranks;
    for (uint32_t r = 0; r < w->plan->request.ranks; r++)
        if (wh_coll_machine(w->topology, r) >= count) count = (size_t)wh_coll_machine(w->topology, r) + 1;
    return count;
}

enum wh_status wh_coll_price(const struct wh_coll_plan *p, const struct wh_coll_topology *t,
                             struct wh_coll_price *out) {
    struct walk w = {.plan = p, .topology = t};
    size_t n = p->request.ranks;
    w.clock = calloc(n, sizeof *w.clock);
    w.done = calloc(n, sizeof *w.done);
    w.memory = calloc(n, sizeof *w.memory);
    w.network = calloc(port_count(&w), sizeof *w.network);
    w.next = calloc(n, sizeof *w.next);
    double *round_s = calloc((size_t)p->rounds + 1, sizeof *round_s);
    bool walked = w.clock && w.done && w.memory && w.network && w.next && round_s && walk_all(&w, round_s);
    free(w.done);
    free(w.memory);
    free(w.network);
    free(w.next);
    free(w.messages);
    if (!walked) {
        free(w.clock);
        free(round_s);
        return WH_FAIL(WH_NOMEM, "no memory to price a plan of %zu ranks", n);
    }
    *out = (struct wh_coll_price){p->rounds ? round_s[p->rounds - 1] : 0, w.clock, round_s};
    return WH_OK;
}

void wh_coll_price_free(struct wh_coll_price *price) {
    free(price->rank_s);
    free(price->round_s);
    *price = (struct wh_coll_price){0};
}

struct wh_coll_topology wh_coll_topology_typical(uint32_t ranks_per_machine) {
    return (struct wh_coll_topology){
        .ranks_per_machine = ranks_per_machine,
        .one_port_per_machine = true,
        .memory = {.latency_s = 100e-9, .message_s = 50e-9, .bytes_per_s = 10e9},
        .network = {.latency_s = 2e-6, .message_s = 500e-9, .bytes_per_s = 12.5e9},
        .copy_s_per_byte = 1 / 10e9,
        .add_s_per_byte = 1 / 10e9,
    };
}
