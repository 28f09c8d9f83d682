/* config.json of real models and of bad ones (cases B53 to B57). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/hf_config.h"
#include "arch/model_fields.h"
#include "arch/params.h"
#include "os/file.h"

static enum wh_status parse(const char *text, struct wh_hf_config *out) {
    return wh_hf_config_parse(text, strlen(text), "config.json", out, NULL);
}

static void accept(const char *text, struct wh_hf_config *out) {
    if (parse(text, out) != WH_OK) fail_msg("%s", wh_error()->message);
}

static void expect_message(const char *part) {
    if (!strstr(wh_error()->message, part)) fail_msg("\"%s\" has no \"%s\"", wh_error()->message, part);
}

static void refused(const char *text, const char *part) {
    struct wh_hf_config c;
    assert_int_equal(parse(text, &c), WH_CONFIG);
    expect_message(part);
}

/* A small llama with more keys. */
static const char *llama(const char *more) {
    static char text[2][2048];
    static int next;
    char *t = text[next++ % 2];
    snprintf(t, sizeof text[0],
             "{\"model_type\": \"llama\", \"vocab_size\": 256, \"hidden_size\": 64, \"intermediate_size\": 176,\n"
             "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2%s%s}",
             *more ? ",\n" : "", more);
    return t;
}

static char *golden(const char *name, size_t *bytes) {
    char path[200], *text;
    snprintf(path, sizeof path, "test/golden/configs/%s.json", name);
    if (wh_file_read(path, 1 << 20, &text, bytes) != WH_OK)
        fail_msg("%s (run from the repository root)", wh_error()->message);
    return text;
}

static struct wh_hf_config read_golden(const char *name) {
    struct wh_hf_config c;
    size_t bytes;
    char *text = golden(name, &bytes);
    if (wh_hf_config_parse(text, bytes, name, &c, NULL) != WH_OK) fail_msg("%s", wh_error()->message);
    free(text);
    return c;
}

static void published_models(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t elems;
        enum wh_dtype dtype;
    } known[] = {{"gpt2", 124439808, WH_F32},           {"llama-2-7b", 6738415616, WH_F16},
                 {"llama-2-70b", 68976648192, WH_F16},  {"llama-3-8b", 8030261248, WH_BF16},
                 {"llama-3-70b", 70553706496, WH_BF16}, {"llama-3.1-405b", 405853388800, WH_BF16},
                 {"qwen2.5-7b", 7615616512, WH_BF16},   {"tiny-llama-test", 125248, WH_BF16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct wh_hf_config c = read_golden(known[i].name);
        struct wh_params p;
        assert_int_equal(wh_params_new(&c.model, &p), WH_OK);
        assert_int_equal(p.elems, known[i].elems);
        assert_int_equal(c.dtype, known[i].dtype);
        wh_params_free(&p);
    }
    struct wh_hf_config gpt2 = read_golden("gpt2");
    assert_true(gpt2.model.tied && !gpt2.tied_stated && gpt2.model.F == 3072 && gpt2.model.max_position == 1024);
    assert_true(gpt2.model.dropout_embed == 0.1f && gpt2.model.dropout_attention == 0.1f);
    assert_true(read_golden("qwen2.5-7b").model.qkv_bias);
}

static void other_families_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"mixtral-8x7b", "deepseek-v3", "bloom-176b", "gpt-neox-20b"};
    static const char *const types[] = {"\"mixtral\"", "\"deepseek_v3\"", "\"bloom\"", "\"gpt_neox\""};
    for (int i = 0; i < 4; i++) {
        struct wh_hf_config c;
        size_t bytes;
        char *text = golden(names[i], &bytes);
        assert_int_equal(wh_hf_config_parse(text, bytes, names[i], &c, NULL), WH_CONFIG);
        expect_message(types[i]);
        expect_message("legal: gpt2, llama, qwen2");
        free(text);
    }
}

