/* Where the figures of a machine's links lie between runs: docs/formats/links.md. */
#ifndef WH_RUN_LINKS_FILE_H
#define WH_RUN_LINKS_FILE_H

#include "coll/links.h"

/* $XDG_CACHE_HOME/wanhe/links-N.json, else ~/.cache/wanhe/links-N.json: facts about the machine, not about a run, which can
 * be measured again. malloc'd; NULL if the environment names no place. `lookup` is getenv or a test's. */
char *wh_links_default_path(const char *(*lookup)(const char *name), uint32_t ranks);

/* Errors: IO, NOMEM. Makes the folder. */
enum wh_status wh_links_save(const char *path, const struct wh_coll_links *l);

/* Errors: IO; CONFIG: damaged. */
enum wh_status wh_links_load(const char *path, struct wh_coll_links *out);

/* CONFIG if they are another machine's or another number of ranks'. */
enum wh_status wh_links_check(const struct wh_coll_links *l, const char *path, const char *machine, uint32_t ranks);

#endif
