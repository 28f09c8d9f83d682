#include "ckpt/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* What people pass by mistake, told apart by the first bytes; asked only when the header makes no sense, because these
 * bytes can also be an honest length. */
static const char *foreign_format(const unsigned char *data, size_t bytes) {
    static const struct {
        const char *magic;
        size_t bytes;
        const char *what;
    } known[] = {
        {"PK\3\4", 4, "a zip archive (a PyTorch .bin or .pt file)"},
        {"\x80\2", 2, "a Python pickle (an old PyTorch .bin or .pt file)"},
        {"\x80\4", 2, "a Python pickle"},
        {"GGUF", 4, "a GGUF file"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"\x1f\x8b", 2, "a gzip archive"},
        {"version https://git-lfs", 23, "a Git LFS pointer (the download is missing: git lfs pull)"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (bytes >= known[i].bytes && memcmp(data, known[i].magic, known[i].bytes) == 0) return known[i].what;
    return NULL;
}

static enum wh_status header_length(const unsigned char *data, size_t bytes, const char *file, size_t *out) {
    const char *foreign = foreign_format(data, bytes);
    if (bytes < 8) {
        if (foreign) return WH_FAIL(WH_DATA, "%s is not a safetensors file but %s", file, foreign);
        return WH_FAIL(WH_DATA, "%s is not a safetensors file: %zu bytes, and 8 are the least", file, bytes);
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | data[i];
    if (foreign && (length > bytes - 8 || length == 0 || data[8] != '{'))
        return WH_FAIL(WH_DATA, "%s is not a safetensors file but %s", file, foreign);
    if (length > bytes - 8)
        return WH_FAIL(WH_DATA, "%s: its header is said to have %llu bytes, longer than the file (%zu bytes)", file,
                       (unsigned long long)length, bytes);
    if (length > WH_SAFETENSORS_HEADER_LIMIT_BYTES)
        return WH_FAIL(WH_DATA, "%s: a header of %llu bytes; at most %d are allowed", file, (unsigned long long)length,
                       WH_SAFETENSORS_HEADER_LIMIT_BYTES);
    if (length < 2 || data[8] != '{')
        return WH_FAIL(WH_DATA, "%s is not a safetensors file: byte 8 does not begin a JSON object", file);
    *out = (size_t)length;
    return WH_OK;
}

/* Names the key that ends just before `end`, and how deep it lies, from the text itself: the JSON library tells only
 * the position. */
static enum wh_status duplicate_key(const char *json, size_t end, const char *file) {
    size_t begin = 0, depth = 0;
    for (size_t i = 0; i < end; i++) {
        if (json[i] == '{') depth++;
        if (json[i] == '}') depth--;
        if (json[i] != '"') continue;
        begin = ++i;
        while (i < end && json[i] != '"') i += json[i] == '\\' ? 2 : 1;
    }
    size_t bytes = end > begin ? end - 1 - begin : 0;
    return WH_FAIL(WH_DATA, "%s: duplicate %s %.*s", file, depth == 1 ? "tensor name" : "key",
                   bytes > 200 ? 200 : (int)bytes, json + begin);
}

/* All element types of the format. */
static bool dtype_from_name(const char *name, enum wh_dtype *dtype, size_t *bytes) {
    static const struct {
        const char *name;
        size_t bytes;
    } others[] = {{"BOOL", 1}, {"I8", 1},      {"I16", 2},     {"U32", 4},
                  {"U64", 8},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
    for (int t = 0; t < WH_DTYPE_COUNT; t++) {
        if (strcmp(name, wh_dtype_name((enum wh_dtype)t)) != 0) continue;
        *dtype = (enum wh_dtype)t;
        *bytes = wh_dtype_bytes(*dtype);
        return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(name, others[i].name) != 0) continue;
        *dtype = WH_DTYPE_COUNT;
        *bytes = others[i].bytes;
        return true;
    }
    return false;
}

static bool size_from_json(const json_t *j, uint64_t *out) {
    if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static enum wh_status parse_shape(const json_t *shape, const char *file, size_t elem_bytes,
                                  struct wh_safetensors_tensor *t, uint64_t *bytes) {
    if (!json_is_array(shape)) return WH_FAIL(WH_DATA, "%s: tensor %s: shape is not a list", file, t->name);
    if (json_array_size(shape) > WH_SAFETENSORS_DIMS)
        return WH_FAIL(WH_DATA, "%s: tensor %s has %zu dimensions; at most %d are read", file, t->name,
                       json_array_size(shape), WH_SAFETENSORS_DIMS);
    t->dims = (uint32_t)json_array_size(shape);
    *bytes = elem_bytes;
    for (uint32_t i = 0; i < t->dims; i++) {
        if (!size_from_json(json_array_get(shape, i), &t->shape[i]))
            return WH_FAIL(WH_DATA, "%s: tensor %s: shape[%u] is not a whole number from 0", file, t->name, i);
        if (__builtin_mul_overflow(*bytes, t->shape[i], bytes))
            return WH_FAIL(WH_DATA, "%s: tensor %s: the product of its shape exceeds 64 bits", file, t->name);
    }
    return WH_OK;
}

static enum wh_status parse_tensor(const char *name, const json_t *j, const char *file, size_t data_bytes,
                                   struct wh_safetensors_tensor *t) {
    size_t elem_bytes = 0;
    uint64_t begin, end, bytes = 0;
    const char *key;
    json_t *value;
    t->name = name;
    if (!json_is_object(j)) return WH_FAIL(WH_DATA, "%s: tensor %s is not described by an object", file, name);
    json_object_foreach((json_t *)(uintptr_t)j, key,
                        value) if (strcmp(key, "dtype") && strcmp(key, "shape") &&
                                   strcmp(key, "data_offsets")) return WH_FAIL(WH_DATA,
                                                                               "%s: tensor %s: unknown field %s", file,
                                                                               name, key);
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    if (!dtype || !dtype_from_name(dtype, &t->dtype, &elem_bytes))
        return WH_FAIL(WH_DATA, "%s: tensor %s: unknown dtype %s", file, name, dtype ? dtype : "(none)");
    WH_TRY(parse_shape(json_object_get(j, "shape"), file, elem_bytes, t, &bytes));
    const json_t *range = json_object_get(j, "data_offsets");
    if (json_array_size(range) != 2 || !size_from_json(json_array_get(range, 0), &begin) ||
        !size_from_json(json_array_get(range, 1), &end) || begin > end)
        return WH_FAIL(WH_DATA, "%s: tensor %s: data_offsets is not [begin, end]", file, name);
    if (end - begin != bytes)
        return WH_FAIL(WH_DATA, "%s: tensor %s needs %llu bytes, its range has %llu", file, name,
                       (unsigned long long)bytes, (unsigned long long)(end - begin));
    if (end > data_bytes)
        return WH_FAIL(WH_DATA, "%s is cut short: tensor %s ends at byte %llu of the data, which has %zu", file, name,
                       (unsigned long long)end, data_bytes);
    t->begin = (size_t)begin;
    t->bytes = (size_t)bytes;
    return WH_OK;
}

static int by_begin(const void *a, const void *b) {
    const struct wh_safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Every byte of the data belongs to exactly one tensor; `list` is sorted by begin. */
static enum wh_status check_tiling(const struct wh_safetensors_header *h, const char *file) {
    size_t end = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct wh_safetensors_tensor *t = &h->list[i];
        if (t->begin < end)
            return WH_FAIL(WH_DATA, "%s: tensors %s and %s overlap at byte %zu of the data", file, h->list[i - 1].name,
                           t->name, t->begin);
        if (t->begin > end)
            return WH_FAIL(WH_DATA, "%s: bytes %zu to %zu of the data, before tensor %s, belong to no tensor", file,
                           end, t->begin, t->name);
        end += t->bytes;
    }
    if (end != h->data_bytes)
        return WH_FAIL(WH_DATA, "%s: %zu bytes after the last tensor belong to no tensor", file, h->data_bytes - end);
    return WH_OK;
}

static enum wh_status parse_metadata(const json_t *j, const char *file, struct wh_safetensors_header *h) {
    const char *key;
    json_t *value;
    if (!json_is_object(j)) return WH_FAIL(WH_DATA, "%s: __metadata__ is not an object", file);
    h->metadata = calloc(json_object_size(j) + 1, sizeof *h->metadata);
    if (!h->metadata) return WH_FAIL(WH_NOMEM, "no memory for the header of %s", file);
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        if (!json_is_string(value)) return WH_FAIL(WH_DATA, "%s: __metadata__ key %s is not a string", file, key);
        h->metadata[h->metadata_count++] = (struct wh_safetensors_pair){key, json_string_value(value)};
    }
    return WH_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct wh_safetensors_tensor *const *)a)->name, (*(struct wh_safetensors_tensor *const *)b)->name);
}

