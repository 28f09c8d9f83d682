/* Every layout gives the bits of one rank: losses, gradient norms, validation loss, weights and moments, for every number of
 * data-parallel ranks, tensor ranks and pipeline stages, ZeRO stage, schedule, micro-batch, bucket size, prefetch depth, recompute,
 * number format and family. What each rank sends and holds is what was predicted, row by row.
 *
 * WH_TEST_LONG=1 takes all combinations and 20 steps instead of a part and 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "arch/part.h"
#include "os/file.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

enum { STEPS_MAX = 20, LINE_MAX = 48 << 10, SETS_MAX = 24, BATCH = 24 };

static char folder[TEST_FOLDER_BYTES], data_set[128], valid_set[128];

static bool long_version(void) { return getenv("WH_TEST_LONG") != NULL; }
static uint32_t steps(void) { return long_version() ? STEPS_MAX : 4; }

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "replica", 8192, path)) return -1;
    snprintf(data_set, sizeof data_set, "data.train=%s", path);
    snprintf(valid_set, sizeof valid_set, "data.valid=%s", path);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

/* What must be equal whoever computes it. */
struct outcome {
    double loss[STEPS_MAX], norm[STEPS_MAX], valid[2];
    uint64_t steps;
    size_t elems;
    float master[LINE_MAX], m[LINE_MAX], v[LINE_MAX];
};

struct layout {
    uint32_t dp, zero, micro;
    bool delays;         /* ranks wait at random before units and buckets */
    const char *sets[6]; /* more of the configuration, up to NULL; none may change a number */
};

struct model {
    const char *name;
    const char *sets[12];
};

#define MC "model.model_config."
static const struct model models[] = {
    {"gpt2, three heads of 8, tied",
     {MC "model_type=gpt2", MC "num_attention_heads=3", MC "max_position_embeddings=10", "grain.data=24"}},
    {"llama, two key-value heads",
     {MC "model_type=llama", MC "num_attention_heads=4", MC "num_key_value_heads=2", "grain.data=24"}},
    {"llama, bf16",
     {MC "model_type=llama", MC "num_attention_heads=4", MC "num_key_value_heads=2", "grain.data=24",
      "model.dtype=bfloat16"}},
    {"gpt2, bf16 with bf16 gradients",
     {MC "model_type=gpt2", MC "num_attention_heads=3", MC "max_position_embeddings=10", "grain.data=24",
      "model.dtype=bfloat16", "optimizer.accumulate_grad_in_fp32=false"}},
    {"llama, tied, bf16 wire, 12 groups, chunks",
     {MC "model_type=llama", MC "num_attention_heads=4", MC "tie_word_embeddings=true", "grain.data=12",
      "grain.sequence=2", "grain.wire=bfloat16"}},
    {"gpt2, bf16 wire",
     {MC "model_type=gpt2", MC "num_attention_heads=3", MC "max_position_embeddings=10", "grain.data=24",
      "grain.wire=bfloat16"}},
    {"llama, bf16 wire, bf16 with bf16 gradients",
     {MC "model_type=llama", MC "num_attention_heads=4", MC "num_key_value_heads=2", "grain.data=24",
      "grain.wire=bfloat16", "model.dtype=bfloat16", "optimizer.accumulate_grad_in_fp32=false"}},
    {"llama, tied, 12 groups, chunks, dropout",
     {MC "model_type=llama", MC "num_attention_heads=4", MC "tie_word_embeddings=true", "grain.data=12",
      "grain.sequence=2", MC "resid_pdrop=0.1", MC "embd_pdrop=0.1"}},
    {"gpt2, four heads, bf16 rows of odd length, dropout",
     {MC "model_type=gpt2", MC "num_attention_heads=4", MC "head_dim=6", MC "hidden_size=23",
      MC "max_position_embeddings=10", "grain.data=24", "model.dtype=bfloat16", MC "resid_pdrop=0.1",
      MC "embd_pdrop=0.1", MC "attn_pdrop=0.1"}},
};

