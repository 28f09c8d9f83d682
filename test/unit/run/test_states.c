/* Memory of the model states of running ranks against the formula (plan/states.h), byte by byte: ledger rows of weights,
 * gradients, master weights and moments, for 1 to 4 ranks and every ZeRO stage. The rules beyond the formula: a block
 * takes whole cache lines, and the weights of stage 3, which all ranks share in buffers of one size, take the longest share.
 *
 * Case B75: what does not shrink with more ranks has rows of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arch/owners.h"
#include "os/file.h"
#include "plan/states.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

static char folder[TEST_FOLDER_BYTES], train_set[128];

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "states", 4096, path)) return -1;
    snprintf(train_set, sizeof train_set, "data.train=%s", path);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static uint64_t lines(uint64_t bytes) { return (bytes + WH_ARENA_ALIGN - 1) / WH_ARENA_ALIGN * WH_ARENA_ALIGN; }

struct rows {
    uint64_t weights, gradients, master, m, v;
};

static uint64_t sum_of(const struct rows *r) { return r->weights + r->gradients + r->master + r->m + r->v; }

/* What rank `rank` of `ranks` takes by the formula. Gradients are shared out only if a rank has one micro-batch. */
static struct rows wanted(const size_t *border, uint32_t ranks, uint32_t rank, uint32_t zero, enum wh_dtype weights,
                          enum wh_dtype gradients, bool one_micro_batch) {
    const uint64_t line = border[ranks], own = border[rank + 1] - border[rank];
    uint64_t longest = 0;
    for (uint32_t r = 0; r < ranks; r++)
        if (border[r + 1] - border[r] > longest) longest = border[r + 1] - border[r];
    const struct wh_state_bytes b = wh_state_bytes(line, own, zero, weights, gradients),
                                largest = wh_state_bytes(line, longest, zero, weights, gradients),
                                whole = wh_state_bytes(line, line, zero, weights, gradients);
    const uint64_t each = b.optimizer / (weights == WH_F32 ? 2 : 3);
    return (struct rows){.weights = lines(largest.weights),
                         .gradients = lines(one_micro_batch ? b.gradients : whole.gradients),
                         .master = weights == WH_F32 ? 0 : lines(each),
                         .m = lines(each),
                         .v = lines(each)};
}

static struct rows rows_of(const struct wh_arena *own, const struct wh_arena *shared) {
    struct rows r;
    uint64_t *const out[] = {&r.weights, &r.gradients, &r.master, &r.m, &r.v};
    static const enum wh_row row[] = {WH_ROW_WEIGHTS, WH_ROW_GRADS, WH_ROW_MASTER, WH_ROW_ADAM_M, WH_ROW_ADAM_V};
    for (int i = 0; i < 5; i++) *out[i] = own->row_bytes[row[i]] + shared->row_bytes[row[i]];
    return r;
}

/* ---- running ranks ---- */

struct shared_sums {
    uint64_t line, own[4], bytes[4];
};

static enum wh_status body(struct wh_session *s, const void *context, void *shared) {
    const struct wh_net_shape *shape = &s->net.shape;
    const uint32_t ranks = wh_net_ranks(shape), rank = shape->data.rank;
    struct shared_sums *sums = shared;
    struct wh_step_result r;
    (void)context;
    wh_net_init_weights(&s->net, 1);
    WH_TRY(wh_session_step(s, &r)); /* it runs in that memory */
    const struct rows is = rows_of(&s->net.arena, &s->net.shared),
                      want = wanted(s->stage.owner_border, ranks, rank, shape->data.zero_stage, shape->dtype,
                                    shape->grad_dtype, wh_net_sequences(shape) == shape->micro_batch);
    RANK_CHECK(is.weights == want.weights, "%zu", (size_t)is.weights);
    RANK_CHECK(is.gradients == want.gradients, "%zu", (size_t)is.gradients);
    RANK_CHECK(is.master == want.master && is.m == want.m && is.v == want.v);
    sums->line = s->stage.whole.buffer_elems;
    sums->own[rank] = s->stage.owner_border[rank + 1] - s->stage.owner_border[rank];
    sums->bytes[rank] = sum_of(&is);
    return WH_OK;
}

static void run(uint32_t dp, uint32_t zero, uint32_t micro, const char *const *more, struct shared_sums *out) {
    static const char text[] =
        "model: {model_config: {hidden_size: 48, intermediate_size: 96, num_hidden_layers: 3,\n"
        "  num_attention_heads: 4, vocab_size: 256}}\n"
        "tokens: {global_batch_size: 12, sequence_length: 8, train_steps: 10}\n"
        "grain: {data: 12}\n"
        "threads: 1\n";
    char made[3][64];
    const char *sets[8] = {train_set, made[0], made[1], made[2]};
    struct wh_config c;
    snprintf(made[0], sizeof *made, "parallelism.dp=%u", dp);
    snprintf(made[1], sizeof *made, "optimizer.zero_stage=%u", zero);
    snprintf(made[2], sizeof *made, "tokens.micro_batch_size=%u", micro);
    for (size_t count = 4; *more; more++) sets[count++] = *more;
    if (test_config(text, sets, &c) != WH_OK) fail_msg("%s", wh_error()->message);
    struct test_sessions t = {.config = &c, .body = body};
    if (test_sessions_run(&t) != 0) {
        test_ranks_print(&t.ranks);
        fail_msg("dp %u, ZeRO %u", dp, zero);
    }
    memcpy(out, t.ranks.shared, sizeof *out);
    test_ranks_free(&t.ranks);
    wh_config_free(&c);
}

