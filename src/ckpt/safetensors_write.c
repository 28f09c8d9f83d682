#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/text.h"
#include "ckpt/safetensors.h"

/* Data is hashed and handed on in pieces that are still in cache when the file takes them. */
enum { PIECE_BYTES = 1 << 20 };

static void add_quoted(struct wh_text *t, const char *s) {
    json_t *json = json_string(s);
    char *quoted = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
    WH_ASSERT(quoted != NULL);
    wh_text_add(t, "%s", quoted);
    free(quoted);
    json_decref(json);
}

static void add_tensor(struct wh_text *t, const struct wh_safetensors_tensor *tensor) {
    add_quoted(t, tensor->name);
    wh_text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", wh_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->dims; i++)
        wh_text_add(t, "%s%llu", i ? "," : "", (unsigned long long)tensor->shape[i]);
    wh_text_add(t, "],\"data_offsets\":[%zu,%zu]}", tensor->begin, tensor->begin + tensor->bytes);
}

static void build_header(const struct wh_safetensors_tensor *list, size_t count,
                         const struct wh_safetensors_pair *metadata, size_t metadata_count, struct wh_text *t) {
    const char *separator = "";
    wh_text_add(t, "{");
    if (metadata_count) {
        wh_text_add(t, "\"__metadata__\":");
        for (size_t i = 0; i < metadata_count; i++) {
            wh_text_add(t, i ? "," : "{");
            add_quoted(t, metadata[i].key);
            wh_text_add(t, ":");
            add_quoted(t, metadata[i].value);
        }
        wh_text_add(t, "}");
        separator = ",";
    }
    for (size_t i = 0; i < count; i++, separator = ",") {
        wh_text_add(t, "%s", separator);
        add_tensor(t, &list[i]);
    }
    wh_text_add(t, "}");
    while ((8 + t->bytes) % WH_SAFETENSORS_ALIGN) wh_text_add(t, " ");
}

static void place(struct wh_safetensors_tensor *list, size_t count) {
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        list[i].bytes = wh_dtype_bytes(list[i].dtype);
        for (uint32_t k = 0; k < list[i].dims; k++) list[i].bytes *= (size_t)list[i].shape[k];
        list[i].begin = end;
        end += list[i].bytes;
    }
}

/* Empty tensors have no data to wait for. */
static void finish_tensors(struct wh_safetensors_writer *w) {
    while (w->current < w->count && w->current_bytes == w->list[w->current].bytes) {
        w->tensor_xxh3[w->current++] = XXH3_64bits_digest(w->tensor_hash);
        XXH3_64bits_reset(w->tensor_hash);
        w->current_bytes = 0;
    }
}

static enum wh_status write_hashed(struct wh_safetensors_writer *w, const void *data, size_t bytes) {
    XXH3_64bits_update(w->file_hash, data, bytes);
    return wh_file_write(&w->file, data, bytes);
}

static enum wh_status write_header(struct wh_safetensors_writer *w, const struct wh_text *header) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header->bytes >> 8 * i);
    WH_TRY(write_hashed(w, length, sizeof length));
    return write_hashed(w, header->data, header->bytes);
}

enum wh_status wh_safetensors_create(const char *path, struct wh_safetensors_tensor *list, size_t count,
                                     const struct wh_safetensors_pair *metadata, size_t metadata_count,
                                     uint64_t *tensor_xxh3, struct wh_safetensors_writer *out) {
    struct wh_safetensors_writer w = {.list = list, .count = count, .tensor_xxh3 = tensor_xxh3};
    struct wh_text header = {0};
    place(list, count);
    WH_TRY(wh_file_create(path, &w.file));
    w.file_hash = XXH3_createState();
    w.tensor_hash = XXH3_createState();
    WH_ASSERT(w.file_hash && w.tensor_hash);
    XXH3_64bits_reset(w.file_hash);
    XXH3_64bits_reset(w.tensor_hash);
    build_header(list, count, metadata, metadata_count, &header);
    enum wh_status status = write_header(&w, &header);
    wh_text_fini(&header);
    finish_tensors(&w);
    if (status == WH_OK)
        *out = w;
    else
        wh_safetensors_abandon(&w);
    return status;
}

enum wh_status wh_safetensors_write(struct wh_safetensors_writer *w, const void *data, size_t bytes) {
    const unsigned char *p = data;
    while (bytes) {
        WH_ASSERT(w->current < w->count);
        size_t n = w->list[w->current].bytes - w->current_bytes;
        if (n > bytes) n = bytes;
        if (n > PIECE_BYTES) n = PIECE_BYTES;
        XXH3_64bits_update(w->tensor_hash, p, n);
        WH_TRY(write_hashed(w, p, n));
        w->current_bytes += n;
        finish_tensors(w);
        p += n;
        bytes -= n;
    }
    return WH_OK;
}

static void free_hashes(struct wh_safetensors_writer *w) {
    XXH3_freeState(w->file_hash);
    XXH3_freeState(w->tensor_hash);
    *w = (struct wh_safetensors_writer){.file.fd = -1};
}

enum wh_status wh_safetensors_commit(struct wh_safetensors_writer *w, size_t *file_bytes, uint64_t *file_xxh3) {
    WH_ASSERT(w->current == w->count);
    size_t bytes = w->file.written_bytes;
    uint64_t hash = XXH3_64bits_digest(w->file_hash);
    enum wh_status status = wh_file_commit(&w->file);
    free_hashes(w);
    if (status != WH_OK) return status;
    *file_bytes = bytes;
    *file_xxh3 = hash;
    return WH_OK;
}

void wh_safetensors_abandon(struct wh_safetensors_writer *w) {
    wh_file_abandon(&w->file);
    free_hashes(w);
}
