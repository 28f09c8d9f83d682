#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "arch/hf_config.h"
#include "ckpt/checkpoint.h"
#include "ckpt/gather.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "ckpt/steps.h"
#include "comm/comm.h"
#include "os/file.h"

static void add_state(const struct wh_ckpt_state *s, struct wh_text *out) {
    wh_text_add(out, "  \"step\": %llu,\n  \"samples\": %llu,\n  \"tokens\": %llu,\n  \"data_position\": %llu,\n",
                (unsigned long long)s->step, (unsigned long long)s->samples, (unsigned long long)s->tokens,
                (unsigned long long)s->data_position);
    wh_text_add(out, "  \"optimizer_step\": %llu,\n  \"seed\": \"%llu\"\n}\n", (unsigned long long)s->optimizer_step,
                (unsigned long long)s->seed);
}

/* The save id names what was saved, not when: a hash of config and state. Every part carries it (case B44). */
static void save_id(const struct wh_text *config, const struct wh_text *state, char out[WH_CKPT_ID_BYTES]) {
    uint64_t h = XXH3_64bits_withSeed(state->data, state->bytes, XXH3_64bits(config->data, config->bytes));
    snprintf(out, WH_CKPT_ID_BYTES, "%016llx", (unsigned long long)h);
}

static struct wh_ckpt_file *add_file(struct wh_ckpt_manifest *m, const char *name) {
    struct wh_ckpt_file *f = &m->files[m->file_count++];
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

static enum wh_status write_text(const char *folder, const char *name, const struct wh_text *text,
                                 struct wh_ckpt_manifest *m) {
    char *path = wh_path_join(folder, name);
    enum wh_status status = wh_file_write_all(path, text->data, text->bytes);
    free(path);
    if (status != WH_OK) return status;
    struct wh_ckpt_file *f = add_file(m, name);
    f->bytes = text->bytes;
    f->xxh3 = XXH3_64bits(text->data, text->bytes);
    return WH_OK;
}

static struct wh_safetensors_tensor *describe(const struct wh_params *p) {
    struct wh_safetensors_tensor *list = calloc(p->count, sizeof *list);
    WH_ASSERT(list != NULL);
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_param *q = &p->list[i];
        list[i] = (struct wh_safetensors_tensor){.name = q->name, .dtype = WH_F32, .dims = q->cols ? 2 : 1};
        list[i].shape[0] = q->rows;
        list[i].shape[1] = q->cols;
    }
    return list;
}

static enum wh_status stream(struct wh_safetensors_writer *w, const struct wh_ckpt_gather *g,
                             enum wh_ckpt_class class) {
    const struct wh_params *p = g->view->params;
    for (size_t i = 0; i < p->count; i++) {
        WH_TRY(wh_ckpt_gather_sign(g));
        for (size_t at = 0, n; at < p->list[i].elems; at += n) {
            const float *values;
            WH_TRY(wh_ckpt_gather_piece(g, class, i, at, &values, &n));
            WH_TRY(wh_safetensors_write(w, values, n * sizeof *values));
        }
    }
    return WH_OK;
}

/* Into the manifest: a file that was written and its tensors. */
static void record(struct wh_ckpt_manifest *m, const char *name, uint64_t bytes, uint64_t xxh3,
                   const struct wh_params *p, const uint64_t *tensor_xxh3) {
    for (size_t i = 0; i < p->count; i++) {
        struct wh_ckpt_tensor *t = &m->tensors[m->tensor_count++];
        *t = (struct wh_ckpt_tensor){.file = m->file_count, .xxh3 = tensor_xxh3[i]};
        memcpy(t->name, p->list[i].name, sizeof t->name);
    }
    struct wh_ckpt_file *f = add_file(m, name);
    f->bytes = bytes;
    f->xxh3 = xxh3;
}

