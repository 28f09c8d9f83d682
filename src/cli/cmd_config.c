#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

struct args {
    struct wh_cli_common common;
    const char *action, *file;
    struct wh_option_list set;
    bool effective, markdown;
};

static const struct wh_option options[] = {
    {"ACTION", 0, WH_OPTION_REQUIRED, offsetof(struct args, action), NULL,
     "show (a run configuration) or keys (that one may have)"},
    {"RUN.yaml", 0, WH_OPTION_OPTIONAL, offsetof(struct args, file), NULL, "show: the run configuration"},
    {"set", 's', WH_OPTION_LIST, offsetof(struct args, set), "KEY=VALUE", "show: override a key (may be repeated)"},
    {"effective", 0, WH_OPTION_FLAG, offsetof(struct args, effective), NULL,
     "show: every key with the source of its value, as YAML"},
    {"markdown", 0, WH_OPTION_FLAG, offsetof(struct args, markdown), NULL, "keys: as docs/config.md"},
    WH_CLI_COMMON(struct args),
    {0}};

static void keys_json(void) {
    json_t *o = wh_cli_json_new("config_keys"), *keys = json_array();
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        struct wh_config_key_info i = wh_config_key_info((enum wh_config_key)k);
        json_array_append_new(keys, json_pack("{ssssssssssss}", "key", i.path, "type", i.type, "default", i.standard,
                                              "words", i.choices, "unit", i.unit, "help", i.help));
    }
    json_object_set_new(o, "keys", keys);
    wh_cli_json_print(o);
}

static void keys_text(void) {
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        struct wh_config_key_info i = wh_config_key_info((enum wh_config_key)k);
        printf("%s", i.path);
        if (*i.standard) printf(" = %s", i.standard);
        printf("\n    %s\n    %s", i.help, i.type);
        if (*i.choices) printf(": %s", i.choices);
        if (*i.unit) printf(", %s", i.unit);
        printf("\n");
    }
}

static enum wh_status keys(const struct args *a) {
    if (a->file) return WH_FAIL(WH_USAGE, "'%s' is one argument too many: keys takes no file", a->file);
    if (wh_cli_json())
        keys_json();
    else if (a->markdown) {
        struct wh_text text = {0};
        wh_config_markdown(&text);
        fputs(text.data, stdout);
        wh_text_fini(&text);
    } else
        keys_text();
    return WH_OK;
}

/* Values as text, as the file would have them. */
static void show_json(const struct wh_config *c) {
    json_t *o = wh_cli_json_new("config"), *values = json_object();
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        struct wh_text value = {0}, source = {0};
        wh_config_value(c, (enum wh_config_key)k, &value);
        wh_config_source_text(c, (enum wh_config_key)k, &source);
        json_object_set_new(values, wh_config_key_info((enum wh_config_key)k).path,
                            json_pack("{ssss}", "value", value.data, "source", source.data));
        wh_text_fini(&value);
        wh_text_fini(&source);
    }
    json_object_set_new(o, "keys", values);
    wh_cli_json_print(o);
}

/* What was given, nothing else. */
static void show_given(const struct wh_config *c) {
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        struct wh_text value = {0};
        enum wh_config_source_kind kind = c->source[k].kind;
        if (kind != WH_SOURCE_FILE && kind != WH_SOURCE_SET) continue;
        wh_config_value(c, (enum wh_config_key)k, &value);
        printf("%s: %s\n", wh_config_key_info((enum wh_config_key)k).path, value.data);
        wh_text_fini(&value);
    }
}

static enum wh_status show(const struct args *a) {
    struct wh_config c;
    if (!a->file) return WH_FAIL(WH_USAGE, "RUN.yaml is missing: the run configuration to show");
    WH_TRY(wh_cli_config_load(a->file, &a->set, &c));
    if (wh_cli_json())
        show_json(&c);
    else if (a->effective) {
        struct wh_text text = {0};
        wh_config_effective(&c, &text);
        fputs(text.data, stdout);
        wh_text_fini(&text);
    } else
        show_given(&c);
    wh_config_free(&c);
    return WH_OK;
}

static enum wh_status run(const struct args *a) {
    static const char *const actions[] = {"show", "keys"};
    const bool is_show = strcmp(a->action, "show") == 0, is_keys = strcmp(a->action, "keys") == 0;
    if (is_keys && (a->set.count || a->effective))
        return WH_FAIL(WH_USAGE, "%s belongs to show, not to keys", a->effective ? "--effective" : "--set");
    if (is_show && a->markdown) return WH_FAIL(WH_USAGE, "--markdown belongs to keys, not to show");
    if (is_show) return show(a);
    if (is_keys) return keys(a);
    const char *nearest = wh_text_nearest(a->action, actions, 2);
    if (nearest) return WH_FAIL(WH_USAGE, "unknown action '%s'; did you mean '%s'?", a->action, nearest);
    return WH_FAIL(WH_USAGE, "unknown action '%s'; legal: show, keys", a->action);
}

int wh_cmd_config(int argc, char **argv) {
    struct args args = {0};
    int code;
    if (!wh_cli_begin("config", "Lists the keys of a run configuration, or checks one and shows what it means.",
                      options, argc, argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(run(&args));
}
