/* Sums of several contributions of each rank (struct wh_comm_sum) against a plain stack, bit by bit: leaves of a canonical
 * tree shared out in groups, and any other order; all operations, types, places, kernels; borders; inputs and what lies
 * around them stay as they were. What is refused, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "base/tree.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { GUARD = 192, MOST_BYTES = 8 << 20, INPUTS = WH_COMM_RANKS_MAX * WH_COMM_INPUTS_MAX };

static bool long_version(void) { return getenv("WH_TEST_LONG") != NULL; }

/* An order and who contributes what: contribution c is the canonical tree over leaves [first[c], first[c] + leaves[c]). */
struct order {
    uint32_t ranks, count; /* count: contributions */
    uint8_t inputs[WH_COMM_RANKS_MAX], merges[INPUTS];
    uint32_t first[INPUTS], leaves[INPUTS];
};

static void add_node(struct order *o, uint32_t begin, uint32_t leaves, uint32_t leaves_of_rank) {
    uint32_t owner = begin / leaves_of_rank, left = 1;
    if ((begin + leaves - 1) / leaves_of_rank == owner) {
        o->first[o->count] = begin, o->leaves[o->count] = leaves;
        o->inputs[owner]++;
        o->merges[o->count++] = 0;
        return;
    }
    while (left * 2 < leaves) left *= 2;
    add_node(o, begin, left, leaves_of_rank);
    add_node(o, begin + left, leaves - left, leaves_of_rank);
    o->merges[o->count - 1]++;
}

/* The canonical tree over `groups` leaves, of which each rank has an equal run. */
static struct order order_of_groups(uint32_t groups, uint32_t ranks) {
    struct order o = {.ranks = ranks};
    add_node(&o, 0, groups, groups / ranks);
    return o;
}

/* Any order: as many joins after each contribution as chance and the stack allow. */
static struct order order_by_chance(uint64_t seed, uint32_t ranks, uint32_t most_inputs) {
    struct order o = {.ranks = ranks};
    for (uint32_t r = 0; r < ranks; r++) {
        o.inputs[r] = (uint8_t)(1 + test_hash(seed + r) % most_inputs);
        o.count += o.inputs[r];
    }
    uint32_t depth = 0;
    for (uint32_t c = 0; c < o.count; c++) {
        uint64_t h = test_hash(seed * 977 + c);
        o.first[c] = c, o.leaves[c] = 1;
        depth++;
        if (depth == WH_COMM_STACK_MAX)
            o.merges[c] = (uint8_t)(1 + (h >> 8) % (depth - 1));
        else if (h % 3 == 0)
            o.merges[c] = (uint8_t)((h >> 8) % depth);
        if (c + 1 == o.count) o.merges[c] = (uint8_t)(depth - 1);
        depth -= o.merges[c];
    }
    return o;
}

static union test_value contribution(const struct order *o, enum wh_dtype type, enum wh_redop op, uint64_t seed,
                                     uint32_t c, uint64_t i) {
    union test_value v = test_tree(type, op, seed, i, o->first[c], o->leaves[c]);
    if (type == WH_BF16) v.u16 = wh_f32_to_bf16(v.f32);
    return v;
}

static union test_value sum_of(const struct order *o, enum wh_dtype type, enum wh_redop op, uint64_t seed, uint64_t i) {
    union test_value stack[INPUTS];
    uint32_t depth = 0;
    for (uint32_t c = 0; c < o->count; c++) {
        union test_value v = contribution(o, type, op, seed, c, i);
        if (type == WH_BF16) v.f32 = wh_bf16_to_f32(v.u16);
        stack[depth++] = v;
        for (uint32_t m = o->merges[c]; m > 0; m--, depth--)
            stack[depth - 2] = test_combine(type, op, stack[depth - 2], stack[depth - 1]);
    }
    if (type == WH_BF16) stack[0].u16 = wh_f32_to_bf16(stack[0].f32);
    return stack[0];
}

/* ---- one call ---- */

struct one_case {
    const struct order *order;
    struct wh_comm_call call;
    struct wh_comm_sum sum;
    bool in_place;
    uint64_t seed;
};

static uint32_t first_of(const struct order *o, uint32_t rank) {
    uint32_t c = 0;
    for (uint32_t r = 0; r < rank; r++) c += o->inputs[r];
    return c;
}