/* One class of state: NAME.safetensors with all tensors of the table in its order. */
static enum wh_status write_class(const char *folder, enum wh_ckpt_class class, const struct wh_ckpt_gather *g,
                                  struct wh_ckpt_manifest *m) {
    static const char *const names[WH_CKPT_CLASSES] = {"weights", "adam_m", "adam_v"};
    const struct wh_params *p = g->view->params;
    char file[WH_CKPT_FILE_NAME_BYTES], step[24];
    snprintf(file, sizeof file, "%s.safetensors", names[class]);
    snprintf(step, sizeof step, "%llu", (unsigned long long)m->step);
    const struct wh_safetensors_pair metadata[] = {
        {"format", "wanhe-checkpoint"}, {"content", names[class]}, {"step", step}, {"save_id", m->save_id}};
    struct wh_safetensors_tensor *list = describe(p);
    uint64_t *hashes = calloc(p->count, sizeof *hashes), xxh3;
    size_t bytes;
    struct wh_safetensors_writer w;
    WH_ASSERT(hashes != NULL);
    char *path = wh_path_join(folder, file);
    enum wh_status status = wh_safetensors_create(path, list, p->count, metadata, 4, hashes, &w);
    if (status == WH_OK) {
        status = stream(&w, g, class);
        if (status == WH_OK)
            status = wh_safetensors_commit(&w, &bytes, &xxh3);
        else
            wh_safetensors_abandon(&w);
    }
    if (status == WH_OK) record(m, file, bytes, xxh3, p, hashes);
    free(path);
    free(hashes);
    free(list);
    return status;
}

static enum wh_status write_manifest(const char *folder, const struct wh_ckpt_manifest *m) {
    struct wh_text text = {0};
    wh_ckpt_manifest_write(m, &text);
    char *path = wh_path_join(folder, "manifest.json");
    enum wh_status status = wh_file_write_all(path, text.data, text.bytes);
    free(path);
    wh_text_fini(&text);
    return status;
}

static bool has_moments(const struct wh_ckpt_view *v) { return v->m.data && v->v.data; }

static enum wh_status write_classes(const char *folder, const struct wh_ckpt_gather *g, struct wh_ckpt_manifest *m) {
    const int count = has_moments(g->view) ? WH_CKPT_CLASSES : 1;
    for (int c = 0; c < count; c++) WH_TRY(write_class(folder, (enum wh_ckpt_class)c, g, m));
    return WH_OK;
}

static enum wh_status write_files(const char *folder, const struct wh_ckpt_view *v, struct wh_ckpt_manifest *m,
                                  const struct wh_text *config, const struct wh_text *state) {
    struct wh_ckpt_gather g;
    wh_ckpt_gather_begin(v, &g);
    enum wh_status status = write_classes(folder, &g, m);
    wh_ckpt_gather_free(&g);
    WH_TRY(status);
    WH_TRY(write_text(folder, "config.json", config, m));
    WH_TRY(write_text(folder, "state.json", state, m));
    WH_TRY(write_manifest(folder, m));
    return wh_dir_sync(folder);
}

/* Everything into `folder`, which is there and empty. */
static enum wh_status fill(const char *folder, const struct wh_ckpt_view *v) {
    struct wh_hf_config description = {.model = *v->model, .dtype = WH_F32, .grain = v->grain, .compute = v->compute};
    struct wh_text config = {0}, values = {0}, state = {0};
    struct wh_ckpt_manifest m = {.step = v->state.step};
    WH_TRY(wh_hf_config_write(&description, true, &config));
    add_state(&v->state, &values);
    save_id(&config, &values, m.save_id);
    wh_text_add(&state, "{\n  \"version\": %d,\n  \"save_id\": \"%s\",\n%s", WH_CKPT_VERSION, m.save_id, values.data);
    m.tensors = calloc(3 * v->params->count, sizeof *m.tensors);
    WH_ASSERT(m.tensors != NULL);
    enum wh_status status = write_files(folder, v, &m, &config, &state);
    wh_ckpt_manifest_free(&m);
    wh_text_fini(&config);
    wh_text_fini(&values);
    wh_text_fini(&state);
    return status;
}

