#include "coll/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/faults.h"
#include "coll/symbolic.h"

enum { FAULTS_MAX = 16, ORDER_LINES_MAX = 64 };

struct message {
    uint32_t source, target;
    size_t order; /* among those of the rank that names it */
    const struct wh_coll_step *step;
};

struct messages {
    struct message *items;
    size_t count, capacity;
};

/* Memory that a message of this round reads or writes on one rank. */
struct use {
    struct wh_coll_place at;
    uint64_t count;
    bool written;
};

struct checker {
    const struct wh_coll_plan *plan;
    const struct wh_coll_request *q;
    const struct wh_coll_watcher *watcher;
    struct wh_coll_expressions expressions;
    struct wh_coll_memory *memory; /* WH_COLL_BUFFER_COUNT for each rank */
    size_t *next;                  /* step of each rank */
    uint8_t *heard, *heard_before; /* barrier: heard[r * n + s]: r knows that s has come */
    struct messages sends, receives;
    struct use *uses;
    struct wh_coll_stretches left, right, sum;
    struct wh_faults faults;
    bool no_memory;
};

__attribute__((format(printf, 4, 5))) static void fault(struct checker *c, uint32_t rank, uint32_t round,
                                                        const char *format, ...) {
    char text[200];
    va_list args;
    if (c->faults.count >= FAULTS_MAX) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wh_faults_add(&c->faults, NULL, 0, "rank %u, round %u: %s", rank, round, text);
}

static const char *const buffer_names[WH_COLL_BUFFER_COUNT] = {"IN", "OUT", "LANDING", "PARTIAL"};

static uint64_t buffer_elems(const struct checker *c, uint32_t rank, enum wh_coll_buffer buffer) {
    switch (buffer) {
    case WH_COLL_IN:
        return wh_coll_in_elems(c->q, rank);
    case WH_COLL_OUT:
        return wh_coll_out_elems(c->q, rank);
    case WH_COLL_LANDING:
        return c->plan->rank[rank].landing_elems;
    default:
        return c->plan->rank[rank].partial_elems;
    }
}

static void check_place(struct checker *c, uint32_t rank, const struct wh_coll_step *s, struct wh_coll_place p,
                        bool written) {
    uint64_t elems = p.buffer < WH_COLL_BUFFER_COUNT ? buffer_elems(c, rank, p.buffer) : 0;
    if (p.buffer >= WH_COLL_BUFFER_COUNT)
        fault(c, rank, s->round, "there is no buffer %u", (unsigned)p.buffer);
    else if (p.first > elems || s->count > elems - p.first)
        fault(c, rank, s->round, "%s has %" PRIu64 " elements, not %" PRIu64 " from %" PRIu64, buffer_names[p.buffer],
              elems, s->count, (uint64_t)p.first);
    if (written && p.buffer == WH_COLL_IN) fault(c, rank, s->round, "IN is written");
}

static bool is_wide(struct wh_coll_place p) { return p.buffer == WH_COLL_PARTIAL; }

/* Same place or apart: then out may be written while an operand is read. */
static bool may_share(const struct checker *c, uint32_t rank, const struct wh_coll_step *s, struct wh_coll_place read) {
    struct wh_coll_place a = wh_coll_resolve(c->q, rank, s->out), b = wh_coll_resolve(c->q, rank, read);
    if (a.buffer != b.buffer || a.first == b.first) return true;
    return a.first + s->count <= b.first || b.first + s->count <= a.first;
}

