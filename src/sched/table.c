/* The table of schedules, and names. */
#include <ctype.h>
#include <string.h>

#include "sched/build.h"

/* Order: as listings show them. */
const struct wh_sched_generator *const wh_sched_generators[] = {
    &wh_sched_gpipe, &wh_sched_1f1b, &wh_sched_interleaved, &wh_sched_zb_h1, &wh_sched_zb_v, NULL,
};

/* Equal but for case, dashes and underscores. */
static bool same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == '-' || *a == '_') a++;
        while (*b == '-' || *b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

const struct wh_sched_generator *wh_sched_generator(const char *name) {
    if (same_name(name, "afab")) return &wh_sched_gpipe;
    for (int i = 0; wh_sched_generators[i]; i++)
        if (same_name(name, wh_sched_generators[i]->name)) return wh_sched_generators[i];
    return NULL;
}
