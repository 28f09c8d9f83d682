#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/run_folder.h"
#include "data/tokenizer.h"
#include "run/generate.h"
#include "run/model_open.h"

struct args {
    struct wh_cli_common common;
    const char *model, *prompt, *tokenizer;
    uint64_t tokens, seed, step, threads;
    double temperature, top_p;
};

static const struct wh_option options[] = {
    {"MODEL", 0, WH_OPTION_REQUIRED, offsetof(struct args, model), NULL, "run folder or checkpoint"},
    {"prompt", 'p', WH_OPTION_TEXT, offsetof(struct args, prompt), "TEXT", "text to continue (default: a new line)"},
    {"tokens", 'n', WH_OPTION_UINT, offsetof(struct args, tokens), "N", "tokens to add (default 200)"},
    {"temperature", 0, WH_OPTION_REAL, offsetof(struct args, temperature), "X", "0: the most likely (default 0.8)"},
    {"top-p", 0, WH_OPTION_REAL, offsetof(struct args, top_p), "X", "choose among the likeliest that reach X (0.95)"},
    {"seed", 0, WH_OPTION_UINT, offsetof(struct args, seed), "N", "of the choice (default 0)"},
    {"step", 0, WH_OPTION_UINT, offsetof(struct args, step), "N", "checkpoint of this step (default: the newest)"},
    {"tokenizer", 0, WH_OPTION_TEXT, offsetof(struct args, tokenizer), "WHAT",
     "bytes, or a tokenizer file (default: the model's own)"},
    {"threads", 't', WH_OPTION_UINT, offsetof(struct args, threads), "N", "default: all processors"},
    WH_CLI_COMMON(struct args),
    {0}};

static void print_json(const struct args *a, const struct wh_open_model *m, size_t prompt_tokens, size_t tokens,
                       const char *text) {
    json_t *o = wh_cli_json_new("generate"), *s = json_string(text);
    json_object_set_new(o, "checkpoint", json_string(m->folder));
    json_t *prompt = json_string(a->prompt); /* NULL: not UTF-8, which the tokenizer `bytes` takes */
    json_object_set_new(o, "prompt", prompt ? prompt : json_null());
    json_object_set_new(o, "prompt_tokens", json_integer((json_int_t)prompt_tokens));
    json_object_set_new(o, "tokens", json_integer((json_int_t)tokens));
    json_object_set_new(o, "text", s ? s : json_null());
    wh_cli_json_print(o);
}

static enum wh_status write_text(const struct args *a, struct wh_open_model *m, struct wh_tokenizer *tokenizer) {
    struct wh_token_list prompt = {0}, added = {0};
    struct wh_text text = {0};
    uint32_t end;
    const struct wh_generate how = {
        .sampling = {a->temperature, a->top_p, a->seed},
        .tokens = (uint32_t)(a->tokens < UINT32_MAX ? a->tokens : UINT32_MAX),
        .stop_token = wh_tokenizer_end_of_text(tokenizer, &end) ? (int64_t)end : -1,
    };
    enum wh_status status;
    WH_TRY_GOTO(wh_tokenizer_encode(tokenizer, a->prompt, strlen(a->prompt), WH_ADDED_MATCH, &prompt), free_lists);
    if (prompt.count == 0) WH_TRY_GOTO(WH_FAIL(WH_USAGE, "the prompt is empty"), free_lists);
    WH_TRY_GOTO(wh_generate_run(&m->net, &how, prompt.ids, prompt.count, &added), free_lists);
    WH_TRY_GOTO(wh_tokenizer_decode_text(tokenizer, added.ids, added.count, false, &text), free_lists);
    if (wh_cli_json())
        print_json(a, m, prompt.count, added.count, text.data ? text.data : "");
    else
        printf("%s%s\n", a->prompt, text.data ? text.data : "");
free_lists:
    wh_text_fini(&text);
    wh_token_list_fini(&prompt);
    wh_token_list_fini(&added);
    return status;
}

static enum wh_status generate(struct args *a) {
    struct wh_open_model m;
    struct wh_tokenizer *tokenizer;
    struct wh_text remarks = {0};
    WH_TRY(wh_cli_range("--threads", a->threads, 0, 4096));
    const struct wh_open_how how = {.step = a->step, .micro_batch = 1, .threads = (int)a->threads};
    enum wh_status status = wh_open_model(a->model, &how, &m, &remarks);
    wh_cli_remarks(&remarks);
    if (status != WH_OK) return status;
    status = wh_run_folder_tokenizer(a->model, a->tokenizer, m.info.model.V, &tokenizer);
    if (status == WH_OK) {
        status = write_text(a, &m, tokenizer);
        wh_tokenizer_close(tokenizer);
    }
    wh_open_model_close(&m);
    return status;
}

int wh_cmd_generate(int argc, char **argv) {
    struct args args = {.prompt = "\n", .tokens = 200, .temperature = 0.8, .top_p = 0.95, .step = WH_CKPT_LATEST};
    int code;
    if (!wh_cli_begin("generate", "Continues a text with a trained model.", options, argc, argv, &args, &args.common,
                      &code))
        return code;
    return wh_cli_end(generate(&args));
}