static void check_step(struct checker *c, uint32_t rank, const struct wh_coll_step *s,
                       const struct wh_coll_step *last) {
    bool message = s->kind == WH_COLL_SEND || s->kind == WH_COLL_RECV;
    if (s->kind > WH_COLL_ADD) fault(c, rank, s->round, "there is no step of kind %u", (unsigned)s->kind);
    if (s->count == 0 && (c->q->op != WH_COLL_BARRIER || !message)) fault(c, rank, s->round, "a step of no elements");
    if (message && (s->peer >= c->q->ranks || s->peer == rank)) fault(c, rank, s->round, "peer %u", s->peer);
    if (last && last->round == s->round && message && last->kind >= WH_COLL_COPY)
        fault(c, rank, s->round, "a message behind a local step");
    if (s->count == 0) return;
    if (s->kind != WH_COLL_SEND) check_place(c, rank, s, s->out, true);
    if (s->kind != WH_COLL_RECV) check_place(c, rank, s, s->left, false);
    if (s->kind == WH_COLL_ADD) check_place(c, rank, s, s->right, false);
    if (s->kind == WH_COLL_COPY && is_wide(s->out) != is_wide(s->left)) fault(c, rank, s->round, "COPY changes format");
    if (s->kind >= WH_COLL_COPY && !may_share(c, rank, s, s->left)) fault(c, rank, s->round, "out overlaps left");
    if (s->kind == WH_COLL_ADD && !may_share(c, rank, s, s->right)) fault(c, rank, s->round, "out overlaps right");
}

static void check_lists(struct checker *c) {
    for (uint32_t r = 0; r < c->q->ranks; r++) {
        const struct wh_coll_list *l = &c->plan->rank[r];
        for (size_t i = 0; i < l->step_count; i++) {
            const struct wh_coll_step *s = &l->steps[i], *last = i ? s - 1 : NULL;
            check_step(c, r, s, last);
            if ((last && last->round > s->round) || s->round >= c->plan->rounds)
                fault(c, r, s->round, "out of order, or behind the last round");
        }
    }
}

static struct wh_coll_memory *memory_at(struct checker *c, uint32_t rank, struct wh_coll_place *p) {
    *p = wh_coll_resolve(c->q, rank, *p);
    return &c->memory[rank * WH_COLL_BUFFER_COUNT + p->buffer];
}

static bool read_place(struct checker *c, uint32_t rank, const struct wh_coll_step *s, struct wh_coll_place p,
                       struct wh_coll_stretches *out) {
    const char *name = buffer_names[p.buffer];
    uint64_t first = p.first;
    const struct wh_coll_memory *m = memory_at(c, rank, &p);
    enum wh_coll_read got = wh_coll_memory_read(m, p.first, s->count, out);
    if (got == WH_COLL_READ_NO_MEMORY) c->no_memory = true;
    if (got == WH_COLL_UNWRITTEN)
        fault(c, rank, s->round, "%s is read at %" PRIu64 " .. %" PRIu64 " before all of it was written", name, first,
              first + s->count - 1);
    return got == WH_COLL_READ;
}

static void write_place(struct checker *c, uint32_t rank, struct wh_coll_place p, uint64_t count,
                        const struct wh_coll_stretches *what) {
    struct wh_coll_memory *m = memory_at(c, rank, &p);
    if (!wh_coll_memory_write(m, p.first, count, what)) c->no_memory = true;
}

/* The step's result. */
static void write_out(struct checker *c, uint32_t rank, const struct wh_coll_step *s,
                      const struct wh_coll_stretches *what) {
    struct wh_text text = {0};
    write_place(c, rank, s->out, s->count, what);
    for (size_t i = 0; c->watcher && i < what->count; i++) {
        const struct wh_coll_stretch *x = &what->items[i];
        wh_text_clear(&text);
        wh_coll_expression_text(&c->expressions, x->id, &text);
        c->watcher->see(c->watcher->context, &(struct wh_coll_event){s, rank, x->elem, x->count, text.data});
    }
    wh_text_fini(&text);
}

/* c->sum = c->left + c->right, element by element. False: their elements aren't the same ones. */
static bool add_stretches(struct checker *c, bool rounded) {
    size_t i = 0, j = 0;
    c->sum.count = 0;
    while (i < c->left.count && j < c->right.count) {
        struct wh_coll_stretch *a = &c->left.items[i], *b = &c->right.items[j];
        uint64_t count = a->count < b->count ? a->count : b->count;
        if (a->elem != b->elem) return false;
        uint32_t id = wh_coll_expression_add(&c->expressions, a->id, b->id, rounded);
        struct wh_coll_stretch s = {a->first, count, a->elem, id};
        if (id == UINT32_MAX || !wh_coll_stretches_push(&c->sum, &s)) c->no_memory = true;
        a->first += count, a->elem += count, a->count -= count;
        b->first += count, b->elem += count, b->count -= count;
        i += a->count == 0;
        j += b->count == 0;
    }
    return true;
}

