/* Plans that choose how they run: by the figures that a group was given, within the order that a call allows, with exact
 * results, without memory after they were made. Values are whole numbers: every order gives the same sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/links.h"
#include "test/support/alloc_count.h"
#include "test/support/ranks.h"

enum { ELEMS = 9000 };

/* Messages take no time but for bytes; `shared`: seconds a byte in shared memory. */
static struct wh_coll_links figures(uint32_t ranks, double shared) {
    struct wh_coll_links l = {.ranks = ranks, .piece_bytes = 4096, .level_count = 1};
    l.level[0] = (struct wh_coll_level){.bytes = 4096, .piped = 1e-10, .placed = 1e-10, .copy = 1e-10, .add = 1e-10};
    for (int w = 0; w < WH_COLL_WAY_COUNT * WH_COLL_MEASURED_OPS; w++)
        l.level[0].way[w % WH_COLL_WAY_COUNT][w / WH_COLL_WAY_COUNT] = shared;
    return l;
}

static enum wh_status open_with_room(struct wh_comm_job *job, const struct test_ranks *t, uint32_t id, double shared,
                                     size_t room_bytes, struct wh_comm **out) {
    static const uint32_t members[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct wh_coll_links links = figures(t->config.ranks, shared);
    WH_TRY(wh_comm_open(job, id, "all", members, t->config.ranks, out));
    WH_TRY(wh_comm_set_links(*out, &links, room_bytes));
    RANK_CHECK(wh_comm_room_bytes(*out) == room_bytes);
    return WH_OK;
}

static enum wh_status open_all(struct wh_comm_job *job, const struct test_ranks *t, uint32_t id, double shared,
                               struct wh_comm **out) {
    return open_with_room(job, t, id, shared, 16 * ELEMS * sizeof(float), out);
}

/* Whole numbers of up to 20 bits: sums of 8 are exact in fp32. */
static float value(uint32_t rank, size_t i, int round) {
    return (float)((i * 7919 + rank * 104729u + (unsigned)round) % 1000003);
}

struct kind {
    enum wh_comm_op op;
    bool in_place, arena;
    enum wh_comm_order order;
    size_t count;
};

struct user {
    struct kind kind;
    uint32_t rank, n;
    float *in, *out; /* of the vector */
    struct wh_comm_call call;
    struct wh_comm_plan *plan;
};

static enum wh_status take(struct wh_comm_job *job, bool arena, float **out) {
    void *memory;
    if (!arena) memory = calloc(ELEMS, sizeof(float));
    if (arena) WH_TRY(wh_comm_buffer(job, ELEMS * sizeof(float), &memory));
    *out = memory;
    return WH_OK;
}

static struct wh_coll_range slice(const struct user *u) {
    return wh_coll_cut((struct wh_coll_range){0, u->kind.count}, WH_F32, u->n, u->rank);
}

static void place_call(struct user *u) {
    const size_t first = slice(u).first;
    u->call = (struct wh_comm_call){.op = u->kind.op,
                                    .in = u->in,
                                    .out = u->kind.in_place ? u->in : u->out,
                                    .count = u->kind.count,
                                    .dtype = WH_F32,
                                    .order = u->kind.order};
    if (u->kind.op == WH_REDUCE_SCATTER && u->kind.in_place) u->call.out = u->in + first;
    if (u->kind.op == WH_ALL_GATHER) u->call.out = u->out; /* whole vectors lie at equal offsets */
    if (u->kind.op == WH_ALL_GATHER && u->kind.in_place) u->call.in = u->out + first;
}

static void write_inputs(const struct user *u, int round) {
    const bool part = u->kind.op == WH_ALL_GATHER;
    const struct wh_coll_range r = part ? slice(u) : (struct wh_coll_range){0, u->kind.count};
    float *const in = (float *)(uintptr_t)u->call.in;
    for (size_t i = 0; i < r.count; i++) in[i] = value(u->rank, r.first + i, round);
}

static float expected(const struct user *u, size_t i, int round) {
    uint32_t owner = 0;
    float sum = 0;
    for (; u->kind.op == WH_ALL_GATHER && owner < u->n; owner++) {
        const struct wh_coll_range r = wh_coll_cut((struct wh_coll_range){0, u->kind.count}, WH_F32, u->n, owner);
        if (i >= r.first && i < r.first + r.count) return value(owner, i, round);
    }
    for (uint32_t r = 0; r < u->n; r++) sum += value(r, i, round);
    return sum;
}

static enum wh_status check(const struct user *u, int round) {
    const bool part = u->kind.op == WH_REDUCE_SCATTER;
    const struct wh_coll_range r = part ? slice(u) : (struct wh_coll_range){0, u->kind.count};
    const float *out = u->call.out;
    for (size_t i = 0; i < r.count; i++)
        RANK_CHECK(out[i] == expected(u, r.first + i, round), "%s, element %zu of %zu: %g, not %g",
                   wh_comm_op_name(u->kind.op), i, r.count, (double)out[i], (double)expected(u, r.first + i, round));
    return WH_OK;
}

static enum wh_status finish(struct wh_comm_plan *plan, bool by_test) {
    bool done = false;
    if (!by_test) return wh_comm_wait(plan);
    while (!done) WH_TRY(wh_comm_test(plan, &done));
    return WH_OK;
}

/* Lists may send more than direct does; the books say what direct sends. */
static enum wh_status check_books(struct wh_comm_job *job, const uint64_t *bytes) {
    uint32_t count;
    const struct wh_comm_row *row = wh_comm_rows(job, &count);
    for (uint32_t op = 0; op <= WH_ALL_GATHER; op++)
        for (uint32_t i = 0; i < count; i++)
            RANK_CHECK(strcmp(row[i].name, wh_comm_op_name((enum wh_comm_op)op)) != 0 || row[i].sent_bytes == bytes[op],
                       "%s: %zu bytes, not %zu", row[i].name, (size_t)row[i].sent_bytes, (size_t)bytes[op]);
    return WH_OK;
}

static enum wh_status run_user(struct user *u, bool listed) {
    struct wh_text text = {0};
    wh_comm_plan_describe(u->plan, &text);
    const bool says =
        strstr(text.data, listed ? "; arena " : ": arena") || strstr(text.data, listed ? "; staged " : ": staged");
    RANK_CHECK(says, "%s", text.data);
    RANK_CHECK(u->kind.order == WH_ORDER_ANY || !strstr(text.data, "of its own"), "%s", text.data);
    wh_text_fini(&text);
    for (int round = 0; round < 3; round++) {
        write_inputs(u, round);
        const size_t before = alloc_count();
        WH_TRY(wh_comm_start(u->plan));
        WH_TRY(finish(u->plan, round == 1));
        RANK_CHECK(alloc_count() == before, "it asks for memory");
        WH_TRY(check(u, round));
    }
    return WH_OK;
}

static enum wh_status all_kinds(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const size_t counts[] = {700, 1001, ELEMS};
    float *memory[2][2];
    struct wh_comm *comm[2];
    uint64_t bytes[WH_COMM_OP_COUNT] = {0};
    for (int g = 0; g < 2; g++) WH_TRY(open_all(job, t, (uint32_t)g, g ? 1e-3 : 1e-13, &comm[g]));
    for (int arena = 0; arena < 2; arena++)
        for (int i = 0; i < 2; i++) WH_TRY(take(job, arena, &memory[arena][i]));
    for (int i = 0; i < 2 * 3 * 2 * 2 * 2 * 3; i++) {
        const int slow = i % 2, arena = i / 12 % 2;
        struct user u = {
            {(enum wh_comm_op)(i / 2 % 3), i / 6 % 2, arena, (enum wh_comm_order)(i / 24 % 2), counts[i / 48]},
            rank,
            t->config.ranks,
            memory[arena][0],
            memory[arena][1]};
        if (u.kind.op != WH_ALL_REDUCE && i % 5 == 0) u.kind.in_place = rank % 2; /* each rank as it likes */
        place_call(&u);
        WH_TRY(wh_comm_plan_make(comm[slow], &u.call, &u.plan));
        WH_TRY(run_user(&u, slow));
        wh_comm_plan_free(u.plan);
        bytes[u.kind.op] += 3 * wh_comm_call_bytes(&u.call, rank, t->config.ranks);
    }
    return check_books(job, bytes);
}

static void run(enum wh_status (*body)(struct wh_comm_job *, uint32_t, const struct test_ranks *), uint32_t n) {
    struct test_ranks t = {
        .config = {.ranks = n, .arena_bytes = 4 * ELEMS * sizeof(float) + 4096, .deadline_ns = 20000000000},
        .body = body};
    assert_int_equal(test_ranks_bad(&t), 0);
}

static void exact_and_without_memory(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= 5; n += n - 1) run(all_kinds, n); /* 2, 3, 5 */
}

