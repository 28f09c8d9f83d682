#include <stdio.h>

#include "cli/cli.h"
#include "os/signal.h"
#include "run/launch.h"
#include "run/train.h"

struct args {
    struct wh_cli_common common;
    const char *config, *out;
    bool resume, resume_if_present;
    struct wh_option_list sets;
    const char *threads, *seed, *reduce, *trace;
    double patience;
};

static const struct wh_option options[] = {
    {"RUN.yaml", 0, WH_OPTION_REQUIRED, offsetof(struct args, config), NULL, "run configuration; `wanhe config keys`"},
    {"set", 's', WH_OPTION_LIST, offsetof(struct args, sets), "KEY=VALUE", "override one key; may be repeated"},
    {"out", 'o', WH_OPTION_TEXT, offsetof(struct args, out), "DIR", "run folder (default: runs/NAME of general.run)"},
    {"resume", 0, WH_OPTION_FLAG, offsetof(struct args, resume), NULL, "go on from the newest complete checkpoint"},
    {"resume-if-present", 0, WH_OPTION_FLAG, offsetof(struct args, resume_if_present), NULL,
     "go on if there is a checkpoint, else start: for restart loops"},
    {"threads", 't', WH_OPTION_TEXT, offsetof(struct args, threads), "N", "same as --set threads=N"},
    {"seed", 0, WH_OPTION_TEXT, offsetof(struct args, seed), "N", "same as --set general.seed=N"},
    {"reduce", 0, WH_OPTION_TEXT, offsetof(struct args, reduce), "MODE",
     "same as --set comm.reduce=MODE: contract or fast"},
    {"trace", 0, WH_OPTION_TEXT, offsetof(struct args, trace), "FILE",
     "same as --set logging.trace=FILE: a timeline of some steps, for Perfetto"},
    {"patience", 0, WH_OPTION_REAL, offsetof(struct args, patience), "SECONDS",
     "end a run whose rank gives no sign of life for so long (default 600)"},
    WH_CLI_COMMON(struct args),
    {0}};

static void say(void *context, const char *text) {
    (void)context;
    wh_cli_say("%s", text);
}

/* Options that stand for a key come behind all --set. */
static enum wh_status load(struct args *a, struct wh_config *out) {
    const struct {
        const char *key, *value;
    } option[] = {
        {"threads", a->threads}, {"general.seed", a->seed}, {"comm.reduce", a->reduce}, {"logging.trace", a->trace}};
    enum { OPTIONS = sizeof option / sizeof *option };
    struct wh_text set[OPTIONS] = {0};
    enum wh_status status = WH_OK;
    for (int i = 0; i < OPTIONS && status == WH_OK; i++) {
        if (!option[i].value) continue;
        wh_config_add_set(&set[i], option[i].key, option[i].value);
        if (a->sets.count < WH_OPTION_LIST_MAX)
            a->sets.item[a->sets.count++] = set[i].data;
        else
            status =
                WH_FAIL(WH_USAGE, "--set is given %d times; none is left for %s", WH_OPTION_LIST_MAX, option[i].key);
    }
    if (status == WH_OK) status = wh_cli_config_load(a->config, &a->sets, out);
    for (int i = 0; i < OPTIONS; i++) wh_text_fini(&set[i]);
    return status;
}

static void report(const struct wh_config *c, const struct wh_train_summary *s, const char *out) {
    if (!wh_cli_json()) {
        char share[64] = "";
        const char *each = s->ranks > 1 ? " a rank" : "";
        if (s->mfu > 0.0 && s->mfu <= 1.0)
            snprintf(share, sizeof share, ", %.1f%% of the multiply-add peak", 100.0 * s->mfu);
        wh_cli_say("%llu steps in %.1f s, %.0f tokens/s%s, peak memory %.0f MiB%s; run folder %s",
                   (unsigned long long)(s->steps - s->first_step), s->seconds, s->tokens_per_s, share,
                   (double)s->peak_bytes / 0x1p20, each, out);
        return;
    }
    json_t *o = wh_cli_json_new("train");
    json_object_set_new(o, "run", json_string(c->general.run));
    json_object_set_new(o, "folder", json_string(out));
    json_object_set_new(o, "ranks", json_integer(s->ranks));
    json_object_set_new(o, "threads", json_integer(s->threads));
    json_object_set_new(o, "first_step", json_integer((json_int_t)s->first_step));
    json_object_set_new(o, "steps", json_integer((json_int_t)s->steps));
    json_object_set_new(o, "loss", s->loss == s->loss ? json_real(s->loss) : json_null());
    json_object_set_new(o, "valid_loss", s->valid_loss == s->valid_loss ? json_real(s->valid_loss) : json_null());
    json_object_set_new(o, "tokens_per_s", json_real(s->tokens_per_s));
    json_object_set_new(o, "peak_gflops", json_real(s->peak_gflops));
    json_object_set_new(o, "mfu", json_real(s->mfu));
    json_object_set_new(o, "peak_resident_bytes", json_integer((json_int_t)s->peak_bytes));
    json_object_set_new(o, "seconds", json_real(s->seconds));
    wh_cli_json_print(o);
}

static enum wh_status train(struct args *a, int *signal_number) {
    struct wh_config c;
    struct wh_train_summary summary = {0};
    struct wh_text folder = {0};
    if (a->resume && a->resume_if_present)
        return WH_FAIL(WH_USAGE, "--resume and --resume-if-present exclude each other");
    if (a->trace && !*a->trace) return WH_FAIL(WH_USAGE, "--trace: a file is wanted");
    if (!(a->patience > 0 && a->patience <= 1e6)) return WH_FAIL(WH_USAGE, "--patience: above 0, at most 1000000");
    WH_TRY(wh_launch_refuse_singletons(wh_cli_environment));
    WH_TRY(load(a, &c));
    if (a->out)
        wh_text_add(&folder, "%s", a->out);
    else
        wh_text_add(&folder, "runs/%s", c.general.run);
    const struct wh_train_options o = {.out = folder.data,
                                       .start = a->resume              ? WH_TRAIN_RESUME
                                                : a->resume_if_present ? WH_TRAIN_RESUME_IF_PRESENT
                                                                       : WH_TRAIN_FRESH,
                                       .say = say,
                                       .progress = say,
                                       .environment = wh_cli_environment,
                                       .silence_ns = (uint64_t)(a->patience * 1e9)};
    enum wh_status status = wh_train_run(&c, &o, &summary);
    const bool stopped = status == WH_RETRY && summary.seconds > 0.0; /* not killed */
    if (status == WH_OK || (stopped && !wh_cli_json()))               /* the error is then the one object on stdout */
        report(&c, &summary, folder.data);
    *signal_number = summary.stopped_by;
    wh_text_fini(&folder);
    wh_config_free(&c);
    return status;
}

int wh_cmd_train(int argc, char **argv) {
    struct args args = {.patience = 600};
    int code, stopped_by = 0;
    if (!wh_cli_begin("train", "Trains the model that a run configuration describes.", options, argc, argv, &args,
                      &args.common, &code))
        return code;
    code = wh_cli_end(train(&args, &stopped_by));
    return stopped_by ? wh_signal_exit_code(stopped_by) : code;
}
