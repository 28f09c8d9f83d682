/* Child processes of this program that are watched together: what they say, when they end, which signals ask us to stop.
 *
 *     struct wh_children *c;
 *     WH_TRY(wh_children_new(4, &c));
 *     for (uint32_t i = 0; i < 4; i++) WH_TRY(wh_children_start(c, i, body, &context));
 *     while (wh_children_running(c) > 0) {
 *         struct wh_child_event e = wh_children_next(c, timeout_ns);
 *         ...
 *     }
 *     wh_children_free(c);
 *
 * From wh_children_new to wh_children_free SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGCHLD of this process are events, not
 * interruptions. A child begins with the mask as it was before and their default handling, in a process group of its own (a terminal's Ctrl-C
 * reaches the parent alone, which passes it on), and is killed by the kernel when the parent thread ends in any way. One
 * set of children at a time; the parent must have no other threads (fork copies only the caller's; in particular no
 * OpenMP region may have run). */
#ifndef WH_OS_PROCESS_H
#define WH_OS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct wh_children;

/* Errors: NOMEM, IO. */
enum wh_status wh_children_new(uint32_t count, struct wh_children **out);

/* Forks child `i`, which runs body(context) and exits with what it returns, without running atexit handlers; buffered
 * output is flushed. Its standard input is empty, its standard error is a pipe to us; its standard output too, unless
 * `own_stdout` leaves it ours. Errors: IO (no process to be had). */
enum wh_status wh_children_start(struct wh_children *c, uint32_t i, bool own_stdout, int (*body)(void *),
                                 void *context);

enum wh_child_event_kind {
    WH_CHILD_TIMEOUT,
    WH_CHILD_OUTPUT, /* text[bytes] from `child`, as it came, cut anywhere; valid until the next call */
    WH_CHILD_ENDED,  /* `wait_status` of `child`; all its output has been handed out */
    WH_CHILD_SIGNAL, /* `signal` came to us */
};

struct wh_child_event {
    enum wh_child_event_kind kind;
    uint32_t child;
    const char *text;
    size_t bytes;
    int wait_status, signal;
};

struct wh_child_event wh_children_next(struct wh_children *c, uint64_t timeout_ns);

uint32_t wh_children_running(const struct wh_children *c);
bool wh_child_running(const struct wh_children *c, uint32_t i);
int wh_child_pid(const struct wh_children *c, uint32_t i); /* 0: never started */

/* To a running child and whatever it started; nothing otherwise. A stopped child can be killed, but gets no other. */
void wh_child_signal(struct wh_children *c, uint32_t i, int signal);
void wh_child_kill(struct wh_children *c, uint32_t i);

/* In a child: a line to the parent, among its output. */
void wh_child_say(const char *line);

/* Kills and reaps what still runs; signals are as before. Takes NULL. */
void wh_children_free(struct wh_children *c);

/* "SIGKILL", or "signal 42". */
const char *wh_signal_name(int signal, char room[16]);
bool wh_signal_is_kill(int signal);
bool wh_signal_is_interrupt(int signal);

#endif
