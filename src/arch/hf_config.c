#include "arch/hf_config.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "arch/model_fields.h"

/* Limits keep products of two sizes within 64 bits (and heads * head_dim within 32). */
enum { SIZE_LIMIT = 1 << 24, COUNT_LIMIT = 65535, POSITION_LIMIT = INT32_MAX };

struct reader {
    const json_t *json;
    json_t *used; /* keys that were asked for */
    const char *text, *file;
    size_t bytes;
    struct wh_faults faults;
};

/* The line on which `key` first appears in quotes; the JSON library doesn't keep positions. */
static int line_of(const struct reader *r, const char *key) {
    size_t n = strlen(key);
    int line = 1;
    for (size_t i = 0; i + n + 2 <= r->bytes; i++) {
        if (r->text[i] == '\n') line++;
        if (r->text[i] == '"' && memcmp(r->text + i + 1, key, n) == 0 && r->text[i + 1 + n] == '"') return line;
    }
    return 0;
}

#define FAULT(r, key, ...) wh_faults_add(&(r)->faults, (r)->file, line_of((r), (key)), __VA_ARGS__)

/* null is the same as absent (case B53). */
static const json_t *get(struct reader *r, const char *key) {
    json_object_set_new(r->used, key, json_true());
    const json_t *value = json_object_get(r->json, key);
    return json_is_null(value) ? NULL : value;
}

/* `fallback` NULL: the key is required. */
static void read_u32(struct reader *r, const char *key, uint32_t limit, const uint32_t *fallback, uint32_t *out) {
    const json_t *value = get(r, key);
    if (!value && fallback)
        *out = *fallback;
    else if (!value)
        FAULT(r, key, "%s is missing", key);
    else if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > (json_int_t)limit)
        FAULT(r, key, "%s must be a whole number from 1 to %u", key, limit);
    else
        *out = (uint32_t)json_integer_value(value);
}

/* Minus zero becomes zero: JSON writers and readers don't agree on it. */
static void read_real(struct reader *r, const char *key, double fallback, double *out) {
    const json_t *value = get(r, key);
    *out = fallback;
    if (json_is_number(value))
        *out = json_number_value(value) + 0.0;
    else if (value)
        FAULT(r, key, "%s must be a number", key);
}

static void read_f32(struct reader *r, const char *key, double fallback, float *out) {
    double value;
    read_real(r, key, fallback, &value);
    if (fabs(value) > FLT_MAX)
        FAULT(r, key, "%s: %g exceeds fp32", key, value);
    else
        *out = (float)value;
}

