/* Every operation x type x number of ranks x size x place of the buffers x borders of slices against plain recursion, bit by
 * bit; what lies around the buffers and the inputs stay as they were. WH_TEST_LONG=1 takes all combinations instead of a
 * part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "comm/comm_int.h"
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

/* Who owns how much of the vector. */
enum shape { NO_BORDERS, EVEN, UNEVEN, ALL_ON_FIRST, ALL_ON_LAST, ALL_ON_MIDDLE, FIRST_EMPTY, LAST_EMPTY, SHAPES };
static const char *const shape_name[SHAPES] = {
    "", ", even", ", uneven", ", all on first", ", all on last", ", all on middle", ", first empty", ", last empty"};

struct one_case {
    struct wh_comm_call call;
    enum place in, out;
    bool in_place;
    size_t shift_elems; /* misaligns to anything but the element */
    uint64_t seed;
    enum shape shape;
    bool slices_apart; /* each rank's slice at another offset */
};

static void set_border(enum shape shape, size_t count, uint32_t n, size_t *border) {
    size_t at[WH_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t i = 1; i < n; i++) {
        if (shape == EVEN) at[i] = count * i / n;
        if (shape == UNEVEN) at[i] = at[i - 1] + test_hash(count + 7 * i) % (count - at[i - 1] + 1) * (i % 3 > 0);
        if (shape == ALL_ON_FIRST) at[i] = count;
        if (shape == ALL_ON_MIDDLE && i > n / 2) at[i] = count;
        if (shape == FIRST_EMPTY) at[i] = count * (i - 1) / (n - 1);
        if (shape == LAST_EMPTY) at[i] = count * i / (n - 1);
    }
    at[n] = count;
    memcpy(border, at, (n + 1) * sizeof *at);
}

static const char *const redop_name[WH_REDOP_COUNT] = {"sum", "max", "min", "rounded sum"};

static void describe(const struct one_case *o, uint32_t rank, uint32_t ranks, char *text, size_t bytes) {
    snprintf(text, bytes, "%s %s %s of %zu, root %u, in %s out %s%s, shift %zu%s%s, rank %u of %u",
             wh_comm_op_name(o->call.op), wh_dtype_name(o->call.dtype), redop_name[o->call.redop], o->call.count,
             o->call.root, o->in == ARENA ? "arena" : "private", o->out == ARENA ? "arena" : "private",
             o->in_place ? " in place" : "", o->shift_elems, shape_name[o->shape], o->slices_apart ? ", apart" : "",
             rank, ranks);
}

/* Lays the inputs down, points the call at them. `out` begins and ends with guards. */
static void place_inputs(struct one_case *o, const struct buffers *b, uint32_t rank, uint32_t ranks) {
    struct wh_comm_call *c = &o->call;
    bool scatters = c->op == WH_REDUCE_SCATTER, gathers = c->op == WH_ALL_GATHER;
    size_t elem = wh_dtype_bytes(c->dtype), offset = GUARD + o->shift_elems * elem;
    size_t of_slice = offset + (o->slices_apart ? (ranks - rank) % 4 * elem : 0), bytes = 3 * GUARD + c->count * elem;
    struct wh_coll_range in = test_in_range(c, rank, ranks), slice = test_slice(c, ranks, rank);
    memset(b->in[o->in], 0xab, bytes), memset(b->out[o->out], 0xab, bytes);
    char *from = b->in[o->in] + (gathers ? of_slice : offset), *to = b->out[o->out] + (scatters ? of_slice : offset);
    if (o->in_place && scatters) to = from + slice.first * elem;
    if (o->in_place && !scatters) from = to + (gathers ? slice.first * elem : 0);
    for (uint64_t i = 0; i < in.count; i++) {
        union test_value v = test_input(c->dtype, o->seed, rank, in.first + i);
        memcpy(from + i * elem, &v, elem);
    }
    c->in = c->op == WH_BROADCAST ? NULL : from;
    c->out = to;
    if (scatters && slice.count == 0 && o->in == o->out && o->seed % 2) c->out = NULL;
    if (gathers && slice.count == 0 && o->in == o->out && o->seed % 2) c->in = NULL;
}

