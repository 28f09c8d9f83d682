#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

struct args {
    struct wh_cli_common common;
    struct wh_option_list inputs;
    const char *tokenizer, *out, *format, *split;
    double valid;
    bool no_end, added_as_text;
};

static const struct wh_option options[] = {
    {"INPUT", 0, WH_OPTION_REST, offsetof(struct args, inputs), NULL,
     "text files; of *.jsonl each line's \"text\" is a document"},
    {"tokenizer", 't', WH_OPTION_TEXT, offsetof(struct args, tokenizer), "WHICH",
     "bytes, tokenizer.json, vocab.json, a folder with these, or train:N to learn one of N entries"},
    {"out", 'o', WH_OPTION_TEXT, offsetof(struct args, out), "PREFIX",
     "write PREFIX.bin (with --valid PREFIX_train.bin and PREFIX_val.bin)"},
    {"format", 0, WH_OPTION_TEXT, offsetof(struct args, format), "NAME", "llmc (default) or megatron (.bin and .idx)"},
    {"split-documents", 0, WH_OPTION_TEXT, offsetof(struct args, split), "HOW",
     "a text file is one document (file, default), or one per line, or one per block between blank lines (blank)"},
    {"valid", 0, WH_OPTION_REAL, offsetof(struct args, valid), "SHARE", "hold out the last share (0.05) of the text"},
    {"no-end-of-text", 0, WH_OPTION_FLAG, offsetof(struct args, no_end), NULL,
     "no end-of-text token behind each document"},
    {"added-as-text", 0, WH_OPTION_FLAG, offsetof(struct args, added_as_text), NULL,
     "take special tokens spelled in the text (<|endoftext|>) for plain text"},
    WH_CLI_COMMON(struct args),
    {0}};

/* One of the files to write: documents first .. first+count-1. */
struct part {
    const char *suffix;
    size_t first, count;
    uint64_t bytes, tokens;
    char *path; /* of the .bin; malloc'd */
};

struct work {
    const struct args *args;
    enum wh_document_split split;
    bool megatron, end, trained;
    uint32_t end_id, vocab;
    struct wh_corpus corpus;
    struct wh_tokenizer *tokenizer;
    char *tokenizer_path; /* malloc'd; NULL unless trained */
    struct part part[2];
    size_t parts;
};