/* `in` and `out`: MOST_BYTES each. */
static void place(struct one_case *o, char *in, char *out, uint32_t rank, uint32_t ranks) {
    struct wh_comm_call *c = &o->call;
    size_t elem = wh_dtype_bytes(c->dtype), inputs = o->order->inputs[rank];
    memset(in, 0xab, 2 * GUARD + inputs * o->sum.stride * elem);
    memset(out, 0xab, 2 * GUARD + c->count * elem);
    c->in = in + GUARD, c->out = out + GUARD;
    if (o->in_place) c->out = in + GUARD + (c->op == WH_REDUCE_SCATTER ? test_slice(c, ranks, rank).first * elem : 0);
    for (uint32_t k = 0; k < inputs; k++)
        for (uint64_t i = 0; i < c->count; i++) {
            union test_value v = contribution(o->order, c->dtype, c->redop, o->seed, first_of(o->order, rank) + k, i);
            memcpy(in + GUARD + (k * o->sum.stride + i) * elem, &v, elem);
        }
}

/* What is not output is as it was: contributions, between them, around all. */
static enum wh_status check_rest(const struct one_case *o, const char *in, const char *out, uint32_t rank,
                                 struct wh_coll_range r, const char *text) {
    const struct wh_comm_call *c = &o->call;
    size_t elem = wh_dtype_bytes(c->dtype), inputs = o->order->inputs[rank], stride = o->sum.stride;
    for (uint64_t i = 0; i < inputs * stride; i++) {
        union test_value v;
        memset(&v, 0xab, sizeof v);
        if (i % stride < c->count)
            v = contribution(o->order, c->dtype, c->redop, o->seed, first_of(o->order, rank) + (uint32_t)(i / stride),
                             i % stride);
        bool output = o->in_place && i >= r.first && i < r.first + r.count;
        RANK_CHECK(output || memcmp(in + GUARD + i * elem, &v, elem) == 0, "%s: in changed at %zu", text, (size_t)i);
    }
    size_t written = o->in_place ? 0 : r.count * elem;
    for (size_t i = 0; i < GUARD; i++) {
        RANK_CHECK(in[i] == (char)0xab && in[GUARD + inputs * stride * elem + i] == (char)0xab, "%s: around in", text);
        RANK_CHECK(out[i] == (char)0xab && out[GUARD + written + i] == (char)0xab, "%s: around out", text);
    }
    return WH_OK;
}

static enum wh_status run_case(struct wh_comm *comm, struct one_case *o, char *in, char *out, const char *where) {
    uint32_t rank = wh_comm_rank(comm), ranks = wh_comm_size(comm);
    struct wh_comm_call *c = &o->call;
    char text[160];
    snprintf(text, sizeof text, "%s %s%s of %zu, %u contributions, %s%s%s, rank %u of %u", wh_comm_op_name(c->op),
             wh_dtype_name(c->dtype), c->redop == WH_SUM ? "" : " rounded", c->count, o->order->count, where,
             o->in_place ? ", in place" : "", c->border ? ", borders" : "", rank, ranks);
    o->sum.inputs = o->order->inputs, o->sum.merges = o->order->merges;
    c->sum = &o->sum;
    place(o, in, out, rank, ranks);
    WH_TRY(wh_comm_run(comm, c));
    size_t elem = wh_dtype_bytes(c->dtype);
    struct wh_coll_range r = test_out_range(c, rank, ranks);
    for (uint64_t i = 0; i < r.count; i++) {
        union test_value v = sum_of(o->order, c->dtype, c->redop, o->seed, r.first + i);
        RANK_CHECK(memcmp((char *)c->out + i * elem, &v, elem) == 0, "%s: element %zu", text, (size_t)i);
    }
    return check_rest(o, in, out, rank, r, text);
}

struct buffers {
    char *in[2], *out[2];
};

static const char *const where_name[] = {"arena", "private"};

