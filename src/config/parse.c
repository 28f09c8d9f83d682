/* YAML events to fields. A mapping is walked with the path of names above it; a scalar or a list of scalars is a value.
 * Anchors, aliases, tags, merge keys and further documents are refused: a run configuration is what stands there. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "config/keys.h"

enum { TEXT_BYTES_MAX = 1 << 20, PATH_BYTES = 256, DEPTH_MAX = 8, LIST_MAX = 4096, SECTIONS_MAX = 64 };

struct reader {
    yaml_parser_t yaml;
    struct wh_config *config;
    struct wh_faults *faults;
    const char *label; /* file name, or "--set a.b=c" */
    bool is_set;
    const char *text;
    int seen[WH_KEY_COUNT]; /* line where the key stands in this text, 0: not yet */
    struct {
        char path[PATH_BYTES];
        int line;
    } sections[SECTIONS_MAX];
    int section_count;
};

/* "file:line:column: message"; an override has no lines. */
static void fault(struct reader *r, yaml_mark_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fault(struct reader *r, yaml_mark_t at, const char *format, ...) {
    char place[PATH_BYTES], message[768];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (r->is_set) {
        wh_faults_add(r->faults, r->label, 0, "%s", message);
        return;
    }
    snprintf(place, sizeof place, "%.200s:%d", r->label, (int)at.line + 1);
    wh_faults_add(r->faults, place, (int)at.column + 1, "%s", message);
}

static bool line_starts_with_tab(const struct reader *r, size_t line) {
    const char *t = r->text;
    while (line-- && t) t = (t = strchr(t, '\n')) ? t + 1 : NULL;
    if (!t) return false;
    return t[strspn(t, " ")] == '\t';
}

/* What follows in the file is not read: rules across keys would call it missing. */
static void stop(struct reader *r) {
    if (!r->is_set) r->config->incomplete = true;
}

/* Where the byte at `offset` stands. */
static yaml_mark_t mark_of(const struct reader *r, size_t offset) {
    yaml_mark_t at = {0};
    for (size_t i = 0; i < offset; i++) {
        at.column++;
        if (r->text[i] == '\n') at.line++, at.column = 0;
    }
    return at;
}

static void syntax_fault(struct reader *r) {
    const yaml_parser_t *y = &r->yaml;
    const char *problem = y->problem ? y->problem : "not readable";
    yaml_mark_t at = y->error == YAML_READER_ERROR ? mark_of(r, y->problem_offset) : y->problem_mark;
    stop(r);
    if (line_starts_with_tab(r, at.line))
        fault(r, at, "a tab; YAML is indented with spaces");
    else
        fault(r, at, "%s%s%s", y->context ? y->context : "", y->context ? ": " : "", problem);
}

/* Ends the whole reading if it fails: libyaml can't go on after a syntax error. */
static bool next_event(struct reader *r, yaml_event_t *e) {
    if (yaml_parser_parse(&r->yaml, e)) return true;
    syntax_fault(r);
    return false;
}

static bool opens(yaml_event_type_t t) { return t == YAML_MAPPING_START_EVENT || t == YAML_SEQUENCE_START_EVENT; }
static bool closes(yaml_event_type_t t) { return t == YAML_MAPPING_END_EVENT || t == YAML_SEQUENCE_END_EVENT; }

/* The rest of a value whose first event was `first`. */
static bool skip_value(struct reader *r, yaml_event_type_t first) {
    int depth = opens(first);
    while (depth > 0) {
        yaml_event_t e;
        if (!next_event(r, &e)) return false;
        depth += opens(e.type) - closes(e.type);
        yaml_event_delete(&e);
    }
    return true;
}

/* A value as texts; a scalar is one. Texts are copies. */
struct value {
    char *texts[LIST_MAX];
    size_t count;
    bool null, list;
    yaml_mark_t at;
};

static void value_free(struct value *v) {
    for (size_t i = 0; i < v->count; i++) free(v->texts[i]);
    free(v);
}

static bool is_null(const yaml_event_t *e) {
    const char *t = (const char *)e->data.scalar.value;
    if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    return *t == '\0' || wh_config_word_index("~|null", t) >= 0;
}

static bool has_anchor(const yaml_event_t *e) {
    if (e->type == YAML_MAPPING_START_EVENT) return e->data.mapping_start.anchor || e->data.mapping_start.tag;
    if (e->type == YAML_SEQUENCE_START_EVENT) return e->data.sequence_start.anchor || e->data.sequence_start.tag;
    return e->type == YAML_SCALAR_EVENT && (e->data.scalar.anchor || e->data.scalar.tag);
}

static const char *odd_scalar(const yaml_event_t *e) {
    if (has_anchor(e)) return "anchors (&), aliases (*) and tags (!) are not supported; write the value out";
    if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length) return "a zero byte in a value";
    return NULL;
}

