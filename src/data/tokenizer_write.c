#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_int.h"
#include "data/utf8.h"
#include "os/file.h"

/* Bytes in the alphabet of GPT-2. */
static void add_letters(const unsigned char *p, size_t n, struct wh_text *out) {
    unsigned char letter[4];
    for (size_t i = 0; i < n; i++) wh_text_add_bytes(out, letter, wh_utf8_put(wh_byte_to_letter(p[i]), letter));
}

static json_t *byte_level(bool add_prefix_space, bool use_regex) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", add_prefix_space, "trim_offsets",
                     true, "use_regex", use_regex);
}

static json_t *pre_tokenizer(const struct wh_tokenizer *t) {
    if (t->kind == WH_SPLIT_GPT2) return byte_level(false, true);
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Split",
                     "pattern", "Regex", wh_split_pattern(t->kind), "behavior", "Isolated", "invert", false,
                     byte_level(false, false));
}

static json_t *added_tokens(const struct wh_tokenizer *t) {
    json_t *list = json_array();
    for (uint32_t id = 0; id < t->vocab.count; id++) {
        const struct wh_vocab_entry *e = &t->vocab.entry[id];
        if (!e->added) continue;
        json_array_append_new(
            list, json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content",
                            (const char *)t->vocab.pool + e->offset, (size_t)e->bytes, "single_word", false, "lstrip",
                            false, "rstrip", false, "normalized", false, "special", e->special));
    }
    return list;
}

/* Text entries in the alphabet; an added token outside it stands in added_tokens alone. */
static json_t *vocabulary(const struct wh_tokenizer *t) {
    json_t *object = json_object();
    struct wh_text letters = {0};
    for (uint32_t id = 0; id < t->vocab.count; id++) {
        const struct wh_vocab_entry *e = &t->vocab.entry[id];
        if (!e->present || !e->text) continue;
        wh_text_clear(&letters);
        add_letters(t->vocab.pool + e->offset, e->bytes, &letters);
        json_object_set_new(object, letters.data, json_integer((json_int_t)id));
    }
    wh_text_fini(&letters);
    return object;
}

static int by_rank(const void *a, const void *b) {
    uint32_t x = ((const struct wh_bpe_merge *)a)->rank, y = ((const struct wh_bpe_merge *)b)->rank;
    return (x > y) - (x < y);
}

static json_t *merge_text(const struct wh_tokenizer *t, const struct wh_bpe_merge *m, struct wh_text *line) {
    size_t n;
    wh_text_clear(line);
    const unsigned char *p = wh_vocab_get(&t->vocab, m->left, &n);
    add_letters(p, n, line);
    wh_text_add_bytes(line, " ", 1);
    p = wh_vocab_get(&t->vocab, m->right, &n);
    add_letters(p, n, line);
    return json_stringn(line->data, line->bytes);
}

/* "a b" lines in order of rank; NULL: out of memory. */
static json_t *merges(const struct wh_tokenizer *t) {
    struct wh_bpe_merge *sorted = malloc((t->bpe.filled + 1) * sizeof *sorted);
    if (!sorted) return NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < t->bpe.slots; i++)
        if (t->bpe.merge[i].rank != UINT32_MAX) sorted[n++] = t->bpe.merge[i];
    qsort(sorted, n, sizeof *sorted, by_rank);
    json_t *list = json_array();
    struct wh_text line = {0};
    for (size_t i = 0; i < n; i++) json_array_append_new(list, merge_text(t, &sorted[i], &line));
    wh_text_fini(&line);
    free(sorted);
    return list;
}

static json_t *model(const struct wh_tokenizer *t) {
    return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", false, "byte_fallback", false,
                     "ignore_merges", t->ignore_merges, "vocab", vocabulary(t), "merges", merges(t));
}

enum wh_status wh_tokenizer_write(const struct wh_tokenizer *t, const char *path) {
    if (t->raw_bytes) return WH_FAIL(WH_CONFIG, "%s: the tokenizer 'bytes' needs no file", path);
    json_t *normalizer = t->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
    json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                             "added_tokens", added_tokens(t), "normalizer", normalizer, "pre_tokenizer",
                             pre_tokenizer(t), "post_processor", "decoder", byte_level(true, true), "model", model(t));
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text) return WH_FAIL(WH_NOMEM, "no memory to write %s", path);
    enum wh_status status = wh_file_write_all(path, text, strlen(text));
    free(text);
    return status;
}
