#include "vectors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vectors_open(const char *path, struct vectors *out) {
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    struct vectors v;
    uint64_t header_bytes;
    fseek(f, 0, SEEK_END);
    size_t bytes = (size_t)ftell(f);
    rewind(f);
    v.file = malloc(bytes);
    assert(v.file && bytes > sizeof header_bytes);
    size_t got = fread(v.file, 1, bytes, f);
    fclose(f);
    memcpy(&header_bytes, v.file, sizeof header_bytes);
    assert(got == bytes && header_bytes <= bytes - sizeof header_bytes);
    v.header = json_loadb((const char *)v.file + sizeof header_bytes, header_bytes, 0, NULL);
    v.data_begin = sizeof header_bytes + header_bytes;
    assert(v.header);
    *out = v;
    return 1;
}

void vectors_close(struct vectors *v) {
    free(v->file);
    json_decref(v->header);
    *v = (struct vectors){0};
}

int vectors_find(const struct vectors *v, const char *name, struct vector *out) {
    const json_t *entry = json_object_get(v->header, name), *shape = json_object_get(entry, "shape");
    if (!entry) return 0;
    json_int_t begin = json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    *out = (struct vector){.name = name, .elems = 1, .shape = {1, 1, 1, 1}};
    out->dtype = json_string_value(json_object_get(entry, "dtype"));
    out->data = v->file + v->data_begin + begin;
    assert(json_array_size(shape) <= 4);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        out->shape[i] = (size_t)json_integer_value(json_array_get(shape, i));
        out->elems *= out->shape[i];
    }
    return 1;
}

static double from_half(unsigned bits) {
    double sign = bits >> 15 ? -1.0 : 1.0;
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    assert(exponent < 31); /* no infinity or NaN in our files */
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

double vector_get(const struct vector *t, size_t i) {
    union {
        double f64;
        float f32;
        int32_t i32;
        uint16_t u16;
        uint32_t u32;
    } x = {0};
    if (strcmp(t->dtype, "F64") == 0) return memcpy(&x, t->data + 8 * i, 8), x.f64;
    if (strcmp(t->dtype, "F32") == 0) return memcpy(&x, t->data + 4 * i, 4), x.f32;
    if (strcmp(t->dtype, "I32") == 0) return memcpy(&x, t->data + 4 * i, 4), x.i32;
    memcpy(&x, t->data + 2 * i, 2);
    if (strcmp(t->dtype, "F16") == 0) return from_half(x.u16);
    assert(strcmp(t->dtype, "BF16") == 0);
    x.u32 = (uint32_t)x.u16 << 16;
    return x.f32;
}

int32_t *vectors_ints(const struct vectors *v, const char *name) {
    struct vector t;
    int found = vectors_find(v, name, &t);
    assert(found && strcmp(t.dtype, "I32") == 0);
    int32_t *out = malloc(t.elems * sizeof *out);
    assert(out);
    memcpy(out, t.data, t.elems * sizeof *out);
    return out;
}

static enum ref_rope rope_kind(const json_t *settings) {
    const char *name = json_string_value(json_object_get(settings, "rope"));
    if (!name || strcmp(name, "plain") == 0) return REF_ROPE_PLAIN;
    assert(strcmp(name, "llama3") == 0);
    return REF_ROPE_LLAMA3;
}

struct ref_config vectors_config(const struct vectors *v) {
    const char *text = json_string_value(json_object_get(json_object_get(v->header, "__metadata__"), "config"));
    json_t *settings = json_loads(text, 0, NULL);
    assert(settings);
    /* a key that is not there is 0 */
#define NUMBER(field)  .field = json_number_value(json_object_get(settings, #field))
#define INTEGER(field) .field = (int)json_integer_value(json_object_get(settings, #field))
    struct ref_config c = {INTEGER(V),
                           INTEGER(C),
                           INTEGER(L),
                           INTEGER(H),
                           INTEGER(Hkv),
                           INTEGER(D),
                           INTEGER(F),
                           INTEGER(max_position),
                           INTEGER(layer_norm),
                           INTEGER(learned_positions),
                           INTEGER(gated),
                           INTEGER(qkv_bias),
                           INTEGER(linear_bias),
                           INTEGER(tied),
                           NUMBER(norm_eps),
                           NUMBER(init_std),
                           .rope = rope_kind(settings),
                           NUMBER(rope_theta),
                           NUMBER(rope_factor),
                           NUMBER(rope_low_freq),
                           NUMBER(rope_high_freq),
                           NUMBER(rope_original_max),
                           NUMBER(beta1),
                           NUMBER(beta2),
                           NUMBER(adam_eps),
                           NUMBER(weight_decay),
                           NUMBER(clip),
                           NUMBER(lr_peak),
                           NUMBER(lr_floor),
                           INTEGER(warmup_steps),
                           INTEGER(decay_steps)};
#undef NUMBER
#undef INTEGER
    json_decref(settings);
    return c;
}

void vectors_load(const struct vectors *v, const char *prefix, struct ref *r) {
    struct ref_tensor *t;
    for (int i = 0; (t = ref_tensor_at(r, i)); i++) {
        char name[80];
        struct vector stored;
        snprintf(name, sizeof name, "%s%s", prefix, t->name);
        int found = vectors_find(v, name, &stored);
        assert(found && stored.shape[0] == (size_t)t->rows && stored.shape[1] == (size_t)t->cols);
        for (long e = 0; e < t->elems; e++) t->w[e] = (float)vector_get(&stored, (size_t)e);
    }
}
