#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "plan/layout.h"

enum { RANKS_SHOWN = 64 };

struct args {
    struct wh_cli_common common;
    const char *config, *balance;
    struct wh_option_list sets;
    uint64_t ranks_per_machine;
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

static void print_json(const struct wh_layout *l) {
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
    for (uint32_t r = 0; r < l->mesh.world; r++) json_array_append_new(ranks, rank_json(l, r));
    json_object_set_new(o, "ranks", ranks);
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

static enum wh_status run(const struct args *a) {
    struct wh_config c;
    struct wh_layout layout;
    struct wh_layout_options o = {.ranks_per_machine = (uint32_t)a->ranks_per_machine};
    if (a->ranks_per_machine > WH_MESH_WORLD_MAX)
        return WH_FAIL(WH_USAGE, "--ranks-per-machine: at most %d", WH_MESH_WORLD_MAX);
    WH_TRY(balance_of(a->balance, &o.balance));
    WH_TRY(wh_cli_config_load_plan(a->config, &a->sets, &c));
    const enum wh_status status = wh_layout_new(&c, &o, &layout);
    wh_config_free(&c);
    WH_TRY(status);
    if (wh_cli_json())
        print_json(&layout);
    else
        print_text(&layout, a->all, o.balance != WH_BALANCE_COST);
    wh_layout_free(&layout);
    return WH_OK;
}

int wh_cmd_layout(int argc, char **argv) {
    struct args args = {0};
    int code;
    if (!wh_cli_begin("layout", "Shows the ranks of a run configuration: places, groups, layers, parameters, bytes.",
                      options, argc, argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(run(&args));
}
