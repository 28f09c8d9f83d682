#include "cli/explain_schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "os/file.h"
#include "os/terminal.h"
#include "sched/check.h"
#include "sched/draw.h"
#include "sched/format.h"

enum { STANDARD_OUTPUT = 1, TERMINAL_COLUMNS = 120, SHOWN_BLOCKS_MAX = 1 << 18 };
static const uint64_t NOT_GIVEN = UINT64_MAX;

struct args {
    struct wh_cli_common common;
    const char *what, *schedule, *file, *svg;
    uint64_t p, m, v, depth, width;
    double backward, weight;
    bool program, ops;
};

static const struct wh_option options[] = {
    {"schedule", 0, WH_OPTION_REQUIRED, offsetof(struct args, what), NULL, "the word itself"},
    {"schedule", 's', WH_OPTION_TEXT, offsetof(struct args, schedule), "NAME",
     "gpipe, 1f1b (default), interleaved, zb-h1 or zb-v"},
    {"p", 'p', WH_OPTION_UINT, offsetof(struct args, p), "N", "ranks of the pipeline (4)"},
    {"m", 'm', WH_OPTION_UINT, offsetof(struct args, m), "N", "micro-batches (8)"},
    {"v", 0, WH_OPTION_UINT, offsetof(struct args, v), "N", "chunks per rank (2 for interleaved and zb-v, else 1)"},
    {"bwd", 'b', WH_OPTION_REAL, offsetof(struct args, backward), "T", "time of a backward; a forward takes 1 (2)"},
    {"bwd-weight", 0, WH_OPTION_REAL, offsetof(struct args, weight), "T",
     "time of its weight part, where it is split (half of it)"},
    {"depth", 0, WH_OPTION_UINT, offsetof(struct args, depth), "N",
     "messages on the way from one rank to another; 0: a send waits for its receiver (2)"},
    {"file", 'f', WH_OPTION_TEXT, offsetof(struct args, file), "FILE",
     "a schedule of your own (docs/formats/schedule.md)"},
    {"svg", 0, WH_OPTION_TEXT, offsetof(struct args, svg), "FILE", "write the chart as SVG, too"},
    {"program", 0, WH_OPTION_FLAG, offsetof(struct args, program), NULL,
     "print the programs with messages, as a schedule file"},
    {"ops", 0, WH_OPTION_FLAG, offsetof(struct args, ops), NULL, "list the instructions that programs are made of"},
    {"width", 0, WH_OPTION_UINT, offsetof(struct args, width), "N", "columns of a line; longer charts are cut"},
    WH_CLI_COMMON(struct args),
    {0}};

/* What is shown. */
struct shown {
    struct wh_sched_plan plan;
    struct wh_sched_cost cost; /* of a chunk, in units of a chunk's forward */
    struct wh_sched_timing timing;
    double unit; /* chunk forwards per forward of a rank */
    const char *name;
    uint32_t depth;
};

static enum wh_status unknown_schedule(const char *name) {
    struct wh_text names = {0};
    for (int i = 0; wh_sched_generators[i]; i++)
        wh_text_add(&names, "%s%s", i ? ", " : "", wh_sched_generators[i]->name);
    enum wh_status status = WH_FAIL(WH_USAGE, "unknown schedule '%s'; there are %s", name, names.data);
    wh_text_fini(&names);
    return status;
}

static enum wh_status read_file(const struct args *a, struct wh_sched_plan *out) {
    struct wh_faults faults = {0};
    char *text;
    size_t bytes;
    if (a->p != NOT_GIVEN || a->m != NOT_GIVEN || a->v != NOT_GIVEN || a->schedule)
        return WH_FAIL(WH_USAGE, "--file says it all: --schedule, --p, --m and --v can't be given with it");
    WH_TRY(wh_file_read(a->file, WH_SCHED_TEXT_BYTES_MAX, &text, &bytes));
    bool read = wh_sched_parse(text, bytes, a->file, out, &faults);
    free(text);
    if (read && !wh_sched_check(out, (uint32_t)a->depth, a->file, &faults)) wh_sched_plan_free(out);
    return wh_faults_status(&faults, WH_CONFIG);
}

