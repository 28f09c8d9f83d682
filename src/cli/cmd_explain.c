#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/explain_schedule.h"
#include "coll/draw.h"
#include "coll/links.h"
#include "run/links_file.h"

enum { STANDARD_OUTPUT = 1, LINES_MAX = 160 };

struct args {
    struct wh_cli_common common;
    const char *operation, *algorithm, *dtype, *links;
    uint64_t ranks, count, root, chunks, ranks_per_machine, rank;
    double latency_us, gigabytes_per_s, add_gigabytes_per_s;
    bool in_place, fast, plain, all;
};

static const struct wh_option options[] = {
    {"COLLECTIVE", 0, WH_OPTION_REQUIRED, offsetof(struct args, operation), NULL,
     "allreduce, reduce-scatter, all-gather, broadcast, reduce, all-to-all or barrier; or zero (memory by ZeRO stage) "
     "or "
     "schedule (pipelines): see their --help"},
    {"ranks", 'n', WH_OPTION_UINT, offsetof(struct args, ranks), "N", "how many ranks (4)"},
    {"algorithm", 'a', WH_OPTION_TEXT, offsetof(struct args, algorithm), "NAME",
     "ring, direct, ...; without it, all are compared and the best is shown"},
    {"count", 'c', WH_OPTION_UINT, offsetof(struct args, count), "N", "elements of the vector (1024)"},
    {"dtype", 0, WH_OPTION_TEXT, offsetof(struct args, dtype), "NAME", "format of the elements (f32)"},
    {"root", 0, WH_OPTION_UINT, offsetof(struct args, root), "R", "broadcast, reduce: the root (0)"},
    {"chunks", 0, WH_OPTION_UINT, offsetof(struct args, chunks), "K", "pieces of pipelined algorithms (1)"},
    {"ranks-per-machine", 0, WH_OPTION_UINT, offsetof(struct args, ranks_per_machine), "P",
     "ranks that share a machine (all of them)"},
    {"in-place", 0, WH_OPTION_FLAG, offsetof(struct args, in_place), NULL, "input and output are one buffer"},
    {"fast", 0, WH_OPTION_FLAG, offsetof(struct args, fast), NULL,
     "compare also those whose order of summation isn't the contract's"},
    {"links", 0, WH_OPTION_TEXT, offsetof(struct args, links), "FILE",
     "predict with what `wanhe tune` measured, instead of typical figures"},
    {"latency-us", 0, WH_OPTION_REAL, offsetof(struct args, latency_us), "T", "latency of a message, every link"},
    {"gb-per-s", 0, WH_OPTION_REAL, offsetof(struct args, gigabytes_per_s), "R",
     "rate of a rank's port, every link, 1e9 bytes/s"},
    {"add-gb-per-s", 0, WH_OPTION_REAL, offsetof(struct args, add_gigabytes_per_s), "R", "rate of adding and copying"},
    {"rank", 'r', WH_OPTION_UINT, offsetof(struct args, rank), "R", "show only what concerns this rank"},
    {"all", 0, WH_OPTION_FLAG, offsetof(struct args, all), NULL, "show every step, however many"},
    {"plain", 0, WH_OPTION_FLAG, offsetof(struct args, plain), NULL, "ASCII, no colours"},
    WH_CLI_COMMON(struct args),
    {0}};

static const char *const kind_names[] = {"send", "recv", "copy", "add"};
static const char *const buffer_names[] = {"in", "out", "landing", "partial"};

static bool dtype_from_name(const char *name, enum wh_dtype *out) {
    for (int t = 0; t < WH_DTYPE_COUNT; t++)
        if (strcasecmp(name, wh_dtype_name((enum wh_dtype)t)) == 0) {
            *out = (enum wh_dtype)t;
            return true;
        }
    return false;
}

static enum wh_status unknown_algorithm(const char *name) {
    struct wh_text names = {0};
    for (int i = 0; wh_coll_algorithms[i]; i++) wh_text_add(&names, "%s%s", i ? ", " : "", wh_coll_algorithms[i]->name);
    enum wh_status status = WH_FAIL(WH_USAGE, "unknown algorithm '%s'; there are %s", name, names.data);
    wh_text_fini(&names);
    return status;
}

