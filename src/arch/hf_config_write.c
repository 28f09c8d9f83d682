#include <string.h>

#include "arch/hf_config.h"
#include "arch/model_fields.h"

static const char *torch_name(enum wh_dtype dtype) {
    return dtype == WH_BF16 ? "bfloat16" : dtype == WH_F16 ? "float16" : "float32";
}

static void add_u32(struct wh_text *t, const char *key, uint32_t value) {
    wh_text_add(t, "  \"%s\": %u,\n", key, value);
}

static void add_real(struct wh_text *t, const char *key, float value) {
    wh_text_add(t, "  \"%s\": ", key);
    wh_text_add_f32(t, value);
    wh_text_add(t, ",\n");
}

static void add_gpt2(struct wh_text *t, const struct wh_model *m) {
    wh_text_add(t, "  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n");
    wh_text_add(t, "  \"activation_function\": \"gelu_new\",\n");
    add_u32(t, "vocab_size", m->V);
    add_u32(t, "n_positions", m->max_position);
    add_u32(t, "n_embd", m->C);
    add_u32(t, "n_layer", m->L);
    add_u32(t, "n_head", m->H);
    if (m->F == 4 * m->C)
        wh_text_add(t, "  \"n_inner\": null,\n");
    else
        add_u32(t, "n_inner", m->F);
    add_real(t, "layer_norm_epsilon", m->norm_eps);
    add_real(t, "embd_pdrop", m->dropout_embed);
    add_real(t, "attn_pdrop", m->dropout_attention);
    add_real(t, "resid_pdrop", m->dropout_residual);
}

static void add_scaling(struct wh_text *t, const struct wh_rope *rope) {
    wh_text_add(t, "  \"rope_theta\": ");
    wh_text_add_f64(t, rope->theta);
    wh_text_add(t, ",\n  \"rope_scaling\": ");
    if (rope->kind == WH_ROPE_PLAIN) {
        wh_text_add(t, "null,\n");
        return;
    }
    wh_text_add(t, "{\"rope_type\": \"%s\", \"factor\": ", wh_rope_kind_names[rope->kind]);
    wh_text_add_f64(t, rope->factor);
    if (rope->kind == WH_ROPE_LLAMA3) {
        wh_text_add(t, ", \"low_freq_factor\": ");
        wh_text_add_f64(t, rope->low_freq_factor);
        wh_text_add(t, ", \"high_freq_factor\": ");
        wh_text_add_f64(t, rope->high_freq_factor);
        wh_text_add(t, ", \"original_max_position_embeddings\": %u", rope->original_max_position);
    }
    wh_text_add(t, "},\n");
}

static void add_llama_or_qwen2(struct wh_text *t, const struct wh_model *m) {
    bool qwen2 = m->family == WH_QWEN2;
    wh_text_add(t, "  \"architectures\": [\"%sForCausalLM\"],\n  \"model_type\": \"%s\",\n", qwen2 ? "Qwen2" : "Llama",
                wh_family_name(m->family));
    wh_text_add(t, "  \"hidden_act\": \"silu\",\n");
    add_u32(t, "vocab_size", m->V);
    add_u32(t, "max_position_embeddings", m->max_position);
    add_u32(t, "hidden_size", m->C);
    add_u32(t, "intermediate_size", m->F);
    add_u32(t, "num_hidden_layers", m->L);
    add_u32(t, "num_attention_heads", m->H);
    add_u32(t, "num_key_value_heads", m->Hkv);
    add_u32(t, "head_dim", m->D);
    add_real(t, "rms_norm_eps", m->norm_eps);
    add_scaling(t, &m->rope);
    if (qwen2)
        wh_text_add(t, "  \"use_sliding_window\": false,\n");
    else
        wh_text_add(t, "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n");
    add_real(t, "attention_dropout", m->dropout_attention);
}

static void add_token(struct wh_text *t, const char *key, const struct wh_hf_token *token) {
    if (token->known)
        add_u32(t, key, token->id);
    else
        wh_text_add(t, "  \"%s\": null,\n", key);
}

static void add_common(struct wh_text *t, const struct wh_hf_config *c) {
    add_real(t, "initializer_range", c->model.init_std);
    wh_text_add(t, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"%s\"", c->model.tied ? "true" : "false",
                torch_name(c->dtype));
}

/* What the family's own keys say, read back: is it this model? */
static enum wh_status check_expressible(const struct wh_hf_config *config, const struct wh_text *keys) {
    struct wh_hf_config back;
    struct wh_text text = {0}, differences = {0};
    wh_text_add(&text, "{\n%s\n}\n", keys->data);
    enum wh_status status = wh_hf_config_parse(text.data, text.bytes, "config.json", &back, NULL);
    if (status == WH_OK && !wh_model_fields_equal(&config->model, &back.model, &differences))
        status = WH_FAIL(WH_UNSUPPORTED, "a config.json of model_type %s can't express this model: %s (here / there)",
                         wh_family_name(config->model.family), differences.data);
    wh_text_fini(&text);
    wh_text_fini(&differences);
    return status;
}

static void add_ours(struct wh_text *t, const struct wh_hf_config *c) {
    wh_text_add(t, ",\n  \"wanhe\": {\n    \"version\": 1,\n    \"compute\": \"%s\",\n", wh_dtype_name(c->compute));
    wh_text_add(t,
                "    \"grain\": {\"tensor\": %u, \"data\": %u, \"sequence\": %u, \"wire\": \"%s\"%s},\n    \"model\": ",
                c->grain.tensor, c->grain.data, c->grain.sequence, wh_dtype_name(c->grain.wire),
                c->grain.fast ? ", \"reduce\": \"fast\"" : "");
    wh_model_fields_write(&c->model, t);
    wh_text_add(t, "\n  }");
}

enum wh_status wh_hf_config_write(const struct wh_hf_config *config, bool ours, struct wh_text *out) {
    struct wh_text keys = {0};
    if (config->model.family == WH_GPT2)
        add_gpt2(&keys, &config->model);
    else
        add_llama_or_qwen2(&keys, &config->model);
    if (!ours) {
        add_token(&keys, "bos_token_id", &config->bos);
        add_token(&keys, "eos_token_id", &config->eos);
    }
    add_common(&keys, config);
    enum wh_status status = check_expressible(config, &keys);
    if (status != WH_OK && ours) {
        wh_text_clear(&keys);
        wh_text_add(&keys, "  \"model_type\": \"wanhe\",\n  \"torch_dtype\": \"%s\"", torch_name(config->dtype));
        status = WH_OK;
    }
    if (status == WH_OK) {
        if (ours) add_ours(&keys, config);
        wh_text_add(out, "{\n%s\n}\n", keys.data);
    }
    wh_text_fini(&keys);
    return status;
}
