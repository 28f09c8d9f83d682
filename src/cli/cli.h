/* What every command shares: its row in the table, options that all accept, and how it speaks.
 *
 * Data goes to stdout, talk to stderr. With --json stdout holds exactly one JSON object (or one per line) whose first
 * member is its schema, "wanhe.NAME/1". A command is one file cmd_NAME.c:
 *
 *     struct args { struct wh_cli_common common; const char *file; };
 *     static const struct wh_option options[] = {
 *         {"FILE", 0, WH_OPTION_REQUIRED, offsetof(struct args, file), NULL, "token file to look at"},
 *         WH_CLI_COMMON(struct args), {0}};
 *
 *     int wh_cmd_inspect(int argc, char **argv) {
 *         struct args args = {0};
 *         int code;
 *         if (!wh_cli_begin("inspect", "Shows what it holds.", options, argc, argv, &args, &args.common, &code))
 *             return code;
 *         return wh_cli_end(inspect(&args));      // prints the record of a failed status, returns the exit code
 *     } */
#ifndef WH_CLI_CLI_H
#define WH_CLI_CLI_H

#include <jansson.h>

#include "base/options.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"

struct wh_cli_common {
    bool help, json, quiet;
    int verbose;
    const char *color; /* auto | always | never */
};

/* clang-format off */
#define WH_CLI_COMMON(T)                                                                                             \
    {"json", 0, WH_OPTION_FLAG, offsetof(T, common.json), NULL, "print JSON on stdout"},                             \
    {"quiet", 'q', WH_OPTION_FLAG, offsetof(T, common.quiet), NULL, "say nothing but errors"},                       \
    {"verbose", 'v', WH_OPTION_COUNT, offsetof(T, common.verbose), NULL, "say more (may be repeated)"},              \
    {"color", 0, WH_OPTION_TEXT, offsetof(T, common.color), "WHEN", "auto, always or never (also NO_COLOR)"},        \
    {"help", 'h', WH_OPTION_FLAG, offsetof(T, common.help), NULL, "show this"}
/* clang-format on */

/* The commands. argv[0] is the command's name. Each returns the exit code of the process. */
int wh_cmd_train(int argc, char **argv);
int wh_cmd_eval(int argc, char **argv);
int wh_cmd_generate(int argc, char **argv);
int wh_cmd_tokenize(int argc, char **argv);
int wh_cmd_inspect(int argc, char **argv);
int wh_cmd_import(int argc, char **argv);
int wh_cmd_export(int argc, char **argv);
int wh_cmd_config(int argc, char **argv);
int wh_cmd_layout(int argc, char **argv);
int wh_cmd_bench(int argc, char **argv);
int wh_cmd_explain(int argc, char **argv);
int wh_cmd_explain_zero(int argc, char **argv); /* explain's: argv[0] is "zero" */
int wh_cmd_tune(int argc, char **argv);
int wh_cmd_version(int argc, char **argv);

/* Parses the command line and sets how the functions below speak. False: the command is over (help was shown, or the
 * command line was wrong and the reason was printed) and *exit_code is its result. */
bool wh_cli_begin(const char *name, const char *purpose, const struct wh_option *options, int argc, char **argv,
                  void *args, const struct wh_cli_common *common, int *exit_code);

/* USAGE if the value of `option` ("--threads") is out of range: before it goes into something narrower. */
enum wh_status wh_cli_range(const char *option, uint64_t value, uint64_t lowest, uint64_t highest);

/* "4", "64K", "256M", "1G", powers of 1024; `given` NULL: `standard`. USAGE otherwise. */
enum wh_status wh_cli_size(const char *option, const char *given, size_t standard, size_t *out);

/* Exit code of `status`; prints the error record if it is not OK: "wanhe NAME: MEANING: message" and its "while"
 * frames on stderr, and with --json also {"schema": "wanhe.error/1", ...} on stdout. A failed write to stdout is an
 * error too. */
int wh_cli_end(enum wh_status status);

/* Talk, to stderr; a newline is added. say: unless --quiet. detail: only with -v. warn: "warning: ...", even with
 * --quiet. */
void wh_cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void wh_cli_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void wh_cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* getenv, for library functions that don't read the environment themselves. */
const char *wh_cli_environment(const char *name);

bool wh_cli_json(void);  /* --json was given */
bool wh_cli_quiet(void); /* --quiet was given */
/* Colours are wanted on stdout (fd 1) or stderr (fd 2): --color, NO_COLOR, CLICOLOR_FORCE, TERM, else a terminal. */
bool wh_cli_color(int fd);

/* A new object {"schema": "wanhe.NAME/1"}; members are added with jansson and keep their order. */
json_t *wh_cli_json_new(const char *name);
/* One line on stdout; the object is released. */
void wh_cli_json_print(json_t *object);

/* Reads a run configuration with its overrides, reads the model it names, checks all of it: everything wrong is told at
 * once. Free with wh_config_free. Errors: IO, CONFIG. */
enum wh_status wh_cli_config_load(const char *path, const struct wh_option_list *sets, struct wh_config *out);
/* The same for a plan: layouts are legal that this build does not train yet. */
enum wh_status wh_cli_config_load_plan(const char *path, const struct wh_option_list *sets, struct wh_config *out);

#endif
