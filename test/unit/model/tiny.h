/* Tiny models and batches for the tests of model/: built by hand, no files. */
#ifndef WH_TEST_TINY_H
#define WH_TEST_TINY_H

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/net.h"

struct tiny {
    struct wh_model model;
    struct wh_params params;
    uint32_t *ids;
    int32_t *labels;
    uint32_t *document_start;
    uint64_t valid;
    uint32_t sequences, T;
};

static inline struct wh_model tiny_model(enum wh_family family) {
    struct wh_model m;
    wh_model_defaults(family, &m);
    m.V = 61, m.C = 48, m.L = 2, m.H = 4, m.D = 12, m.F = 80, m.max_position = 64;
    m.Hkv = family == WH_GPT2 ? 4 : 2;
    return m;
}

/* Random ids; about one label in ten is not counted; a document starts at about one position in seven. */
static inline void tiny_batch(struct tiny *t, uint32_t sequences, uint32_t T) {
    const struct wh_rng r = wh_rng_stream(7, WH_RNG_TEST, 0, 1);
    const size_t n = (size_t)sequences * T;
    t->sequences = sequences, t->T = T, t->valid = 0;
    t->ids = malloc(n * sizeof *t->ids);
    t->labels = malloc(n * sizeof *t->labels);
    t->document_start = malloc(n * sizeof *t->document_start);
    for (size_t i = 0; i < n; i++) {
        uint32_t a = wh_rng_u32(&r, 3 * i), b = wh_rng_u32(&r, 3 * i + 1), c = wh_rng_u32(&r, 3 * i + 2);
        t->ids[i] = a % (t->model.V - 1); /* the last id never occurs: its row has no gradient */
        t->labels[i] = b % 10 == 0 ? -1 : (int32_t)(b / 10 % t->model.V);
        t->document_start[i] = i % T == 0 ? 0 : c % 7 == 0 ? (uint32_t)(i % T) : t->document_start[i - 1];
        t->valid += t->labels[i] >= 0;
    }
}

static inline void tiny_free(struct tiny *t) {
    free(t->ids), free(t->labels), free(t->document_start);
    wh_params_free(&t->params);
}

static inline struct wh_net_shape tiny_shape(const struct tiny *t) {
    return (struct wh_net_shape){.model = &t->model,
                                 .params = &t->params,
                                 .grain = {2, 4, 1},
                                 .T = t->T,
                                 .micro_batch = t->sequences,
                                 .global_batch = t->sequences,
                                 .dtype = WH_F32,
                                 .grad_dtype = WH_F32,
                                 .train = true,
                                 .threads = 1,
                                 .seed = 3};
}

#endif