/* What the contract's order gives is the same to the bit, however it is run. */
static enum wh_status contract(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    float *x, *y;
    WH_TRY(open_all(job, t, 0, 1e-3, &comm));
    WH_TRY(take(job, true, &x));
    WH_TRY(take(job, true, &y));
    struct wh_comm_call c = {.op = WH_ALL_REDUCE, .in = x, .out = x, .count = ELEMS, .dtype = WH_F32};
    struct wh_comm_plan *plan;
    struct wh_text text = {0};
    WH_TRY(wh_comm_plan_make(comm, &c, &plan));
    wh_comm_plan_describe(plan, &text);
    RANK_CHECK(strstr(text.data, "all_reduce of 35.2 KiB: ") && strstr(text.data, ", contract order (predicted ") &&
                   strstr(text.data, "; arena "),
               "%s", text.data);
    for (size_t i = 0; i < ELEMS; i++) x[i] = y[i] = 1 / (1 + value(rank, i, 0));
    WH_TRY(wh_comm_start(plan));
    WH_TRY(wh_comm_wait(plan));
    c.in = c.out = y;
    WH_TRY(wh_comm_run(comm, &c)); /* by the arena */
    RANK_CHECK(memcmp(x, y, ELEMS * sizeof *x) == 0, "other bits");
    wh_comm_plan_free(plan);
    wh_text_fini(&text);
    return WH_OK;
}

