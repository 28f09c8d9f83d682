#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "plan/layout.h"
#include "run/session.h"

enum { RANKS_SHOWN = 64 };

struct args {
    struct wh_cli_common common;
    const char *config, *balance;
    struct wh_option_list sets;
    uint64_t ranks_per_machine, books;
    bool all;
};

static const struct wh_option options[] = {
    {"RUN.yaml", 0, WH_OPTION_REQUIRED, offsetof(struct args, config), NULL, "run configuration"},
    {"set", 's', WH_OPTION_LIST, offsetof(struct args, sets), "KEY=VALUE", "override one key; may be repeated"},
    {"ranks-per-machine", 0, WH_OPTION_UINT, offsetof(struct args, ranks_per_machine), "N",
     "consecutive ranks that share a machine; default: all"},
    {"balance", 0, WH_OPTION_TEXT, offsetof(struct args, balance), "WHAT",
     "what-if: share layers out by their number (layers; blocks: embedding and head count as one each)"},
    {"all", 0, WH_OPTION_FLAG, offsetof(struct args, all), NULL, "list every rank, however many"},
    {"books", 0, WH_OPTION_UINT, offsetof(struct args, books), "RANK",
     "also the books of a rank, as its run will predict them: what it holds, and moves in a step"},
    WH_CLI_COMMON(struct args),
    {0}};

static const enum wh_mesh_axis shown_axes[] = {WH_AXIS_TP, WH_AXIS_CP, WH_AXIS_DP, WH_AXIS_PP, WH_AXIS_DATA};
enum { SHOWN_AXES = sizeof shown_axes / sizeof *shown_axes };

static uint64_t total_bytes(const struct wh_layout_rank *r) {
    return r->weight_bytes + r->grad_bytes + r->optimizer_bytes;
}

static const char *stage_ends(const struct wh_layout *l, uint32_t stage) {
    const bool first = stage == 0, last = stage + 1 == wh_sched_stages(&l->shape);
    if (first && last) return "embedding, head";
    if (first) return l->tied_copy ? "embedding (a copy of the head)" : "embedding";
    return last ? "head" : "";
}

/* --- books --- */

struct books {
    struct wh_config config; /* as a run takes it: what isn't built is refused */
    struct wh_stage stage;
    struct wh_traffic traffic; /* a step without comparison */
    struct wh_session_bytes memory;
};

static enum wh_status count_books(struct books *b, uint64_t rank) {
    const uint32_t world = wh_config_ranks(&b->config);
    if (rank >= world) return WH_FAIL(WH_USAGE, "--books %llu: there are %u ranks", (unsigned long long)rank, world);
    WH_TRY(wh_stage_new(&b->config, (uint32_t)rank, &b->stage));
    enum wh_status status = wh_traffic_new(&b->stage, b->config.optimizer.bucket_bytes, &b->traffic);
    if (status == WH_OK) status = wh_session_predict_plan(&b->config, &b->traffic, &b->memory);
    if (status == WH_OK) wh_traffic_step(&b->traffic, false);
    return status;
}

static void books_free(struct books *b) {
    wh_traffic_free(&b->traffic);
    wh_stage_free(&b->stage);
    wh_config_free(&b->config);
}

static enum wh_status books_new(const struct args *a, struct books *out) {
    WH_TRY(wh_cli_config_load(a->config, &a->sets, &out->config));
    const enum wh_status status = count_books(out, a->books);
    if (status != WH_OK) books_free(out);
    return status;
}

static void print_books(const struct books *b) {
    printf("\nrank %u holds %36s\n", b->stage.rank, "bytes");
    for (int i = 0; i < WH_ROW_COUNT; i++)
        if (b->memory.row_bytes[i]) printf("%-24s %18zu\n", wh_row_name((enum wh_row)i), b->memory.row_bytes[i]);
    printf("%-24s %18zu\n", "memory.total", b->memory.total_bytes);
    if (b->stage.mesh.world == 1) return;
    printf("\nrank %u moves in a step %9s %18s\n", b->stage.rank, "calls", "sent bytes");
    for (int i = 0; i < WH_TRAFFIC_COUNT; i++)
        if (b->traffic.row[i].calls)
            printf("%-24s %8llu %18llu\n", wh_traffic_row_name(&b->traffic, (enum wh_traffic_row)i),
                   (unsigned long long)b->traffic.row[i].calls, (unsigned long long)b->traffic.row[i].sent_bytes);
}

