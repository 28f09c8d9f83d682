#include <stdlib.h>
#include <string.h>

#include "ckpt/hf.h"
#include "ckpt/hf_names.h"
#include "ckpt/hf_source.h"

enum { CONFIG_LIMIT_BYTES = 1 << 24, TILE = 64 };

enum wh_status wh_hf_read_config(const char *folder, struct wh_hf_config *out, struct wh_text *notes) {
    char *path = wh_path_join(folder, "config.json"), *text;
    size_t bytes;
    enum wh_status status = wh_file_read(path, CONFIG_LIMIT_BYTES, &text, &bytes);
    if (status == WH_OK) {
        status = wh_hf_config_parse(text, bytes, path, out, notes);
        free(text);
    }
    free(path);
    return status;
}

/* `from` has any alignment. Exact for all three formats. */
static void widen(enum wh_dtype dtype, const unsigned char *from, size_t n, float *to) {
    uint16_t h;
    if (dtype == WH_F32) memcpy(to, from, 4 * n);
    for (size_t i = 0; dtype == WH_BF16 && i < n; i++) memcpy(&h, from + 2 * i, 2), to[i] = wh_bf16_to_f32(h);
    for (size_t i = 0; dtype == WH_F16 && i < n; i++) memcpy(&h, from + 2 * i, 2), to[i] = wh_f16_to_f32(h);
}

/* The file's [cols, rows] into [rows, cols], in square tiles. */
static void widen_transposed(enum wh_dtype dtype, const unsigned char *from, size_t rows, size_t cols, float *to) {
    float tile[TILE][TILE];
    size_t elem = wh_dtype_bytes(dtype);
    for (size_t c0 = 0; c0 < cols; c0 += TILE) {
        size_t cn = cols - c0 < TILE ? cols - c0 : TILE;
        for (size_t r0 = 0; r0 < rows; r0 += TILE) {
            size_t rn = rows - r0 < TILE ? rows - r0 : TILE;
            for (size_t c = 0; c < cn; c++) widen(dtype, from + ((c0 + c) * rows + r0) * elem, rn, tile[c]);
            for (size_t r = 0; r < rn; r++)
                for (size_t c = 0; c < cn; c++) to[(r0 + r) * cols + c0 + c] = tile[c][r];
        }
    }
}

static struct wh_hf_entry *find_entry(const struct wh_hf_source *s, const struct wh_hf_tensor *t) {
    struct wh_hf_entry *e = wh_hf_source_find(s, t->name);
    return e ? e : wh_hf_source_find(s, t->short_name);
}