#define PP(n)     "parallelism.pp=" #n
#define ENGINE(e) "parallelism.pp_engine=" e
#define TP(n)     "parallelism.tp=" #n
#define SCATTER   "parallelism.tp_mode=REDUCE_SCATTER"

static const struct layout short_list[] = {
    {2, 0, 12, true, {"checks.replicas=1"}},
    {2, 1, 4, false, {"optimizer.bucket_bytes=4096", "checks.replicas=2"}},
    {1, 0, 4, true, {PP(2)}},
    {2, 2, 12, true, {"optimizer.bucket_bytes=5000"}},
    {2, 3, 12, false, {"optimizer.prefetch=0"}},
    {1, 0, 3, false, {PP(4), ENGINE("gpipe"), "recompute=selective"}},
    {2, 3, 1, true, {"optimizer.prefetch=2", "recompute=full"}},
    {2, 3, 4, true, {PP(2), ENGINE("interleaved"), "optimizer.prefetch=2"}},
    {3, 0, 2, false, {"optimizer.bucket_bytes=10000"}},
    {3, 2, 8, true, {"recompute=selective", "checks.replicas=1"}},
    {1, 0, 6, false, {PP(3), ENGINE("zb-h1")}},
    {4, 1, 6, false, {NULL}},
    {2, 2, 12, false, {PP(3), ENGINE("zb-h1"), "recompute=full"}},
    {4, 3, 3, true, {"recompute=full", "loss_block_tokens=7"}},
    {3, 1, 2, true, {PP(2), ENGINE("zb-v"), "optimizer.bucket_bytes=4096"}},
    {6, 2, 4, false, {NULL}},
    {1, 0, 12, true, {TP(2)}},
    {2, 2, 3, false, {TP(2), PP(2), "recompute=full", "loss_block_tokens=7"}},
    {1, 0, 24, false, {TP(2), PP(2), ENGINE("zb-h1"), "recompute=selective"}},
    {3, 3, 4, true, {TP(2)}},
    {1, 0, 12, true, {TP(2), SCATTER}},
    {1, 0, 2, false, {TP(2), SCATTER, "recompute=full"}},
    {2, 2, 3, false, {TP(2), PP(2), SCATTER, "recompute=full", "loss_block_tokens=7"}},
    {1, 0, 24, false, {TP(2), PP(2), SCATTER, ENGINE("zb-h1"), "recompute=selective"}},
    {3, 3, 4, true, {TP(2), SCATTER}},
    {2, 1, 6, false, {TP(2), PP(2), SCATTER, ENGINE("zb-v"), "recompute=full"}},
    {2, 2, 12, false, {TP(2), PP(2), SCATTER}},
    {1, 0, 3, false, {TP(4), SCATTER}},
    {12, 3, 2, false, {NULL}},
    {2, 3, 4, false, {PP(2), ENGINE("zb-h1"), "recompute=full", "optimizer.prefetch=0"}},
    {2, 3, 12, false, {PP(2), ENGINE("zb-v"), "recompute=selective"}},
    {1, 0, 8, true, {PP(3), "parallelism.pp_layers=[1,2,1]"}},
};

