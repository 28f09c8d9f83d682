/* What a run's data-parallel ranks are told of their links, so that their collectives choose how to run (wh_comm_set_links):
 * what `wanhe tune` kept, or what they measure at the start.
 *
 *     launcher    wh_team_links_find(&config, getenv, &links)     which of them, before it forks; team.links = &links
 *     rank        wh_team_links_tell(&team, &what, &told)         run/replica.c, before it makes plans
 *                 wh_team_links_describe(&links, &told, &text)
 *
 * Memory, bytes and, with comm.reduce contract, bits don't depend on any of it. */
#ifndef WH_RUN_TEAM_LINKS_H
#define WH_RUN_TEAM_LINKS_H

#include "config/config.h"
#include "run/probe_links.h"
#include "run/team.h"

enum wh_links_from { WH_LINKS_OFF, WH_LINKS_FILE, WH_LINKS_PROBE };

struct wh_team_links {
    enum wh_links_from from;
    struct wh_text why;           /* FILE: its path; PROBE: why no file; OFF: why nothing */
    struct wh_coll_links figures; /* FILE; PROBE: the machine's name alone */
};

/* By comm.links. `lookup` is getenv, or NULL: no place is known. Files of `auto` are used by ranks that are all of the run;
 * beside other groups links are slower than alone. One that doesn't fit is not used, and `why` says so. Errors: of a file that
 * the configuration names: IO, CONFIG. Free with wh_team_links_free. */
enum wh_status wh_team_links_find(const struct wh_config *config, const char *(*lookup)(const char *name),
                                  struct wh_team_links *out);
void wh_team_links_free(struct wh_team_links *links);

/* What the calls of a group are, equal on all members. */
struct wh_team_links_what {
    void *largest;        /* buffer of the longest vector that has a choice, in the arena: zeros before and after */
    size_t largest_bytes; /* 0: none has one, or none worth the question; else at least WH_PROBE_LINKS_LEAST_BYTES */
    size_t room_bytes;
};

struct wh_team_links_told {
    bool told;
    double seconds; /* what measuring took; PROBE */
};

/* The members of team->dp: they have their links from here on, unless no vector has a choice. Errors: NOMEM, PEER. */
enum wh_status wh_team_links_tell(const struct wh_team *team, const struct wh_team_links_what *what,
                                  struct wh_team_links_told *out);

/* Appends a line: "links between 4 data-parallel ranks: measured in 51 ms (...)". */
void wh_team_links_describe(const struct wh_team *team, const struct wh_team_links_told *told, struct wh_text *out);

#endif