static enum wh_status read_request(const struct args *a, struct wh_coll_request *q) {
    *q = (struct wh_coll_request){.count = a->count, .in_place = a->in_place};
    if (!wh_coll_op_from_name(a->operation, &q->op))
        return WH_FAIL(WH_USAGE, "unknown collective '%s'; %s", a->operation, options[0].help);
    if (!dtype_from_name(a->dtype, &q->dtype))
        return WH_FAIL(WH_USAGE, "--dtype %s: f32, bf16, f16, f64, i32, i64, u16 or u8", a->dtype);
    if (a->ranks < 1 || a->ranks > 4096) return WH_FAIL(WH_USAGE, "--ranks %" PRIu64 ": 1 to 4096", a->ranks);
    if (a->rank != UINT64_MAX && a->rank >= a->ranks)
        return WH_FAIL(WH_USAGE, "--rank %" PRIu64 ": ranks are numbered 0 to %" PRIu64, a->rank, a->ranks - 1);
    if (a->root >= a->ranks)
        return WH_FAIL(WH_USAGE, "--root %" PRIu64 ": ranks are numbered 0 to %" PRIu64, a->root, a->ranks - 1);
    if (a->chunks < 1 || a->chunks > 65536) return WH_FAIL(WH_USAGE, "--chunks %" PRIu64 ": 1 to 65536", a->chunks);
    if (a->ranks_per_machine > a->ranks)
        return WH_FAIL(WH_USAGE, "--ranks-per-machine %" PRIu64 ": there are %" PRIu64 " ranks", a->ranks_per_machine,
                       a->ranks);
    q->ranks = (uint32_t)a->ranks;
    q->root = (uint32_t)a->root;
    q->chunks = (uint32_t)a->chunks;
    q->ranks_per_machine = (uint32_t)a->ranks_per_machine;
    return WH_OK;
}

/* `links`: filled if there is a file of them. */
static enum wh_status read_topology(const struct args *a, const struct wh_coll_request *q, struct wh_coll_links *links,
                                    struct wh_coll_topology *t) {
    *t = wh_coll_topology_typical((uint32_t)a->ranks_per_machine);
    if (a->links) {
        if (a->ranks_per_machine)
            return WH_FAIL(WH_USAGE, "--links and --ranks-per-machine exclude each other: links are of one machine");
        WH_TRY(wh_links_load(a->links, links));
        *t = wh_coll_links_topology(links, q->count * wh_dtype_bytes(q->dtype), WH_COLL_SHARED);
    }
    if (a->latency_us < 0) return WH_FAIL(WH_USAGE, "--latency-us %g: must not be negative", a->latency_us);
    if (a->gigabytes_per_s <= 0 || a->add_gigabytes_per_s <= 0)
        return WH_FAIL(WH_USAGE, "--gb-per-s and --add-gb-per-s must be above 0");
    if (a->latency_us < 1e300) {
        t->memory.latency_s = t->network.latency_s = a->latency_us * 1e-6;
        t->memory.message_s = t->network.message_s = 0;
    }
    if (a->gigabytes_per_s < 1e300) t->memory.bytes_per_s = t->network.bytes_per_s = a->gigabytes_per_s * 1e9;
    if (a->gigabytes_per_s < 1e300) t->memory.placed_bytes_per_s = 0;
    if (a->add_gigabytes_per_s < 1e300) t->add_s_per_byte = t->copy_s_per_byte = 1 / (a->add_gigabytes_per_s * 1e9);
    return WH_OK;
}

static json_t *place_json(struct wh_coll_place p) {
    return json_pack("{sssI}", "buffer", buffer_names[p.buffer], "first", (json_int_t)p.first);
}

static json_t *step_json(const struct wh_coll_step *s) {
    json_t *o =
        json_pack("{sssisI}", "kind", kind_names[s->kind], "round", (int)s->round, "count", (json_int_t)s->count);
    if (s->kind <= WH_COLL_RECV) json_object_set_new(o, "peer", json_integer(s->peer));
    if (s->kind != WH_COLL_SEND) json_object_set_new(o, "out", place_json(s->out));
    if (s->kind != WH_COLL_RECV) json_object_set_new(o, "left", place_json(s->left));
    if (s->kind == WH_COLL_ADD) json_object_set_new(o, "right", place_json(s->right));
    return o;
}

