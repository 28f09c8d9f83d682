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

/* The run's own copy of its tokenizer takes the place of the path that the configuration names. */
static void set_tokenizer(const char *config, struct wh_text *set) {
    char *folder = wh_path_parent(config), *copy = wh_path_join(folder, "tokenizer.json");
    if (wh_file_exists(copy)) wh_config_add_set(set, "tokenizer.tokenizer_name_or_path", copy);
    free(copy);
    free(folder);
}

bool wh_run_folder_config(const char *path, struct wh_config *out) {
    /* One rank reads it, for which a schedule of others, whose file may be gone, means nothing. */
    struct wh_option_list sets = {.item = {"parallelism.pp=1", "parallelism.pp_chunks=0", "parallelism.pp_layers=null",
                                           "parallelism.pp_schedule=null"},
                                  .count = 4};
    struct wh_text tokenizer = {0};
    char *file = config_path(path);
    if (!file) return false;
    set_tokenizer(file, &tokenizer);
    if (tokenizer.data) sets.item[sets.count++] = tokenizer.data;
    const bool read = wh_cli_config_load(file, &sets, out) == WH_OK;
    if (!read) wh_cli_warn("%s is not used: %s", file, wh_error()->message);
    wh_text_fini(&tokenizer);
    free(file);
    return read;
}

/* "bytes", a path, or NULL; malloc'd. */
static char *known_tokenizer(const char *path, uint32_t vocab) {
    struct wh_config c;
    char *name;
    if (wh_run_folder_config(path, &c)) {
        name = strdup(c.tokenizer.path);
        wh_config_free(&c);
        return name;
    }
    if (has(path, "tokenizer.json")) return wh_path_join(path, "tokenizer.json");
    return vocab == 256 ? strdup("bytes") : NULL;
}

enum wh_status wh_run_folder_tokenizer(const char *path, const char *asked, uint32_t vocab, struct wh_tokenizer **out) {
    char *name = asked ? strdup(asked) : known_tokenizer(path, vocab);
    enum wh_status status =
        name ? wh_tokenizer_open(name, out)
             : WH_FAIL(WH_USAGE, "no tokenizer is known for %s, which has %u tokens; name one with --tokenizer", path,
                       vocab);
    free(name);
    return status;
}

void wh_cli_remarks(struct wh_text *remarks) {
    for (char *at = NULL, *line; (line = wh_text_next_line(remarks, &at));) wh_cli_warn("%s", line);
    wh_text_fini(remarks);
}
