#include "coll/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/faults.h"
#include "coll/build.h"

enum { RANKS_MAX = 1 << 20, CUT_BYTES = 64 };

/* Places have 61 bits; no generator needs more than ranks, or 8, vectors of scratch. */
static uint64_t count_max(uint32_t ranks) { return ((uint64_t)1 << 60) / (ranks > 8 ? ranks : 8); }

enum wh_dtype wh_coll_sum_dtype(enum wh_dtype t) { return t == WH_BF16 || t == WH_F16 ? WH_F32 : t; }

size_t wh_coll_elem_bytes(const struct wh_coll_request *q, enum wh_coll_buffer buffer) {
    return wh_dtype_bytes(buffer == WH_COLL_PARTIAL ? wh_coll_sum_dtype(q->dtype) : q->dtype);
}

/* `units` shared out so that the first units % parts parts have one more; where part i begins. */
static uint64_t share(uint64_t units, uint32_t parts, uint32_t i) {
    uint64_t more = units % parts;
    return units / parts * i + (i < more ? i : more);
}

struct wh_coll_range wh_coll_cut(struct wh_coll_range range, enum wh_dtype t, uint32_t parts, uint32_t i) {
    uint64_t unit = range.count % parts == 0 ? 1 : CUT_BYTES / wh_dtype_bytes(t);
    uint64_t units = (range.count + unit - 1) / unit;
    uint64_t begin = share(units, parts, i) * unit, end = share(units, parts, i + 1) * unit;
    if (begin > range.count) begin = range.count;
    if (end > range.count) end = range.count;
    return (struct wh_coll_range){range.first + begin, end - begin};
}

struct wh_coll_range wh_coll_slice(const struct wh_coll_request *q, uint32_t rank) {
    return wh_coll_cut(wh_coll_whole(q), q->dtype, q->ranks, rank);
}

uint64_t wh_coll_in_elems(const struct wh_coll_request *q, uint32_t rank) {
    if (q->op == WH_COLL_BARRIER || (q->op == WH_COLL_BROADCAST && rank != q->root)) return 0;
    return q->op == WH_COLL_ALL_GATHER ? wh_coll_slice(q, rank).count : q->count;
}

uint64_t wh_coll_out_elems(const struct wh_coll_request *q, uint32_t rank) {
    if (q->op == WH_COLL_BARRIER || (q->op == WH_COLL_REDUCE && rank != q->root)) return 0;
    return q->op == WH_COLL_REDUCE_SCATTER ? wh_coll_slice(q, rank).count : q->count;
}

struct wh_coll_place wh_coll_resolve(const struct wh_coll_request *q, uint32_t rank, struct wh_coll_place p) {
    if (!q->in_place || p.buffer > WH_COLL_OUT) return p;
    if (p.buffer == WH_COLL_OUT && q->op == WH_COLL_REDUCE_SCATTER) p.first += wh_coll_slice(q, rank).first;
    if (p.buffer == WH_COLL_IN && q->op == WH_COLL_ALL_GATHER) p.first += wh_coll_slice(q, rank).first;
    p.buffer = WH_COLL_OUT;
    return p;
}

static bool serves(const struct wh_coll_request *q, const struct wh_coll_algorithm *a) {
    return (a->operations >> q->op & 1) && (q->ranks < 2 || !a->can || a->can(q));
}

static void add_alternatives(const struct wh_coll_request *q, struct wh_text *text) {
    for (int i = 0; wh_coll_algorithms[i]; i++)
        if (serves(q, wh_coll_algorithms[i]))
            wh_text_add(text, "%s%s", text->bytes ? ", " : "", wh_coll_algorithms[i]->name);
    if (!text->bytes) wh_text_add(text, "none");
}

static void check_algorithm(const struct wh_coll_request *q, const struct wh_coll_algorithm *a, struct wh_faults *f) {
    struct wh_text others = {0};
    if (serves(q, a)) return;
    add_alternatives(q, &others);
    if (!(a->operations >> q->op & 1))
        wh_faults_add(f, NULL, 0, "%s does not do %s; these would: %s", a->name, wh_coll_op_name(q->op), others.data);
    else
        wh_faults_add(f, NULL, 0, "%s needs %s; these would do: %s", a->name, a->demands, others.data);
    wh_text_fini(&others);
}

enum wh_status wh_coll_can(const struct wh_coll_request *q, const struct wh_coll_algorithm *a) {
    struct wh_faults f = {0};
    unsigned long long count = q->count;
    if (q->ranks < 1 || q->ranks > RANKS_MAX) {
        wh_faults_add(&f, NULL, 0, "%u ranks: 1 to %d are possible", q->ranks, RANKS_MAX);
        return wh_faults_status(&f, WH_UNSUPPORTED);
    }
    if (q->root >= q->ranks) wh_faults_add(&f, NULL, 0, "root %u: ranks are numbered 0 to %u", q->root, q->ranks - 1);
    if (q->count > count_max(q->ranks))
        wh_faults_add(&f, NULL, 0, "%llu elements: %llu are the most for %u ranks", count,
                      (unsigned long long)count_max(q->ranks), q->ranks);
    if (q->op == WH_COLL_ALL_TO_ALL && q->count % q->ranks)
        wh_faults_add(&f, NULL, 0,
                      "all-to-all of %llu elements: the number of ranks, %u, must divide it; %llu or %llu do", count,
                      q->ranks, count - count % q->ranks, count - count % q->ranks + q->ranks);
    check_algorithm(q, a, &f);
    return wh_faults_status(&f, WH_UNSUPPORTED);
}