static void open_config(const struct model *model, const struct layout *layout, struct wh_config *c) {
    static const char text[] =
        "model: {model_config: {hidden_size: 24, intermediate_size: 40, num_hidden_layers: 4, vocab_size: 257}}\n"
        "tokens: {global_batch_size: 24, sequence_length: 10, train_steps: 100, limit_val_batches: 2}\n"
        "optimizer: {clip_grad: 0.7, learning_rate_scheduler: {learning_rate: 0.01}}\n"
        "threads: 1\n";
    static char numbers[3][64];
    const char *all[SETS_MAX] = {data_set, valid_set, numbers[0], numbers[1], numbers[2]};
    size_t count = 5;
    struct wh_faults faults = {0};
    snprintf(numbers[0], sizeof numbers[0], "parallelism.dp=%u", layout->dp);
    snprintf(numbers[1], sizeof numbers[1], "optimizer.zero_stage=%u", layout->zero);
    snprintf(numbers[2], sizeof numbers[2], "tokens.micro_batch_size=%u", layout->micro);
    for (const char *const *set = model->sets; *set; set++) all[count++] = *set;
    for (const char *const *set = layout->sets; *set; set++) all[count++] = *set;
    wh_config_parse(text, sizeof text - 1, "test.yaml", all, count, c, &faults);
    wh_config_check(c, &faults);
    if (wh_faults_status(&faults, WH_CONFIG) != WH_OK) fail_msg("%s", wh_error()->message);
}

/* Elements of the logical tensors, in the order of the model's own line. */
static void put(const struct wh_session *s, const float *own, float *out) {
    const struct wh_range range = s->net.own;
    for (size_t i = 0; i < s->stage.part.count; i++) {
        const struct wh_param *p = &s->stage.part.list[i];
        const size_t base = s->stage.whole.list[p->index].offset;
        size_t run;
        for (size_t e = 0; e < p->elems; e += run) {
            const size_t at = wh_param_logical(p, e, &run);
            for (size_t k = 0; k < run; k++) {
                const size_t line = p->offset + e + k;
                if (range.begin <= line && line < range.end) out[base + at + k] = own[line - range.begin];
            }
        }
    }
}

/* Everything a rank owns goes into the outcome. */
static void tell(const struct wh_session *s, struct outcome *out) {
    const struct wh_net *net = &s->net;
    put(s, net->master + (net->own.begin - net->master_first), out->master);
    put(s, net->adam_m, out->m);
    put(s, net->adam_v, out->v);
    out->elems = s->stage.whole.buffer_elems;
    out->steps = s->step;
}

static enum wh_status train(struct wh_session *s, struct outcome *out) {
    struct wh_step_result r;
    struct wh_evaluation e;
    const bool speaker = s->stage.rank == 0;
    wh_net_init_weights(&s->net, s->config->general.seed);
    for (uint32_t i = 0; i < steps(); i++) {
        WH_TRY(wh_session_step(s, &r));
        if (speaker) out->loss[i] = r.loss, out->norm[i] = r.grad_norm;
        if (i != 1 && i + 1 != steps()) continue;
        WH_TRY(wh_session_validate(s, &e));
        if (speaker) out->valid[i != 1] = e.loss;
    }
    tell(s, out);
    return WH_OK;
}

/* Steps and validations of `train`, counted beforehand. */
static void predict_traffic(const struct wh_session *s, struct wh_traffic *t) {
    const uint64_t all = s->valid_sampler.sequences, limit = 2 * BATCH, count = limit < all ? limit : all;
    for (uint32_t i = 0; i < steps(); i++) {
        const uint64_t every = s->config->checks.replicas;
        wh_traffic_step(t, every && (i + 1) % every == 0);
        if (i == 1 || i + 1 == steps()) wh_traffic_evaluate(t, count);
    }
}

