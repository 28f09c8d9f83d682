#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "coll/draw.h"
#include "os/probe.h"
#include "os/signal.h"
#include "run/launch.h"
#include "run/links_file.h"
#include "run/probe_links.h"
#include "run/tune.h"

enum { LEAST_BYTES = 1024, SIZES_MAX = 32, PASSES = 3 };

struct args {
    struct wh_cli_common common;
    const char *out, *max_bytes;
    uint64_t ranks;
    double seconds;
    bool quick, no_pin;
};

static const struct wh_option options[] = {
    {"ranks", 'n', WH_OPTION_UINT, offsetof(struct args, ranks), "N", "processes; default: one per processor"},
    {"out", 'o', WH_OPTION_TEXT, offsetof(struct args, out), "FILE",
     "where to keep what was measured (default: links-N.json in the cache folder, ~/.cache/wanhe)"},
    {"max-bytes", 0, WH_OPTION_TEXT, offsetof(struct args, max_bytes), "SIZE", "largest vector (default 64M)"},
    {"seconds", 0, WH_OPTION_REAL, offsetof(struct args, seconds), "S", "for each time in the table (default 0.02)"},
    {"quick", 0, WH_OPTION_FLAG, offsetof(struct args, quick), NULL,
     "only measure and keep, as a run does at its start"},
    {"no-pin", 0, WH_OPTION_FLAG, offsetof(struct args, no_pin), NULL, "don't bind ranks to cores"},
    WH_CLI_COMMON(struct args),
    {0}};

static const enum wh_comm_op ops[] = {WH_ALL_REDUCE, WH_REDUCE_SCATTER, WH_ALL_GATHER};
enum { OPS = sizeof ops / sizeof *ops };

struct tune {
    const char *path;
    char machine[WH_COLL_LINKS_MACHINE_BYTES];
    size_t max_bytes;
    double seconds;
    bool quick;
};

/* --- output, by rank 0 --- */

static const char *time_text(double seconds, struct wh_text *t) {
    wh_text_clear(t);
    wh_coll_draw_seconds(seconds, t);
    return t->data;
}

static double rate(double s_per_byte) { return s_per_byte > 0 ? 1e-9 / s_per_byte : 0; }

static void print_links(const struct wh_coll_links *l) {
    struct wh_text a = {0}, b = {0};
    printf("%s; %u ranks\n", l->machine, l->ranks);
    printf("a message: latency %s", time_text(l->latency_s, &a));
    printf(" + %s of either port; an operation by itself: arena %s, ", time_text(l->message_s, &a),
           time_text(l->start_s[WH_COLL_SHARED], &b));
    printf("staged %s\n\n", time_text(l->start_s[WH_COLL_STAGED], &a));
    printf(
        "GB/s of a rank           messages    by itself            in the arena                  staged\n"
        "  vector (B)   piped  placed    copy     add  reduce scatter  gather  reduce scatter  gather\n");
    for (uint32_t i = 0; i < l->level_count; i++) {
        const struct wh_coll_level *at = &l->level[i];
        printf("%12llu %7.2f %7.2f %7.2f %7.2f", (unsigned long long)at->bytes, rate(at->piped), rate(at->placed),
               rate(at->copy), rate(at->add));
        for (int w = 0; w < WH_COLL_WAY_COUNT; w++)
            for (int op = 0; op < WH_COLL_MEASURED_OPS; op++) printf(" %7.2f", rate(at->way[w][op]));
        printf("\n");
    }
    wh_text_fini(&a);
    wh_text_fini(&b);
}

static void print_row(const struct wh_tune_row *r) {
    struct wh_text text[3] = {{0}};
    for (uint32_t i = 0; i < r->count; i++) {
        const struct wh_tune_candidate *c = &r->candidate[i];
        printf("%12llu %c%c %-17s %10s %10s %10s  %5.2f%s\n", (unsigned long long)r->bytes,
               i == r->contract ? '*' : ' ', i == 0 ? 'f' : ' ', c->name, time_text(c->predicted_s, &text[0]),
               time_text(c->best_s, &text[1]), time_text(c->median_s, &text[2]), c->predicted_s / c->best_s,
               c->canonical ? "" : "  fast only");
    }
    fflush(stdout);
    for (int i = 0; i < 3; i++) wh_text_fini(&text[i]);
}

