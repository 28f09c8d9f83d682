#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { SETS_MAX = 8 };

/* Parses and checks; the faults stay in `f`. `sets` is split at '|'. */
static void load(const char *text, const char *sets, struct wh_config *c, struct wh_faults *f) {
    char words[512];
    const char *list[SETS_MAX];
    size_t count = 0;
    strcpy(words, sets);
    for (char *w = strtok(words, "|"); w; w = strtok(NULL, "|")) list[count++] = w;
    *f = (struct wh_faults){0};
    wh_config_parse(text, strlen(text), "run.yaml", list, count, c, f);
    wh_config_check(c, f);
}

static void expect_faults(const char *text, const char *sets, const char *expected) {
    struct wh_config c;
    struct wh_faults f;
    load(text, sets, &c, &f);
    assert_string_equal(f.count ? f.text.data : "", expected);
    wh_faults_status(&f, WH_CONFIG);
    wh_config_free(&c);
}

static void load_good(const char *text, const char *sets, struct wh_config *c) {
    struct wh_faults f;
    load(text, sets, c, &f);
    if (f.count) print_message("%s\n", f.text.data);
    assert_int_equal(f.count, 0);
}

/* Line 1 is the model, line 2 the batch. */
static const char small[] =
    "model: {model_config: {hidden_size: 16, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
    "vocab_size: 256}}\n"
    "tokens: {global_batch_size: 8, sequence_length: 32, train_steps: 20}\n"
    "data: {train: a.txt}\n";

static void everything_derived(void **state) {
    (void)state;
    struct wh_config c;
    load_good(small, "", &c);
    assert_int_equal(c.tokens.micro_batch, 8);
    assert_int_equal(c.tokens.accumulation, 1);
    assert_int_equal(c.arch.Hkv, 4);
    assert_int_equal(c.arch.D, 4);
    assert_int_equal(c.arch.max_position, 32);
    assert_true(c.arch.gated && !c.arch.tied && c.arch.norm_eps == 1e-5f);
    assert_int_equal(c.grain.tensor, 4);
    assert_int_equal(c.grain.data, 8);
    assert_int_equal(c.grain.sequence, 1);
    assert_int_equal(c.data.seed, 42);
    assert_int_equal(c.data.train.count, 1);
    assert_string_equal(c.data.train.item[0], "a.txt");
    assert_int_equal(c.source[WH_KEY_MICRO_BATCH].kind, WH_SOURCE_DERIVED);
    assert_int_equal(c.source[WH_KEY_SEQUENCE].kind, WH_SOURCE_FILE);
    assert_int_equal(c.source[WH_KEY_SEQUENCE].line, 2);
    assert_true(c.optimizer.lr.style == WH_LR_CONSTANT && c.optimizer.clip_grad == 1.0);
    wh_config_free(&c);
}

static void overrides(void **state) {
    (void)state;
    struct wh_config c;
    load_good(small,
              "tokens.train_steps=1_000|seed=7|dtype=bfloat16|data.train=[x,y]|optimizer.clip_grad=off|"
              "tokens.train_steps=2_000|grain={tensor: 1}|tokens.micro_batch_size=2",
              &c);
    assert_int_equal(c.tokens.train_steps, 2000);
    assert_int_equal(c.general.seed, 7);
    assert_int_equal(c.data.seed, 7);
    assert_int_equal(c.model.dtype, WH_BF16);
    assert_int_equal(c.data.train.count, 2);
    assert_string_equal(c.data.train.item[1], "y");
    assert_true(c.optimizer.clip_grad == 0.0);
    assert_int_equal(c.comm.reduce, WH_REDUCE_CONTRACT);
    assert_int_equal(c.grain.tensor, 1);
    assert_int_equal(c.tokens.accumulation, 4);
    assert_int_equal(c.source[WH_KEY_TRAIN_STEPS].kind, WH_SOURCE_SET);
    wh_config_free(&c);
    expect_faults(small, "tokens.train_steps=null|tokens|foo=1",
                  "--set tokens: KEY=VALUE is wanted, as in tokens.train_steps=100\n"
                  "--set foo=1: unknown key 'foo'; `wanhe config keys` lists the keys\n"
                  "run.yaml: tokens.train_steps is missing: number of optimizer steps");
}

