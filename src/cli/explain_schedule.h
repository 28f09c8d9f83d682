/* `wanhe explain schedule`: a pipeline schedule as chart, numbers, SVG or JSON. */
#ifndef WH_CLI_EXPLAIN_SCHEDULE_H
#define WH_CLI_EXPLAIN_SCHEDULE_H

#include <stdbool.h>

/* The command line of `wanhe explain` asks for a schedule, not a collective. */
bool wh_explain_is_schedule(int argc, char **argv);
/* Returns the exit code of the process. */
int wh_explain_schedule(int argc, char **argv);

#endif
