/* Hugging Face model folders: import into and export from flat fp32 buffers laid out by the parameter table.
 * docs/formats/huggingface.md. One table of names serves both directions (hf_names.h).
 *
 *     struct wh_hf_config config;  struct wh_params params;
 *     WH_TRY(wh_hf_read_config("gpt2", &config, &notes));
 *     WH_TRY(wh_params_new(&config.model, &params));
 *     float *weights = calloc(params.buffer_elems, 4);
 *     WH_TRY(wh_hf_import("gpt2", &config.model, &params, weights, &notes));
 *
 * GPT-2's Conv1D matrices are stored [in, out] and q, k, v joined: they are transposed (whole tensor, then q, k, v lie
 * one behind the other as they do here). Rotary pairs are half-split in these files as they are here: no permutation.
 */
#ifndef WH_CKPT_HF_H
#define WH_CKPT_HF_H

#include "arch/hf_config.h"
#include "arch/params.h"

/* FOLDER/config.json. */
enum wh_status wh_hf_read_config(const char *folder, struct wh_hf_config *out, struct wh_text *notes);

/* model.safetensors, or the parts that model.safetensors.index.json names. F32, BF16 and F16 become fp32 exactly.
 * Missing tensors, unexpected ones and wrong shapes are told all at once (DATA); weights are untouched then. Adds a
 * line to `notes` (may be NULL) for what was left out on purpose: attention masks, inverse frequencies, a second copy
 * of tied weights. */
enum wh_status wh_hf_import(const char *folder, const struct wh_model *model, const struct wh_params *params,
                            float *weights, struct wh_text *notes);

/* Writes FOLDER (which must not be there, or be empty; it appears whole or not at all) with config.json and the weights
 * in config->dtype: WH_F32, WH_BF16 or WH_F16 (to nearest, ties to even), in parts of at most `max_part_bytes` of data (0:
 * one file; a larger tensor gets a part of its own). A finite value that F16 can't hold is refused (UNSUPPORTED, naming
 * tensor and value). Of `config` only model, dtype, bos and eos are asked. */
enum wh_status wh_hf_export(const char *folder, const struct wh_hf_config *config, const struct wh_params *params,
                            const float *weights, uint64_t max_part_bytes);

#endif
