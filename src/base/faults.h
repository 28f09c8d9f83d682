/* A list of everything that is wrong with what the user gave, so that all of it can be told at once.
 *
 *     struct wh_faults f = {0};
 *     wh_faults_add(&f, "run.yaml", 12, "unknown key 'dpp'; did you mean 'dp'?");
 *     ...
 *     return wh_faults_status(&f, WH_CONFIG);      // WH_OK if empty; else WH_FAIL with one line per fault */
#ifndef WH_BASE_FAULTS_H
#define WH_BASE_FAULTS_H

#include "base/status.h"
#include "base/text.h"

struct wh_faults {
    size_t count;
    struct wh_text text; /* one line per fault: "file:line: message\n" */
};

/* `line` 0: no line known; `file` NULL: no place known. */
void wh_faults_add(struct wh_faults *f, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Turns the list into a status and frees it. */
enum wh_status wh_faults_status(struct wh_faults *f, enum wh_status code);

#endif