static bool read_bool(struct reader *r, const char *key, bool fallback) {
    const json_t *value = get(r, key);
    if (value && !json_is_boolean(value)) FAULT(r, key, "%s must be true or false", key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

static const char *read_string(struct reader *r, const char *key) {
    const json_t *value = get(r, key);
    if (value && !json_is_string(value)) FAULT(r, key, "%s must be a string", key);
    return json_string_value(value);
}

static bool is_set(const json_t *value) {
    return value && !json_is_false(value) && !(json_is_integer(value) && json_integer_value(value) == 0);
}

/* Switches that change what is computed: refused unless they are off. */
static void refuse_switches(struct reader *r) {
    static const struct {
        const char *key, *why;
    } on[] = {{"quantization_config", "quantized weights are not read"},
              {"num_local_experts", "mixtures of experts are not computed"},
              {"num_experts", "mixtures of experts are not computed"},
              {"n_routed_experts", "mixtures of experts are not computed"},
              {"kv_lora_rank", "latent attention is not computed"},
              {"mlp_bias", "gated feed-forward layers have no biases here"},
              {"attn_logit_softcapping", "soft-capped logits are not computed"},
              {"final_logit_softcapping", "soft-capped logits are not computed"},
              {"scale_attn_by_inverse_layer_idx", "scores are always scaled by 1/sqrt(head_dim)"},
              {"add_cross_attention", "only decoders without cross-attention are computed"},
              {"is_encoder_decoder", "only decoders are computed"}};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (is_set(get(r, on[i].key))) FAULT(r, on[i].key, "%s: %s", on[i].key, on[i].why);
    if (!read_bool(r, "scale_attn_weights", true))
        FAULT(r, "scale_attn_weights", "scale_attn_weights false: scores are always scaled by 1/sqrt(head_dim)");
    double partial;
    read_real(r, "partial_rotary_factor", 1.0, &partial);
    if (partial != 1.0) FAULT(r, "partial_rotary_factor", "partial_rotary_factor %g: only 1 is computed", partial);
}

/* A window counts only if it is switched on, shorter than the longest sequence and some layer uses it. */
static void refuse_sliding_window(struct reader *r, const struct wh_model *m) {
    uint32_t none = UINT32_MAX, window = 0, from_layer = 0, zero = 0;
    bool on = read_bool(r, "use_sliding_window", m->family != WH_QWEN2);
    read_u32(r, "sliding_window", UINT32_MAX, &none, &window);
    const json_t *max_layers = get(r, "max_window_layers");
    if (json_is_integer(max_layers) && json_integer_value(max_layers) == 0)
        from_layer = 0;
    else
        read_u32(r, "max_window_layers", COUNT_LIMIT, &zero, &from_layer);
    if (on && window < m->max_position && from_layer < m->L)
        FAULT(r, "sliding_window", "sliding_window %u is in use; only full attention is computed", window);
    const json_t *types = get(r, "layer_types"), *type;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)types, i, type) {
        const char *name = json_string_value(type);
        if (name && strcmp(name, "full_attention") == 0) continue;
        FAULT(r, "layer_types", "layer_types[%zu] is %s; only full_attention is computed", i, name ? name : "?");
        break;
    }
}

static void expect_activation(struct reader *r, const char *key, const char *fallback, const char *const *legal,
                              size_t count) {
    const char *name = read_string(r, key);
    if (!name) name = fallback;
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, legal[i]) == 0) return;
    FAULT(r, key, "%s \"%s\" is not computed; legal here: %s%s%s", key, name, legal[0], count > 1 ? ", " : "",
          count > 1 ? legal[1] : "");
}

static void read_dtype(struct reader *r, struct wh_hf_config *out) {
    static const struct {
        const char *name;
        enum wh_dtype dtype;
    } known[] = {{"float32", WH_F32}, {"bfloat16", WH_BF16}, {"float16", WH_F16}};
    const char *newer = read_string(r, "dtype"), *older = read_string(r, "torch_dtype"), *name = older ? older : newer;
    out->dtype = WH_F32;
    if (!name) return;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        out->dtype = known[i].dtype;
        return;
    }
    const char *key = older ? "torch_dtype" : "dtype";
    FAULT(r, key, "%s \"%s\" is not read; legal: float32, bfloat16, float16", key, name);
}

/* A factor inside rope_scaling, required and above 0. */
static double read_factor(struct reader *r, const char *place, const json_t *scaling, const char *key) {
    const json_t *value = json_object_get(scaling, key);
    if (json_number_value(value) > 0.0) return json_number_value(value);
    FAULT(r, place, "%s.%s must be a number above 0", place, key);
    return 1.0;
}

static void read_llama3(struct reader *r, const char *place, const json_t *scaling, struct wh_rope *rope) {
    rope->kind = WH_ROPE_LLAMA3;
    rope->factor = read_factor(r, place, scaling, "factor");
    rope->low_freq_factor = read_factor(r, place, scaling, "low_freq_factor");
    rope->high_freq_factor = read_factor(r, place, scaling, "high_freq_factor");
    const json_t *original = json_object_get(scaling, "original_max_position_embeddings");
    if (!json_is_integer(original) || json_integer_value(original) < 1 || json_integer_value(original) > POSITION_LIMIT)
        FAULT(r, place, "%s.original_max_position_embeddings must be a whole number from 1", place);
    else
        rope->original_max_position = (uint32_t)json_integer_value(original);
    if (rope->high_freq_factor <= rope->low_freq_factor)
        FAULT(r, place, "%s: high_freq_factor %g must be above low_freq_factor %g", place, rope->high_freq_factor,
              rope->low_freq_factor);
}