/* The place of `value` in `names`, or a usage error that lists them. */
static enum wh_status choose(const char *option, const char *value, const char *const *names, int count, int *out) {
    for (*out = 0; *out < count; ++*out)
        if (strcmp(value, names[*out]) == 0) return WH_OK;
    struct wh_text list = {0};
    for (int i = 0; i < count; i++) wh_text_add(&list, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    enum wh_status status = WH_FAIL(WH_USAGE, "--%s %s: %s is expected", option, value, list.data);
    wh_text_fini(&list);
    return status;
}

static enum wh_status check_args(struct work *w) {
    static const char *const splits[] = {"file", "line", "blank"}, *const formats[] = {"llmc", "megatron"};
    const struct args *a = w->args;
    int split, format;
    if (!a->tokenizer || !a->out)
        return WH_FAIL(WH_USAGE, "--%s is missing", a->tokenizer ? "out PREFIX" : "tokenizer WHICH");
    if (a->inputs.count == 0) return WH_FAIL(WH_USAGE, "no input file is named");
    if (!(a->valid >= 0.0 && a->valid < 1.0)) return WH_FAIL(WH_USAGE, "--valid %g: 0 or more and below 1", a->valid);
    WH_TRY(choose("split-documents", a->split, splits, 3, &split));
    WH_TRY(choose("format", a->format, formats, 2, &format));
    w->split = (enum wh_document_split)split;
    w->megatron = format == 1;
    return WH_OK;
}

static enum wh_status read_inputs(struct work *w) {
    const struct args *a = w->args;
    for (size_t i = 0; i < a->inputs.count; i++) WH_TRY(wh_corpus_add(&w->corpus, a->inputs.item[i], w->split));
    if (w->corpus.count == 0) return WH_FAIL(WH_DATA, "the input files hold no text");
    size_t held_out = 0;
    if (a->valid > 0.0) WH_TRY(wh_corpus_cut(&w->corpus, a->valid, &held_out));
    if (held_out == 0) {
        w->part[w->parts++] = (struct part){.suffix = "", .count = w->corpus.count};
    } else {
        w->part[w->parts++] = (struct part){.suffix = "_train", .count = held_out};
        w->part[w->parts++] = (struct part){.suffix = "_val", .first = held_out, .count = w->corpus.count - held_out};
    }
    return WH_OK;
}

/* From the training part alone. */
static enum wh_status train(struct work *w, const char *entries) {
    uint64_t vocab;
    if (!wh_text_to_uint(entries, &vocab) || vocab > UINT32_MAX)
        return WH_FAIL(WH_USAGE, "--tokenizer train:%s: a number of entries is expected, as in train:4096", entries);
    const size_t n = w->part[0].count;
    const char **texts = calloc(n, sizeof *texts);
    size_t *bytes = calloc(n, sizeof *bytes);
    enum wh_status status = texts && bytes ? WH_OK : WH_FAIL(WH_NOMEM, "no memory for the list of documents");
    for (size_t i = 0; i < n && status == WH_OK; i++)
        texts[i] = w->corpus.document[i].text, bytes[i] = w->corpus.document[i].bytes;
    if (status == WH_OK) status = wh_tokenizer_train(texts, bytes, n, (uint32_t)vocab, &w->tokenizer);
    free(texts), free(bytes);
    WH_TRY(status);
    w->trained = true;
    if (wh_tokenizer_vocab(w->tokenizer) < vocab)
        wh_cli_warn("no pair occurs twice any more: the tokenizer has %" PRIu32 " entries, not %" PRIu64,
                    wh_tokenizer_vocab(w->tokenizer), vocab);
    return WH_OK;
}

static enum wh_status get_tokenizer(struct work *w) {
    const char *which = w->args->tokenizer;
    if (strncmp(which, "train:", 6) == 0)
        WH_TRY(train(w, which + 6));
    else
        WH_TRY(wh_tokenizer_open(which, &w->tokenizer));
    w->vocab = wh_tokenizer_vocab(w->tokenizer);
    w->end = !w->args->no_end && wh_tokenizer_end_of_text(w->tokenizer, &w->end_id);
    if (!w->end && !w->args->no_end && w->corpus.count > 1)
        wh_cli_warn("this tokenizer has no end-of-text token: %zu documents are joined without one", w->corpus.count);
    return WH_OK;
}

/* All documents of a part as one list, and the tokens of each. */
static enum wh_status encode_part(struct work *w, struct part *p, struct wh_token_list *ids, uint64_t *lengths) {
    enum wh_added added = w->args->added_as_text ? WH_ADDED_AS_TEXT : WH_ADDED_MATCH;
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_document *d = &w->corpus.document[p->first + i];
        size_t before = ids->count;
        WH_TRY(wh_while(wh_tokenizer_encode(w->tokenizer, d->text, d->bytes, added, ids),
                        "encoding the document at %s:%zu", d->path, d->line));
        if (w->end) WH_TRY(wh_token_list_add(ids, &w->end_id, 1));
        lengths[i] = ids->count - before;
        p->bytes += d->bytes;
    }
    p->tokens = ids->count;
    return WH_OK;
}

static char *join(const char *prefix, const char *suffix, const char *extension) {
    char *out = malloc(strlen(prefix) + strlen(suffix) + strlen(extension) + 1);
    WH_ASSERT(out != NULL);
    sprintf(out, "%s%s%s", prefix, suffix, extension);
    return out;
}