static void contract_order_is_kept(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= 7; n++) run(contract, n);
}

/* The first rank's figures are everybody's: other ranks' own would choose otherwise. */
static enum wh_status first_counts(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    float *x;
    WH_TRY(take(job, true, &x));
    WH_TRY(open_all(job, t, 0, rank == 0 ? 1e-3 : 1e-13, &comm));
    const struct wh_comm_call c = {
        .op = WH_ALL_REDUCE, .in = x, .out = x, .count = ELEMS, .dtype = WH_F32, .order = WH_ORDER_ANY};
    struct wh_comm_plan *plan;
    struct wh_text text = {0};
    WH_TRY(wh_comm_plan_make(comm, &c, &plan));
    wh_comm_plan_describe(plan, &text);
    RANK_CHECK(strstr(text.data, "; arena "), "%s", text.data);
    WH_TRY(wh_comm_start(plan));
    WH_TRY(wh_comm_wait(plan));
    wh_comm_plan_free(plan);
    wh_text_fini(&text);
    return WH_OK;
}

/* What lists don't know stays with comm's own path: borders, several contributions, an order that is given, rounded joins.
 */
static enum wh_status not_for_lists(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint8_t one[] = {1, 1}, two[] = {2, 1}, pair[] = {0, 1}, triple[] = {0, 1, 1};
    static const size_t border[] = {0, 100, ELEMS / 2};
    static const struct {
        struct wh_comm_sum sum;
        enum wh_comm_order order;
        bool borders, listed;
        enum wh_dtype dtype;
        enum wh_redop redop;
    } kinds[] = {{{one, pair, ELEMS / 2}, WH_ORDER_ANY, false, true},
                 {{one, pair, ELEMS / 2}, WH_ORDER_ANY, false, true, WH_BF16, WH_SUM},
                 {{one, pair, ELEMS / 2}, WH_ORDER_ANY, false, false, WH_BF16, WH_SUM_ROUNDED},
                 {{one, pair, ELEMS / 2}, WH_ORDER_ANY, false, true, WH_F32, WH_SUM_ROUNDED},
                 {{one, pair, ELEMS / 2}, WH_ORDER_CONTRACT, false, false},
                 {{two, triple, ELEMS / 2}, WH_ORDER_ANY, false, false},
                 {{one, pair, ELEMS / 2}, WH_ORDER_ANY, true, false}};
    struct wh_comm *comm;
    float *in, *out;
    (void)rank;
    WH_TRY(take(job, true, &in));
    WH_TRY(take(job, true, &out));
    WH_TRY(open_all(job, t, 0, 1e-3, &comm));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const struct wh_comm_call c = {.op = kinds[k].borders ? WH_REDUCE_SCATTER : WH_ALL_REDUCE,
                                       .in = in,
                                       .out = out,
                                       .count = ELEMS / 2,
                                       .dtype = kinds[k].dtype,
                                       .redop = kinds[k].redop,
                                       .order = kinds[k].order,
                                       .border = kinds[k].borders ? border : NULL,
                                       .sum = &kinds[k].sum};
        struct wh_comm_plan *plan;
        struct wh_text text = {0};
        WH_TRY(wh_comm_plan_make(comm, &c, &plan));
        wh_comm_plan_describe(plan, &text);
        RANK_CHECK(!strstr(text.data, ": arena") == kinds[k].listed, "kind %zu: %s", k, text.data);
        WH_TRY(wh_comm_start(plan));
        WH_TRY(wh_comm_wait(plan));
        wh_comm_plan_free(plan);
        wh_text_fini(&text);
    }
    return WH_OK;
}

