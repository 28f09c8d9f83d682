/* Bytes of a data-parallel step against the closed forms of the field: 2 (n - 1) / n S for data parallelism and ZeRO 1 and
 * 2, 3 (n - 1) / n S for ZeRO 3, each summed over all ranks so that no rounding of shares is in the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/traffic.h"

enum { LAYERS = 6, C = 64, V = 509, T = 32 };

struct job {
    struct wh_config config;
    size_t line, unit[LAYERS + 3];
};

static void open_job(struct job *j, bool tied, enum wh_dtype dtype, uint32_t ranks, uint32_t zero, uint32_t micro) {
    char text[1024];
    struct wh_faults faults = {0};
    struct wh_params params;
    snprintf(text, sizeof text,
             "model: {dtype: %s, model_config: {hidden_size: %d, intermediate_size: 96, num_hidden_layers: %d,\n"
             "  num_attention_heads: 4, num_key_value_heads: 2, vocab_size: %d, tie_word_embeddings: %s}}\n"
             "data: {train: x}\n"
             "tokens: {global_batch_size: %u, micro_batch_size: %u, sequence_length: %d, train_steps: 100}\n"
             "grain: {data: %u}\n"
             "parallelism: {dp: %u}\n"
             "optimizer: {zero_stage: %u}\n",
             dtype == WH_F32 ? "float32" : "bfloat16", C, LAYERS, V, tied ? "true" : "false", 4 * ranks, micro, T,
             4 * ranks, ranks, zero);
    wh_config_parse(text, strlen(text), "test.yaml", NULL, 0, &j->config, &faults);
    wh_config_check(&j->config, &faults);
    if (wh_faults_status(&faults, WH_CONFIG) != WH_OK) fail_msg("%s", wh_error()->message);
    assert_int_equal(wh_params_new(&j->config.arch, &params), WH_OK);
    wh_params_units(&params, LAYERS, j->unit);
    j->line = params.buffer_elems;
    wh_params_free(&params);
}

/* Of `steps` steps, over all ranks. */
static void count(struct job *j, uint64_t bucket_bytes, uint32_t steps, uint64_t sent[WH_TRAFFIC_COUNT]) {
    memset(sent, 0, WH_TRAFFIC_COUNT * sizeof *sent);
    for (uint32_t r = 0; r < j->config.parallelism.dp; r++) {
        struct wh_stage stage;
        struct wh_traffic t;
        assert_int_equal(wh_stage_new(&j->config, r, &stage), WH_OK);
        assert_int_equal(wh_traffic_new(&stage, bucket_bytes, &t), WH_OK);
        for (uint32_t i = 0; i < steps; i++) wh_traffic_step(&t, false);
        for (int row = 0; row < WH_TRAFFIC_COUNT; row++) sent[row] += t.row[row].sent_bytes;
        wh_traffic_free(&t);
        wh_stage_free(&stage);
    }
}

static void check(bool tied, enum wh_dtype dtype, uint32_t n, uint32_t zero, uint32_t micro, uint64_t bucket_bytes) {
    struct job j;
    uint64_t sent[WH_TRAFFIC_COUNT];
    open_job(&j, tied, dtype, n, zero, micro);
    const uint64_t line = j.line, table = (uint64_t)V * C, steps = 3;
    const uint64_t reduced = (tied ? table : 0) + line - j.unit[1]; /* the rest comes with the embedded tokens */
    const uint64_t e = wh_dtype_bytes(dtype), passes = 4 / micro;
    count(&j, bucket_bytes, steps, sent);
    assert_int_equal(sent[WH_TRAFFIC_GRADS], steps * (zero ? 1 : 2) * (n - 1) * reduced * 4);
    assert_int_equal(sent[WH_TRAFFIC_EMBED], steps * (n - 1) * 4 * n * T * C * e);
    if (zero == 0) assert_int_equal(sent[WH_TRAFFIC_WEIGHTS], 0);
    if (zero == 1 || zero == 2) assert_int_equal(sent[WH_TRAFFIC_WEIGHTS], steps * (n - 1) * line * e);
    if (zero == 3) {
        /* per micro-batch each layer forward and backward, but for those that are still in one of the two slots where the
         * direction turns, there and at the next micro-batch's start; what lies outside once, a tied table once a step */
        const uint64_t layer = j.unit[2] - j.unit[1], tail = j.unit[8] - j.unit[7], embed = j.unit[1];
        const uint64_t layers = passes * 2 * (LAYERS - 2) + 2;
        const uint64_t elems = layers * layer + (tied ? embed + tail : passes * (embed + tail));
        assert_int_equal(sent[WH_TRAFFIC_WEIGHTS], steps * (n - 1) * elems * e);
        assert_true(sent[WH_TRAFFIC_WEIGHTS] <= steps * passes * 2 * (n - 1) * line * e);
    }
    wh_config_free(&j.config);
}

static void closed_forms(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= 9; n++)
        for (uint32_t zero = 0; zero <= 3; zero++)
            for (uint32_t micro = 1; micro <= 4; micro *= 2)
                for (int k = 0; k < 8; k++)
                    check(k & 1, k & 2 ? WH_BF16 : WH_F32, n, zero, micro, k & 4 ? 4096 : 1 << 20);
}

/* Each rank's own share, where shares are equal: the formula of one rank. */
static void one_rank(void **state) {
    struct job j;
    struct wh_stage stage;
    struct wh_traffic t;
    (void)state;
    open_job(&j, true, WH_F32, 2, 0, 4);
    assert_int_equal(wh_stage_new(&j.config, 1, &stage), WH_OK);
    assert_int_equal(wh_traffic_new(&stage, 1 << 30, &t), WH_OK);
    wh_traffic_step(&t, true);
    const uint64_t reduced = (uint64_t)V * C + j.line - j.unit[1];
    assert_int_equal(t.row[WH_TRAFFIC_GRADS].sent_bytes, reduced * 4); /* 2 (n - 1) / n S with n = 2 */
    assert_int_equal(t.row[WH_TRAFFIC_GRADS].calls, t.zero.bucket_count);
    assert_int_equal(t.row[WH_TRAFFIC_CHECK].calls, 1);
    wh_traffic_free(&t);
    wh_stage_free(&stage);
    wh_config_free(&j.config);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(closed_forms), cmocka_unit_test(one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
