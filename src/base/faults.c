#include "base/faults.h"

#include <stdarg.h>
#include <stdio.h>

void wh_faults_add(struct wh_faults *f, const char *file, int line, const char *format, ...) {
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (f->count++) wh_text_add(&f->text, "\n");
    if (file && line > 0)
        wh_text_add(&f->text, "%s:%d: %s", file, line, message);
    else if (file)
        wh_text_add(&f->text, "%s: %s", file, message);
    else
        wh_text_add(&f->text, "%s", message);
}

/* A record holds so much: whole faults, and how many are left out. */
static void cut_to_record(struct wh_faults *f) {
    enum { ROOM = WH_ERROR_MESSAGE_BYTES - 64 };
    size_t shown = 1, bytes = 0;
    if (f->text.bytes < WH_ERROR_MESSAGE_BYTES) return;
    for (size_t i = 0; i < ROOM; i++)
        if (f->text.data[i] == '\n') bytes = i, shown++;
    shown--;
    if (bytes == 0) return;
    f->text.data[f->text.bytes = bytes] = '\0';
    wh_text_add(&f->text, "\n... and %zu more", f->count - shown);
}

enum wh_status wh_faults_status(struct wh_faults *f, enum wh_status code) {
    cut_to_record(f);
    enum wh_status status = f->count ? WH_FAIL(code, "%s", f->text.data) : WH_OK;
    wh_text_fini(&f->text);
    f->count = 0;
    return status;
}
