/* Hugging Face folders, made here by hand: names, transposition, ties, parts, faults (cases B15, B55, B56, B77). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/hf.h"
#include "ckpt/hf_names.h"
#include "ckpt/safetensors.h"
#include "test/support/folder.h"

static char folder[TEST_FOLDER_BYTES];

static int setup(void **state) {
    (void)state;
    return test_folder_make(folder, "hf") ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static char *at(const char *inside) {
    static char path[4][200];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, inside);
    return p;
}

static void put_text(const char *name, const char *text) {
    assert_int_equal(wh_file_write_all(at(name), text, strlen(text)), WH_OK);
}

static void expect(enum wh_status got, enum wh_status want, const char *text) {
    if (got != want) fail_msg("status %s: %s", wh_status_name(got), got ? wh_error()->message : "");
    if (want != WH_OK && !strstr(wh_error()->message, text))
        fail_msg("\"%s\" has no \"%s\"", wh_error()->message, text);
}

/* Tensors of one file; value k of a tensor is base + k. */
struct spec {
    const char *name;
    uint64_t rows, cols; /* cols 0: vector */
    float base;
};

static void put_tensors(const char *file, const struct spec *specs, size_t count, enum wh_dtype dtype) {
    struct wh_safetensors_tensor list[64] = {0};
    uint64_t hashes[64], xxh3;
    size_t bytes;
    struct wh_safetensors_writer w;
    for (size_t i = 0; i < count; i++) {
        list[i] = (struct wh_safetensors_tensor){.name = specs[i].name, .dtype = dtype, .dims = specs[i].cols ? 2 : 1};
        list[i].shape[0] = specs[i].rows, list[i].shape[1] = specs[i].cols;
    }
    expect(wh_safetensors_create(at(file), list, count, NULL, 0, hashes, &w), WH_OK, "");
    for (size_t i = 0; i < count; i++)
        for (uint64_t k = 0; k < specs[i].rows * (specs[i].cols ? specs[i].cols : 1); k++) {
            float x = specs[i].base + (float)k;
            uint16_t h = dtype == WH_BF16 ? wh_f32_to_bf16(x) : wh_f32_to_f16(x);
            expect(wh_safetensors_write(&w, dtype == WH_F32 ? (void *)&x : (void *)&h, wh_dtype_bytes(dtype)), WH_OK,
                   "");
        }
    expect(wh_safetensors_commit(&w, &bytes, &xxh3), WH_OK, "");
}

static const char gpt2_config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 5, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, "
    "\"n_positions\": 3}";

static const struct spec gpt2_tensors[] = {
    {"wte.weight", 5, 4, 0},
    {"wpe.weight", 3, 4, 100},
    {"h.0.ln_1.weight", 4, 0, 200},
    {"h.0.ln_1.bias", 4, 0, 210},
    {"h.0.attn.bias", 3, 3, 1},        /* the causal mask: ignored */
    {"h.0.attn.masked_bias", 1, 0, 1}, /* ignored */
    {"h.0.attn.c_attn.weight", 4, 12, 300},
    {"h.0.attn.c_attn.bias", 12, 0, 400},
    {"h.0.attn.c_proj.weight", 4, 4, 500},
    {"h.0.attn.c_proj.bias", 4, 0, 520},
    {"h.0.ln_2.weight", 4, 0, 600},
    {"h.0.ln_2.bias", 4, 0, 610},
    {"h.0.mlp.c_fc.weight", 4, 16, 700},
    {"h.0.mlp.c_fc.bias", 16, 0, 800},
    {"h.0.mlp.c_proj.weight", 16, 4, 900},
    {"h.0.mlp.c_proj.bias", 4, 0, 1000},
    {"ln_f.weight", 4, 0, 1100},
    {"ln_f.bias", 4, 0, 1110},
};
enum { GPT2_TENSORS = sizeof gpt2_tensors / sizeof *gpt2_tensors };

