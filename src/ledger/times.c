#include "ledger/times.h"

static const struct {
    const char *name, *meaning;
} times[WH_TIME_COUNT] = {
#define X(id, name, meaning) {name, meaning},
#include "ledger/times.def"
#undef X
};

const char *wh_time_name(enum wh_time row) { return times[row].name; }
const char *wh_time_meaning(enum wh_time row) { return times[row].meaning; }
