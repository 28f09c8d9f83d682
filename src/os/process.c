#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_BYTES = 1 << 16, EXIT_LOST_PARENT = 1 };

/* A shell starts background jobs with SIGINT ignored, and what is ignored is never received; SIGHUP stays as it was
 * (nohup). */
static const int asking[] = {SIGTERM, SIGINT, SIGUSR1};
enum { ASKING = sizeof asking / sizeof *asking };

struct child {
    int pid;      /* 0: never started */
    int fd;       /* our end of the pipe; -1: closed */
    bool running; /* not reaped yet */
    bool ended;   /* reaped; its last output and then WH_CHILD_ENDED are still to be handed out */
    int wait_status;
};

struct wh_children {
    uint32_t count, next; /* next: whose pipe is looked at first, so that a talkative child does not hide the others */
    struct child *child;
    struct pollfd *poll; /* [count + 1], the last is signal_fd */
    int signal_fd;
    sigset_t before;
    struct sigaction handler_before[ASKING];
    char text[TEXT_BYTES];
};

/* Signals rather than pidfds: they need no descriptor per child and exist in every kernel; an unreaped child's pid can't
 * be another's. */
static sigset_t watched(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    return set;
}

enum wh_status wh_children_new(uint32_t count, struct wh_children **out) {
    const sigset_t set = watched();
    struct wh_children *c = calloc(1, sizeof *c);
    if (c) c->child = calloc(count, sizeof *c->child);
    if (c) c->poll = calloc((size_t)count + 1, sizeof *c->poll);
    if (!c || !c->child || !c->poll) {
        if (c) free(c->child);
        free(c);
        return WH_FAIL(WH_NOMEM, "no memory to watch %u processes", count);
    }
    c->count = count;
    for (uint32_t i = 0; i < count; i++) c->child[i].fd = -1;
    sigprocmask(SIG_BLOCK, &set, &c->before);
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int i = 0; i < ASKING; i++) sigaction(asking[i], &standard, &c->handler_before[i]);
    c->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    *out = c;
    if (c->signal_fd >= 0) return WH_OK;
    const int reason = errno;
    wh_children_free(c);
    return WH_FAIL(WH_IO, "cannot receive signals: %s", strerror(reason));
}

/* In the child. Never returns. */
static void become(struct wh_children *c, int pipe_fd, int parent, bool own_stdout, int (*body)(void *),
                   void *context) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_LOST_PARENT); /* it ended before we asked to be told */
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (empty >= 0) dup2(empty, STDIN_FILENO);
    dup2(pipe_fd, STDERR_FILENO);
    if (!own_stdout) dup2(pipe_fd, STDOUT_FILENO);
    if (empty > STDERR_FILENO) close(empty);
    close(pipe_fd);
    close(c->signal_fd);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->child[i].fd >= 0) close(c->child[i].fd);
    sigprocmask(SIG_SETMASK, &c->before, NULL);
    if (!own_stdout) setvbuf(stdout, NULL, _IOLBF, 0); /* lines in the log in the order in which they were said */
    const int code = body(context);
    fflush(NULL);
    _exit(code);
}

enum wh_status wh_children_start(struct wh_children *c, uint32_t i, bool own_stdout, int (*body)(void *),
                                 void *context) {
    int pipe_fds[2];
    const int parent = getpid();
    WH_ASSERT(i < c->count && c->child[i].pid == 0);
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return WH_FAIL(WH_IO, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL); /* or the child would write it a second time */
    const int pid = fork();
    if (pid == 0) {
        close(pipe_fds[0]);
        become(c, pipe_fds[1], parent, own_stdout, body, context);
    }
    const int reason = errno;
    close(pipe_fds[1]);
    if (pid < 0) {
        close(pipe_fds[0]);
        return WH_FAIL(WH_IO, "cannot start process %u of %u: %s", i + 1, c->count, strerror(reason));
    }
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    setpgid(pid, pid); /* both sides do it, so that it holds whoever runs first */
    c->child[i] = (struct child){.pid = pid, .fd = pipe_fds[0], .running = true};
    return WH_OK;
}

/* --- events --- */

static bool read_output(struct wh_children *c, uint32_t i, struct wh_child_event *e) {
    struct child *k = &c->child[i];
    if (k->fd < 0) return false;
    const ssize_t got = read(k->fd, c->text, sizeof c->text);
    if (got > 0) {
        *e = (struct wh_child_event){.kind = WH_CHILD_OUTPUT, .child = i, .text = c->text, .bytes = (size_t)got};
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(k->fd);
        k->fd = -1;
    }
    return false;
}