struct model {
    struct wh_hf_config config;
    struct wh_params params;
    float *weights;
};

static enum wh_status import_from(const char *path, struct model *m, struct wh_text *notes) {
    WH_TRY(wh_hf_read_config(path, &m->config, notes));
    WH_TRY(wh_params_new(&m->config.model, &m->params));
    m->weights = calloc(m->params.buffer_elems, sizeof *m->weights);
    enum wh_status status = wh_hf_import(path, &m->config.model, &m->params, m->weights, notes);
    if (status != WH_OK) free(m->weights), wh_params_free(&m->params);
    return status;
}

static void release(struct model *m) {
    free(m->weights);
    wh_params_free(&m->params);
}

static void must_import(struct model *m) { expect(import_from(folder, m, NULL), WH_OK, ""); }

static void import_refused(const char *text) {
    struct model m;
    expect(import_from(folder, &m, NULL), WH_DATA, text);
}

static float value(const struct model *m, const char *name, size_t row, size_t col) {
    const struct wh_param *q = wh_params_find_name(&m->params, name);
    assert_non_null(q);
    assert_true(row < q->rows && (q->cols ? col < q->cols : col == 0));
    return m->weights[q->offset + row * (q->cols ? q->cols : 1) + col];
}

static void gpt2_is_transposed_and_split(void **state) {
    (void)state;
    struct model m;
    struct wh_text notes = {0};
    put_text("config.json", gpt2_config);
    put_tensors("model.safetensors", gpt2_tensors, GPT2_TENSORS, WH_F32);
    expect(import_from(folder, &m, &notes), WH_OK, "");
    assert_non_null(strstr(notes.data, "the head is tied to the embedding (the family's default)"));
    assert_non_null(strstr(notes.data, "2 tensors that are no weights"));
    wh_text_fini(&notes);
    assert_true(m.config.model.dropout_embed == 0.1f); /* kept for fine-tuning */
    for (size_t in = 0; in < 4; in++)
        for (size_t out = 0; out < 4; out++) { /* the file has [in][q 4, k 4, v 4] */
            assert_true(value(&m, "layer.0.attn.q.weight", out, in) == 300 + 12 * (float)in + (float)out);
            assert_true(value(&m, "layer.0.attn.k.weight", out, in) == 300 + 12 * (float)in + 4 + (float)out);
            assert_true(value(&m, "layer.0.attn.v.weight", out, in) == 300 + 12 * (float)in + 8 + (float)out);
            assert_true(value(&m, "layer.0.attn.o.weight", out, in) == 500 + 4 * (float)in + (float)out);
        }
    for (size_t k = 0; k < 4; k++) assert_true(value(&m, "layer.0.attn.v.bias", k, 0) == 408 + (float)k);
    assert_true(value(&m, "layer.0.mlp.up.weight", 15, 2) == 700 + 2 * 16 + 15);
    assert_true(value(&m, "layer.0.mlp.down.weight", 3, 15) == 900 + 15 * 4 + 3);
    assert_true(value(&m, "embed.token.weight", 4, 3) == 19 && value(&m, "embed.position.weight", 2, 3) == 111);
    assert_true(value(&m, "final.norm.bias", 1, 0) == 1111);
    assert_int_equal(m.params.elems, 5 * 4 + 3 * 4 + (12 * 16 + 13 * 4) + 2 * 4);
    release(&m);
}

