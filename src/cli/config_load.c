#include <stdlib.h>

#include "cli/cli.h"
#include "os/file.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

static void read_model(struct wh_config *c, struct wh_faults *faults) {
    wh_faults_add(faults, c->file_name, 0, "this build reads no config.json; write the sizes into model.model_config");
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
