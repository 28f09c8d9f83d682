#include <stdlib.h>
#include <string.h>

#include "arch/hf_config.h"
#include "ckpt/checkpoint.h"
#include "cli/cli.h"
#include "os/file.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* The file that describes the model: model.config, or that of the checkpoint model.init_from. malloc'd. */
static enum wh_status find_model(const struct wh_config *c, char **path) {
    char *folder;
    if (*c->model.config) {
        *path = strdup(c->model.config);
        return WH_OK;
    }
    WH_TRY(wh_ckpt_find(c->model.init_from, WH_CKPT_LATEST, &folder, NULL));
    *path = wh_path_join(folder, "config.json");
    free(folder);
    return WH_OK;
}

static enum wh_status read_hf(const char *path, struct wh_hf_config *out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, CONFIG_BYTES_MAX, &text, &bytes));
    enum wh_status status = wh_hf_config_parse(text, bytes, path, out, NULL);
    free(text);
    return status;
}

static void read_model(struct wh_config *c, struct wh_faults *faults) {
    struct wh_hf_config hf;
    char *path = NULL;
    enum wh_status status = find_model(c, &path);
    if (status == WH_OK) status = read_hf(path, &hf);
    if (status == WH_OK)
        wh_config_set_model(c, &hf.model);
    else
        wh_faults_add(faults, NULL, 0, "%s", wh_error()->message);
    free(path);
}

static enum wh_status check(const char *text, size_t bytes, const char *path, const struct wh_option_list *sets,
                            struct wh_config *out) {
    struct wh_faults faults = {0};
    wh_config_parse(text, bytes, path, sets->item, sets->count, out, &faults);
    if (wh_config_wants_model(out)) read_model(out, &faults);
    wh_config_check(out, &faults);
    return wh_faults_status(&faults, WH_CONFIG);
}

enum wh_status wh_cli_config_load(const char *path, const struct wh_option_list *sets, struct wh_config *out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, CONFIG_BYTES_MAX, &text, &bytes));
    struct wh_config c;
    enum wh_status status = check(text, bytes, path, sets, &c);
    free(text);
    if (status == WH_OK)
        *out = c;
    else
        wh_config_free(&c);
    return status;
}
