#include "sched/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sched/timing.h"

enum { FAULTS_MAX = 16 };
/* What has been done with a micro-batch in a chunk. */
enum { FORWARD_DONE = 1, INPUT_DONE = 2, WEIGHT_DONE = 4, ALL_DONE = 7 };
enum life { NEVER, HELD, GONE };

/* A slot of one kind, for one micro-batch in one chunk. */
struct hold {
    enum life life;
    uint32_t slot;
};

struct checker {
    const struct wh_sched_plan *plan;
    const struct wh_sched_shape *s;
    const char *file;
    struct wh_faults *faults;
    size_t fault_count;
    uint32_t rank;
    uint8_t *done;                                   /* [chunks * micro-batches] */
    struct hold *act, *grad;                         /* likewise */
    uint8_t *act_taken, *grad_taken;                 /* [slots] */
    uint32_t *next_input, *next_weight;              /* [chunks] micro-batch that the backward must take next */
    const struct wh_sched_instr *act_out, *grad_out; /* what made the output; NULL: it is empty */
};

/* ---- words ---- */

static void say_instr(const struct checker *c, uint32_t rank, const struct wh_sched_instr *i, struct wh_text *out) {
    wh_text_add(out, "rank %" PRIu32 ", instruction %zu (", rank, (size_t)(i - c->plan->rank[rank].instrs));
    wh_sched_label(c->s, i, out);
    wh_text_add(out, ")");
}

static void add_fault(struct checker *c, uint32_t line, const char *where, const char *what) {
    if (c->fault_count++ < FAULTS_MAX)
        wh_faults_add(c->faults, c->file, (int)line, "%s: %s", where, what);
    else if (c->fault_count == FAULTS_MAX + 1)
        wh_faults_add(c->faults, c->file, 0, "... and more");
}

__attribute__((format(printf, 4, 5))) static void fault(struct checker *c, uint32_t rank,
                                                        const struct wh_sched_instr *i, const char *format, ...) {
    char what[400];
    struct wh_text where = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (i)
        say_instr(c, rank, i, &where);
    else
        wh_text_add(&where, "rank %" PRIu32, rank);
    add_fault(c, i ? i->line : 0, where.data, what);
    wh_text_fini(&where);
}

/* "micro-batch 3", "micro-batch 3 of chunk b". */
static const char *block_name(const struct wh_sched_shape *s, uint32_t chunk, uint32_t micro_batch, char out[48]) {
    if (s->chunks > 1)
        snprintf(out, 48, "micro-batch %" PRIu32 " of chunk %c", micro_batch, 'a' + (int)chunk);
    else
        snprintf(out, 48, "micro-batch %" PRIu32, micro_batch);
    return out;
}

/* ---- one rank ---- */

static bool is_real(struct checker *c, const struct wh_sched_instr *i) {
    if (i->op >= WH_SCHED_OP_COUNT || i->chunk >= c->s->chunks || i->micro_batch >= c->s->micro_batches) {
        struct wh_text where = {0};
        wh_text_add(&where, "rank %" PRIu32 ", instruction %zu", c->rank, (size_t)(i - c->plan->rank[c->rank].instrs));
        add_fault(c, i->line, where.data, "there is no such operation, chunk or micro-batch");
        wh_text_fini(&where);
        return false;
    }
    uint32_t stage = wh_sched_stage(c->s, c->rank, i->chunk), last = wh_sched_stages(c->s) - 1;
    uint32_t peer = wh_sched_peer(c->s, c->rank, (enum wh_sched_op)i->op, i->chunk);
    bool pass = i->op == WH_SCHED_PASS_ACT || i->op == WH_SCHED_PASS_GRAD;
    if ((i->op == WH_SCHED_PASS_ACT && stage == 0) || (i->op == WH_SCHED_PASS_GRAD && stage == last)) peer = UINT32_MAX;
    if (peer == UINT32_MAX)
        fault(c, c->rank, i, "stage %" PRIu32 " is the %s: there is no stage %s it", stage, stage ? "last" : "first",
              stage ? "behind" : "before");
    else if (pass && wh_sched_stage_rank(c->s, i->op == WH_SCHED_PASS_ACT ? stage - 1 : stage + 1) != c->rank)
        fault(c, c->rank, i, "the neighbouring stage is on another rank: it must be received");
    else if (!pass && peer == c->rank && wh_sched_ops[i->op].message != WH_SCHED_NO_MESSAGE)
        fault(c, c->rank, i, "the neighbouring stage is on the same rank: it must be passed on, not sent");
    else if (i->peer != peer)
        fault(c, c->rank, i, "its peer is rank %" PRIu32 ", not %" PRIu32, peer, i->peer);
    else
        return true;
    return false;
}

