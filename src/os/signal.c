#include "os/signal.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t pending;

static void remember(int number) {
    if (pending == 0) pending = number;
    if (number == SIGINT) signal(SIGINT, SIG_DFL);
}

void wh_signal_watch(void) {
    const struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int wh_signal_exit_code(int number) { return number == SIGINT ? 128 + SIGINT : 75; }

int wh_signal_pending(void) { return pending; }
