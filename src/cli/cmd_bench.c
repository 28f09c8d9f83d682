#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "coll/plan.h"
#include "os/probe.h"
#include "os/signal.h"
#include "run/bench_coll.h"
#include "run/launch.h"

struct args {
    struct wh_cli_common common;
    const char *what, *op, *algorithm, *dtype, *redop, *min_bytes, *max_bytes;
    uint64_t ranks, factor, iters;
    double seconds;
    bool private_memory, no_pin;
};

static const struct wh_option options[] = {
    {"WHAT", 0, WH_OPTION_REQUIRED, offsetof(struct args, what), NULL, "collectives"},
    {"op", 0, WH_OPTION_TEXT, offsetof(struct args, op), "NAME",
     "all_reduce (default), reduce_scatter, all_gather, broadcast, reduce, all_to_all, send (half of there and back)"},
    {"algorithm", 0, WH_OPTION_TEXT, offsetof(struct args, algorithm), "NAME",
     "auto (default), or one of `wanhe explain`, run over messages"},
    {"ranks", 'n', WH_OPTION_UINT, offsetof(struct args, ranks), "N", "processes; default: one per processor"},
    {"dtype", 0, WH_OPTION_TEXT, offsetof(struct args, dtype), "NAME",
     "float32 (default), bfloat16, float64, int32, int64"},
    {"redop", 0, WH_OPTION_TEXT, offsetof(struct args, redop), "NAME", "sum (default), max, min, rounded"},
    {"min-bytes", 0, WH_OPTION_TEXT, offsetof(struct args, min_bytes), "SIZE", "smallest vector (default 4)"},
    {"max-bytes", 0, WH_OPTION_TEXT, offsetof(struct args, max_bytes), "SIZE", "largest vector (default 256M)"},
    {"factor", 0, WH_OPTION_UINT, offsetof(struct args, factor), "N", "from one size to the next (default 4)"},
    {"iters", 0, WH_OPTION_UINT, offsetof(struct args, iters), "N",
     "calls to time; default: as many as --seconds give"},
    {"seconds", 0, WH_OPTION_REAL, offsetof(struct args, seconds), "S", "for each size and form (default 0.1)"},
    {"private", 0, WH_OPTION_FLAG, offsetof(struct args, private_memory), NULL,
     "buffers that other ranks can't read directly"},
    {"no-pin", 0, WH_OPTION_FLAG, offsetof(struct args, no_pin), NULL, "don't bind ranks to cores"},
    WH_CLI_COMMON(struct args),
    {0}};

struct bench {
    struct wh_bench_coll_what what;
    uint32_t ranks, factor;
    size_t min_bytes;
    bool private_memory;
};

/* --- the command line --- */

struct word {
    const char *name;
    int value;
};

static const struct word ops[] = {{"all_reduce", WH_ALL_REDUCE},
                                  {"reduce_scatter", WH_REDUCE_SCATTER},
                                  {"all_gather", WH_ALL_GATHER},
                                  {"broadcast", WH_BROADCAST},
                                  {"reduce", WH_REDUCE},
                                  {"all_to_all", WH_ALL_TO_ALL},
                                  {"send", WH_SEND}};
static const struct word dtypes[] = {
    {"float32", WH_F32}, {"bfloat16", WH_BF16}, {"float64", WH_F64}, {"int32", WH_I32}, {"int64", WH_I64}};
static const struct word redops[] = {{"sum", WH_SUM}, {"max", WH_MAX}, {"min", WH_MIN}, {"rounded", WH_SUM_ROUNDED}};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *word_of(const struct word *table, size_t count, int value) {
    for (size_t i = 0; i < count; i++)
        if (table[i].value == value) return table[i].name;
    return "?";
}

static enum wh_status choose(const char *option, const char *given, const struct word *table, size_t count, int *out) {
    struct wh_text legal = {0};
    if (!given) given = table[0].name;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(given, table[i].name) == 0) {
            *out = table[i].value;
            wh_text_fini(&legal);
            return WH_OK;
        }
        wh_text_add(&legal, "%s%s", i ? ", " : "", table[i].name);
    }
    const enum wh_status status = WH_FAIL(WH_USAGE, "--%s %s: legal: %s", option, given, legal.data);
    wh_text_fini(&legal);
    return status;
}