static enum wh_status parse_object(json_t *json, const char *file, struct wh_safetensors_header *h) {
    const char *key;
    json_t *value;
    h->list = calloc(json_object_size(json) + 1, sizeof *h->list);
    h->by_name = calloc(json_object_size(json) + 1, sizeof *h->by_name);
    if (!h->list || !h->by_name) return WH_FAIL(WH_NOMEM, "no memory for the header of %s", file);
    json_object_foreach(json, key, value) {
        if (strcmp(key, "__metadata__") == 0)
            WH_TRY(parse_metadata(value, file, h));
        else
            WH_TRY(parse_tensor(key, value, file, h->data_bytes, &h->list[h->count++]));
    }
    qsort(h->list, h->count, sizeof *h->list, by_begin);
    for (size_t i = 0; i < h->count; i++) h->by_name[i] = &h->list[i];
    qsort(h->by_name, h->count, sizeof *h->by_name, by_name);
    return check_tiling(h, file);
}

enum wh_status wh_safetensors_parse(const unsigned char *data, size_t bytes, const char *file,
                                    struct wh_safetensors_header *out) {
    size_t length = 0;
    json_error_t error;
    WH_TRY(header_length(data, bytes, file, &length));
    const char *text = (const char *)data + 8;
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        if (json_error_code(&error) == json_error_duplicate_key)
            return duplicate_key(text, (size_t)error.position, file);
        return WH_FAIL(WH_DATA, "%s: header is not JSON: byte %d: %s", file, error.position, error.text);
    }
    struct wh_safetensors_header h = {.data_begin = 8 + length, .data_bytes = bytes - 8 - length, .json = json};
    enum wh_status status = parse_object(json, file, &h);
    if (status == WH_OK)
        *out = h;
    else
        wh_safetensors_header_free(&h);
    return status;
}

