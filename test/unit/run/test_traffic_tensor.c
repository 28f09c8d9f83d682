/* Calls and bytes of tensor ranks against the closed forms: of the micro-batch's activations in fp32, b T C elements, four
 * all-reduces a layer and micro-batch (two forward, two backward), five with full recompute; once the embedded tokens and the
 * gradient of the head's input; of each block of logits three numbers a token. With sequence parallelism a reduce-scatter in
 * place of each, and all-gathers in the compute dtype: of two inputs forward, of two gradients backward, of the inputs again
 * for the weights' gradients. Bytes are summed over all ranks, so that no rounding of shares is in the way: n - 1 times the
 * buffer for each reduce-scatter and all-gather, 2 (n - 1) times for each all-reduce. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "run/traffic.h"

enum { LAYERS = 6, C = 64, V = 509, T = 32, BATCH = 4, STEPS = 3 }; /* BATCH: sequences of a replica */

struct layout {
    uint32_t tp, dp, pp, micro;
    enum wh_dtype dtype;
    uint32_t block; /* tokens per block of logits; divides those of a micro-batch */
    bool full;      /* recompute */
    bool positions; /* sequence parallelism */
};

static uint32_t passes(const struct layout *l) { return BATCH / l->micro; }
static uint64_t tokens(const struct layout *l) { return (uint64_t)l->micro * T; }

static void open_config(const struct layout *l, struct wh_config *c) {
    char text[1024];
    struct wh_faults faults = {0};
    snprintf(text, sizeof text,
             "model: {dtype: %s, model_config: {hidden_size: %d, intermediate_size: 96, num_hidden_layers: %d,\n"
             "  num_attention_heads: 8, num_key_value_heads: 8, vocab_size: %d}}\n"
             "data: {train: x}\n"
             "tokens: {global_batch_size: %u, micro_batch_size: %u, sequence_length: %d, train_steps: 100}\n"
             "grain: {data: %u}\n"
             "parallelism: {dp: %u, tp: %u, pp: %u, tp_mode: %s}\n"
             "recompute: %s\n"
             "loss_block_tokens: %u\n",
             l->dtype == WH_F32 ? "float32" : "bfloat16", C, LAYERS, V, BATCH * l->dp, l->micro, T, BATCH * l->dp,
             l->dp, l->tp, l->pp, l->positions ? "REDUCE_SCATTER" : "ALL_REDUCE", l->full ? "full" : "none", l->block);
    wh_config_parse(text, strlen(text), "test.yaml", NULL, 0, c, &faults);
    wh_config_check(c, &faults);
    if (wh_faults_status(&faults, WH_CONFIG) != WH_OK) fail_msg("%s", wh_error()->message);
}

struct sums {
    uint64_t calls, sent_bytes;
};

/* Over all ranks: STEPS steps, or an evaluation of the batch. */
static void count(const struct layout *l, bool train, struct sums out[WH_TRAFFIC_COUNT]) {
    struct wh_config c;
    open_config(l, &c);
    memset(out, 0, WH_TRAFFIC_COUNT * sizeof *out);
    for (uint32_t r = 0; r < wh_config_ranks(&c); r++) {
        struct wh_stage stage;
        struct wh_traffic t;
        assert_int_equal(wh_stage_new(&c, r, &stage), WH_OK);
        assert_int_equal(wh_traffic_new(&stage, 1 << 20, &t), WH_OK);
        for (uint32_t i = 0; i < STEPS && train; i++) wh_traffic_step(&t, false);
        if (!train) wh_traffic_evaluate(&t, BATCH * l->dp);
        for (int row = 0; row < WH_TRAFFIC_COUNT; row++) {
            out[row].calls += t.row[row].calls;
            out[row].sent_bytes += t.row[row].sent_bytes;
        }
        wh_traffic_free(&t);
        wh_stage_free(&stage);
    }
    wh_config_free(&c);
}

/* `calls` collectives in each replica, of `bytes` in all, of which each rank's share is sent `times` times to all others. */
static void expect(const struct layout *l, const struct sums *s, uint64_t calls, uint64_t bytes, uint32_t times) {
    assert_int_equal(s->calls, calls * l->tp * l->dp);
    assert_int_equal(s->sent_bytes, bytes * times * (l->tp - 1) * l->dp);
}