static struct wh_coll_request request_of(const struct bench *b) {
    return (struct wh_coll_request){.op = (enum wh_coll_op)b->what.op, /* the same order, comm/comm.h */
                                    .ranks = b->ranks,
                                    .count = b->ranks,
                                    .dtype = b->what.dtype};
}

static enum wh_status unknown_algorithm(const char *name) {
    struct wh_text legal = {0};
    for (int i = 0; wh_coll_algorithms[i]; i++) wh_text_add(&legal, ", %s", wh_coll_algorithms[i]->name);
    const enum wh_status status = WH_FAIL(WH_USAGE, "--algorithm %s: legal: auto%s", name, legal.data);
    wh_text_fini(&legal);
    return status;
}

/* Before any rank starts. */
static enum wh_status check_algorithm(const char *name, struct bench *b) {
    const struct wh_coll_request q = request_of(b);
    if (!name || strcmp(name, "auto") == 0) return WH_OK;
    if (b->what.op == WH_SEND) return WH_FAIL(WH_USAGE, "--algorithm %s: send has none; legal: auto", name);
    const struct wh_coll_algorithm *a = wh_coll_algorithm(name);
    if (!a) return unknown_algorithm(name);
    WH_TRY(wh_coll_can(&q, a));
    b->what.algorithm = a->name;
    return WH_OK;
}

static enum wh_status understand(const struct args *a, struct bench *b) {
    int op, dtype, redop;
    if (strcmp(a->what, "collectives") != 0) return WH_FAIL(WH_USAGE, "bench %s: legal: collectives", a->what);
    WH_TRY(choose("op", a->op, ops, COUNT(ops), &op));
    WH_TRY(choose("dtype", a->dtype, dtypes, COUNT(dtypes), &dtype));
    WH_TRY(choose("redop", a->redop, redops, COUNT(redops), &redop));
    WH_TRY(wh_cli_size("--min-bytes", a->min_bytes, 4, &b->min_bytes));
    WH_TRY(wh_cli_size("--max-bytes", a->max_bytes, (size_t)256 << 20, &b->what.max_bytes));
    const int processors = wh_probe_processors();
    const uint64_t ranks = a->ranks                         ? a->ranks
                           : op == WH_SEND                  ? 2
                           : processors > WH_COMM_RANKS_MAX ? WH_COMM_RANKS_MAX
                                                            : (uint64_t)processors;
    if (op == WH_SEND && ranks != 2) return WH_FAIL(WH_USAGE, "--ranks: 2 for send");
    if (ranks > WH_COMM_RANKS_MAX) return WH_FAIL(WH_USAGE, "--ranks: at most %d", WH_COMM_RANKS_MAX);
    if (a->factor == 1 || a->factor > 1 << 20) return WH_FAIL(WH_USAGE, "--factor: 2 to 1048576");
    if (a->iters > 1 << 30) return WH_FAIL(WH_USAGE, "--iters: at most %d", 1 << 30);
    if (!(a->seconds > 0 && a->seconds <= 3600)) return WH_FAIL(WH_USAGE, "--seconds: above 0, at most 3600");
    if (b->min_bytes > b->what.max_bytes) return WH_FAIL(WH_USAGE, "--min-bytes is above --max-bytes");
    b->what.crowded = ranks > (uint64_t)processors;
    b->ranks = (uint32_t)ranks, b->factor = a->factor ? (uint32_t)a->factor : 4;
    b->what.op = (enum wh_comm_op)op, b->what.dtype = (enum wh_dtype)dtype, b->what.redop = (enum wh_redop)redop;
    b->what.iters = (uint32_t)a->iters, b->what.seconds = a->seconds, b->what.private_memory = a->private_memory;
    return check_algorithm(a->algorithm, b);
}

/* --- output, by rank 0 --- */