uint64_t wh_ckpt_bytes(const struct wh_params *params, bool moments) {
    uint64_t classes = moments ? 3 : 1, per_tensor = 512; /* header and manifest entry, at most */
    return classes * (4 * (uint64_t)params->elems + per_tensor * params->count) + (1u << 16);
}

enum wh_status wh_ckpt_check_space(const char *folder, uint64_t needed_bytes) {
    uint64_t available;
    WH_TRY(wh_dir_free_bytes(folder, &available));
    if (needed_bytes > available)
        return WH_FAIL(WH_IO, "no room for a checkpoint in %s: %llu bytes are needed and %llu are free", folder,
                       (unsigned long long)needed_bytes, (unsigned long long)available);
    return WH_OK;
}

/* Fills folder `part` on the file system of `parent`; says how much room was needed if it fails. */
static enum wh_status fill_checked(const char *part, const char *parent, const struct wh_ckpt_view *v) {
    uint64_t needed = wh_ckpt_bytes(v->params, has_moments(v)), available = 0;
    WH_TRY(wh_ckpt_check_space(parent, needed));
    enum wh_status status = fill(part, v);
    if (status != WH_IO) return status;
    struct wh_error first = *wh_error();
    bool known = wh_dir_free_bytes(parent, &available) == WH_OK;
    *wh_error() = first;
    if (!known) return status;
    return wh_while(status, "saving a checkpoint: %llu bytes are needed, %llu are free", (unsigned long long)needed,
                    (unsigned long long)available);
}

enum wh_status wh_ckpt_write(const char *path, const struct wh_ckpt_view *view) {
    char *part;
    WH_ASSERT(!view->comm && !view->holding);
    WH_TRY(wh_dir_begin(path, &part));
    enum wh_status status = fill_checked(part, part, view);
    if (status == WH_OK) return wh_dir_commit(part, path);
    wh_dir_abandon(part);
    return status;
}

static enum wh_status write_latest(const char *folder, uint64_t step) {
    char line[32];
    int n = snprintf(line, sizeof line, "step-%08llu\n", (unsigned long long)step);
    char *path = wh_path_join(folder, "latest");
    enum wh_status status = wh_file_write_all(path, line, (size_t)n);
    free(path);
    return status == WH_OK ? wh_dir_sync(folder) : status;
}

/* Writes the folder of the step, aside, then in place. */
static enum wh_status publish(const char *folder, const struct wh_ckpt_view *view) {
    char *target = wh_ckpt_step_path(folder, view->state.step), *part = wh_path_suffix(target, ".part");
    enum wh_status status = wh_dir_create(part);
    if (status == WH_OK) status = fill_checked(part, folder, view);
    if (status == WH_OK) status = wh_file_exists(target) ? wh_dir_replace(part, target) : wh_file_rename(part, target);
    if (status == WH_OK)
        free(part);
    else
        wh_dir_abandon(part);
    free(target);
    return status == WH_OK ? wh_dir_sync(folder) : status;
}

static enum wh_status save_alone(const char *run, const struct wh_ckpt_view *view, uint32_t keep_last,
                                 struct wh_text *remarks) {
    char *folder = wh_path_join(run, "checkpoints");
    enum wh_status status = wh_dir_create(folder);
    if (status == WH_OK) wh_ckpt_clean(folder, remarks);
    if (status == WH_OK) status = publish(folder, view);
    if (status == WH_OK) status = write_latest(folder, view->state.step);
    if (status == WH_OK) wh_ckpt_retain(folder, view->state.step, keep_last, remarks);
    free(folder);
    return status;
}

enum wh_status wh_ckpt_save(const char *run, const struct wh_ckpt_view *view, uint32_t keep_last,
                            struct wh_text *remarks) {
    WH_ASSERT(!view->params->whole && (!view->holding || view->comm));
    if (view->comm && wh_comm_rank(view->comm) != 0) return wh_ckpt_gather_serve(view);
    return wh_ckpt_gather_end(view, save_alone(run, view, keep_last, remarks));
}
