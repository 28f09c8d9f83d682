#include "run/sample.h"

#include <stdlib.h>

#include "base/rng.h"
#include "tensor/vec.h"

enum wh_status wh_sample_new(const struct wh_sampling *how, uint32_t V, struct wh_sampler_state *out) {
    if (!(how->temperature >= 0.0))
        return WH_FAIL(WH_USAGE, "temperature %g: 0 (most likely token) or above", how->temperature);
    if (!(how->top_p > 0.0 && how->top_p <= 1.0))
        return WH_FAIL(WH_USAGE, "top-p %g: above 0 and at most 1", how->top_p);
    struct wh_sampler_state s = {.how = *how, .V = V};
    s.order = malloc(V * sizeof *s.order);
    s.probability = malloc(V * sizeof *s.probability);
    if (!s.order || !s.probability) {
        wh_sample_free(&s);
        return WH_FAIL(WH_NOMEM, "no memory to sample from %u tokens", V);
    }
    *out = s;
    return WH_OK;
}

void wh_sample_free(struct wh_sampler_state *s) {
    free(s->order);
    free(s->probability);
    *s = (struct wh_sampler_state){0};
}

static uint32_t most_likely(const float *logits, uint32_t V) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < V; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Heap order: most likely on top; the lower id first among equals, so that the order is total. */
static int before(const struct wh_sampler_state *s, uint32_t a, uint32_t b) {
    return s->probability[a] > s->probability[b] || (s->probability[a] == s->probability[b] && a < b);
}

static void sift(const struct wh_sampler_state *s, uint32_t at, uint32_t count) {
    for (;;) {
        uint32_t top = at, left = 2 * at + 1, right = left + 1;
        if (left < count && before(s, s->order[left], s->order[top])) top = left;
        if (right < count && before(s, s->order[right], s->order[top])) top = right;
        if (top == at) return;
        uint32_t id = s->order[at];
        s->order[at] = s->order[top], s->order[top] = id;
        at = top;
    }
}

/* Takes the most likely tokens off a heap until they reach `mass`; stops at the one on which `target` falls. Called twice:
 * to find the set's mass (target above it), then to pick. */
static double take_until(struct wh_sampler_state *s, double mass, double target, uint32_t *picked) {
    double sum = 0.0;
    for (uint32_t i = 0; i < s->V; i++) s->order[i] = i;
    for (uint32_t i = s->V / 2; i-- > 0;) sift(s, i, s->V);
    for (uint32_t count = s->V; count > 0 && sum < mass; count--) {
        *picked = s->order[0];
        sum += (double)s->probability[*picked];
        if (sum > target) break;
        s->order[0] = s->order[count - 1];
        sift(s, 0, count - 1);
    }
    return sum;
}

uint32_t wh_sample_next(struct wh_sampler_state *s, const float *logits, uint32_t position) {
    const struct wh_vec *vec = wh_vec_select(NULL);
    const struct wh_rng r = wh_rng_stream(s->how.seed, WH_RNG_SAMPLE, 0, 0);
    uint32_t picked = most_likely(logits, s->V);
    if (s->how.temperature == 0.0) return picked;
    vec->scale(s->probability, logits, (float)(1.0 / s->how.temperature), s->V);
    const float z = vec->exp_sum(s->probability, s->probability, s->probability[picked], s->V);
    const double wanted = s->how.top_p * (double)z;
    const double mass = take_until(s, wanted, 2.0 * (double)z, &picked);
    take_until(s, wanted, mass * (double)wh_rng_f32(&r, position), &picked);
    return picked;
}