/* The rows of the run are those of the prediction. */
static enum wh_status check_traffic(const struct wh_session *s) {
    struct wh_traffic t;
    uint32_t rows, seen = 0;
    const struct wh_comm_row *row = wh_comm_rows(s->team->job, &rows);
    WH_TRY(wh_traffic_new(&s->stage, s->config->optimizer.bucket_bytes, &t));
    predict_traffic(s, &t);
    for (uint32_t k = 0; k < WH_TRAFFIC_COUNT; k++)
        for (uint32_t i = 0; i < rows; i++) {
            const char *name = wh_traffic_row_name(&t, (enum wh_traffic_row)k);
            if (!name || strcmp(row[i].name, name) != 0) continue;
            seen += row[i].calls > 0; /* a plan that is never started has a row, too */
            RANK_CHECK(row[i].calls == t.row[k].calls, "%s: %llu calls, predicted %llu", row[i].name,
                       (unsigned long long)row[i].calls, (unsigned long long)t.row[k].calls);
            RANK_CHECK(row[i].sent_bytes == t.row[k].sent_bytes, "%s: %llu bytes, predicted %llu", row[i].name,
                       (unsigned long long)row[i].sent_bytes, (unsigned long long)t.row[k].sent_bytes);
        }
    for (uint32_t k = 0; k < WH_TRAFFIC_COUNT; k++) seen -= t.row[k].calls > 0;
    wh_traffic_free(&t);
    RANK_CHECK(seen == 0, "a row is missing or not predicted");
    return WH_OK;
}

static enum wh_status check_memory(const struct wh_session *s) {
    struct wh_arena own, shared;
    struct wh_session_bytes all;
    WH_TRY(wh_net_predict(&s->net.shape, &own, &shared));
    WH_TRY(wh_session_predict(s->config, s->stage.rank, &all));
    for (int row = 0; row < WH_ROW_COUNT; row++)
        RANK_CHECK(
            own.row_bytes[row] == s->net.arena.row_bytes[row] && shared.row_bytes[row] == s->net.shared.row_bytes[row],
            "%s is not as predicted", wh_row_name((enum wh_row)row));
    RANK_CHECK(all.own_bytes == s->net.arena.used_bytes && all.arena_bytes == s->net.shared.used_bytes, "sums differ");
    return WH_OK;
}

/* ---- delays: the net's hooks, each after a wait that differs by rank and call ---- */

static struct wh_net_hooks inner;
static struct wh_rng delay_stream;
static uint64_t delay_count;

static void delay(void) {
    const uint32_t r = wh_rng_u32(&delay_stream, delay_count++);
    if (r % 3 == 0) usleep(r / 3 % 2000);
}

static enum wh_status slow_need(void *context, bool train_pass, uint32_t read) {
    delay();
    return inner.need ? inner.need(context, train_pass, read) : WH_OK;
}

static enum wh_status slow_room(void *context, uint32_t unit) {
    delay();
    return inner.room ? inner.room(context, unit) : WH_OK;
}

static enum wh_status slow_done(void *context, uint32_t unit) {
    delay();
    return inner.done ? inner.done(context, unit) : WH_OK;
}

static void slow_down(struct wh_session *s) {
    inner = s->net.hooks;
    delay_stream = wh_rng_stream(7, WH_RNG_TEST, 0, s->stage.rank);
    s->net.hooks = (struct wh_net_hooks){inner.context, slow_need, slow_room, slow_done};
}

static enum wh_status body(struct wh_session *s, const void *context, void *shared) {
    if (*(const bool *)context) slow_down(s);
    WH_TRY(train(s, shared));
    WH_TRY(check_memory(s));
    return s->team ? check_traffic(s) : WH_OK;
}

static void run_ranks(const struct wh_config *c, bool delays, struct outcome *out) {
    struct test_sessions t = {.config = c, .body = body, .context = &delays};
    if (test_sessions_run(&t) != 0) {
        test_ranks_print(&t.ranks);
        fail_msg("a rank failed");
    }
    memcpy(out, t.ranks.shared, sizeof *out);
    test_ranks_free(&t.ranks);
}

static struct outcome one, other;