static enum wh_status generate(const struct args *a, struct wh_sched_plan *out) {
    const char *name = a->schedule ? a->schedule : "1f1b";
    const struct wh_sched_generator *g = wh_sched_generator(name);
    struct wh_faults faults = {0};
    if (!g) return unknown_schedule(name);
    WH_TRY(wh_cli_range("--p", a->p == NOT_GIVEN ? 4 : a->p, 1, WH_SCHED_RANKS_MAX));
    WH_TRY(wh_cli_range("--m", a->m == NOT_GIVEN ? 8 : a->m, 1, WH_SCHED_MICRO_BATCHES_MAX));
    WH_TRY(wh_cli_range("--v", a->v == NOT_GIVEN ? 1 : a->v, 1, WH_SCHED_CHUNKS_MAX));
    struct wh_sched_request q = {a->p == NOT_GIVEN ? 4 : (uint32_t)a->p, a->m == NOT_GIVEN ? 8 : (uint32_t)a->m,
                                 a->v == NOT_GIVEN ? g->chunks_default : (uint32_t)a->v};
    WH_TRY(wh_sched_plan_new(&q, g, out));
    if (!wh_sched_check(out, (uint32_t)a->depth, NULL, &faults)) wh_sched_plan_free(out);
    /* Generated ones are proved with queues of WH_SCHED_DEPTH; fewer were the user's wish. */
    return wh_faults_status(&faults, a->depth < WH_SCHED_DEPTH ? WH_CONFIG : WH_INTERNAL);
}

static enum wh_status prepare(const struct args *a, struct shown *s) {
    double weight = a->weight < 0 ? a->backward / 2 : a->weight;
    if (!(a->backward > 0) || a->backward > 1000)
        return WH_FAIL(WH_USAGE, "--bwd %g: above 0, up to 1000", a->backward);
    if (a->weight < 0 && a->weight != -1) return WH_FAIL(WH_USAGE, "--bwd-weight %g: must not be negative", a->weight);
    if (weight >= a->backward)
        return WH_FAIL(WH_USAGE, "--bwd-weight %g: it must be less than the whole backward, %g", weight, a->backward);
    WH_TRY(wh_cli_range("--depth", a->depth, 0, 1 << 20));
    WH_TRY(a->file ? read_file(a, &s->plan) : generate(a, &s->plan));
    s->cost = (struct wh_sched_cost){1, a->backward, a->backward - weight, weight};
    s->unit = s->plan.shape.chunks;
    s->name = s->plan.generator ? s->plan.generator->name : a->file;
    s->depth = (uint32_t)a->depth;
    enum wh_status status = wh_sched_time(&s->plan, &s->cost, s->depth, &s->timing);
    if (status != WH_OK) wh_sched_plan_free(&s->plan);
    return status;
}

static bool splits(const struct wh_sched_plan *p) {
    for (size_t i = 0; i < p->rank[0].count; i++)
        if (p->rank[0].instrs[i].op == WH_SCHED_BACKWARD_WEIGHT) return true;
    return false;
}

static double work_of(const struct shown *s, uint32_t rank) { return s->timing.rank[rank].busy / s->unit; }

static double published_idle(const struct shown *s) {
    return s->plan.generator ? s->plan.generator->idle(&s->plan.shape, &s->cost) : -1;
}

/* ---- JSON ---- */

static json_t *block_json(const struct shown *s, uint32_t rank, size_t n) {
    const struct wh_sched_instr *i = &s->plan.rank[rank].instrs[n];
    double start = s->timing.rank[rank].start[n], took = wh_sched_duration(&s->cost, (enum wh_sched_op)i->op);
    return json_pack("{sssisisfsf}", "op", wh_sched_ops[i->op].mark, "chunk", (int)i->chunk, "micro_batch",
                     (int)i->micro_batch, "start", start / s->unit, "end", (start + took) / s->unit);
}