/* Nothing was written but the output: around it, or in place around the whole vector and outside of the slice. */
static enum wh_status check_around(const struct one_case *o, const struct buffers *b, uint32_t rank, uint32_t ranks,
                                   const char *text) {
    const struct wh_comm_call *c = &o->call;
    bool in_vector = o->in_place && c->op == WH_REDUCE_SCATTER;
    struct wh_coll_range in = test_in_range(c, rank, ranks), out = test_out_range(c, rank, ranks);
    if (o->in_place && c->op == WH_REDUCE && rank != c->root) out = in; /* its input */
    size_t elem = wh_dtype_bytes(c->dtype);
    const char *begin = b->out[o->out], *data = c->out, *end = data + out.count * elem;
    for (uint64_t i = 0; i < in.count && in_vector; i++) {
        union test_value v = test_input(c->dtype, o->seed, rank, i);
        bool own = i >= out.first && i < out.first + out.count;
        RANK_CHECK(own || memcmp((const char *)c->in + i * elem, &v, elem) == 0, "%s: input %zu changed", text,
                   (size_t)i);
    }
    if (in_vector) begin = b->in[o->in], data = c->in, end = data + in.count * elem;
    if (!data) data = end = begin + GUARD; /* an empty slice that lies nowhere */
    for (const char *p = begin; p < data; p++) RANK_CHECK(*p == (char)0xab, "%s: before the output", text);
    for (int i = 0; i < GUARD; i++) RANK_CHECK(end[i] == (char)0xab, "%s: after the output", text);
    return WH_OK;
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
    return check_around(o, b, rank, ranks, text);
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
    static const size_t counts[] = {0, 1, 3, 10, 11, 20, 63, 65, 124, 125, 1023, 1025, 4097, 16385, 66001};
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

/* The empty slice of the last rank looks as if it were in place: its buffer begins where the vector ends. */
static enum wh_status behind(struct wh_comm *comm, char *buffer) {
    const uint32_t n = wh_comm_size(comm);
    size_t border[WH_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t i = 1; i <= n; i++) border[i] = 1000;
    struct wh_comm_call c = {
        .op = WH_REDUCE_SCATTER, .in = buffer, .out = buffer + 4000, .count = 1000, .dtype = WH_I32, .border = border};
    WH_TRY(wh_comm_run(comm, &c));
    c.op = WH_ALL_GATHER, c.in = buffer + 4000, c.out = buffer;
    return wh_comm_run(comm, &c);
}

/* Slices of all shapes. */
static enum wh_status all_shapes(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const enum wh_dtype types[] = {WH_F32, WH_BF16, WH_F64, WH_I32, WH_I64};
    static const size_t counts[] = {0, 1, 3, 10, 31, 125, 1025, 16385, 98300};
    uint32_t members[WH_COMM_RANKS_MAX], n = t->config.ranks;
    size_t border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm *comm;
    struct buffers b;
    (void)rank;
    for (uint32_t i = 0; i < n; i++) members[i] = i;
    WH_TRY(wh_comm_open(job, 3, "all", members, n, &comm));
    WH_TRY(take_buffers(job, &b));
    if (n > 1) WH_TRY(behind(comm, b.out[ARENA]));
    uint64_t counter = 0;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (enum shape shape = EVEN; shape < SHAPES; shape++) {
            if (n == 1 && shape >= FIRST_EMPTY) continue;
            for (int which = 0; which < 32; which++) {
                struct one_case o = {.shape = shape, .seed = ++counter};
                if (!long_version() && counts[k] > 100 && test_hash(counter) % (counts[k] > 2000 ? 29 : 5)) continue;
                o.call = (struct wh_comm_call){.op = which & 1 ? WH_ALL_GATHER : WH_REDUCE_SCATTER,
                                               .count = counts[k],
                                               .dtype = types[counter % 5],
                                               .redop = counter % 7 == 0 ? WH_MAX : WH_SUM};
                set_border(shape, counts[k], n, border);
                o.call.border = border;
                o.in = which & 2 ? PRIVATE : ARENA, o.out = which & 4 ? PRIVATE : ARENA;
                o.slices_apart = counter % 3 == 0, o.shift_elems = which & 8 ? 1 + counter % 3 : 0;
                o.in_place = which & 16 && o.in == o.out;
                WH_TRY(run_case(comm, &b, &o));
            }
        }
    }
    free(b.in[PRIVATE]), free(b.out[PRIVATE]);
    return WH_OK;
}

static void run_ranks(uint32_t ranks, const char *kernels,
                      enum wh_status (*body)(struct wh_comm_job *, uint32_t, const struct test_ranks *)) {
    struct test_ranks t = {
        .config = {.ranks = ranks, .arena_bytes = 2 * MOST_BYTES, .deadline_ns = 20000000000, .kernels = kernels}};
    t.body = body;
    t.limit_s = long_version() ? 1000 : 60;
    assert_int_equal(test_ranks_bad(&t), 0);
}

static void bits_of(uint32_t ranks, const char *kernels) { run_ranks(ranks, kernels, all_cases); }

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

static void shapes(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 9; n++) run_ranks(n, NULL, all_shapes);
}

/* A vector that one rank owns is cut into as many chunks as one that is shared out evenly: work for all. */
static void chunks(void **state) {
    (void)state;
    size_t border[WH_COMM_RANKS_MAX + 1];
    for (int op = 0; op < WH_ALL_TO_ALL; op++) {
        for (uint32_t n = 2; n <= 9; n++) {
            struct wh_comm comm = {.size = n};
            struct wh_comm_call call = {.op = (enum wh_comm_op)op, .dtype = WH_F32};
            struct wh_action a = {.comm = &comm, .call = &call, .count = 100000, .border = border};
            for (enum shape shape = EVEN; shape < SHAPES; shape++) {
                set_border(shape, a.count, n, border);
                wh_action_cut(&a);
                assert_in_range(a.chunks, 2 * n, 4 * n);
                assert_true(a.chunks * a.chunk_elems >= a.count);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_few), cmocka_unit_test(bits_many), cmocka_unit_test(bits_of_kernels),
        cmocka_unit_test(shapes),   cmocka_unit_test(chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
