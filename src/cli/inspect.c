#include "cli/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "arch/hf_config.h"
#include "arch/model_fields.h"
#include "ckpt/checkpoint.h"
#include "ckpt/hf.h"
#include "ckpt/hf_source.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "ckpt/steps.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "os/file.h"

enum { CONFIG_LIMIT_BYTES = 1 << 24, FIRST_TOKENS = 16 };

static void set_text(json_t *o, const char *key, const char *value) { json_object_set_new(o, key, json_string(value)); }
static void set_count(json_t *o, const char *key, uint64_t n) {
    json_object_set_new(o, key, json_integer((json_int_t)n));
}
static void set_flag(json_t *o, const char *key, bool flag) { json_object_set_new(o, key, json_boolean(flag)); }
static void set_hash(json_t *o, const char *key, uint64_t xxh3) {
    json_object_set_new(o, key, json_sprintf("%016llx", (unsigned long long)xxh3));
}

static void begin(json_t *o, const char *kind, const char *path) {
    set_text(o, "kind", kind);
    set_text(o, "path", path);
}

static json_t *shape_json(const uint64_t *shape, uint32_t dims) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < dims; i++) json_array_append_new(list, json_integer((json_int_t)shape[i]));
    return list;
}

static const char *dtype_text(enum wh_dtype dtype) { return dtype < WH_DTYPE_COUNT ? wh_dtype_name(dtype) : "other"; }

static uint64_t elems_of(const struct wh_safetensors_tensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->dims; i++) n *= t->shape[i];
    return n;
}

static json_t *tensor_json(const struct wh_safetensors_tensor *t, const unsigned char *data) {
    json_t *row = json_object();
    if (data) set_hash(row, "xxh3", XXH3_64bits(data + t->begin, t->bytes));
    set_text(row, "dtype", dtype_text(t->dtype));
    json_object_set_new(row, "shape", shape_json(t->shape, t->dims));
    set_text(row, "name", t->name);
    return row;
}

enum wh_status wh_inspect_safetensors(const char *path, bool verify, json_t *out) {
    struct wh_safetensors_file f;
    uint64_t elems = 0;
    WH_TRY(wh_safetensors_open(path, &f));
    json_t *list = json_array(), *metadata = json_object();
    for (size_t i = 0; i < f.header.count; i++) {
        elems += elems_of(&f.header.list[i]);
        json_array_append_new(list, tensor_json(&f.header.list[i], verify ? f.data : NULL));
    }
    for (size_t i = 0; i < f.header.metadata_count; i++)
        set_text(metadata, f.header.metadata[i].key, f.header.metadata[i].value);
    begin(out, "safetensors", path);
    set_count(out, "bytes", f.map.bytes);
    if (verify) set_hash(out, "xxh3", XXH3_64bits(f.map.data, f.map.bytes));
    set_count(out, "tensor_count", f.header.count);
    set_count(out, "elements", elems);
    json_object_set_new(out, "metadata", metadata);
    json_object_set_new(out, "tensors", list);
    wh_safetensors_close(&f);
    return WH_OK;
}

/* The model and how many parameters it has. */
static void set_model(json_t *o, const struct wh_model *m, const struct wh_params *p) {
    struct wh_text text = {0};
    set_count(o, "parameters", p->elems);
    wh_model_fields_write(m, &text);
    json_object_set_new(o, "model", json_loadb(text.data, text.bytes, 0, NULL));
    wh_text_fini(&text);
}

static void set_state(json_t *o, const struct wh_ckpt_info *info) {
    set_count(o, "step", info->state.step);
    set_text(o, "save_id", info->save_id);
    set_count(o, "samples", info->state.samples);
    set_count(o, "tokens", info->state.tokens);
    set_count(o, "data_position", info->state.data_position);
    set_count(o, "optimizer_step", info->state.optimizer_step);
    json_object_set_new(o, "seed", json_sprintf("%llu", (unsigned long long)info->state.seed));
    set_text(o, "compute", wh_dtype_name(info->compute));
    set_flag(o, "moments", info->moments);
    json_object_set_new(o, "grain",
                        json_pack("{sisisissss}", "tensor", (int)info->grain.tensor, "data", (int)info->grain.data,
                                  "sequence", (int)info->grain.sequence, "wire", wh_dtype_name(info->grain.wire),
                                  "reduce", info->grain.fast ? "fast" : "contract"));
}

static void set_files(json_t *o, const struct wh_ckpt_manifest *m, const struct wh_params *p) {
    json_t *files = json_array(), *tensors = json_array();
    for (uint32_t i = 0; i < m->file_count; i++) {
        json_t *row = json_object();
        set_hash(row, "xxh3", m->files[i].xxh3);
        set_count(row, "bytes", m->files[i].bytes);
        set_text(row, "name", m->files[i].name);
        json_array_append_new(files, row);
    }
    for (size_t i = 0; i < m->tensor_count; i++) {
        json_t *row = json_object();
        set_hash(row, "xxh3", m->tensors[i].xxh3);
        set_text(row, "file", m->files[m->tensors[i].file].name);
        const struct wh_param *q = wh_params_find_name(p, m->tensors[i].name);
        uint64_t shape[2] = {q ? q->rows : 0, q ? q->cols : 0};
        json_object_set_new(row, "shape", shape_json(shape, q && q->cols ? 2 : 1));
        set_text(row, "name", m->tensors[i].name);
        json_array_append_new(tensors, row);
    }
    json_object_set_new(o, "files", files);
    json_object_set_new(o, "tensors", tensors);
}

