/* Names of the ledger's time rows (times.def) and a place to add them up. Filled by the folders that have a clock. */
#ifndef WH_LEDGER_TIMES_H
#define WH_LEDGER_TIMES_H

#include <stdint.h>

enum wh_time {
#define X(id, name, meaning) WH_TIME_##id,
#include "ledger/times.def"
#undef X
    WH_TIME_COUNT
};

struct wh_times {
    uint64_t ns[WH_TIME_COUNT];
};

const char *wh_time_name(enum wh_time row);
const char *wh_time_meaning(enum wh_time row);

#endif