static bool value_add(struct reader *r, struct value *v, const yaml_event_t *e) {
    const char *odd = odd_scalar(e);
    if (!odd && v->count == LIST_MAX) odd = "more than 4096 items";
    if (odd) {
        fault(r, e->start_mark, "%s", odd);
        return false;
    }
    v->texts[v->count] = strdup((const char *)e->data.scalar.value);
    WH_ASSERT(v->texts[v->count] != NULL);
    v->count++;
    return true;
}

/* Items up to the end of a list. *good: all were plain values. False: syntax error. */
static bool read_items(struct reader *r, struct value *v, bool *good) {
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e)) return false;
        yaml_event_type_t type = e.type;
        if (type == YAML_SCALAR_EVENT) {
            if (is_null(&e))
                fault(r, e.start_mark, "an empty item in a list"), *good = false;
            else if (*good)
                *good = value_add(r, v, &e);
        } else if (type != YAML_SEQUENCE_END_EVENT) {
            fault(r, e.start_mark, "a list of plain values is wanted here");
            *good = false;
        }
        yaml_event_delete(&e);
        if (type == YAML_SEQUENCE_END_EVENT) return true;
        if (!skip_value(r, type)) return false;
    }
}

static void store(struct reader *r, enum wh_config_key key, const char *written, const struct value *v) {
    struct wh_config *c = r->config;
    struct wh_text why = {0};
    if (v->null) {
        if (r->is_set) wh_config_reset(c, key);
        return;
    }
    if (v->list && wh_config_rows[key].type != WH_TYPE_LIST) wh_text_add(&why, "takes one value, not a list");
    if (!why.bytes && wh_config_store(c, key, (const char *const *)v->texts, v->count, &why)) {
        c->source[key] =
            (struct wh_config_source){r->is_set ? WH_SOURCE_SET : WH_SOURCE_FILE, r->is_set ? 0 : (int)v->at.line + 1};
    } else {
        fault(r, v->at, "%s%s%.60s%s %s", written, v->list ? "" : ": '", v->list ? "" : v->texts[0], v->list ? "" : "'",
              why.data);
        c->source[key].kind = WH_SOURCE_FAULTY;
    }
    wh_text_fini(&why);
}

static void assign_key(struct reader *r, enum wh_config_key key, const char *written, const struct value *v) {
    const char *path = wh_config_rows[key].path;
    int line = (int)v->at.line + 1;
    if (r->seen[key]) {
        const char *as = strcmp(path, written) ? path : "";
        fault(r, v->at, "%s is given twice%s%s%s; first in line %d", written, *as ? " (it means " : "", as,
              *as ? ")" : "", r->seen[key]);
        return;
    }
    r->seen[key] = line;
    store(r, key, written, v);
}

static void assign_alias(struct reader *r, const struct wh_config_alias *a, const char *written,
                         const struct value *v) {
    if (a->kind == WH_ALIAS_RENAME) {
        int key = wh_config_find_key(a->to);
        WH_ASSERT(key >= 0);
        assign_key(r, (enum wh_config_key)key, written, v);
        return;
    }
    if (v->null) return;
    if (a->kind == WH_ALIAS_NEUTRAL && v->count == 1 && wh_config_word_index(a->to, v->texts[0]) >= 0) return;
    fault(r, v->at, "%s%s%.60s has no meaning here: %s", written, v->list ? "" : ": ", v->list ? "" : v->texts[0],
          a->hint);
}

