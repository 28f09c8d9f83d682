#include "data/corpus.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static enum wh_status no_memory(void) { return WH_FAIL(WH_NOMEM, "no memory for the list of documents"); }

static enum wh_status reserve_document(struct wh_corpus *c) {
    if (c->count < c->capacity) return WH_OK;
    size_t capacity = 2 * c->capacity + 64;
    struct wh_document *longer = realloc(c->document, capacity * sizeof *longer);
    if (!longer) return no_memory();
    c->document = longer;
    c->capacity = capacity;
    return WH_OK;
}

static enum wh_status add_document(struct wh_corpus *c, struct wh_document d) {
    if (d.bytes == 0) return WH_OK;
    WH_TRY(reserve_document(c));
    c->document[c->count++] = d;
    c->bytes += d.bytes;
    return WH_OK;
}

/* The map lives as long as the corpus. */
static enum wh_status map_file(struct wh_corpus *c, const char *path, struct wh_file_map *out) {
    struct wh_file_map *longer = realloc(c->map, (c->map_count + 1) * sizeof *longer);
    if (!longer) return no_memory();
    c->map = longer;
    WH_TRY(wh_file_map(path, out));
    c->map[c->map_count++] = *out;
    return WH_OK;
}

/* Next line of p[0..left): its bytes without line end, and with it. */
static size_t line_at(const char *p, size_t left, size_t *with_end) {
    const char *end = memchr(p, '\n', left);
    size_t n = end ? (size_t)(end - p) : left;
    *with_end = end ? n + 1 : n;
    if (n > 0 && p[n - 1] == '\r') n--;
    return n;
}

static bool is_blank(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r') return false;
    return true;
}

/* One line of JSON. The string is kept, the rest of the object is not. */
static enum wh_status add_json_line(struct wh_corpus *c, const char *p, size_t n, const char *path, size_t line) {
    json_error_t e;
    if (!c->kept && !(c->kept = json_array())) return no_memory();
    json_t *object = json_loadb(p, n, JSON_ALLOW_NUL, &e), *text = json_object_get(object, "text");
    enum wh_status status = WH_OK;
    if (!object)
        status = WH_FAIL(WH_DATA, "%s:%zu: %s", path, line, e.text);
    else if (!json_is_string(text))
        status = WH_FAIL(WH_DATA, "%s:%zu: no string \"text\" in the object", path, line);
    else if (json_array_append(c->kept, text) != 0)
        status = no_memory();
    if (status == WH_OK)
        status = add_document(c, (struct wh_document){json_string_value(text), json_string_length(text), path, line});
    json_decref(object);
    return status;
}

static enum wh_status add_json_lines(struct wh_corpus *c, const char *text, size_t bytes, const char *path) {
    size_t line = 1;
    for (size_t at = 0, step; at < bytes; at += step, line++) {
        size_t n = line_at(text + at, bytes - at, &step);
        if (!is_blank(text + at, n)) WH_TRY(add_json_line(c, text + at, n, path, line));
    }
    return WH_OK;
}

static enum wh_status add_lines(struct wh_corpus *c, const char *text, size_t bytes, const char *path) {
    size_t line = 1;
    for (size_t at = 0, step; at < bytes; at += step, line++) {
        size_t n = line_at(text + at, bytes - at, &step);
        if (!is_blank(text + at, n)) WH_TRY(add_document(c, (struct wh_document){text + at, n, path, line}));
    }
    return WH_OK;
}

static enum wh_status add_blocks(struct wh_corpus *c, const char *text, size_t bytes, const char *path) {
    struct wh_document d = {.path = path};
    size_t line = 1;
    for (size_t at = 0, step; at < bytes; at += step, line++) {
        size_t n = line_at(text + at, bytes - at, &step);
        if (is_blank(text + at, n)) {
            WH_TRY(add_document(c, d));
            d.bytes = 0;
            continue;
        }
        if (d.bytes == 0) d.text = text + at, d.line = line;
        d.bytes = (size_t)(text + at + n - d.text);
    }
    return add_document(c, d);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

enum wh_status wh_corpus_add(struct wh_corpus *c, const char *path, enum wh_document_split split) {
    struct wh_file_map map;
    WH_TRY(map_file(c, path, &map));
    const char *text = (const char *)map.data;
    if (ends_with(path, ".jsonl")) return add_json_lines(c, text, map.bytes, path);
    if (split == WH_DOCUMENTS_LINE) return add_lines(c, text, map.bytes, path);
    if (split == WH_DOCUMENTS_BLANK) return add_blocks(c, text, map.bytes, path);
    return add_document(c, (struct wh_document){text, map.bytes, path, 1});
}

/* A cut of the text at or before `target`: behind a line end, else before the first byte of a character. 0: none. */
static size_t cut_in_text(const char *text, size_t target) {
    for (size_t at = target; at > 0; at--)
        if (text[at - 1] == '\n') return at;
    size_t at = target;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

static enum wh_status cut_document(struct wh_corpus *c, uint64_t target) {
    WH_TRY(reserve_document(c));
    struct wh_document *d = c->document, *rest = d + 1;
    size_t at = cut_in_text(d->text, target);
    if (at == 0)
        return WH_FAIL(WH_DATA, "%s: %zu bytes are too few to hold some out; leave out --valid or give more text",
                       d->path, d->bytes);
    *rest = (struct wh_document){d->text + at, d->bytes - at, d->path, d->line};
    for (size_t i = 0; i < at; i++) rest->line += d->text[i] == '\n';
    d->bytes = at;
    c->count = 2;
    return WH_OK;
}

enum wh_status wh_corpus_cut(struct wh_corpus *c, double fraction, size_t *first_held_out) {
    if (c->count == 0) return WH_FAIL(WH_DATA, "there is no text to hold a part out of");
    uint64_t target = (uint64_t)((1.0 - fraction) * (double)c->bytes), before = 0;
    if (target >= c->bytes) target = c->bytes - 1;
    if (c->count == 1) WH_TRY(cut_document(c, target));
    size_t i = 0;
    for (; i + 1 < c->count && before + c->document[i].bytes <= target; i++) before += c->document[i].bytes;
    *first_held_out = i ? i : 1;
    return WH_OK;
}

void wh_corpus_free(struct wh_corpus *c) {
    for (size_t i = 0; i < c->map_count; i++) wh_file_unmap(&c->map[i]);
    json_decref(c->kept);
    free(c->map);
    free(c->document);
    *c = (struct wh_corpus){0};
}
