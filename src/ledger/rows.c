#include "ledger/rows.h"

static const struct {
    const char *name, *meaning;
} rows[WH_ROW_COUNT] = {
#define X(id, name, meaning) {name, meaning},
#include "ledger/rows.def"
#undef X
};

const char *wh_row_name(enum wh_row row) { return rows[row].name; }
const char *wh_row_meaning(enum wh_row row) { return rows[row].meaning; }