static enum wh_status open_all(struct wh_comm_job *job, uint32_t ranks, struct wh_comm **comm, struct buffers *b) {
    uint32_t members[WH_COMM_RANKS_MAX];
    void *p;
    for (uint32_t i = 0; i < ranks; i++) members[i] = i;
    WH_TRY(wh_comm_open(job, 5, "dp", members, ranks, comm));
    WH_TRY(wh_comm_buffer(job, MOST_BYTES, &p));
    b->in[0] = p, b->in[1] = malloc(MOST_BYTES);
    WH_TRY(wh_comm_buffer(job, MOST_BYTES, &p));
    b->out[0] = p, b->out[1] = malloc(MOST_BYTES);
    return WH_OK;
}

/* All operations, places, sizes and borders for one order; `share` of 1 / share of the large ones. */
static enum wh_status run_order(struct wh_comm *comm, const struct buffers *b, const struct order *order, uint64_t seed,
                                uint32_t share) {
    static const enum wh_dtype types[] = {WH_F32, WH_BF16, WH_F64, WH_I32, WH_I64};
    static const enum wh_comm_op ops[] = {WH_ALL_REDUCE, WH_REDUCE_SCATTER, WH_REDUCE_SCATTER, WH_REDUCE};
    static const size_t counts[] = {0, 1, 3, 7, 40, 1025, 20011};
    uint32_t ranks = wh_comm_size(comm);
    size_t border[WH_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t which = 0; which < sizeof counts / sizeof *counts * 16; which++) {
        uint64_t h = test_hash(seed * 1000 + which);
        struct one_case o = {.order = order, .seed = h, .in_place = which & 1};
        int where = which >> 1 & 1;
        o.call.op = ops[which >> 2 & 3], o.call.count = counts[which >> 4];
        o.call.dtype = types[h % 5], o.call.root = h / 8 % ranks;
        o.call.redop = h >> 32 & 1 ? WH_SUM_ROUNDED : WH_SUM;
        o.sum.stride = o.call.count + h / 64 % 3;
        if (o.call.count > 100 && h / 1024 % share) continue;
        if ((which >> 2 & 3) == 2) { /* the other reduce-scatter: all on one rank, or in three parts */
            for (uint32_t r = 1; r < ranks; r++) border[r] = h & 1 ? 0 : o.call.count * (r * 3 / ranks) / 3;
            for (uint32_t r = 1; r < ranks && h & 1; r++) border[r] = r > h / 16 % ranks ? o.call.count : 0;
            border[ranks] = o.call.count;
            o.call.border = border;
        }
        if (o.call.op == WH_REDUCE && wh_comm_rank(comm) != o.call.root) o.in_place = false;
        WH_TRY(run_case(comm, &o, b->in[where], b->out[where], where_name[where]));
    }
    return WH_OK;
}

/* ---- leaves of a tree, shared out ---- */

/* The sum is the canonical tree over the leaves, whatever the number of ranks; that of bf16 too, if every join is rounded. */
static enum wh_status check_canonical(const struct order *o, uint32_t groups, uint64_t seed) {
    uint32_t differ = 0;
    for (uint64_t i = 0; i < 200; i++) {
        union test_value a = sum_of(o, WH_F32, WH_SUM, seed, i), b = test_reduced(WH_F32, WH_SUM, seed, i, groups);
        RANK_CHECK(memcmp(&a, &b, 4) == 0, "%u leaves on %u ranks: element %zu", groups, o->ranks, (size_t)i);
        a = sum_of(o, WH_BF16, WH_SUM_ROUNDED, seed, i), b = test_reduced(WH_BF16, WH_SUM_ROUNDED, seed, i, groups);
        RANK_CHECK(a.u16 == b.u16, "%u rounded leaves on %u ranks: element %zu", groups, o->ranks, (size_t)i);
        differ += a.u16 != test_reduced(WH_BF16, WH_SUM, seed, i, groups).u16;
    }
    RANK_CHECK(groups <= 2 || differ > 2, "%u leaves: only %u of 200 sums are rounded more than once", groups, differ);
    return WH_OK;
}

static enum wh_status all_groups(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    struct buffers b;
    uint32_t n = t->config.ranks;
    (void)rank;
    WH_TRY(open_all(job, n, &comm, &b));
    for (uint32_t groups = n; groups <= 24; groups += n) {
        struct order o = order_of_groups(groups, n);
        WH_TRY(check_canonical(&o, groups, groups));
        WH_TRY(run_order(comm, &b, &o, groups, long_version() ? 1 : 12));
    }
    free(b.in[1]), free(b.out[1]);
    return WH_OK;
}

