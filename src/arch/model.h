/* What a model is: its sizes and switches, whichever family it comes from. Pure data; filled from a run config or from a
 * Hugging Face config.json (arch/hf_config.h).
 *
 * Dimension letters, the same in the whole project:
 *   B sequences   T positions   C hidden   H heads   Hkv key-value heads   D head size   F feed-forward width
 *   V vocabulary  L layers */
#ifndef WH_ARCH_MODEL_H
#define WH_ARCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/faults.h"

/* Decides names in exported files and the defaults of the switches below; the engine reads the switches alone. */
enum wh_family { WH_GPT2, WH_LLAMA, WH_QWEN2, WH_FAMILY_COUNT };

enum wh_rope_kind { WH_ROPE_PLAIN, WH_ROPE_LINEAR, WH_ROPE_LLAMA3 };

struct wh_rope {
    double theta;
    enum wh_rope_kind kind;
    double factor;                            /* linear, llama3 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    uint32_t original_max_position;           /* llama3 */
};

struct wh_model {
    enum wh_family family;
    uint32_t V, C, L, H, Hkv, D, F;
    uint32_t max_position;  /* longest sequence */
    bool layer_norm;        /* LayerNorm with gain and bias; else RMSNorm with gain */
    bool learned_positions; /* position table; else rotary embedding */
    bool gated;             /* down(silu(gate(x)) * up(x)); else down(gelu_tanh(up(x))) */
    bool qkv_bias;          /* biases on q, k, v */
    bool linear_bias;       /* biases on attention output and feed-forward */
    bool tied;              /* head shares the token embedding */
    float norm_eps;
    float init_std; /* of the normal initial weights; residual outputs get init_std / sqrt(2L) */
    struct wh_rope rope;
    float dropout_embed, dropout_attention, dropout_residual;
};

const char *wh_family_name(enum wh_family f); /* Hugging Face model_type: "gpt2", "llama", "qwen2" */

/* Sets the switches (norm, positions, gate, biases, tied, eps, theta, init_std) to the family's defaults, sizes to 0. */
void wh_model_defaults(enum wh_family f, struct wh_model *out);

/* Adds a fault for each impossible size or combination (zero sizes, H not a multiple of Hkv, odd D with rotary ...). */
void wh_model_check(const struct wh_model *m, struct wh_faults *faults);

/* Inverse rotary frequency of pair `i` of D/2, scaling applied: angle at position p is p * this. */
double wh_rope_inverse_frequency(const struct wh_rope *rope, uint32_t D, uint32_t i);

/* FLOPs of training one token (forward and backward, no recompute): 6 per matrix weight that multiplies it (head
 * included once, embedding look-ups not) plus 12·L·H·D·T for the full attention square. Case B84. */
double wh_model_flops_per_token(const struct wh_model *m, uint32_t T);

#endif