/* bf16 weights and gradients, one micro-batch: the formula's 16 bytes a parameter. */
static void as_the_formula_says(void **state) {
    static const char *const bf16[] = {"model.dtype=bfloat16", "optimizer.accumulate_grad_in_fp32=false", NULL};
    struct shared_sums s, alone;
    (void)state;
    for (uint32_t zero = 0; zero <= 3; zero++)
        for (uint32_t dp = 1; dp <= 4; dp++) {
            uint64_t own = 0;
            run(dp, zero, 12 / dp, bf16, &s);
            if (dp == 1) alone = s;
            for (uint32_t r = 0; r < dp; r++) own += s.own[r];
            assert_int_equal(own, s.line); /* each element has one owner */
            for (uint32_t r = 0; r < dp && zero == 0; r++) assert_int_equal(s.bytes[r], alone.bytes[0]);
            for (uint32_t r = 0; r < dp && zero == 1; r++) /* 4 P whole, 12 shared out */
                assert_in_range(s.bytes[r], 4 * s.line + 12 * s.own[r], 4 * s.line + 12 * s.own[r] + 5 * 63);
            for (uint32_t r = 0; r < dp && zero == 2; r++)
                assert_in_range(s.bytes[r], 2 * s.line + 14 * s.own[r], 2 * s.line + 14 * s.own[r] + 5 * 63);
        }
    assert_in_range(alone.bytes[0], 16 * alone.line, 16 * alone.line + 5 * 63);
}

/* fp32 gradients, fp32 weights; more micro-batches than one keep the sums of gradients whole. */
static void other_formats_and_accumulation(void **state) {
    static const char *const mixed[] = {"model.dtype=bfloat16", NULL}, *const fp32[] = {NULL};
    struct shared_sums s;
    (void)state;
    for (uint32_t zero = 0; zero <= 3; zero++) {
        run(2, zero, 6, mixed, &s);
        run(3, zero, 4, fp32, &s);
        run(2, zero, 2, mixed, &s);
        run(3, zero, 2, fp32, &s);
    }
}

/* ---- B75 ---- */

/* Ledger rows of rank 0: 28 layers of width 4,096, 2,048 tokens, full recompute, bf16, stage 3, one micro-batch. */
static void predict_b75(uint32_t ranks, struct wh_arena *own, struct wh_arena *shared, struct rows *want) {
    static const struct wh_model model = {.family = WH_LLAMA,
                                          .L = 28,
                                          .C = 4096,
                                          .H = 32,
                                          .Hkv = 32,
                                          .D = 128,
                                          .F = 11008,
                                          .V = 32000,
                                          .max_position = 2048,
                                          .gated = true};
    struct wh_params params;
    size_t border[5];
    assert_int_equal(wh_params_new(&model, &params), WH_OK);
    assert_int_equal(wh_owners(&params, 8, ranks, border), WH_OK);
    const struct wh_net_shape shape = {
        .model = &model,
        .params = &params,
        .grain = {8, ranks, 1},
        .T = 2048,
        .micro_batch = 1,
        .global_batch = ranks,
        .dtype = WH_BF16,
        .grad_dtype = WH_BF16,
        .keep = WH_KEEP_INPUTS,
        .train = true,
        .threads = 1,
        .data = {.ranks = ranks, .zero_stage = 3, .owner_border = border, .prefetch = 1}};
    assert_int_equal(wh_net_predict(&shape, own, shared), WH_OK);
    *want = wanted(border, ranks, 0, 3, WH_BF16, WH_BF16, true);
    wh_params_free(&params);
}

static void only_states_shrink(void **state) {
    (void)state;
    struct wh_arena own[2], shared[2];
    struct rows is[2], want[2];
    for (int i = 0; i < 2; i++) {
        predict_b75(2u << i, &own[i], &shared[i], &want[i]);
        is[i] = rows_of(&own[i], &shared[i]);
        assert_memory_equal(&is[i], &want[i], sizeof *is);
        const uint64_t n = 2048, C = 4096, behind = 2 * (2 * n * C) + n * 2 * sizeof(float);
        /* the layers' inputs, and behind the last layer its output, the final norm and its statistics */
        assert_int_equal(own[i].row_bytes[WH_ROW_ACTIVATIONS] - behind, 469762048);
        assert_true(own[i].row_bytes[WH_ROW_LOGITS] > 0 && own[i].row_bytes[WH_ROW_RECOMPUTE] > 0);
        assert_true(shared[i].row_bytes[WH_ROW_GATHERED] > 0 && wh_comm_job_own_bytes(2u << i) > 0);
    }
    assert_in_range(2 * sum_of(&is[1]), sum_of(&is[0]) / 10000 * 9999, sum_of(&is[0]) / 10000 * 10001);
    static const enum wh_row fixed[] = {WH_ROW_ACTIVATIONS, WH_ROW_RECOMPUTE, WH_ROW_LOGITS, WH_ROW_GATHERED,
                                        WH_ROW_GRADS_SUMS,  WH_ROW_TABLES,    WH_ROW_SCRATCH};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        assert_int_equal(own[0].row_bytes[fixed[i]] + shared[0].row_bytes[fixed[i]],
                         own[1].row_bytes[fixed[i]] + shared[1].row_bytes[fixed[i]]);
    for (int i = 0; i < 2; i++) { /* a total of all rows */
        uint64_t sum = 0;
        for (int row = 0; row < WH_ROW_COUNT; row++) sum += own[i].row_bytes[row] + shared[i].row_bytes[row];
        assert_int_equal(sum, own[i].used_bytes + shared[i].used_bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_formula_says),
                                       cmocka_unit_test(other_formats_and_accumulation),
                                       cmocka_unit_test(only_states_shrink)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
