#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf.h"
#include "ckpt/hf_names.h"
#include "ckpt/safetensors.h"

enum { PANEL_ROWS = 64, PIECE_ELEMS = 1 << 18, FILE_NAME_BYTES = 64 };

struct job {
    const struct wh_hf_tensor *list;
    size_t count;
    const float *weights;
    enum wh_dtype dtype;
    float *panel;          /* PANEL_ROWS rows of the largest transposed tensor */
    unsigned char *narrow; /* PIECE_ELEMS values in `dtype` */
};

static size_t tensor_bytes(const struct job *j, const struct wh_hf_tensor *t) {
    return t->elems * wh_dtype_bytes(j->dtype);
}

static void narrow(enum wh_dtype dtype, const float *from, size_t n, unsigned char *to) {
    uint16_t *h = (uint16_t *)(void *)to;
    if (dtype == WH_F32) memcpy(to, from, 4 * n);
    for (size_t i = 0; dtype == WH_BF16 && i < n; i++) h[i] = wh_f32_to_bf16(from[i]);
    for (size_t i = 0; dtype == WH_F16 && i < n; i++) h[i] = wh_f32_to_f16(from[i]);
}

static enum wh_status write_values(struct job *j, struct wh_safetensors_writer *w, const float *values, size_t n) {
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < PIECE_ELEMS ? n - done : PIECE_ELEMS;
        narrow(j->dtype, values + done, piece, j->narrow);
        WH_TRY(wh_safetensors_write(w, j->narrow, piece * wh_dtype_bytes(j->dtype)));
        done += piece;
    }
    return WH_OK;
}

/* The file has [cols, rows]: PANEL_ROWS of its rows at a time. */
static enum wh_status write_transposed(struct job *j, struct wh_safetensors_writer *w, const struct wh_hf_tensor *t) {
    const float *from = j->weights + t->offset;
    for (size_t c0 = 0; c0 < t->cols; c0 += PANEL_ROWS) {
        size_t cn = t->cols - c0 < PANEL_ROWS ? t->cols - c0 : PANEL_ROWS;
        for (size_t r = 0; r < t->rows; r++)
            for (size_t c = 0; c < cn; c++) j->panel[c * t->rows + r] = from[r * t->cols + c0 + c];
        WH_TRY(write_values(j, w, j->panel, cn * t->rows));
    }
    return WH_OK;
}

static enum wh_status write_tensors(struct job *j, struct wh_safetensors_writer *w, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        const struct wh_hf_tensor *t = &j->list[i];
        if (t->transposed)
            WH_TRY(write_transposed(j, w, t));
        else
            WH_TRY(write_values(j, w, j->weights + t->offset, t->elems));
    }
    return WH_OK;
}

/* Tensors first..end-1 as one file. "format": "pt" is what transformers asks for. */
static enum wh_status write_part(struct job *j, const char *path, size_t first, size_t end) {
    const struct wh_safetensors_pair metadata[] = {{"format", "pt"}};
    struct wh_safetensors_tensor *list = calloc(end - first, sizeof *list);
    uint64_t *hashes = calloc(end - first, sizeof *hashes), xxh3;
    struct wh_safetensors_writer w;
    size_t bytes;
    WH_ASSERT(list && hashes);
    for (size_t i = first; i < end; i++) {
        const struct wh_hf_tensor *t = &j->list[i];
        list[i - first] = (struct wh_safetensors_tensor){
            .name = t->name,
            .dtype = j->dtype,
            .dims = t->cols ? 2 : 1,
            .shape = {t->transposed ? t->cols : t->rows, t->transposed ? t->rows : t->cols}};
    }
    enum wh_status status = wh_safetensors_create(path, list, end - first, metadata, 1, hashes, &w);
    if (status == WH_OK) {
        status = write_tensors(j, &w, first, end);
        if (status == WH_OK)
            status = wh_safetensors_commit(&w, &bytes, &xxh3);
        else
            wh_safetensors_abandon(&w);
    }
    free(list);
    free(hashes);
    return status;
}

/* The first tensor behind the part that begins with `first`. */
static size_t part_end(const struct job *j, size_t first, uint64_t max_bytes) {
    size_t i = first;
    uint64_t bytes = 0;
    do bytes += tensor_bytes(j, &j->list[i++]);
    while (i < j->count && (!max_bytes || bytes + tensor_bytes(j, &j->list[i]) <= max_bytes));
    return i;
}

