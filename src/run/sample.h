/* Choosing the next token from logits.
 *
 * Temperature 0: the largest logit (the lowest id among equals). Else softmax(logits / temperature), cut to the smallest
 * set of most likely tokens whose probabilities reach top_p, and one of them by a counter-based random number: a function
 * of (seed, position) alone, so a text is repeatable. */
#ifndef WH_RUN_SAMPLE_H
#define WH_RUN_SAMPLE_H

#include <stdint.h>

#include "base/status.h"

struct wh_sampling {
    double temperature, top_p; /* >= 0; in (0, 1] */
    uint64_t seed;
};

struct wh_sampler_state {
    struct wh_sampling how;
    uint32_t V;
    uint32_t *order;    /* [V] */
    float *probability; /* [V] */
};

/* Errors: USAGE for a temperature or top_p out of range, NOMEM. */
enum wh_status wh_sample_new(const struct wh_sampling *how, uint32_t V, struct wh_sampler_state *out);
void wh_sample_free(struct wh_sampler_state *s);

/* The token for `position`. */
uint32_t wh_sample_next(struct wh_sampler_state *s, const float *logits, uint32_t position);

#endif