/* A rank's blocks, and how many micro-batches (times chunks) are resident from when on. */
static json_t *rank_json(const struct shown *s, uint32_t rank) {
    const struct wh_sched_program *p = &s->plan.rank[rank];
    json_t *blocks = json_array(), *resident = json_array(), *stages = json_array();
    int now = 0;
    for (uint32_t c = 0; c < s->plan.shape.chunks; c++)
        json_array_append_new(stages, json_integer(wh_sched_stage(&s->plan.shape, rank, c)));
    for (size_t n = 0; n < p->count; n++) {
        enum wh_sched_op op = (enum wh_sched_op)p->instrs[n].op;
        double at = s->timing.rank[rank].start[n];
        if (!wh_sched_computes(op)) continue;
        json_array_append_new(blocks, block_json(s, rank, n));
        if (op == WH_SCHED_BACKWARD_INPUT) continue;
        now += op == WH_SCHED_FORWARD ? 1 : -1;
        if (op != WH_SCHED_FORWARD) at += wh_sched_duration(&s->cost, op);
        json_array_append_new(resident, json_pack("[fi]", at / s->unit, now));
    }
    return json_pack("{sisosisisisfsfsoso}", "rank", (int)rank, "stages", stages, "resident_max", (int)p->resident,
                     "activation_slots", (int)p->act_slots, "gradient_slots", (int)p->grad_slots, "busy",
                     work_of(s, rank), "idle", s->timing.makespan / s->unit - work_of(s, rank), "blocks", blocks,
                     "resident", resident);
}

static uint64_t count_messages(const struct wh_sched_plan *p) {
    uint64_t count = 0;
    for (uint32_t r = 0; r < p->shape.ranks; r++)
        for (size_t n = 0; n < p->rank[r].count; n++)
            count += wh_sched_ops[p->rank[r].instrs[n].op].message == WH_SCHED_SENDS;
    return count;
}

static json_t *inputs_json(const struct shown *s) {
    const struct wh_sched_shape *shape = &s->plan.shape;
    return json_pack("{sssisisisssfsfsfsfsi}", "schedule", s->name, "p", (int)shape->ranks, "m",
                     (int)shape->micro_batches, "v", (int)shape->chunks, "placement",
                     wh_sched_placement_name(shape->placement), "forward", 1.0, "backward", s->cost.backward,
                     "backward_input", s->cost.input, "backward_weight", s->cost.weight, "depth", (int)s->depth);
}

static json_t *outputs_json(const struct shown *s) {
    json_t *ranks = json_array();
    double published = published_idle(s);
    for (uint32_t r = 0; r < s->plan.shape.ranks; r++) json_array_append_new(ranks, rank_json(s, r));
    return json_pack("{sfsfsfsosIso}", "makespan", s->timing.makespan / s->unit, "idle_share", s->timing.idle,
                     "idle_overhead", s->timing.overhead, "published_idle_share",
                     published < 0 ? json_null() : json_real(published), "messages",
                     (json_int_t)count_messages(&s->plan), "ranks", ranks);
}

static void print_json(const struct shown *s) {
    json_t *o = wh_cli_json_new("explain.schedule");
    json_object_set_new(o, "name", json_string("pipeline.schedule"));
    json_object_set_new(o, "convention",
                        json_pack("{ssss}", "bubble", "fraction", "time", "a rank's forward of one micro-batch is 1"));
    json_object_set_new(o, "inputs", inputs_json(s));
    json_object_set_new(o, "outputs", outputs_json(s));
    json_object_set_new(o, "formula", s->plan.generator ? json_pack("[s]", s->plan.generator->formula) : json_array());
    json_object_set_new(o, "assumptions",
                        json_pack("[sss]", "every chunk takes the same time", "messages take no time",
                                  "a rank waits only for messages and for room in a queue"));
    json_object_set_new(
        o, "not_modelled",
        json_pack("[ss]", "embedding and head on the first and last stage", "optimizer step and gradient exchange"));
    wh_cli_json_print(o);
}

/* ---- text ---- */

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b ? common_divisor(b, a % b) : a; }