/* The backward takes the lowest micro-batch that it hasn't had. True if this is it. */
static bool check_turn(struct checker *c, const struct wh_sched_instr *i, uint8_t part, uint32_t *next, bool told) {
    const uint8_t *done = &c->done[(size_t)i->chunk * c->s->micro_batches];
    bool right = next[i->chunk] == i->micro_batch;
    char name[48];
    if (!right && !told)
        fault(c, c->rank, i, "%s is out of order: the backward of micro-batch %" PRIu32 " comes next",
              block_name(c->s, i->chunk, i->micro_batch, name), next[i->chunk]);
    while (next[i->chunk] < c->s->micro_batches && (done[next[i->chunk]] & part)) next[i->chunk]++;
    return right;
}

/* Forward, input part and weight part, once each and in this order; sets what is done. False: it can't be done now. */
static bool check_order(struct checker *c, const struct wh_sched_instr *i, uint8_t *done) {
    static const uint8_t parts[] = {[WH_SCHED_FORWARD] = FORWARD_DONE,
                                    [WH_SCHED_BACKWARD] = INPUT_DONE | WEIGHT_DONE,
                                    [WH_SCHED_BACKWARD_INPUT] = INPUT_DONE,
                                    [WH_SCHED_BACKWARD_WEIGHT] = WEIGHT_DONE};
    uint8_t now = parts[i->op], had = *done;
    bool input = now & INPUT_DONE, weight = now & WEIGHT_DONE;
    size_t before = c->fault_count;
    char name[48];
    block_name(c->s, i->chunk, i->micro_batch, name);
    *done |= now;
    if (had & now)
        fault(c, c->rank, i, "%s has had its %s already", name, now == FORWARD_DONE ? "forward" : "backward");
    else if (input && !(had & FORWARD_DONE))
        fault(c, c->rank, i, "%s hasn't gone forward yet", name);
    else if (weight && !input && !(had & INPUT_DONE))
        fault(c, c->rank, i, "the input part of %s hasn't been done yet", name);
    if (c->fault_count > before) return false;
    bool told = input && !check_turn(c, i, INPUT_DONE, c->next_input, false);
    if (weight) check_turn(c, i, WEIGHT_DONE, c->next_weight, told);
    return true;
}

struct pool {
    const char *what;  /* "activation" */
    struct hold *hold; /* of the micro-batch */
    uint8_t *taken;
    uint32_t slots;
};

static void check_slot(struct checker *c, const struct wh_sched_instr *i, const struct pool *p,
                       enum wh_sched_effect effect, uint32_t slot) {
    bool takes = effect == WH_SCHED_TAKE || effect == WH_SCHED_TOUCH;
    if (effect == WH_SCHED_NOTHING) return;
    if (takes && p->hold->life != NEVER) {
        fault(c, c->rank, i, "its %s slot was taken before", p->what);
    } else if (!takes && p->hold->life != HELD) {
        fault(c, c->rank, i, "its %s is %s", p->what,
              p->hold->life == GONE ? "gone: the slot was freed" : "not there yet");
    } else if (takes ? slot >= p->slots || p->taken[slot] : slot != p->hold->slot) {
        fault(c, c->rank, i, "%s slot %" PRIu32 " %s", p->what, slot, takes ? "is taken" : "isn't the one it took");
    } else {
        p->taken[slot] = effect == WH_SCHED_TAKE || effect == WH_SCHED_USE;
        *p->hold = (struct hold){p->taken[slot] ? HELD : GONE, slot};
    }
}

