#include "data/split.h"

#include <pcre2.h>
#include <string.h>

/* White_Space, and inside a class. */
#define SPACES "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S      "[" SPACES "]"
#define OTHER  "[^" SPACES "\\p{L}\\p{N}]"
/* What is left: a run of spaces gives its last one to the word behind it. */
#define SPACE_RUNS "|" S "+(?=" S "|\\z)|" S "+"

#define MODERN_WORDS(numbers)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|" numbers "| ?+" OTHER "++[\\r\\n]*+|" S \
    "*[\\r\\n]+" SPACE_RUNS

#define MODERN_SOURCE(numbers)                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*"                                \
    "[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* `used` is `source` with \s spelled out, (?!\S) turned round, and runs made possessive where giving back can't help:
 * then no run, however long, costs stack or time twice. */
static const struct {
    const char *source, *used;
} patterns[WH_SPLIT_COUNT] = {
    [WH_SPLIT_GPT2] = {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                       "'s|'t|'re|'ve|'m|'ll|'d| ?+\\p{L}++| ?+\\p{N}++| ?+" OTHER "++" SPACE_RUNS},
    [WH_SPLIT_LLAMA3] = {MODERN_SOURCE("\\p{N}{1,3}"), MODERN_WORDS("\\p{N}{1,3}+")},
    [WH_SPLIT_QWEN2] = {MODERN_SOURCE("\\p{N}"), MODERN_WORDS("\\p{N}")},
};

const char *wh_split_pattern(enum wh_split_kind kind) { return patterns[kind].source; }

bool wh_split_find(const char *pattern, enum wh_split_kind *out) {
    for (int i = 0; i < WH_SPLIT_COUNT; i++) {
        if (strcmp(patterns[i].source, pattern) != 0) continue;
        *out = (enum wh_split_kind)i;
        return true;
    }
    return false;
}

enum wh_status wh_split_new(enum wh_split_kind kind, struct wh_split *out) {
    int error;
    PCRE2_SIZE where;
    struct wh_split s;
    s.code = pcre2_compile((PCRE2_SPTR)patterns[kind].used, PCRE2_ZERO_TERMINATED,
                           PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_AUTO_CAPTURE, &error, &where, NULL);
    if (!s.code) return WH_FAIL(WH_NOMEM, "cannot compile the split pattern (pcre2 error %d at %zu)", error, where);
    (void)pcre2_jit_compile(s.code, PCRE2_JIT_COMPLETE); /* else it is interpreted: slower, same words */
    s.match = pcre2_match_data_create_from_pattern(s.code, NULL);
    if (!s.match) {
        pcre2_code_free(s.code);
        return WH_FAIL(WH_NOMEM, "no memory for the split pattern");
    }
    *out = s;
    return WH_OK;
}

void wh_split_free(struct wh_split *s) {
    pcre2_match_data_free(s->match);
    pcre2_code_free(s->code);
    *s = (struct wh_split){0};
}

enum wh_status wh_split_next(struct wh_split *s, const char *text, size_t bytes, size_t at, size_t *word_bytes) {
    int rc = pcre2_match(s->code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, s->match, NULL);
    if (rc < 0) return WH_FAIL(WH_INTERNAL, "the split pattern failed at byte %zu (pcre2 error %d)", at, rc);
    PCRE2_SIZE end = pcre2_get_ovector_pointer(s->match)[1];
    WH_ASSERT(end > at);
    *word_bytes = end - at;
    return WH_OK;
}
