/* Status codes and the error record.
 *
 * Everything that can fail returns enum wh_status (0 = fine). The first detector fills the thread's error record with
 * WH_FAIL; callers pass the status on untouched (WH_TRY) and may push a "while ..." frame. Outputs are written only on
 * success. Library code never prints or exits; only cli/ turns the record into text and an exit code.
 *
 *     enum wh_status load(const char *path, struct thing *out) {
 *         WH_TRY(wh_file_map(path, &map));
 *         if (map.bytes < 8) return WH_FAIL(WH_DATA, "%s: 8 bytes are the least, it has %zu", path, map.bytes);
 *
 * Threads: the record is thread-local; a worker thread that fails must hand its status and record to its parent. */
#ifndef WH_BASE_STATUS_H
#define WH_BASE_STATUS_H

#include <stddef.h>

enum wh_status {
    WH_OK = 0,
#define X(name, exit_code, text) WH_##name,
#include "base/status.def"
#undef X
    WH_STATUS_COUNT
};

enum { WH_ERROR_MESSAGE_BYTES = 4096, WH_ERROR_FRAMES = 8, WH_ERROR_FRAME_BYTES = 160 };

/* Plain bytes without pointers to the heap, so that a dying rank can copy it to a shared page. */
struct wh_error {
    enum wh_status code;
    const char *file; /* source position of the detector */
    int line;
    int rank, step, instruction; /* -1: not known here */
    int frames;
    char message[WH_ERROR_MESSAGE_BYTES];
    char frame[WH_ERROR_FRAMES][WH_ERROR_FRAME_BYTES]; /* innermost first */
};

/* The calling thread's record. Valid after a call returned other than WH_OK. */
struct wh_error *wh_error(void);

/* Fills the record (frames cleared) and returns `code`. Text longer than the record is cut with "...". */
enum wh_status wh_fail(const char *file, int line, enum wh_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a "while ..." frame to the record and returns `code` unchanged; frames beyond the eighth are dropped. */
enum wh_status wh_while(enum wh_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *wh_status_name(enum wh_status code); /* "CONFIG" */
const char *wh_status_text(enum wh_status code); /* "invalid configuration" */
int wh_status_exit_code(enum wh_status code);

#define WH_FAIL(code, ...) wh_fail(__FILE__, __LINE__, (code), __VA_ARGS__)

#define WH_TRY(call)                                  \
    do {                                              \
        enum wh_status try_status_ = (call);          \
        if (try_status_ != WH_OK) return try_status_; \
    } while (0)

/* For functions that must undo something: sets the local `status` and jumps to the label named for what it undoes. */
#define WH_TRY_GOTO(call, label)         \
    do {                                 \
        status = (call);                 \
        if (status != WH_OK) goto label; \
    } while (0)

/* We are wrong: prints the claim and aborts. Always on outside kernels. */
#define WH_ASSERT(claim) ((claim) ? (void)0 : wh_assert_failed(__FILE__, __LINE__, #claim))
_Noreturn void wh_assert_failed(const char *file, int line, const char *claim);

#endif
