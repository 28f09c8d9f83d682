/* Every operation x type x number of ranks x size x place of the buffers against plain recursion, bit by bit; what lies
 * around the buffers and the inputs stay as they were. WH_TEST_LONG=1 takes all combinations instead of a part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "os/clock.h"
#include "test/support/ranks.h"
#include "test/unit/comm/collective_data.h"

enum { GUARD = 192, MOST_BYTES = 3 << 20 };

static bool long_version(void) { return getenv("WH_TEST_LONG") != NULL; }

enum place { ARENA, PRIVATE, PLACES };

struct buffers {
    char *in[PLACES], *out[PLACES]; /* MOST_BYTES each */
};

static enum wh_status take_buffers(struct wh_comm_job *job, struct buffers *b) {
    void *p;
    WH_TRY(wh_comm_buffer(job, MOST_BYTES, &p));
    b->in[ARENA] = p;
    WH_TRY(wh_comm_buffer(job, MOST_BYTES, &p));
    b->out[ARENA] = p;
    b->in[PRIVATE] = malloc(MOST_BYTES), b->out[PRIVATE] = malloc(MOST_BYTES);
    return WH_OK;
}

struct one_case {
    struct wh_comm_call call;
    enum place in, out;
    bool in_place;
    size_t shift_elems; /* misaligns to anything but the element */
    uint64_t seed;
};

static void describe(const struct one_case *o, uint32_t rank, uint32_t ranks, char *text, size_t bytes) {
    snprintf(text, bytes, "%s %s %s of %zu, root %u, in %s out %s%s, shift %zu, rank %u of %u",
             wh_comm_op_name(o->call.op), wh_dtype_name(o->call.dtype),
             o->call.redop == WH_SUM   ? "sum"
             : o->call.redop == WH_MAX ? "max"
                                       : "min",
             o->call.count, o->call.root, o->in == ARENA ? "arena" : "private", o->out == ARENA ? "arena" : "private",
             o->in_place ? " in place" : "", o->shift_elems, rank, ranks);
}

/* Lays the inputs down, points the call at them. `out` begins and ends with guards. */
static void place_inputs(struct one_case *o, const struct buffers *b, uint32_t rank, uint32_t ranks) {
    struct wh_comm_call *c = &o->call;
    size_t elem = wh_dtype_bytes(c->dtype), offset = GUARD + o->shift_elems * elem;
    struct wh_coll_range in = test_in_range(c, rank, ranks);
    memset(b->out[o->out], 0xab, 2 * GUARD + offset + c->count * elem);
    char *from = (o->in_place ? b->out[o->out] : b->in[o->in]) + offset, *to = b->out[o->out] + offset;
    if (o->in_place && c->op == WH_ALL_GATHER) from += in.first * elem;
    if (o->in_place && c->op == WH_REDUCE_SCATTER) to += test_slice(c, ranks, rank).first * elem;
    for (uint64_t i = 0; i < in.count; i++) {
        union test_value v = test_input(c->dtype, o->seed, rank, in.first + i);
        memcpy(from + i * elem, &v, elem);
    }
    c->in = c->op == WH_BROADCAST ? NULL : from;
    c->out = to;
}

static enum wh_status check_outputs(const struct one_case *o, const struct buffers *b, uint32_t rank, uint32_t ranks) {
    const struct wh_comm_call *c = &o->call;
    size_t elem = wh_dtype_bytes(c->dtype);
    struct wh_coll_range in = test_in_range(c, rank, ranks), out = test_out_range(c, rank, ranks);
    char text[256];
    describe(o, rank, ranks, text, sizeof text);
    for (uint64_t i = 0; i < out.count; i++) {
        union test_value v = test_output(c, o->seed, rank, ranks, out.first + i);
        RANK_CHECK(memcmp((char *)c->out + i * elem, &v, elem) == 0, "%s: element %zu", text, (size_t)i);
    }
    for (uint64_t i = 0; i < in.count && !o->in_place && c->in; i++) {
        union test_value v = test_input(c->dtype, o->seed, rank, in.first + i);
        RANK_CHECK(memcmp((const char *)c->in + i * elem, &v, elem) == 0, "%s: input %zu changed", text, (size_t)i);
    }
    if (o->in_place && c->op != WH_ALL_REDUCE && c->op != WH_ALL_GATHER && c->op != WH_BROADCAST) return WH_OK;
    const char *begin = b->out[o->out], *end = (char *)c->out + out.count * elem;
    for (const char *p = begin; p < (char *)c->out; p++) RANK_CHECK(*p == (char)0xab, "%s: before the output", text);
    for (int i = 0; i < GUARD; i++) RANK_CHECK(end[i] == (char)0xab, "%s: after the output", text);
    return WH_OK;
}

