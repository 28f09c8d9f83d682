#include "sched/build.h"

#include <stdlib.h>
#include <string.h>

void wh_sched_append(struct wh_sched_builder *b, const struct wh_sched_instr *i) {
    struct wh_sched_program *p = &b->program;
    if (b->no_memory) return;
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 32;
        void *longer = realloc(p->instrs, capacity * sizeof *p->instrs);
        if (!longer) {
            b->no_memory = true;
            return;
        }
        p->instrs = longer;
        p->capacity = capacity;
    }
    p->instrs[p->count++] = *i;
}

static void append_op(struct wh_sched_builder *b, enum wh_sched_op op, uint32_t chunk, uint32_t micro_batch) {
    struct wh_sched_instr i = {(uint16_t)op, (uint16_t)chunk, micro_batch, b->rank, WH_SCHED_NO_SLOT, WH_SCHED_NO_SLOT};
    i.peer = wh_sched_peer(&b->shape, b->rank, op, chunk);
    i.line = b->line;
    wh_sched_append(b, &i);
}

void wh_sched_add(struct wh_sched_builder *b, enum wh_sched_op op, uint32_t chunk, uint32_t micro_batch) {
    if (micro_batch < b->shape.micro_batches) append_op(b, op, chunk, micro_batch);
}

double wh_sched_idle_of_passes(const struct wh_sched_shape *s, const struct wh_sched_cost *c) {
    (void)c;
    return (s->ranks - 1.0) / (s->micro_batches + s->ranks - 1.0);
}

enum wh_status wh_sched_plan_alloc(const struct wh_sched_shape *s, struct wh_sched_plan *out) {
    struct wh_sched_program *rank = calloc(s->ranks, sizeof *rank);
    if (!rank) return WH_FAIL(WH_NOMEM, "no memory for the programs of %u ranks", s->ranks);
    *out = (struct wh_sched_plan){.shape = *s, .rank = rank};
    return WH_OK;
}

/* ---- messages ---- */

/* What a computing instruction makes for another stage, as the receiver calls it. */
struct delivery {
    enum wh_sched_op send, receive, pass;
    uint32_t from, to, chunk, micro_batch; /* ranks; chunk of the receiver */
};

/* False if nobody waits for what `i` makes. */
static bool delivery_of(const struct wh_sched_shape *s, uint32_t rank, const struct wh_sched_instr *i,
                        struct delivery *out) {
    struct wh_sched_effects e = wh_sched_effects(s, rank, i);
    bool act = e.act_out == WH_SCHED_TAKE, grad = e.grad_out == WH_SCHED_TAKE;
    if (!wh_sched_computes((enum wh_sched_op)i->op) || !(act || grad)) return false;
    uint32_t stage = wh_sched_stage(s, rank, i->chunk), target = act ? stage + 1 : stage - 1;
    *out = (struct delivery){.send = act ? WH_SCHED_SEND_ACT : WH_SCHED_SEND_GRAD,
                             .receive = act ? WH_SCHED_RECV_ACT : WH_SCHED_RECV_GRAD,
                             .pass = act ? WH_SCHED_PASS_ACT : WH_SCHED_PASS_GRAD,
                             .from = rank,
                             .to = wh_sched_stage_rank(s, target),
                             .chunk = target / s->ranks,
                             .micro_batch = i->micro_batch};
    return true;
}

/* What a computing instruction waits for. False: nothing. */
static bool need_of(const struct wh_sched_shape *s, uint32_t rank, const struct wh_sched_instr *i,
                    struct delivery *out) {
    struct wh_sched_effects e = wh_sched_effects(s, rank, i);
    bool act = i->op == WH_SCHED_FORWARD && e.act == WH_SCHED_USE;
    bool grad = (i->op == WH_SCHED_BACKWARD && e.grad == WH_SCHED_FREE) ||
                (i->op == WH_SCHED_BACKWARD_INPUT && e.grad == WH_SCHED_USE);
    if (!act && !grad) return false;
    uint32_t stage = wh_sched_stage(s, rank, i->chunk), source = act ? stage - 1 : stage + 1;
    *out = (struct delivery){.receive = act ? WH_SCHED_RECV_ACT : WH_SCHED_RECV_GRAD,
                             .from = wh_sched_stage_rank(s, source),
                             .to = rank,
                             .chunk = i->chunk,
                             .micro_batch = i->micro_batch};
    return true;
}

static bool same_delivery(const struct delivery *a, const struct delivery *b) {
    return a->receive == b->receive && a->chunk == b->chunk && a->micro_batch == b->micro_batch;
}