static bool is_message(const struct wh_coll_step *s) { return s->kind == WH_COLL_SEND || s->kind == WH_COLL_RECV; }

/* Order of plan.h: by round, messages first. */
static uint64_t order_key(const struct wh_coll_step *s) { return (uint64_t)s->round << 1 | !is_message(s); }

static bool is_sorted(const struct wh_coll_list *l) {
    for (size_t i = 1; i < l->step_count; i++)
        if (order_key(&l->steps[i - 1]) > order_key(&l->steps[i])) return false;
    return true;
}

/* Stable: counts how many steps each key has, then deals them out. */
static void sort(struct wh_coll_builder *b) {
    struct wh_coll_list *l = &b->list;
    if (is_sorted(l)) return;
    struct wh_coll_step *sorted = malloc(l->step_count * sizeof *sorted);
    size_t *begin = calloc(2 * (size_t)l->rounds + 1, sizeof *begin);
    b->no_memory = !sorted || !begin;
    if (!b->no_memory) {
        for (size_t i = 0; i < l->step_count; i++) begin[order_key(&l->steps[i]) + 1]++;
        for (size_t k = 1; k <= 2 * (size_t)l->rounds; k++) begin[k] += begin[k - 1];
        for (size_t i = 0; i < l->step_count; i++) sorted[begin[order_key(&l->steps[i])]++] = l->steps[i];
        memcpy(l->steps, sorted, l->step_count * sizeof *sorted);
    }
    free(begin);
    free(sorted);
}

static void see_place(struct wh_coll_list *l, struct wh_coll_place p, uint64_t count) {
    uint64_t *elems = p.buffer == WH_COLL_LANDING ? &l->landing_elems : &l->partial_elems;
    if (p.buffer >= WH_COLL_LANDING && p.first + count > *elems) *elems = p.first + count;
}

static void measure(struct wh_coll_list *l) {
    for (size_t i = 0; i < l->step_count; i++) {
        const struct wh_coll_step *s = &l->steps[i];
        if (s->round >= l->rounds) l->rounds = s->round + 1;
        see_place(l, s->out, s->count);
        see_place(l, s->left, s->count);
        see_place(l, s->right, s->count);
    }
}

static void build_alone(struct wh_coll_builder *b) {
    wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, 0), wh_coll_at(WH_COLL_IN, 0), wh_coll_out_elems(b->q, 0));
}

enum wh_status wh_coll_list_new(const struct wh_coll_request *q, const struct wh_coll_algorithm *a, uint32_t rank,
                                struct wh_coll_list *out) {
    WH_TRY(wh_coll_can(q, a));
    WH_ASSERT(rank < q->ranks);
    struct wh_coll_builder b = {.q = q, .rank = rank};
    if (q->ranks == 1)
        build_alone(&b);
    else
        a->build(&b);
    measure(&b.list);
    if (!b.no_memory) sort(&b);
    if (b.no_memory) {
        wh_coll_list_free(&b.list);
        return WH_FAIL(WH_NOMEM, "no memory for the steps of rank %u of %u (%s)", rank, q->ranks, a->name);
    }
    *out = b.list;
    return WH_OK;
}

static uint64_t lines_of(uint64_t bytes) { return (bytes + CUT_BYTES - 1) / CUT_BYTES * CUT_BYTES; }

uint64_t wh_coll_landing_bytes(const struct wh_coll_request *q, const struct wh_coll_list *l) {
    return lines_of(l->landing_elems * wh_coll_elem_bytes(q, WH_COLL_LANDING));
}

uint64_t wh_coll_room_bytes(const struct wh_coll_request *q, const struct wh_coll_list *l) {
    return wh_coll_landing_bytes(q, l) + lines_of(l->partial_elems * wh_coll_elem_bytes(q, WH_COLL_PARTIAL));
}

void wh_coll_list_free(struct wh_coll_list *l) {
    free(l->steps);
    *l = (struct wh_coll_list){0};
}

enum wh_status wh_coll_plan_new(const struct wh_coll_request *q, const struct wh_coll_algorithm *a,
                                struct wh_coll_plan *out) {
    WH_TRY(wh_coll_can(q, a));
    struct wh_coll_plan p = {.request = *q, .algorithm = a};
    p.rank = calloc(q->ranks, sizeof *p.rank);
    if (!p.rank) return WH_FAIL(WH_NOMEM, "no memory for a plan of %u ranks", q->ranks);
    for (uint32_t r = 0; r < q->ranks; r++) {
        enum wh_status status = wh_coll_list_new(q, a, r, &p.rank[r]);
        if (status != WH_OK) {
            wh_coll_plan_free(&p);
            return status;
        }
        if (p.rank[r].rounds > p.rounds) p.rounds = p.rank[r].rounds;
    }
    *out = p;
    return WH_OK;
}

void wh_coll_plan_free(struct wh_coll_plan *p) {
    for (uint32_t r = 0; p->rank && r < p->request.ranks; r++) wh_coll_list_free(&p->rank[r]);
    free(p->rank);
    *p = (struct wh_coll_plan){0};
}
