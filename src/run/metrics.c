#include "run/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"

enum { LINE_BYTES = 512 };

static enum wh_status append(const char *path, const char *line, int bytes) {
    WH_ASSERT(bytes > 0 && bytes < LINE_BYTES);
    return wh_file_append(path, line, (size_t)bytes);
}

enum wh_status wh_metrics_step(const char *path, const struct wh_metrics_step *m) {
    char line[LINE_BYTES];
    const struct wh_step_result *r = &m->result;
    int n = snprintf(line, sizeof line,
                     "{\"step\": %llu, \"tokens\": %llu, \"loss\": %.9g, \"loss_hex\": \"%a\", \"lr\": %.9g, "
                     "\"grad_norm\": %.9g, \"grad_norm_hex\": \"%a\", \"step_ms\": %.3f, \"tokens_per_s\": %.1f, "
                     "\"mfu\": %.4f}\n",
                     (unsigned long long)m->step, (unsigned long long)m->tokens, r->loss, r->loss, r->lr, r->grad_norm,
                     r->grad_norm, m->step_ms, m->tokens_per_s, m->mfu);
    return append(path, line, n);
}

enum wh_status wh_metrics_validation(const char *path, uint64_t step, const struct wh_evaluation *e) {
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line,
                     "{\"step\": %llu, \"valid_loss\": %.9g, \"valid_loss_hex\": \"%a\", \"valid_sequences\": %llu, "
                     "\"valid_labels\": %llu}\n",
                     (unsigned long long)step, e->loss, e->loss, (unsigned long long)e->sequences,
                     (unsigned long long)e->labels);
    return append(path, line, n);
}

/* Bytes of the leading lines that are whole and of steps up to `step`. */
static size_t bytes_to_keep(const char *data, size_t bytes, uint64_t step) {
    size_t kept = 0;
    while (kept < bytes) {
        const char *end = memchr(data + kept, '\n', bytes - kept);
        unsigned long long line_step;
        if (!end || sscanf(data + kept, "{\"step\": %llu,", &line_step) != 1 || line_step > step) break;
        kept = (size_t)(end - data) + 1;
    }
    return kept;
}

enum wh_status wh_metrics_rewind(const char *path, uint64_t step) {
    char *data;
    size_t bytes;
    if (!wh_file_exists(path)) return WH_OK;
    WH_TRY(wh_file_read(path, (size_t)1 << 32, &data, &bytes));
    const size_t kept = bytes_to_keep(data, bytes, step);
    enum wh_status status = kept < bytes ? wh_file_write_all(path, data, kept) : WH_OK;
    free(data);
    return status;
}
