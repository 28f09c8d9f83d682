/* The rows of keys.def and aliases.def; for the files of this folder alone. */
#ifndef WH_CONFIG_KEYS_H
#define WH_CONFIG_KEYS_H

#include "config/config.h"

enum wh_config_type {
    WH_TYPE_BOOL,
    WH_TYPE_U32,
    WH_TYPE_U64,
    WH_TYPE_I64,
    WH_TYPE_REAL,
    WH_TYPE_TEXT,
    WH_TYPE_LIST,
    WH_TYPE_CHOICE
};

struct wh_config_row {
    const char *path;
    enum wh_config_type type;
    size_t offset; /* of the field */
    const char *standard;
    double lowest, highest;
    const char *words, *unit, *help;
};

extern const struct wh_config_row wh_config_rows[WH_KEY_COUNT];

enum wh_config_alias_kind { WH_ALIAS_RENAME, WH_ALIAS_NEUTRAL, WH_ALIAS_REFUSE };

struct wh_config_alias {
    const char *from;
    enum wh_config_alias_kind kind;
    const char *to; /* RENAME: path; NEUTRAL: accepted words; REFUSE: "" */
    const char *hint;
};

extern const struct wh_config_alias wh_config_aliases[];
extern const size_t wh_config_alias_count;

/* -1: no such key. Compares '-' and '_' as equal, as command-line flags of other programs are written with the former.
 */
int wh_config_find_key(const char *path);
const struct wh_config_alias *wh_config_find_alias(const char *path);
/* Some key or alias starts with `path` and a dot. */
bool wh_config_is_section(const char *path);
/* Adds "; did you mean 'a.b'?": in the same section, else anywhere. */
void wh_config_suggest(const char *path, struct wh_text *out);

/* Writes the field from `count` texts (more than one: lists only). False: *why says what would be legal. */
bool wh_config_store(struct wh_config *c, enum wh_config_key key, const char *const *texts, size_t count,
                     struct wh_text *why);
/* Back to the default. */
void wh_config_reset(struct wh_config *c, enum wh_config_key key);
bool wh_config_is_null(const struct wh_config *c, enum wh_config_key key); /* no value at all */

/* `word` is one of "a|b|c" (ignoring case): its index, else -1. */
int wh_config_word_index(const char *words, const char *word);

/* Copies that live as long as the configuration. */
const char *wh_config_keep(struct wh_config *c, const char *text);
const char *wh_config_keep_bytes(struct wh_config *c, const char *data, size_t bytes);

#endif