/* "3/11 = 27.27 %" where times are whole numbers, else "27.27 %". */
static void print_idle(const struct shown *s, struct wh_text *out) {
    double total = s->plan.shape.ranks * s->timing.makespan, idle = total;
    for (uint32_t r = 0; r < s->plan.shape.ranks; r++) idle -= s->timing.rank[r].busy;
    bool whole = total < 1e15 && total == (double)(uint64_t)total && idle == (double)(uint64_t)idle && idle > 0;
    uint64_t divisor = whole ? common_divisor((uint64_t)idle, (uint64_t)total) : 1;
    if (whole) wh_text_add(out, "%" PRIu64 "/%" PRIu64 " = ", (uint64_t)idle / divisor, (uint64_t)total / divisor);
    wh_text_add(out, "%.2f %%", 100 * s->timing.idle);
}

static void print_head(const struct shown *s, struct wh_text *out) {
    const struct wh_sched_shape *shape = &s->plan.shape;
    wh_text_add(out, "%s: %" PRIu32 " rank%s, %" PRIu32 " micro-batch%s", s->name, shape->ranks,
                shape->ranks > 1 ? "s" : "", shape->micro_batches, shape->micro_batches > 1 ? "es" : "");
    if (shape->chunks > 1)
        wh_text_add(out, ", %" PRIu32 " chunks per rank, a to %c", shape->chunks, 'a' + (int)shape->chunks - 1);
    if (s->plan.generator) wh_text_add(out, "\n%s", s->plan.generator->summary);
    wh_text_add(out, "\nforward F 1, backward %g", s->cost.backward);
    if (splits(&s->plan)) wh_text_add(out, ": input part B %g, weight part W %g", s->cost.input, s->cost.weight);
    wh_text_add(out, "%s; messages take no time\n\n", shape->chunks > 1 ? " (of all chunks of a rank)" : "");
}

static void print_numbers(const struct shown *s, struct wh_text *out) {
    double published = published_idle(s);
    wh_text_add(out, "\ntakes %g; idle ", s->timing.makespan / s->unit);
    print_idle(s, out);
    wh_text_add(out, " of the ranks' time (%.2f %% on top of the work)\n", 100 * s->timing.overhead);
    if (s->plan.generator) wh_text_add(out, "published: %s", s->plan.generator->formula);
    if (published >= 0) wh_text_add(out, "; here %.2f %%", 100 * published);
    wh_text_add(out, "%s%" PRIu64 " messages\n\n", s->plan.generator ? "\n" : "", count_messages(&s->plan));
}

/* Many ranks: the first and the last ones. */
static void print_ranks(const struct shown *s, struct wh_text *out) {
    enum { ENDS = 32 };
    uint32_t n = s->plan.shape.ranks;
    wh_text_add(out, "rank  keeps at most   activation slots  gradient slots   idle\n");
    for (uint32_t r = 0; r < n; r++) {
        const struct wh_sched_program *p = &s->plan.rank[r];
        if (n > 2 * ENDS && r == ENDS) {
            wh_text_add(out, " ...\n");
            r = n - ENDS;
        }
        wh_text_add(out, "%4" PRIu32 "  %13" PRIu32 "  %17" PRIu32 "  %14" PRIu32 "  %5.2f %%\n", r, p->resident,
                    p->act_slots, p->grad_slots,
                    100 * (s->timing.makespan - s->timing.rank[r].busy) / s->timing.makespan);
    }
    wh_text_add(out,
                "\nproved: each micro-batch once forward and once backward in every chunk, backward in order; slots "
                "balance;\nmessages match in order; no wait runs in a circle, with %" PRIu32
                " message%s per pair on the way\n",
                s->depth, s->depth == 1 ? "" : "s");
}

static uint32_t columns(const struct args *a) {
    uint64_t n = 0;
    const char *given = wh_cli_environment("COLUMNS");
    if (a->width) return a->width < 1 << 20 ? (uint32_t)a->width : 1 << 20;
    if (!wh_terminal_is(STANDARD_OUTPUT)) return 0;
    return given && wh_text_to_uint(given, &n) && n > 0 && n < 10000 ? (uint32_t)n : TERMINAL_COLUMNS;
}