static void print_summary(const struct wh_tune_summary *s) {
    printf("\npredicted / best measured: %.2f to %.2f, median %.2f; %u of %u within 25%%\n", s->least, s->most,
           s->median, s->within_25, s->count);
    printf("the choice takes at most %.2f times the fastest (contract order: %.2f)\n", s->worst_choice,
           s->worst_contract);
}

static json_t *row_json(const struct wh_tune_row *r) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->count; i++) {
        const struct wh_tune_candidate *c = &r->candidate[i];
        json_array_append_new(
            list, json_pack("{sssisbsfsfsfsbsb}", "name", c->name, "chunks", (int)c->chunks, "canonical",
                            (int)c->canonical, "predicted_s", c->predicted_s, "best_s", c->best_s, "median_s",
                            c->median_s, "contract_choice", (int)(i == r->contract), "fast_choice", (int)(i == 0)));
    }
    return json_pack("{sssIso}", "operation", wh_comm_op_name(r->op), "bytes", (json_int_t)r->bytes, "candidates",
                     list);
}

static void print_json(const struct tune *u, const struct wh_coll_links *l, const struct wh_tune_row *rows,
                       size_t count, const struct wh_tune_summary *s) {
    json_t *o = wh_cli_json_new("tune"), *list = json_array();
    struct wh_text text = {0};
    wh_coll_links_write(l, &text);
    json_object_set_new(o, "file", json_string(u->path));
    json_object_set_new(o, "links", json_loadb(text.data, text.bytes, 0, NULL));
    wh_text_fini(&text);
    for (size_t i = 0; i < count; i++) json_array_append_new(list, row_json(&rows[i]));
    json_object_set_new(o, "rows", list);
    if (count)
        json_object_set_new(
            o, "summary",
            json_pack("{sisisfsfsfsfsf}", "predictions", (int)s->count, "within_25_percent", (int)s->within_25,
                      "least_ratio", s->least, "median_ratio", s->median, "most_ratio", s->most, "worst_choice",
                      s->worst_choice, "worst_contract_choice", s->worst_contract));
    wh_cli_json_print(o);
}

/* --- the ranks --- */

static enum wh_status measure_table(struct wh_tune *t, struct wh_launch_rank *self, const struct tune *u,
                                    const struct wh_coll_links *links, struct wh_tune_row *rows, size_t *count) {
    const bool prints = self->rank == 0 && !wh_cli_json();
    for (int o = 0; o < OPS; o++) {
        if (prints)
            printf(
                "\n%s in place of float32: * chosen with the contract's order of summation, f with any\n%12s    "
                "%-17s %10s %10s %10s  %s\n",
                wh_comm_op_name(ops[o]), "vector (B)", "by", "predicted", "best", "median", "predicted/best");
        for (size_t bytes = LEAST_BYTES; bytes <= u->max_bytes; bytes *= 4) {
            wh_launch_at(self, (int64_t)*count, "measuring");
            WH_TRY(wh_tune_row(t, links, ops[o], bytes, u->seconds, &rows[*count]));
            if (prints) print_row(&rows[*count]);
            ++*count;
        }
    }
    return WH_OK;
}

static enum wh_status measure(struct wh_tune *t, struct wh_launch_rank *self, const struct tune *u,
                              struct wh_tune_row *rows) {
    const struct wh_probe_links_what what = {.scratch = wh_tune_scratch(t),
                                             .scratch_bytes = u->max_bytes,
                                             .machine = u->machine,
                                             .factor = u->quick ? 0 : 4,
                                             .max_bytes = u->quick ? 0 : u->max_bytes,
                                             .seconds = u->quick ? 0 : u->seconds,
                                             .passes = u->quick ? 1 : PASSES};
    const bool speaks = self->rank == 0;
    struct wh_coll_links links;
    struct wh_tune_summary summary = {0};
    size_t count = 0;
    WH_TRY(wh_probe_links(wh_tune_comm(t), &what, &links));
    if (speaks && !wh_cli_json()) print_links(&links);
    if (!u->quick) WH_TRY(measure_table(t, self, u, &links, rows, &count));
    if (!speaks) return WH_OK;
    WH_TRY(wh_tune_summarize(rows, count, &summary));
    WH_TRY(wh_links_save(u->path, &links));
    if (wh_cli_json()) {
        print_json(u, &links, rows, count, &summary);
    } else {
        if (count) print_summary(&summary);
        printf("kept in %s\n", u->path);
    }
    return WH_OK;
}

