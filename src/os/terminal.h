/* Whether a person looks at an open file descriptor. */
#ifndef WH_OS_TERMINAL_H
#define WH_OS_TERMINAL_H

#include <stdbool.h>

bool wh_terminal_is(int fd);

#endif