/* The output that is sent or passed on must be what this stage, or its neighbour on this rank, made. */
static void check_output(struct checker *c, const struct wh_sched_instr *i, enum wh_sched_effect effect,
                         const struct wh_sched_instr **out, const char *what) {
    bool pass = i->op == WH_SCHED_PASS_ACT || i->op == WH_SCHED_PASS_GRAD;
    if (effect == WH_SCHED_TAKE && *out)
        fault(c, c->rank, i, "the %s of instruction %zu hasn't been sent or passed on yet", what,
              (size_t)(*out - c->plan->rank[c->rank].instrs));
    if (effect == WH_SCHED_TAKE) *out = i;
    if (effect != WH_SCHED_FREE) return;
    uint32_t stage = wh_sched_stage(c->s, c->rank, i->chunk);
    if (pass) stage = i->op == WH_SCHED_PASS_ACT ? stage - 1 : stage + 1;
    if (!*out)
        fault(c, c->rank, i, "there is no %s to send or pass on", what);
    else if ((*out)->micro_batch != i->micro_batch || wh_sched_stage(c->s, c->rank, (*out)->chunk) != stage)
        fault(c, c->rank, i, "what is to be sent or passed on next is the %s of instruction %zu", what,
              (size_t)(*out - c->plan->rank[c->rank].instrs));
    *out = NULL;
}

static void check_instr(struct checker *c, const struct wh_sched_instr *i) {
    const struct wh_sched_program *p = &c->plan->rank[c->rank];
    size_t key = (size_t)i->chunk * c->s->micro_batches + i->micro_batch;
    if (!is_real(c, i)) return;
    struct wh_sched_effects e = wh_sched_effects(c->s, c->rank, i);
    struct pool act = {"activation", &c->act[key], c->act_taken, p->act_slots};
    struct pool grad = {"gradient", &c->grad[key], c->grad_taken, p->grad_slots};
    /* Otherwise its slots are wrong for the same reason. */
    if (wh_sched_computes((enum wh_sched_op)i->op) && !check_order(c, i, &c->done[key])) return;
    check_slot(c, i, &act, e.act, i->act);
    check_slot(c, i, &grad, e.grad, i->grad);
    check_output(c, i, e.act_out, &c->act_out, "output");
    check_output(c, i, e.grad_out, &c->grad_out, "gradient");
}

static void check_ends(struct checker *c) {
    char name[48];
    for (uint32_t chunk = 0; chunk < c->s->chunks; chunk++)
        for (uint32_t i = 0; i < c->s->micro_batches; i++) {
            size_t key = (size_t)chunk * c->s->micro_batches + i;
            if (c->fault_count > FAULTS_MAX) return;
            uint8_t done = c->done[key];
            bool leaks = c->act[key].life == HELD || c->grad[key].life == HELD;
            const char *missing = !(done & FORWARD_DONE) ? "forward"
                                  : !(done & INPUT_DONE) ? "backward"
                                                         : "weight part of the backward";
            block_name(c->s, chunk, i, name);
            if (done != ALL_DONE)
                fault(c, c->rank, NULL, "%s has no %s%s", name, missing, leaks ? ", and its slot is never freed" : "");
            else if (leaks)
                fault(c, c->rank, NULL, "a slot of %s is never freed", name);
        }
    if (c->act_out) fault(c, c->rank, c->act_out, "its output is never sent or passed on");
    if (c->grad_out) fault(c, c->rank, c->grad_out, "its gradient is never sent or passed on");
}

static bool start_rank(struct checker *c, uint32_t rank) {
    size_t each = (size_t)c->s->chunks * c->s->micro_batches;
    const struct wh_sched_program *p = &c->plan->rank[rank];
    c->rank = rank;
    c->act_out = c->grad_out = NULL;
    c->done = calloc(each, 1);
    c->act = calloc(each, sizeof *c->act);
    c->grad = calloc(each, sizeof *c->grad);
    c->act_taken = calloc((size_t)p->act_slots + 1, 1);
    c->grad_taken = calloc((size_t)p->grad_slots + 1, 1);
    c->next_input = calloc(c->s->chunks, sizeof *c->next_input);
    c->next_weight = calloc(c->s->chunks, sizeof *c->next_weight);
    return c->done && c->act && c->grad && c->act_taken && c->grad_taken && c->next_input && c->next_weight;
}

static void finish_rank(struct checker *c) {
    free(c->done);
    free(c->act);
    free(c->grad);
    free(c->act_taken);
    free(c->grad_taken);
    free(c->next_input);
    free(c->next_weight);
}

static bool check_rank(struct checker *c, uint32_t rank) {
    const struct wh_sched_program *p = &c->plan->rank[rank];
    bool good = start_rank(c, rank);
    for (size_t i = 0; good && i < p->count; i++) check_instr(c, &p->instrs[i]);
    if (good) check_ends(c);
    finish_rank(c);
    return good;
}

/* ---- between ranks ---- */