static void all_faults_at_once(void **state) {
    (void)state;
    expect_faults(
        "general:\n"
        "  sed: 5\n"
        "model:\n"
        "  dtype: bf16\n"
        "  model_config:\n"
        "    hidden_size: 0x10\n"
        "    num_hidden_layers: 02\n"
        "    num_attention_heads: 5\n"
        "    n_head: 4\n"
        "    vocab_size: 256\n"
        "    intermediate_size: 9_765_625_000\n"
        "    rope_scaling: {type: llama3, factor: 8}\n"
        "tokens: {trian_steps: 10, train_steps: 1.5, global_batch_size: 30, learning_rate: 1}\n"
        "paralelism: {dp: 2}\n"
        "optimizer:\n"
        "  zero_stage: 1\n"
        "  learning_rate_scheduler: 5\n"
        "  optimizer_factory: {torch_adam_is_fused: true, adam_beta1: 1.0}\n"
        "data: &x {train: a}\n"
        "tokens: {sequence_length: 5}\n"
        "lighteval: null\n"
        "profiler: {a: 1}\n"
        "tokenizer: *x\n",
        "",
        "run.yaml:2:3: unknown key 'general.sed'; did you mean 'general.seed'?\n"
        "run.yaml:4:10: model.dtype: 'bf16' is none of float32|bfloat16\n"
        "run.yaml:6:18: model.model_config.hidden_size: '0x10' is not a whole number; legal: 1 to 1048576\n"
        "run.yaml:7:24: model.model_config.num_hidden_layers: '02' has a leading zero, which some read as octal; write "
        "2\n"
        "run.yaml:9:13: model.model_config.n_head is given twice (it means model.model_config.num_attention_heads); "
        "first in line 8\n"
        "run.yaml:11:24: model.model_config.intermediate_size: '9_765_625_000' is too large; the most is 16777216\n"
        "run.yaml:13:10: unknown key 'tokens.trian_steps'; did you mean 'tokens.train_steps'?\n"
        "run.yaml:13:40: tokens.train_steps: '1.5' is not a whole number; legal: 1 to 268435455\n"
        "run.yaml:13:68: unknown key 'tokens.learning_rate'; did you mean "
        "'optimizer.learning_rate_scheduler.learning_rate'?\n"
        "run.yaml:14:1: unknown key 'paralelism'; did you mean 'parallelism'?\n"
        "run.yaml:17:28: optimizer.learning_rate_scheduler is a section: keys below it are wanted, not a value\n"
        "run.yaml:18:44: optimizer.optimizer_factory.torch_adam_is_fused: true has no meaning here: the update is "
        "always "
        "one pass\n"
        "run.yaml:18:62: optimizer.optimizer_factory.adam_beta1: '1.0' is too large; the most is 0.9999999\n"
        "run.yaml:19:7: anchors (&), aliases (*) and tags (!) are not supported; write the value out\n"
        "run.yaml:20:1: section tokens is given twice; first in line 13\n"
        "run.yaml:22:1: profiler has no meaning here: use `wanhe train --trace`\n"
        "run.yaml:23:12: anchors (&), aliases (*) and tags (!) are not supported; write the value out\n"
        "run.yaml: model.model_config.rope_scaling.low_freq_factor is missing: llama3: lower end of the blend\n"
        "run.yaml: model.model_config.rope_scaling.high_freq_factor is missing: llama3: upper end of the blend\n"
        "run.yaml: model.model_config.rope_scaling.original_max_position_embeddings is missing: llama3: length the "
        "frequencies were made for");
}

/* What libyaml can't go on from is told alone: that the rest is missing would be noise. */
static void broken_syntax(void **state) {
    (void)state;
    expect_faults("tokens:\n\ttrain_steps: 5\n", "", "run.yaml:2:1: a tab; YAML is indented with spaces");
    expect_faults("a: 1\n--- \nb: 1\n", "",
                  "run.yaml:1:1: unknown key 'a'; `wanhe config keys` lists the keys\n"
                  "run.yaml:2:1: a second document ('---'); one file is one run");
    expect_faults("seed: [5\n", "", "run.yaml:2:1: while parsing a flow sequence: did not find expected ',' or ']'");
    expect_faults("- a\n", "", "run.yaml:1:1: sections with keys are wanted here, like 'tokens:'");
    expect_faults("seed: \xff\n", "", "run.yaml:1:7: invalid leading UTF-8 octet");
}

static void odd_values(void **state) {
    (void)state;
    expect_faults(small, "seed=[1,2]", "--set seed=[1,2]: seed takes one value, not a list");
    expect_faults(small, "tokens.train_steps=[3]",
                  "--set tokens.train_steps=[3]: tokens.train_steps takes one value, not a list");
    expect_faults(small, "data.shuffle=yes", "--set data.shuffle=yes: data.shuffle: 'yes' is not true or false");
    expect_faults(small, "data.train=[a,[b]]", "--set data.train=[a,[b]]: a list of plain values is wanted here");
    expect_faults(small, "data.train=[]", "--set: data.train is missing: training files");
    expect_faults(small, "seed=-1", "--set seed=-1: seed: '-1' is not a whole number");
    expect_faults(small, "general.run={a:1}", "--set general.run={a:1}: general.run takes a value, not keys below it");
    expect_faults(
        small, "general.run=../x",
        "--set: general.run '../x' must have 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first");
    expect_faults(small, "general.run=_x",
                  "--set: general.run '_x' must have 1 to 100 letters, digits, '.', '_' or '-', a letter or digit "
                  "first");
    expect_faults(small, "grain=null", "--set grain=null: grain is a section: keys below it are wanted, not a value");
    expect_faults(small, "kernels=avx3", "--set kernels=avx3: kernels: 'avx3' is none of auto|reference|avx2|avx512");
    expect_faults(small, "comm.reduce=quick", "--set comm.reduce=quick: comm.reduce: 'quick' is none of contract|fast");
    expect_faults(small, "threads=\"\\0\"", "--set threads=\"\\0\": a zero byte in a value");
}