/* The same tensors under the names that GPT2LMHeadModel gives, with the tied matrix listed twice (B77). */
static void gpt2_prefix_and_second_copy(void **state) {
    (void)state;
    struct model plain, prefixed;
    struct spec specs[GPT2_TENSORS + 1];
    char names[GPT2_TENSORS][64];
    put_text("config.json", gpt2_config);
    put_tensors("model.safetensors", gpt2_tensors, GPT2_TENSORS, WH_F32);
    must_import(&plain);
    for (int i = 0; i < GPT2_TENSORS; i++) {
        specs[i] = gpt2_tensors[i];
        snprintf(names[i], sizeof names[i], "transformer.%s", specs[i].name);
        specs[i].name = names[i];
    }
    specs[GPT2_TENSORS] = (struct spec){"lm_head.weight", 5, 4, 0};
    put_tensors("model.safetensors", specs, GPT2_TENSORS + 1, WH_F32);
    must_import(&prefixed);
    assert_memory_equal(plain.weights, prefixed.weights, 4 * plain.params.buffer_elems);
    release(&plain), release(&prefixed);
    specs[GPT2_TENSORS].base = 1;
    put_tensors("model.safetensors", specs, GPT2_TENSORS + 1, WH_F32);
    import_refused("lm_head.weight differs from transformer.wte.weight though the model is tied");
}

static void all_faults_at_once(void **state) {
    (void)state;
    struct spec specs[GPT2_TENSORS];
    memcpy(specs, gpt2_tensors, sizeof specs);
    specs[1].rows = 4;
    specs[6].rows = 12, specs[6].cols = 4; /* as a Linear would be stored */
    specs[16].name = "ln_g.weight";
    put_text("config.json", gpt2_config);
    put_tensors("model.safetensors", specs, GPT2_TENSORS, WH_F32);
    import_refused("tensor wpe.weight is [4, 4]; config.json makes it [3, 4]");
    import_refused("tensor h.0.attn.c_attn.weight is [12, 4]; config.json makes it [4, 12]");
    import_refused("tensor transformer.ln_f.weight, which the model needs, is missing");
    import_refused("tensor ln_g.weight has no place in the model");
    assert_int_equal(unlink(at("model.safetensors")), 0);
    import_refused("neither model.safetensors nor model.safetensors.index.json");
    put_text("pytorch_model.bin", "x");
    import_refused("pytorch_model.bin is a pickle");
}

static const struct spec llama_tensors[] = {
    {"model.embed_tokens.weight", 7, 6, 0},
    {"model.layers.0.input_layernorm.weight", 6, 0, 50},
    {"model.layers.0.self_attn.q_proj.weight", 8, 6, 100},
    {"model.layers.0.self_attn.k_proj.weight", 4, 6, 160},
    {"model.layers.0.self_attn.v_proj.weight", 4, 6, 190},
    {"model.layers.0.self_attn.o_proj.weight", 6, 8, 220},
    {"model.layers.0.self_attn.rotary_emb.inv_freq", 2, 0, 0},
    {"model.layers.0.post_attention_layernorm.weight", 6, 0, 280},
    {"model.layers.0.mlp.gate_proj.weight", 5, 6, 300},
    {"model.layers.0.mlp.up_proj.weight", 5, 6, 340},
    {"model.layers.0.mlp.down_proj.weight", 6, 5, 380},
    {"model.norm.weight", 6, 0, 420},
    {"lm_head.weight", 7, 6, 430},
};
enum { LLAMA_TENSORS = sizeof llama_tensors / sizeof *llama_tensors };

static void put_llama_config(const char *more) {
    char text[600];
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"llama\", \"vocab_size\": 7, \"hidden_size\": 6, \"intermediate_size\": 5, \"head_dim\": 4, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1%s}",
        more);
    put_text("config.json", text);
}

static void llama_names(void **state) {
    (void)state;
    struct model m;
    put_llama_config("");
    static const enum wh_dtype dtypes[] = {WH_F32, WH_BF16, WH_F16};
    for (int i = 0; i < 3; i++) {
        put_tensors("model.safetensors", llama_tensors, LLAMA_TENSORS, dtypes[i]);
        must_import(&m);
        float q = 100 + 7 * 6 + 5;
        assert_true(value(&m, "layer.0.attn.q.weight", 7, 5) == (i == 1 ? wh_bf16_to_f32(wh_f32_to_bf16(q)) : q));
        assert_true(value(&m, "layer.0.attn.k.weight", 3, 0) == 178);
        assert_true(value(&m, "layer.0.attn.norm.gain", 2, 0) == 52);
        assert_true(value(&m, "embed.token.weight", 6, 5) == 41);
        if (i == 0)
            assert_true(value(&m, "head.weight", 6, 5) == 430 + 41 && value(&m, "layer.0.mlp.up.weight", 4, 5) == 369);
        release(&m);
    }
}

