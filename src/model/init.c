/* Initial weights: normal values from the counter-based generator, a function of (seed, tensor, element) alone, so that
 * any rank can make any part of any tensor. The tensor's place in the parameter table is its stream. */
#include <math.h>
#include <string.h>

#include "arch/part.h"
#include "base/elementary.h"
#include "model/init.h"
#include "model/net.h"

/* Elements `part` of a tensor. Box and Muller, both halves: elements 2i and 2i+1 come from words 2i and 2i+1 of the
 * stream. log and cos are SLEEF's reproducible variants in double; the result is rounded once. */
static void fill_normal(float *out, struct wh_range part, const struct wh_rng *r, double std, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t block = part.begin / 4; block < (part.end + 3) / 4; block++) {
        uint32_t words[4];
        wh_rng_block(r, block, words);
        for (size_t pair = 0; pair < 2; pair++) {
            double u = ((double)words[2 * pair] + 0.5) * 0x1p-32, turn = (double)words[2 * pair + 1] * 0x1p-32;
            double radius = std * sqrt(-2.0 * wh_log(u)), angle = 6.283185307179586477 * turn;
            size_t i = 4 * block + 2 * pair;
            if (i >= part.begin && i < part.end) out[i - part.begin] = (float)(radius * wh_cos(angle));
            if (i + 1 >= part.begin && i + 1 < part.end) out[i + 1 - part.begin] = (float)(radius * wh_sin(angle));
        }
    }
}

static void fill(float *out, size_t elems, float value) {
    for (size_t i = 0; i < elems; i++) out[i] = value;
}

/* Elements `part` of the logical tensor that `p` is, or is a part of. */
static void fill_tensor(const struct wh_param *p, const struct wh_model *m, uint64_t seed, struct wh_range part,
                        float *out, int threads) {
    const struct wh_rng r = wh_rng_stream(seed, WH_RNG_INIT, 0, (uint32_t)p->index);
    switch (p->init) {
    case WH_INIT_NORMAL:
        fill_normal(out, part, &r, m->init_std, threads);
        break;
    case WH_INIT_RESIDUAL:
        fill_normal(out, part, &r, m->init_std / sqrt(2.0 * m->L), threads);
        break;
    case WH_INIT_ZEROS:
        fill(out, part.end - part.begin, 0.0f);
        break;
    case WH_INIT_ONES:
        fill(out, part.end - part.begin, 1.0f);
        break;
    }
}

void wh_init_range(const struct wh_params *params, const struct wh_model *model, uint64_t seed, size_t first,
                   size_t elems, float *out, int threads) {
    const size_t end = first + elems;
    size_t at = first; /* all below is written */
    WH_ASSERT(end <= params->buffer_elems);
    for (size_t i = 0; i < params->count; i++) {
        const struct wh_param *p = &params->list[i];
        const size_t from = p->offset > at ? p->offset : at,
                     to = p->offset + p->elems < end ? p->offset + p->elems : end;
        if (from >= to) continue;
        fill(out + (at - first), from - at, 0.0f);
        for (size_t e = from, run; e < to; e += run) {
            const size_t logical = wh_param_logical(p, e - p->offset, &run);
            if (run > to - e) run = to - e;
            fill_tensor(p, model, seed, (struct wh_range){logical, logical + run}, out + (e - first), threads);
        }
        at = to;
    }
    fill(out + (at - first), end - at, 0.0f);
}

void wh_net_init_weights(struct wh_net *net, uint64_t seed) {
    const size_t first = net->own.begin, elems = net->own.end - first;
    WH_ASSERT(net->master != NULL);
    wh_init_range(net->shape.params, net->shape.model, seed, first, elems, net->master + (first - net->master_first),
                  net->shape.threads);
    if (net->adam_m) memset(net->adam_m, 0, elems * sizeof(float));
    if (net->adam_v) memset(net->adam_v, 0, elems * sizeof(float));
    wh_net_refresh_weights(net);
}

void wh_net_refresh_weights(struct wh_net *net) {
    enum { CHUNK = 1 << 16 };
    const size_t first = net->own.begin, elems = net->own.end - first;
    if (net->shape.dtype == WH_F32) return;
    uint16_t *weights = (uint16_t *)net->weights + (first - net->weights_first);
    const float *master = net->master + (first - net->master_first);
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t at = 0; at < elems; at += CHUNK)
        net->vec->narrow(weights + at, master + at, elems - at < CHUNK ? elems - at : CHUNK);
}
