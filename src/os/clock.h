/* The clock: monotonic time for durations, wall-clock time for names of things. Pure folders never read either. */
#ifndef WH_OS_CLOCK_H
#define WH_OS_CLOCK_H

#include <stdint.h>

uint64_t wh_clock_ns(void);   /* monotonic */
double wh_clock_unix_s(void); /* seconds since 1970 */

#endif