/* An algorithm that adds in an order of its own has other bits, and that is no fault. */
static bool promises_bits(const struct bench *b) {
    const struct wh_coll_request q = request_of(b);
    const struct wh_coll_algorithm *a = b->what.algorithm ? wh_coll_algorithm(b->what.algorithm) : NULL;
    return !a || !wh_coll_op_adds(q.op) || (a->canonical && a->canonical(&q));
}

static bool reduces(enum wh_comm_op op) { return op == WH_ALL_REDUCE || op == WH_REDUCE_SCATTER || op == WH_REDUCE; }

static void print_head(const struct bench *b) {
    printf("# wanhe %s, %u ranks, algorithm %s, %s\n", word_of(ops, COUNT(ops), b->what.op), b->ranks,
           b->what.algorithm ? b->what.algorithm : "auto",
           b->what.private_memory ? "private buffers" : "shared buffers");
    printf(
        "# limit: the same reads and writes by each rank on memory of its own (%s)\n",
        b->what.crowded ? "none: there are more ranks than processors" : "small vectors: caches; large ones: memory");
    printf("# %10s  %12s  %9s %6s  %42s    %42s\n", "", "", "", "", "------------- out-of-place ---------------",
           "--------------- in-place -----------------");
    printf("# %10s  %12s  %9s %6s", "size", "count", "type", "redop");
    for (int form = 0; form < 2; form++) printf("  %9s %7s %7s %6s %9s", "time", "algbw", "busbw", "#wrong", "limit");
    printf("\n# %10s  %12s  %9s %6s", "(B)", "(elements)", "", "");
    for (int form = 0; form < 2; form++) printf("  %9s %7s %7s %6s %9s", "(us)", "(GB/s)", "(GB/s)", "", "(us)");
    printf("\n");
}

static void print_time(const struct wh_bench_coll_time *t) {
    if (!t->measured)
        printf("  %9s %7s %7s %6s %9s", "-", "-", "-", "-", "-");
    else
        printf("  %9.2f %7.2f %7.2f %6llu", t->us, t->algbw, t->busbw, (unsigned long long)t->wrong);
    if (!t->measured) return;
    if (t->limit_us > 0)
        printf(" %9.2f", t->limit_us);
    else
        printf(" %9s", "-");
}

static void print_row(const struct bench *b, const struct wh_bench_coll_row *r) {
    printf("  %10zu  %12llu  %9s %6s", r->bytes, (unsigned long long)r->count,
           word_of(dtypes, COUNT(dtypes), b->what.dtype),
           reduces(b->what.op) ? word_of(redops, COUNT(redops), b->what.redop) : "none");
    print_time(&r->out_of_place);
    print_time(&r->in_place);
    printf("\n");
    fflush(stdout);
}

static json_t *time_json(const struct wh_bench_coll_time *t) {
    if (!t->measured) return json_null();
    return json_pack("{sfsfsfsfsIso}", "us", t->us, "us_min", t->us_min, "algbw_gbs", t->algbw, "busbw_gbs", t->busbw,
                     "wrong", (json_int_t)t->wrong, "limit_us", t->limit_us > 0 ? json_real(t->limit_us) : json_null());
}

static void add_row(json_t *rows, const struct wh_bench_coll_row *r) {
    json_array_append_new(
        rows, json_pack("{sIsIsoso}", "bytes", (json_int_t)r->bytes, "count", (json_int_t)r->count, "out_of_place",
                        time_json(&r->out_of_place), "in_place", time_json(&r->in_place)));
}

static void print_json(const struct bench *b, json_t *rows, double mean_busbw, uint64_t wrong) {
    json_t *o = wh_cli_json_new("bench_collectives");
    struct wh_text machine = {0};
    wh_probe_machine(&machine);
    json_object_set_new(o, "machine", json_loads(machine.data, 0, NULL));
    wh_text_fini(&machine);
    json_object_set_new(o, "ranks", json_integer(b->ranks));
    json_object_set_new(o, "op", json_string(word_of(ops, COUNT(ops), b->what.op)));
    json_object_set_new(o, "algorithm", json_string(b->what.algorithm ? b->what.algorithm : "auto"));
    json_object_set_new(o, "dtype", json_string(word_of(dtypes, COUNT(dtypes), b->what.dtype)));
    json_object_set_new(o, "redop", json_string(word_of(redops, COUNT(redops), b->what.redop)));
    json_object_set_new(o, "memory", json_string(b->what.private_memory ? "private" : "shared"));
    json_object_set_new(o, "rows", rows);
    json_object_set_new(o, "mean_busbw_gbs", json_real(mean_busbw));
    json_object_set_new(o, "wrong", json_integer((json_int_t)wrong));
    wh_cli_json_print(o);
}

