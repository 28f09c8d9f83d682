/* The clock: monotonic time for durations. Pure folders never read it. */
#ifndef WH_OS_CLOCK_H
#define WH_OS_CLOCK_H

#include <stdint.h>

uint64_t wh_clock_ns(void); /* monotonic */

#endif
