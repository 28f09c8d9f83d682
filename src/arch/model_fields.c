#include "arch/model_fields.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const wh_rope_kind_names[3] = {"default", "linear", "llama3"};

enum kind { U32, BOOL, F32, F64, FAMILY, ROPE };

static const struct field {
    const char *name;
    enum kind kind;
    size_t offset, bytes;
} fields[] = {
#define FIELD(name, kind, member) \
    { name, kind, offsetof(struct wh_model, member), sizeof((struct wh_model *)0)->member }
    FIELD("family", FAMILY, family),
    FIELD("vocab_size", U32, V),
    FIELD("hidden_size", U32, C),
    FIELD("layers", U32, L),
    FIELD("heads", U32, H),
    FIELD("kv_heads", U32, Hkv),
    FIELD("head_dim", U32, D),
    FIELD("intermediate_size", U32, F),
    FIELD("max_position", U32, max_position),
    FIELD("layer_norm", BOOL, layer_norm),
    FIELD("learned_positions", BOOL, learned_positions),
    FIELD("gated", BOOL, gated),
    FIELD("qkv_bias", BOOL, qkv_bias),
    FIELD("linear_bias", BOOL, linear_bias),
    FIELD("tied", BOOL, tied),
    FIELD("norm_eps", F32, norm_eps),
    FIELD("init_std", F32, init_std),
    FIELD("rope_theta", F64, rope.theta),
    FIELD("rope_kind", ROPE, rope.kind),
    FIELD("rope_factor", F64, rope.factor),
    FIELD("rope_low_freq_factor", F64, rope.low_freq_factor),
    FIELD("rope_high_freq_factor", F64, rope.high_freq_factor),
    FIELD("rope_original_max_position", U32, rope.original_max_position),
    FIELD("dropout_embed", F32, dropout_embed),
    FIELD("dropout_attention", F32, dropout_attention),
    FIELD("dropout_residual", F32, dropout_residual),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Whole numbers keep a point, so that every reader takes them for reals. */
static bool add_whole(struct wh_text *t, double x) {
    bool whole = x == trunc(x) && fabs(x) < 1e9;
    if (whole) wh_text_add(t, "%.1f", x);
    return whole;
}

void wh_text_add_f32(struct wh_text *t, float x) {
    char s[32];
    if (add_whole(t, (double)x)) return;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)x);
        if (strtof(s, NULL) == x) break;
    }
    wh_text_add(t, "%s", s);
}

void wh_text_add_f64(struct wh_text *t, double x) {
    char s[32];
    if (add_whole(t, x)) return;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (strtod(s, NULL) == x) break;
    }
    wh_text_add(t, "%s", s);
}

static void add_value(struct wh_text *t, const struct field *f, const struct wh_model *m) {
    const void *at = (const char *)m + f->offset;
    switch (f->kind) {
    case U32:
        wh_text_add(t, "%u", *(const uint32_t *)at);
        break;
    case BOOL:
        wh_text_add(t, "%s", *(const bool *)at ? "true" : "false");
        break;
    case F32:
        wh_text_add_f32(t, *(const float *)at);
        break;
    case F64:
        wh_text_add_f64(t, *(const double *)at);
        break;
    case FAMILY:
        wh_text_add(t, "\"%s\"", wh_family_name(m->family));
        break;
    case ROPE:
        wh_text_add(t, "\"%s\"", wh_rope_kind_names[m->rope.kind]);
        break;
    }
}

void wh_model_fields_write(const struct wh_model *m, struct wh_text *out) {
    for (int i = 0; i < FIELDS; i++) {
        wh_text_add(out, "%s\"%s\": ", i ? ", " : "{", fields[i].name);
        add_value(out, &fields[i], m);
    }
    wh_text_add(out, "}");
}

static bool name_index(const json_t *value, const char *(*name)(int), int count, int *out) {
    for (int i = 0; json_is_string(value) && i < count; i++)
        if (strcmp(json_string_value(value), name(i)) == 0) return *out = i, true;
    return false;
}

static const char *family_name(int i) { return wh_family_name((enum wh_family)i); }
static const char *rope_name(int i) { return wh_rope_kind_names[i]; }

static bool read_f32(const json_t *value, float *out) {
    double x = json_number_value(value) + 0.0; /* no minus zero */
    if (!json_is_number(value) || fabs(x) > FLT_MAX) return false;
    *out = (float)x;
    return true;
}

static bool read_value(const struct field *f, const json_t *value, struct wh_model *m) {
    void *at = (char *)m + f->offset;
    int index = 0;
    switch (f->kind) {
    case U32:
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
            return false;
        *(uint32_t *)at = (uint32_t)json_integer_value(value);
        return true;
    case BOOL:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    case F32:
        return read_f32(value, at);
    case F64:
        *(double *)at = json_number_value(value) + 0.0;
        return json_is_number(value);
    case FAMILY:
        if (!name_index(value, family_name, WH_FAMILY_COUNT, &index)) return false;
        m->family = (enum wh_family)index;
        return true;
    case ROPE:
        if (!name_index(value, rope_name, 3, &index)) return false;
        m->rope.kind = (enum wh_rope_kind)index;
        return true;
    }
    return false;
}

void wh_model_fields_read(const void *json, const char *file, struct wh_model *out, struct wh_faults *faults) {
    size_t before = faults->count;
    struct wh_model m = {0};
    for (int i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(json, fields[i].name);
        if (!value)
            wh_faults_add(faults, file, 0, "wanhe.model.%s is missing", fields[i].name);
        else if (!read_value(&fields[i], value, &m))
            wh_faults_add(faults, file, 0, "wanhe.model.%s has an impossible value", fields[i].name);
    }
    if (json_object_size(json) > FIELDS)
        wh_faults_add(faults, file, 0, "wanhe.model has %zu keys; %d are known", json_object_size(json), FIELDS);
    if (faults->count == before) *out = m;
}

/* The same model with fields that have no effect set to zero. */
static struct wh_model effective(const struct wh_model *m) {
    struct wh_model e = *m;
    if (e.learned_positions) e.rope = (struct wh_rope){0};
    if (e.rope.kind == WH_ROPE_PLAIN) e.rope.factor = 0;
    if (e.rope.kind != WH_ROPE_LLAMA3)
        e.rope.low_freq_factor = e.rope.high_freq_factor = 0, e.rope.original_max_position = 0;
    return e;
}

bool wh_model_fields_equal(const struct wh_model *a, const struct wh_model *b, struct wh_text *differences) {
    struct wh_model x = effective(a), y = effective(b);
    bool equal = true;
    for (int i = 0; i < FIELDS; i++) {
        const struct field *f = &fields[i];
        if (memcmp((char *)&x + f->offset, (char *)&y + f->offset, f->bytes) == 0) continue;
        wh_text_add(differences, "%s%s ", equal ? "" : ", ", f->name);
        add_value(differences, f, &x);
        wh_text_add(differences, " / ");
        add_value(differences, f, &y);
        equal = false;
    }
    return equal;
}
