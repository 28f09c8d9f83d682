/* Hugging Face config.json <-> struct wh_model, for model_type gpt2, llama, qwen2. docs/formats/huggingface.md.
 *
 * Nothing silent: what can't be computed here (mixture of experts, quantization, a sliding window in use, other rotary
 * scalings, other activations) is refused by name; keys that have no meaning here are listed as notes. null = absent.
 * A file may also hold our own "wanhe" object with the exact model; then that decides.
 *
 * Sources: transformers configuration_gpt2.py, configuration_llama.py, configuration_qwen2.py (defaults of absent
 * keys). */
#ifndef WH_ARCH_HF_CONFIG_H
#define WH_ARCH_HF_CONFIG_H

#include "arch/grain.h"
#include "arch/model.h"
#include "base/dtype.h"
#include "base/text.h"

/* A token's id that goes into a config.json, null if not known. Not read: ids of a model belong to its tokenizer. */
struct wh_hf_token {
    bool known;
    uint32_t id;
};

struct wh_hf_config {
    struct wh_model model;
    enum wh_dtype dtype; /* torch_dtype (or dtype) of the weights: WH_F32, WH_BF16, WH_F16; WH_F32 if absent */
    bool tied_stated;    /* tie_word_embeddings was in the file; else model.tied is the family's default */
    bool ours;           /* it has the "wanhe" object; the rest is zero otherwise */
    struct wh_grain grain;
    enum wh_dtype compute;       /* of the run that wrote it: WH_F32 or WH_BF16 */
    struct wh_hf_token bos, eos; /* for other programs */
};

/* `text` need not end in NUL. `file` names it in messages. Adds one line per remark to `notes` (may be NULL).
 * Errors: CONFIG with all faults at once (with line numbers where known). The model has passed wh_model_check. */
enum wh_status wh_hf_config_parse(const char *text, size_t bytes, const char *file, struct wh_hf_config *out,
                                  struct wh_text *notes);

/* Adds the text of a config.json. Without `ours` it has bos_token_id and eos_token_id (absent, they would be the family's
 * defaults to other programs: 50256 for gpt2, 1 and 2 for llama), and a model that the family's config can't express is refused
 * (UNSUPPORTED, naming the fields). With `ours`, the "wanhe" object (model, grain, compute) is added, and such a model
 * gets model_type "wanhe", so that no other program takes it for what it isn't. */
enum wh_status wh_hf_config_write(const struct wh_hf_config *config, bool ours, struct wh_text *out);

#endif
