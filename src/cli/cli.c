#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/terminal.h"

enum { STANDARD_ERROR = 2 };

/* How this process speaks; written once by wh_cli_begin. */
static struct {
    const char *command;
    struct wh_cli_common options;
} speech;

bool wh_cli_json(void) { return speech.options.json; }
bool wh_cli_quiet(void) { return speech.options.quiet; }

const char *wh_cli_environment(const char *name) { return getenv(name); }

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value;
}

bool wh_cli_color(int fd) {
    const char *color = speech.options.color, *term = getenv("TERM"), *force = getenv("CLICOLOR_FORCE");
    if (color && strcmp(color, "always") == 0) return true;
    if (color && strcmp(color, "never") == 0) return false;
    if (is_set("NO_COLOR")) return false;
    if (is_set("CLICOLOR_FORCE") && strcmp(force, "0") != 0) return true;
    return wh_terminal_is(fd) && term && strcmp(term, "dumb") != 0;
}

/* One write per line, so that lines of several processes don't mix. */
static void talk(const char *prefix, const char *style, const char *format, va_list args) {
    char line[WH_ERROR_MESSAGE_BYTES + 256];
    bool color = style && wh_cli_color(STANDARD_ERROR);
    vsnprintf(line, sizeof line, format, args);
    fprintf(stderr, "%s%s%s%s\n", color ? style : "", prefix, color ? "\033[0m" : "", line);
}

void wh_cli_say(const char *format, ...) {
    va_list args;
    if (speech.options.quiet) return;
    va_start(args, format);
    talk("", NULL, format, args);
    va_end(args);
}

void wh_cli_detail(const char *format, ...) {
    va_list args;
    if (speech.options.verbose == 0 || speech.options.quiet) return;
    va_start(args, format);
    talk("", NULL, format, args);
    va_end(args);
}

void wh_cli_warn(const char *format, ...) {
    va_list args;
    va_start(args, format);
    talk("warning: ", "\033[33m", format, args);
    va_end(args);
}

json_t *wh_cli_json_new(const char *name) {
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_sprintf("wanhe.%s/1", name));
    return object;
}

void wh_cli_json_print(json_t *object) {
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    fputc('\n', stdout);
    json_decref(object);
}

static void print_error_text(const struct wh_error *e) {
    bool color = wh_cli_color(STANDARD_ERROR);
    const char *gap = strchr(e->message, '\n') ? "\n" : " "; /* several faults: each on a line of its own */
    fprintf(stderr, "wanhe%s%s: %s%s%s:%s%s\n", speech.command ? " " : "", speech.command ? speech.command : "",
            color ? "\033[31m" : "", wh_status_text(e->code), color ? "\033[0m" : "", gap, e->message);
    for (int i = 0; i < e->frames; i++) fprintf(stderr, "  while %s\n", e->frame[i]);
    if (speech.options.verbose) fprintf(stderr, "  detected at %s:%d\n", e->file, e->line);
}

static void print_error_json(const struct wh_error *e) {
    json_t *object = wh_cli_json_new("error"), *frames = json_array();
    json_object_set_new(object, "command", speech.command ? json_string(speech.command) : json_null());
    json_object_set_new(object, "code", json_string(wh_status_name(e->code)));
    json_object_set_new(object, "exit_code", json_integer(wh_status_exit_code(e->code)));
    json_object_set_new(object, "meaning", json_string(wh_status_text(e->code)));
    json_object_set_new(object, "message", json_string(e->message));
    for (int i = 0; i < e->frames; i++) json_array_append_new(frames, json_string(e->frame[i]));
    json_object_set_new(object, "while", frames);
    wh_cli_json_print(object);
}

int wh_cli_end(enum wh_status status) {
    if (status == WH_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = WH_FAIL(WH_IO, "cannot write to standard output: %s", strerror(errno));
    if (status == WH_OK) return 0;
    if (speech.options.json) print_error_json(wh_error());
    fflush(stdout);
    print_error_text(wh_error());
    return wh_status_exit_code(status);
}

enum wh_status wh_cli_range(const char *option, uint64_t value, uint64_t lowest, uint64_t highest) {
    if (value >= lowest && value <= highest) return WH_OK;
    return WH_FAIL(WH_USAGE, "%s %llu: legal: %llu to %llu", option, (unsigned long long)value,
                   (unsigned long long)lowest, (unsigned long long)highest);
}

enum wh_status wh_cli_size(const char *option, const char *given, size_t standard, size_t *out) {
    char digits[32];
    uint64_t value;
    *out = standard;
    if (!given) return WH_OK;
    const size_t length = strspn(given, "0123456789_");
    static const char units[] = "KMG";
    const char *unit = given[length] ? strchr(units, given[length]) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    snprintf(digits, sizeof digits, "%.*s", (int)length, given);
    if (length >= sizeof digits || (given[length] && (!unit || given[length + 1])) ||
        !wh_text_to_uint(digits, &value) || value == 0 || value > ((uint64_t)1 << 40) >> shift)
        return WH_FAIL(WH_USAGE, "%s %s: a size from 1 to 1024G, such as 4, 64K, 256M", option, given);
    *out = (size_t)value << shift;
    return WH_OK;
}

static enum wh_status check_color(const char *color) {
    if (!color || strcmp(color, "auto") == 0 || strcmp(color, "always") == 0 || strcmp(color, "never") == 0)
        return WH_OK;
    return WH_FAIL(WH_USAGE, "--color %s: auto, always or never", color);
}

static int usage_failed(const char *name) {
    int code = wh_cli_end(wh_error()->code);
    fprintf(stderr, "`wanhe %s --help` shows the usage\n", name);
    return code;
}

/* A command line that was not understood still says how it wants its error. */
static bool asks_for_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

bool wh_cli_begin(const char *name, const char *purpose, const struct wh_option *options, int argc, char **argv,
                  void *args, const struct wh_cli_common *common, int *exit_code) {
    enum wh_status status = wh_options_parse(options, argc, argv, args);
    speech.command = name;
    speech.options = *common;
    if (status != WH_OK) speech.options.json = asks_for_json(argc, argv);
    if (status == WH_OK && common->help) {
        struct wh_text help = {0};
        wh_options_help(options, name, purpose, &help);
        fputs(help.data, stdout);
        wh_text_fini(&help);
        *exit_code = wh_cli_end(WH_OK);
        return false;
    }
    if (status == WH_OK) status = check_color(common->color);
    if (status == WH_OK) status = wh_options_require(options, args);
    if (status == WH_OK) return true;
    *exit_code = usage_failed(name);
    return false;
}