enum wh_status wh_inspect_checkpoint(const char *folder, bool verify, json_t *out) {
    struct wh_ckpt_info info;
    struct wh_ckpt_manifest m;
    struct wh_params p;
    WH_TRY(wh_ckpt_read(folder, &info));
    if (verify) WH_TRY(wh_ckpt_verify(folder));
    WH_TRY(wh_ckpt_manifest_read(folder, &m));
    enum wh_status status = wh_params_new(&info.model, &p);
    if (status == WH_OK) {
        begin(out, "checkpoint", folder);
        set_flag(out, "verified", verify);
        set_state(out, &info);
        set_model(out, &info.model, &p);
        set_files(out, &m, &p);
        wh_params_free(&p);
    }
    wh_ckpt_manifest_free(&m);
    return status;
}

enum wh_status wh_inspect_run(const char *folder, json_t *out) {
    uint64_t *steps;
    size_t count;
    char *inside = wh_path_join(folder, "checkpoints"), *newest;
    if (!wh_dir_exists(inside)) free(inside), inside = strdup(folder);
    WH_ASSERT(inside != NULL);
    enum wh_status status = wh_ckpt_steps(inside, &steps, &count);
    if (status == WH_OK) {
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++) {
            json_t *row = json_object();
            bool complete = wh_ckpt_step_check(inside, steps[i]) == WH_OK;
            set_count(row, "step", steps[i]);
            set_text(row, "state", complete ? "complete" : wh_error()->message);
            json_array_append_new(list, row);
        }
        begin(out, "run", folder);
        if (wh_ckpt_find(inside, WH_CKPT_LATEST, &newest, NULL) == WH_OK)
            set_text(out, "newest_complete", newest), free(newest);
        else
            json_object_set_new(out, "newest_complete", json_null());
        json_object_set_new(out, "checkpoints", list);
        free(steps);
    }
    free(inside);
    return status;
}

static enum wh_status set_config(json_t *o, const struct wh_hf_config *config, struct wh_text *notes) {
    set_text(o, "torch_dtype", wh_dtype_name(config->dtype));
    json_t *list = json_array();
    for (char *at = NULL, *line; (line = wh_text_next_line(notes, &at));)
        json_array_append_new(list, json_string(line));
    json_object_set_new(o, "notes", list);
    struct wh_params p;
    WH_TRY(wh_params_new(&config->model, &p));
    set_model(o, &config->model, &p);
    wh_params_free(&p);
    return WH_OK;
}

enum wh_status wh_inspect_config(const char *path, json_t *out) {
    struct wh_hf_config config;
    struct wh_text notes = {0};
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, CONFIG_LIMIT_BYTES, &text, &bytes));
    enum wh_status status = wh_hf_config_parse(text, bytes, path, &config, &notes);
    free(text);
    begin(out, "config", path);
    if (status == WH_OK) status = set_config(out, &config, &notes);
    wh_text_fini(&notes);
    return status;
}

static json_t *source_json(const struct wh_hf_source *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->entry_count; i++) json_array_append_new(list, tensor_json(s->entries[i].tensor, NULL));
    return list;
}

enum wh_status wh_inspect_hf(const char *folder, json_t *out) {
    struct wh_hf_config config;
    struct wh_hf_source source;
    struct wh_text notes = {0};
    WH_TRY(wh_hf_read_config(folder, &config, &notes));
    begin(out, "huggingface", folder);
    enum wh_status status = set_config(out, &config, &notes);
    wh_text_fini(&notes);
    WH_TRY(status);
    WH_TRY(wh_hf_source_open(folder, &source));
    uint64_t bytes = 0;
    for (size_t i = 0; i < source.entry_count; i++) bytes += source.entries[i].tensor->bytes;
    set_count(out, "file_count", source.file_count);
    set_count(out, "data_bytes", bytes);
    json_object_set_new(out, "tensors", source_json(&source));
    wh_hf_source_close(&source);
    return WH_OK;
}

enum wh_status wh_inspect_tokenizer(const char *path, json_t *out) {
    struct wh_tokenizer *t;
    uint32_t end;
    WH_TRY(wh_tokenizer_open(path, &t));
    begin(out, "tokenizer", path);
    set_count(out, "vocab_size", wh_tokenizer_vocab(t));
    if (wh_tokenizer_end_of_text(t, &end))
        set_count(out, "end_of_text", end);
    else
        json_object_set_new(out, "end_of_text", json_null());
    wh_tokenizer_close(t);
    return WH_OK;
}

enum wh_status wh_inspect_tokens(const char *path, json_t *out) {
    struct wh_tokens *t;
    uint32_t first[FIRST_TOKENS];
    const char *paths[] = {path};
    WH_TRY(wh_tokens_open(paths, 1, WH_TOKENS_AUTO, 0, &t));
    uint64_t count = wh_tokens_count(t);
    size_t n = count < FIRST_TOKENS ? (size_t)count : FIRST_TOKENS;
    enum wh_status status = wh_tokens_read(t, 0, n, first);
    if (status == WH_OK) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(first[i]));
        begin(out, "tokens", path);
        set_count(out, "tokens", count);
        json_object_set_new(out, "first", list);
    }
    wh_tokens_close(t);
    return status;
}
