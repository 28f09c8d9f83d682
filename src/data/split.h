/* Cuts text into the words that byte-level BPE merges within. Only patterns known here are accepted: another pattern
 * would cut other words and so give other ids without a sign of it.
 *
 *     for (size_t at = 0; at < bytes; at += word_bytes) WH_TRY(wh_split_next(&split, text, bytes, at, &word_bytes));
 *
 * The regular expressions run in pcre2 (UTF, properties, compiled to machine code where it can). `\s` is written out as
 * the characters with the Unicode property White_Space, since pcre2's own also takes U+180E.
 * Threads: a wh_split serves one thread at a time. */
#ifndef WH_DATA_SPLIT_H
#define WH_DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum wh_split_kind {
    WH_SPLIT_GPT2,
    WH_SPLIT_LLAMA3, /* also cl100k */
    WH_SPLIT_QWEN2,
    WH_SPLIT_COUNT
};

struct wh_split {
    void *code, *match; /* pcre2_code, pcre2_match_data */
};

/* The pattern as tokenizer files spell it, and the way back (false: not known). */
const char *wh_split_pattern(enum wh_split_kind kind);
bool wh_split_find(const char *pattern, enum wh_split_kind *out);

enum wh_status wh_split_new(enum wh_split_kind kind, struct wh_split *out);
void wh_split_free(struct wh_split *s);

/* Bytes (at least 1) of the word that starts at `at` < `bytes`. The text must be valid UTF-8, `at` a border of a word;
 * the end of the text counts as its end, so a part of a text must be cut as a text of its own. */
enum wh_status wh_split_next(struct wh_split *s, const char *text, size_t bytes, size_t at, size_t *word_bytes);

#endif