/* B55 */
static void ties(void **state) {
    (void)state;
    struct model m;
    put_llama_config(", \"tie_word_embeddings\": false");
    put_tensors("model.safetensors", llama_tensors, LLAMA_TENSORS - 1, WH_F32);
    import_refused("tensor lm_head.weight is missing"); /* a */
    put_llama_config(", \"tie_word_embeddings\": true");
    must_import(&m); /* b */
    assert_true(m.config.model.tied);
    assert_null(wh_params_find(&m.params, WH_P_HEAD, -1));
    release(&m);
    put_llama_config("");
    put_tensors("model.safetensors", llama_tensors, LLAMA_TENSORS, WH_F32);
    must_import(&m); /* c */
    assert_false(m.config.model.tied);
    assert_true(value(&m, "head.weight", 0, 0) == 430);
    release(&m);
}

/* B56 */
static void parts(void **state) {
    (void)state;
    struct model whole, m;
    put_llama_config("");
    put_tensors("model.safetensors", llama_tensors, LLAMA_TENSORS, WH_F32);
    must_import(&whole);
    assert_int_equal(unlink(at("model.safetensors")), 0);

    char index[4000] = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {", *end = index + strlen(index);
    const int first[] = {0, 4, 8, LLAMA_TENSORS};
    for (int p = 0; p < 3; p++) {
        char file[60];
        snprintf(file, sizeof file, "model-0000%d-of-00003.safetensors", p + 1);
        put_tensors(file, llama_tensors + first[p], (size_t)(first[p + 1] - first[p]), WH_F32);
        for (int i = first[p]; i < first[p + 1]; i++)
            end += sprintf(end, "%s\"%s\": \"%s\"", i ? ",\n" : "", llama_tensors[i].name, file);
    }
    sprintf(end, "}}");
    put_text("model.safetensors.index.json", index);
    must_import(&m);
    assert_memory_equal(m.weights, whole.weights, 4 * whole.params.buffer_elems);
    release(&m), release(&whole);

    assert_int_equal(rename(at("model-00002-of-00003.safetensors"), at("x")), 0);
    import_refused("/model-00002-of-00003.safetensors, which is not there");
    assert_int_equal(rename(at("x"), at("model-00002-of-00003.safetensors")), 0);
    char *line = strstr(index, "\"model.layers.0.self_attn.v_proj.weight\"");
    memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n')));
    put_text("model.safetensors.index.json", index);
    import_refused("tensor model.layers.0.self_attn.v_proj.weight, which the model needs, is in ");
    put_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\", \"model.norm.weight\": 3}}");
    import_refused("\"../x\" is not the name of a file in this folder");
    put_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"model-00001-of-00003.safetensors\"}}");
    import_refused("has tensor a, which it has not");
    put_text("model.safetensors.index.json", "{\"weight_map\": [}");
    import_refused("not JSON");
}

static uint32_t xorshift(uint32_t *s) {
    *s ^= *s << 13, *s ^= *s >> 17, *s ^= *s << 5;
    return *s;
}

