#include "ckpt/hf_source.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_LIMIT_BYTES = 1 << 28 };

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct wh_hf_entry *)a)->name, ((const struct wh_hf_entry *)b)->name);
}

static void add_entry(struct wh_hf_source *s, const struct wh_safetensors_file *f,
                      const struct wh_safetensors_tensor *t) {
    s->entries[s->entry_count++] = (struct wh_hf_entry){.name = t->name, .file = f, .tensor = t};
}

static enum wh_status open_single(const char *path, struct wh_hf_source *s) {
    s->files = calloc(1, sizeof *s->files);
    WH_ASSERT(s->files != NULL);
    WH_TRY(wh_safetensors_open(path, &s->files[0]));
    s->file_count = 1;
    s->entries = calloc(s->files[0].header.count + 1, sizeof *s->entries);
    WH_ASSERT(s->entries != NULL);
    for (size_t i = 0; i < s->files[0].header.count; i++) add_entry(s, &s->files[0], &s->files[0].header.list[i]);
    return WH_OK;
}

static const struct wh_safetensors_file *opened(const struct wh_hf_source *s, const char *path) {
    for (size_t i = 0; i < s->file_count; i++)
        if (strcmp(s->files[i].path, path) == 0) return &s->files[i];
    return NULL;
}

/* Opens each file that the index names, once. A name must stay inside the folder. */
static enum wh_status open_parts(const char *folder, const char *index, const json_t *map, struct wh_hf_source *s,
                                 json_t *missing, struct wh_faults *faults) {
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name || !*name || strchr(name, '/')) {
            wh_faults_add(faults, index, 0, "tensor %s: \"%s\" is not the name of a file in this folder", tensor,
                          name ? name : "?");
            continue;
        }
        if (json_object_get(missing, name)) continue;
        char *path = wh_path_join(folder, name);
        enum wh_status status = WH_OK;
        if (!wh_file_exists(path)) {
            json_object_set_new(missing, name, json_true());
            wh_faults_add(faults, index, 0, "it names %s, which is not there", path);
        } else if (!opened(s, path)) {
            status = wh_safetensors_open(path, &s->files[s->file_count]);
            if (status == WH_OK) s->file_count++;
        }
        free(path);
        if (status != WH_OK) return status;
    }
    return WH_OK;
}

static void list_entries(const char *folder, const char *index, const json_t *map, struct wh_hf_source *s,
                         struct wh_faults *faults) {
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value) {
        char *path = wh_path_join(folder, json_string_value(value));
        const struct wh_safetensors_file *f = opened(s, path);
        const struct wh_safetensors_tensor *t = wh_safetensors_find(&f->header, tensor);
        if (t)
            add_entry(s, f, t);
        else
            wh_faults_add(faults, index, 0, "it says that %s has tensor %s, which it has not", path, tensor);
        free(path);
    }
}

static enum wh_status read_index(const char *folder, const char *index, const json_t *json, struct wh_hf_source *s) {
    const json_t *map = json_object_get(json, "weight_map");
    struct wh_faults faults = {0};
    if (!json_is_object(map)) return WH_FAIL(WH_DATA, "%s has no object weight_map", index);
    s->files = calloc(json_object_size(map) + 1, sizeof *s->files);
    s->entries = calloc(json_object_size(map) + 1, sizeof *s->entries);
    json_t *missing = json_object();
    WH_ASSERT(s->files && s->entries && missing);
    enum wh_status status = open_parts(folder, index, map, s, missing, &faults);
    json_decref(missing);
    if (status == WH_OK && faults.count == 0) list_entries(folder, index, map, s, &faults);
    if (status == WH_OK) return wh_faults_status(&faults, WH_DATA);
    wh_text_fini(&faults.text);
    return status;
}

static enum wh_status open_sharded(const char *folder, const char *index, struct wh_hf_source *s) {
    char *text;
    size_t bytes;
    json_error_t error;
    WH_TRY(wh_file_read(index, INDEX_LIMIT_BYTES, &text, &bytes));
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json) return WH_FAIL(WH_DATA, "%s:%d: not JSON: %s", index, error.line, error.text);
    enum wh_status status = read_index(folder, index, json, s);
    json_decref(json);
    return status;
}

static enum wh_status nothing_there(const char *folder) {
    char *old = wh_path_join(folder, "pytorch_model.bin");
    bool pickled = wh_file_exists(old);
    free(old);
    return WH_FAIL(WH_DATA, "%s has neither model.safetensors nor model.safetensors.index.json%s", folder,
                   pickled ? "; pytorch_model.bin is a pickle, which is not read: save it as safetensors first" : "");
}

enum wh_status wh_hf_source_open(const char *folder, struct wh_hf_source *out) {
    struct wh_hf_source s = {0};
    char *single = wh_path_join(folder, "model.safetensors"),
         *index = wh_path_join(folder, "model.safetensors.index.json");
    enum wh_status status;
    if (wh_file_exists(single))
        status = open_single(single, &s);
    else if (wh_file_exists(index))
        status = open_sharded(folder, index, &s);
    else
        status = nothing_there(folder);
    free(single);
    free(index);
    if (status == WH_OK) {
        qsort(s.entries, s.entry_count, sizeof *s.entries, by_name);
        *out = s;
    } else {
        wh_hf_source_close(&s);
    }
    return status;
}

void wh_hf_source_close(struct wh_hf_source *s) {
    struct wh_error first = *wh_error();
    for (size_t i = 0; i < s->file_count; i++) wh_safetensors_close(&s->files[i]);
    *wh_error() = first;
    free(s->files);
    free(s->entries);
    *s = (struct wh_hf_source){0};
}

struct wh_hf_entry *wh_hf_source_find(const struct wh_hf_source *s, const char *name) {
    struct wh_hf_entry key = {.name = name};
    return s->entry_count ? bsearch(&key, s->entries, s->entry_count, sizeof key, by_name) : NULL;
}

const char *wh_hf_source_unlisted(const struct wh_hf_source *s, const char *name) {
    for (size_t i = 0; i < s->file_count; i++)
        if (wh_safetensors_find(&s->files[i].header, name)) return s->files[i].path;
    return NULL;
}
