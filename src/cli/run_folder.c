#include "cli/run_folder.h"

#include <stdlib.h>
#include <string.h>

#include "os/file.h"

static bool has(const char *folder, const char *name) {
    char *path = wh_path_join(folder, name);
    const bool there = wh_file_exists(path);
    free(path);
    return there;
}

/* RUN, RUN/checkpoints and RUN/checkpoints/step-N all lead to RUN/config.yaml. A config.yaml above a model that isn't
 * in a run folder (no metrics.jsonl beside it) is a stranger's. */
static char *config_path(const char *path) {
    static const char *const up[][2] = {{"config.yaml", "metrics.jsonl"},
                                        {"../config.yaml", "../metrics.jsonl"},
                                        {"../../config.yaml", "../../metrics.jsonl"}};
    for (size_t i = 0; i < sizeof up / sizeof *up; i++)
        if (has(path, up[i][0]) && has(path, up[i][1])) return wh_path_join(path, up[i][0]);
    return NULL;
}

bool wh_run_folder_config(const char *path, struct wh_config *out) {
    static const struct wh_option_list no_sets;
    char *file = config_path(path);
    if (!file) return false;
    const bool read = wh_cli_config_load(file, &no_sets, out) == WH_OK;
    if (!read) wh_cli_warn("%s is not used: %s", file, wh_error()->message);
    free(file);
    return read;
}

char *wh_run_folder_tokenizer(const char *path, const char *asked) {
    struct wh_config c;
    if (asked) return strdup(asked);
    if (!wh_run_folder_config(path, &c)) return strdup("bytes");
    char *name = strdup(c.tokenizer.path);
    wh_config_free(&c);
    return name;
}

void wh_cli_remarks(struct wh_text *remarks) {
    char *save = NULL;
    for (char *line = remarks->data ? strtok_r(remarks->data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        wh_cli_warn("%s", line);
    wh_text_fini(remarks);
}
