#include "os/terminal.h"

#include <unistd.h>

bool wh_terminal_is(int fd) { return isatty(fd) == 1; }
