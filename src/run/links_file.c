#include "run/links_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"

char *wh_links_default_path(const char *(*lookup)(const char *name), uint32_t ranks) {
    const char *cache = lookup("XDG_CACHE_HOME"), *home = lookup("HOME");
    struct wh_text path = {0};
    if (cache && cache[0] == '/')
        wh_text_add(&path, "%s/wanhe/links-%u.json", cache, ranks);
    else if (home && home[0] == '/')
        wh_text_add(&path, "%s/.cache/wanhe/links-%u.json", home, ranks);
    return path.data;
}

enum wh_status wh_links_save(const char *path, const struct wh_coll_links *l) {
    struct wh_text text = {0};
    char *folder = wh_path_parent(path);
    wh_coll_links_write(l, &text);
    enum wh_status status = wh_dir_create(folder);
    if (status == WH_OK) status = wh_file_write_all(path, text.data, text.bytes);
    free(folder);
    wh_text_fini(&text);
    return status;
}

enum wh_status wh_links_load(const char *path, struct wh_coll_links *out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, WH_COLL_LINKS_LIMIT_BYTES, &text, &bytes));
    const enum wh_status status = wh_coll_links_parse(text, bytes, path, out);
    free(text);
    return status;
}

enum wh_status wh_links_check(const struct wh_coll_links *l, const char *path, const char *machine, uint32_t ranks) {
    if (l->ranks != ranks)
        return WH_FAIL(WH_CONFIG, "%s was measured with %u ranks, not %u: `wanhe tune --ranks %u`", path, l->ranks,
                       ranks, ranks);
    if (strcmp(l->machine, machine) != 0)
        return WH_FAIL(WH_CONFIG, "%s was measured on another machine (%s); this is %s: `wanhe tune --ranks %u`", path,
                       l->machine, machine, ranks);
    return WH_OK;
}