/* A section that is not read: what it would have held counts as given wrongly, not as missing. */
static void spoil_section(struct reader *r, const char *path) {
    size_t bytes = strlen(path);
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        const char *p = wh_config_rows[k].path;
        if (strncmp(p, path, bytes) == 0 && (p[bytes] == '.' || p[bytes] == '\0') && !r->seen[k])
            r->config->source[k].kind = WH_SOURCE_FAULTY;
    }
}

static void unknown(struct reader *r, yaml_mark_t at, const char *path) {
    struct wh_text suggestion = {0};
    wh_config_suggest(path, &suggestion);
    fault(r, at, "unknown key '%s'%s", path, suggestion.data);
    wh_text_fini(&suggestion);
}

static void assign(struct reader *r, const char *path, yaml_mark_t key_mark, const struct value *v) {
    int key = wh_config_find_key(path);
    const struct wh_config_alias *alias = key < 0 ? wh_config_find_alias(path) : NULL;
    if (key >= 0)
        assign_key(r, (enum wh_config_key)key, path, v);
    else if (alias)
        assign_alias(r, alias, path, v);
    else if (!wh_config_is_section(path))
        unknown(r, key_mark, path);
    else if (!v->null || r->is_set) {
        fault(r, v->at, "%s is a section: keys below it are wanted, not a value", path);
        spoil_section(r, path);
    }
}

static bool read_mapping(struct reader *r, const char *prefix, int depth);

/* A mapping where the key is no section: told once, then skipped. */
static bool refuse_mapping(struct reader *r, const char *path, yaml_mark_t key_mark, yaml_event_type_t type) {
    const struct wh_config_alias *alias = wh_config_find_alias(path);
    if (wh_config_find_key(path) >= 0)
        fault(r, key_mark, "%s takes a value, not keys below it", path);
    else if (alias && alias->kind == WH_ALIAS_RENAME)
        fault(r, key_mark, "%s takes a value: it means %s", path, alias->to);
    else if (alias)
        fault(r, key_mark, "%s has no meaning here: %s", path, alias->hint);
    else
        unknown(r, key_mark, path);
    return skip_value(r, type);
}

static bool enter_section(struct reader *r, const char *path, yaml_mark_t at) {
    for (int i = 0; i < r->section_count; i++)
        if (strcmp(r->sections[i].path, path) == 0) {
            fault(r, at, "section %s is given twice; first in line %d", path, r->sections[i].line);
            spoil_section(r, path);
            return false;
        }
    if (r->section_count == SECTIONS_MAX) return true;
    snprintf(r->sections[r->section_count].path, PATH_BYTES, "%s", path);
    r->sections[r->section_count++].line = (int)at.line + 1;
    return true;
}

static bool read_scalar_or_list(struct reader *r, const char *path, yaml_mark_t key_mark, const yaml_event_t *first) {
    struct value *v = calloc(1, sizeof *v);
    bool good = true, alive = true;
    WH_ASSERT(v != NULL);
    v->at = first->start_mark;
    if (first->type == YAML_SCALAR_EVENT) {
        v->null = is_null(first);
        good = value_add(r, v, first);
    } else {
        v->list = true;
        alive = read_items(r, v, &good);
    }
    if (alive && good) assign(r, path, key_mark, v);
    if (!good) spoil_section(r, path);
    value_free(v);
    return alive;
}

static bool read_value(struct reader *r, const char *path, yaml_mark_t key_mark, int depth) {
    yaml_event_t e;
    bool alive = true;
    if (!next_event(r, &e)) return false;
    if (e.type == YAML_ALIAS_EVENT || has_anchor(&e)) {
        fault(r, e.start_mark, "anchors (&), aliases (*) and tags (!) are not supported; write the value out");
        spoil_section(r, path);
        alive = skip_value(r, e.type);
    } else if (e.type != YAML_MAPPING_START_EVENT) {
        alive = read_scalar_or_list(r, path, key_mark, &e);
    } else if (!wh_config_is_section(path) || depth >= DEPTH_MAX) {
        alive = refuse_mapping(r, path, key_mark, e.type);
    } else {
        alive = enter_section(r, path, key_mark) ? read_mapping(r, path, depth + 1) : skip_value(r, e.type);
    }
    yaml_event_delete(&e);
    return alive;
}

