#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "arch/hf_config.h"
#include "arch/part.h"
#include "ckpt/checkpoint.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "os/file.h"

enum { TEXT_LIMIT_BYTES = 1 << 24 };

/* The readers of safetensors and JSON call bad content DATA or CONFIG; inside a checkpoint it is damage (exit code 6).
 */
static enum wh_status as_damage(enum wh_status status) {
    if (status == WH_DATA || status == WH_CONFIG) status = wh_error()->code = WH_DAMAGED;
    return status;
}

/* A small file of the checkpoint, its hash verified; malloc'd. */
static enum wh_status read_verified(const char *folder, const struct wh_ckpt_manifest *m, const char *name, char **text,
                                    size_t *bytes, char **path) {
    const struct wh_ckpt_file *f = wh_ckpt_manifest_file(m, name);
    if (!f) return WH_FAIL(WH_DAMAGED, "%s has no %s", folder, name);
    char *p = wh_path_join(folder, name);
    enum wh_status status = wh_file_read(p, TEXT_LIMIT_BYTES, text, bytes);
    if (status == WH_OK && XXH3_64bits(*text, *bytes) != f->xxh3) {
        status = WH_FAIL(WH_DAMAGED, "%s is damaged: its hash is not the manifest's", p);
        free(*text);
    }
    if (status == WH_OK)
        *path = p;
    else
        free(p);
    return as_damage(status);
}

static bool read_count(const json_t *json, const char *key, uint64_t *out) {
    const json_t *j = json_object_get(json, key);
    *out = json_is_integer(j) ? (uint64_t)json_integer_value(j) : 0;
    return json_is_integer(j) && json_integer_value(j) >= 0;
}

static enum wh_status parse_state(const char *text, size_t bytes, const char *path, const struct wh_ckpt_manifest *m,
                                  struct wh_ckpt_state *s) {
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(json, "save_id"));
    const char *seed = json_string_value(json_object_get(json, "seed"));
    enum wh_status status = WH_OK;
    if (!read_count(json, "step", &s->step) || !read_count(json, "samples", &s->samples) ||
        !read_count(json, "tokens", &s->tokens) || !read_count(json, "data_position", &s->data_position) ||
        !read_count(json, "optimizer_step", &s->optimizer_step) || !seed || !id)
        status = WH_FAIL(WH_DAMAGED, "%s: a field is missing or has an impossible value", path);
    else if (strcmp(id, m->save_id) != 0 || s->step != m->step)
        status = WH_FAIL(WH_DAMAGED,
                         "%s is of step %llu (save %s), its manifest of step %llu (save %s): parts of two checkpoints",
                         path, (unsigned long long)s->step, id, (unsigned long long)m->step, m->save_id);
    else
        s->seed = strtoull(seed, NULL, 10);
    json_decref(json);
    return status;
}

static enum wh_status read_state(const char *folder, const struct wh_ckpt_manifest *m, struct wh_ckpt_state *out) {
    char *text, *path;
    size_t bytes;
    WH_TRY(read_verified(folder, m, "state.json", &text, &bytes, &path));
    enum wh_status status = parse_state(text, bytes, path, m, out);
    free(text);
    free(path);
    return status;
}

static enum wh_status read_config(const char *folder, const struct wh_ckpt_manifest *m, struct wh_hf_config *out) {
    char *text, *path;
    size_t bytes;
    WH_TRY(read_verified(folder, m, "config.json", &text, &bytes, &path));
    enum wh_status status = as_damage(wh_hf_config_parse(text, bytes, path, out, NULL));
    if (status == WH_OK && !out->ours) status = WH_FAIL(WH_DAMAGED, "%s has no \"wanhe\" object", path);
    free(text);
    free(path);
    return status;
}

enum wh_status wh_ckpt_read(const char *folder, struct wh_ckpt_info *out) {
    struct wh_ckpt_manifest m;
    struct wh_ckpt_info info = {0};
    struct wh_hf_config config;
    WH_TRY(wh_ckpt_manifest_read(folder, &m));
    enum wh_status status = read_state(folder, &m, &info.state);
    if (status == WH_OK) status = read_config(folder, &m, &config);
    if (status == WH_OK) {
        info.model = config.model;
        info.grain = config.grain;
        info.compute = config.compute;
        info.moments =
            wh_ckpt_manifest_file(&m, "adam_m.safetensors") && wh_ckpt_manifest_file(&m, "adam_v.safetensors");
        memcpy(info.save_id, m.save_id, sizeof info.save_id);
        *out = info;
    }
    wh_ckpt_manifest_free(&m);
    return status;
}