static void check_scaling_keys(struct reader *r, const char *place, const json_t *scaling) {
    static const char *const known[] = {
        "rope_type", "type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
        "rope_theta"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)scaling, key, value) {
        bool fine = json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) fine |= strcmp(key, known[i]) == 0;
        if (!fine) FAULT(r, key, "%s.%s: unknown key", place, key);
    }
}

/* `place` is rope_scaling, or rope_parameters in newer files (which also holds rope_theta). */
static void read_scaling(struct reader *r, const char *place, struct wh_rope *rope) {
    const json_t *scaling = get(r, place);
    if (!scaling) return;
    const char *newer = json_string_value(json_object_get(scaling, "rope_type"));
    const char *older = json_string_value(json_object_get(scaling, "type")), *type = newer ? newer : older;
    const json_t *theta = json_object_get(scaling, "rope_theta");
    if (!type)
        FAULT(r, place, "%s names no rope_type", place);
    else if (newer && older && strcmp(newer, older) != 0)
        FAULT(r, place, "%s: rope_type \"%s\" and type \"%s\" disagree", place, newer, older);
    else if (strcmp(type, "llama3") == 0)
        read_llama3(r, place, scaling, rope);
    else if (strcmp(type, "linear") == 0)
        rope->kind = WH_ROPE_LINEAR, rope->factor = read_factor(r, place, scaling, "factor");
    else if (strcmp(type, "default") != 0)
        FAULT(r, place, "%s: rope_type \"%s\" is not computed; legal: default, linear, llama3", place, type);
    if (theta && !json_is_null(theta)) rope->theta = read_factor(r, place, scaling, "rope_theta");
    if (type) check_scaling_keys(r, place, scaling);
}

static void read_gpt2(struct reader *r, struct wh_model *m) {
    static const char *const legal[] = {"gelu_new", "gelu_pytorch_tanh"};
    uint32_t positions = 1024;
    read_u32(r, "n_embd", SIZE_LIMIT, NULL, &m->C);
    read_u32(r, "n_layer", COUNT_LIMIT, NULL, &m->L);
    read_u32(r, "n_head", COUNT_LIMIT, NULL, &m->H);
    read_u32(r, "n_positions", POSITION_LIMIT, &positions, &m->max_position);
    uint32_t quadruple = 4 * m->C;
    read_u32(r, "n_inner", SIZE_LIMIT, &quadruple, &m->F);
    m->Hkv = m->H;
    if (m->H && m->C % m->H) FAULT(r, "n_head", "n_head %u does not divide n_embd %u", m->H, m->C);
    m->D = m->H ? m->C / m->H : 0;
    read_f32(r, "layer_norm_epsilon", 1e-5, &m->norm_eps);
    read_f32(r, "embd_pdrop", 0.1, &m->dropout_embed);
    read_f32(r, "attn_pdrop", 0.1, &m->dropout_attention);
    read_f32(r, "resid_pdrop", 0.1, &m->dropout_residual);
    expect_activation(r, "activation_function", legal[0], legal, 2);
}