static json_t *ranks_json(const struct wh_coll_plan *p) {
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < p->request.ranks; r++) {
        const struct wh_coll_list *l = &p->rank[r];
        json_t *steps = json_array();
        for (size_t i = 0; i < l->step_count; i++) json_array_append_new(steps, step_json(&l->steps[i]));
        json_array_append_new(ranks,
                              json_pack("{sisIsIso}", "rank", (int)r, "landing_elems", (json_int_t)l->landing_elems,
                                        "partial_elems", (json_int_t)l->partial_elems, "steps", steps));
    }
    return ranks;
}

static void request_json(const struct wh_coll_request *q, json_t *o) {
    json_object_set_new(o, "operation", json_string(wh_coll_op_name(q->op)));
    json_object_set_new(o, "ranks", json_integer(q->ranks));
    json_object_set_new(o, "root", json_integer(q->root));
    json_object_set_new(o, "count", json_integer((json_int_t)q->count));
    json_object_set_new(o, "dtype", json_string(wh_dtype_name(q->dtype)));
    json_object_set_new(o, "chunks", json_integer(q->chunks ? q->chunks : 1));
    json_object_set_new(o, "ranks_per_machine", json_integer(q->ranks_per_machine));
    json_object_set_new(o, "in_place", json_boolean(q->in_place));
}

static json_t *ranking_json(const struct wh_coll_ranking *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++) {
        const struct wh_coll_candidate *c = &r->items[i];
        json_t *o =
            json_pack("{sssbss}", "algorithm", c->algorithm->name, "usable", c->usable, "reason", c->reason.data);
        if (c->request.ranks) {
            json_object_set_new(o, "predicted_s", json_real(c->seconds));
            json_object_set_new(o, "chunks", json_integer(c->request.chunks));
            json_object_set_new(o, "keeps_contract", json_boolean(c->canonical));
        }
        json_array_append_new(list, o);
    }
    return list;
}

static void print_json(const struct wh_coll_plan *p, const struct wh_coll_findings *f,
                       const struct wh_coll_price *price, const struct wh_coll_ranking *ranking) {
    json_t *o = wh_cli_json_new("explain"), *round_s = json_array();
    for (uint32_t k = 0; k < p->rounds; k++) json_array_append_new(round_s, json_real(price->round_s[k]));
    request_json(&p->request, o);
    json_object_set_new(o, "algorithm", json_string(p->algorithm->name));
    json_object_set_new(o, "keeps_contract", json_boolean(f->canonical));
    json_object_set_new(o, "equal_on_ranks", json_boolean(f->same_on_ranks));
    json_object_set_new(o, "orders", json_integer(f->orders));
    json_object_set_new(o, "order_text", json_string(f->order_text.data ? f->order_text.data : ""));
    json_object_set_new(o, "messages", json_integer((json_int_t)f->messages));
    json_object_set_new(o, "bytes", json_integer((json_int_t)f->bytes));
    json_object_set_new(o, "bytes_max", json_integer((json_int_t)f->bytes_max));
    json_object_set_new(o, "predicted_s", json_real(price->seconds));
    json_object_set_new(o, "round_s", round_s);
    if (ranking->count) json_object_set_new(o, "candidates", ranking_json(ranking));
    json_object_set_new(o, "lists", ranks_json(p));
    wh_cli_json_print(o);
}

static void print_ranking(const struct wh_coll_ranking *r, struct wh_text *out) {
    for (size_t i = 0; i < r->count; i++) {
        const struct wh_coll_candidate *c = &r->items[i];
        struct wh_text time = {0};
        if (c->request.ranks)
            wh_coll_draw_seconds(c->seconds, &time);
        else
            wh_text_add(&time, "-");
        wh_text_add(out, "%c %-16s %9s  %s\n", i == 0 ? '*' : ' ', c->algorithm->name, time.data, c->reason.data);
        wh_text_fini(&time);
    }
    wh_text_add(out, "\n");
}

static void print_link(const char *name, const struct wh_coll_link *link, struct wh_text *out) {
    wh_text_add(out, "%s ", name);
    wh_coll_draw_seconds(link->latency_s, out);
    wh_text_add(out, " + ");
    wh_coll_draw_seconds(link->message_s, out);
    wh_text_add(out, " a message, ");
    wh_coll_draw_bytes(link->bytes_per_s, out);
    wh_text_add(out, "/s");
    if (link->placed_bytes_per_s == 0) return;
    wh_text_add(out, ", read in place ");
    wh_coll_draw_bytes(link->placed_bytes_per_s, out);
    wh_text_add(out, "/s");
}