/* Which save a part belongs to is asked before its hash, so that a mixed folder is called by its name (case B44). */
static enum wh_status check_save(const struct wh_safetensors_file *f, const struct wh_ckpt_manifest *m) {
    const char *id = wh_safetensors_metadata(&f->header, "save_id"),
               *step = wh_safetensors_metadata(&f->header, "step");
    if (id && strcmp(id, m->save_id) == 0) return WH_OK;
    return WH_FAIL(WH_DAMAGED,
                   "%s is of step %s (save %s), its manifest of step %llu (save %s): parts of two checkpoints", f->path,
                   step ? step : "?", id ? id : "?", (unsigned long long)m->step, m->save_id);
}

static enum wh_status damaged(const struct wh_safetensors_file *f, const char *tensor) {
    return WH_FAIL(WH_DAMAGED, "%s is damaged: the hash of %s%s is not the manifest's", f->path,
                   tensor ? "tensor " : "its header", tensor ? tensor : "");
}

static enum wh_status verify_file(const struct wh_safetensors_file *f, const struct wh_ckpt_manifest *m,
                                  const char *name) {
    if (XXH3_64bits(f->map.data, f->map.bytes) == wh_ckpt_manifest_file(m, name)->xxh3) return WH_OK;
    return damaged(f, wh_ckpt_manifest_damaged_tensor(m, name, f));
}

static enum wh_status open_part(const char *folder, const struct wh_ckpt_manifest *m, const char *name,
                                struct wh_safetensors_file *out) {
    if (!wh_ckpt_manifest_file(m, name)) return WH_FAIL(WH_DAMAGED, "%s has no %s", folder, name);
    char *path = wh_path_join(folder, name);
    enum wh_status status = as_damage(wh_safetensors_open(path, out));
    free(path);
    if (status != WH_OK) return status;
    status = check_save(out, m);
    if (status != WH_OK) wh_safetensors_close(out);
    return status;
}

static bool same_shape(const struct wh_safetensors_tensor *t, const struct wh_param *q) {
    return t->dtype == WH_F32 && t->dims == (q->cols ? 2u : 1u) && t->shape[0] == q->rows &&
           (!q->cols || t->shape[1] == q->cols);
}

/* "F32 [256, 32]", "F32 [32]" */
static void add_shape(struct wh_text *out, enum wh_dtype dtype, size_t dims, const uint64_t *shape) {
    wh_text_add(out, "%s [", wh_dtype_name(dtype));
    for (size_t i = 0; i < dims; i++) wh_text_add(out, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    wh_text_add(out, "]");
}

static void fault_shape(struct wh_faults *faults, const char *path, const struct wh_safetensors_tensor *t,
                        const struct wh_param *q) {
    struct wh_text is = {0}, wanted = {0};
    add_shape(&is, t->dtype, t->dims, t->shape);
    add_shape(&wanted, WH_F32, q->cols ? 2 : 1, (const uint64_t[]){q->rows, q->cols});
    wh_faults_add(faults, path, 0, "tensor %s is %s; the model's is %s", q->name, is.data, wanted.data);
    wh_text_fini(&is);
    wh_text_fini(&wanted);
}

static enum wh_status check_table(const struct wh_safetensors_file *f, const struct wh_params *p) {
    struct wh_faults faults = {0};
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_param *q = &p->list[i];
        const struct wh_safetensors_tensor *t = wh_safetensors_find(&f->header, q->name);
        if (!t)
            wh_faults_add(&faults, f->path, 0, "no tensor %s, which the model has", q->name);
        else if (!same_shape(t, q))
            fault_shape(&faults, f->path, t, q);
    }
    for (size_t i = 0; i < f->header.count; i++)
        if (!wh_params_find_name(p, f->header.list[i].name))
            wh_faults_add(&faults, f->path, 0, "tensor %s, which the model has not", f->header.list[i].name);
    return wh_faults_status(&faults, WH_CONFIG);
}

/* The elements of a tensor that a slab has, as a range of the flat line. */
static struct wh_range shared_range(const struct wh_param *q, const struct wh_ckpt_slab *s) {
    const size_t q_end = q->offset + q->elems, s_end = s->first + s->elems;
    struct wh_range r = {q->offset > s->first ? q->offset : s->first, q_end < s_end ? q_end : s_end};
    if (r.end < r.begin) r.end = r.begin;
    return r;
}