struct connector {
    const struct wh_sched_plan *from; /* computing instructions of all ranks */
    struct wh_sched_builder b;        /* the program that is made */
    size_t *next;                     /* [ranks] how much of each rank's program has been received */
    uint8_t *received;                /* [2][chunks * micro-batches] activations, gradients */
    struct delivery waiting[2];       /* outputs not yet passed on within the rank: activations, gradients */
    bool waits[2];
};

static uint8_t *received_at(struct connector *c, const struct delivery *d) {
    const struct wh_sched_shape *s = &c->b.shape;
    size_t each = (size_t)s->chunks * s->micro_batches;
    return &c->received[(d->receive == WH_SCHED_RECV_GRAD) * each + (size_t)d->chunk * s->micro_batches +
                        d->micro_batch];
}

static void pass_on(struct connector *c, int kind) {
    const struct delivery *d = &c->waiting[kind];
    if (c->waits[kind]) append_op(&c->b, d->pass, d->chunk, d->micro_batch);
    c->waits[kind] = false;
}

/* Everything that the sender sent before comes first. If the sender never makes it, nothing is received: the checker will
 * say what is missing. */
static void receive(struct connector *c, const struct delivery *want) {
    const struct wh_sched_program *p = &c->from->rank[want->from];
    struct delivery d;
    while (!*received_at(c, want) && c->next[want->from] < p->count) {
        const struct wh_sched_instr *i = &p->instrs[c->next[want->from]++];
        if (!delivery_of(&c->b.shape, want->from, i, &d) || d.to != c->b.rank) continue;
        append_op(&c->b, d.receive, d.chunk, d.micro_batch);
        *received_at(c, &d) = 1;
    }
}

static void connect_instr(struct connector *c, const struct wh_sched_instr *i) {
    const struct wh_sched_shape *s = &c->b.shape;
    struct delivery need, made;
    c->b.line = i->line;
    if (need_of(s, c->b.rank, i, &need)) {
        int kind = need.receive == WH_SCHED_RECV_GRAD;
        if (need.from != c->b.rank)
            receive(c, &need);
        else if (c->waits[kind] && same_delivery(&need, &c->waiting[kind]))
            pass_on(c, kind);
    }
    bool makes = delivery_of(s, c->b.rank, i, &made);
    int kind = makes && made.receive == WH_SCHED_RECV_GRAD;
    if (makes) pass_on(c, kind);
    wh_sched_append(&c->b, i);
    if (makes && made.to != c->b.rank) append_op(&c->b, made.send, i->chunk, i->micro_batch);
    if (!makes || made.to != c->b.rank) return;
    c->waiting[kind] = made;
    c->waits[kind] = true;
}

/* In a right schedule everything that is sent is needed, so nothing is left in a queue. */
static bool connect_rank(const struct wh_sched_plan *from, uint32_t rank, struct wh_sched_program *out) {
    const struct wh_sched_shape *s = &from->shape;
    struct connector c = {.from = from, .b = {.shape = *s, .rank = rank}};
    c.next = calloc(s->ranks, sizeof *c.next);
    c.received = calloc(2, (size_t)s->chunks * s->micro_batches);
    bool good = c.next && c.received;
    for (size_t i = 0; good && i < from->rank[rank].count; i++) connect_instr(&c, &from->rank[rank].instrs[i]);
    if (good) pass_on(&c, 0), pass_on(&c, 1);
    free(c.next);
    free(c.received);
    *out = c.b.program;
    return good && !c.b.no_memory;
}

enum wh_status wh_sched_connect(struct wh_sched_plan *p) {
    struct wh_sched_plan made;
    bool good = true;
    WH_TRY(wh_sched_plan_alloc(&p->shape, &made));
    made.generator = p->generator;
    for (uint32_t r = 0; good && r < p->shape.ranks; r++) good = connect_rank(p, r, &made.rank[r]);
    if (!good) {
        wh_sched_plan_free(&made);
        return WH_FAIL(WH_NOMEM, "no memory for the messages of %u ranks", p->shape.ranks);
    }
    wh_sched_plan_free(p);
    *p = made;
    return WH_OK;
}

/* ---- slots ---- */

/* Slots of one kind on one rank. */
struct slots {
    uint32_t *of;              /* [chunks * micro-batches] the slot that is held, or NO_SLOT */
    uint32_t *free_list;       /* those given back, the last one on top */
    uint32_t free_count, used; /* used: slots that exist */
};