/* B53 */
static void null_is_absent(void **state) {
    (void)state;
    struct wh_hf_config c;
    accept(
        "{\"model_type\": \"llama\", \"vocab_size\": 10, \"hidden_size\": 4096, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": null, "
        "\"rope_scaling\": null, \"pad_token_id\": null, \"sliding_window\": null, \"quantization_config\": null}",
        &c);
    assert_true(c.model.D == 128 && c.model.Hkv * c.model.D == 1024 && c.model.rope.kind == WH_ROPE_PLAIN);
    accept(
        "{\"model_type\": \"gpt2\", \"vocab_size\": 10, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"n_inner\": "
        "null}",
        &c);
    assert_int_equal(c.model.F, 32);
    accept(
        "{\"model_type\": \"gpt2\", \"vocab_size\": 10, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"n_inner\": 7}",
        &c);
    assert_int_equal(c.model.F, 7);
}

/* What transformers takes where a key is absent. */
static void absent_keys(void **state) {
    (void)state;
    struct wh_hf_config c;
    accept(
        "{\"model_type\": \"llama\", \"vocab_size\": 10, \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2}",
        &c);
    assert_true(c.model.Hkv == 2 && c.model.norm_eps == 1e-6f && c.model.rope.theta == 10000.0);
    assert_true(c.model.max_position == 2048 && !c.model.tied && c.dtype == WH_F32 && !c.tied_stated);
    accept(llama("\"tie_word_embeddings\": true, \"dtype\": \"bfloat16\""), &c);
    assert_true(c.model.tied && c.tied_stated && c.dtype == WH_BF16);
}

/* B54 */
static void head_dim_of_its_own(void **state) {
    (void)state;
    struct wh_hf_config c;
    accept(
        "{\"model_type\": \"llama\", \"vocab_size\": 10, \"hidden_size\": 6144, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 64, \"head_dim\": 128}",
        &c);
    assert_true(c.model.H * c.model.D == 8192);
    refused(
        "{\"model_type\": \"llama\", \"vocab_size\": 10, \"hidden_size\": 10, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 4}",
        "4 does not divide hidden_size 10");
}

/* B57 */
static void llama3_frequencies(void **state) {
    (void)state;
    struct wh_hf_config c;
    static const char *const spellings[] = {"rope_type", "type"};
    for (int i = 0; i < 2; i++) {
        char more[300];
        snprintf(more, sizeof more,
                 "\"rope_theta\": 500000, \"head_dim\": 128, \"rope_scaling\": {\"%s\": \"llama3\", \"factor\": "
                 "8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
                 spellings[i]);
        accept(llama(more), &c);
        static const struct {
            uint32_t i;
            double expected;
        } known[] = {{28, 3.211446e-3}, {29, 2.166571e-3}, {30, 1.371894e-3}, {32, 5.248462e-4}, {63, 3.068926e-7}};
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            double got = wh_rope_inverse_frequency(&c.model.rope, 128, known[k].i);
            assert_true(fabs(got / known[k].expected - 1.0) < 5e-7);
        }
        struct wh_rope plain = c.model.rope;
        plain.kind = WH_ROPE_PLAIN;
        assert_true(fabs(wh_rope_inverse_frequency(&plain, 128, 29) / 2.616099e-3 - 1.0) < 5e-7);
        for (uint32_t k = 35; k < 64; k++)
            assert_true(wh_rope_inverse_frequency(&c.model.rope, 128, k) ==
                        wh_rope_inverse_frequency(&plain, 128, k) / 8);
        for (uint32_t k = 0; k <= 28; k++)
            assert_true(wh_rope_inverse_frequency(&c.model.rope, 128, k) == wh_rope_inverse_frequency(&plain, 128, k));
    }
    accept(llama("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}"), &c);
    assert_true(c.model.rope.kind == WH_ROPE_LINEAR && c.model.rope.factor == 4.0);
    accept(llama("\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 77.5}"), &c);
    assert_true(c.model.rope.kind == WH_ROPE_PLAIN && c.model.rope.theta == 77.5);
    refused(llama("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}"), "rope_type \"yarn\" is not computed");
    refused(llama("\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}"), "\"dynamic\"");
    refused(llama("\"rope_scaling\": {\"factor\": 4}"), "names no rope_type");
    refused(llama("\"rope_scaling\": {\"type\": \"linear\"}"), "rope_scaling.factor must be a number above 0");
    refused(llama("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta\": 1}"),
            "rope_scaling.beta: unknown key");
    refused(llama("\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"llama3\", \"factor\": 2}"), "disagree");
    refused(llama("\"rope_scaling\": 3"), "names no rope_type");
}

