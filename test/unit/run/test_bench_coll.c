#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "run/bench_coll.h"
#include "run/bench_coll_data.h"
#include "run/launch.h"

static float input_f32(uint32_t rank, uint64_t i) {
    float f;
    wh_bench_coll_input(WH_F32, rank, i, &f);
    return f;
}

/* 5 ranks: ((0 1)(2 3)) 4. One after the other differs often enough to be found out. */
static void test_definition(void **state) {
    (void)state;
    int differ = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        float x[5], sum, chain = 0;
        for (uint32_t r = 0; r < 5; r++) x[r] = input_f32(r, i), chain += x[r];
        const float tree = ((x[0] + x[1]) + (x[2] + x[3])) + x[4];
        wh_bench_coll_reduced(WH_F32, WH_SUM, 5, i, &sum);
        assert_memory_equal(&sum, &tree, sizeof sum);
        differ += sum != chain;
        wh_bench_coll_reduced(WH_F32, WH_MAX, 5, i, &sum);
        for (int r = 0; r < 5; r++) assert_true(sum >= x[r]);
        wh_bench_coll_reduced(WH_F32, WH_MIN, 5, i, &sum);
        for (int r = 0; r < 5; r++) assert_true(sum <= x[r]);
    }
    assert_in_range(differ, 101, 1000);
}

/* bf16: exact inputs, summed in fp32, rounded once. */
static void test_bf16(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        uint16_t x[3], sum;
        for (uint32_t r = 0; r < 3; r++) wh_bench_coll_input(WH_BF16, r, i, &x[r]);
        const float exact = (wh_bf16_to_f32(x[0]) + wh_bf16_to_f32(x[1])) + wh_bf16_to_f32(x[2]);
        wh_bench_coll_reduced(WH_BF16, WH_SUM, 3, i, &sum);
        assert_int_equal(sum, wh_f32_to_bf16(exact));
    }
}

static enum wh_status measure(struct wh_launch_rank *self, void *context) {
    const struct wh_bench_coll_what *what = context;
    struct wh_bench_coll *b;
    WH_TRY(wh_comm_job_join(self->job, self->rank));
    WH_TRY(wh_bench_coll_open(self->job, self->rank, self->world, what, &b));
    for (size_t bytes = 8; bytes <= what->max_bytes; bytes *= 37) {
        struct wh_bench_coll_row row;
        WH_TRY(wh_bench_coll_row(b, bytes, &row));
        const struct wh_bench_coll_time *in = &row.in_place, *out = &row.out_of_place;
        if (out->wrong || in->wrong) return WH_FAIL(WH_INTERNAL, "%zu bytes: wrong", bytes);
        if (out->measured != (what->op != WH_BROADCAST) ||
            in->measured != (what->op != WH_ALL_TO_ALL && what->op != WH_SEND))
            return WH_FAIL(WH_INTERNAL, "not measured");
        const struct wh_bench_coll_time *any = out->measured ? out : in;
        if (row.bytes > bytes || !(any->us > 0 && any->us >= any->us_min))
            return WH_FAIL(WH_INTERNAL, "%zu bytes: strange figures", bytes);
    }
    wh_bench_coll_close(b);
    return WH_OK;
}

static void run(struct wh_bench_coll_what what, uint32_t ranks) {
    what.max_bytes = 20000, what.iters = 1, what.seconds = 1e-4;
    const struct wh_comm_job_config config = {.ranks = ranks, .arena_bytes = wh_bench_coll_arena_bytes(&what)};
    struct wh_launch_result result;
    struct wh_comm_job *job;
    assert_int_equal(wh_comm_job_create(&config, &job), WH_OK);
    const struct wh_launch_options options = {.ranks = ranks, .job = job};
    const enum wh_status status = wh_launch_run(&options, measure, &what, &result);
    wh_comm_job_destroy(job);
    if (status) fail_msg("%s, %u ranks: %s", wh_comm_op_name(what.op), ranks, wh_error()->message);
}

static void test_operations(void **state) {
    (void)state;
    const enum wh_comm_op ops[] = {WH_ALL_REDUCE, WH_REDUCE_SCATTER, WH_ALL_GATHER,
                                   WH_BROADCAST,  WH_REDUCE,         WH_ALL_TO_ALL};
    const enum wh_dtype dtypes[] = {WH_F32, WH_BF16, WH_F64, WH_I32, WH_I64};
    for (int o = 0; o < 6; o++)
        for (uint32_t ranks = 1; ranks <= 3; ranks++)
            for (int p = 0; p < 2; p++) run((struct wh_bench_coll_what){.op = ops[o], .private_memory = p}, ranks);
    for (int p = 0; p < 2; p++) run((struct wh_bench_coll_what){.op = WH_SEND, .private_memory = p}, 2);
    for (int d = 0; d < 5; d++)
        for (int r = 0; r < WH_REDOP_COUNT; r++)
            run((struct wh_bench_coll_what){.op = WH_ALL_REDUCE, .dtype = dtypes[d], .redop = (enum wh_redop)r}, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_definition), cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