static void read_llama_or_qwen2(struct reader *r, struct wh_model *m) {
    static const char *const legal[] = {"silu"};
    uint32_t positions = m->family == WH_QWEN2 ? 32768 : 2048;
    read_u32(r, "hidden_size", SIZE_LIMIT, NULL, &m->C);
    read_u32(r, "intermediate_size", SIZE_LIMIT, NULL, &m->F);
    read_u32(r, "num_hidden_layers", COUNT_LIMIT, NULL, &m->L);
    read_u32(r, "num_attention_heads", COUNT_LIMIT, NULL, &m->H);
    read_u32(r, "num_key_value_heads", COUNT_LIMIT, &m->H, &m->Hkv);
    read_u32(r, "max_position_embeddings", POSITION_LIMIT, &positions, &m->max_position);
    uint32_t head = m->H ? m->C / m->H : 0;
    if (!get(r, "head_dim") && m->H && m->C % m->H)
        FAULT(r, "num_attention_heads",
              "num_attention_heads %u does not divide hidden_size %u and head_dim is not given", m->H, m->C);
    read_u32(r, "head_dim", COUNT_LIMIT, &head, &m->D);
    read_f32(r, "rms_norm_eps", 1e-6, &m->norm_eps);
    read_real(r, "rope_theta", 10000.0, &m->rope.theta);
    read_scaling(r, "rope_scaling", &m->rope);
    read_scaling(r, "rope_parameters", &m->rope);
    read_f32(r, "attention_dropout", 0.0, &m->dropout_attention);
    if (read_bool(r, "attention_bias", m->qkv_bias) != m->qkv_bias)
        FAULT(r, "attention_bias", "attention_bias %s is not computed for model_type %s",
              m->qkv_bias ? "false" : "true", wh_family_name(m->family));
    expect_activation(r, "hidden_act", legal[0], legal, 1);
}

/* Training hints, bookkeeping and generation settings: no effect on what the model computes. */
static const char *const harmless[] = {"_name_or_path",
                                       "architectures",
                                       "attn_implementation",
                                       "auto_map",
                                       "bos_token_id",
                                       "decoder_start_token_id",
                                       "eos_token_id",
                                       "gradient_checkpointing",
                                       "id2label",
                                       "is_decoder",
                                       "label2id",
                                       "n_ctx",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_past",
                                       "pad_token_id",
                                       "pretraining_tp",
                                       "reorder_and_upcast_attn",
                                       "return_dict",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "task_specific_params",
                                       "transformers_version",
                                       "unk_token_id",
                                       "use_cache"};

static void note_unknown_keys(const struct reader *r, struct wh_text *notes) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->json, key, value) {
        bool known = json_is_null(value) || json_object_get(r->used, key);
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) known |= strcmp(key, harmless[i]) == 0;
        if (!known) wh_text_add(notes, "%s:%d: key \"%s\" has no meaning here\n", r->file, line_of(r, key), key);
    }
}

static bool read_f32_or_bf16(const char *name, enum wh_dtype *out) {
    const bool half = name && strcmp(name, wh_dtype_name(WH_BF16)) == 0;
    *out = half ? WH_BF16 : WH_F32;
    return half || (name && strcmp(name, wh_dtype_name(WH_F32)) == 0);
}

