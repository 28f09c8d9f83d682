/* LayerNorm and RMSNorm over rows; which of the two is the model's switch. */
#include "model/gradient.h"
#include "model/layer.h"
#include "model/rows.h"
#include "model/state.h"

/* The norm's bias follows its gain in the parameter table; NULL for RMSNorm. */
static const struct wh_param *norm_bias(const struct wh_net *net, enum wh_param_id gain, int layer) {
    return wh_net_param(net, (enum wh_param_id)(gain + 1), layer);
}

static const float *read_vector(const struct wh_net *net, const struct wh_param *p, float *scratch) {
    return wh_rows_read(net, wh_net_weight(net, p->id, p->layer), 0, p->elems, scratch);
}

void wh_norm_forward(struct wh_net *net, size_t n, const void *x, enum wh_param_id gain, int layer, void *y,
                     float *stats) {
    const uint64_t since = wh_clock_ns();
    const size_t C = net->local.C;
    const float eps = net->local.norm_eps;
    const bool full = net->local.layer_norm;
    const struct wh_param *g = wh_net_param(net, gain, layer), *b = full ? norm_bias(net, gain, layer) : NULL;
    wh_state_want(net, x, wh_state_stream(net), "residual stream", "norm");
    wh_state_set(net, y, wh_state_stream(net));
#pragma omp parallel num_threads(net->shape.threads)
    {
        float *scratch = wh_rows_scratch(net);
        const float *gains = read_vector(net, g, scratch + C),
                    *biases = b ? read_vector(net, b, scratch + 2 * C) : NULL;
#pragma omp for schedule(static)
        for (size_t t = 0; t < n; t++) {
            const float *row = wh_rows_read(net, x, t * C, C, scratch);
            float *out = wh_rows_target(net, y, t * C, scratch);
            if (full)
                net->vec->layer_norm(out, &stats[2 * t], &stats[2 * t + 1], row, gains, biases, eps, C);
            else
                net->vec->rms_norm(out, &stats[2 * t + 1], row, gains, eps, C);
            wh_rows_done(net, y, t * C, C, out);
        }
    }
    wh_net_book(net, WH_TIME_NORM, since);
}

struct norm_back {
    const struct wh_net *net;
    const void *x, *dy;
    const float *stats;
};

/* Adds token row r to the gradients of gain (and bias behind it). */
static void gain_row(const void *context, size_t r, float *acc, float *scratch) {
    const struct norm_back *k = context;
    const size_t C = k->net->local.C;
    const float *dy = wh_rows_read(k->net, k->dy, r * C, C, scratch);
    const float *x = wh_rows_read(k->net, k->x, r * C, C, scratch + C);
    const float mean = k->stats[2 * r], rstd = k->stats[2 * r + 1];
    if (k->net->local.layer_norm)
        k->net->vec->layer_norm_grads(acc, acc + C, dy, x, mean, rstd, C);
    else
        k->net->vec->rms_norm_grads(acc, dy, x, rstd, C);
}

void wh_norm_gain_gradient(struct wh_net *net, uint32_t piece, const void *x, const float *stats, const void *dy,
                           enum wh_param_id gain, int layer) {
    const uint64_t since = wh_clock_ns();
    const bool full = net->local.layer_norm;
    const struct wh_param *g = wh_net_param(net, gain, layer), *b = full ? norm_bias(net, gain, layer) : NULL;
    const struct norm_back context = {net, x, dy, stats};
    wh_state_want(net, x, wh_state_stream(net), "residual stream", "norm's gain");
    wh_state_want(net, dy, wh_state_stream(net), "gradient of a norm's output", "norm's gain");
    wh_gradient_vectors(net, piece, g, b, gain_row, &context);
    wh_net_book(net, WH_TIME_NORM_BACK, since);
}

void wh_norm_input_gradient(struct wh_net *net, size_t n, const void *x, const float *stats, const void *dy,
                            enum wh_param_id gain, int layer, bool add, void *dx) {
    const uint64_t since = wh_clock_ns();
    const size_t C = net->local.C;
    const bool full = net->local.layer_norm;
    const struct wh_param *g = wh_net_param(net, gain, layer);
    wh_state_want(net, x, wh_state_stream(net), "residual stream", "norm, backward");
    wh_state_want(net, dy, wh_state_stream(net), "gradient of a norm's output", "norm, backward");
    if (add) wh_state_want(net, dx, wh_state_stream(net), "gradient of the residual stream", "norm, backward");
    wh_state_set(net, dx, wh_state_stream(net));
#pragma omp parallel num_threads(net->shape.threads)
    {
        float *scratch = wh_rows_scratch(net), *back = scratch + 2 * C;
        const float *gains = read_vector(net, g, scratch + 3 * C);
#pragma omp for schedule(static)
        for (size_t t = 0; t < n; t++) {
            const float *dyr = wh_rows_read(net, dy, t * C, C, scratch),
                        *xr = wh_rows_read(net, x, t * C, C, scratch + C);
            float *out = wh_rows_target(net, dx, t * C, scratch);
            if (full)
                net->vec->layer_norm_back(back, dyr, xr, stats[2 * t], stats[2 * t + 1], gains, C);
            else
                net->vec->rms_norm_back(back, dyr, xr, stats[2 * t + 1], gains, C);
            const float *before = add ? wh_rows_read(net, dx, t * C, C, scratch) : NULL;
            if (add)
                net->vec->add(out, before, back, C);
            else if (out == scratch)
                net->vec->narrow((uint16_t *)wh_rows_at(net, dx, t * C), back, C);
            else
                net->vec->scale(out, back, 1.0f, C);
            if (add) wh_rows_done(net, dx, t * C, C, out);
        }
    }
    wh_net_book(net, WH_TIME_NORM_BACK, since);
}

void wh_norm_backward(struct wh_net *net, uint32_t piece, size_t n, const void *x, const float *stats, const void *dy,
                      enum wh_param_id gain, int layer, bool add, void *dx) {
    wh_norm_gain_gradient(net, piece, x, stats, dy, gain, layer);
    wh_norm_input_gradient(net, n, x, stats, dy, gain, layer, add, dx);
}
