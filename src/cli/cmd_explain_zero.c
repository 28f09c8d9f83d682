/* wanhe explain zero: the memory of the model states by ZeRO stage. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "plan/states.h"

enum { STAGES = 4 };

struct args {
    struct wh_cli_common common;
    const char *dtype;
    double params;
    uint64_t ranks;
    bool fp32_gradients;
};

static const struct wh_option options[] = {
    {"params", 'p', WH_OPTION_REAL, offsetof(struct args, params), "P", "parameters of the model (7e9)"},
    {"ranks", 'n', WH_OPTION_UINT, offsetof(struct args, ranks), "N", "data-parallel ranks (8)"},
    {"dtype", 0, WH_OPTION_TEXT, offsetof(struct args, dtype), "NAME",
     "model.dtype, of weights and gradients: bfloat16 (default) or float32"},
    {"fp32-gradients", 0, WH_OPTION_FLAG, offsetof(struct args, fp32_gradients), NULL,
     "as optimizer.accumulate_grad_in_fp32: true"},
    WH_CLI_COMMON(struct args),
    {0}};

struct table {
    uint64_t params, ranks, share; /* share: of the longest rank */
    enum wh_dtype weights, gradients;
    struct wh_state_bytes stage[STAGES];
};

static uint64_t total(const struct wh_state_bytes *b) { return b->weights + b->gradients + b->optimizer; }

static enum wh_status make_table(const struct args *a, struct table *t) {
    const bool fp32 = strcmp(a->dtype, "float32") == 0;
    if (!fp32 && strcmp(a->dtype, "bfloat16") != 0)
        return WH_FAIL(WH_USAGE, "--dtype %s: bfloat16 or float32", a->dtype);
    if (!(a->params >= 1 && a->params <= 1e15) || a->params != (double)(uint64_t)a->params)
        return WH_FAIL(WH_USAGE, "--params %g: a whole number from 1 to 1e15, such as 7e9", a->params);
    WH_TRY(wh_cli_range("--ranks", a->ranks, 1, 1 << 20));
    t->params = (uint64_t)a->params, t->ranks = a->ranks, t->share = (t->params + t->ranks - 1) / t->ranks;
    t->weights = fp32 ? WH_F32 : WH_BF16;
    t->gradients = fp32 || a->fp32_gradients ? WH_F32 : WH_BF16;
    for (uint32_t s = 0; s < STAGES; s++)
        t->stage[s] = wh_state_bytes(t->params, t->share, s, t->weights, t->gradients);
    return WH_OK;
}

static void print_text(const struct table *t) {
    static const char *const shared_out[STAGES] = {"nothing", "optimizer states", "and gradients", "and weights"};
    const uint64_t bytes[3] = {wh_dtype_bytes(t->weights), wh_dtype_bytes(t->gradients), t->weights == WH_F32 ? 8 : 12};
    printf("%" PRIu64 " parameters on %" PRIu64 " ranks, at most %" PRIu64
           " a rank; bytes a parameter: weights %" PRIu64 ", gradients %" PRIu64 ", optimizer %" PRIu64
           " (two moments%s)\n\n",
           t->params, t->ranks, t->share, bytes[0], bytes[1], bytes[2], t->weights == WH_F32 ? "" : ", fp32 masters");
    printf("stage  shared out           weights   gradients   optimizer   GB a rank  formula\n");
    for (uint32_t s = 0; s < STAGES; s++) {
        const struct wh_state_bytes *b = &t->stage[s];
        uint64_t whole = 0, part = 0;
        for (uint32_t k = 0; k < 3; k++)
            *(s + k >= 3 ? &part : &whole) += bytes[k]; /* the optimizer's first, from stage 1 */
        printf("%5u  %-16s %11.3f %11.3f %11.3f %11.3f  ", s, shared_out[s], (double)b->weights * 1e-9,
               (double)b->gradients * 1e-9, (double)b->optimizer * 1e-9, (double)total(b) * 1e-9);
        if (whole) printf("%" PRIu64 " P%s", whole, part ? " + " : "\n");
        if (part) printf("%" PRIu64 " P / N\n", part);
    }
    printf(
        "\nActivations, logits, buffers and sums under way come on top; they don't shrink with ranks "
        "(docs/zero.md).\n");
}

static void print_json(const struct table *t) {
    json_t *o = wh_cli_json_new("zero"), *stages = json_array();
    json_object_set_new(o, "parameters", json_integer((json_int_t)t->params));
    json_object_set_new(o, "ranks", json_integer((json_int_t)t->ranks));
    json_object_set_new(o, "parameters_per_rank", json_integer((json_int_t)t->share));
    json_object_set_new(o, "weights", json_string(wh_dtype_name(t->weights)));
    json_object_set_new(o, "gradients", json_string(wh_dtype_name(t->gradients)));
    for (uint32_t s = 0; s < STAGES; s++)
        json_array_append_new(
            stages, json_pack("{sIsIsIsIsI}", "stage", (json_int_t)s, "weight_bytes", (json_int_t)t->stage[s].weights,
                              "gradient_bytes", (json_int_t)t->stage[s].gradients, "optimizer_bytes",
                              (json_int_t)t->stage[s].optimizer, "total_bytes", (json_int_t)total(&t->stage[s])));
    json_object_set_new(o, "stages", stages);
    wh_cli_json_print(o);
}

static enum wh_status explain(const struct args *a) {
    struct table t = {0};
    WH_TRY(make_table(a, &t));
    if (wh_cli_json())
        print_json(&t);
    else
        print_text(&t);
    return WH_OK;
}

int wh_cmd_explain_zero(int argc, char **argv) {
    struct args args = {.params = 7e9, .ranks = 8, .dtype = "bfloat16"};
    int code;
    if (!wh_cli_begin("explain zero",
                      "Shows what weights, gradients and optimizer states take of a data-parallel rank.", options, argc,
                      argv, &args, &args.common, &code))
        return code;
    return wh_cli_end(explain(&args));
}
