#include "data/tokens.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"
#include "data/token_format.h"
#include "data/tokenizer.h"
#include "os/file.h"

struct shard {
    char *name; /* of the file with the tokens */
    struct wh_file_map map;
    struct wh_token_list encoded; /* text that went through a tokenizer; the map is empty then */
    struct wh_token_span span;
    uint64_t first; /* position of its first token in the whole */
    bool checked;   /* every id is known to be in range */
};

struct wh_tokens {
    struct shard *shards;
    size_t shard_count;
    uint64_t count;
    size_t checked_bytes; /* of files read through at open */
    uint32_t limit;       /* ids must be below it */
};

/* How text becomes ids; used while opening. */
struct text_rule {
    struct wh_tokenizer *tokenizer; /* NULL: bytes */
    int64_t end_of_text;            /* -1: none */
};

static const char *const kind_names[WH_TOKENS_KIND_COUNT] = {"auto", "llmc", "megatron", "bytes"};

const char *wh_tokens_kind_name(enum wh_tokens_kind kind) {
    return kind < WH_TOKENS_KIND_COUNT ? kind_names[kind] : "?";
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* "data/x" + ".bin", also from "data/x.bin" and "data/x.idx"; malloc'd. */
static char *megatron_path(const char *path, const char *extension) {
    size_t stem = strlen(path);
    if (ends_with(path, ".bin") || ends_with(path, ".idx")) stem -= 4;
    char *out = malloc(stem + strlen(extension) + 1);
    WH_ASSERT(out != NULL);
    sprintf(out, "%.*s%s", (int)stem, path, extension);
    return out;
}

static bool has_index(const char *path) {
    char *idx = megatron_path(path, ".idx");
    bool there = wh_file_exists(idx);
    free(idx);
    return there;
}

/* What the name says; AUTO if the content has to. */
static enum wh_tokens_kind kind_from_name(const char *path) {
    if (ends_with(path, ".txt") || ends_with(path, ".jsonl")) return WH_TOKENS_BYTES;
    if (ends_with(path, ".idx")) return WH_TOKENS_MEGATRON;
    if (ends_with(path, ".bin") || !wh_file_exists(path)) return has_index(path) ? WH_TOKENS_MEGATRON : WH_TOKENS_AUTO;
    return WH_TOKENS_AUTO;
}

static enum wh_status open_megatron(const char *path, struct shard *s) {
    char *idx_path = megatron_path(path, ".idx");
    free(s->name);
    s->name = megatron_path(path, ".bin");
    struct wh_file_map idx = {0}; /* not needed beyond the checks: the tokens lie one behind the other */
    enum wh_status status = wh_file_map(idx_path, &idx);
    if (status == WH_OK) status = wh_file_map(s->name, &s->map);
    if (status == WH_OK)
        status = wh_token_parse_megatron(idx_path, idx.data, idx.bytes, s->name, s->map.data, s->map.bytes, &s->span);
    wh_file_unmap(&idx);
    free(idx_path);
    return status;
}

static enum wh_status encode_document(const struct wh_document *d, const struct text_rule *rule,
                                      struct wh_token_list *out) {
    const uint32_t end = (uint32_t)rule->end_of_text;
    WH_TRY(wh_while(wh_tokenizer_encode(rule->tokenizer, d->text, d->bytes, WH_ADDED_MATCH, out),
                    "encoding the document at %s:%zu", d->path, d->line));
    return rule->end_of_text < 0 ? WH_OK : wh_token_list_add(out, &end, 1);
}

static enum wh_status encode_documents(const char *path, const struct text_rule *rule, struct shard *s) {
    struct wh_corpus corpus = {0};
    enum wh_status status = wh_corpus_add(&corpus, path, WH_DOCUMENTS_FILE);
    for (size_t i = 0; i < corpus.count && status == WH_OK; i++)
        status = encode_document(&corpus.document[i], rule, &s->encoded);
    wh_corpus_free(&corpus);
    s->span = (struct wh_token_span){(const unsigned char *)s->encoded.ids, s->encoded.count, sizeof(uint32_t)};
    return status;
}

static enum wh_status encode_text(const char *path, const struct text_rule *rule, struct shard *s) {
    struct text_rule with_bytes = *rule;
    if (rule->tokenizer) return encode_documents(path, rule, s);
    WH_TRY(wh_tokenizer_open("bytes", &with_bytes.tokenizer));
    enum wh_status status = encode_documents(path, &with_bytes, s);
    wh_tokenizer_close(with_bytes.tokenizer);
    return status;
}

/* Plain bytes are used where they lie. */
static enum wh_status open_text(const char *path, const struct text_rule *rule, struct shard *s) {
    bool as_is = !rule->tokenizer && rule->end_of_text < 0 && !ends_with(path, ".jsonl");
    WH_TRY(as_is ? wh_file_map(path, &s->map) : encode_text(path, rule, s));
    if (as_is) s->span = (struct wh_token_span){s->map.data, s->map.bytes, 1};
    return s->span.count ? WH_OK : WH_FAIL(WH_DATA, "%s: holds no text, at least 1 byte is expected", path);
}

static enum wh_status open_llmc(const char *path, bool guessed, struct shard *s) {
    WH_TRY(wh_file_map(path, &s->map));
    enum wh_status status = wh_token_parse_llmc(path, s->map.data, s->map.bytes, &s->span);
    if (status != WH_OK && guessed)
        wh_while(status, "guessing the format of %s (plain text needs the kind \"bytes\" or the name *.txt)", path);
    return status;
}

static enum wh_status check_range(struct wh_tokens *t, struct shard *s) {
    s->checked = s->map.bytes <= WH_TOKENS_EAGER_BYTES - t->checked_bytes;
    if (!s->checked) return WH_OK;
    t->checked_bytes += s->map.bytes;
    uint64_t bad = wh_token_span_first_above(&s->span, t->limit);
    if (bad == s->span.count) return WH_OK;
    return WH_FAIL(WH_DATA, "%s: token %" PRIu64 " is %" PRIu32 ", but the vocabulary has %" PRIu32 " entries", s->name,
                   bad, wh_token_span_get(&s->span, bad), t->limit);
}

static enum wh_status open_shard(struct wh_tokens *t, const char *path, enum wh_tokens_kind kind,
                                 const struct text_rule *rule) {
    struct shard *s = &t->shards[t->shard_count++];
    s->name = strdup(path);
    if (!s->name) return WH_FAIL(WH_NOMEM, "no memory for a path");
    bool guessed = kind == WH_TOKENS_AUTO;
    if (guessed) kind = kind_from_name(path);
    if (kind == WH_TOKENS_BYTES && !rule->tokenizer && t->limit < 256)
        return WH_FAIL(WH_CONFIG, "%s: bytes as tokens need a vocabulary of at least 256, it has %" PRIu32, path,
                       t->limit);
    if (kind == WH_TOKENS_BYTES)
        WH_TRY(open_text(path, rule, s));
    else if (kind == WH_TOKENS_MEGATRON)
        WH_TRY(open_megatron(path, s));
    else
        WH_TRY(open_llmc(path, guessed, s));
    s->first = t->count;
    t->count += s->span.count;
    return check_range(t, s);
}

enum wh_status wh_tokens_open_text(const char *const *paths, size_t count, enum wh_tokens_kind kind, uint32_t vocab,
                                   struct wh_tokenizer *tokenizer, int64_t end_of_text, struct wh_tokens **out) {
    bool bytes = !tokenizer || wh_tokenizer_is_bytes(tokenizer);
    const struct text_rule rule = {bytes ? NULL : tokenizer, end_of_text};
    if (count == 0) return WH_FAIL(WH_CONFIG, "no token file is named; at least one is needed");
    struct wh_tokens *t = calloc(1, sizeof *t);
    if (t) t->shards = calloc(count, sizeof *t->shards);
    if (!t || !t->shards) {
        free(t);
        return WH_FAIL(WH_NOMEM, "no memory for %zu token files", count);
    }
    t->limit = vocab ? vocab : (uint32_t)1 << 31; /* Megatron's tokens are signed */
    enum wh_status status = WH_OK;
    for (size_t i = 0; i < count && status == WH_OK; i++) status = open_shard(t, paths[i], kind, &rule);
    if (status == WH_OK)
        *out = t;
    else
        wh_tokens_close(t);
    return status;
}

enum wh_status wh_tokens_open(const char *const *paths, size_t count, enum wh_tokens_kind kind, uint32_t vocab,
                              struct wh_tokens **out) {
    return wh_tokens_open_text(paths, count, kind, vocab, NULL, -1, out);
}

void wh_tokens_close(struct wh_tokens *t) {
    if (!t) return;
    for (size_t i = 0; i < t->shard_count; i++) {
        wh_file_unmap(&t->shards[i].map);
        wh_token_list_fini(&t->shards[i].encoded);
        free(t->shards[i].name);
    }
    free(t->shards);
    free(t);
}

uint64_t wh_tokens_count(const struct wh_tokens *t) { return t->count; }

/* The shard that holds token `at`; shards are never empty, so `first` rises strictly. */
static size_t find_shard(const struct wh_tokens *t, uint64_t at) {
    size_t low = 0, high = t->shard_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (t->shards[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void copy_span(const struct wh_token_span *s, uint64_t first, size_t n, uint32_t *out) {
    const unsigned char *p = s->data + first * s->width_bytes;
    if (s->width_bytes == 4) {
        memcpy(out, p, 4 * n);
    } else if (s->width_bytes == 1) {
        for (size_t i = 0; i < n; i++) out[i] = p[i];
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t id;
            memcpy(&id, p + 2 * i, 2);
            out[i] = id;
        }
    }
}

static enum wh_status check_read(const struct wh_tokens *t, const struct shard *s, uint64_t first, size_t n,
                                 const uint32_t *ids) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= t->limit)
            return WH_FAIL(WH_DATA, "%s: token %" PRIu64 " is %" PRIu32 ", but the vocabulary has %" PRIu32 " entries",
                           s->name, first + i, ids[i], t->limit);
    return WH_OK;
}

enum wh_status wh_tokens_read(const struct wh_tokens *t, uint64_t first, size_t n, uint32_t *out) {
    if (first > t->count || n > t->count - first)
        return WH_FAIL(WH_DATA, "%s: tokens %" PRIu64 " to %" PRIu64 " are asked for, but there are %" PRIu64,
                       t->shards[t->shard_count - 1].name, first, first + n, t->count);
    for (size_t k = n ? find_shard(t, first) : 0; n > 0; k++) {
        const struct shard *s = &t->shards[k];
        uint64_t inside = first - s->first, left = s->span.count - inside;
        size_t take = n < left ? n : (size_t)left;
        copy_span(&s->span, inside, take, out);
        if (!s->checked) WH_TRY(check_read(t, s, inside, take, out));
        first += take, out += take, n -= take;
    }
    return WH_OK;
}