/* Bits that a model might hold in `dtype`: any finite value. */
static void random_weights(struct model *m, enum wh_dtype dtype) {
    uint32_t seed = 2463534242u;
    for (size_t i = 0; i < m->params.count; i++)
        for (size_t k = 0; k < m->params.list[i].elems; k++) {
            float x = (float)(int32_t)xorshift(&seed) * 0x1p-31f;
            if (dtype == WH_BF16) x = wh_bf16_to_f32(wh_f32_to_bf16(x));
            if (dtype == WH_F16) x = wh_f16_to_f32(wh_f32_to_f16(x * 0x1p-12f)); /* subnormal ones too */
            m->weights[m->params.list[i].offset + k] = x;
        }
}

static void make(struct model *m, const struct wh_model *model) {
    m->config = (struct wh_hf_config){.model = *model};
    expect(wh_params_new(model, &m->params), WH_OK, "");
    m->weights = calloc(m->params.buffer_elems, sizeof *m->weights);
}

static struct wh_model small(enum wh_family f) {
    struct wh_model m;
    wh_model_defaults(f, &m);
    m.V = 65, m.C = 72, m.L = 2, m.H = 4, m.Hkv = f == WH_GPT2 ? 4 : 2, m.D = 18, m.F = f == WH_GPT2 ? 288 : 67,
    m.max_position = 9;
    if (f == WH_GPT2) m.dropout_embed = 0.1f;
    return m;
}

static enum wh_status export_to(const char *inside, struct model *m, enum wh_dtype dtype, uint64_t limit) {
    m->config.dtype = dtype;
    return wh_hf_export(at(inside), &m->config, &m->params, m->weights, limit);
}

/* import(export(w)) = w, and export(import(x)) = x to the byte, whole or in parts. */
static void export_round_trips(void **state) {
    (void)state;
    static const enum wh_dtype dtypes[] = {WH_F32, WH_BF16, WH_F16};
    for (int f = 0; f < WH_FAMILY_COUNT; f++)
        for (int d = 0; d < 3; d++)
            for (uint64_t limit = 0; limit <= 40000; limit += 20000) {
                struct model m, back;
                struct wh_model model = small((enum wh_family)f);
                char command[500], first[64], second[64];
                make(&m, &model);
                random_weights(&m, dtypes[d]);
                snprintf(first, sizeof first, "a-%d-%d-%d", f, d, (int)limit);
                snprintf(second, sizeof second, "b-%d-%d-%d", f, d, (int)limit);
                expect(export_to(first, &m, dtypes[d], limit), WH_OK, "");
                expect(import_from(at(first), &back, NULL), WH_OK, "");
                assert_memory_equal(back.weights, m.weights, 4 * m.params.buffer_elems);
                assert_int_equal(back.config.dtype, dtypes[d]);
                expect(export_to(second, &back, dtypes[d], limit), WH_OK, "");
                snprintf(command, sizeof command, "diff -r %s %s && test %s %s/model.safetensors.index.json", at(first),
                         at(second), limit ? "-f" : "! -e", at(first));
                assert_int_equal(system(command), 0);
                release(&m), release(&back);
            }
}

static void parts_keep_their_limit(void **state) {
    (void)state;
    struct model m;
    struct wh_model model = small(WH_LLAMA);
    char **names;
    size_t count, files = 0;
    make(&m, &model);
    expect(export_to("out", &m, WH_BF16, 20000), WH_OK, "");
    assert_int_equal(wh_dir_list(at("out"), &names, &count), WH_OK);
    for (size_t i = 0; i < count; i++) {
        char inside[100];
        struct wh_safetensors_file f;
        if (!strstr(names[i], ".safetensors") || strstr(names[i], "index")) continue;
        snprintf(inside, sizeof inside, "out/%s", names[i]);
        expect(wh_safetensors_open(at(inside), &f), WH_OK, "");
        assert_true(f.header.data_bytes <= 20000);
        assert_string_equal(wh_safetensors_metadata(&f.header, "format"), "pt");
        wh_safetensors_close(&f);
        files++;
    }
    assert_true(files > 3);
    wh_dir_list_free(names, count);
    expect(export_to("out", &m, WH_BF16, 0), WH_CONFIG, "is not empty");
    release(&m);
}

