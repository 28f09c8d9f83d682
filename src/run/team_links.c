#include "run/team_links.h"

#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/file.h"
#include "run/links_file.h"

static const double limit_s = 0.25;

static enum wh_status load(const char *path, uint32_t ranks, struct wh_team_links *l) {
    struct wh_coll_links read;
    WH_TRY(wh_links_load(path, &read));
    WH_TRY(wh_links_check(&read, path, l->figures.machine, ranks));
    l->figures = read;
    l->from = WH_LINKS_FILE;
    wh_text_add(&l->why, "%s", path);
    return WH_OK;
}

/* What `wanhe tune` keeps, if it is there and fits. */
static void find_kept(const struct wh_mesh_degrees *d, uint32_t world, const char *(*lookup)(const char *name),
                      struct wh_team_links *l) {
    char *path = lookup ? wh_links_default_path(lookup, d->dp) : NULL;
    if (world != d->dp)
        wh_text_add(&l->why, "beside other ranks, %u in all", world);
    else if (!path)
        wh_text_add(&l->why, "no cache folder is known");
    else if (!wh_file_exists(path))
        wh_text_add(&l->why, "there is no %s of `wanhe tune`", path);
    else if (load(path, d->dp, l) != WH_OK)
        wh_text_add(&l->why, "%s", wh_error()->message);
    free(path);
}

enum wh_status wh_team_links_find(const struct wh_config *config, const char *(*lookup)(const char *name),
                                  struct wh_team_links *out) {
    const struct wh_mesh_degrees degrees = wh_config_degrees(config);
    const char *links = config->comm.links;
    struct wh_team_links l = {.from = WH_LINKS_PROBE};
    enum wh_status status = WH_OK;
    wh_probe_links_machine(l.figures.machine);
    if (degrees.dp == 1 || strcmp(links, "off") == 0)
        l.from = WH_LINKS_OFF, wh_text_add(&l.why, "comm.links off");
    else if (strcmp(links, "probe") == 0)
        wh_text_add(&l.why, "comm.links probe");
    else if (strcmp(links, "auto") == 0)
        find_kept(&degrees, wh_config_ranks(config), lookup, &l);
    else
        status = wh_while(load(links, degrees.dp, &l), "reading comm.links");
    if (status == WH_OK)
        *out = l;
    else
        wh_team_links_free(&l);
    return status;
}

void wh_team_links_free(struct wh_team_links *l) {
    wh_text_fini(&l->why);
    l->from = WH_LINKS_OFF;
}

static enum wh_status probe(const struct wh_team *team, const struct wh_team_links_what *what,
                            struct wh_coll_links *figures, double *seconds) {
    const struct wh_probe_links_what probed = {.scratch = what->largest,
                                               .scratch_bytes = what->largest_bytes,
                                               .machine = team->links->figures.machine,
                                               .limit_s = limit_s};
    const uint64_t since = wh_clock_ns();
    WH_TRY(wh_while(wh_probe_links(team->dp, &probed, figures), "measuring the links between ranks"));
    *seconds = (double)(wh_clock_ns() - since) * 1e-9;
    return WH_OK;
}

enum wh_status wh_team_links_tell(const struct wh_team *team, const struct wh_team_links_what *what,
                                  struct wh_team_links_told *out) {
    struct wh_team_links_told told = {0};
    *out = told;
    if (!team->links || team->links->from == WH_LINKS_OFF || what->largest_bytes == 0) return WH_OK;
    struct wh_coll_links figures = team->links->figures;
    if (team->links->from == WH_LINKS_PROBE) WH_TRY(probe(team, what, &figures, &told.seconds));
    WH_TRY(wh_comm_set_links(team->dp, &figures, what->room_bytes));
    told.told = true;
    *out = told;
    return WH_OK;
}

void wh_team_links_describe(const struct wh_team *team, const struct wh_team_links_told *told, struct wh_text *out) {
    const struct wh_team_links *l = team->links;
    wh_text_add(out, "links between %u data-parallel ranks: ", team->mesh.degrees.dp);
    if (l->from != WH_LINKS_OFF && !told->told)
        wh_text_add(out, "not asked for: no vector of %d KiB or more has a choice", WH_PROBE_LINKS_LEVEL_BYTES >> 10);
    else if (l->from == WH_LINKS_PROBE)
        wh_text_add(out, "measured in %.0f ms (%s)", told->seconds * 1e3, l->why.data);
    else if (l->from == WH_LINKS_FILE)
        wh_text_add(out, "as kept in %s", l->why.data);
    else
        wh_text_add(out, "not used (%s)", l->why.data);
}
