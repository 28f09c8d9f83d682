#include "tensor/vec.h"

#include <stdbool.h>
#include <string.h>

static bool runs_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static bool runs_avx512(void) {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool runs_always(void) { return true; }

const struct wh_vec *wh_vec_select(const char *name) {
    static const struct {
        const struct wh_vec *table;
        bool (*runs)(void);
    } best_first[] = {{&wh_vec_avx512, runs_avx512}, {&wh_vec_avx2, runs_avx2}, {&wh_vec_reference, runs_always}};
    for (size_t i = 0; i < sizeof best_first / sizeof best_first[0]; i++)
        if ((name == NULL || strcmp(name, best_first[i].table->name) == 0) && best_first[i].runs())
            return best_first[i].table;
    return NULL;
}
