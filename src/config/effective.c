/* The table of keys as text: the effective configuration and the documentation. */
#include <stdio.h>
#include <string.h>

#include "config/keys.h"

enum { COMMENT_COLUMN = 56 };

void wh_config_source_text(const struct wh_config *c, enum wh_config_key key, struct wh_text *out) {
    const struct wh_config_source *s = &c->source[key];
    switch (s->kind) {
    case WH_SOURCE_DEFAULT:
        wh_text_add(out, "default");
        break;
    case WH_SOURCE_FILE:
        wh_text_add(out, "%s:%d", c->file_name, s->line);
        break;
    case WH_SOURCE_SET:
        wh_text_add(out, "--set");
        break;
    case WH_SOURCE_DERIVED:
        wh_text_add(out, "derived");
        break;
    case WH_SOURCE_FAULTY:
        wh_text_add(out, "faulty");
        break;
    }
}

/* Opens the sections of `path` that `before` did not have; returns the depth of its last part. */
static int add_sections(const char *path, const char *before, struct wh_text *out) {
    int depth = 0;
    bool shared = true;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1, depth++) {
        size_t bytes = (size_t)(dot - path) + 1;
        shared = shared && strncmp(path, before, bytes) == 0;
        if (shared)
            before += bytes;
        else
            wh_text_add(out, "%*s%.*s:\n", 2 * depth, "", (int)bytes - 1, path);
    }
    return depth;
}

/* A file's name may hold anything; a comment only what stays on its line. */
static void add_comment(const struct wh_config *c, enum wh_config_key key, struct wh_text *out) {
    size_t start = out->bytes;
    wh_config_source_text(c, key, out);
    for (size_t i = start; i < out->bytes; i++)
        if ((unsigned char)out->data[i] < 0x20 || (unsigned char)out->data[i] >= 0x7f) out->data[i] = '?';
    wh_text_add(out, "\n");
}

void wh_config_effective(const struct wh_config *c, struct wh_text *out) {
    const char *before = "";
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        const char *path = wh_config_rows[k].path, *dot = strrchr(path, '.');
        int depth = add_sections(path, before, out);
        size_t line_start = out->bytes;
        wh_text_add(out, "%*s%s: ", 2 * depth, "", dot ? dot + 1 : path);
        wh_config_value(c, (enum wh_config_key)k, out);
        size_t width = out->bytes - line_start;
        wh_text_add(out, "%*s  # ", width < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - width) : 0, "");
        add_comment(c, (enum wh_config_key)k, out);
        before = path;
    }
}

static const char *type_name(enum wh_config_type type) {
    static const char *const names[] = {
        [WH_TYPE_BOOL] = "true or false", [WH_TYPE_U32] = "whole number", [WH_TYPE_U64] = "whole number",
        [WH_TYPE_I64] = "whole number",   [WH_TYPE_REAL] = "number",      [WH_TYPE_TEXT] = "text",
        [WH_TYPE_LIST] = "text or list",  [WH_TYPE_CHOICE] = "word"};
    return names[type];
}

struct wh_config_key_info wh_config_key_info(enum wh_config_key key) {
    const struct wh_config_row *r = &wh_config_rows[key];
    return (struct wh_config_key_info){r->path, type_name(r->type), r->standard, r->words, r->unit, r->help};
}

static void add_legal(const struct wh_config_row *r, struct wh_text *out) {
    const char *w = r->words;
    if (r->type == WH_TYPE_BOOL) w = "true|false";
    bool number = r->type == WH_TYPE_U32 || r->type == WH_TYPE_U64 || r->type == WH_TYPE_I64 || r->type == WH_TYPE_REAL;
    if (number && r->highest < 1e299)
        wh_text_add(out, "%.10g to %.10g", r->lowest, r->highest);
    else if (number)
        wh_text_add(out, "%.10g or more", r->lowest);
    else if (!*w)
        wh_text_add(out, "%s", type_name(r->type));
    if (number && *w) wh_text_add(out, ", ");
    for (; *w; w += strcspn(w, "|"), w += *w == '|')
        wh_text_add(out, "`%.*s`%s", (int)strcspn(w, "|"), w, w[strcspn(w, "|")] ? ", " : "");
}

static void add_row(const struct wh_config_row *r, struct wh_text *out) {
    wh_text_add(out, "| `%s` | ", r->path);
    add_legal(r, out);
    if (*r->unit) wh_text_add(out, " %s", r->unit);
    if (*r->standard)
        wh_text_add(out, " | `%s` | %s |\n", r->standard, r->help);
    else
        wh_text_add(out, " | | %s |\n", r->help);
}

static void add_alias(const struct wh_config_alias *a, struct wh_text *out) {
    wh_text_add(out, "| `%s` | ", a->from);
    if (a->kind == WH_ALIAS_RENAME)
        wh_text_add(out, "`%s` |\n", a->to);
    else if (a->kind == WH_ALIAS_REFUSE)
        wh_text_add(out, "refused: %s |\n", a->hint);
    else {
        wh_text_add(out, "only ");
        for (const char *w = a->to; *w; w += strcspn(w, "|"), w += *w == '|')
            wh_text_add(out, "`%.*s`%s", (int)strcspn(w, "|"), w, w[strcspn(w, "|")] ? " or " : "");
        wh_text_add(out, ", which changes nothing; else: %s |\n", a->hint);
    }
}

void wh_config_markdown(struct wh_text *out) {
    wh_text_add(
        out,
        "# Keys of a run configuration\n\n"
        "Made by `wanhe config keys --markdown` from `src/config/keys.def`; don't edit.\n\n"
        "A run is one YAML file. A dot in a name below is one level of indentation there; on the command line\n"
        "`--set a.b=value` overrides a key. A null value is the same as a key that is not there. Unknown keys,\n"
        "keys given twice, anchors, tags and further documents are refused; all faults are told at once.\n"
        "Whole numbers may have underscores (`9_765_625`).\n\n"
        "| key | legal | default | meaning |\n|---|---|---|---|\n");
    for (int k = 0; k < WH_KEY_COUNT; k++) add_row(&wh_config_rows[k], out);
    wh_text_add(
        out,
        "\nThe batch: `global_batch_size = micro_batch_size * batch_accumulation_per_replica * dp`. One of the\n"
        "first three may be left out and is worked out; what is given must agree.\n\n"
        "## Spellings of other programs\n\n"
        "Names of nanotron are the keys themselves. A `-` may stand for a `_`. What is refused may stand there\n"
        "with a null value.\n\n"
        "| written | means |\n|---|---|\n");
    for (size_t i = 0; i < wh_config_alias_count; i++) add_alias(&wh_config_aliases[i], out);
}