static void switches_we_do_not_compute(void **state) {
    (void)state;
    struct wh_hf_config c;
    refused(llama("\"hidden_act\": \"gelu\""), "hidden_act \"gelu\" is not computed; legal here: silu");
    refused(llama("\"attention_bias\": true"), "attention_bias true");
    refused(llama("\"mlp_bias\": true"), "mlp_bias");
    refused(llama("\"quantization_config\": {\"bits\": 4}"), "quantization_config: quantized");
    refused(llama("\"num_local_experts\": 8"), "num_local_experts: mixtures");
    refused(llama("\"sliding_window\": 128"), "sliding_window 128 is in use");
    refused(llama("\"partial_rotary_factor\": 0.5"), "partial_rotary_factor 0.5");
    refused(llama("\"torch_dtype\": \"float8_e4m3fn\""), "torch_dtype \"float8_e4m3fn\" is not read");
    refused(llama("\"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
            "layer_types[1] is sliding_attention");
    accept(llama("\"sliding_window\": 4096, \"max_position_embeddings\": 4096, \"num_local_experts\": 0"), &c);
    accept(llama("\"layer_types\": [\"full_attention\", \"full_attention\"]"), &c);
    const char *qwen2 =
        "{\"model_type\": \"qwen2\", \"vocab_size\": 10, \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"sliding_window\": 16, \"use_sliding_window\": %s, "
        "\"max_window_layers\": %d}";
    char text[400];
    snprintf(text, sizeof text, qwen2, "false", 0);
    accept(text, &c);
    snprintf(text, sizeof text, qwen2, "true", 2); /* no layer uses it */
    accept(text, &c);
    snprintf(text, sizeof text, qwen2, "true", 1);
    refused(text, "sliding_window 16 is in use");
    refused(
        "{\"model_type\": \"gpt2\", \"vocab_size\": 10, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, "
        "\"activation_function\": \"relu\", \"scale_attn_weights\": false}",
        "activation_function \"relu\"");
    expect_message("scale_attn_weights false");
}

static void all_faults_at_once_with_lines(void **state) {
    (void)state;
    refused(
        "{\n\"model_type\": \"llama\",\n\"vocab_size\": -1,\n\"hidden_size\": \"8\",\n\"num_hidden_layers\": 1.5,\n"
        "\"num_attention_heads\": 0,\n\"hidden_act\": \"relu\"}",
        "config.json:3: vocab_size must be");
    expect_message("config.json:4: hidden_size");
    expect_message("config.json:5: num_hidden_layers");
    expect_message("config.json:6: num_attention_heads");
    expect_message("config.json:7: hidden_act");
    expect_message("config.json: intermediate_size is missing");
    refused("{\"model_type\": \"llama\",\n\"vocab_size\": 1,\n\"vocab_size\": 2}",
            "config.json:3: not JSON: duplicate");
    refused("{\n\n\"a\" 1}", "config.json:3: not JSON");
    refused("[]", "not a JSON object");
    refused("{}", "model_type (missing)");
    refused(llama("\"head_dim\": 3"), "head_dim 3 must be even");
}

static void notes_say_what_was_left_out(void **state) {
    (void)state;
    struct wh_hf_config c;
    struct wh_text notes = {0};
    const char *text = llama("\"use_cache\": true, \"frobnicate\": 1");
    assert_int_equal(wh_hf_config_parse(text, strlen(text), "x", &c, &notes), WH_OK);
    assert_string_equal(notes.data,
                        "x: the head is a matrix of its own (the family's default)\n"
                        "x:3: key \"frobnicate\" has no meaning here\n");
    wh_text_fini(&notes);
}

static void round_trip(const struct wh_hf_config *c, bool ours) {
    struct wh_text text = {0}, differences = {0};
    struct wh_hf_config back;
    if (wh_hf_config_write(c, ours, &text) != WH_OK) fail_msg("%s", wh_error()->message);
    accept(text.data, &back);
    if (!wh_model_fields_equal(&c->model, &back.model, &differences)) fail_msg("%s", differences.data);
    assert_true(back.dtype == c->dtype && back.ours == ours);
    if (ours) {
        const struct wh_grain *a = &back.grain, *b = &c->grain;
        assert_true(a->tensor == b->tensor && a->data == b->data && a->sequence == b->sequence && a->wire == b->wire &&
                    a->fast == b->fast);
        assert_int_equal(back.compute, c->compute);
    }
    wh_text_fini(&text);
    wh_text_fini(&differences);
}

static void what_is_written_reads_back(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "llama-2-7b", "llama-3.1-405b", "qwen2.5-7b", "tiny-llama-test"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct wh_hf_config c = read_golden(names[i]);
        round_trip(&c, false);
        c.grain = (struct wh_grain){2, 8, 4, WH_BF16};
        c.compute = WH_BF16;
        round_trip(&c, true);
    }
}

