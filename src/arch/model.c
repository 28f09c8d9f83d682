#include "arch/model.h"
#include "base/elementary.h"

#include <string.h>

static const char *const family_names[WH_FAMILY_COUNT] = {"gpt2", "llama", "qwen2"};

const char *wh_family_name(enum wh_family f) { return f < WH_FAMILY_COUNT ? family_names[f] : "?"; }

void wh_model_defaults(enum wh_family f, struct wh_model *out) {
    *out = (struct wh_model){.family = f, .init_std = 0.02f, .norm_eps = 1e-5f, .rope = {.theta = 10000.0}};
    if (f == WH_GPT2) {
        out->layer_norm = out->learned_positions = out->qkv_bias = out->linear_bias = out->tied = true;
    } else {
        out->gated = true;
        out->qkv_bias = f == WH_QWEN2;
        if (f == WH_QWEN2) out->norm_eps = 1e-6f;
    }
}

static void check_positive(uint32_t n, const char *what, struct wh_faults *faults) {
    if (n == 0) wh_faults_add(faults, NULL, 0, "model: %s must be at least 1", what);
}

/* Rows of activations are counted in 32 bits, with up to three such widths side by side. */
static void check_width(uint64_t n, const char *what, struct wh_faults *faults) {
    const uint64_t most = 1u << 24;
    if (n > most)
        wh_faults_add(faults, NULL, 0, "model: %s %llu is more than %llu", what, (unsigned long long)n,
                      (unsigned long long)most);
}

static void check_dropout(float p, const char *what, struct wh_faults *faults) {
    if (!(p >= 0.0f && p < 1.0f)) wh_faults_add(faults, NULL, 0, "model: %s %g is not in [0, 1)", what, (double)p);
}

void wh_model_check(const struct wh_model *m, struct wh_faults *faults) {
    check_positive(m->V, "vocab_size", faults);
    check_positive(m->C, "hidden_size", faults);
    check_positive(m->L, "num_hidden_layers", faults);
    check_positive(m->H, "num_attention_heads", faults);
    check_positive(m->Hkv, "num_key_value_heads", faults);
    check_positive(m->F, "intermediate_size", faults);
    check_positive(m->max_position, "max_position_embeddings", faults);
    if (m->D == 0)
        wh_faults_add(faults, NULL, 0, "model: head_dim must be at least 1 (hidden_size %u / num_attention_heads %u)",
                      m->C, m->H);
    if (m->Hkv && m->H % m->Hkv)
        wh_faults_add(faults, NULL, 0, "model: num_attention_heads %u is not a multiple of num_key_value_heads %u",
                      m->H, m->Hkv);
    if (!m->learned_positions && m->D % 2)
        wh_faults_add(faults, NULL, 0, "model: head_dim %u must be even for rotary embedding", m->D);
    check_width((uint64_t)m->H * m->D, "attention width (num_attention_heads * head_dim)", faults);
    check_width(m->C, "hidden_size", faults);
    check_width(m->F, "intermediate_size", faults);
    if (m->gated && m->linear_bias)
        wh_faults_add(faults, NULL, 0, "model: biases in a gated feed-forward (mlp_bias) are not supported");
    if (!(m->norm_eps > 0.0f)) wh_faults_add(faults, NULL, 0, "model: norm epsilon must be above 0");
    if (!m->learned_positions && !(m->rope.theta > 0.0))
        wh_faults_add(faults, NULL, 0, "model: rope_theta must be above 0");
    check_dropout(m->dropout_embed, "embd_pdrop", faults);
    check_dropout(m->dropout_attention, "attn_pdrop", faults);
    check_dropout(m->dropout_residual, "resid_pdrop", faults);
}

/* Llama 3's scaling: wavelengths beyond original/low are stretched by `factor`, those below original/high are kept, and
 * those between are blended. Source: Hugging Face modeling_rope_utils, _compute_llama3_parameters. */
static double llama3_scaled(const struct wh_rope *r, double frequency) {
    double wavelength = 2.0 * 3.14159265358979323846 / frequency;
    double low = r->original_max_position / r->low_freq_factor, high = r->original_max_position / r->high_freq_factor;
    if (wavelength > low) return frequency / r->factor;
    if (wavelength < high) return frequency;
    double smooth =
        (r->original_max_position / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1.0 - smooth) * frequency / r->factor + smooth * frequency;
}

double wh_rope_inverse_frequency(const struct wh_rope *rope, uint32_t D, uint32_t i) {
    double frequency = 1.0 / wh_pow(rope->theta, 2.0 * i / D);
    switch (rope->kind) {
    case WH_ROPE_LINEAR:
        return frequency / rope->factor;
    case WH_ROPE_LLAMA3:
        return llama3_scaled(rope, frequency);
    case WH_ROPE_PLAIN:
        break;
    }
    return frequency;
}

double wh_model_flops_per_token(const struct wh_model *m, uint32_t T) {
    double q = (double)m->H * m->D, kv = (double)m->Hkv * m->D, C = m->C;
    double layer = C * q + 2 * C * kv + q * C + (m->gated ? 3.0 : 2.0) * C * m->F;
    return 6.0 * (m->L * layer + C * m->V) + 12.0 * m->L * q * T;
}