static enum wh_status body(struct wh_launch_rank *self, void *context) {
    const struct tune *u = context;
    struct wh_tune *t;
    struct wh_tune_row *rows = calloc((size_t)OPS * SIZES_MAX, sizeof *rows);
    if (!rows) return WH_FAIL(WH_NOMEM, "no memory for the table");
    enum wh_status status = wh_comm_job_join(self->job, self->rank);
    if (status == WH_OK) status = wh_tune_open(self->job, self->rank, self->world, u->max_bytes, &t);
    if (status == WH_OK) {
        status = measure(t, self, u, rows);
        wh_tune_close(t);
    }
    free(rows);
    return status;
}

static void console(void *context, const char *line) {
    (void)context;
    wh_cli_say("%s", line);
}

static enum wh_status run_ranks(const struct args *a, struct tune *u, uint32_t ranks, int *stopped_by) {
    struct wh_comm_job *job;
    struct wh_launch_result result = {0};
    const struct wh_comm_job_config config = {.ranks = ranks, .arena_bytes = wh_tune_arena_bytes(u->max_bytes)};
    wh_probe_links_machine(u->machine);
    WH_TRY(wh_comm_job_create(&config, &job));
    const struct wh_launch_options launch = {.ranks = ranks, .job = job, .pin = !a->no_pin, .console = console};
    const enum wh_status status = wh_launch_run(&launch, body, u, &result);
    wh_comm_job_destroy(job);
    *stopped_by = result.stopped_by;
    return status;
}

static enum wh_status tune(const struct args *a, int *stopped_by) {
    struct tune u = {.seconds = a->seconds, .quick = a->quick};
    const int processors = wh_probe_processors();
    const uint64_t ranks = a->ranks                         ? a->ranks
                           : processors > WH_COMM_RANKS_MAX ? WH_COMM_RANKS_MAX
                                                            : (uint64_t)processors;
    WH_TRY(wh_launch_refuse_singletons(wh_cli_environment));
    WH_TRY(wh_cli_range("--ranks", ranks, 1, WH_COMM_RANKS_MAX));
    WH_TRY(wh_cli_size("--max-bytes", a->max_bytes, (size_t)64 << 20, &u.max_bytes));
    WH_TRY(wh_cli_range("--max-bytes", u.max_bytes, (uint64_t)16 << 10, (uint64_t)1 << 32));
    if (!(a->seconds > 0 && a->seconds <= 60)) return WH_FAIL(WH_USAGE, "--seconds: above 0, at most 60");
    char *standard = a->out ? NULL : wh_links_default_path(wh_cli_environment, (uint32_t)ranks);
    u.path = a->out ? a->out : standard;
    const enum wh_status status =
        u.path ? run_ranks(a, &u, (uint32_t)ranks, stopped_by)
               : WH_FAIL(WH_USAGE, "neither HOME nor XDG_CACHE_HOME says where to keep the figures: give --out FILE");
    free(standard);
    return status;
}

int wh_cmd_tune(int argc, char **argv) {
    struct args args = {.seconds = 0.02};
    int code, stopped_by = 0;
    if (!wh_cli_begin("tune",
                      "Measures latencies and rates between ranks of this machine, keeps them, and shows for every "
                      "algorithm what they predict and what it takes.",
                      options, argc, argv, &args, &args.common, &code))
        return code;
    code = wh_cli_end(tune(&args, &stopped_by));
    return stopped_by ? wh_signal_exit_code(stopped_by) : code;
}
