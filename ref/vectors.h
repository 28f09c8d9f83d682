/* Reads the stored PyTorch vectors and fixtures: safetensors, JSON by jansson. Small and trusting: files of our own
 * that are checked by the tests, never a user's file (that is ckpt/'s work). A damaged file ends the program (assert).
 */
#ifndef WANHE_REF_VECTORS_H
#define WANHE_REF_VECTORS_H

#include <jansson.h>
#include <stddef.h>

#include "wanhe_ref.h"

struct vectors {
    unsigned char *file; /* owned */
    json_t *header;      /* owned */
    size_t data_begin;
};

/* One tensor; `data` is borrowed and may be unaligned. */
struct vector {
    const char *name, *dtype; /* "F32", "F64", "F16", "BF16", "I32" */
    const unsigned char *data;
    size_t elems, shape[4]; /* shape: 1 beyond the dimensions it has */
};

/* Returns 0 and leaves *out alone if the file can't be read. */
int vectors_open(const char *path, struct vectors *out);
void vectors_close(struct vectors *v);

int vectors_find(const struct vectors *v, const char *name, struct vector *out); /* 0: not there */
double vector_get(const struct vector *t, size_t i);

/* New arrays, to be freed. The tensor must be there. */
int32_t *vectors_ints(const struct vectors *v, const char *name);

/* The model and training settings in the file's metadata. */
struct ref_config vectors_config(const struct vectors *v);

/* Sets every weight of `r` from tensors PREFIX + name; all must be there in the right size. */
void vectors_load(const struct vectors *v, const char *prefix, struct ref *r);

#endif