/* --- the ranks --- */

struct total {
    double busbw;
    uint32_t times;
    uint64_t wrong;
};

static void add_time(struct total *t, const struct wh_bench_coll_time *time) {
    if (!time->measured) return;
    t->busbw += time->busbw, t->wrong += time->wrong, t->times++;
}

static enum wh_status measure_all(struct wh_bench_coll *m, struct wh_launch_rank *self, const struct bench *b) {
    const bool speaks = self->rank == 0, json = wh_cli_json();
    struct total total = {0};
    json_t *rows = speaks && json ? json_array() : NULL;
    if (speaks && !json) print_head(b);
    for (size_t bytes = b->min_bytes, step = 0; bytes <= b->what.max_bytes; bytes *= b->factor, step++) {
        struct wh_bench_coll_row row;
        wh_launch_at(self, (int64_t)step, "measuring");
        WH_TRY(wh_bench_coll_row(m, bytes, &row));
        if (row.count == 0) continue; /* less than an element for each rank */
        add_time(&total, &row.out_of_place);
        add_time(&total, &row.in_place);
        if (rows) add_row(rows, &row);
        if (speaks && !json) print_row(b, &row);
    }
    const double mean = total.times ? total.busbw / total.times : 0;
    if (rows) print_json(b, rows, mean, total.wrong);
    if (speaks && !json)
        printf("# wrong elements: %llu %s\n# average bus bandwidth: %.3f GB/s\n", (unsigned long long)total.wrong,
               total.wrong == 0   ? "OK"
               : promises_bits(b) ? "FAILED"
                                  : "(the algorithm adds in an order of its own)",
               mean);
    if (total.wrong == 0 || !promises_bits(b)) return WH_OK;
    return WH_FAIL(WH_INTERNAL, "%llu elements have other bits than the canonical sum",
                   (unsigned long long)total.wrong);
}

static enum wh_status body(struct wh_launch_rank *self, void *context) {
    const struct bench *b = context;
    struct wh_bench_coll *m;
    WH_TRY(wh_comm_job_join(self->job, self->rank));
    WH_TRY(wh_bench_coll_open(self->job, self->rank, self->world, &b->what, &m));
    const enum wh_status status = measure_all(m, self, b);
    wh_bench_coll_close(m);
    return status;
}

static void console(void *context, const char *line) {
    (void)context;
    wh_cli_say("%s", line);
}

static enum wh_status run(const struct args *a, int *stopped_by) {
    struct bench b = {0};
    struct wh_comm_job *job;
    struct wh_launch_result result = {0};
    WH_TRY(wh_launch_refuse_singletons(wh_cli_environment));
    WH_TRY(understand(a, &b));
    const struct wh_comm_job_config config = {.ranks = b.ranks, .arena_bytes = wh_bench_coll_arena_bytes(&b.what)};
    WH_TRY(wh_comm_job_create(&config, &job));
    const struct wh_launch_options launch = {.ranks = b.ranks, .job = job, .pin = !a->no_pin, .console = console};
    const enum wh_status status = wh_launch_run(&launch, body, &b, &result);
    wh_comm_job_destroy(job);
    *stopped_by = result.stopped_by;
    return status;
}

int wh_cmd_bench(int argc, char **argv) {
    struct args args = {.seconds = 0.1};
    int code, stopped_by = 0;
    if (!wh_cli_begin("bench", "Measures collectives between ranks of this machine and checks every bit of them.",
                      options, argc, argv, &args, &args.common, &code))
        return code;
    code = wh_cli_end(run(&args, &stopped_by));
    return stopped_by ? wh_signal_exit_code(stopped_by) : code;
}
