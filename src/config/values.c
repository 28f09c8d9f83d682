/* Fields from text and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "config/keys.h"

struct pool_text {
    struct pool_text *next;
    char text[];
};

static void *pool_take(struct wh_config *c, size_t bytes) {
    struct pool_text *t = malloc(sizeof *t + bytes);
    WH_ASSERT(t != NULL);
    t->next = c->pool;
    c->pool = t;
    return t->text;
}

const char *wh_config_keep_bytes(struct wh_config *c, const char *data, size_t bytes) {
    return memcpy(pool_take(c, bytes), data, bytes);
}

const char *wh_config_keep(struct wh_config *c, const char *text) {
    return wh_config_keep_bytes(c, text, strlen(text) + 1);
}

void wh_config_free(struct wh_config *c) {
    for (struct pool_text *t = c->pool, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    *c = (struct wh_config){0};
}

static void *field_of(const struct wh_config *c, const struct wh_config_row *row) {
    return (char *)(uintptr_t)c + row->offset;
}

static bool store_bool(bool *out, const char *text, struct wh_text *why) {
    int i = wh_config_word_index("false|true", text);
    if (i < 0)
        wh_text_add(why, "is not true or false");
    else
        *out = i == 1;
    return i >= 0;
}

static bool store_choice(const struct wh_config_row *row, uint32_t *out, const char *text, struct wh_text *why) {
    int i = wh_config_word_index(row->words, text);
    if (i >= 0)
        *out = (uint32_t)i;
    else
        wh_text_add(why, "is none of %s", row->words);
    return i >= 0;
}

static bool in_range(const struct wh_config_row *row, double x, struct wh_text *why) {
    if (x < row->lowest)
        wh_text_add(why, "is too small; the least is %.15g", row->lowest);
    else if (x > row->highest)
        wh_text_add(why, "is too large; the most is %.15g", row->highest);
    else
        return true;
    return false;
}

static void not_whole(const struct wh_config_row *row, struct wh_text *why) {
    wh_text_add(why, "is not a whole number");
    if (*row->words) wh_text_add(why, " or %s", row->words);
    if (row->highest < 1e15) wh_text_add(why, "; legal: %.15g to %.15g", row->lowest, row->highest);
}

/* YAML 1.1 reads 010 as eight, YAML 1.2 as ten: neither here. */
static bool store_whole(const struct wh_config_row *row, uint64_t *out, const char *text, struct wh_text *why) {
    if (*row->words && wh_config_word_index(row->words, text) >= 0) {
        *out = 0;
        return true;
    }
    if (!wh_text_to_uint(text, out)) {
        not_whole(row, why);
        return false;
    }
    if (text[0] == '0' && text[1] != '\0') {
        wh_text_add(why, "has a leading zero, which some read as octal; write %llu", (unsigned long long)*out);
        return false;
    }
    return in_range(row, (double)*out, why);
}

static bool store_signed(const struct wh_config_row *row, int64_t *out, const char *text, struct wh_text *why) {
    uint64_t n;
    if (!wh_text_to_uint(text + (*text == '-'), &n) || n > INT64_MAX) {
        not_whole(row, why);
        return false;
    }
    *out = *text == '-' ? -(int64_t)n : (int64_t)n;
    return in_range(row, (double)*out, why);
}

static bool store_real(const struct wh_config_row *row, double *out, const char *text, struct wh_text *why) {
    if (*row->words && wh_config_word_index(row->words, text) >= 0) {
        *out = 0.0;
        return true;
    }
    if (!wh_text_to_real(text, out)) {
        wh_text_add(why, "is not a number%s%s", *row->words ? " or " : "", row->words);
        return false;
    }
    return in_range(row, *out, why);
}

static void store_list(struct wh_config *c, struct wh_config_list *out, const char *const *texts, size_t count) {
    out->item = count ? pool_take(c, count * sizeof *out->item) : NULL;
    out->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) out->item[i] = wh_config_keep(c, texts[i]);
}

/* Numbers go through a local so that a refused value leaves the field as it was. */
bool wh_config_store(struct wh_config *c, enum wh_config_key key, const char *const *texts, size_t count,
                     struct wh_text *why) {
    const struct wh_config_row *row = &wh_config_rows[key];
    void *field = field_of(c, row);
    uint64_t whole;
    int64_t with_sign;
    double real;
    WH_ASSERT(row->type == WH_TYPE_LIST || count == 1);
    switch (row->type) {
    case WH_TYPE_BOOL:
        return store_bool(field, texts[0], why);
    case WH_TYPE_CHOICE:
        return store_choice(row, field, texts[0], why);
    case WH_TYPE_U32:
        if (!store_whole(row, &whole, texts[0], why)) return false;
        *(uint32_t *)field = (uint32_t)whole;
        return true;
    case WH_TYPE_U64:
        if (!store_whole(row, &whole, texts[0], why)) return false;
        *(uint64_t *)field = whole;
        return true;
    case WH_TYPE_I64:
        if (!store_signed(row, &with_sign, texts[0], why)) return false;
        *(int64_t *)field = with_sign;
        return true;
    case WH_TYPE_REAL:
        if (!store_real(row, &real, texts[0], why)) return false;
        *(double *)field = real;
        return true;
    case WH_TYPE_TEXT:
        *(const char **)field = wh_config_keep(c, texts[0]);
        return true;
    case WH_TYPE_LIST:
        store_list(c, field, texts, count);
        return true;
    }
    return false;
}