static void run(uint32_t ranks, const char *kernels,
                enum wh_status (*body)(struct wh_comm_job *, uint32_t, const struct test_ranks *)) {
    struct test_ranks t = {
        .config = {.ranks = ranks, .arena_bytes = 2 * MOST_BYTES, .deadline_ns = 20000000000, .kernels = kernels}};
    t.body = body;
    t.limit_s = long_version() ? 1000 : 60;
    assert_int_equal(test_ranks_bad(&t), 0);
}

static void groups(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) run(n, NULL, all_groups);
}

/* ---- any order ---- */

/* The cases see the order: sums in another one have other bits. */
static enum wh_status check_that_order_matters(const struct order *o, uint64_t seed) {
    struct order other = {.ranks = o->ranks, .count = o->count};
    uint32_t differ = 0;
    for (uint32_t c = 0; c < o->count; c++)
        other.first[c] = c, other.leaves[c] = 1, other.merges[c] = (uint8_t)wh_tree_merges(c, o->count);
    if (memcmp(other.merges, o->merges, o->count) == 0) return WH_OK;
    for (uint64_t i = 0; i < 500; i++) {
        union test_value a = sum_of(o, WH_F32, WH_SUM, seed, i), b = sum_of(&other, WH_F32, WH_SUM, seed, i);
        differ += memcmp(&a, &b, 4) != 0;
    }
    RANK_CHECK(differ > 20, "only %u of 500 sums of %u see the order", differ, o->count);
    return WH_OK;
}

static enum wh_status all_orders(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    struct buffers b;
    uint32_t n = t->config.ranks;
    (void)rank;
    WH_TRY(open_all(job, n, &comm, &b));
    for (uint64_t seed = 0; seed < (long_version() ? 20 : 4); seed++) {
        struct order o = order_by_chance(seed + 100 * n, n, seed % 4 == 3 ? 16 : 1 + (uint32_t)seed % 16);
        WH_TRY(check_that_order_matters(&o, seed));
        WH_TRY(run_order(comm, &b, &o, 7000 + seed, long_version() ? 1 : 16));
    }
    free(b.in[1]), free(b.out[1]);
    return WH_OK;
}

static void orders(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) run(n, NULL, all_orders);
    run(9, NULL, all_orders);
}

static void kernels(void **state) {
    (void)state;
    struct wh_comm_job *probe;
    run(3, "reference", all_orders);
    if (wh_comm_job_create(&(struct wh_comm_job_config){.ranks = 1, .kernels = "avx2"}, &probe) != WH_OK) return;
    wh_comm_job_destroy(probe);
    run(3, "avx2", all_orders);
}

/* ---- a plan keeps what it was made from; bytes ---- */

static enum wh_status kept(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    struct buffers b;
    struct wh_comm_plan *plan;
    struct order o = order_of_groups(6, 2), gone = o;
    size_t border[] = {0, 5, 900}, gone_border[] = {0, 5, 900};
    struct one_case one = {.order = &o, .seed = 5, .sum = {gone.inputs, gone.merges, 1000}};
    (void)t;
    WH_TRY(open_all(job, 2, &comm, &b));
    one.call = (struct wh_comm_call){
        .op = WH_REDUCE_SCATTER, .count = 900, .dtype = WH_F32, .border = gone_border, .sum = &one.sum};
    place(&one, b.in[0], b.out[0], rank, 2);
    WH_TRY(wh_comm_plan_make(comm, &one.call, &plan));
    memset(&gone, 0xff, sizeof gone), memset(gone_border, 0xff, sizeof gone_border);
    memset(&one.sum, 0xff, sizeof one.sum);
    for (int i = 0; i < 3; i++) {
        memset(b.out[0] + GUARD, 0, 900 * 4);
        WH_TRY(wh_comm_start(plan));
        WH_TRY(wh_comm_wait(plan));
        for (size_t e = border[rank]; e < border[rank + 1]; e++) {
            union test_value v = sum_of(&o, WH_F32, WH_SUM, 5, e);
            RANK_CHECK(memcmp(b.out[0] + GUARD + (e - border[rank]) * 4, &v, 4) == 0, "element %zu", e);
        }
        WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    }
    wh_comm_plan_free(plan);
    return WH_OK;
}