static void part_name(size_t part, size_t parts, char out[FILE_NAME_BYTES]) {
    if (parts == 1)
        snprintf(out, FILE_NAME_BYTES, "model.safetensors");
    else
        snprintf(out, FILE_NAME_BYTES, "model-%05zu-of-%05zu.safetensors", part + 1, parts);
}

static enum wh_status write_text(const char *folder, const char *name, const struct wh_text *text) {
    char *path = wh_path_join(folder, name);
    enum wh_status status = wh_file_write_all(path, text->data, text->bytes);
    free(path);
    return status;
}

static enum wh_status write_parts(struct job *j, const char *folder, uint64_t max_bytes) {
    size_t parts = 0, total = 0, part = 0;
    struct wh_text map = {0}, index = {0};
    char name[FILE_NAME_BYTES];
    enum wh_status status = WH_OK;
    for (size_t i = 0; i < j->count; i = part_end(j, i, max_bytes)) parts++;
    for (size_t i = 0, end; i < j->count && status == WH_OK; i = end, part++) {
        end = part_end(j, i, max_bytes);
        part_name(part, parts, name);
        char *path = wh_path_join(folder, name);
        status = write_part(j, path, i, end);
        free(path);
        for (size_t k = i; k < end; k++) {
            wh_text_add(&map, "%s    \"%s\": \"%s\"", k ? ",\n" : "", j->list[k].name, name);
            total += tensor_bytes(j, &j->list[k]);
        }
    }
    if (status == WH_OK && parts > 1) {
        wh_text_add(&index, "{\n  \"metadata\": {\"total_size\": %zu},\n  \"weight_map\": {\n%s\n  }\n}\n", total,
                    map.data);
        status = write_text(folder, "model.safetensors.index.json", &index);
    }
    wh_text_fini(&map);
    wh_text_fini(&index);
    return status;
}

/* Beyond the largest half (65504, rounding included) a finite value would become infinity in silence. */
static enum wh_status check_range(const struct job *j) {
    struct wh_faults faults = {0};
    for (size_t i = 0; j->dtype == WH_F16 && i < j->count; i++)
        for (size_t k = 0; k < j->list[i].elems; k++) {
            float x = j->weights[j->list[i].offset + k];
            if (!isfinite(x) || fabsf(x) < 65520.0f) continue;
            wh_faults_add(&faults, NULL, 0, "tensor %s: %g does not fit F16; export as BF16 or F32", j->list[i].name,
                          (double)x);
            break;
        }
    return wh_faults_status(&faults, WH_UNSUPPORTED);
}

static size_t panel_elems(const struct job *j) {
    size_t most = 1;
    for (size_t i = 0; i < j->count; i++)
        if (j->list[i].transposed && j->list[i].rows > most) most = j->list[i].rows;
    return most * PANEL_ROWS;
}

static enum wh_status write_folder(struct job *j, const char *folder, const struct wh_text *config,
                                   uint64_t max_bytes) {
    char *part;
    WH_TRY(wh_dir_begin(folder, &part));
    j->panel = malloc(panel_elems(j) * sizeof *j->panel);
    j->narrow = malloc(PIECE_ELEMS * wh_dtype_bytes(j->dtype));
    enum wh_status status = j->panel && j->narrow ? WH_OK : WH_FAIL(WH_NOMEM, "no memory for the buffers of an export");
    if (status == WH_OK) status = write_parts(j, part, max_bytes);
    if (status == WH_OK) status = write_text(part, "config.json", config);
    free(j->panel);
    free(j->narrow);
    if (status == WH_OK) return wh_dir_commit(part, folder);
    wh_dir_abandon(part);
    return status;
}

enum wh_status wh_hf_export(const char *folder, const struct wh_hf_config *config, const struct wh_params *params,
                            const float *weights, uint64_t max_part_bytes) {
    struct wh_text text = {0};
    struct wh_hf_tensor *list = NULL;
    struct job j = {.weights = weights, .dtype = config->dtype};
    enum wh_status status = wh_hf_config_write(config, false, &text);
    if (status == WH_OK) status = wh_hf_tensors(&config->model, params, &list, &j.count);
    j.list = list;
    if (status == WH_OK) status = check_range(&j);
    if (status == WH_OK) status = write_folder(&j, folder, &text, max_part_bytes);
    free(list);
    wh_text_fini(&text);
    return status;
}