void wh_safetensors_header_free(struct wh_safetensors_header *h) {
    free(h->list);
    free(h->by_name);
    free(h->metadata);
    json_decref(h->json);
    *h = (struct wh_safetensors_header){0};
}

static int name_order(const void *name, const void *tensor) {
    return strcmp(name, (*(struct wh_safetensors_tensor *const *)tensor)->name);
}

const struct wh_safetensors_tensor *wh_safetensors_find(const struct wh_safetensors_header *h, const char *name) {
    struct wh_safetensors_tensor **t = bsearch(name, h->by_name, h->count, sizeof *h->by_name, name_order);
    return t ? *t : NULL;
}

const char *wh_safetensors_metadata(const struct wh_safetensors_header *h, const char *key) {
    for (size_t i = 0; i < h->metadata_count; i++)
        if (strcmp(h->metadata[i].key, key) == 0) return h->metadata[i].value;
    return NULL;
}

enum wh_status wh_safetensors_open(const char *path, struct wh_safetensors_file *out) {
    struct wh_safetensors_file f = {0};
    WH_TRY(wh_file_map(path, &f.map));
    enum wh_status status = wh_safetensors_parse(f.map.data, f.map.bytes, path, &f.header);
    if (status != WH_OK) {
        wh_file_unmap(&f.map);
        return status;
    }
    f.path = strdup(path);
    WH_ASSERT(f.path != NULL);
    f.data = f.map.data + f.header.data_begin;
    *out = f;
    return WH_OK;
}

void wh_safetensors_close(struct wh_safetensors_file *f) {
    wh_safetensors_header_free(&f->header);
    wh_file_unmap(&f->map);
    free(f->path);
    *f = (struct wh_safetensors_file){0};
}
