/* The table of algorithms, and names. */
#include "coll/build.h"

/* Order: as listings show them. */
const struct wh_coll_algorithm *const wh_coll_algorithms[] = {
    &wh_coll_direct,      &wh_coll_ring,  &wh_coll_halving_doubling, &wh_coll_binomial,
    &wh_coll_double_tree, &wh_coll_bruck, &wh_coll_two_level,        NULL,
};

static const char *const op_names[WH_COLL_OP_COUNT] = {
    [WH_COLL_ALL_REDUCE] = "all-reduce", [WH_COLL_REDUCE_SCATTER] = "reduce-scatter",
    [WH_COLL_ALL_GATHER] = "all-gather", [WH_COLL_BROADCAST] = "broadcast",
    [WH_COLL_REDUCE] = "reduce",         [WH_COLL_ALL_TO_ALL] = "all-to-all",
    [WH_COLL_BARRIER] = "barrier",
};

static bool is_dash(char c) { return c == '-' || c == '_'; }

/* Equal but for dashes, underscores and where they stand. */
static bool same_name(const char *a, const char *b) {
    for (;;) {
        while (is_dash(*a)) a++;
        while (is_dash(*b)) b++;
        if (*a != *b) return false;
        if (!*a) return true;
        a++;
        b++;
    }
}

const struct wh_coll_algorithm *wh_coll_algorithm(const char *name) {
    for (int i = 0; wh_coll_algorithms[i]; i++)
        if (same_name(name, wh_coll_algorithms[i]->name)) return wh_coll_algorithms[i];
    return NULL;
}

const char *wh_coll_op_name(enum wh_coll_op op) { return op_names[op]; }

bool wh_coll_op_from_name(const char *name, enum wh_coll_op *out) {
    for (int op = 0; op < WH_COLL_OP_COUNT; op++)
        if (same_name(name, op_names[op])) {
            *out = (enum wh_coll_op)op;
            return true;
        }
    return false;
}

bool wh_coll_op_adds(enum wh_coll_op op) {
    return op == WH_COLL_ALL_REDUCE || op == WH_COLL_REDUCE_SCATTER || op == WH_COLL_REDUCE;
}
