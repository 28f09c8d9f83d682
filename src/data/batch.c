#include "data/batch.h"

/* ids [T], labels [T], document_start [T] or NULL of one sequence. */
static enum wh_status fill_sequence(const struct wh_batch *b, uint64_t sequence, uint32_t *ids, int32_t *labels,
                                    uint32_t *document_start, uint64_t *valid) {
    const uint32_t T = b->sampler->T;
    uint32_t last, start = 0;
    WH_TRY(wh_tokens_read(b->tokens, sequence * T, T, ids));
    WH_TRY(wh_tokens_read(b->tokens, (sequence + 1) * T, 1, &last));
    for (uint32_t i = 0; i < T; i++) {
        bool ends = b->split_documents && ids[i] == b->end_of_text;
        labels[i] = ends ? WH_LABEL_NONE : (int32_t)(i + 1 < T ? ids[i + 1] : last);
        if (document_start) document_start[i] = start;
        if (ends)
            start = i + 1;
        else
            ++*valid;
    }
    return WH_OK;
}

enum wh_status wh_batch_fill(const struct wh_batch *b, uint64_t step, uint32_t first, uint32_t count, uint32_t *ids,
                             int32_t *labels, uint32_t *document_start, uint64_t *valid) {
    uint64_t n = 0;
    const size_t T = b->sampler->T;
    for (uint32_t i = 0; i < count; i++)
        WH_TRY(fill_sequence(b, wh_sampler_sequence(b->sampler, step, first + i), ids + i * T, labels + i * T,
                             document_start ? document_start + i * T : NULL, &n));
    *valid = n;
    return WH_OK;
}

static enum wh_status count_sequence(const struct wh_batch *b, uint64_t sequence, uint64_t *valid) {
    uint32_t block[1024];
    const uint32_t T = b->sampler->T;
    for (uint32_t at = 0; at < T;) {
        uint32_t n = T - at < 1024 ? T - at : 1024;
        WH_TRY(wh_tokens_read(b->tokens, sequence * T + at, n, block));
        for (uint32_t i = 0; i < n; i++) *valid += block[i] != b->end_of_text;
        at += n;
    }
    return WH_OK;
}

enum wh_status wh_batch_count_valid(const struct wh_batch *b, uint64_t step, uint32_t first, uint32_t count,
                                    uint64_t *valid) {
    uint64_t n = (uint64_t)count * b->sampler->T;
    if (b->split_documents) {
        n = 0;
        for (uint32_t i = 0; i < count; i++)
            WH_TRY(count_sequence(b, wh_sampler_sequence(b->sampler, step, first + i), &n));
    }
    *valid = n;
    return WH_OK;
}
