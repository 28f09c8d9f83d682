#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"
#include "cli/cli.h"
#include "data/tokenizer.h"
#include "os/file.h"

struct args {
    struct wh_cli_common common;
    const char *from, *to;
};

static const struct wh_option options[] = {
    {"HF_FOLDER", 0, WH_OPTION_REQUIRED, offsetof(struct args, from), NULL,
     "folder with config.json and model.safetensors (or its parts and their index)"},
    {"OUT", 0, WH_OPTION_REQUIRED, offsetof(struct args, to), NULL, "checkpoint folder to make; must not be there"},
    WH_CLI_COMMON(struct args),
    {0}};

static void say_lines(struct wh_text *notes) {
    for (char *at = NULL, *line; (line = wh_text_next_line(notes, &at));) wh_cli_say("%s", line);
    wh_text_fini(notes);
}

static void report(const struct args *a, const struct wh_hf_config *config, const struct wh_params *params) {
    if (wh_cli_json()) {
        json_t *o = wh_cli_json_new("import");
        json_object_set_new(o, "path", json_string(a->to));
        json_object_set_new(o, "model_type", json_string(wh_family_name(config->model.family)));
        json_object_set_new(o, "parameters", json_integer((json_int_t)params->elems));
        json_object_set_new(o, "tied", json_boolean(config->model.tied));
        json_object_set_new(o, "stored_as", json_string(wh_dtype_name(config->dtype)));
        wh_cli_json_print(o);
        return;
    }
    printf("%s: %s, %zu parameters, step 0\n", a->to, wh_family_name(config->model.family), params->elems);
}

/* Step 0 with zero moments. The grain belongs to a run, not to a model: the least one is recorded. */
static enum wh_status write_checkpoint(const char *to, const struct wh_hf_config *config,
                                       const struct wh_params *params, float *weights) {
    struct wh_ckpt_view view = {.model = &config->model,
                                .params = params,
                                .weights = wh_ckpt_whole(weights, params),
                                .compute = config->dtype == WH_F32 ? WH_F32 : WH_BF16};
    wh_grain_defaults(&config->model, 1, &view.grain);
    return wh_ckpt_write(to, &view);
}

/* The model's tokenizer, so that text can be given to it; one that can't be used is no reason to refuse the model. */
static void bring_tokenizer(const struct args *a) {
    struct wh_tokenizer *tokenizer;
    char *path = wh_path_join(a->to, "tokenizer.json");
    enum wh_status status = wh_tokenizer_open(a->from, &tokenizer);
    if (status == WH_OK) {
        status = wh_tokenizer_write(tokenizer, path);
        wh_tokenizer_close(tokenizer);
    }
    if (status == WH_OK)
        wh_cli_say("tokenizer: %s", path);
    else
        wh_cli_say("no tokenizer came along: %s", wh_error()->message);
    free(path);
}

static enum wh_status import(const struct args *a) {
    struct wh_hf_config config;
    struct wh_params params;
    struct wh_text notes = {0};
    WH_TRY(wh_hf_read_config(a->from, &config, &notes));
    WH_TRY(wh_params_new(&config.model, &params));
    float *weights = calloc(params.buffer_elems, sizeof *weights);
    enum wh_status status = WH_OK;
    if (!weights) status = WH_FAIL(WH_NOMEM, "no memory for %zu parameters", params.elems);
    if (status == WH_OK) status = wh_hf_import(a->from, &config.model, &params, weights, &notes);
    say_lines(&notes);
    if (status == WH_OK) status = write_checkpoint(a->to, &config, &params, weights);
    if (status == WH_OK) bring_tokenizer(a);
    if (status == WH_OK) report(a, &config, &params);
    free(weights);
    wh_params_free(&params);
    return status;
}

int wh_cmd_import(int argc, char **argv) {
    struct args args = {0};
    int code;
    if (!wh_cli_begin("import", "Makes a checkpoint from a Hugging Face model folder (gpt2, llama, qwen2).", options,
                      argc, argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(import(&args));
}