/* The "wanhe" object that checkpoints have: {"version": 1, "compute": "BF16", "grain": {...}, "model": {...}}. */
static void read_ours(struct reader *r, const json_t *ours, struct wh_hf_config *out) {
    const char *compute = json_string_value(json_object_get(ours, "compute"));
    const json_t *grain = json_object_get(ours, "grain"), *wire = json_object_get(grain, "wire");
    const char *reduce = json_string_value(json_object_get(grain, "reduce"));
    static const char *const keys[] = {"tensor", "data", "sequence"};
    uint32_t *const parts[] = {&out->grain.tensor, &out->grain.data, &out->grain.sequence};
    out->ours = true;
    if (json_integer_value(json_object_get(ours, "version")) != 1) FAULT(r, "wanhe", "wanhe.version must be 1");
    if (!read_f32_or_bf16(compute, &out->compute)) FAULT(r, "wanhe", "wanhe.compute must be F32 or BF16");
    if (wire && !read_f32_or_bf16(json_string_value(wire), &out->grain.wire)) /* absent: before there was a choice */
        FAULT(r, "grain", "wanhe.grain.wire must be F32 or BF16");
    out->grain.fast = reduce && strcmp(reduce, "fast") == 0;
    if (json_object_get(grain, "reduce") && !out->grain.fast)
        FAULT(r, "grain", "wanhe.grain.reduce must be fast, or absent");
    for (int i = 0; i < 3; i++) {
        json_int_t part = json_integer_value(json_object_get(grain, keys[i]));
        if (part < 1 || part > POSITION_LIMIT)
            FAULT(r, "grain", "wanhe.grain.%s must be a whole number from 1", keys[i]);
        else
            *parts[i] = (uint32_t)part;
    }
    wh_model_fields_read(json_object_get(ours, "model"), r->file, &out->model, &r->faults);
    const struct wh_model *m = &out->model;
    if (m->V > SIZE_LIMIT || m->C > SIZE_LIMIT || m->F > SIZE_LIMIT || m->L > COUNT_LIMIT || m->H > COUNT_LIMIT ||
        m->Hkv > COUNT_LIMIT || m->D > COUNT_LIMIT || m->max_position > POSITION_LIMIT)
        FAULT(r, "model", "wanhe.model: a size is beyond what is computed here");
}

static void read_family(struct reader *r, struct wh_hf_config *out) {
    const char *type = read_string(r, "model_type");
    for (int f = 0; type && f < WH_FAMILY_COUNT; f++) {
        if (strcmp(type, wh_family_name((enum wh_family)f)) != 0) continue;
        struct wh_model *m = &out->model;
        wh_model_defaults((enum wh_family)f, m);
        read_u32(r, "vocab_size", SIZE_LIMIT, NULL, &m->V);
        if (m->family == WH_GPT2)
            read_gpt2(r, m);
        else
            read_llama_or_qwen2(r, m);
        read_f32(r, "initializer_range", 0.02, &m->init_std);
        out->tied_stated = get(r, "tie_word_embeddings") != NULL;
        m->tied = read_bool(r, "tie_word_embeddings", m->tied);
        refuse_switches(r);
        refuse_sliding_window(r, m);
        return;
    }
    FAULT(r, "model_type", "model_type %s%s%s is not supported; legal: gpt2, llama, qwen2", type ? "\"" : "",
          type ? type : "(missing)", type ? "\"" : "");
}

static enum wh_status read_config(struct reader *r, struct wh_hf_config *out, struct wh_text *notes) {
    struct wh_hf_config config = {0};
    const json_t *ours = get(r, "wanhe");
    read_dtype(r, &config);
    if (ours)
        read_ours(r, ours, &config);
    else
        read_family(r, &config);
    if (r->faults.count == 0) wh_model_check(&config.model, &r->faults);
    if (r->faults.count == 0 && !ours && notes) {
        wh_text_add(notes, "%s: the head is %s (%s)\n", r->file,
                    config.model.tied ? "tied to the embedding" : "a matrix of its own",
                    config.tied_stated ? "tie_word_embeddings" : "the family's default");
        note_unknown_keys(r, notes);
    }
    if (r->faults.count == 0) *out = config;
    return wh_faults_status(&r->faults, WH_CONFIG);
}

enum wh_status wh_hf_config_parse(const char *text, size_t bytes, const char *file, struct wh_hf_config *out,
                                  struct wh_text *notes) {
    json_error_t error;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) return WH_FAIL(WH_CONFIG, "%s:%d: not JSON: %s", file, error.line, error.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return WH_FAIL(WH_CONFIG, "%s: not a JSON object", file);
    }
    struct reader r = {.json = json, .used = json_object(), .text = text, .bytes = bytes, .file = file};
    enum wh_status status = read_config(&r, out, notes);
    json_decref(r.used);
    json_decref(json);
    return status;
}