static json_t *books_json(const struct books *b) {
    json_t *memory = json_object(), *step = json_array();
    for (int i = 0; i < WH_ROW_COUNT; i++)
        json_object_set_new(memory, wh_row_name((enum wh_row)i), json_integer((json_int_t)b->memory.row_bytes[i]));
    json_object_set_new(memory, "memory.total", json_integer((json_int_t)b->memory.total_bytes));
    for (int i = 0; i < WH_TRAFFIC_COUNT; i++)
        if (b->traffic.row[i].calls)
            json_array_append_new(
                step,
                json_pack("{sssIsI}", "row", wh_traffic_row_name(&b->traffic, (enum wh_traffic_row)i), "calls",
                          (json_int_t)b->traffic.row[i].calls, "sent_bytes", (json_int_t)b->traffic.row[i].sent_bytes));
    return json_pack("{sIsoso}", "rank", (json_int_t)b->stage.rank, "memory", memory, "step", step);
}

/* --- text --- */

static void print_groups(const struct wh_mesh *m) {
    printf("\ngroups   each of  groups  machines  the first, the last\n");
    for (int i = 0; i < SHOWN_AXES; i++) {
        const enum wh_mesh_axis axis = shown_axes[i];
        const uint32_t size = wh_mesh_group_size(m, axis), count = wh_mesh_group_count(m, axis);
        struct wh_text first = {0}, last = {0};
        if (size == 1) continue;
        wh_mesh_print_group(m, axis, 0, &first);
        wh_mesh_print_group(m, axis, count - 1, &last);
        printf("%-7s  %7u  %6u  %-8s  %s", wh_mesh_axis_name(axis), size, count,
               wh_mesh_group_crosses(m, axis, 0) ? "several" : "one", first.data);
        printf(count > 1 ? "   %s\n" : "\n", last.data);
        wh_text_fini(&first);
        wh_text_fini(&last);
    }
}

static void print_stages(const struct wh_layout *l) {
    printf("\nstage     pp  layers            ends\n");
    for (uint32_t s = 0; s < wh_sched_stages(&l->shape); s++) {
        char layers[48];
        snprintf(layers, sizeof layers, "%zu: %zu-%zu", l->layer_border[s + 1] - l->layer_border[s], l->layer_border[s],
                 l->layer_border[s + 1] - 1);
        printf("%5u  %5u  %-16s  %s\n", s, wh_sched_stage_rank(&l->shape, s), layers, stage_ends(l, s));
    }
}

static void print_range(int width, struct wh_range r, const char *empty) {
    char text[48];
    snprintf(text, sizeof text, "%zu-%zu", r.begin, r.end - 1);
    printf("  %*s", width, r.begin == r.end ? empty : text);
}

static void print_slices(const struct wh_layout *l) {
    if (l->mesh.degrees.tp == 1) return;
    printf("\ntp     heads  kv heads  feed-forward     vocabulary     positions\n");
    for (uint32_t t = 0; t < l->mesh.degrees.tp; t++) {
        const struct wh_layout_slices *s = &l->slices[t];
        printf("%2u", t);
        print_range(8, s->heads, "none");
        print_range(8, s->kv_heads, "none");
        print_range(12, s->channels, "none");
        print_range(13, s->tokens, "none");
        print_range(12, s->positions, "not known");
        printf("\n");
    }
}

/* What a run has to be told to be cut like this. */
static void print_layers_key(const struct wh_layout *l) {
    printf("\nfor a run: --set 'parallelism.pp_layers=[");
    for (uint32_t s = 0; s < wh_sched_stages(&l->shape); s++)
        printf("%s%zu", s ? ", " : "", l->layer_border[s + 1] - l->layer_border[s]);
    printf("]'\n");
}

