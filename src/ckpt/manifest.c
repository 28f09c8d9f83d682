#include "ckpt/manifest.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ckpt/safetensors.h"
#include "os/file.h"

enum { MANIFEST_LIMIT_BYTES = 1 << 30 };

static const char closing_format[] = "  \"manifest_xxh3\": \"%016llx\"\n}\n";

void wh_ckpt_manifest_write(const struct wh_ckpt_manifest *m, struct wh_text *out) {
    size_t begin = out->bytes;
    wh_text_add(
        out, "{\n  \"format\": \"wanhe-checkpoint\",\n  \"version\": %d,\n  \"save_id\": \"%s\",\n  \"step\": %llu,\n",
        WH_CKPT_VERSION, m->save_id, (unsigned long long)m->step);
    wh_text_add(out, "  \"files\": [\n");
    for (uint32_t i = 0; i < m->file_count; i++)
        wh_text_add(out, "    {\"name\": \"%s\", \"bytes\": %llu, \"xxh3\": \"%016llx\"}%s\n", m->files[i].name,
                    (unsigned long long)m->files[i].bytes, (unsigned long long)m->files[i].xxh3,
                    i + 1 < m->file_count ? "," : "");
    wh_text_add(out, "  ],\n  \"tensors\": [\n");
    for (size_t i = 0; i < m->tensor_count; i++)
        wh_text_add(out, "    {\"file\": %u, \"name\": \"%s\", \"xxh3\": \"%016llx\"}%s\n", m->tensors[i].file,
                    m->tensors[i].name, (unsigned long long)m->tensors[i].xxh3, i + 1 < m->tensor_count ? "," : "");
    wh_text_add(out, "  ],\n");
    wh_text_add(out, closing_format, (unsigned long long)XXH3_64bits(out->data + begin, out->bytes - begin));
}

void wh_ckpt_manifest_free(struct wh_ckpt_manifest *m) {
    free(m->tensors);
    *m = (struct wh_ckpt_manifest){0};
}

/* The text must end in the hash of all that is before it. */
static bool closed(const char *text, size_t bytes) {
    char closing[64];
    int n = snprintf(closing, sizeof closing, closing_format, 0ull);
    if (bytes < (size_t)n) return false;
    snprintf(closing, sizeof closing, closing_format, (unsigned long long)XXH3_64bits(text, bytes - (size_t)n));
    return memcmp(text + bytes - (size_t)n, closing, (size_t)n) == 0;
}

static bool read_hash(const json_t *j, uint64_t *out) {
    const char *s = json_string_value(j);
    char *end;
    if (!s || strlen(s) != 16) return false;
    *out = strtoull(s, &end, 16);
    return *end == '\0';
}

static bool read_name(const json_t *j, char *out, size_t bytes) {
    const char *s = json_string_value(j);
    if (!s || strlen(s) >= bytes || strchr(s, '/')) return false;
    memcpy(out, s, strlen(s) + 1);
    return true;
}

static bool read_count(const json_t *j, uint64_t *out) {
    if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static bool read_files(const json_t *list, struct wh_ckpt_manifest *m) {
    if (!json_is_array(list) || json_array_size(list) > WH_CKPT_FILES_MAX) return false;
    m->file_count = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < m->file_count; i++) {
        const json_t *j = json_array_get(list, i);
        struct wh_ckpt_file *f = &m->files[i];
        if (!read_name(json_object_get(j, "name"), f->name, sizeof f->name) ||
            !read_count(json_object_get(j, "bytes"), &f->bytes) || !read_hash(json_object_get(j, "xxh3"), &f->xxh3))
            return false;
    }
    return true;
}

static bool read_tensors(const json_t *list, struct wh_ckpt_manifest *m) {
    if (!json_is_array(list)) return false;
    m->tensors = calloc(json_array_size(list) + 1, sizeof *m->tensors);
    WH_ASSERT(m->tensors != NULL);
    m->tensor_count = json_array_size(list);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const json_t *j = json_array_get(list, i);
        struct wh_ckpt_tensor *t = &m->tensors[i];
        uint64_t file = UINT64_MAX;
        if (!read_count(json_object_get(j, "file"), &file) || file >= m->file_count ||
            !read_name(json_object_get(j, "name"), t->name, sizeof t->name) ||
            !read_hash(json_object_get(j, "xxh3"), &t->xxh3))
            return false;
        t->file = (uint32_t)file;
    }
    return true;
}