static size_t field_bytes(enum wh_config_type type) {
    switch (type) {
    case WH_TYPE_BOOL:
        return sizeof(bool);
    case WH_TYPE_U32:
    case WH_TYPE_CHOICE:
        return sizeof(uint32_t);
    case WH_TYPE_U64:
    case WH_TYPE_I64:
    case WH_TYPE_REAL:
        return sizeof(uint64_t);
    case WH_TYPE_TEXT:
        return sizeof(const char *);
    case WH_TYPE_LIST:
        return sizeof(struct wh_config_list);
    }
    return 0;
}

void wh_config_reset(struct wh_config *c, enum wh_config_key key) {
    const struct wh_config_row *row = &wh_config_rows[key];
    struct wh_text why = {0};
    memset(field_of(c, row), 0, field_bytes(row->type));
    c->source[key] = (struct wh_config_source){WH_SOURCE_DEFAULT, 0};
    if (row->type == WH_TYPE_TEXT) *(const char **)field_of(c, row) = "";
    if (*row->standard) WH_ASSERT(wh_config_store(c, key, &row->standard, 1, &why));
}

bool wh_config_is_null(const struct wh_config *c, enum wh_config_key key) {
    const struct wh_config_row *row = &wh_config_rows[key];
    enum wh_config_source_kind kind = c->source[key].kind;
    if (row->type == WH_TYPE_TEXT) return **(const char *const *)field_of(c, row) == '\0';
    if (row->type == WH_TYPE_LIST) return ((const struct wh_config_list *)field_of(c, row))->count == 0;
    return *row->standard == '\0' && (kind == WH_SOURCE_DEFAULT || kind == WH_SOURCE_FAULTY);
}

/* Code point of the UTF-8 sequence at `t` and its length; what is none is a byte of its own, which libyaml will refuse. */
static uint32_t utf8_next(const unsigned char *t, size_t *bytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* below it the sequence is too long */
    const size_t length = *t < 0x80 ? 1 : *t < 0xc0 ? 0 : *t < 0xe0 ? 2 : *t < 0xf0 ? 3 : 4;
    uint32_t code = length == 1 ? *t : *t & (0x7fu >> length);
    size_t i = 1;
    for (; i < length && (t[i] & 0xc0) == 0x80; i++) code = code << 6 | (t[i] & 0x3fu);
    const bool whole = i == length && code >= least[length];
    *bytes = whole ? length : 1;
    return whole ? code : 0xfffd;
}

/* Characters that YAML takes for controls, line ends or marks. */
static bool must_escape(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
           code == 0xfffe || code == 0xffff;
}

static void add_quoted(struct wh_text *out, const char *text) {
    size_t bytes;
    wh_text_add(out, "\"");
    for (const unsigned char *t = (const unsigned char *)text; *t; t += bytes) {
        uint32_t code = utf8_next(t, &bytes);
        if (must_escape(code))
            wh_text_add(out, "\\u%04x", code);
        else {
            if (code == '"' || code == '\\') wh_text_add(out, "\\");
            wh_text_add_bytes(out, t, bytes);
        }
    }
    wh_text_add(out, "\"");
}

void wh_config_add_set(struct wh_text *out, const char *key, const char *text) {
    wh_text_add(out, "%s=", key);
    add_quoted(out, text);
}

/* The shortest text that reads back as the same double; with a point, without which YAML 1.1 takes 1e-5 for a word. */
static void add_real(struct wh_text *out, double x) {
    char number[32];
    if (fabs(x) < 1e9 && x == floor(x)) {
        wh_text_add(out, "%.1f", x);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, x);
        if (strtod(number, NULL) == x) break;
    }
    size_t mantissa = strcspn(number, "e");
    bool point = memchr(number, '.', mantissa) != NULL;
    wh_text_add(out, "%.*s%s%s", (int)mantissa, number, point ? "" : ".0", number + mantissa);
}

static void add_list(struct wh_text *out, const struct wh_config_list *list) {
    wh_text_add(out, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        if (i) wh_text_add(out, ", ");
        add_quoted(out, list->item[i]);
    }
    wh_text_add(out, "]");
}

static void add_word(struct wh_text *out, const char *words, uint32_t index) {
    while (index--) words += strcspn(words, "|") + 1;
    wh_text_add(out, "%.*s", (int)strcspn(words, "|"), words);
}

void wh_config_value(const struct wh_config *c, enum wh_config_key key, struct wh_text *out) {
    const struct wh_config_row *row = &wh_config_rows[key];
    const void *field = field_of(c, row);
    if (wh_config_is_null(c, key)) {
        wh_text_add(out, "null");
        return;
    }
    switch (row->type) {
    case WH_TYPE_BOOL:
        wh_text_add(out, "%s", *(const bool *)field ? "true" : "false");
        break;
    case WH_TYPE_U32:
        wh_text_add(out, "%u", *(const uint32_t *)field);
        break;
    case WH_TYPE_U64:
        wh_text_add(out, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case WH_TYPE_I64:
        wh_text_add(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case WH_TYPE_REAL:
        add_real(out, *(const double *)field);
        break;
    case WH_TYPE_TEXT:
        add_quoted(out, *(const char *const *)field);
        break;
    case WH_TYPE_LIST:
        add_list(out, field);
        break;
    case WH_TYPE_CHOICE:
        add_word(out, row->words, *(const uint32_t *)field);
        break;
    }
}