/* A list that needs more work space than there is isn't chosen; those that need none are. */
static enum wh_status no_room(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const enum wh_comm_op op[] = {WH_ALL_REDUCE, WH_REDUCE_SCATTER, WH_ALL_GATHER};
    float *memory[2];
    struct wh_comm *comm;
    for (int i = 0; i < 2; i++) WH_TRY(take(job, true, &memory[i]));
    WH_TRY(open_with_room(job, t, 0, 1e-3, 0, &comm));
    for (int i = 0; i < 3; i++) {
        struct user u = {{op[i], true, true, WH_ORDER_ANY, ELEMS}, rank, t->config.ranks, memory[0], memory[1]};
        place_call(&u);
        WH_TRY(wh_comm_plan_make(comm, &u.call, &u.plan));
        RANK_CHECK((strcmp(wh_comm_plan_way(u.plan), "arena") != 0) == (op[i] == WH_ALL_GATHER), "%s by %s",
                   wh_comm_op_name(op[i]), wh_comm_plan_way(u.plan));
        RANK_CHECK(wh_comm_call_has_lists(&u.call, t->config.ranks));
        WH_TRY(run_user(&u, op[i] == WH_ALL_GATHER));
        wh_comm_plan_free(u.plan);
    }
    return WH_OK;
}

/* What is reserved before anything is known is enough for the lists of least traffic, on every rank. */
static void check_room(uint32_t n, enum wh_comm_op op, size_t count, enum wh_dtype dtype) {
    static const char *const names[] = {"direct", "ring", "halving_doubling"};
    const struct wh_comm_call call = {.op = op, .count = count, .dtype = dtype};
    const size_t room = wh_comm_call_room_bytes(&call, n);
    for (int a = 0; a < (op == WH_ALL_REDUCE && (n & (n - 1)) == 0 ? 3 : 2); a++)
        for (uint32_t r = 0; r < n; r++) {
            const struct wh_coll_request q = {(enum wh_coll_op)op, n, 0, count, dtype, .in_place = true};
            struct wh_coll_list l;
            assert_int_equal(wh_coll_list_new(&q, wh_coll_algorithm(names[a]), r, &l), WH_OK);
            if (wh_coll_room_bytes(&q, &l) > room)
                fail_msg("%s, %s of %zu over %u: rank %u needs %zu, not %zu", names[a], wh_comm_op_name(op), count, n,
                         r, (size_t)wh_coll_room_bytes(&q, &l), room);
            wh_coll_list_free(&l);
        }
}