static bool slots_init(struct slots *s, size_t each) {
    *s = (struct slots){malloc(each * sizeof *s->of), malloc(each * sizeof *s->free_list), 0, 0};
    if (s->of) memset(s->of, 0xff, each * sizeof *s->of);
    return s->of && s->free_list;
}

static void slots_fini(struct slots *s) {
    free(s->of);
    free(s->free_list);
}

/* A program that takes twice or uses what it hasn't taken gets numbers all the same. */
static uint32_t slot_for(struct slots *s, size_t key, enum wh_sched_effect effect) {
    if (effect == WH_SCHED_NOTHING) return WH_SCHED_NO_SLOT;
    bool takes = effect == WH_SCHED_TAKE || effect == WH_SCHED_TOUCH;
    if (takes && s->of[key] == WH_SCHED_NO_SLOT) s->of[key] = s->free_count ? s->free_list[--s->free_count] : s->used++;
    uint32_t slot = s->of[key];
    if ((effect == WH_SCHED_FREE || effect == WH_SCHED_TOUCH) && slot != WH_SCHED_NO_SLOT) {
        s->free_list[s->free_count++] = slot;
        s->of[key] = WH_SCHED_NO_SLOT;
    }
    return slot;
}

static bool place_rank(const struct wh_sched_shape *shape, uint32_t rank, struct wh_sched_program *p) {
    size_t each = (size_t)shape->chunks * shape->micro_batches;
    struct slots act, grad;
    bool good = slots_init(&act, each);
    good &= slots_init(&grad, each);
    uint32_t resident = 0;
    for (size_t n = 0; good && n < p->count; n++) {
        struct wh_sched_instr *i = &p->instrs[n];
        struct wh_sched_effects e = wh_sched_effects(shape, rank, i);
        size_t key = (size_t)i->chunk * shape->micro_batches + i->micro_batch;
        i->act = slot_for(&act, key, e.act);
        i->grad = slot_for(&grad, key, e.grad);
        if (i->op == WH_SCHED_FORWARD) resident++;
        if (resident > p->resident) p->resident = resident;
        if (e.act == WH_SCHED_FREE && resident > 0) resident--;
    }
    p->act_slots = act.used;
    p->grad_slots = grad.used;
    slots_fini(&act);
    slots_fini(&grad);
    return good;
}

enum wh_status wh_sched_place(struct wh_sched_plan *p) {
    for (uint32_t r = 0; r < p->shape.ranks; r++)
        if (!place_rank(&p->shape, r, &p->rank[r]))
            return WH_FAIL(WH_NOMEM, "no memory to place %u micro-batches", p->shape.micro_batches);
    return WH_OK;
}

/* ---- generated plans ---- */

static enum wh_status check_request(const struct wh_sched_request *q, const struct wh_sched_generator *g) {
    struct wh_text why = {0};
    wh_sched_sizes_legal(q->ranks, q->micro_batches, q->chunks, &why);
    if (!why.bytes && (q->chunks < g->chunks_min || q->chunks > g->chunks_max)) {
        wh_text_add(&why, "schedule %s has %u", g->name, g->chunks_min);
        if (g->chunks_max > g->chunks_min) wh_text_add(&why, " to %u", g->chunks_max);
        wh_text_add(&why, " chunk%s per rank, not %u", g->chunks_max > 1 ? "s" : "", q->chunks);
    }
    enum wh_status status = why.bytes ? WH_FAIL(WH_CONFIG, "%s", why.data) : WH_OK;
    wh_text_fini(&why);
    return status;
}

static enum wh_status build_ranks(struct wh_sched_plan *p) {
    for (uint32_t r = 0; r < p->shape.ranks; r++) {
        struct wh_sched_builder b = {.shape = p->shape, .rank = r};
        p->generator->build(&b);
        p->rank[r] = b.program;
        if (b.no_memory) return WH_FAIL(WH_NOMEM, "no memory for a schedule of %u ranks", p->shape.ranks);
    }
    WH_TRY(wh_sched_connect(p));
    return wh_sched_place(p);
}

enum wh_status wh_sched_plan_new(const struct wh_sched_request *q, const struct wh_sched_generator *g,
                                 struct wh_sched_plan *out) {
    struct wh_sched_plan p;
    WH_TRY(check_request(q, g));
    WH_TRY(wh_sched_plan_alloc(&(struct wh_sched_shape){q->ranks, q->micro_batches, q->chunks, g->placement}, &p));
    p.generator = g;
    enum wh_status status = build_ranks(&p);
    if (status == WH_OK)
        *out = p;
    else
        wh_sched_plan_free(&p);
    return status;
}
