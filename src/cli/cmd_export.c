#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"
#include "cli/cli.h"
#include "cli/run_folder.h"
#include "data/tokenizer.h"
#include "os/file.h"

struct args {
    struct wh_cli_common common;
    const char *from, *to, *dtype, *tokenizer;
    uint64_t step, max_shard_bytes;
};

static const struct wh_option options[] = {
    {"CHECKPOINT", 0, WH_OPTION_REQUIRED, offsetof(struct args, from), NULL,
     "checkpoint folder, or a run folder (its newest complete checkpoint)"},
    {"OUT", 0, WH_OPTION_REQUIRED, offsetof(struct args, to), NULL, "Hugging Face folder to make; must not be there"},
    {"step", 0, WH_OPTION_UINT, offsetof(struct args, step), "N", "of a run folder: the checkpoint of step N"},
    {"dtype", 0, WH_OPTION_TEXT, offsetof(struct args, dtype), "TYPE", "f32 (as stored; default), bf16 or f16"},
    {"max-shard-bytes", 0, WH_OPTION_UINT, offsetof(struct args, max_shard_bytes), "N",
     "parts of at most N bytes of data with an index; without it one file"},
    {"tokenizer", 0, WH_OPTION_TEXT, offsetof(struct args, tokenizer), "WHAT",
     "bytes, or a tokenizer file, to go along (default: the model's own)"},
    WH_CLI_COMMON(struct args),
    {0}};

static enum wh_status read_dtype(const char *text, enum wh_dtype *out) {
    static const struct {
        const char *name;
        enum wh_dtype dtype;
    } known[] = {{"f32", WH_F32},     {"bf16", WH_BF16},     {"f16", WH_F16},
                 {"float32", WH_F32}, {"bfloat16", WH_BF16}, {"float16", WH_F16}};
    *out = WH_F32;
    if (!text) return WH_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text, known[i].name) != 0) continue;
        *out = known[i].dtype;
        return WH_OK;
    }
    return WH_FAIL(WH_USAGE, "--dtype '%s' is not known; legal: f32, bf16, f16", text);
}

static void report(const struct args *a, const char *folder, const struct wh_ckpt_info *info, enum wh_dtype dtype,
                   const struct wh_params *params) {
    if (wh_cli_json()) {
        json_t *o = wh_cli_json_new("export");
        json_object_set_new(o, "path", json_string(a->to));
        json_object_set_new(o, "checkpoint", json_string(folder));
        json_object_set_new(o, "step", json_integer((json_int_t)info->state.step));
        json_object_set_new(o, "model_type", json_string(wh_family_name(info->model.family)));
        json_object_set_new(o, "parameters", json_integer((json_int_t)params->elems));
        json_object_set_new(o, "dtype", json_string(wh_dtype_name(dtype)));
        wh_cli_json_print(o);
        return;
    }
    printf("%s: %s, %zu parameters in %s, from %s (step %llu)\n", a->to, wh_family_name(info->model.family),
           params->elems, wh_dtype_name(dtype), folder, (unsigned long long)info->state.step);
}

/* NULL: none is known, which is said; one that was asked for must be there and fit the model. */
static enum wh_status find_tokenizer(const struct args *a, uint32_t V, struct wh_tokenizer **out) {
    enum wh_status status = wh_run_folder_tokenizer(a->from, a->tokenizer, V, out);
    if (status != WH_OK && a->tokenizer) return status;
    if (status != WH_OK) {
        wh_cli_say("no tokenizer comes along: %s", wh_error()->message);
        *out = NULL;
        return WH_OK;
    }
    if (wh_tokenizer_vocab(*out) <= V) return WH_OK;
    status = WH_FAIL(WH_CONFIG, "the tokenizer %s has %u tokens, the model %u",
                     a->tokenizer ? a->tokenizer : "of the run", wh_tokenizer_vocab(*out), V);
    wh_tokenizer_close(*out);
    return status;
}

/* What documents end with: data.end_of_text of the run, or the tokenizer's own. */
static void set_tokens(const char *from, const struct wh_tokenizer *t, struct wh_hf_config *out) {
    struct wh_config c;
    if (t) {
        out->bos.known = wh_tokenizer_begin_of_text(t, &out->bos.id);
        out->eos.known = wh_tokenizer_end_of_text(t, &out->eos.id);
    }
    if (!wh_run_folder_config(from, &c)) return;
    if (c.data.end_of_text >= 0) out->eos = (struct wh_hf_token){true, (uint32_t)c.data.end_of_text};
    wh_config_free(&c);
}

static enum wh_status write_tokenizer(const char *folder, const struct wh_tokenizer *t) {
    if (!t || wh_tokenizer_is_bytes(t)) return WH_OK; /* no file tells other programs to take bytes */
    char *path = wh_path_join(folder, "tokenizer.json");
    enum wh_status status = wh_tokenizer_write(t, path);
    free(path);
    return status;
}

static enum wh_status export_weights(const struct args *a, const char *folder, const struct wh_hf_config *config,
                                     const struct wh_params *params) {
    const struct wh_ckpt_slab none = {0};
    float *weights = malloc(params->buffer_elems * sizeof *weights);
    if (!weights) return WH_FAIL(WH_NOMEM, "no memory for %zu parameters", params->elems);
    enum wh_status status = wh_ckpt_load(folder, params, wh_ckpt_whole(weights, params), none, none);
    if (status == WH_OK) status = wh_hf_export(a->to, config, params, weights, a->max_shard_bytes);
    free(weights);
    return status;
}

static enum wh_status export_folder(const struct args *a, const char *folder, enum wh_dtype dtype) {
    struct wh_ckpt_info info;
    struct wh_params params;
    struct wh_tokenizer *tokenizer;
    WH_TRY(wh_ckpt_read(folder, &info));
    WH_TRY(find_tokenizer(a, info.model.V, &tokenizer));
    struct wh_hf_config config = {.model = info.model, .dtype = dtype};
    set_tokens(a->from, tokenizer, &config);
    enum wh_status status = wh_params_new(&info.model, &params);
    if (status == WH_OK) {
        status = export_weights(a, folder, &config, &params);
        if (status == WH_OK) status = write_tokenizer(a->to, tokenizer);
        if (status == WH_OK) report(a, folder, &info, dtype, &params);
        wh_params_free(&params);
    }
    wh_tokenizer_close(tokenizer);
    return status;
}

static enum wh_status export_model(const struct args *a) {
    enum wh_dtype dtype;
    char *folder;
    struct wh_text remarks = {0};
    WH_TRY(read_dtype(a->dtype, &dtype));
    WH_TRY(wh_ckpt_find(a->from, a->step, &folder, &remarks));
    wh_cli_remarks(&remarks);
    enum wh_status status = export_folder(a, folder, dtype);
    free(folder);
    return status;
}

int wh_cmd_export(int argc, char **argv) {
    struct args args = {.step = WH_CKPT_LATEST};
    int code;
    if (!wh_cli_begin("export", "Makes a Hugging Face model folder from a checkpoint.", options, argc, argv, &args,
                      &args.common, &code))
        return code;
    return wh_cli_end(export_model(&args));
}
