#include "model/layer.h"
#include "model/rows.h"

struct wh_dropout wh_dropout_at(const struct wh_net *net, const struct wh_pass *pass, int layer,
                                enum wh_dropout_site site) {
    const struct wh_model *m = net->shape.model;
    float p = site == WH_SITE_EMBED       ? m->dropout_embed
              : site == WH_SITE_ATTENTION ? m->dropout_attention
                                          : m->dropout_residual;
    if (!pass->dropout || p <= 0.0f) return (struct wh_dropout){.scale = 1.0f};
    return (struct wh_dropout){
        .rng = wh_rng_stream(net->shape.seed, WH_RNG_DROPOUT, pass->step, (uint32_t)(layer + 1) * WH_SITE_COUNT + site),
        .threshold = (uint32_t)((double)p * 0x1p32),
        .scale = 1.0f / (1.0f - p)};
}

void wh_dropout_rows(const struct wh_net *net, const struct wh_pass *pass, const struct wh_stream *s,
                     const struct wh_dropout *d, void *out, const void *in) {
    const size_t C = net->shape.model->C, first = (size_t)pass->first_seq * pass->T;
#pragma omp parallel for num_threads(net->shape.threads) schedule(static)
    for (size_t t = 0; t < s->rows; t++) {
        float *scratch = wh_rows_scratch(net), *y = wh_rows_target(net, out, t * C, scratch);
        const float *x = wh_rows_read(net, in, t * C, C, scratch);
        net->vec->dropout(y, x, &d->rng, (first + wh_stream_token(s, t)) * C, d->threshold, d->scale, C);
        wh_rows_done(net, out, t * C, C, y);
    }
}
