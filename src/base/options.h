/* Command lines from one table: parser, --help text and (later) completions read the same rows.
 *
 *     struct args { const char *file; struct wh_option_list set; uint64_t steps; bool json; };
 *     static const struct wh_option options[] = {
 *         {"FILE", 0, WH_OPTION_REQUIRED, offsetof(struct args, file), NULL, "run configuration (YAML)"},
 *         {"set", 's', WH_OPTION_LIST, offsetof(struct args, set), "KEY=VALUE", "override one key; may be repeated"},
 *         {"steps", 0, WH_OPTION_UINT, offsetof(struct args, steps), "N", "stop after N steps"},
 *         {"json", 0, WH_OPTION_FLAG, offsetof(struct args, json), NULL, "machine-readable output"},
 *         {0}};
 *     struct args args = {0};
 *     WH_TRY(wh_options_parse(options, argc, argv, &args));
 *     ... if --help was asked for, show it; else ...
 *     WH_TRY(wh_options_require(options, &args));
 *
 * Accepted: `--name VALUE`, `--name=VALUE`, `--flag`, `-x VALUE`, `-xVALUE`, `-x`, joined flags `-vq`, `--` (all that
 * follows is positional). Options and positionals may be mixed. Positionals fill their rows in order. */
#ifndef WH_BASE_OPTIONS_H
#define WH_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum wh_option_kind {
    WH_OPTION_FLAG,     /* bool */
    WH_OPTION_COUNT,    /* int, one more each time (-vv) */
    WH_OPTION_TEXT,     /* const char *, points into argv */
    WH_OPTION_UINT,     /* uint64_t; digits and underscores */
    WH_OPTION_REAL,     /* double */
    WH_OPTION_LIST,     /* struct wh_option_list, one item each time */
    WH_OPTION_REQUIRED, /* positional, const char * */
    WH_OPTION_OPTIONAL, /* positional, const char *, may be left out */
    WH_OPTION_REST,     /* positionals that remain, struct wh_option_list */
};

enum { WH_OPTION_LIST_MAX = 256 };

struct wh_option_list {
    const char *item[WH_OPTION_LIST_MAX]; /* point into argv */
    size_t count;
};

struct wh_option {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* short form, 0: none */
    enum wh_option_kind kind;
    size_t offset;     /* of the field in the struct that is filled */
    const char *value; /* how --help calls the value, "N"; NULL for flags */
    const char *help;  /* one line */
};

/* `argv[0]` is the command's name and is skipped. Fields of options not given are left as they are. Fields of what came
 * before a fault may have been written. Errors: USAGE, with the nearest legal name. */
enum wh_status wh_options_parse(const struct wh_option *table, int argc, char *const *argv, void *out);

/* Every REQUIRED positional was given (is not NULL). Apart from the parser so that `--help` works without them.
 * Errors: USAGE. */
enum wh_status wh_options_require(const struct wh_option *table, const void *out);

/* "usage: wanhe NAME [options] FILE" and one line per row. */
void wh_options_help(const struct wh_option *table, const char *name, const char *purpose, struct wh_text *out);

/* Whole text as a number: digits with single underscores between them, nothing else ("9_765_625"). False if it isn't
 * one or does not fit. */
bool wh_text_to_uint(const char *text, uint64_t *out);
/* Whole text as a finite decimal number ("3.0e-4"); underscores as above. */
bool wh_text_to_real(const char *text, double *out);

#endif