/* A checkpoint from before there was a choice of the wire; and one with a choice that isn't there. */
static void wire_of_the_grain(void **state) {
    (void)state;
    struct wh_hf_config c = read_golden("gpt2"), back;
    struct wh_text text = {0};
    c.grain = (struct wh_grain){2, 8, 4, WH_BF16};
    assert_int_equal(wh_hf_config_write(&c, true, &text), WH_OK);
    char *wire = strstr(text.data, ", \"wire\": \"BF16\"");
    assert_non_null(wire);
    memcpy(wire, ", \"wire\": \"F16\" ", 16);
    assert_int_equal(wh_hf_config_parse(text.data, text.bytes, "x", &back, NULL), WH_CONFIG);
    expect_message("wanhe.grain.wire must be F32 or BF16");
    memset(wire, ' ', 16);
    accept(text.data, &back);
    assert_true(back.grain.tensor == 2 && back.grain.wire == WH_F32);
    wh_text_fini(&text);
}

/* A model that no family's config can express still has a checkpoint's config, but no Hugging Face one. */
static void what_cannot_be_expressed(void **state) {
    (void)state;
    struct wh_hf_config c = read_golden("gpt2");
    struct wh_text text = {0};
    c.model.learned_positions = false;
    c.model.Hkv = 3;
    assert_int_equal(wh_hf_config_write(&c, false, &text), WH_UNSUPPORTED);
    expect_message("kv_heads 3 / 12, learned_positions false / true");
    c.grain = (struct wh_grain){1, 2, 1, .fast = true};
    round_trip(&c, true);
    assert_int_equal(wh_hf_config_write(&c, true, &text), WH_OK);
    assert_non_null(strstr(text.data, "\"model_type\": \"wanhe\""));
    wh_text_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_models),
        cmocka_unit_test(other_families_are_refused_by_name),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(absent_keys),
        cmocka_unit_test(head_dim_of_its_own),
        cmocka_unit_test(llama3_frequencies),
        cmocka_unit_test(switches_we_do_not_compute),
        cmocka_unit_test(all_faults_at_once_with_lines),
        cmocka_unit_test(notes_say_what_was_left_out),
        cmocka_unit_test(wire_of_the_grain),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(what_cannot_be_expressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