static void compare(const struct model *model, const struct layout *layout) {
    struct wh_config c;
    open_config(model, layout, &c);
    print_message("%s: dp %u, tp %u%s, pp %u, ZeRO %u, micro-batch %u%s\n", model->name, layout->dp, c.parallelism.tp,
                  c.parallelism.tp_mode == WH_TP_REDUCE_SCATTER ? " with positions" : "", c.parallelism.pp,
                  layout->zero, layout->micro, layout->delays ? ", with delays" : "");
    run_ranks(&c, layout->delays, &other);
    for (uint32_t i = 0; i < steps(); i++)
        if (one.loss[i] != other.loss[i] || one.norm[i] != other.norm[i])
            fail_msg("step %u: loss %.17g, norm %.17g; one rank: %.17g, %.17g", i + 1, other.loss[i], other.norm[i],
                     one.loss[i], one.norm[i]);
    assert_memory_equal(&one, &other, offsetof(struct outcome, master));
    assert_memory_equal(one.master, other.master, one.elems * sizeof(float));
    assert_memory_equal(one.m, other.m, one.elems * sizeof(float));
    assert_memory_equal(one.v, other.v, one.elems * sizeof(float));
    wh_config_free(&c);
}

static void run_one(const struct model *model) {
    const struct layout layout = {1, 0, 8, false, {NULL}};
    struct wh_config c;
    open_config(model, &layout, &c);
    assert_true(sizeof one <= TEST_RANKS_SHARED_BYTES);
    run_ranks(&c, false, &one);
    assert_true(one.elems <= LINE_MAX && one.loss[0] > 1.0 && one.loss[steps() - 1] < one.loss[0]);
    wh_config_free(&c);
}

static void all_combinations(const struct model *model) {
    static const uint32_t dps[] = {2, 3, 4, 6, 8, 12};
    static const char *const buckets[] = {"optimizer.bucket_bytes=4096", "optimizer.bucket_bytes=26214400"};
    static const char *const recompute[] = {"recompute=none", "recompute=selective", "recompute=full"};
    uint32_t turn = 0;
    for (size_t d = 0; d < sizeof dps / sizeof *dps; d++)
        for (uint32_t zero = 0; zero <= 3; zero++)
            for (uint32_t micro = 1; micro <= BATCH / dps[d]; micro++) {
                if (BATCH % (dps[d] * micro)) continue;
                for (int b = 0; b < 2; b++, turn++) {
                    const struct layout l = {
                        dps[d], zero, micro, turn % 8 == 0, {buckets[b], recompute[turn % 3], "checks.replicas=5"}};
                    compare(model, &l);
                }
            }
}

static uint32_t cuts(const struct layout *l) {
    for (const char *const *set = l->sets; *set; set++)
        if (strncmp(*set, TP(), strlen(TP())) == 0) return (uint32_t)atoi(*set + strlen(TP()));
    return 1;
}

static struct wh_grain tensor_grain(const struct model *model) {
    const struct layout alone = {1, 0, 8, false, {NULL}};
    struct wh_config c;
    open_config(model, &alone, &c);
    const struct wh_grain g = c.grain;
    wh_config_free(&c);
    return g;
}

static void ranks_give_the_bits_of_one(void **state) {
    const struct model *model = *state;
    const size_t listed = sizeof short_list / sizeof *short_list;
    const bool half = strstr(model->name, "12 groups") != NULL; /* dp divides the groups */
    run_one(model);
    if (long_version() && !half) {
        all_combinations(model);
        return;
    }
    const struct wh_grain grain = tensor_grain(model);
    for (size_t i = 0; i < listed; i++)
        if (cuts(&short_list[i]) > grain.tensor)
            continue; /* three heads can't be cut */
        else if (long_version() || (i + (size_t)(model - models)) % 5 == 0)
            compare(model, &short_list[i]);
}

int main(void) {
    enum { MODELS = sizeof models / sizeof *models };
    struct CMUnitTest tests[MODELS];
    for (size_t i = 0; i < MODELS; i++)
        tests[i] = (struct CMUnitTest){
            .name = models[i].name, .test_func = ranks_give_the_bits_of_one, .initial_state = (void *)&models[i]};
    return _cmocka_run_group_tests("replica", tests, MODELS, make_folder, drop_folder);
}
