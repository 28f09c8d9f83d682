/* What the files of wh_config_check share; for this folder alone. */
#ifndef WH_CONFIG_CHECK_INT_H
#define WH_CONFIG_CHECK_INT_H

#include <stdarg.h>
#include <stdio.h>

#include "config/keys.h"

struct check {
    struct wh_config *c;
    struct wh_faults *faults;
};

static inline bool given(const struct wh_config *c, enum wh_config_key k) {
    return c->source[k].kind == WH_SOURCE_FILE || c->source[k].kind == WH_SOURCE_SET;
}
static inline bool faulty(const struct wh_config *c, enum wh_config_key k) {
    return c->source[k].kind == WH_SOURCE_FAULTY;
}
static inline void derived(struct wh_config *c, enum wh_config_key k) { c->source[k].kind = WH_SOURCE_DERIVED; }
static inline const char *path(enum wh_config_key k) { return wh_config_rows[k].path; }

/* Said at the place where `k` stands. */
__attribute__((format(printf, 3, 4))) static inline void fault(struct check *x, enum wh_config_key k,
                                                               const char *format, ...) {
    const struct wh_config_source *s = &x->c->source[k];
    char message[768];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    wh_faults_add(x->faults, s->kind == WH_SOURCE_SET ? "--set" : x->c->file_name,
                  s->kind == WH_SOURCE_FILE ? s->line : 0, "%s", message);
}

/* Schedule, stages and their layers; model and batch are known. */
void wh_config_check_pipeline(struct check *x);
/* The nearest pipeline of at most `most` ranks, by its layers; 0: none (a schedule file has its own length). */
uint32_t wh_config_nearest_pp(const struct wh_config *c, uint32_t most);

#endif
