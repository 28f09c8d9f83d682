/* Names of the ledger's memory rows; see rows.def. */
#ifndef WH_LEDGER_ROWS_H
#define WH_LEDGER_ROWS_H

enum wh_row {
#define X(id, name, meaning) WH_ROW_##id,
#include "ledger/rows.def"
#undef X
    WH_ROW_COUNT
};

const char *wh_row_name(enum wh_row row);    /* "memory.weights" */
const char *wh_row_meaning(enum wh_row row); /* "parameters in the compute dtype" */

#endif
