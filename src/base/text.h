/* Growing text: for messages, reports and JSON lines. Not for the training step (it allocates).
 *
 *     struct wh_text t = {0};
 *     wh_text_add(&t, "%zu tokens", n);
 *     ... t.data is NUL-terminated (never NULL after the first add), t.bytes without the NUL ...
 *     wh_text_fini(&t);
 *
 * Out of memory aborts: a message is all that this is for. */
#ifndef WH_BASE_TEXT_H
#define WH_BASE_TEXT_H

#include <stddef.h>

struct wh_text {
    char *data;
    size_t bytes, capacity;
};

void wh_text_add(struct wh_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void wh_text_add_bytes(struct wh_text *t, const void *data, size_t bytes);
void wh_text_clear(struct wh_text *t);
void wh_text_fini(struct wh_text *t);

/* Walks through the lines, cutting the text at their ends: *at is NULL before the first. NULL: no more lines.
 *     for (char *at = NULL, *line; (line = wh_text_next_line(&t, &at));) ... */
char *wh_text_next_line(struct wh_text *t, char **at);

/* Edit distance (insert, delete, replace, swap of neighbours), case ignored; used to name the nearest legal word. */
size_t wh_text_distance(const char *a, const char *b);

/* The nearest of `count` words, or NULL if none is near enough to be a typing error (distance over a third). */
const char *wh_text_nearest(const char *word, const char *const *words, size_t count);

#endif