static void print_ranks(const struct wh_layout *l, bool all) {
    const uint32_t world = l->mesh.world, shown = all || world <= RANKS_SHOWN ? world : RANKS_SHOWN;
    printf(
        "\n   rank  machine    pp    dp    cp    tp      parameters    weights  gradients  optimizer      total "
        "(MiB)\n");
    for (uint32_t r = 0; r < shown; r++) {
        const struct wh_mesh_place p = wh_mesh_place(&l->mesh, r);
        const struct wh_layout_rank *k = &l->rank[r];
        printf("%7u  %7u %5u %5u %5u %5u  %14llu %10.1f %10.1f %10.1f %10.1f\n", r, wh_mesh_machine(&l->mesh, r), p.pp,
               p.dp, p.cp, p.tp, (unsigned long long)k->params, (double)k->weight_bytes / 0x1p20,
               (double)k->grad_bytes / 0x1p20, (double)k->optimizer_bytes / 0x1p20, (double)total_bytes(k) / 0x1p20);
    }
    if (shown < world) printf("... and %u more ranks (--all, --json)\n", world - shown);
}

static void print_text(const struct wh_layout *l, bool all, bool what_if) {
    struct wh_text line = {0};
    wh_mesh_print(&l->mesh, &line);
    printf("%s, ZeRO %u\n", line.data, l->zero_stage);
    wh_text_fini(&line);
    print_groups(&l->mesh);
    print_stages(l);
    print_slices(l);
    if (what_if) print_layers_key(l);
    print_ranks(l, all);
}

/* --- JSON --- */

static json_t *groups_json(const struct wh_mesh *m, enum wh_mesh_axis axis) {
    json_t *groups = json_array();
    for (uint32_t g = 0; g < wh_mesh_group_count(m, axis); g++) {
        json_t *members = json_array();
        for (uint32_t k = 0; k < wh_mesh_group_size(m, axis); k++)
            json_array_append_new(members, json_integer(wh_mesh_group_member(m, axis, g, k)));
        json_array_append_new(groups, members);
    }
    return groups;
}

static json_t *stages_json(const struct wh_layout *l) {
    json_t *stages = json_array();
    const uint32_t count = wh_sched_stages(&l->shape);
    for (uint32_t s = 0; s < count; s++)
        json_array_append_new(stages, json_pack("{sIsIsIsbsb}", "pp", (json_int_t)wh_sched_stage_rank(&l->shape, s),
                                                "first_layer", (json_int_t)l->layer_border[s], "layers",
                                                (json_int_t)(l->layer_border[s + 1] - l->layer_border[s]), "embedding",
                                                s == 0, "head", s + 1 == count));
    return stages;
}

static void range_json(json_t *o, const char *first, const char *count, struct wh_range r) {
    json_object_set_new(o, first, json_integer((json_int_t)r.begin));
    json_object_set_new(o, count, json_integer((json_int_t)(r.end - r.begin)));
}

