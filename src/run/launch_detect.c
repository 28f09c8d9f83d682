#include <inttypes.h>
#include <string.h>

#include "base/options.h"
#include "run/launch.h"

/* Launchers in the order in which they are believed. `step`: a variable that must be there too. */
static const struct launcher {
    const char *name, *step, *world, *rank, *local_rank, *local_world;
} launchers[] = {
    {"torchrun or the like", NULL, "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun (Open MPI)", NULL, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun (MPICH)", NULL, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", NULL, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"srun", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static enum wh_status number(const char *(*lookup)(const char *name), const char *name, uint32_t *out) {
    const char *text = lookup(name);
    uint64_t value;
    if (!wh_text_to_uint(text, &value) || value > UINT32_MAX)
        return WH_FAIL(WH_CONFIG, "environment: %s='%s' is no number of ranks", name, text);
    *out = (uint32_t)value;
    return WH_OK;
}

/* "4" and "4(x2)" (srun's way to say: on each of two nodes) are 4; anything more complicated is left at the default. */
static void number_if_simple(const char *(*lookup)(const char *name), const char *name, uint32_t *out) {
    const char *text = name ? lookup(name) : NULL;
    if (!text) return;
    char digits[16] = "";
    const size_t length = strspn(text, "0123456789");
    uint64_t value;
    if (length == 0 || length >= sizeof digits || (text[length] && text[length] != '(')) return;
    memcpy(digits, text, length);
    if (wh_text_to_uint(digits, &value) && value <= UINT32_MAX) *out = (uint32_t)value;
}

static const struct launcher *find(const char *(*lookup)(const char *name)) {
    for (int i = 0; i < LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        if (lookup(l->world) && (!l->step || lookup(l->step))) return l;
    }
    return NULL;
}

enum wh_status wh_launch_detect(const char *(*lookup)(const char *name), struct wh_launch_place *out) {
    const struct launcher *l = find(lookup);
    struct wh_launch_place p = {.rank = 0, .world = 1, .local_rank = 0, .local_world = 1};
    if (l) {
        p.launcher = l->name, p.variable = l->world;
        WH_TRY(number(lookup, l->world, &p.world));
        if (p.world > 1 && !lookup(l->rank))
            return WH_FAIL(WH_CONFIG, "environment: %s says %u tasks, but %s is not set", l->world, p.world, l->rank);
        if (lookup(l->rank)) WH_TRY(number(lookup, l->rank, &p.rank));
        if (p.rank >= p.world)
            return WH_FAIL(WH_CONFIG, "environment: %s=%u is not below %s=%u", l->rank, p.rank, l->world, p.world);
        p.local_rank = p.rank, p.local_world = p.world; /* one machine, unless it is said */
        number_if_simple(lookup, l->local_rank, &p.local_rank);
        number_if_simple(lookup, l->local_world, &p.local_world);
    }
    *out = p;
    return WH_OK;
}

enum wh_status wh_launch_refuse_singletons(const char *(*lookup)(const char *name)) {
    struct wh_launch_place p;
    WH_TRY(wh_launch_detect(lookup, &p));
    if (p.world == 1) return WH_OK;
    return WH_FAIL(
        WH_UNSUPPORTED,
        "%s says %u tasks (%s=%u, this is rank %u), but this build has no transport between processes that it "
        "did not start itself, so each would run the whole job alone. Start it once, without %s; it starts "
        "its ranks on this machine itself. (If there is only this one process: unset %s)",
        p.launcher, p.world, p.variable, p.world, p.rank, p.launcher, p.variable);
}
