#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"
#include "cli/cli.h"

struct args {
    struct wh_cli_common common;
    const char *from, *to, *dtype;
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

static enum wh_status export_folder(const struct args *a, const char *folder, enum wh_dtype dtype) {
    struct wh_ckpt_info info;
    struct wh_params params;
    const struct wh_ckpt_slab none = {0};
    WH_TRY(wh_ckpt_read(folder, &info));
    WH_TRY(wh_params_new(&info.model, &params));
    float *weights = malloc(params.buffer_elems * sizeof *weights);
    enum wh_status status = WH_OK;
    if (!weights) status = WH_FAIL(WH_NOMEM, "no memory for %zu parameters", params.elems);
    if (status == WH_OK) status = wh_ckpt_load(folder, &params, wh_ckpt_whole(weights, &params), none, none);
    if (status == WH_OK) status = wh_hf_export(a->to, &info.model, &params, weights, dtype, a->max_shard_bytes);
    if (status == WH_OK) report(a, folder, &info, dtype, &params);
    free(weights);
    wh_params_free(&params);
    return status;
}

static enum wh_status export(const struct args *a) {
    enum wh_dtype dtype; char * folder; struct wh_text remarks = {0}; WH_TRY(read_dtype(a->dtype, &dtype));
    WH_TRY(wh_ckpt_find(a->from, a->step, &folder, &remarks));
    if (remarks.data) wh_cli_warn("%s", remarks.data);
    wh_text_fini(&remarks);
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
    return wh_cli_end(export(&args));
}
