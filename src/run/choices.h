/* How the collectives of a run's data-parallel ranks are run, kind by kind: for the log and the books. */
#ifndef WH_RUN_CHOICES_H
#define WH_RUN_CHOICES_H

#include "run/replica.h"

enum { WH_CHOICES_MAX = 24 };

/* Plans of one ledger row that are run the same way. */
struct wh_choice {
    const char *row;
    uint32_t plans;
    const struct wh_comm_plan *largest; /* of them; says which way that is */
};

/* Returns their number. Borrows from `r`. */
uint32_t wh_choices(const struct wh_replica *r, struct wh_choice out[WH_CHOICES_MAX]);

/* Appends "dp.grad.all_reduce, 12, the largest: " and what wh_comm_plan_describe says of it. */
void wh_choice_describe(const struct wh_choice *c, struct wh_text *out);

#endif