static enum wh_status write_part(struct work *w, struct part *p) {
    struct wh_token_list ids = {0};
    uint64_t *lengths = calloc(p->count, sizeof *lengths);
    char *prefix = join(w->args->out, p->suffix, "");
    enum wh_status status = lengths ? WH_OK : WH_FAIL(WH_NOMEM, "no memory for the list of documents");
    p->path = join(prefix, "", ".bin");
    if (status == WH_OK) status = encode_part(w, p, &ids, lengths);
    if (status == WH_OK)
        status = w->megatron ? wh_tokens_write_megatron(prefix, ids.ids, lengths, p->count, w->vocab)
                             : wh_tokens_write_llmc(p->path, ids.ids, ids.count, w->vocab);
    free(lengths), free(prefix);
    wh_token_list_fini(&ids);
    return status;
}

static void report_json(const struct work *w, uint64_t tokens) {
    json_t *o = wh_cli_json_new("tokenize"), *files = json_array();
    json_object_set_new(o, "tokenizer", json_string(w->tokenizer_path ? w->tokenizer_path : w->args->tokenizer));
    json_object_set_new(o, "vocab_size", json_integer(w->vocab));
    json_object_set_new(o, "end_of_text", w->end ? json_integer(w->end_id) : json_null());
    json_object_set_new(o, "format", json_string(w->args->format));
    json_object_set_new(o, "documents", json_integer((json_int_t)w->corpus.count));
    json_object_set_new(o, "bytes", json_integer((json_int_t)w->corpus.bytes));
    json_object_set_new(o, "tokens", json_integer((json_int_t)tokens));
    json_object_set_new(o, "bytes_per_token", json_real((double)w->corpus.bytes / (double)tokens));
    for (size_t i = 0; i < w->parts; i++) {
        const struct part *p = &w->part[i];
        json_array_append_new(
            files, json_pack("{s:s, s:I, s:I, s:I}", "path", p->path, "documents", (json_int_t)p->count, "bytes",
                             (json_int_t)p->bytes, "tokens", (json_int_t)p->tokens));
    }
    json_object_set_new(o, "files", files);
    wh_cli_json_print(o);
}

static void report_text(const struct work *w, uint64_t tokens) {
    printf("%zu document%s, %" PRIu64 " bytes, %" PRIu64 " tokens (%.3f bytes per token), vocabulary of %" PRIu32 "\n",
           w->corpus.count, w->corpus.count == 1 ? "" : "s", w->corpus.bytes, tokens,
           (double)w->corpus.bytes / (double)tokens, w->vocab);
    for (size_t i = 0; i < w->parts; i++) printf("%s  %" PRIu64 " tokens\n", w->part[i].path, w->part[i].tokens);
    if (w->tokenizer_path) printf("%s\n", w->tokenizer_path);
}

static enum wh_status tokenize(struct work *w) {
    uint64_t tokens = 0;
    WH_TRY(check_args(w));
    WH_TRY(read_inputs(w));
    WH_TRY(get_tokenizer(w));
    if (w->trained) {
        w->tokenizer_path = join(w->args->out, "_tokenizer", ".json");
        WH_TRY(wh_tokenizer_write(w->tokenizer, w->tokenizer_path));
    }
    for (size_t i = 0; i < w->parts; i++) {
        WH_TRY(write_part(w, &w->part[i]));
        tokens += w->part[i].tokens;
    }
    if (wh_cli_json())
        report_json(w, tokens);
    else if (!wh_cli_quiet())
        report_text(w, tokens);
    return WH_OK;
}

int wh_cmd_tokenize(int argc, char **argv) {
    struct args args = {.format = "llmc", .split = "file"};
    int code;
    if (!wh_cli_begin("tokenize", "Turns text files into token files for training.", options, argc, argv, &args,
                      &args.common, &code))
        return code;
    struct work work = {.args = &args};
    code = wh_cli_end(tokenize(&work));
    for (size_t i = 0; i < work.parts; i++) free(work.part[i].path);
    free(work.tokenizer_path);
    wh_tokenizer_close(work.tokenizer);
    wh_corpus_free(&work.corpus);
    return code;
}
