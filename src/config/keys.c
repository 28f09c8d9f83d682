#include "config/keys.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

const struct wh_config_row wh_config_rows[WH_KEY_COUNT] = {
#define X(id, path, type, field, standard, lowest, highest, words, unit, help) \
    {path, WH_TYPE_##type, offsetof(struct wh_config, field), standard, lowest, highest, words, unit, help},
#include "config/keys.def"
#undef X
};

const struct wh_config_alias wh_config_aliases[] = {
#define A(from, kind, to, hint) {from, WH_ALIAS_##kind, to, hint},
#include "config/aliases.def"
#undef A
};

enum { ALIASES = sizeof wh_config_aliases / sizeof *wh_config_aliases };

const size_t wh_config_alias_count = ALIASES;

static char folded(char c) { return c == '-' ? '_' : c; }

static bool same_path(const char *a, const char *b) {
    while (*a && folded(*a) == folded(*b)) a++, b++;
    return *a == *b;
}

int wh_config_find_key(const char *path) {
    for (int k = 0; k < WH_KEY_COUNT; k++)
        if (same_path(wh_config_rows[k].path, path)) return k;
    return -1;
}

const struct wh_config_alias *wh_config_find_alias(const char *path) {
    if (strncmp(path, "--", 2) == 0) path += 2;
    for (int i = 0; i < ALIASES; i++)
        if (same_path(wh_config_aliases[i].from, path)) return &wh_config_aliases[i];
    return NULL;
}

static bool starts_section(const char *longer, const char *path, size_t bytes) {
    return strncmp(longer, path, bytes) == 0 && longer[bytes] == '.';
}

bool wh_config_is_section(const char *path) {
    size_t bytes = strlen(path);
    for (int k = 0; k < WH_KEY_COUNT; k++)
        if (starts_section(wh_config_rows[k].path, path, bytes)) return true;
    for (int i = 0; i < ALIASES; i++)
        if (starts_section(wh_config_aliases[i].from, path, bytes)) return true;
    return false;
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Among the names that stand directly in the same section as `path`. */
static bool suggest_sibling(const char *path, struct wh_text *out) {
    const char *name = last_part(path), *siblings[WH_KEY_COUNT], *nearest;
    char parts[WH_KEY_COUNT][64];
    size_t prefix = (size_t)(name - path), count = 0;
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        const char *p = wh_config_rows[k].path;
        if (strncmp(p, path, prefix) != 0) continue;
        size_t bytes = strcspn(p + prefix, ".");
        memcpy(parts[count], p + prefix, bytes);
        parts[count][bytes] = '\0';
        siblings[count] = parts[count];
        count++;
    }
    nearest = wh_text_nearest(name, siblings, count);
    if (nearest) wh_text_add(out, "; did you mean '%.*s%s'?", (int)prefix, path, nearest);
    return nearest != NULL;
}

/* The same name, or nearly, in another section. */
static bool suggest_elsewhere(const char *path, struct wh_text *out) {
    const char *name = last_part(path), *names[WH_KEY_COUNT], *nearest;
    for (int k = 0; k < WH_KEY_COUNT; k++) names[k] = last_part(wh_config_rows[k].path);
    nearest = wh_text_nearest(name, names, WH_KEY_COUNT);
    for (int k = 0; nearest && k < WH_KEY_COUNT; k++)
        if (names[k] == nearest) {
            wh_text_add(out, "; did you mean '%s'?", wh_config_rows[k].path);
            return true;
        }
    return false;
}

void wh_config_suggest(const char *path, struct wh_text *out) {
    if (!suggest_sibling(path, out) && !suggest_elsewhere(path, out))
        wh_text_add(out, "; `wanhe config keys` lists the keys");
}

int wh_config_word_index(const char *words, const char *word) {
    size_t bytes = strlen(word);
    for (int i = 0; *words; i++) {
        size_t n = strcspn(words, "|");
        if (n == bytes && strncasecmp(words, word, n) == 0) return i;
        words += n + (words[n] == '|');
    }
    return -1;
}