static void plans(void **state) {
    (void)state;
    run(2, NULL, kept);
}

static void bytes(void **state) {
    (void)state;
    static const uint8_t inputs[] = {2, 1}, merges[] = {0, 0, 2};
    const struct wh_comm_sum sum = {inputs, merges, 100};
    struct wh_comm_call c = {.op = WH_ALL_REDUCE, .count = 100, .dtype = WH_F32, .sum = &sum};
    assert_int_equal(wh_comm_call_bytes(&c, 0, 2), (2 * 50 + 50) * 4);
    assert_int_equal(wh_comm_call_bytes(&c, 1, 2), (50 + 50) * 4);
    c.op = WH_REDUCE_SCATTER, c.border = (const size_t[]){0, 30, 100};
    assert_int_equal(wh_comm_call_bytes(&c, 0, 2), 2 * 70 * 4);
    assert_int_equal(wh_comm_call_bytes(&c, 1, 2), 30 * 4);
}

/* ---- what is refused ---- */

struct wrong {
    const char *message;
    struct wh_comm_sum sum;
    enum wh_comm_op op;
    enum wh_redop redop;
};

static enum wh_status all_wrong(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint8_t two_one[] = {2, 1}, none[] = {2, 0}, many[] = {17, 1}, most[] = {16, 16},
                         all_last[32] = {[31] = 31};
    static const uint8_t good[] = {0, 0, 2}, below[] = {0, 2, 0}, few[] = {0, 0, 1};
    const struct wrong wrong[] = {
        {"only sums", {two_one, good, 8}, WH_ALL_REDUCE, WH_MAX},
        {"only sums", {two_one, good, 8}, WH_ALL_GATHER, WH_SUM},
        {"borders or contributions", {two_one, good, 8}, WH_BARRIER, WH_SUM},
        {"no inputs or no merges", {NULL, good, 8}, WH_ALL_REDUCE, WH_SUM},
        {"no inputs or no merges", {two_one, NULL, 8}, WH_ALL_REDUCE, WH_SUM},
        {"0 contributions of rank 1; 1 to 16", {none, good, 8}, WH_REDUCE, WH_SUM},
        {"17 contributions of rank 0; 1 to 16", {many, good, 8}, WH_REDUCE_SCATTER, WH_SUM},
        {"contribution 16 is number 17 on the stack; it holds 16", {most, all_last, 8}, WH_ALL_REDUCE, WH_SUM},
        {"2 joins after contribution 1; there are 2 values", {two_one, below, 8}, WH_ALL_REDUCE, WH_SUM},
        {"3 contributions are joined to 2 values", {two_one, few, 8}, WH_ALL_REDUCE, WH_SUM},
        {"contributions of 8 elements lie 7 apart", {two_one, good, 7}, WH_ALL_REDUCE, WH_SUM},
        {"overlap", {two_one, good, 16}, WH_ALL_REDUCE, WH_SUM}, /* rank 0: out lies in contribution 1 */
    };
    struct wh_comm *comm;
    struct buffers b;
    (void)t;
    WH_TRY(open_all(job, 2, &comm, &b));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct wh_comm_plan *plan;
        struct wh_comm_call c = {
            .op = wrong[i].op, .in = b.in[0], .out = b.in[0] + 80, .count = 8, .sum = &wrong[i].sum};
        c.redop = wrong[i].redop;
        if (strcmp(wrong[i].message, "overlap") == 0 && rank == 1) continue;
        RANK_CHECK(wh_comm_plan_make(comm, &c, &plan) == WH_CONFIG && strstr(wh_error()->message, wrong[i].message),
                   "'%s' expected, got: %s", wrong[i].message, wh_error()->message);
        RANK_CHECK(wh_comm_run(comm, &c) == WH_CONFIG, "%s", wrong[i].message);
    }
    return wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER});
}

static void wrong_sums(void **state) {
    (void)state;
    run(2, NULL, all_wrong);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups), cmocka_unit_test(orders), cmocka_unit_test(kernels),
        cmocka_unit_test(plans),  cmocka_unit_test(bytes),  cmocka_unit_test(wrong_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