static enum wh_status verify_tensors(const struct wh_safetensors_file *f, const struct wh_ckpt_manifest *m,
                                     const char *name, const struct wh_params *p, const struct wh_ckpt_slab *s) {
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_range r = shared_range(&p->list[i], s);
        if (r.begin < r.end && !wh_ckpt_manifest_tensor_sound(m, name, f, p->list[i].name))
            return damaged(f, p->list[i].name);
    }
    return WH_OK;
}

/* Of a part of the file only its tensors' hashes are asked: a header that gives them the model's shapes and data of the
 * right hashes means what it did when it was written. */
static enum wh_status check_part(const struct wh_safetensors_file *f, const struct wh_ckpt_manifest *m,
                                 const char *name, const struct wh_params *p, const struct wh_ckpt_slab *s) {
    const struct wh_params *model = wh_params_whole(p);
    const bool whole = p->elems == model->elems && s->first == 0 && s->elems >= p->buffer_elems;
    if (whole || check_table(f, model) != WH_OK) { /* not the model's: is it another one, or is the header damaged? */
        WH_TRY(verify_file(f, m, name));
        return check_table(f, model);
    }
    return verify_tensors(f, m, name, p, s);
}

/* Elements [begin, end) of what the table holds of a tensor, run by run of the logical tensor. */
static void copy_tensor(const unsigned char *from, const struct wh_param *q, size_t begin, size_t end, float *to) {
    for (size_t e = begin, n; e < end; e += n) {
        const size_t at = wh_param_logical(q, e, &n);
        if (n > end - e) n = end - e;
        memcpy(to + (e - begin), from + at * sizeof *to, n * sizeof *to);
    }
}

/* `f` NULL: zeros. */
static void copy_out(const struct wh_safetensors_file *f, const struct wh_params *p, const struct wh_ckpt_slab *s) {
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_param *q = &p->list[i];
        const struct wh_range r = shared_range(q, s);
        if (r.begin == r.end) continue;
        float *to = s->data + (r.begin - s->first);
        if (f)
            copy_tensor(f->data + wh_safetensors_find(&f->header, q->name)->begin, q, r.begin - q->offset,
                        r.end - q->offset, to);
        else
            memset(to, 0, (r.end - r.begin) * sizeof *to);
    }
}

static const char *const part_names[3] = {"weights.safetensors", "adam_m.safetensors", "adam_v.safetensors"};

static enum wh_status load_parts(const char *folder, const struct wh_ckpt_manifest *m, const struct wh_params *p,
                                 const struct wh_ckpt_slab slabs[3]) {
    struct wh_safetensors_file files[3] = {0};
    enum wh_status status = WH_OK;
    bool zero[3] = {false};
    for (int i = 0; i < 3 && status == WH_OK; i++) {
        zero[i] = i > 0 && m->step == 0 && !wh_ckpt_manifest_file(m, part_names[i]); /* an imported model */
        if (!slabs[i].data || zero[i]) continue;
        status = open_part(folder, m, part_names[i], &files[i]);
        if (status == WH_OK) status = check_part(&files[i], m, part_names[i], p, &slabs[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (status == WH_OK && slabs[i].data) copy_out(zero[i] ? NULL : &files[i], p, &slabs[i]);
        if (files[i].path) wh_safetensors_close(&files[i]);
    }
    return status;
}

enum wh_status wh_ckpt_load(const char *folder, const struct wh_params *params, struct wh_ckpt_slab weights,
                            struct wh_ckpt_slab m, struct wh_ckpt_slab v) {
    struct wh_ckpt_manifest manifest;
    const struct wh_ckpt_slab slabs[3] = {weights, m, v};
    WH_TRY(wh_ckpt_manifest_read(folder, &manifest));
    enum wh_status status = load_parts(folder, &manifest, params, slabs);
    wh_ckpt_manifest_free(&manifest);
    return status;
}

static enum wh_status verify_parts(const char *folder, const struct wh_ckpt_manifest *m) {
    struct wh_safetensors_file f;
    for (int i = 0; i < 3; i++) {
        if (i > 0 && !wh_ckpt_manifest_file(m, part_names[i])) continue;
        WH_TRY(open_part(folder, m, part_names[i], &f));
        enum wh_status status = verify_file(&f, m, part_names[i]);
        wh_safetensors_close(&f);
        WH_TRY(status);
    }
    return WH_OK;
}

enum wh_status wh_ckpt_verify(const char *folder) {
    struct wh_ckpt_manifest m;
    struct wh_ckpt_info info;
    WH_TRY(wh_ckpt_read(folder, &info));
    WH_TRY(wh_ckpt_manifest_read(folder, &m));
    enum wh_status status = verify_parts(folder, &m);
    wh_ckpt_manifest_free(&m);
    return status;
}