/* B15: no row is added whatever the vocabulary, and what was exported can be read. */
static void vocabulary_is_not_padded(void **state) {
    (void)state;
    struct model m, back;
    struct wh_model model = small(WH_LLAMA);
    struct wh_safetensors_file f;
    struct wh_hf_config c;
    model.V = 65535, model.C = 8, model.H = 4, model.Hkv = 4, model.D = 2;
    make(&m, &model);
    random_weights(&m, WH_F32);
    expect(export_to("out", &m, WH_F32, 0), WH_OK, "");
    expect(wh_safetensors_open(at("out/model.safetensors"), &f), WH_OK, "");
    assert_int_equal(wh_safetensors_find(&f.header, "model.embed_tokens.weight")->shape[0], 65535);
    assert_int_equal(wh_safetensors_find(&f.header, "lm_head.weight")->shape[0], 65535);
    wh_safetensors_close(&f);
    expect(wh_hf_read_config(at("out"), &c, NULL), WH_OK, "");
    assert_int_equal(c.model.V, 65535);
    expect(import_from(at("out"), &back, NULL), WH_OK, "");
    assert_memory_equal(back.weights, m.weights, 4 * m.params.buffer_elems);
    release(&m), release(&back);
}

static void rounding_and_range(void **state) {
    (void)state;
    struct model m, back;
    struct wh_model model = small(WH_QWEN2);
    make(&m, &model);
    const struct wh_param *q = wh_params_find(&m.params, WH_P_ATTN_Q_BIAS, 1);
    m.weights[q->offset] = 1.00390625f + 0x1p-20f; /* rounds up to 1 + 2^-7 in bf16 */
    m.weights[q->offset + 1] = 65519.0f;           /* the last that rounds down in half */
    expect(export_to("bf16", &m, WH_BF16, 0), WH_OK, "");
    expect(import_from(at("bf16"), &back, NULL), WH_OK, "");
    assert_true(back.weights[q->offset] == 1.0078125f);
    release(&back);
    expect(export_to("f16", &m, WH_F16, 0), WH_OK, "");
    expect(import_from(at("f16"), &back, NULL), WH_OK, "");
    assert_true(back.weights[q->offset + 1] == 65504.0f);
    release(&back);
    m.weights[q->offset + 1] = -65520.0f;
    expect(export_to("no", &m, WH_F16, 0), WH_UNSUPPORTED,
           "tensor model.layers.1.self_attn.q_proj.bias: -65520 does not fit F16");
    assert_false(wh_file_exists(at("no")));
    release(&m);
}

static void token_ids(void **state) {
    (void)state;
    struct model m;
    struct wh_model model = small(WH_LLAMA);
    char *text;
    size_t bytes;
    make(&m, &model);
    expect(export_to("unknown", &m, WH_F32, 0), WH_OK, "");
    m.config.bos = (struct wh_hf_token){true, 0}, m.config.eos = (struct wh_hf_token){true, 64};
    expect(export_to("known", &m, WH_F32, 0), WH_OK, "");
    expect(wh_file_read(at("unknown/config.json"), 10000, &text, &bytes), WH_OK, "");
    assert_non_null(strstr(text, "\"bos_token_id\": null,\n  \"eos_token_id\": null,\n"));
    free(text);
    expect(wh_file_read(at("known/config.json"), 10000, &text, &bytes), WH_OK, "");
    assert_non_null(strstr(text, "\"bos_token_id\": 0,\n  \"eos_token_id\": 64,\n"));
    free(text);
    release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(gpt2_is_transposed_and_split),
        T(gpt2_prefix_and_second_copy),
        T(all_faults_at_once),
        T(llama_names),
        T(ties),
        T(parts),
        T(export_round_trips),
        T(parts_keep_their_limit),
        T(vocabulary_is_not_padded),
        T(rounding_and_range),
        T(token_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