/* What the prediction is made of. */
static void print_links(const struct wh_coll_topology *t, const struct wh_coll_links *links, struct wh_text *out) {
    if (links->level_count) wh_text_add(out, "measured with %u ranks on %s\n", links->ranks, links->machine);
    print_link(links->level_count ? "measured: memory" : "assumed: memory", &t->memory, out);
    if (t->ranks_per_machine) print_link("; network", &t->network, out);
    wh_text_add(out, "; adding ");
    wh_coll_draw_bytes(1 / t->add_s_per_byte, out);
    wh_text_add(out, "/s\n");
}

/* Beside the step lists: how comm/ runs it by itself on one machine. */
static void print_ways(const struct wh_coll_request *q, const struct wh_coll_links *links, struct wh_text *out) {
    if (!links->level_count) return;
    for (int w = 0; w < WH_COLL_WAY_COUNT; w++) {
        wh_text_add(out, "%s%s ", w ? "; " : "shared memory, without messages, in the contract's order: ",
                    wh_coll_way_name((enum wh_coll_way)w));
        wh_coll_draw_seconds(wh_coll_way_s(links, q, (enum wh_coll_way)w), out);
    }
    wh_text_add(out, "\n");
}

/* Shows the plan, behind the comparison that led to it, if there was one. */
static enum wh_status show(const struct args *a, const struct wh_coll_request *q,
                           const struct wh_coll_algorithm *chosen, const struct wh_coll_topology *t,
                           const struct wh_coll_links *links, const struct wh_coll_ranking *ranking) {
    struct wh_coll_style style = {.plain = a->plain,
                                  .color = !a->plain && wh_cli_color(STANDARD_OUTPUT),
                                  .one_rank = a->rank != UINT64_MAX,
                                  .rank = (uint32_t)a->rank,
                                  .lines_max = a->all ? 0 : LINES_MAX};
    struct wh_coll_plan p;
    struct wh_coll_findings f;
    struct wh_coll_price price;
    struct wh_text text = {0};
    WH_TRY(wh_coll_plan_new(q, chosen, &p));
    if (ranking->count) print_ranking(ranking, &text);
    enum wh_status status = wh_coll_draw(&p, t, &style, &f, &price, &text);
    if (status == WH_OK) {
        print_links(t, links, &text);
        print_ways(q, links, &text);
        if (wh_cli_json())
            print_json(&p, &f, &price, ranking);
        else
            fputs(text.data, stdout);
        wh_coll_findings_free(&f);
        wh_coll_price_free(&price);
    }
    wh_text_fini(&text);
    wh_coll_plan_free(&p);
    return status;
}

static enum wh_status explain(const struct args *a) {
    const struct wh_coll_algorithm *chosen = a->algorithm ? wh_coll_algorithm(a->algorithm) : NULL;
    struct wh_coll_request q;
    struct wh_coll_topology t;
    struct wh_coll_links links = {0};
    struct wh_coll_ranking ranking = {0};
    const struct wh_coll_limits limits = {a->fast, UINT64_MAX};
    WH_TRY(read_request(a, &q));
    WH_TRY(read_topology(a, &q, &links, &t));
    if (a->algorithm && !chosen) return unknown_algorithm(a->algorithm);
    if (chosen) return show(a, &q, chosen, &t, &links, &ranking);
    WH_TRY(wh_coll_select(&q, &t, &limits, &ranking));
    enum wh_status status = show(a, &ranking.items[0].request, ranking.items[0].algorithm, &t, &links, &ranking);
    wh_coll_ranking_free(&ranking);
    return status;
}

int wh_cmd_explain(int argc, char **argv) {
    struct args args = {.ranks = 4,
                        .count = 1024,
                        .dtype = "f32",
                        .chunks = 1,
                        .rank = UINT64_MAX,
                        .latency_us = 1e300,
                        .gigabytes_per_s = 1e300,
                        .add_gigabytes_per_s = 1e300};
    int code;
    if (argc > 1 && strcmp(argv[1], "zero") == 0) return wh_cmd_explain_zero(argc - 1, argv + 1);
    if (wh_explain_is_schedule(argc, argv)) return wh_explain_schedule(argc, argv);
    if (!wh_cli_begin("explain", "Shows how a collective operation runs, step by step, and what it costs.", options,
                      argc, argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(explain(&args));
}
