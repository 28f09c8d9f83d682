#include "optim/adamw.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { SPAN_ELEMS = 8192 };

/* Of the elements of tensor `p` in `own`. */
static size_t tensor_spans(const struct wh_param *p, struct wh_range own, struct wh_adamw_span *out) {
    const size_t begin = p->offset > own.begin ? p->offset : own.begin;
    const size_t end = p->offset + p->elems < own.end ? p->offset + p->elems : own.end;
    size_t count = 0;
    for (size_t at = begin; at < end; at += SPAN_ELEMS, count++)
        if (out) {
            size_t n = end - at < SPAN_ELEMS ? end - at : SPAN_ELEMS;
            out[count] = (struct wh_adamw_span){at, (uint32_t)n, p->decay};
        }
    return count;
}

static bool owns_block(struct wh_range own, const struct wh_norm_block *b) {
    const size_t end = b->offset + (b->rows - 1) * b->ld + b->cols;
    const bool inside = own.begin <= b->offset && end <= own.end;
    WH_ASSERT(inside || end <= own.begin || own.end <= b->offset);
    return inside;
}

/* Turns a block of the logical tensor into one of `p`, the part of it that is held; false: it isn't held. */
static bool bring_home(const struct wh_param *p, const struct wh_param *whole, struct wh_norm_block *b) {
    const size_t at = b->offset - whole->offset, cols = p->cols ? p->cols : p->rows;
    const size_t row = whole->cols ? at / whole->cols : 0, col = whole->cols ? at % whole->cols : at;
    const size_t first_row = p->cols ? p->first_row : 0, first_col = p->cols ? p->first_col : p->first_row;
    const size_t rows = p->cols ? p->rows : 1;
    if (row < first_row || row >= first_row + rows || col < first_col || col >= first_col + cols) return false;
    WH_ASSERT(row + b->rows <= first_row + rows && col + b->cols <= first_col + cols);
    b->offset = p->offset + (row - first_row) * cols + (col - first_col);
    b->ld = cols;
    return true;
}

/* Walks through the blocks of the whole model, whose numbers are their places. a->blocks has room for all of them; of each
 * tensor's those that others hold or own are dropped again. */
static void fill_blocks(struct wh_adamw *a) {
    const struct wh_params *held = a->buffers.params, *whole = wh_params_whole(held);
    size_t place = 0, kept = 0;
    for (size_t i = 0, h = 0; i < whole->count; i++) {
        struct wh_norm_block *of_tensor = a->blocks + kept;
        const size_t count = wh_norm_blocks(&whole->list[i], a->buffers.grain.tensor, of_tensor);
        const bool holds = h < held->count && held->list[h].index == i;
        const bool counts = holds && !(a->buffers.skip_uncut && whole->list[i].cut == WH_CUT_NONE);
        for (size_t k = 0; k < count && counts; k++) {
            struct wh_norm_block b = of_tensor[k];
            if (!bring_home(&held->list[h], &whole->list[i], &b) || !owns_block(a->buffers.own, &b)) continue;
            a->place[kept] = place + k;
            a->blocks[kept++] = b;
        }
        place += count;
        h += holds;
    }
    a->own_blocks = kept;
}

static void check_buffers(const struct wh_adamw_buffers *b) {
    const size_t begin = b->own.begin;
    WH_ASSERT(begin <= b->own.end && b->own.end <= b->params->buffer_elems);
    if (begin == b->own.end) return;
    WH_ASSERT(b->grads_first <= begin && b->master_first <= begin && b->states_first <= begin);
    WH_ASSERT(b->weight_dtype == WH_F32 || b->weights_first <= begin);
}

enum wh_status wh_adamw_new(const struct wh_adamw_settings *settings, const struct wh_adamw_buffers *buffers,
                            struct wh_adamw *out) {
    struct wh_adamw a = {.settings = *settings, .buffers = *buffers};
    const struct wh_params *params = buffers->params;
    check_buffers(buffers);
    a.block_count = wh_norm_block_count(wh_params_whole(params), buffers->grain.tensor);
    for (size_t i = 0; i < params->count; i++) a.span_count += tensor_spans(&params->list[i], buffers->own, NULL);
    a.partial = buffers->partial ? buffers->partial : calloc(a.block_count, sizeof *a.partial);
    a.blocks = calloc(a.block_count, sizeof *a.blocks);
    a.place = calloc(a.block_count, sizeof *a.place);
    a.spans = calloc(a.span_count + 1, sizeof *a.spans); /* owning nothing is legal */
    a.scratch = calloc((size_t)buffers->threads * SPAN_ELEMS, sizeof *a.scratch);
    if (!a.partial || !a.blocks || !a.place || !a.spans || !a.scratch) {
        wh_adamw_free(&a);
        return WH_FAIL(WH_NOMEM, "no memory for the optimizer's %zu spans", a.span_count);
    }
    fill_blocks(&a);
    for (size_t i = 0, span = 0; i < params->count; i++)
        span += tensor_spans(&params->list[i], buffers->own, a.spans + span);
    *out = a;
    return WH_OK;
}

void wh_adamw_free(struct wh_adamw *a) {
    if (!a->buffers.partial) free(a->partial);
    free(a->blocks);
    free(a->place);
    free(a->spans);
    free(a->scratch);
    a->partial = NULL, a->blocks = NULL, a->place = NULL, a->spans = NULL, a->scratch = NULL;
}

/* `n` gradients from `offset` in fp32: where they lie, or widened into the thread's scratch (n <= SPAN_ELEMS). */
static const float *grads_at(const struct wh_adamw *a, size_t offset, size_t n) {
    const struct wh_adamw_buffers *b = &a->buffers;
    const size_t at = offset - b->grads_first;
    if (b->grad_dtype == WH_F32) return (const float *)b->grads + at;
    float *scratch = a->scratch + (size_t)omp_get_thread_num() * SPAN_ELEMS;
    b->vec->widen(scratch, (const uint16_t *)b->grads + at, n);
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

void wh_adamw_partials(struct wh_adamw *a) {
    for (size_t i = 0; i < a->block_count; i++) a->partial[i] = 0.0;
#pragma omp parallel for num_threads(a->buffers.threads) schedule(static)
    for (size_t i = 0; i < a->own_blocks; i++) {
        const struct wh_norm_block *b = &a->blocks[i];
        double sum = 0.0;
        for (uint32_t r = 0; r < b->rows; r++) sum += row_sum_squares(a, b->offset + r * b->ld, b->cols);
        a->partial[a->place[i]] = sum;
    }
}

double wh_adamw_norm(const struct wh_adamw *a) {
    double sum = 0.0;
    for (size_t i = 0; i < a->block_count; i++) sum += a->partial[i];
    return sqrt(sum);
}

double wh_adamw_grad_norm(struct wh_adamw *a) {
    wh_adamw_partials(a);
    return wh_adamw_norm(a);
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
        float *master = b->master + (s->offset - b->master_first);
        const size_t state = s->offset - b->states_first;
        b->vec->adamw(master, b->m + state, b->v + state, grads, &constants[s->decay], s->elems);
        if (b->weight_dtype != WH_F32)
            b->vec->narrow((uint16_t *)b->weights + (s->offset - b->weights_first), master, s->elems);
    }
}