static json_t *slices_json(const struct wh_layout *l) {
    json_t *list = json_array();
    for (uint32_t t = 0; t < l->mesh.degrees.tp; t++) {
        const struct wh_layout_slices *s = &l->slices[t];
        json_t *o = json_pack("{sI}", "tp", (json_int_t)t);
        range_json(o, "first_head", "heads", s->heads);
        range_json(o, "first_kv_head", "kv_heads", s->kv_heads);
        range_json(o, "first_channel", "channels", s->channels);
        range_json(o, "first_token", "tokens", s->tokens);
        range_json(o, "first_position", "positions", s->positions);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *rank_json(const struct wh_layout *l, uint32_t rank) {
    const struct wh_mesh_place p = wh_mesh_place(&l->mesh, rank);
    const struct wh_layout_rank *k = &l->rank[rank];
    return json_pack("{sIsIsIsIsIsIsIsIsIsIsIsI}", "rank", (json_int_t)rank, "machine",
                     (json_int_t)wh_mesh_machine(&l->mesh, rank), "pp", (json_int_t)p.pp, "dp", (json_int_t)p.dp, "cp",
                     (json_int_t)p.cp, "tp", (json_int_t)p.tp, "parameters", (json_int_t)k->params, "line_elements",
                     (json_int_t)k->line_elems, "owned_elements", (json_int_t)k->owned_elems, "weight_bytes",
                     (json_int_t)k->weight_bytes, "gradient_bytes", (json_int_t)k->grad_bytes, "optimizer_bytes",
                     (json_int_t)k->optimizer_bytes);
}

static void print_json(const struct wh_layout *l, const struct books *books) {
    json_t *o = wh_cli_json_new("layout"), *groups = json_object(), *ranks = json_array();
    const struct wh_mesh_degrees *d = &l->mesh.degrees;
    json_object_set_new(o, "world", json_integer(l->mesh.world));
    json_object_set_new(o, "degrees",
                        json_pack("{sIsIsIsIsI}", "dp", (json_int_t)d->dp, "cp", (json_int_t)d->cp, "tp",
                                  (json_int_t)d->tp, "pp", (json_int_t)d->pp, "ep", (json_int_t)d->ep));
    json_object_set_new(o, "ranks_per_machine", json_integer(l->mesh.ranks_per_machine));
    json_object_set_new(o, "zero_stage", json_integer(l->zero_stage));
    for (int i = 0; i < SHOWN_AXES; i++)
        json_object_set_new(groups, wh_mesh_axis_name(shown_axes[i]), groups_json(&l->mesh, shown_axes[i]));
    json_object_set_new(o, "groups", groups);
    json_object_set_new(o, "stages", stages_json(l));
    json_object_set_new(o, "tensor_ranks", slices_json(l));
    for (uint32_t r = 0; r < l->mesh.world; r++) json_array_append_new(ranks, rank_json(l, r));
    json_object_set_new(o, "ranks", ranks);
    if (books) json_object_set_new(o, "books", books_json(books));
    wh_cli_json_print(o);
}

/* --- the command --- */

static enum wh_status balance_of(const char *word, enum wh_stages_balance *out) {
    static const char *const words[] = {"cost", "layers", "blocks"};
    *out = WH_BALANCE_COST;
    if (!word) return WH_OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum wh_stages_balance)i;
            return WH_OK;
        }
    return WH_FAIL(WH_USAGE, "--balance %s: cost (as a run does), layers or blocks", word);
}

static enum wh_status show(const struct args *a, const struct books *books) {
    struct wh_config c;
    struct wh_layout layout;
    struct wh_layout_options o = {.ranks_per_machine = (uint32_t)a->ranks_per_machine};
    WH_TRY(balance_of(a->balance, &o.balance));
    WH_TRY(wh_cli_config_load_plan(a->config, &a->sets, &c));
    const enum wh_status status = wh_layout_new(&c, &o, &layout);
    wh_config_free(&c);
    WH_TRY(status);
    if (wh_cli_json()) {
        print_json(&layout, books);
    } else {
        print_text(&layout, a->all, o.balance != WH_BALANCE_COST);
        if (books) print_books(books);
    }
    wh_layout_free(&layout);
    return WH_OK;
}

static enum wh_status run(const struct args *a) {
    static struct books books; /* the stage points into itself */
    if (a->ranks_per_machine > WH_MESH_WORLD_MAX)
        return WH_FAIL(WH_USAGE, "--ranks-per-machine: at most %d", WH_MESH_WORLD_MAX);
    if (a->books == UINT64_MAX) return show(a, NULL);
    WH_TRY(books_new(a, &books));
    const enum wh_status status = show(a, &books);
    books_free(&books);
    return status;
}

int wh_cmd_layout(int argc, char **argv) {
    struct args args = {.books = UINT64_MAX};
    int code;
    if (!wh_cli_begin("layout",
                      "Shows the ranks of a run configuration: places, groups, layers, slices, parameters, bytes.",
                      options, argc, argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(run(&args));
}