static void print_text(const struct args *a, const struct shown *s) {
    struct wh_sched_style style = {.color = wh_cli_color(STANDARD_OUTPUT), .columns = columns(a)};
    struct wh_text out = {0};
    print_head(s, &out);
    wh_sched_draw(&s->plan, &s->cost, &s->timing, s->unit, &style, &out);
    print_numbers(s, &out);
    print_ranks(s, &out);
    fputs(out.data, stdout);
    wh_text_fini(&out);
}

static enum wh_status write_svg(const struct args *a, const struct shown *s) {
    struct wh_text svg = {0};
    wh_sched_svg(&s->plan, &s->cost, &s->timing, s->unit, &svg);
    enum wh_status status = wh_file_write_all(a->svg, svg.data, svg.bytes);
    wh_text_fini(&svg);
    return status;
}

static void print_program(const struct shown *s) {
    struct wh_text out = {0};
    wh_sched_print(&s->plan, false, &out);
    fputs(out.data, stdout);
    wh_text_fini(&out);
}

static enum wh_status show(const struct args *a, const struct shown *s) {
    const struct wh_sched_shape *shape = &s->plan.shape;
    uint64_t blocks = (uint64_t)shape->ranks * shape->micro_batches * shape->chunks;
    if (blocks > SHOWN_BLOCKS_MAX)
        return WH_FAIL(WH_USAGE, "%" PRIu64 " blocks can't be shown; ranks * micro-batches * chunks up to %d can",
                       blocks, SHOWN_BLOCKS_MAX);
    if (a->svg) WH_TRY(write_svg(a, s));
    if (wh_cli_json())
        print_json(s);
    else if (a->program)
        print_program(s);
    else
        print_text(a, s);
    return WH_OK;
}

static void print_ops(void) {
    static const char *const effects[] = {"-", "take", "use", "free", "-"};
    json_t *list = json_array();
    if (!wh_cli_json()) fputs("mark  activation  gradient  meaning\n", stdout);
    for (int op = 0; op < WH_SCHED_OP_COUNT; op++) {
        const struct wh_sched_op_row *row = &wh_sched_ops[op];
        const char *act = effects[row->effects.act], *grad = effects[row->effects.grad];
        json_array_append_new(list, json_pack("{ssssssss}", "mark", row->mark, "activation_slot", act, "gradient_slot",
                                              grad, "meaning", row->meaning));
        if (!wh_cli_json()) printf("%-4s  %-10s  %-8s  %s\n", row->mark, act, grad, row->meaning);
    }
    json_t *o = wh_cli_json_new("explain.schedule.ops");
    json_object_set_new(o, "ops", list);
    if (wh_cli_json())
        wh_cli_json_print(o);
    else
        json_decref(o);
}

static enum wh_status explain(const struct args *a) {
    struct shown s = {0};
    if (a->ops) {
        print_ops();
        return WH_OK;
    }
    WH_TRY(prepare(a, &s));
    enum wh_status status = show(a, &s);
    wh_sched_timing_free(&s.timing);
    wh_sched_plan_free(&s.plan);
    return status;
}

bool wh_explain_is_schedule(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "schedule") == 0) return true;
    return false;
}

int wh_explain_schedule(int argc, char **argv) {
    struct args args = {
        .p = NOT_GIVEN, .m = NOT_GIVEN, .v = NOT_GIVEN, .depth = WH_SCHED_DEPTH, .backward = 2, .weight = -1};
    int code;
    if (!wh_cli_begin("explain", "Shows a pipeline schedule: who computes what when, what is kept, what is idle.",
                      options, argc, argv, &args, &args.common, &code))
        return code;
    if (strcmp(args.what, "schedule") != 0)
        return wh_cli_end(WH_FAIL(WH_USAGE, "'%s' beside 'schedule' isn't understood", args.what));
    return wh_cli_end(explain(&args));
}
