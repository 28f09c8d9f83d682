/* Slices of blocks: REDUCE_SCATTER and ALL_GATHER of vectors that are several equal blocks, each cut at the same borders, as the
 * positions of several sequences are, against plain loops, bit by bit; what lies beside a rank's slices stays as it is; bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/tree.h"
#include "test/support/ranks.h"

enum { ELEMS_MAX = 200000 };

struct shape {
    uint32_t blocks;
    size_t block; /* elements */
    bool uneven;  /* borders given; a slice may be empty */
};

static const struct shape shapes[] = {
    {1, 37, false},    {2, 2, false},  {3, 1, true},      {5, 77, true},    {4, 1000, false},  {7, 4099, true},
    {2, 65536, false}, {64, 96, true}, {1, 100000, true}, {3, 65537, true}, {50, 4000, false},
};

static void set_border(const struct shape *s, uint32_t ranks, size_t *border) {
    for (uint32_t r = 0; r <= ranks; r++)
        border[r] = s->uneven ? s->block * r * r / (ranks * ranks) : s->block * r / ranks;
}

/* Rank `rank`'s element `i`. */
static float value(uint32_t rank, size_t i) { return (float)((i * 7919 + rank * 104729) % 20011) * 0.37f - 3000.0f; }

static float sum(uint32_t ranks, size_t i) {
    float stack[WH_TREE_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        stack[depth++] = value(r, i);
        for (unsigned m = wh_tree_merges(r, ranks); m > 0; m--, depth--) stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

/* Whose slice element `i` is. */
static uint32_t owner(const struct shape *s, const size_t *border, size_t i) {
    uint32_t r = 0;
    while (i % s->block >= border[r + 1]) r++;
    return r;
}

static enum wh_status run(struct wh_comm *comm, const struct wh_comm_call *c, bool once) {
    struct wh_comm_plan *plan;
    WH_TRY(wh_comm_plan_make(comm, c, &plan));
    enum wh_status status = once ? wh_comm_run(comm, c) : wh_comm_start(plan);
    if (status == WH_OK && !once) status = wh_comm_wait(plan);
    wh_comm_plan_free(plan);
    return status;
}

static enum wh_status check_scatter(struct wh_comm *comm, const struct shape *s, struct wh_comm_call c, float *x) {
    const uint32_t rank = wh_comm_rank(comm), ranks = wh_comm_size(comm);
    c.op = WH_REDUCE_SCATTER, c.in = x, c.out = x + c.border[rank];
    for (size_t i = 0; i < c.count; i++) x[i] = value(rank, i);
    WH_TRY(run(comm, &c, s->uneven));
    for (size_t i = 0; i < c.count; i++) {
        const float want = owner(s, c.border, i) == rank ? sum(ranks, i) : value(rank, i);
        RANK_CHECK(memcmp(&x[i], &want, sizeof want) == 0, "reduce_scatter, %u blocks of %zu: element %zu", s->blocks,
                   s->block, i);
    }
    return WH_OK;
}

static enum wh_status check_gather(struct wh_comm *comm, const struct shape *s, struct wh_comm_call c, float *x) {
    const uint32_t rank = wh_comm_rank(comm);
    c.op = WH_ALL_GATHER, c.in = x + c.border[rank], c.out = x;
    for (size_t i = 0; i < c.count; i++) x[i] = owner(s, c.border, i) == rank ? value(rank, i) : -1.0f;
    WH_TRY(run(comm, &c, !s->uneven));
    for (size_t i = 0; i < c.count; i++) {
        const float want = value(owner(s, c.border, i), i);
        RANK_CHECK(memcmp(&x[i], &want, sizeof want) == 0, "all_gather, %u blocks of %zu: element %zu", s->blocks,
                   s->block, i);
    }
    return WH_OK;
}

/* The guard behind the vector stays. */
static enum wh_status check_shape(struct wh_comm *comm, const struct shape *s, float *x) {
    size_t border[WH_COMM_RANKS_MAX + 1];
    const uint32_t rank = wh_comm_rank(comm), ranks = wh_comm_size(comm);
    const struct wh_comm_call c = {
        .count = s->blocks * s->block, .dtype = WH_F32, .border = border, .blocks = s->blocks};
    set_border(s, ranks, border);
    x[c.count] = 12345.0f;
    WH_TRY(check_scatter(comm, s, c, x));
    WH_TRY(check_gather(comm, s, c, x));
    RANK_CHECK(x[c.count] == 12345.0f, "beyond the vector");
    struct wh_comm_call bytes = c;
    const uint64_t own = (border[rank + 1] - border[rank]) * s->blocks;
    bytes.op = WH_ALL_GATHER;
    RANK_CHECK(ranks == 1 || wh_comm_call_bytes(&bytes, rank, ranks) == (ranks - 1) * own * 4, "bytes of a gather");
    bytes.op = WH_REDUCE_SCATTER;
    RANK_CHECK(ranks == 1 || wh_comm_call_bytes(&bytes, rank, ranks) == (c.count - own) * 4, "bytes of a scatter");
    return WH_OK;
}

static enum wh_status body(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    uint32_t members[WH_COMM_RANKS_MAX];
    struct wh_comm *comm;
    void *x;
    (void)rank;
    for (uint32_t i = 0; i < t->config.ranks; i++) members[i] = i;
    WH_TRY(wh_comm_open(job, 0, "all", members, t->config.ranks, &comm));
    WH_TRY(wh_comm_buffer(job, (ELEMS_MAX + 1) * sizeof(float), &x));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) WH_TRY(check_shape(comm, &shapes[i], x));
    return WH_OK;
}

static void slices_of_blocks(void **state) {
    (void)state;
    for (uint32_t ranks = 1; ranks <= 6; ranks++) {
        struct test_ranks t = {.config = {.ranks = ranks, .arena_bytes = (ELEMS_MAX + 1) * sizeof(float) + 4096},
                               .body = body};
        assert_int_equal(test_ranks_bad(&t), 0);
    }
}

/* Members that disagree about the blocks are told so. */
static enum wh_status differing(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    static const uint32_t members[] = {0, 1};
    struct wh_comm *comm;
    void *room;
    (void)t;
    WH_TRY(wh_comm_open(job, 0, "two", members, 2, &comm));
    WH_TRY(wh_comm_buffer(job, 4096, &room));
    float *x = room;
    const uint32_t blocks = rank == 0 ? 2 : 4;
    const struct wh_comm_call c = {.op = WH_ALL_GATHER,
                                   .in = x + 1000 / blocks / 2 * rank,
                                   .out = x,
                                   .count = 1000,
                                   .dtype = WH_F32,
                                   .blocks = blocks};
    const enum wh_status status = wh_comm_run(comm, &c);
    RANK_CHECK(status != WH_OK && strstr(wh_error()->message, "cut it at different borders"), "another message");
    return WH_OK;
}

static void blocks_that_differ(void **state) {
    (void)state;
    struct test_ranks t = {.config = {.ranks = 2, .arena_bytes = 8192}, .body = differing};
    assert_int_equal(test_ranks_bad(&t), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices_of_blocks), cmocka_unit_test(blocks_that_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