static bool read_pair(struct reader *r, const char *prefix, const yaml_event_t *key, int depth) {
    char path[PATH_BYTES];
    if (key->type != YAML_SCALAR_EVENT || odd_scalar(key)) {
        yaml_event_t e;
        fault(r, key->start_mark, "a plain name is wanted as key");
        if (!skip_value(r, key->type) || !next_event(r, &e)) return false;
        bool alive = skip_value(r, e.type);
        yaml_event_delete(&e);
        return alive;
    }
    snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", (const char *)key->data.scalar.value);
    return read_value(r, path, key->start_mark, depth);
}

static bool read_mapping(struct reader *r, const char *prefix, int depth) {
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e)) return false;
        bool end = e.type == YAML_MAPPING_END_EVENT, alive = end || read_pair(r, prefix, &e, depth);
        yaml_event_delete(&e);
        if (end || !alive) return alive;
    }
}

/* The root of a document. */
static bool read_root(struct reader *r, const yaml_event_t *e) {
    if (e->type == YAML_MAPPING_START_EVENT && !has_anchor(e)) return read_mapping(r, "", 0);
    if (e->type == YAML_SCALAR_EVENT && is_null(e)) return true;
    fault(r, e->start_mark, "sections with keys are wanted here, like 'tokens:'");
    stop(r);
    return skip_value(r, e->type);
}

static void read_stream(struct reader *r) {
    int documents = 0;
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e)) return;
        yaml_event_type_t type = e.type;
        bool alive = true;
        if (type == YAML_DOCUMENT_START_EVENT && ++documents > 1) {
            fault(r, e.start_mark, "a second document ('---'); one file is one run");
            stop(r);
            alive = false;
        } else if (opens(type) || type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT) {
            alive = read_root(r, &e);
        }
        yaml_event_delete(&e);
        if (!alive || type == YAML_STREAM_END_EVENT) return;
    }
}

static void read_text(struct reader *r, const char *text, size_t bytes) {
    if (bytes > TEXT_BYTES_MAX) {
        wh_faults_add(r->faults, r->label, 0, "%zu bytes; a run configuration has 1 MiB at most", bytes);
        stop(r);
        return;
    }
    char *copy = malloc(bytes + 1); /* with a NUL, for line_starts_with_tab */
    int initialized = yaml_parser_initialize(&r->yaml);
    WH_ASSERT(copy != NULL && initialized);
    if (bytes) memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    r->text = copy;
    yaml_parser_set_input_string(&r->yaml, (const unsigned char *)copy, bytes);
    yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
    read_stream(r);
    yaml_parser_delete(&r->yaml);
    free(copy);
}

/* "a.b=c" is the text "a.b: c". */
static void read_set(struct wh_config *c, const char *set, struct wh_faults *faults) {
    struct reader *r = calloc(1, sizeof *r);
    struct wh_text text = {0}, label = {0};
    const char *equals = strchr(set, '=');
    WH_ASSERT(r != NULL);
    wh_text_add(&label, "--set %.200s", set);
    if (!equals || equals == set) {
        wh_faults_add(faults, label.data, 0, "KEY=VALUE is wanted, as in tokens.train_steps=100");
    } else {
        wh_text_add(&text, "%.*s: %s", (int)(equals - set), set, equals + 1);
        r->config = c, r->faults = faults, r->label = label.data, r->is_set = true;
        read_text(r, text.data, text.bytes);
    }
    wh_text_fini(&text);
    wh_text_fini(&label);
    free(r);
}

void wh_config_parse(const char *text, size_t bytes, const char *file_name, const char *const *sets, size_t set_count,
                     struct wh_config *out, struct wh_faults *faults) {
    *out = (struct wh_config){0};
    out->file_name = wh_config_keep(out, file_name);
    for (int k = 0; k < WH_KEY_COUNT; k++) wh_config_reset(out, (enum wh_config_key)k);
    if (text) {
        struct reader *r = calloc(1, sizeof *r);
        WH_ASSERT(r != NULL);
        r->config = out, r->faults = faults, r->label = out->file_name;
        read_text(r, text, bytes);
        free(r);
    }
    for (size_t i = 0; i < set_count; i++) read_set(out, sets[i], faults);
}