static void rooms_are_enough(void **state) {
    static const size_t counts[] = {256, 1001, 65536, 1000003}; /* more than flags hold */
    static const enum wh_dtype dtypes[] = {WH_F32, WH_BF16, WH_F64};
    (void)state;
    for (uint32_t n = 2; n <= 64; n++)
        for (size_t c = 0; c < 4; c++)
            for (size_t d = 0; d < 3; d++)
                for (int op = WH_ALL_REDUCE; op <= WH_REDUCE_SCATTER; op++)
                    check_room(n, (enum wh_comm_op)op, counts[c], dtypes[d]);
    const struct wh_comm_call gather = {.op = WH_ALL_GATHER, .count = 65536}, small = {.count = 10};
    assert_true(wh_comm_call_has_lists(&gather, 2) && wh_comm_call_room_bytes(&gather, 2) == 0);
    assert_true(!wh_comm_call_has_lists(&small, 2) && wh_comm_call_room_bytes(&small, 2) == 0);
    assert_false(wh_comm_call_has_lists(&gather, 1));
}

/* Several under way; waited for in different orders on different ranks. */
static enum wh_status mixed(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    struct user u[4];
    WH_TRY(open_all(job, t, 0, 1e-3, &comm));
    for (int i = 0; i < 4; i++) {
        u[i] = (struct user){
            {WH_ALL_REDUCE, true, true, WH_ORDER_ANY, i % 2 ? 3 : ELEMS - (size_t)i}, rank, t->config.ranks};
        WH_TRY(take(job, true, &u[i].in));
        place_call(&u[i]);
        WH_TRY(wh_comm_plan_make(comm, &u[i].call, &u[i].plan)); /* lists and, of 3 elements, inline */
    }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++) write_inputs(&u[i], round);
        for (int i = 0; i < 4; i++) WH_TRY(wh_comm_start(u[i].plan));
        for (int i = 0; i < 4; i++) WH_TRY(wh_comm_wait(u[rank % 2 ? 3 - i : i].plan));
        for (int i = 0; i < 4; i++) WH_TRY(check(&u[i], round));
    }
    for (int i = 0; i < 4; i++) wh_comm_plan_free(u[i].plan);
    return WH_OK;
}

static void groups_agree(void **state) {
    (void)state;
    run(first_counts, 3);
    run(not_for_lists, 2);
    for (uint32_t n = 2; n <= 3; n++) run(no_room, n);
    for (uint32_t n = 2; n <= 4; n++) run(mixed, n);
}

/* --- failures: a named error, soon --- */

/* The second rank calls something else, or ends without a word while the others are in a list. */
static enum wh_status into_a_fault(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    float *x;
    const bool dies = t->context != NULL;
    WH_TRY(take(job, true, &x));
    WH_TRY(open_all(job, t, 0, 1e-3, &comm));
    const struct wh_comm_call c = {.op = WH_ALL_REDUCE,
                                   .in = x,
                                   .out = x,
                                   .count = rank == 1 && !dies ? 999 : ELEMS,
                                   .dtype = WH_F32,
                                   .order = WH_ORDER_ANY};
    struct wh_comm_plan *plan;
    WH_TRY(wh_comm_plan_make(comm, &c, &plan));
    if (rank == 1 && dies) {
        usleep(50000); /* until the others wait */
        _exit(7);
    }
    WH_TRY(wh_comm_start(plan));
    return wh_comm_wait(plan);
}

/* A rank that is slow may still be where the others were told their figures. */
static enum wh_status a_fault(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const enum wh_status status = into_a_fault(job, rank, t);
    RANK_CHECK(status == WH_PEER && strstr(wh_error()->message, "rank 1"), "%s", wh_error()->message);
    RANK_CHECK(t->context || strstr(wh_error()->message, "different things"), "%s", wh_error()->message);
    return WH_OK;
}

static void faults_are_named(void **state) {
    (void)state;
    run(a_fault, 3);
    struct test_ranks t = {.config = {.ranks = 3, .arena_bytes = 4 * ELEMS * sizeof(float), .deadline_ns = 20000000000},
                           .body = a_fault,
                           .context = "dies"};
    const uint32_t bad = test_ranks_run(&t);
    if (bad != 1) test_ranks_print(&t);
    const bool soon = t.end[0].seconds < 10 && t.end[2].seconds < 10;
    test_ranks_free(&t);
    assert_int_equal(bad, 1);
    assert_true(soon);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_and_without_memory),
        cmocka_unit_test(contract_order_is_kept),
        cmocka_unit_test(groups_agree),
        cmocka_unit_test(rooms_are_enough),
        cmocka_unit_test(faults_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