/* What a child has started goes with it: while the child is unreaped no other process can have its number. */
static void reap(struct wh_children *c) {
    for (uint32_t i = 0; i < c->count; i++) {
        struct child *k = &c->child[i];
        siginfo_t info = {0};
        if (!k->running || waitid(P_PID, (id_t)k->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            continue;
        kill(-k->pid, SIGKILL);
        if (waitpid(k->pid, &k->wait_status, 0) != k->pid) continue;
        k->running = false, k->ended = true;
    }
}

/* What a child wrote before it ended comes before its end. A process of its own that still holds the pipe open doesn't
 * hold us up: what is there is read, then we close. */
static bool hand_out_end(struct wh_children *c, struct wh_child_event *e) {
    for (uint32_t i = 0; i < c->count; i++) {
        struct child *k = &c->child[i];
        if (!k->ended) continue;
        if (read_output(c, i, e)) return true;
        if (k->fd >= 0) close(k->fd);
        k->fd = -1, k->ended = false;
        *e = (struct wh_child_event){.kind = WH_CHILD_ENDED, .child = i, .wait_status = k->wait_status};
        return true;
    }
    return false;
}

static bool read_signal(struct wh_children *c, struct wh_child_event *e) {
    struct signalfd_siginfo s;
    while (read(c->signal_fd, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo == SIGCHLD) {
            reap(c);
            continue;
        }
        *e = (struct wh_child_event){.kind = WH_CHILD_SIGNAL, .signal = (int)s.ssi_signo};
        return true;
    }
    return false;
}

static bool any_event(struct wh_children *c, struct wh_child_event *e) {
    if (read_signal(c, e) || hand_out_end(c, e)) return true;
    for (uint32_t k = 0; k < c->count; k++) {
        const uint32_t i = (c->next + k) % c->count;
        if (!read_output(c, i, e)) continue;
        c->next = i + 1;
        return true;
    }
    return false;
}

struct wh_child_event wh_children_next(struct wh_children *c, uint64_t timeout_ns) {
    struct wh_child_event e = {.kind = WH_CHILD_TIMEOUT};
    if (any_event(c, &e)) return e;
    for (uint32_t i = 0; i < c->count; i++) c->poll[i] = (struct pollfd){.fd = c->child[i].fd, .events = POLLIN};
    c->poll[c->count] = (struct pollfd){.fd = c->signal_fd, .events = POLLIN};
    poll(c->poll, (nfds_t)c->count + 1, (int)((timeout_ns + 999999) / 1000000));
    any_event(c, &e);
    return e;
}

/* --- children --- */

uint32_t wh_children_running(const struct wh_children *c) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->count; i++) count += wh_child_running(c, i);
    return count;
}

bool wh_child_running(const struct wh_children *c, uint32_t i) { return c->child[i].running || c->child[i].ended; }

int wh_child_pid(const struct wh_children *c, uint32_t i) { return c->child[i].pid; }

void wh_child_signal(struct wh_children *c, uint32_t i, int number) {
    if (c->child[i].running) kill(-c->child[i].pid, number);
}

void wh_child_kill(struct wh_children *c, uint32_t i) { wh_child_signal(c, i, SIGKILL); }

/* In one piece, as far as the pipe takes it: OpenMP and others may speak at the same time. */
void wh_child_say(const char *line) {
    const struct iovec pieces[] = {{(void *)(uintptr_t)line, strlen(line)}, {(void *)(uintptr_t) "\n", 1}};
    while (writev(STDERR_FILENO, pieces, 2) < 0 && errno == EINTR) continue;
}

void wh_children_free(struct wh_children *c) {
    if (!c) return;
    for (uint32_t i = 0; i < c->count; i++) {
        struct child *k = &c->child[i];
        wh_child_kill(c, i);
        while (k->running && waitpid(k->pid, NULL, 0) < 0 && errno == EINTR) continue;
        if (k->fd >= 0) close(k->fd);
    }
    if (c->signal_fd >= 0) { /* what came meanwhile was meant for the children that are gone */
        struct signalfd_siginfo s;
        while (read(c->signal_fd, &s, sizeof s) == (ssize_t)sizeof s) continue;
        close(c->signal_fd);
    }
    for (int i = 0; i < ASKING; i++) sigaction(asking[i], &c->handler_before[i], NULL);
    sigprocmask(SIG_SETMASK, &c->before, NULL);
    free(c->child);
    free(c->poll);
    free(c);
}

const char *wh_signal_name(int number, char room[16]) {
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(room, 16, "SIG%s", name);
    else
        snprintf(room, 16, "signal %d", number);
    return room;
}

bool wh_signal_is_kill(int number) { return number == SIGKILL; }
bool wh_signal_is_interrupt(int number) { return number == SIGINT; }
