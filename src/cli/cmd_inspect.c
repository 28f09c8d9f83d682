#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "cli/cli.h"
#include "cli/inspect.h"
#include "os/file.h"

enum { JSON_LIMIT_BYTES = 1 << 28 };

struct args {
    struct wh_cli_common common;
    const char *path;
    bool verify;
};

static const struct wh_option options[] = {
    {"PATH", 0, WH_OPTION_REQUIRED, offsetof(struct args, path), NULL,
     "run folder, checkpoint, Hugging Face folder, safetensors file, config.json, tokenizer or token file"},
    {"verify", 0, WH_OPTION_FLAG, offsetof(struct args, verify), NULL,
     "read all tensor data: check a checkpoint's hashes, show those of a safetensors file"},
    WH_CLI_COMMON(struct args),
    {0}};

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool has(const char *folder, const char *name) {
    char *path = wh_path_join(folder, name);
    bool there = wh_file_exists(path);
    free(path);
    return there;
}

static enum wh_status inspect_folder(const struct args *a, json_t *out) {
    if (has(a->path, "manifest.json") || has(a->path, "weights.safetensors"))
        return wh_inspect_checkpoint(a->path, a->verify, out);
    if (has(a->path, "checkpoints") || wh_ckpt_any(a->path)) return wh_inspect_run(a->path, out);
    if (has(a->path, "config.json")) return wh_inspect_hf(a->path, out);
    if (has(a->path, "tokenizer.json") || has(a->path, "vocab.json") || has(a->path, "encoder.json"))
        return wh_inspect_tokenizer(a->path, out);
    return WH_FAIL(WH_DATA, "%s: nothing known in it (no manifest.json, checkpoints, config.json or tokenizer)",
                   a->path);
}

/* What a JSON file is, by the keys that only one kind has. */
static enum wh_status inspect_json(const struct args *a, json_t *out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(a->path, JSON_LIMIT_BYTES, &text, &bytes));
    json_t *json = json_loadb(text, bytes, 0, NULL);
    bool config = json_object_get(json, "model_type"), index = json_object_get(json, "weight_map");
    bool part = json_object_get(json, "save_id") || json_object_get(json, "schema"); /* of a checkpoint or a run */
    json_decref(json);
    free(text);
    if (part)
        return WH_FAIL(WH_DATA, "%s is no model, tokenizer or list of tensors; inspect the folder it lies in", a->path);
    if (config) return wh_inspect_config(a->path, out);
    if (!index) return wh_inspect_tokenizer(a->path, out);
    char *folder = wh_path_parent(a->path);
    enum wh_status status = wh_inspect_hf(folder, out);
    free(folder);
    return status;
}

static enum wh_status inspect_path(const struct args *a, json_t *out) {
    if (wh_dir_exists(a->path)) return inspect_folder(a, out);
    if (ends_with(a->path, ".safetensors")) return wh_inspect_safetensors(a->path, a->verify, out);
    if (ends_with(a->path, ".json")) return inspect_json(a, out);
    return wh_inspect_tokens(a->path, out);
}

static void print_scalar(const json_t *j) {
    switch (json_typeof(j)) {
    case JSON_STRING:
        fputs(json_string_value(j), stdout);
        break;
    case JSON_INTEGER:
        printf("%lld", (long long)json_integer_value(j));
        break;
    case JSON_REAL:
        printf("%g", json_real_value(j));
        break;
    case JSON_ARRAY: {
        size_t i;
        json_t *item;
        json_array_foreach((json_t *)(uintptr_t)j, i, item) {
            fputs(i ? ", " : "[", stdout);
            print_scalar(item);
        }
        fputs(json_array_size(j) ? "]" : "[]", stdout);
        break;
    }
    default:
        fputs(json_is_true(j) ? "yes" : json_is_false(j) ? "no" : "-", stdout);
    }
}

/* A list of objects: one line each, the values in the order of their keys. */
static void print_rows(const char *key, const json_t *rows) {
    size_t i;
    json_t *row, *value;
    const char *column;
    printf("%s:\n", key);
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        fputs(" ", stdout);
        json_object_foreach(row, column, value) {
            fputs(" ", stdout);
            print_scalar(value);
        }
        fputs("\n", stdout);
    }
}

/* The JSON object as text: KEY: VALUE lines, members of an object as KEY.MEMBER, lists of objects as lines. */
static void print_text(const char *prefix, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (strcmp(key, "schema") == 0) continue;
        if (json_is_object(value)) {
            print_text(key, value);
        } else if (json_is_object(json_array_get(value, 0))) {
            print_rows(key, value);
        } else {
            printf("%s%s%s: ", prefix, *prefix ? "." : "", key);
            print_scalar(value);
            fputs("\n", stdout);
        }
    }
}

static enum wh_status inspect(const struct args *a) {
    json_t *o = wh_cli_json_new("inspect");
    enum wh_status status = inspect_path(a, o);
    if (status != WH_OK || !wh_cli_json()) {
        if (status == WH_OK) print_text("", o);
        json_decref(o);
        return status;
    }
    wh_cli_json_print(o);
    return WH_OK;
}

int wh_cmd_inspect(int argc, char **argv) {
    struct args args = {0};
    int code;
    if (!wh_cli_begin("inspect", "Shows what a file or folder holds: kind, shapes, counts, hashes.", options, argc,
                      argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(inspect(&args));
}
