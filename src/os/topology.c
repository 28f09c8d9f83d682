#include "os/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

struct wh_topology {
    hwloc_topology_t machine;
    uint32_t ranks, cores;
};

/* What this process may run on: the container's share is applied by hwloc, taskset's and the scheduler's here. */
static void restrict_to_allowed(hwloc_topology_t machine) {
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set && hwloc_get_cpubind(machine, set, HWLOC_CPUBIND_PROCESS) == 0 && !hwloc_bitmap_iszero(set))
        (void)hwloc_topology_restrict(machine, set, 0); /* fails only for an empty intersection: then all are left */
    hwloc_bitmap_free(set);
}

enum wh_status wh_topology_new(uint32_t ranks, struct wh_topology **out) {
    struct wh_topology *t = calloc(1, sizeof *t);
    if (!t || hwloc_topology_init(&t->machine) != 0) {
        free(t);
        return WH_FAIL(WH_NOMEM, "no memory for the machine's topology");
    }
    if (hwloc_topology_load(t->machine) != 0) {
        const int reason = errno;
        wh_topology_free(t);
        return WH_FAIL(WH_IO, "cannot find out the machine's topology: %s", strerror(reason));
    }
    restrict_to_allowed(t->machine);
    const int cores = hwloc_get_nbobjs_by_type(t->machine, HWLOC_OBJ_CORE);
    t->cores = cores > 0 ? (uint32_t)cores : 0; /* some virtual machines show none */
    t->ranks = ranks;
    *out = t;
    return WH_OK;
}

void wh_topology_free(struct wh_topology *t) {
    if (!t) return;
    hwloc_topology_destroy(t->machine);
    free(t);
}

/* First core of a rank; where ranks don't divide the cores, the first ranks have one more. */
static uint32_t first_core(const struct wh_topology *t, uint32_t rank) {
    const uint32_t each = t->cores / t->ranks, longer = t->cores % t->ranks;
    return rank * each + (rank < longer ? rank : longer);
}

uint32_t wh_topology_cores(const struct wh_topology *t) { return t->cores; }

uint32_t wh_topology_rank_cores(const struct wh_topology *t, uint32_t rank) {
    return t->cores < t->ranks ? 0 : first_core(t, rank + 1) - first_core(t, rank);
}

enum wh_status wh_topology_pin(const struct wh_topology *t, uint32_t rank) {
    const uint32_t cores = wh_topology_rank_cores(t, rank);
    if (cores == 0) return WH_OK;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set) return WH_FAIL(WH_NOMEM, "no memory for a set of cores");
    for (uint32_t c = 0; c < cores; c++)
        hwloc_bitmap_or(set, set, hwloc_get_obj_by_type(t->machine, HWLOC_OBJ_CORE, first_core(t, rank) + c)->cpuset);
    const int failed = hwloc_set_cpubind(t->machine, set, HWLOC_CPUBIND_PROCESS), reason = errno;
    hwloc_bitmap_free(set);
    if (failed) return WH_FAIL(WH_IO, "cannot bind rank %u to its %u cores: %s", rank, cores, strerror(reason));
    return WH_OK;
}

static void add_count(struct wh_text *out, int count, const char *one, const char *many) {
    if (count > 0) wh_text_add(out, ", %d %s", count, count == 1 ? one : many);
}

enum { RANKS_LISTED = 16 };

void wh_topology_describe(const struct wh_topology *t, struct wh_text *out) {
    wh_text_add(out, "%u core%s", t->cores, t->cores == 1 ? "" : "s");
    add_count(out, hwloc_get_nbobjs_by_type(t->machine, HWLOC_OBJ_L3CACHE), "last-level cache", "last-level caches");
    add_count(out, hwloc_get_nbobjs_by_type(t->machine, HWLOC_OBJ_NUMANODE), "memory node", "memory nodes");
    if (wh_topology_rank_cores(t, 0) == 0) {
        wh_text_add(out, "; %u ranks, not pinned: more ranks than cores", t->ranks);
        return;
    }
    wh_text_add(out, "; %u rank%s, pinned:", t->ranks, t->ranks == 1 ? "" : "s");
    for (uint32_t r = 0; r < t->ranks && r < RANKS_LISTED; r++) {
        const uint32_t first = first_core(t, r), last = first_core(t, r + 1) - 1;
        wh_text_add(out, first == last ? "%s %u on core %u" : "%s %u on cores %u-%u", r ? "," : "", r, first, last);
    }
    if (t->ranks > RANKS_LISTED) wh_text_add(out, ", ...");
}
