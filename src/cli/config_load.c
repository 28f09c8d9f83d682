#include <stdlib.h>
#include <string.h>

#include "arch/hf_config.h"
#include "ckpt/checkpoint.h"
#include "cli/cli.h"
#include "os/file.h"
#include "sched/format.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

static enum wh_status read_hf(const char *path, struct wh_hf_config *out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, CONFIG_BYTES_MAX, &text, &bytes));
    enum wh_status status = wh_hf_config_parse(text, bytes, path, out, NULL);
    free(text);
    return status;
}

/* The path of the config.json that names the model; malloc'd. */
static enum wh_status model_path(const struct wh_config *c, char **out) {
    char *checkpoint;
    if (*c->model.config) {
        *out = strdup(c->model.config);
        return WH_OK;
    }
    WH_TRY(wh_ckpt_find(c->model.init_from, WH_CKPT_LATEST, &checkpoint, NULL));
    *out = wh_path_join(checkpoint, "config.json");
    free(checkpoint);
    return WH_OK;
}

static void read_model(struct wh_config *c, struct wh_faults *faults) {
    struct wh_hf_config hf;
    char *path = NULL;
    if (model_path(c, &path) == WH_OK && read_hf(path, &hf) == WH_OK)
        wh_config_set_model(c, &hf.model);
    else
        wh_faults_add(faults, NULL, 0, "%s", wh_error()->message);
    free(path);
}

static void read_schedule(struct wh_config *c, struct wh_faults *faults) {
    char *text;
    size_t bytes;
    if (wh_file_read(c->parallelism.pp_schedule, WH_SCHED_TEXT_BYTES_MAX, &text, &bytes) != WH_OK) {
        wh_faults_add(faults, NULL, 0, "%s", wh_error()->message);
        return;
    }
    wh_config_set_schedule(c, text, bytes);
    free(text);
}

static enum wh_status check(const char *text, size_t bytes, const char *path, const struct wh_option_list *sets,
                            enum wh_config_purpose purpose, struct wh_config *out) {
    struct wh_faults faults = {0};
    wh_config_parse(text, bytes, path, sets->item, sets->count, out, &faults);
    out->purpose = purpose;
    if (wh_config_wants_model(out)) read_model(out, &faults);
    if (wh_config_wants_schedule(out)) read_schedule(out, &faults);
    wh_config_check(out, &faults);
    return wh_faults_status(&faults, WH_CONFIG);
}

static enum wh_status load(const char *path, const struct wh_option_list *sets, enum wh_config_purpose purpose,
                           struct wh_config *out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, CONFIG_BYTES_MAX, &text, &bytes));
    struct wh_config c;
    enum wh_status status = check(text, bytes, path, sets, purpose, &c);
    free(text);
    if (status == WH_OK)
        *out = c;
    else
        wh_config_free(&c);
    return status;
}

enum wh_status wh_cli_config_load(const char *path, const struct wh_option_list *sets, struct wh_config *out) {
    return load(path, sets, WH_CONFIG_TO_TRAIN, out);
}

enum wh_status wh_cli_config_load_plan(const char *path, const struct wh_option_list *sets, struct wh_config *out) {
    return load(path, sets, WH_CONFIG_TO_PLAN, out);
}
