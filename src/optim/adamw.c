#include "optim/adamw.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { SPAN_ELEMS = 8192 };

static size_t tensor_spans(const struct wh_param *p, struct wh_adamw_span *out) {
    size_t count = 0;
    for (size_t at = 0; at < p->elems; at += SPAN_ELEMS, count++)
        if (out) {
            size_t n = p->elems - at < SPAN_ELEMS ? p->elems - at : SPAN_ELEMS;
            out[count] = (struct wh_adamw_span){p->offset + at, (uint32_t)n, p->decay};
        }
    return count;
}

enum wh_status wh_adamw_new(const struct wh_adamw_settings *settings, const struct wh_adamw_buffers *buffers,
                            struct wh_adamw *out) {
    struct wh_adamw a = {.settings = *settings, .buffers = *buffers};
    const struct wh_params *params = buffers->params;
    const uint32_t S = buffers->grain.tensor;
    for (size_t i = 0; i < params->count; i++) {
        a.block_count += wh_norm_blocks(&params->list[i], S, NULL);
        a.span_count += tensor_spans(&params->list[i], NULL);
    }
    a.blocks = calloc(a.block_count, sizeof *a.blocks);
    a.partial = calloc(a.block_count, sizeof *a.partial);
    a.spans = calloc(a.span_count, sizeof *a.spans);
    a.scratch = calloc((size_t)buffers->threads * SPAN_ELEMS, sizeof *a.scratch);
    if (!a.blocks || !a.partial || !a.spans || !a.scratch) {
        wh_adamw_free(&a);
        return WH_FAIL(WH_NOMEM, "no memory for the optimizer's %zu spans", a.span_count);
    }
    size_t block = 0, span = 0;
    for (size_t i = 0; i < params->count; i++) {
        block += wh_norm_blocks(&params->list[i], S, a.blocks + block);
        span += tensor_spans(&params->list[i], a.spans + span);
    }
    *out = a;
    return WH_OK;
}

void wh_adamw_free(struct wh_adamw *a) {
    free(a->blocks);
    free(a->partial);
    free(a->spans);
    free(a->scratch);
    a->blocks = NULL, a->partial = NULL, a->spans = NULL, a->scratch = NULL;
}

/* `n` gradients from `offset` in fp32: where they lie, or widened into the thread's scratch (n <= SPAN_ELEMS). */
static const float *grads_at(const struct wh_adamw *a, size_t offset, size_t n) {
    const struct wh_adamw_buffers *b = &a->buffers;
    if (b->grad_dtype == WH_F32) return (const float *)b->grads + offset;
    float *scratch = a->scratch + (size_t)omp_get_thread_num() * SPAN_ELEMS;
    b->vec->widen(scratch, (const uint16_t *)b->grads + offset, n);
    return scratch;
}

/* Squares of a row are summed in one go where it is short enough for the scratch, else piece by piece: the pieces are
 * fixed, so the order is. */
static double row_sum_squares(const struct wh_adamw *a, size_t offset, size_t n) {
    double sum = 0.0;
    for (size_t at = 0; at < n; at += SPAN_ELEMS) {
        size_t piece = n - at < SPAN_ELEMS ? n - at : SPAN_ELEMS;
        sum += a->buffers.vec->sum_squares(grads_at(a, offset + at, piece), piece);
    }
    return sum;
}

double wh_adamw_grad_norm(struct wh_adamw *a) {
    double sum = 0.0;
#pragma omp parallel for num_threads(a->buffers.threads) schedule(static)
    for (size_t i = 0; i < a->block_count; i++) {
        const struct wh_norm_block *b = &a->blocks[i];
        a->partial[i] = 0.0;
        for (uint32_t r = 0; r < b->rows; r++) a->partial[i] += row_sum_squares(a, b->offset + r * b->ld, b->cols);
    }
    for (size_t i = 0; i < a->block_count; i++) sum += a->partial[i];
    return sqrt(sum);
}

static struct wh_vec_adamw step_constants(const struct wh_adamw_settings *s, double lr, uint64_t t, double norm,
                                          bool decay) {
    double correction1 = 1.0, correction2 = 1.0, power1 = 1.0, power2 = 1.0;
    for (uint64_t bit = t, b = 0; bit; bit >>= 1, b++) { /* beta^t by squaring: exact order, no libm */
        double square1 = b ? power1 * power1 : s->beta1, square2 = b ? power2 * power2 : s->beta2;
        power1 = square1, power2 = square2;
        if (bit & 1) correction1 *= power1, correction2 *= power2;
    }
    const bool clips = s->clip > 0.0 && norm + 1e-6 > s->clip;
    return (struct wh_vec_adamw){.beta1 = (float)s->beta1,
                                 .beta2 = (float)s->beta2,
                                 .eps = (float)s->eps,
                                 .one_minus_beta1 = (float)(1.0 - s->beta1),
                                 .one_minus_beta2 = (float)(1.0 - s->beta2),
                                 .step_size = (float)(lr / (1.0 - correction1)),
                                 .inv_sqrt_correction2 = (float)(1.0 / sqrt(1.0 - correction2)),
                                 .keep = decay ? (float)(1.0 - lr * s->weight_decay) : 1.0f,
                                 .grad_scale = clips ? (float)(s->clip / (norm + 1e-6)) : 1.0f};
}

void wh_adamw_update(struct wh_adamw *a, double lr, uint64_t t, double norm) {
    const struct wh_adamw_buffers *b = &a->buffers;
    const struct wh_vec_adamw constants[2] = {step_constants(&a->settings, lr, t, norm, false),
                                              step_constants(&a->settings, lr, t, norm, true)};
#pragma omp parallel for num_threads(b->threads) schedule(static)
    for (size_t i = 0; i < a->span_count; i++) {
        const struct wh_adamw_span *s = &a->spans[i];
        const float *grads = grads_at(a, s->offset, s->elems);
        b->vec->adamw(b->master + s->offset, b->m + s->offset, b->v + s->offset, grads, &constants[s->decay], s->elems);
        if (b->weight_dtype != WH_F32)
            b->vec->narrow((uint16_t *)b->weights + s->offset, b->master + s->offset, s->elems);
    }
}