static enum wh_status run_case(struct wh_comm *comm, const struct buffers *b, struct one_case *o) {
    uint32_t rank = wh_comm_rank(comm), ranks = wh_comm_size(comm);
    place_inputs(o, b, rank, ranks);
    WH_TRY(wh_comm_run(comm, &o->call));
    return check_outputs(o, b, rank, ranks);
}

/* All places, in place or not, shifted or not, that the operation allows. */
static enum wh_status run_places(struct wh_comm *comm, const struct buffers *b, struct one_case o, uint64_t *counter) {
    bool all = long_version();
    for (int which = 0; which < 16; which++) {
        o.in = which & 1 ? PRIVATE : ARENA, o.out = which & 2 ? PRIVATE : ARENA;
        o.in_place = which & 4, o.shift_elems = which & 8 ? 1 + *counter % 3 : 0;
        o.seed = ++*counter;
        if (o.call.op == WH_ALL_TO_ALL && o.in_place) continue;
        if (o.call.op == WH_BROADCAST && !o.in_place) continue;
        if (o.in_place && o.in != o.out) continue;
        if (!all && o.in != o.out && *counter % 4) continue;
        if (!all && o.call.count > 5000 && *counter % 5) continue;
        WH_TRY(run_case(comm, b, &o));
    }
    return WH_OK;
}

static enum wh_status all_cases(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const enum wh_dtype types[] = {WH_F32, WH_BF16, WH_F64, WH_I32, WH_I64};
    static const size_t counts[] = {0, 1, 3, 10, 11, 20, 63, 65, 1023, 1025, 4097, 16385, 66001};
    uint32_t members[WH_COMM_RANKS_MAX], n = t->config.ranks;
    struct wh_comm *comm;
    struct buffers b;
    (void)rank;
    for (uint32_t i = 0; i < n; i++) members[i] = i;
    WH_TRY(wh_comm_open(job, 3, "all", members, n, &comm));
    WH_TRY(take_buffers(job, &b));
    uint64_t counter = 0;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (size_t d = 0; d < sizeof types / sizeof *types; d++) {
            for (int op = 0; op < WH_BARRIER; op++) {
                struct one_case o = {.call = {.op = (enum wh_comm_op)op, .count = counts[k], .dtype = types[d]}};
                o.call.root = (uint32_t)(counter % n);
                if (op == WH_ALL_TO_ALL) o.call.count = counts[k] / n * n;
                o.call.redop = (enum wh_redop)(k % 3 == 1 ? (d + k) % WH_REDOP_COUNT : WH_SUM);
                if (!long_version() && n > 4 && (k + d + (size_t)op) % 3) continue;
                WH_TRY(run_places(comm, &b, o, &counter));
                if (counter % 3 == 0) WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
            }
        }
    }
    free(b.in[PRIVATE]), free(b.out[PRIVATE]);
    return WH_OK;
}

static void bits_of(uint32_t ranks, const char *kernels) {
    struct test_ranks t = {
        .config = {.ranks = ranks, .arena_bytes = 2 * MOST_BYTES, .deadline_ns = 20000000000, .kernels = kernels}};
    t.body = all_cases;
    t.limit_s = long_version() ? 1000 : 60;
    uint32_t bad = test_ranks_run(&t);
    if (bad) test_ranks_print(&t);
    test_ranks_free(&t);
    assert_int_equal(bad, 0);
}

static void bits_few(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) bits_of(n, NULL);
}

static void bits_many(void **state) {
    (void)state;
    for (uint32_t n = 5; n <= 9; n += long_version() ? 1 : 2) bits_of(n, NULL);
    bits_of(16, NULL);
}

static void bits_of_kernels(void **state) {
    (void)state;
    struct wh_comm_job *probe;
    bits_of(3, "reference");
    if (wh_comm_job_create(&(struct wh_comm_job_config){.ranks = 1, .kernels = "avx2"}, &probe) != WH_OK) return;
    wh_comm_job_destroy(probe);
    bits_of(3, "avx2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_few),
        cmocka_unit_test(bits_many),
        cmocka_unit_test(bits_of_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