/* Case B19: refused with the numbers, never truncated. */
static void batch_not_divisible(void **state) {
    (void)state;
    static const struct {
        const char *sets, *expected;
    } cases[] = {
        {"tokens.global_batch_size=30|parallelism.dp=8|tokens.micro_batch_size=1",
         "--set: tokens.global_batch_size 30 is not a multiple of tokens.micro_batch_size 1 * parallelism.dp 8 = 8: "
         "30 mod 8 = 6; nearest legal: 24 or 32"},
        {"tokens.global_batch_size=32|parallelism.dp=8|tokens.micro_batch_size=3",
         "--set: tokens.global_batch_size 32 is not a multiple of tokens.micro_batch_size 3 * parallelism.dp 8 = 24: "
         "32 mod 24 = 8; nearest legal: 24 or 48"},
        {"tokens.global_batch_size=4|parallelism.dp=8",
         "--set: tokens.global_batch_size 4 is not a multiple of tokens.batch_accumulation_per_replica 1 * "
         "parallelism.dp 8 = 8: 4 < 8; nearest legal: 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_faults(small, cases[i].sets, cases[i].expected);
}

/* What this build trains: replicas on one machine, which hold whole groups of the grain. */
static void ranks(void **state) {
    (void)state;
    struct wh_config c;
    static const char dp3[] = "tokens.global_batch_size=24|tokens.micro_batch_size=2|parallelism.dp=3";
    char sets[256];
    load_good(small, "parallelism.dp=8|optimizer.zero_stage=3|optimizer.bucket_bytes=1_000_000|optimizer.prefetch=0",
              &c);
    assert_int_equal(c.tokens.micro_batch, 1);
    assert_int_equal(c.optimizer.bucket_bytes, 1000000);
    wh_config_free(&c);
    load_good(small, "optimizer.zero_stage=2|checks.replicas=off", &c); /* nothing to share out: fine */
    assert_true(c.optimizer.bucket_bytes == 26214400 && c.optimizer.prefetch == 1 && c.checks.replicas == 0);
    wh_config_free(&c);
    snprintf(sets, sizeof sets, "%s|grain.data=6", dp3);
    load_good(small, sets, &c);
    assert_int_equal(c.tokens.accumulation, 4);
    wh_config_free(&c);
    expect_faults(small, dp3,
                  "--set: parallelism.dp 3 does not divide grain.data 8; nearest legal: 2, or with parallelism.dp 3 a "
                  "grain.data of 6 or 12");
    expect_faults(
        small, "tokens.global_batch_size=16|parallelism.dp=16",
        "--set: parallelism.dp 16 does not divide grain.data 8; nearest legal: 8, or with parallelism.dp 16 a "
        "grain.data of 16");
    expect_faults(
        small, "tokens.global_batch_size=130|grain.data=130|parallelism.dp=65",
        "--set: parallelism.dp 65 * parallelism.tp 1 * parallelism.pp 1 = 65 ranks share one machine, 64 at most; "
        "nearest legal: parallelism.dp 26");
    expect_faults(small, "grain.data=100|parallelism.dp=8",
                  "grain.data 100 does not divide the global batch 8; nearest legal: 4");
    expect_faults(small, "comm.reduce=fast|parallelism.dp=2|grain.data=4",
                  "--set: grain.data 4: with comm.reduce fast it is the number of replicas, 2; leave it out");
    expect_faults(small, "optimizer.zero_stage=4|optimizer.bucket_bytes=4095|grain.wire=float16",
                  "--set optimizer.zero_stage=4: optimizer.zero_stage: '4' is too large; the most is 3\n"
                  "--set optimizer.bucket_bytes=4095: optimizer.bucket_bytes: '4095' is too small; the least is 4096\n"
                  "--set grain.wire=float16: grain.wire: 'float16' is none of float32|bfloat16");
}

/* Case B21: all factors shown; one left out is worked out. */
static void batch_factors(void **state) {
    (void)state;
    struct wh_config c;
    expect_faults(small, "tokens.micro_batch_size=2|tokens.batch_accumulation_per_replica=1|parallelism.dp=2",
                  "run.yaml:2: tokens.global_batch_size 8 != tokens.micro_batch_size 2 * "
                  "tokens.batch_accumulation_per_replica 1 * parallelism.dp 2 = 4; leave one of them out, or write 4");
    load_good(small, "tokens.batch_accumulation_per_replica=4", &c);
    assert_int_equal(c.tokens.micro_batch, 2);
    wh_config_free(&c);
    load_good(small, "tokens.micro_batch_size=2|tokens.batch_accumulation_per_replica=3|tokens.global_batch_size=null",
              &c);
    assert_int_equal(c.tokens.global_batch, 6);
    wh_config_free(&c);
    expect_faults(
        small, "tokens.batch_accumulation_per_replica=3|tokens.global_batch_size=null",
        "run.yaml: tokens.global_batch_size is missing: sequences per step (or give tokens.micro_batch_size and "
        "tokens.batch_accumulation_per_replica)");
}

/* Case B18: a tensor rank holds whole slices, hence whole key-value heads. */
static void tensor_ranks(void **state) {
    (void)state;
    struct wh_config c;
    static const char heads[] = "num_attention_heads=8|kv_channels=8|";
    char sets[256];
    load_good(small, "parallelism.tp=4|parallelism.dp=2|parallelism.pp=2|optimizer.zero_stage=3", &c);
    assert_true(c.grain.tensor == 4 && c.parallelism.tp_mode == WH_TP_ALL_REDUCE && wh_config_ranks(&c) == 16);
    wh_config_free(&c);
    for (int tp = 1; tp <= 8; tp *= 2) { /* all slices of one sum */
        snprintf(sets, sizeof sets, "%sparallelism.tp=%d", heads, tp);
        load_good(small, sets, &c);
        assert_int_equal(c.grain.tensor, 8);
        wh_config_free(&c);
    }
    static const char held[] = "ranks hold equally many, in whole slices (grain.tensor";
    static const struct {
        const char *sets, *fault;
    } cases[] = {
        {"num_query_groups=4|parallelism.tp=8", "8 > 4 key-value heads: %s 4); nearest legal: 4"},
        {"num_query_groups=4|parallelism.tp=8|grain.tensor=2",
         "8 > 4 key-value heads: %s 2); nearest legal: 2\n"
         "--set: parallelism.tp 8 does not divide grain.tensor 2; nearest legal: 2 (or choose another grain.tensor)"},
        {"num_query_groups=8|parallelism.tp=8|grain.tensor=4",
         "8 does not divide grain.tensor 4; nearest legal: 4 (or choose another grain.tensor)"},
        {"num_attention_heads=24|num_query_groups=6|parallelism.tp=8",
         "8 > 6 key-value heads: %s 2); nearest legal: 2"},
        {"num_attention_heads=24|num_query_groups=12|parallelism.tp=8",
         "8 does not divide 12 key-value heads: %s 4); nearest legal: 4"},
        {"parallelism.tp=3", "3 does not divide 8 attention heads: %s 8); nearest legal: 2"},
        {"ffn_hidden_size=20|parallelism.tp=8", "8 does not divide 20 feed-forward channels: %s 4); nearest legal: 4"},
        {"num_attention_heads=16|parallelism.tp=16",
         "16 does not divide grain.tensor 8; nearest legal: 8 (or choose another grain.tensor)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char fault[256], expected[512];
        snprintf(sets, sizeof sets, "num_attention_heads=8|kv_channels=8|%s", cases[i].sets);
        snprintf(fault, sizeof fault, cases[i].fault, held);
        snprintf(expected, sizeof expected, "--set: parallelism.tp %s", fault);
        expect_faults(small, sets, expected);
    }
    expect_faults(small, "num_attention_heads=8|kv_channels=8|num_query_groups=4|parallelism.tp=8|grain.tensor=8",
                  "grain.tensor 8 does not divide the number of key-value heads 4; nearest legal: 4\n"
                  "--set: parallelism.tp 8 > 4 key-value heads: ranks hold equally many, in whole slices (grain.tensor "
                  "8); nearest legal: 4");
    expect_faults(small, "num_attention_heads=6|kv_channels=8|ffn_hidden_size=96|grain.tensor=3|parallelism.tp=3",
                  "--set: grain.tensor 3: with parallelism.dp or parallelism.tp above 1 it must be a power of two; "
                  "nearest legal: 2");
    load_good(small, "parallelism.tp=2|parallelism.tp_mode=REDUCE_SCATTER", &c);
    wh_config_free(&c);
    load_good(small, "parallelism.tp_mode=REDUCE_SCATTER", &c); /* one rank has no sequence to share out */
    wh_config_free(&c);
    expect_faults(small, "parallelism.tp=4|parallelism.tp_mode=REDUCE_SCATTER|tokens.sequence_length=3",
                  "--set: parallelism.tp_mode REDUCE_SCATTER: tokens.sequence_length 3 gives 4 ranks no position each; "
                  "nearest legal: ALL_REDUCE");
    expect_faults(
        small,
        "parallelism.tp=2|parallelism.tp_mode=REDUCE_SCATTER|global_batch_size=256|parallelism.dp=2|"
        "micro_batch_size=1|grain.data=256",
        "--set: parallelism.tp_mode REDUCE_SCATTER: grain.data 256 leaves each replica 128 groups, 64 at most; "
        "nearest legal: grain.data 128");
    expect_faults(small, "parallelism.cp=2|expert_model_parallel_size=2",
                  "--set: parallelism.cp 2 is not built yet; nearest legal: 1\n"
                  "--set: parallelism.expert_parallel_size 2 is not built yet; nearest legal: 1");
}

static const char deep[] =
    "model: {model_config: {hidden_size: 128, intermediate_size: 128, num_hidden_layers: 32, num_attention_heads: 32, "
    "vocab_size: 256}}\n"
    "tokens: {global_batch_size: 64, micro_batch_size: 1, sequence_length: 32, train_steps: 20}\n"
    "data: {train: a.txt}\n"
    "grain: {tensor: 32, data: 64}\n";

/* Every one of "parallelism.pp 4 or parallelism.pp 8 and parallelism.tp 4" is legal in place of what `sets` says. */
static void expect_legal(const char *sets, const char *choices) {
    char words[256], all[512];
    struct wh_config c;
    snprintf(words, sizeof words, "%s or ", choices);
    for (char *choice = words, *end; (end = strstr(choice, " or ")); choice = end + 4) {
        *end = '\0';
        snprintf(all, sizeof all, "%s|", sets);
        for (char *w = strtok(choice, " "); w; w = strtok(NULL, " "))
            sprintf(all + strlen(all), "%s%s", strcmp(w, "and") ? w : "|", strchr(w, '.') ? "=" : "");
        load_good(deep, all, &c);
        assert_true(wh_config_ranks(&c) <= 64);
        wh_config_free(&c);
    }
}

/* A schedule file is for as many ranks as it says. */
static void too_many_ranks_with_schedule(void **state) {
    (void)state;
    static const char own[] =
        "wanhe schedule 1\nranks 2\nmicro-batches 1\nmessages derived\nrank 0\nF0 B0\nrank 1\nF0 B0\n",
                      set[] = "parallelism={dp: 64, pp: 2, pp_schedule: own.txt}";
    const char *const sets[] = {set};
    struct wh_faults f = {0};
    struct wh_config c;
    wh_config_parse(deep, strlen(deep), "run.yaml", sets, 1, &c, &f);
    wh_config_set_schedule(&c, own, strlen(own));
    wh_config_check(&c, &f);
    assert_string_equal(f.text.data,
                        "--set: parallelism.dp 64 * parallelism.tp 1 * parallelism.pp 2 = 128 ranks share one machine, "
                        "64 at most; nearest legal: parallelism.dp 32");
    wh_faults_status(&f, WH_CONFIG);
    wh_config_free(&c);
}

/* Case B21: more ranks than a run has room for, with all factors and what would bring them down. */
static void too_many_ranks(void **state) {
    (void)state;
    static const struct {
        int dp, tp, pp;
        const char *sets, *nearest;
    } cases[] = {
        {4, 4, 8, "", "parallelism.pp 4 or parallelism.tp 2 or parallelism.dp 2"},
        {1, 8, 16, "", "parallelism.pp 8 or parallelism.tp 4"},
        {4, 32, 1, "", "parallelism.tp 16 or parallelism.dp 2"}, /* no pp would do */
        {32, 32, 2, "", "parallelism.tp 1 or parallelism.dp 1"},
        {16, 16, 16, "", "parallelism.pp 16 and parallelism.tp 4 and parallelism.dp 1"}, /* none alone */
        {64, 32, 32, "", "parallelism.pp 32 and parallelism.tp 2 and parallelism.dp 1"},
        {64, 1, 3, "", "parallelism.pp 1 or parallelism.dp 16"}, /* 21 replicas don't hold whole groups */
        {64, 1, 2, "|parallelism.pp_engine=interleaved|parallelism.pp_chunks=2", "parallelism.dp 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int dp = cases[i].dp, tp = cases[i].tp, pp = cases[i].pp;
        char sets[256], expected[512];
        snprintf(sets, sizeof sets, "parallelism={dp: %d, tp: %d, pp: %d}%s", dp, tp, pp, cases[i].sets);
        snprintf(expected, sizeof expected,
                 "--set: parallelism.dp %d * parallelism.tp %d * parallelism.pp %d = %d ranks share one machine, 64 at "
                 "most; nearest legal: %s",
                 dp, tp, pp, dp * tp * pp, cases[i].nearest);
        expect_faults(deep, sets, expected);
        expect_legal(sets, cases[i].nearest);
    }
    expect_legal("", "parallelism.dp 4 and parallelism.tp 4 and parallelism.pp 4");
    expect_faults(
        deep, "parallelism.pp=128",
        "--set: parallelism.pp 128 with 1 stage each is above num_hidden_layers 32: a stage has one layer at "
        "least; nearest legal: 32\n"
        "--set: parallelism.dp 1 * parallelism.tp 1 * parallelism.pp 128 = 128 ranks share one machine, 64 at "
        "most; nearest legal: parallelism.pp 32");
}

/* Cases B80 and B88: what the jobs of published models work out to; whole groups for 12 ranks need another grain. */
static void published_batches(void **state) {
    (void)state;
    struct wh_config c;
    struct wh_faults f;
    load(small,
         "tokens.micro_batch_size=4|tokens.batch_accumulation_per_replica=32|parallelism.dp=12|"
         "tokens.global_batch_size=null|grain.data=12",
         &c, &f);
    assert_int_equal(f.count, 0);
    assert_int_equal(c.tokens.global_batch, 1536);
    wh_config_free(&c);
    load(small, "tokens.micro_batch_size=16|tokens.global_batch_size=1024|parallelism.dp=8", &c, &f);
    assert_int_equal(f.count, 0);
    assert_int_equal(c.tokens.accumulation, 8);
    wh_config_free(&c);
}

/* Cases B12 and B32: without fp16 there is no loss scale to get wrong. */
static void half_precision_is_refused(void **state) {
    (void)state;
    expect_faults(small, "model.dtype=float16",
                  "--set model.dtype=float16: model.dtype: 'float16' is none of float32|bfloat16");
    expect_faults(small, "fp16=true",
                  "--set fp16=true: fp16: true has no meaning here: model.dtype is float32 or bfloat16");
}

/* Case B79: 9765625, or refused; never 9. */
static void underscores(void **state) {
    (void)state;
    struct wh_config c;
    load_good(small, "tokens.train_steps=9_765_625", &c);
    assert_int_equal(c.tokens.train_steps, 9765625);
    wh_config_free(&c);
    expect_faults(small, "tokens.train_steps=9__765",
                  "--set tokens.train_steps=9__765: tokens.train_steps: '9__765' is not a whole number; legal: 1 to "
                  "268435455");
}

static void rules_across_keys(void **state) {
    (void)state;
    expect_faults(small, "model.model_config.n_positions=16",
                  "run.yaml:2: tokens.sequence_length 32 is above max_position_embeddings 16; nearest legal: 16");
    expect_faults(small, "model.model_config.vocab_size=200",
                  "--set: vocab_size 200 is below the 256 tokens of tokenizer 'bytes'; nearest legal: 256");
    expect_faults(
        small, "model.model_config.n_head=5",
        "--set: model.model_config.num_attention_heads 5 does not divide hidden_size 16; nearest legal: 4 (or "
        "give head_dim)");
    expect_faults(small, "model.model_config.num_key_value_heads=3",
                  "model: num_attention_heads 4 is not a multiple of num_key_value_heads 3");
    expect_faults(small, "grain.tensor=3|grain.data=5",
                  "grain.tensor 3 does not divide the number of attention heads 4; nearest legal: 1\n"
                  "grain.tensor 3 does not divide the number of key-value heads 4; nearest legal: 1\n"
                  "grain.tensor 3 does not divide the feed-forward width 64; nearest legal: 1\n"
                  "grain.data 5 does not divide the global batch 8; nearest legal: 1");
    expect_faults(
        small, "optimizer.accumulate_grad_in_fp32=false|tokens.val_check_interval=5",
        "--set: tokens.val_check_interval is given, but no data.valid\n"
        "--set: optimizer.accumulate_grad_in_fp32 false keeps gradients in bfloat16: it needs model.dtype bfloat16");
    expect_faults(small, "model.model_config.hidden_act=gelu_new|data.end_of_text=256",
                  "--set: model.model_config.hidden_act does not fit model_type llama; legal: silu");
    expect_faults(small, "checkpoint.folder=elsewhere",
                  "--set: checkpoints.checkpoints_path: checkpoints lie in the run folder (--out), in checkpoints/; "
                  "leave it out");
    expect_faults(small, "data.end_of_text=256", "--set: data.end_of_text 256 is not below vocab_size 256");
    expect_faults(small, "model.config=config.json",
                  "--set: the model is given twice, as a file and as model.model_config; leave one out");
}

static void schedule(void **state) {
    (void)state;
    struct wh_config c;
    load_good(small, "optimizer.learning_rate_scheduler={lr_warmup_steps: 4, lr_decay_style: cosine}", &c);
    assert_int_equal(c.optimizer.lr.decay_start, 4);
    assert_int_equal(c.optimizer.lr.decay_steps, 16);
    wh_config_free(&c);
    load_good(small, "lr_warmup_iters=4|lr-decay-style=wsd", &c);
    assert_int_equal(c.optimizer.lr.decay_start, 18);
    assert_int_equal(c.optimizer.lr.decay_steps, 2);
    wh_config_free(&c);
    expect_faults(
        small, "lr_warmup_iters=30|lr_decay_style=linear|min_lr=1",
        "--set: optimizer.learning_rate_scheduler.min_decay_lr 1 is above learning_rate 0.0003; nearest legal: "
        "0.0003\n"
        "--set: no steps are left for the decay: the rate is at its peak until step 30 and train_steps is 20; "
        "lower optimizer.learning_rate_scheduler.lr_warmup_steps, or give "
        "optimizer.learning_rate_scheduler.lr_decay_steps");
    expect_faults(small, "min_lr=1e-5",
                  "--set: optimizer.learning_rate_scheduler.min_decay_lr has no meaning with lr_decay_style constant; "
                  "choose linear, cosine or wsd, or leave it out");
    expect_faults(
        small,
        "optimizer.learning_rate_scheduler={lr_warmup_steps: 9, lr_decay_style: linear, lr_decay_starting_step: 5}",
        "--set: the decay would start at step 5, within the warm-up of 9 steps; nearest legal: "
        "optimizer.learning_rate_scheduler.lr_decay_starting_step 9");
}

/* The values of nanotron's examples/config_tiny_llama.yaml (case B82) with its many nulls, on one rank. */
static const char nanotron[] =
    "checkpoints: {checkpoint_interval: 10, checkpoints_path_is_shared_file_system: false,\n"
    "  resume_checkpoint_path: null, save_initial_state: false}\n"
    "data_stages: null\n"
    "data: {train: text}\n"
    "general: {benchmark_csv_path: null, consumed_train_samples: null, run: tiny_llama, seed: 42, step: null}\n"
    "lighteval: null\n"
    "logging: {iteration_step_info_interval: 1}\n"
    "model:\n"
    "  dtype: bfloat16\n"
    "  make_vocab_size_divisible_by: 1\n"
    "  model_config:\n"
    "    {hidden_act: silu, hidden_size: 16, initializer_range: 0.02, intermediate_size: 64, is_llama_config: true,\n"
    "     max_position_embeddings: 256, num_attention_heads: 4, num_hidden_layers: 2, num_key_value_heads: 4,\n"
    "     pad_token_id: null, pretraining_tp: 1, rms_norm_eps: 1.0e-05, rope_scaling: null,\n"
    "     tie_word_embeddings: true, use_cache: true, vocab_size: 256}\n"
    "optimizer:\n"
    "  accumulate_grad_in_fp32: true\n"
    "  clip_grad: 1.0\n"
    "  learning_rate_scheduler: {learning_rate: 0.0003, lr_decay_starting_step: null, lr_decay_steps: 13,\n"
    "    lr_decay_style: cosine, lr_warmup_steps: 2, lr_warmup_style: linear, min_decay_lr: 1.0e-05}\n"
    "  optimizer_factory: {adam_beta1: 0.9, adam_beta2: 0.95, adam_eps: 1.0e-08, name: adamW}\n"
    "  weight_decay: 0.01\n"
    "  zero_stage: 0\n"
    "parallelism: {dp: 1, expert_parallel_size: 1, pp: 1, pp_engine: 1f1b, tp: 1, tp_mode: REDUCE_SCATTER,\n"
    "  tp_linear_async_communication: false}\n"
    "profiler: null\n"
    "tokenizer: {tokenizer_max_length: null, tokenizer_name_or_path: bytes, tokenizer_revision: null}\n"
    "tokens: {batch_accumulation_per_replica: 2, limit_test_batches: 0, limit_val_batches: 0, micro_batch_size: 2,\n"
    "  sequence_length: 256, train_steps: 15, val_check_interval: -1}\n";

static void nanotron_tiny(void **state) {
    (void)state;
    struct wh_config c;
    load_good(nanotron, "", &c);
    assert_int_equal(c.tokens.global_batch * c.tokens.sequence_length, 1024);
    assert_true(c.arch.tied && c.arch.C == 16 && c.arch.F == 64 && c.arch.V == 256);
    assert_int_equal(c.optimizer.lr.decay_start, 2);
    assert_int_equal(c.tokens.val_check_interval, 0);
    assert_true(c.optimizer.weight_decay == 0.01 && c.optimizer.lr.floor == 1e-5);
    assert_int_equal(c.model.dtype, WH_BF16);
    wh_config_free(&c);
    static const char ranks[] =
        "parallelism.dp=2|parallelism.tp=2|parallelism.pp=2|"
        "tokens.batch_accumulation_per_replica=1";
    load_good(nanotron, ranks, &c); /* its 8 ranks */
    assert_true(wh_config_ranks(&c) == 8 && c.tokens.micro_batch == 2 && c.tokens.global_batch == 4);
    assert_int_equal(c.parallelism.tp_mode, WH_TP_REDUCE_SCATTER);
    wh_config_free(&c);
}

static void other_programs(void **state) {
    (void)state;
    struct wh_config c;
    load_good(small,
              "training={seq_len: 16, local_batch_size: 4}|activation_checkpoint.mode=full|"
              "parallelism.data_parallel_shard_degree=-1|--tensor-model-parallel-size=1|"
              "parallelism.pipeline_parallel_schedule=interleaved1F1B",
              &c);
    assert_string_equal(wh_config_schedule(&c), "interleaved");
    assert_int_equal(c.recompute, WH_RECOMPUTE_FULL);
    assert_int_equal(c.tokens.accumulation, 2);
    assert_int_equal(c.tokens.sequence_length, 16);
    wh_config_free(&c);
    expect_faults(
        small, "use-distributed-optimizer=true|parallelism.data_parallel_shard_degree=4",
        "--set use-distributed-optimizer=true: use-distributed-optimizer: true has no meaning here: use "
        "optimizer.zero_stage: 1\n"
        "--set parallelism.data_parallel_shard_degree=4: parallelism.data_parallel_shard_degree: 4 has no meaning "
        "here: use parallelism.dp with optimizer.zero_stage: 3");
}

/* What config.json says, given by the caller. */
static void model_from_outside(void **state) {
    (void)state;
    static const char text[] =
        "model: {config: config.json}\ndata: {train: a}\n"
        "tokens: {global_batch_size: 6, sequence_length: 32, train_steps: 1}\n";
    struct wh_faults f = {0};
    struct wh_config c;
    struct wh_model m;
    wh_model_defaults(WH_GPT2, &m);
    m.V = 300, m.C = 16, m.L = 1, m.H = m.Hkv = 2, m.D = 8, m.F = 64, m.max_position = 64;
    wh_config_parse(text, strlen(text), "run.yaml", NULL, 0, &c, &f);
    assert_string_equal(c.model.config, "config.json");
    assert_true(wh_config_wants_model(&c));
    wh_config_set_model(&c, &m);
    wh_config_check(&c, &f);
    assert_int_equal(f.count, 0);
    assert_int_equal(c.arch.V, 300);
    assert_int_equal(c.grain.tensor, 2);
    assert_int_equal(c.grain.data, 2);
    wh_config_free(&c);
    expect_faults(text, "", "run.yaml:1: the model was not read");
    expect_faults(text, "model.config=null|model.init_from=folder", "run.yaml: the model was not read");
    load_good(small, "model.init_from=folder", &c);
    assert_false(wh_config_wants_model(&c));
    wh_config_free(&c);
}

/* The effective configuration of `first`, read, is `first`; frees it. */
static void reads_back(struct wh_config *first) {
    struct wh_config second;
    struct wh_text effective = {0};
    wh_config_effective(first, &effective);
    load_good(effective.data, "", &second);
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        struct wh_text a = {0}, b = {0};
        wh_config_value(first, (enum wh_config_key)k, &a);
        wh_config_value(&second, (enum wh_config_key)k, &b);
        assert_string_equal(a.data, b.data);
        wh_text_fini(&a);
        wh_text_fini(&b);
    }
    assert_memory_equal(&first->arch, &second.arch, sizeof first->arch);
    wh_text_fini(&effective);
    wh_config_free(first);
    wh_config_free(&second);
}

static void read_back(const char *text, const char *sets) {
    struct wh_config first;
    load_good(text, sets, &first);
    reads_back(&first);
}

/* With the model from a file: the effective configuration doesn't need that file. */
static void read_back_model(const struct wh_model *m) {
    static const char text[] =
        "model: {config: gone.json}\ndata: {train: a}\ntokenizer: {tokenizer_name_or_path: t.json}\n"
        "tokens: {global_batch_size: 6, sequence_length: 32, train_steps: 1}\n";
    struct wh_faults f = {0};
    struct wh_config first;
    wh_config_parse(text, strlen(text), "run.yaml", NULL, 0, &first, &f);
    wh_config_set_model(&first, m);
    wh_config_check(&first, &f);
    assert_int_equal(f.count, 0);
    reads_back(&first);
}

static void model_from_outside_reads_back(void **state) {
    (void)state;
    static const enum wh_family families[] = {WH_GPT2, WH_LLAMA, WH_QWEN2};
    static const struct wh_rope ropes[] = {{.theta = 1e6},
                                           {.theta = 10000.0, .kind = WH_ROPE_LINEAR, .factor = 4.0},
                                           {500000.0, WH_ROPE_LLAMA3, 8.0, 1.0, 4.0, 8192}};
    for (int i = 0; i < 9; i++) {
        struct wh_model m;
        wh_model_defaults(families[i / 3], &m);
        m.V = 300, m.C = 16, m.L = 1, m.H = m.Hkv = 2, m.D = 8, m.F = 64, m.max_position = 64;
        m.norm_eps = 3e-6f, m.init_std = 0.0123456789f, m.dropout_embed = 0.1f, m.tied = i % 2;
        if (!m.learned_positions) m.rope = ropes[i % 3];
        read_back_model(&m);
    }
}

static void effective_reads_back(void **state) {
    (void)state;
    read_back(small, "optimizer.weight_decay=0.3333|data.train=[\"\\x01\\u0085\", \"\\\\ \\\" # 万核\"]");
    read_back(small, "model.model_config.model_type=gpt2|lr_decay_style=wsd|clip_grad=off");
    read_back(small, "model.model_config.model_type=qwen2|lr_decay_style=linear|model.model_config.rope_theta=1e6");
    read_back(nanotron, "");
}

static void texts_are_quoted(void **state) {
    (void)state;
    struct wh_config c;
    struct wh_text t = {0};
    load_good(small, "data.train=\"a\\\"\\u4e07\\u0085\\x01\"", &c);
    assert_string_equal(c.data.train.item[0], "a\"\xe4\xb8\x87\xc2\x85\x01");
    wh_config_value(&c, WH_KEY_TRAIN_DATA, &t);
    assert_string_equal(t.data, "[\"a\\\"\xe4\xb8\x87\\u0085\\u0001\"]");
    wh_text_fini(&t);
    wh_config_free(&c);
}

static void sources(void **state) {
    (void)state;
    struct wh_config c;
    struct wh_text t = {0};
    load_good(small, "seed=1", &c);
    wh_config_source_text(&c, WH_KEY_SEED, &t);
    wh_text_add(&t, " ");
    wh_config_source_text(&c, WH_KEY_TRAIN_DATA, &t);
    wh_text_add(&t, " ");
    wh_config_source_text(&c, WH_KEY_HEAD_DIM, &t);
    wh_text_add(&t, " ");
    wh_config_source_text(&c, WH_KEY_CLIP, &t);
    assert_string_equal(t.data, "--set run.yaml:3 derived default");
    wh_text_fini(&t);
    wh_config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_derived),
        cmocka_unit_test(overrides),
        cmocka_unit_test(all_faults_at_once),
        cmocka_unit_test(broken_syntax),
        cmocka_unit_test(odd_values),
        cmocka_unit_test(batch_not_divisible),
        cmocka_unit_test(ranks),
        cmocka_unit_test(batch_factors),
        cmocka_unit_test(tensor_ranks),
        cmocka_unit_test(too_many_ranks),
        cmocka_unit_test(too_many_ranks_with_schedule),
        cmocka_unit_test(published_batches),
        cmocka_unit_test(half_precision_is_refused),
        cmocka_unit_test(underscores),
        cmocka_unit_test(rules_across_keys),
        cmocka_unit_test(schedule),
        cmocka_unit_test(nanotron_tiny),
        cmocka_unit_test(other_programs),
        cmocka_unit_test(model_from_outside),
        cmocka_unit_test(effective_reads_back),
        cmocka_unit_test(model_from_outside_reads_back),
        cmocka_unit_test(texts_are_quoted),
        cmocka_unit_test(sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