/* STEPS steps. A pass that turns round at once finds its last layer as the forward pass left it. */
static void check_steps(const struct layout *l) {
    struct sums s[WH_TRAFFIC_COUNT];
    const uint64_t rows = tokens(l) * C, n = passes(l), blocks = n * tokens(l) / l->block;
    const uint64_t again = l->full ? (LAYERS - 1) * n : 0, sums = STEPS * (2 * LAYERS * n + again),
                   back = 2 * LAYERS * n;
    const uint64_t e = wh_dtype_bytes(l->dtype), gathers = l->positions ? 1 : 0, times = l->positions ? 1 : 2;
    count(l, true, s);
    expect(l, &s[WH_TRAFFIC_TP_FORWARD], sums, sums * rows * 4, times);
    expect(l, &s[WH_TRAFFIC_TP_BACKWARD], STEPS * (back + n), STEPS * (back + n) * rows * 4, times);
    expect(l, &s[WH_TRAFFIC_TP_EMBED], STEPS * n, STEPS * n * rows * e, times);
    expect(l, &s[WH_TRAFFIC_TP_HEAD], STEPS * 3 * blocks, STEPS * 3 * n * tokens(l) * 4, 2);
    const uint64_t in = gathers * STEPS * (2 * LAYERS * n + 2 * again + n), out = gathers * STEPS * back;
    expect(l, &s[WH_TRAFFIC_TP_GATHER], in, in * rows * e, 1);
    expect(l, &s[WH_TRAFFIC_TP_GATHER_GRAD], out, out * rows * e, 1);
    expect(l, &s[WH_TRAFFIC_TP_AGAIN], out, out * rows * e, 1);
    expect(l, &s[WH_TRAFFIC_TP_EMBED_GRAD], gathers * STEPS, gathers * STEPS * BATCH * T * C * e, 1);
    /* RMSNorm: two gains of each layer and the last one, of each group, each a step */
    expect(l, &s[WH_TRAFFIC_TP_VECTORS], gathers * STEPS * (LAYERS + 1),
           gathers * STEPS * (2 * LAYERS + 1) * BATCH * C * 4, 2);
}

static void check_evaluation(const struct layout *l) {
    struct sums s[WH_TRAFFIC_COUNT];
    const uint64_t rows = tokens(l) * C, n = passes(l), blocks = n * tokens(l) / l->block, sums = 2 * LAYERS * n;
    const uint64_t e = wh_dtype_bytes(l->dtype), in = l->positions ? sums + n : 0;
    const uint32_t times = l->positions ? 1 : 2;
    count(l, false, s);
    expect(l, &s[WH_TRAFFIC_TP_FORWARD], sums, sums * rows * 4, times);
    expect(l, &s[WH_TRAFFIC_TP_EMBED], n, n * rows * e, times);
    expect(l, &s[WH_TRAFFIC_TP_HEAD], 3 * blocks, 3 * n * tokens(l) * 4, 2);
    expect(l, &s[WH_TRAFFIC_TP_GATHER], in, in * rows * e, 1);
    for (int row = WH_TRAFFIC_TP_FORWARD; row < WH_TRAFFIC_COUNT; row++)
        if (row != WH_TRAFFIC_TP_FORWARD && row != WH_TRAFFIC_TP_EMBED && row != WH_TRAFFIC_TP_HEAD &&
            row != WH_TRAFFIC_TP_GATHER)
            assert_int_equal(s[row].calls, 0);
}

static void check(struct layout l) {
    for (int positions = 0; positions < 2; positions++) {
        l.positions = positions;
        check_steps(&l);
        check_evaluation(&l);
    }
}

static void closed_forms(void **state) {
    static const uint32_t blocks[] = {4, 8, T};
    (void)state;
    for (uint32_t tp = 2; tp <= 8; tp *= 2)
        for (uint32_t dp = 1; dp <= 2; dp++)
            for (uint32_t micro = 1; micro <= BATCH; micro *= 2)
                for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
                    for (int k = 0; k < 4; k++) {
                        const struct layout l = {tp, dp, 1, micro, k & 1 ? WH_BF16 : WH_F32, blocks[b], k & 2, false};
                        check(l);
                    }
}

/* Stages share the layers out; what a replica's tensor ranks move doesn't change. */
static void stages(void **state) {
    (void)state;
    for (uint32_t tp = 2; tp <= 8; tp *= 2)
        for (uint32_t pp = 2; pp <= LAYERS; pp++) {
            const struct layout l = {tp, 1, pp, 1, WH_F32, 8, false, false};
            check(l);
        }
}

/* Each rank's own share of two: 2 (n - 1) / n S, the buffer itself. */
static void one_rank(void **state) {
    const struct layout l = {2, 1, 1, 2, WH_F32, T, true, false};
    struct wh_config c;
    struct wh_stage stage;
    struct wh_traffic t;
    (void)state;
    open_config(&l, &c);
    assert_int_equal(wh_stage_new(&c, 1, &stage), WH_OK);
    assert_int_equal(wh_traffic_new(&stage, 1 << 20, &t), WH_OK);
    wh_traffic_step(&t, false);
    assert_int_equal(t.row[WH_TRAFFIC_TP_FORWARD].sent_bytes, 2 * (3 * LAYERS - 1) * tokens(&l) * C * 4);
    assert_int_equal(t.row[WH_TRAFFIC_TP_BACKWARD].sent_bytes, 2 * (2 * LAYERS + 1) * tokens(&l) * C * 4);
    assert_int_equal(t.row[WH_TRAFFIC_GRADS].calls + t.row[WH_TRAFFIC_EMBED].calls, 0);
    wh_traffic_free(&t);
    wh_stage_free(&stage);
    wh_config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(closed_forms), cmocka_unit_test(stages),
                                       cmocka_unit_test(one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
