#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 64, NAMES_MAX = 128 };

/* Copies `text` without the underscores that stand between two digits; false if one stands elsewhere. */
static bool strip_underscores(const char *text, char out[NUMBER_BYTES]) {
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '_') {
            if (c == text || !isdigit((unsigned char)c[-1]) || !isdigit((unsigned char)c[1])) return false;
            continue;
        }
        if (n + 1 == NUMBER_BYTES) return false;
        out[n++] = *c;
    }
    out[n] = '\0';
    return n > 0;
}

bool wh_text_to_uint(const char *text, uint64_t *out) {
    char digits[NUMBER_BYTES];
    if (!strip_underscores(text, digits) || digits[strspn(digits, "0123456789")] != '\0') return false;
    errno = 0;
    unsigned long long n = strtoull(digits, NULL, 10);
    if (errno != 0) return false;
    *out = n;
    return true;
}

bool wh_text_to_real(const char *text, double *out) {
    char number[NUMBER_BYTES], *end;
    if (!strip_underscores(text, number) || number[strspn(number, "0123456789+-.eE")] != '\0') return false;
    double x = strtod(number, &end);
    if (*end != '\0' || !isfinite(x)) return false;
    *out = x;
    return true;
}

static bool is_positional(const struct wh_option *o) { return o->kind >= WH_OPTION_REQUIRED; }
static bool takes_value(const struct wh_option *o) { return o->kind != WH_OPTION_FLAG && o->kind != WH_OPTION_COUNT; }

static enum wh_status list_add(struct wh_option_list *list, const char *name, const char *value) {
    if (list->count == WH_OPTION_LIST_MAX)
        return WH_FAIL(WH_USAGE, "%s is given more than %d times", name, WH_OPTION_LIST_MAX);
    list->item[list->count++] = value;
    return WH_OK;
}

static enum wh_status store(const struct wh_option *o, const char *value, void *out) {
    void *field = (char *)out + o->offset;
    switch (o->kind) {
    case WH_OPTION_FLAG:
        *(bool *)field = true;
        return WH_OK;
    case WH_OPTION_COUNT:
        *(int *)field += 1;
        return WH_OK;
    case WH_OPTION_UINT:
        if (!wh_text_to_uint(value, field))
            return WH_FAIL(WH_USAGE, "--%s wants a whole number from 0 to 18446744073709551615, not '%s'", o->name,
                           value);
        return WH_OK;
    case WH_OPTION_REAL:
        if (!wh_text_to_real(value, field))
            return WH_FAIL(WH_USAGE, "--%s wants a number like 0.5 or 3e-4, not '%s'", o->name, value);
        return WH_OK;
    case WH_OPTION_LIST:
    case WH_OPTION_REST:
        return list_add(field, o->name, value);
    case WH_OPTION_TEXT:
    case WH_OPTION_REQUIRED:
    case WH_OPTION_OPTIONAL:
        *(const char **)field = value;
        return WH_OK;
    }
    return WH_FAIL(WH_INTERNAL, "option %s has an unknown kind", o->name);
}

static const struct wh_option *find_long(const struct wh_option *table, const char *name, size_t bytes) {
    for (const struct wh_option *o = table; o->name; o++)
        if (!is_positional(o) && strlen(o->name) == bytes && memcmp(o->name, name, bytes) == 0) return o;
    return NULL;
}

static const struct wh_option *find_letter(const struct wh_option *table, char letter) {
    for (const struct wh_option *o = table; o->name; o++)
        if (o->letter == letter) return o;
    return NULL;
}

static enum wh_status unknown_long(const struct wh_option *table, const char *name, size_t bytes) {
    const char *names[NAMES_MAX];
    char word[64];
    size_t count = 0;
    for (const struct wh_option *o = table; o->name && count < NAMES_MAX; o++)
        if (!is_positional(o)) names[count++] = o->name;
    if (bytes >= sizeof word) bytes = sizeof word - 1;
    memcpy(word, name, bytes);
    word[bytes] = '\0';
    const char *nearest = wh_text_nearest(word, names, count);
    if (nearest) return WH_FAIL(WH_USAGE, "unknown option --%s; did you mean --%s?", word, nearest);
    return WH_FAIL(WH_USAGE, "unknown option --%s; --help lists the options", word);
}

/* The arguments not yet read, and the positional row that is filled next. */
struct reader {
    const struct wh_option *table, *positional;
    char *const *next, *const *end;
    void *out;
};

