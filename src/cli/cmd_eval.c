#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/run_folder.h"
#include "run/model_open.h"
#include "run/session.h"

struct args {
    struct wh_cli_common common;
    const char *model, *tokenizer;
    struct wh_option_list data;
    uint64_t step, sequence_length, micro_batch, limit, threads;
};

static const struct wh_option options[] = {
    {"MODEL", 0, WH_OPTION_REQUIRED, offsetof(struct args, model), NULL, "run folder or checkpoint"},
    {"DATA", 0, WH_OPTION_REST, offsetof(struct args, data), NULL,
     "token or text files (default: the run's validation data)"},
    {"step", 0, WH_OPTION_UINT, offsetof(struct args, step), "N", "checkpoint of this step (default: the newest)"},
    {"sequence-length", 0, WH_OPTION_UINT, offsetof(struct args, sequence_length), "T",
     "positions per sequence (default: the run's, else the model's longest)"},
    {"micro-batch", 0, WH_OPTION_UINT, offsetof(struct args, micro_batch), "N", "sequences at once (default 4)"},
    {"limit", 0, WH_OPTION_UINT, offsetof(struct args, limit), "N", "sequences at most (default: all)"},
    {"tokenizer", 0, WH_OPTION_TEXT, offsetof(struct args, tokenizer), "WHAT",
     "bytes, or a tokenizer file, for text (default: the model's own)"},
    {"threads", 't', WH_OPTION_UINT, offsetof(struct args, threads), "N", "default: all processors"},
    WH_CLI_COMMON(struct args),
    {0}};

struct inputs {
    const char *const *paths;
    size_t count;
    const struct wh_config *config; /* of the run; NULL: not known, plain text is bytes */
    uint32_t T, end_of_text;
    bool split_documents;
};

static bool is_text(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".jsonl") == 0);
}

/* As the run read its data; else token files by themselves, and text through the model's tokenizer. */
static enum wh_status open_tokens(const struct args *a, const struct wh_open_model *m, const struct inputs *in,
                                  struct wh_tokens **out) {
    const uint32_t V = m->info.model.V;
    struct wh_tokenizer *tokenizer;
    uint32_t end;
    bool text = false;
    if (in->config && !a->tokenizer) return wh_session_open_tokens(in->config, in->paths, in->count, out);
    for (size_t i = 0; i < in->count; i++) text = text || is_text(in->paths[i]);
    if (!text) return wh_tokens_open(in->paths, in->count, WH_TOKENS_AUTO, V, out);
    WH_TRY(wh_run_folder_tokenizer(a->model, a->tokenizer, V, &tokenizer));
    const int64_t end_of_text = wh_tokenizer_end_of_text(tokenizer, &end) ? (int64_t)end : -1;
    enum wh_status status = wh_tokens_open_text(in->paths, in->count, WH_TOKENS_AUTO, V, tokenizer, end_of_text, out);
    wh_tokenizer_close(tokenizer);
    return status;
}

static enum wh_status measure(const struct args *a, struct wh_open_model *m, const struct inputs *in,
                              struct wh_evaluation *out) {
    struct wh_tokens *tokens;
    struct wh_sampler sampler;
    const uint32_t T = m->net.shape.T;
    const size_t n = (size_t)m->net.shape.micro_batch * T;
    WH_TRY(open_tokens(a, m, in, &tokens));
    uint32_t *ids = malloc(n * sizeof *ids), *starts = in->split_documents ? malloc(n * sizeof *starts) : NULL;
    int32_t *labels = malloc(n * sizeof *labels);
    const struct wh_batch data = {tokens, &sampler, in->end_of_text, in->split_documents};
    enum wh_status status = wh_sampler_init(wh_tokens_count(tokens), T, 1, 0, false, &sampler);
    if (status == WH_OK && (!ids || !labels || (in->split_documents && !starts)))
        status = WH_FAIL(WH_NOMEM, "no memory for %zu tokens", n);
    if (status == WH_OK) status = wh_session_evaluate(&m->net, NULL, &data, a->limit, ids, labels, starts, out);
    free(ids), free(labels), free(starts);
    wh_tokens_close(tokens);
    return status;
}

static void report(const struct wh_open_model *m, const struct wh_evaluation *e) {
    if (!wh_cli_json()) {
        printf("loss %.6f nats per token over %llu tokens in %llu sequences of %u (%s)\n", e->loss,
               (unsigned long long)e->labels, (unsigned long long)e->sequences, m->net.shape.T, m->folder);
        return;
    }
    char hex[40];
    snprintf(hex, sizeof hex, "%a", e->loss);
    json_t *o = wh_cli_json_new("eval");
    json_object_set_new(o, "checkpoint", json_string(m->folder));
    json_object_set_new(o, "loss", json_real(e->loss));
    json_object_set_new(o, "loss_hex", json_string(hex));
    json_object_set_new(o, "tokens", json_integer((json_int_t)e->labels));
    json_object_set_new(o, "sequences", json_integer((json_int_t)e->sequences));
    json_object_set_new(o, "sequence_length", json_integer((json_int_t)m->net.shape.T));
    wh_cli_json_print(o);
}

static enum wh_status evaluate(const struct args *a, const struct inputs *in) {
    struct wh_open_model m;
    struct wh_evaluation e;
    struct wh_text remarks = {0};
    const struct wh_open_how how = {
        .step = a->step, .T = in->T, .micro_batch = (uint32_t)a->micro_batch, .threads = (int)a->threads};
    enum wh_status status = wh_open_model(a->model, &how, &m, &remarks);
    wh_cli_remarks(&remarks);
    if (status != WH_OK) return status;
    status = measure(a, &m, in, &e);
    if (status == WH_OK) report(&m, &e);
    wh_open_model_close(&m);
    return status;
}

static enum wh_status eval(struct args *a) {
    struct wh_config c = {0};
    struct inputs in = {.paths = a->data.item, .count = a->data.count};
    WH_TRY(wh_cli_range("--micro-batch", a->micro_batch, 1, 65536));
    WH_TRY(wh_cli_range("--sequence-length", a->sequence_length, 0, 1 << 24));
    WH_TRY(wh_cli_range("--threads", a->threads, 0, 4096));
    const bool known = wh_run_folder_config(a->model, &c);
    if (known) {
        if (in.count == 0) in.paths = c.data.valid.item, in.count = c.data.valid.count;
        in.config = &c;
        in.T = c.tokens.sequence_length;
        in.split_documents = c.data.document_mask;
    }
    if (a->sequence_length) in.T = (uint32_t)a->sequence_length;
    enum wh_status status = in.split_documents ? wh_session_end_of_text(&c, &in.end_of_text) : WH_OK;
    if (status == WH_OK)
        status = in.count ? evaluate(a, &in)
                          : WH_FAIL(WH_USAGE, "name the files to measure on: %s has no validation data of its own",
                                    a->model);
    if (known) wh_config_free(&c);
    return status;
}

int wh_cmd_eval(int argc, char **argv) {
    struct args args = {.step = WH_CKPT_LATEST, .micro_batch = 4};
    int code;
    if (!wh_cli_begin("eval", "Mean loss of a trained model over whole sequences of token files.", options, argc, argv,
                      &args, &args.common, &code))
        return code;
    return wh_cli_end(eval(&args));
}
