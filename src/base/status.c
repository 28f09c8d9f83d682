#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct wh_error record;

static const struct {
    const char *name, *text;
    int exit_code;
} codes[WH_STATUS_COUNT] = {
    {"OK", "fine", 0},
#define X(name, exit_code, text) {#name, text, exit_code},
#include "base/status.def"
#undef X
};

struct wh_error *wh_error(void) {
    return &record;
}

static void format_cut(char *out, size_t bytes, const char *format, va_list args) {
    int n = vsnprintf(out, bytes, format, args);
    if (n >= 0 && (size_t)n >= bytes) memcpy(out + bytes - 4, "...", 4);
}

enum wh_status wh_fail(const char *file, int line, enum wh_status code, const char *format, ...) {
    va_list args;
    record.code = code;
    record.file = file;
    record.line = line;
    record.rank = record.step = record.instruction = -1;
    record.frames = 0;
    va_start(args, format);
    format_cut(record.message, sizeof record.message, format, args);
    va_end(args);
    return code;
}

enum wh_status wh_while(enum wh_status code, const char *format, ...) {
    va_list args;
    if (code == WH_OK || record.frames >= WH_ERROR_FRAMES) return code;
    va_start(args, format);
    format_cut(record.frame[record.frames++], WH_ERROR_FRAME_BYTES, format, args);
    va_end(args);
    return code;
}

static int code_index(enum wh_status code) { return code < WH_STATUS_COUNT ? (int)code : WH_INTERNAL; }

const char *wh_status_name(enum wh_status code) { return codes[code_index(code)].name; }
const char *wh_status_text(enum wh_status code) { return codes[code_index(code)].text; }
int wh_status_exit_code(enum wh_status code) { return codes[code_index(code)].exit_code; }

void wh_assert_failed(const char *file, int line, const char *claim) {
    fprintf(stderr, "wanhe: internal error: %s:%d: %s does not hold\n", file, line, claim);
    abort();
}