static void add_shape(struct wh_text *out, const uint64_t *shape, uint32_t dims) {
    wh_text_add(out, "[");
    for (uint32_t i = 0; i < dims; i++) wh_text_add(out, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    wh_text_add(out, "]");
}

static void check_entry(const struct wh_hf_entry *e, const struct wh_hf_tensor *t, struct wh_faults *faults) {
    const struct wh_safetensors_tensor *have = e->tensor;
    uint64_t want[2] = {t->transposed ? t->cols : t->rows, t->transposed ? t->rows : t->cols};
    uint32_t dims = t->cols ? 2 : 1;
    if (have->dims != dims || memcmp(have->shape, want, dims * sizeof *want) != 0) {
        struct wh_text text = {0};
        add_shape(&text, have->shape, have->dims);
        wh_text_add(&text, "; config.json makes it ");
        add_shape(&text, want, dims);
        wh_faults_add(faults, e->file->path, 0, "tensor %s is %s", e->name, text.data);
        wh_text_fini(&text);
    }
    if (have->dtype != WH_F32 && have->dtype != WH_BF16 && have->dtype != WH_F16)
        wh_faults_add(faults, e->file->path, 0, "tensor %s is neither F32, BF16 nor F16", e->name);
}

static void missing(const char *folder, const struct wh_hf_source *s, const struct wh_hf_tensor *t,
                    struct wh_faults *faults) {
    const char *file = wh_hf_source_unlisted(s, t->name);
    if (!file) file = wh_hf_source_unlisted(s, t->short_name);
    if (file)
        wh_faults_add(faults, folder, 0, "tensor %s, which the model needs, is in %s but not in the index", t->name,
                      file);
    else if (strcmp(t->name, "lm_head.weight") == 0)
        wh_faults_add(faults, folder, 0,
                      "tensor lm_head.weight is missing, and the embedding is not tied to the head "
                      "(tie_word_embeddings is false or left to the family's default)");
    else
        wh_faults_add(faults, folder, 0, "tensor %s, which the model needs, is missing", t->name);
}

/* Tied, and the file has the head too: fine if it is the same matrix (cases B55, B77). */
static void check_second_copy(const struct wh_hf_source *s, const struct wh_hf_tensor *embedding,
                              struct wh_faults *faults, struct wh_text *notes) {
    struct wh_hf_entry *head = wh_hf_source_find(s, "lm_head.weight"), *e = find_entry(s, embedding);
    if (!head || !e) return;
    head->used = true;
    if (head->tensor->dtype == e->tensor->dtype && head->tensor->bytes == e->tensor->bytes &&
        memcmp(wh_hf_entry_data(head), wh_hf_entry_data(e), e->tensor->bytes) == 0) {
        if (notes) wh_text_add(notes, "lm_head.weight is a copy of %s and the model is tied: read once\n", e->name);
        return;
    }
    wh_faults_add(faults, head->file->path, 0,
                  "lm_head.weight differs from %s though the model is tied; set "
                  "tie_word_embeddings in config.json to false, or remove lm_head.weight",
                  e->name);
}

static void check_leftovers(const struct wh_hf_source *s, struct wh_faults *faults, struct wh_text *notes) {
    size_t ignored = 0;
    for (size_t i = 0; i < s->entry_count; i++) {
        const struct wh_hf_entry *e = &s->entries[i];
        if (e->used) continue;
        if (wh_hf_is_harmless(e->name))
            ignored++;
        else
            wh_faults_add(faults, e->file->path, 0, "tensor %s has no place in the model", e->name);
    }
    if (ignored && notes)
        wh_text_add(notes, "%zu tensors that are no weights (masks, inverse frequencies) were left out\n", ignored);
}

static enum wh_status check_all(const char *folder, const struct wh_model *model, const struct wh_hf_source *s,
                                const struct wh_hf_tensor *list, size_t count, struct wh_text *notes) {
    struct wh_faults faults = {0};
    for (size_t i = 0; i < count; i++) {
        struct wh_hf_entry *e = find_entry(s, &list[i]);
        if (!e) {
            missing(folder, s, &list[i], &faults);
            continue;
        }
        e->used = true;
        check_entry(e, &list[i], &faults);
    }
    if (model->tied) check_second_copy(s, &list[0], &faults, notes);
    check_leftovers(s, &faults, notes);
    return wh_faults_status(&faults, WH_DATA);
}

static void copy_all(const struct wh_hf_source *s, const struct wh_hf_tensor *list, size_t count, float *weights) {
    for (size_t i = 0; i < count; i++) {
        const struct wh_hf_tensor *t = &list[i];
        const struct wh_hf_entry *e = find_entry(s, t);
        if (t->transposed)
            widen_transposed(e->tensor->dtype, wh_hf_entry_data(e), t->rows, t->cols, weights + t->offset);
        else
            widen(e->tensor->dtype, wh_hf_entry_data(e), t->elems, weights + t->offset);
    }
}

enum wh_status wh_hf_import(const char *folder, const struct wh_model *model, const struct wh_params *params,
                            float *weights, struct wh_text *notes) {
    struct wh_hf_source s;
    struct wh_hf_tensor *list;
    size_t count;
    WH_TRY(wh_hf_source_open(folder, &s));
    enum wh_status status = wh_hf_tensors(model, params, &list, &count);
    if (status == WH_OK) {
        status = check_all(folder, model, &s, list, count, notes);
        if (status == WH_OK) copy_all(&s, list, count, weights);
        free(list);
    }
    wh_hf_source_close(&s);
    return status;
}