static enum wh_status value_of(struct reader *r, const struct wh_option *o, const char *joined, const char **value) {
    *value = joined;
    if (joined || !takes_value(o)) return WH_OK;
    if (r->next == r->end) return WH_FAIL(WH_USAGE, "--%s wants a value: --%s %s", o->name, o->name, o->value);
    *value = *r->next++;
    return WH_OK;
}

static enum wh_status read_long(struct reader *r, const char *argument) {
    const char *name = argument + 2, *equals = strchr(name, '='), *value;
    size_t bytes = equals ? (size_t)(equals - name) : strlen(name);
    const struct wh_option *o = find_long(r->table, name, bytes);
    if (!o) return unknown_long(r->table, name, bytes);
    if (equals && !takes_value(o)) return WH_FAIL(WH_USAGE, "--%s takes no value", o->name);
    WH_TRY(value_of(r, o, equals ? equals + 1 : NULL, &value));
    return store(o, value, r->out);
}

/* "-vq" is -v -q; the rest of the word is the value if the letter takes one: "-n4". */
static enum wh_status read_letters(struct reader *r, const char *argument) {
    for (const char *c = argument + 1; *c; c++) {
        const struct wh_option *o = find_letter(r->table, *c);
        const char *value;
        if (!o) return WH_FAIL(WH_USAGE, "unknown option -%c in '%s'; --help lists the options", *c, argument);
        WH_TRY(value_of(r, o, takes_value(o) && c[1] ? c + 1 : NULL, &value));
        WH_TRY(store(o, value, r->out));
        if (takes_value(o)) break;
    }
    return WH_OK;
}

static const struct wh_option *next_positional(const struct wh_option *o) {
    while (o->name && !is_positional(o)) o++;
    return o;
}

static enum wh_status read_positional(struct reader *r, const char *argument) {
    const struct wh_option *o = r->positional;
    if (!o->name) return WH_FAIL(WH_USAGE, "'%s' is one argument too many", argument);
    if (o->kind != WH_OPTION_REST) r->positional = next_positional(o + 1);
    return store(o, argument, r->out);
}

enum wh_status wh_options_parse(const struct wh_option *table, int argc, char *const *argv, void *out) {
    struct reader r = {table, next_positional(table), argv + 1, argv + argc, out};
    bool only_positionals = false;
    while (r.next < r.end) {
        const char *argument = *r.next++;
        if (only_positionals || argument[0] != '-' || argument[1] == '\0')
            WH_TRY(read_positional(&r, argument));
        else if (strcmp(argument, "--") == 0)
            only_positionals = true;
        else if (argument[1] == '-')
            WH_TRY(read_long(&r, argument));
        else
            WH_TRY(read_letters(&r, argument));
    }
    return WH_OK;
}

enum wh_status wh_options_require(const struct wh_option *table, const void *out) {
    for (const struct wh_option *o = table; o->name; o++)
        if (o->kind == WH_OPTION_REQUIRED && *(const char *const *)((const char *)out + o->offset) == NULL)
            return WH_FAIL(WH_USAGE, "%s is missing: %s", o->name, o->help);
    return WH_OK;
}

static void help_usage(const struct wh_option *table, const char *name, struct wh_text *out) {
    wh_text_add(out, "usage: wanhe %s [options]", name);
    for (const struct wh_option *o = table; o->name; o++) {
        if (o->kind == WH_OPTION_REQUIRED) wh_text_add(out, " %s", o->name);
        if (o->kind == WH_OPTION_OPTIONAL) wh_text_add(out, " [%s]", o->name);
        if (o->kind == WH_OPTION_REST) wh_text_add(out, " [%s ...]", o->name);
    }
}

static void help_row(const struct wh_option *o, struct wh_text *out) {
    struct wh_text left = {0};
    if (is_positional(o))
        wh_text_add(&left, "%s", o->name);
    else if (o->letter)
        wh_text_add(&left, "-%c, --%s", o->letter, o->name);
    else
        wh_text_add(&left, "    --%s", o->name);
    if (!is_positional(o) && takes_value(o)) wh_text_add(&left, " %s", o->value);
    wh_text_add(out, "  %-26s  %s\n", left.data, o->help);
    wh_text_fini(&left);
}

void wh_options_help(const struct wh_option *table, const char *name, const char *purpose, struct wh_text *out) {
    help_usage(table, name, out);
    wh_text_add(out, "\n\n%s\n", purpose);
    for (int positionals = 1; positionals >= 0; positionals--) {
        bool headed = false;
        for (const struct wh_option *o = table; o->name; o++) {
            if (is_positional(o) != (positionals == 1)) continue;
            if (!headed) wh_text_add(out, "\n%s:\n", positionals ? "arguments" : "options");
            headed = true;
            help_row(o, out);
        }
    }
}