static void run_local(struct checker *c, uint32_t rank, const struct wh_coll_step *s) {
    bool narrows = !is_wide(s->out) && wh_coll_sum_dtype(c->q->dtype) != c->q->dtype;
    if (!read_place(c, rank, s, s->left, &c->left)) return;
    if (s->kind == WH_COLL_COPY) {
        write_out(c, rank, s, &c->left);
        return;
    }
    if (!read_place(c, rank, s, s->right, &c->right)) return;
    if (!add_stretches(c, narrows))
        fault(c, rank, s->round, "ADD of different elements");
    else if (!c->no_memory)
        write_out(c, rank, s, &c->sum);
}

static void push_message(struct checker *c, struct messages *list, const struct message *m) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        void *longer = realloc(list->items, capacity * sizeof *list->items);
        if (!longer) {
            c->no_memory = true;
            return;
        }
        list->items = longer;
        list->capacity = capacity;
    }
    list->items[list->count++] = *m;
}

static int by_pair(const void *a, const void *b) {
    const struct message *x = a, *y = b;
    if (x->target != y->target) return x->target < y->target ? -1 : 1;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static void sort_messages(struct messages *list) {
    if (list->count) qsort(list->items, list->count, sizeof *list->items, by_pair);
}

static int by_place(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    if (x->at.buffer != y->at.buffer) return x->at.buffer < y->at.buffer ? -1 : 1;
    return (x->at.first > y->at.first) - (x->at.first < y->at.first);
}

/* What the round's messages of one rank write must be apart from all else they touch. */
static void check_apart(struct checker *c, uint32_t rank, uint32_t round, size_t count) {
    uint64_t end = 0, written_end = 0;
    qsort(c->uses, count, sizeof *c->uses, by_place);
    for (size_t i = 0; i < count; i++) {
        const struct use *u = &c->uses[i];
        if (i == 0 || u->at.buffer != c->uses[i - 1].at.buffer) end = written_end = 0;
        if (u->at.first < (u->written ? end : written_end))
            fault(c, rank, round, "a message arrives where another arrives or leaves from (element %" PRIu64 ")",
                  (uint64_t)u->at.first);
        if (u->at.first + u->count > end) end = u->at.first + u->count;
        if (u->written && u->at.first + u->count > written_end) written_end = u->at.first + u->count;
    }
}

/* Collects the messages of one rank's round; leaves `next` at its first local step. */
static void collect(struct checker *c, uint32_t rank, uint32_t round) {
    const struct wh_coll_list *l = &c->plan->rank[rank];
    size_t uses = 0, i = c->next[rank];
    for (; i < l->step_count && l->steps[i].round == round && l->steps[i].kind <= WH_COLL_RECV; i++) {
        const struct wh_coll_step *s = &l->steps[i];
        bool sends = s->kind == WH_COLL_SEND;
        struct message m = {sends ? rank : s->peer, sends ? s->peer : rank, i, s};
        push_message(c, sends ? &c->sends : &c->receives, &m);
        if (s->count)
            c->uses[uses++] = (struct use){wh_coll_resolve(c->q, rank, sends ? s->left : s->out), s->count, !sends};
    }
    c->next[rank] = i;
    check_apart(c, rank, round, uses);
}

static void deliver(struct checker *c, const struct message *send, const struct message *receive) {
    const struct wh_coll_step *s = send->step, *r = receive->step;
    if (s->count != r->count) {
        fault(c, receive->target, r->round, "waits for %" PRIu64 " elements from %u, which sends %" PRIu64, r->count,
              send->source, s->count);
    } else if (is_wide(s->left) != is_wide(r->out)) {
        fault(c, receive->target, r->round, "a message from %u changes format", send->source);
    } else if (r->count == 0) {
        size_t n = c->q->ranks;
        for (size_t i = 0; i < n; i++) c->heard[receive->target * n + i] |= c->heard_before[send->source * n + i];
        if (c->watcher)
            c->watcher->see(c->watcher->context,
                            &(struct wh_coll_event){.step = r, .rank = receive->target, .value = ""});
    } else if (read_place(c, send->source, s, s->left, &c->left)) {
        write_out(c, receive->target, r, &c->left);
    }
}

/* Sends and receives of a round, both sorted by pair of ranks, must be the same list. All reads see memory as it was
 * before the round, because nothing arrives where a message leaves from. */
static void exchange(struct checker *c, uint32_t round) {
    size_t i = 0, j = 0, heard_bytes = (size_t)c->q->ranks * c->q->ranks;
    sort_messages(&c->sends);
    sort_messages(&c->receives);
    if (c->q->op == WH_COLL_BARRIER) memcpy(c->heard_before, c->heard, heard_bytes);
    while (i < c->sends.count || j < c->receives.count) {
        const struct message *s = &c->sends.items[i], *r = &c->receives.items[j];
        int order = i == c->sends.count ? 1 : j == c->receives.count ? -1 : 0;
        if (order == 0 && s->target != r->target) order = s->target < r->target ? -1 : 1;
        if (order == 0 && s->source != r->source) order = s->source < r->source ? -1 : 1;
        if (order < 0) fault(c, s->source, round, "sends to %u, which does not receive", s->target);
        if (order > 0) fault(c, r->target, round, "waits for %u, which does not send", r->source);
        if (order == 0) deliver(c, s, r);
        i += order <= 0;
        j += order >= 0;
    }
}

static void run_round(struct checker *c, uint32_t round) {
    c->sends.count = c->receives.count = 0;
    for (uint32_t r = 0; r < c->q->ranks; r++) collect(c, r, round);
    if (c->faults.count || c->no_memory) return;
    exchange(c, round);
    for (uint32_t r = 0; r < c->q->ranks && !c->faults.count; r++) {
        const struct wh_coll_list *l = &c->plan->rank[r];
        for (; c->next[r] < l->step_count && l->steps[c->next[r]].round == round; c->next[r]++)
            run_local(c, r, &l->steps[c->next[r]]);
    }
}

/* Where a rank's input begins in the vector that all ranks see. All-to-all has no such vector. */
static uint64_t input_elem(const struct checker *c, uint32_t rank) {
    return c->q->op == WH_COLL_ALL_GATHER ? wh_coll_slice(c->q, rank).first : 0;
}

/* The ranks' inputs, each element its own. */
static void fill_inputs(struct checker *c) {
    for (uint32_t r = 0; r < c->q->ranks && !c->no_memory; r++) {
        uint64_t count = wh_coll_in_elems(c->q, r);
        struct wh_coll_stretch own = {0, count, input_elem(c, r), r};
        c->left.count = 0;
        if (!wh_coll_stretches_push(&c->left, &own)) c->no_memory = true;
        if (count && !c->no_memory) write_place(c, r, (struct wh_coll_place){WH_COLL_IN, 0}, count, &c->left);
    }
}

/* `count` elements of OUT from `first` on must be input elements elem, elem + 1, ... of rank `from`, or, where the
 * operation adds, sums of those of all ranks. */
static void expect(struct checker *c, uint32_t rank, struct wh_coll_range out, uint32_t from, uint64_t elem) {
    uint32_t last = c->plan->rounds ? c->plan->rounds - 1 : 0;
    struct wh_coll_step s = {.round = last, .count = out.count};
    if (out.count == 0 || !read_place(c, rank, &s, (struct wh_coll_place){WH_COLL_OUT, out.first}, &c->left)) return;
    for (size_t i = 0; i < c->left.count; i++) {
        const struct wh_coll_stretch *got = &c->left.items[i];
        bool adds = wh_coll_op_adds(c->q->op);
        if (adds ? !wh_coll_expression_is_whole(&c->expressions, got->id) : got->id != from) {
            struct wh_text text = {0};
            wh_coll_expression_text(&c->expressions, got->id, &text);
            fault(c, rank, last, "OUT ends with %.120s at element %" PRIu64, text.data, out.first + got->first);
            wh_text_fini(&text);
        } else if (got->elem != elem + got->first) {
            fault(c, rank, last, "OUT ends with input element %" PRIu64 " instead of %" PRIu64, got->elem,
                  elem + got->first);
        } else if (adds && c->expressions.items[got->id].rounded_inside) {
            fault(c, rank, last, "a rounded sum was added to, element %" PRIu64, out.first + got->first);
        }
    }
}

static void check_results(struct checker *c, uint32_t rank) {
    const struct wh_coll_request *q = c->q;
    struct wh_coll_range all = {0, wh_coll_out_elems(q, rank)};
    uint64_t each = q->count / q->ranks;
    switch (q->op) {
    case WH_COLL_BARRIER:
        for (uint32_t s = 0; s < q->ranks; s++)
            if (!c->heard[(size_t)rank * q->ranks + s])
                fault(c, rank, c->plan->rounds, "leaves the barrier without having heard of rank %u", s);
        break;
    case WH_COLL_ALL_GATHER:
        for (uint32_t s = 0; s < q->ranks; s++) expect(c, rank, wh_coll_slice(q, s), s, input_elem(c, s));
        break;
    case WH_COLL_ALL_TO_ALL:
        for (uint32_t s = 0; s < q->ranks; s++) expect(c, rank, (struct wh_coll_range){s * each, each}, s, rank * each);
        break;
    case WH_COLL_REDUCE_SCATTER:
        expect(c, rank, all, 0, wh_coll_slice(q, rank).first);
        break;
    default:
        expect(c, rank, all, q->root, 0);
        break;
    }
}

/* Orders by element of the vector, from the first rank that has it; others must agree. */
static void find_orders(struct checker *c, struct wh_coll_memory *orders, struct wh_coll_findings *f) {
    for (uint32_t r = 0; r < c->q->ranks && !c->no_memory; r++) {
        uint64_t count = wh_coll_out_elems(c->q, r);
        struct wh_coll_step s = {.count = count};
        if (count == 0 || !read_place(c, r, &s, (struct wh_coll_place){WH_COLL_OUT, 0}, &c->left)) continue;
        uint64_t first = c->left.items[0].elem;
        enum wh_coll_read got = wh_coll_memory_read(orders, first, count, &c->right);
        if (got == WH_COLL_UNWRITTEN) {
            if (!wh_coll_memory_write(orders, first, count, &c->left)) c->no_memory = true;
            continue;
        }
        bool same = got == WH_COLL_READ && c->left.count == c->right.count;
        for (size_t i = 0; same && i < c->left.count; i++)
            same = c->left.items[i].id == c->right.items[i].id && c->left.items[i].first == c->right.items[i].first;
        if (!same) f->same_on_ranks = false;
    }
}

static void describe_orders(struct checker *c, const struct wh_coll_memory *orders, struct wh_coll_findings *f) {
    bool narrow = wh_coll_sum_dtype(c->q->dtype) != c->q->dtype;
    uint32_t canonical = wh_coll_expression_canonical(&c->expressions, narrow && c->q->ranks > 1);
    uint8_t *seen = calloc(c->expressions.count, 1);
    c->no_memory |= !seen || canonical == UINT32_MAX;
    for (size_t i = 0; i < orders->count && !c->no_memory; i++) {
        const struct wh_coll_stretch *s = &orders->items[i];
        f->orders += !seen[s->id];
        seen[s->id] = 1;
        f->canonical &= s->id == canonical;
        if (i >= ORDER_LINES_MAX) continue;
        wh_text_add(&f->order_text, "elements %" PRIu64 " .. %" PRIu64 ": ", s->first, s->first + s->count - 1);
        wh_coll_expression_text(&c->expressions, s->id, &f->order_text);
        wh_text_add(&f->order_text, "\n");
    }
    f->same_for_elements = f->orders <= 1;
    free(seen);
}

static void count_work(const struct wh_coll_plan *p, struct wh_coll_findings *f) {
    for (uint32_t r = 0; r < p->request.ranks; r++) {
        uint64_t bytes = 0, adds = 0;
        for (size_t i = 0; i < p->rank[r].step_count; i++) {
            const struct wh_coll_step *s = &p->rank[r].steps[i];
            if (s->kind == WH_COLL_ADD) adds += s->count;
            if (s->kind != WH_COLL_SEND) continue;
            bytes += s->count * wh_coll_elem_bytes(&p->request, s->left.buffer);
            f->messages++;
        }
        f->bytes += bytes;
        if (bytes > f->bytes_max) f->bytes_max = bytes;
        if (adds > f->adds_max) f->adds_max = adds;
    }
}

static bool start(struct checker *c) {
    size_t n = c->q->ranks, longest = 1;
    for (size_t r = 0; r < n; r++)
        if (c->plan->rank[r].step_count > longest) longest = c->plan->rank[r].step_count;
    c->memory = calloc(n * WH_COLL_BUFFER_COUNT, sizeof *c->memory);
    c->next = calloc(n, sizeof *c->next);
    c->uses = malloc(longest * sizeof *c->uses);
    bool barrier = c->q->op == WH_COLL_BARRIER;
    if (barrier) {
        c->heard = calloc(n, n);
        c->heard_before = calloc(n, n);
        for (size_t r = 0; c->heard && r < n; r++) c->heard[r * n + r] = 1;
    }
    return wh_coll_expressions_init(&c->expressions, c->q->ranks) && c->memory && c->next && c->uses &&
           (!barrier || (c->heard && c->heard_before));
}

static void finish(struct checker *c) {
    for (size_t i = 0; c->memory && i < (size_t)c->q->ranks * WH_COLL_BUFFER_COUNT; i++) free(c->memory[i].items);
    wh_coll_expressions_free(&c->expressions);
    free(c->memory);
    free(c->next);
    free(c->uses);
    free(c->heard);
    free(c->heard_before);
    free(c->sends.items);
    free(c->receives.items);
    free(c->left.items);
    free(c->right.items);
    free(c->sum.items);
}

static void run(struct checker *c, struct wh_coll_findings *f) {
    struct wh_coll_memory orders = {0};
    check_lists(c);
    fill_inputs(c);
    for (uint32_t k = 0; k < c->plan->rounds && !c->faults.count && !c->no_memory; k++) run_round(c, k);
    for (uint32_t r = 0; r < c->q->ranks && !c->faults.count && !c->no_memory; r++) check_results(c, r);
    if (c->faults.count || c->no_memory) return;
    count_work(c->plan, f);
    if (!wh_coll_op_adds(c->q->op)) return;
    find_orders(c, &orders, f);
    describe_orders(c, &orders, f);
    free(orders.items);
}

enum wh_status wh_coll_check(const struct wh_coll_plan *p, const struct wh_coll_watcher *watcher,
                             struct wh_coll_findings *out) {
    struct checker c = {.plan = p, .q = &p->request, .watcher = watcher};
    struct wh_coll_findings f = {.canonical = true, .same_on_ranks = true, .same_for_elements = true};
    c.no_memory = !start(&c);
    if (!c.no_memory) run(&c, &f);
    finish(&c);
    enum wh_status status = wh_faults_status(&c.faults, WH_INTERNAL);
    if (status == WH_OK && c.no_memory)
        status = WH_FAIL(WH_NOMEM, "no memory to check a plan of %u ranks", p->request.ranks);
    if (status == WH_OK)
        *out = f;
    else
        wh_coll_findings_free(&f);
    return status;
}

void wh_coll_findings_free(struct wh_coll_findings *f) {
    wh_text_fini(&f->order_text);
    *f = (struct wh_coll_findings){0};
}
