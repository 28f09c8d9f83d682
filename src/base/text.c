#include "base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static void reserve(struct wh_text *t, size_t more) {
    if (t->capacity - t->bytes > more) return;
    size_t capacity = t->capacity ? t->capacity : 64;
    while (capacity - t->bytes <= more) capacity *= 2;
    t->data = realloc(t->data, capacity);
    WH_ASSERT(t->data != NULL);
    t->capacity = capacity;
}

void wh_text_add(struct wh_text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    WH_ASSERT(n >= 0);
    reserve(t, (size_t)n);
    va_start(args, format);
    vsnprintf(t->data + t->bytes, (size_t)n + 1, format, args);
    va_end(args);
    t->bytes += (size_t)n;
}

void wh_text_add_bytes(struct wh_text *t, const void *data, size_t bytes) {
    reserve(t, bytes);
    if (bytes) memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = '\0';
}

void wh_text_clear(struct wh_text *t) {
    t->bytes = 0;
    if (t->data) t->data[0] = '\0';
}

void wh_text_fini(struct wh_text *t) {
    free(t->data);
    *t = (struct wh_text){0};
}

char *wh_text_next_line(struct wh_text *t, char **at) {
    char *line = *at ? *at : t->data;
    while (line && *line == '\n') line++;
    if (!line || !*line) return NULL;
    *at = line + strcspn(line, "\n");
    if (**at) *(*at)++ = '\0';
    return line;
}

static int lower(char c) { return tolower((unsigned char)c); }

enum { WORD_MAX = 63 };

/* Optimal string alignment distance, three rows of the usual table. */
size_t wh_text_distance(const char *a, const char *b) {
    size_t la = strnlen(a, WORD_MAX), lb = strnlen(b, WORD_MAX);
    size_t rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= lb; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= la; i++) {
        now[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]) &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *spare = before;
        before = last, last = now, now = spare;
    }
    return last[lb];
}

const char *wh_text_nearest(const char *word, const char *const *words, size_t count) {
    const char *nearest = NULL;
    size_t best = strlen(word) / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t distance = wh_text_distance(word, words[i]);
        if (distance <= best) {
            if (nearest == NULL || distance < best) nearest = words[i];
            best = distance;
        }
    }
    return nearest;
}