static enum wh_status parse(const json_t *json, const char *path, struct wh_ckpt_manifest *m) {
    const char *format = json_string_value(json_object_get(json, "format"));
    uint64_t version = 0;
    if (!format || strcmp(format, "wanhe-checkpoint") != 0)
        return WH_FAIL(WH_DAMAGED, "%s is not the manifest of a wanhe checkpoint", path);
    if (!read_count(json_object_get(json, "version"), &version) || version != WH_CKPT_VERSION)
        return WH_FAIL(WH_UNSUPPORTED, "%s: checkpoint version %llu; this program reads version %d", path,
                       (unsigned long long)version, WH_CKPT_VERSION);
    if (!read_name(json_object_get(json, "save_id"), m->save_id, sizeof m->save_id) ||
        !read_count(json_object_get(json, "step"), &m->step) || !read_files(json_object_get(json, "files"), m) ||
        !read_tensors(json_object_get(json, "tensors"), m))
        return WH_FAIL(WH_DAMAGED, "%s: a field is missing or has an impossible value", path);
    return WH_OK;
}

static enum wh_status check_sizes(const char *folder, const struct wh_ckpt_manifest *m) {
    for (uint32_t i = 0; i < m->file_count; i++) {
        uint64_t bytes = 0;
        char *path = wh_path_join(folder, m->files[i].name);
        enum wh_status status = wh_file_size(path, &bytes);
        if (status != WH_OK)
            status = WH_FAIL(WH_DAMAGED, "%s is missing", path);
        else if (bytes != m->files[i].bytes)
            status = WH_FAIL(WH_DAMAGED, "%s has %llu bytes; its manifest says %llu", path, (unsigned long long)bytes,
                             (unsigned long long)m->files[i].bytes);
        free(path);
        if (status != WH_OK) return status;
    }
    return WH_OK;
}

static enum wh_status read_text(const char *path, struct wh_ckpt_manifest *out) {
    char *text;
    size_t bytes;
    if (!wh_file_exists(path)) return WH_FAIL(WH_DAMAGED, "%s is missing: the checkpoint was never completed", path);
    WH_TRY(wh_file_read(path, MANIFEST_LIMIT_BYTES, &text, &bytes));
    json_t *json = closed(text, bytes) ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
    enum wh_status status =
        json ? parse(json, path, out)
             : WH_FAIL(WH_DAMAGED, "%s (%zu bytes) is damaged: its own hash doesn't match", path, bytes);
    json_decref(json);
    free(text);
    return status;
}

enum wh_status wh_ckpt_manifest_read(const char *folder, struct wh_ckpt_manifest *out) {
    struct wh_ckpt_manifest m = {0};
    char *path = wh_path_join(folder, "manifest.json");
    enum wh_status status = read_text(path, &m);
    free(path);
    if (status == WH_OK) status = check_sizes(folder, &m);
    if (status == WH_OK)
        *out = m;
    else
        wh_ckpt_manifest_free(&m);
    return status;
}

const struct wh_ckpt_file *wh_ckpt_manifest_file(const struct wh_ckpt_manifest *m, const char *name) {
    for (uint32_t i = 0; i < m->file_count; i++)
        if (strcmp(m->files[i].name, name) == 0) return &m->files[i];
    return NULL;
}

static bool is_of(const struct wh_ckpt_manifest *m, const struct wh_ckpt_tensor *t, const char *file) {
    return strcmp(m->files[t->file].name, file) == 0;
}

static bool sound(const struct wh_ckpt_tensor *t, const struct wh_safetensors_file *safetensors) {
    const struct wh_safetensors_tensor *s = wh_safetensors_find(&safetensors->header, t->name);
    return s && XXH3_64bits(safetensors->data + s->begin, s->bytes) == t->xxh3;
}

const char *wh_ckpt_manifest_damaged_tensor(const struct wh_ckpt_manifest *m, const char *file,
                                            const struct wh_safetensors_file *safetensors) {
    for (size_t i = 0; i < m->tensor_count; i++)
        if (is_of(m, &m->tensors[i], file) && !sound(&m->tensors[i], safetensors)) return m->tensors[i].name;
    return NULL;
}

bool wh_ckpt_manifest_tensor_sound(const struct wh_ckpt_manifest *m, const char *file,
                                   const struct wh_safetensors_file *safetensors, const char *tensor) {
    for (size_t i = 0; i < m->tensor_count; i++)
        if (is_of(m, &m->tensors[i], file) && strcmp(m->tensors[i].name, tensor) == 0)
            return sound(&m->tensors[i], safetensors);
    return false;
}