/* The next message of `rank` in direction `kind` with `peer`, from *at on; NULL: no more. */
static const struct wh_sched_instr *next_message(const struct wh_sched_program *p, enum wh_sched_message kind,
                                                 uint32_t peer, size_t *at) {
    while (*at < p->count) {
        const struct wh_sched_instr *i = &p->instrs[(*at)++];
        if (wh_sched_ops[i->op].message == kind && i->peer == peer) return i;
    }
    return NULL;
}

static bool match(const struct checker *c, uint32_t from, const struct wh_sched_instr *sent, uint32_t to,
                  const struct wh_sched_instr *got) {
    uint32_t source = wh_sched_stage(c->s, from, sent->chunk), target = wh_sched_stage(c->s, to, got->chunk);
    if (sent->micro_batch != got->micro_batch) return false;
    if (sent->op == WH_SCHED_SEND_ACT) return got->op == WH_SCHED_RECV_ACT && source + 1 == target;
    return got->op == WH_SCHED_RECV_GRAD && source == target + 1;
}

static void check_queue(struct checker *c, uint32_t from, uint32_t to) {
    const struct wh_sched_program *sender = &c->plan->rank[from], *receiver = &c->plan->rank[to];
    size_t at_sender = 0, at_receiver = 0;
    for (;;) {
        const struct wh_sched_instr *sent = next_message(sender, WH_SCHED_SENDS, to, &at_sender);
        const struct wh_sched_instr *got = next_message(receiver, WH_SCHED_RECEIVES, from, &at_receiver);
        struct wh_text other = {0};
        if (!sent && !got) return;
        if (sent && got && match(c, from, sent, to, got)) continue;
        if (sent) say_instr(c, from, sent, &other);
        if (!got)
            fault(c, from, sent, "rank %" PRIu32 " never receives it", to);
        else if (!sent)
            fault(c, to, got, "rank %" PRIu32 " sends nothing more", from);
        else
            fault(c, to, got, "what comes next from rank %" PRIu32 " is the message of %s", from, other.data);
        wh_text_fini(&other);
        return;
    }
}

static void check_queues(struct checker *c) {
    uint32_t n = c->s->ranks;
    for (uint32_t r = 0; r < n && n > 1; r++) {
        check_queue(c, r, (r + 1) % n);
        if (n > 2) check_queue(c, r, (r + n - 1) % n);
    }
}

/* Follows the waits from a rank that is stuck; messages match, so they come round. */
static void describe_circle(struct checker *c, const struct wh_sched_timing *t, uint32_t depth) {
    uint32_t rank = 0;
    struct wh_text circle = {0};
    while (t->rank[rank].reached == c->plan->rank[rank].count) rank++;
    for (uint32_t steps = 0; steps < c->s->ranks; steps++) /* into the circle */
        rank = c->plan->rank[rank].instrs[t->rank[rank].reached].peer;
    uint32_t first = rank;
    const struct wh_sched_instr *at = NULL;
    do {
        at = &c->plan->rank[rank].instrs[t->rank[rank].reached];
        wh_text_add(&circle, "%s", circle.bytes ? "; " : "");
        say_instr(c, rank, at, &circle);
        wh_text_add(&circle, " waits for rank %" PRIu32, at->peer);
        rank = at->peer;
    } while (rank != first);
    wh_faults_add(c->faults, c->file, (int)at->line, "waits in a circle, with %" PRIu32 " message%s per queue: %s",
                  depth, depth == 1 ? "" : "s", circle.data);
    c->fault_count++;
    wh_text_fini(&circle);
}

static bool check_waits(struct checker *c, uint32_t depth) {
    struct wh_sched_timing t;
    if (wh_sched_time(c->plan, &(struct wh_sched_cost){0}, depth, &t) != WH_OK) return false;
    if (t.stuck) describe_circle(c, &t, depth);
    wh_sched_timing_free(&t);
    return true;
}

bool wh_sched_check(const struct wh_sched_plan *p, uint32_t depth, const char *file, struct wh_faults *faults) {
    struct checker c = {.plan = p, .s = &p->shape, .file = file, .faults = faults};
    bool memory = true;
    for (uint32_t r = 0; r < p->shape.ranks && memory; r++) memory = check_rank(&c, r);
    if (memory && c.fault_count == 0) check_queues(&c);
    if (memory && c.fault_count == 0) memory = check_waits(&c, depth);
    if (!memory) wh_faults_add(faults, file, 0, "no memory to check a schedule of %" PRIu32 " ranks", p->shape.ranks);
    return memory && c.fault_count == 0;
}
