/* The first byte chooses: 0..84 a tokenizer.json; 85..127 a vocabulary and merges, cut at the second byte (times 16);
 * 128..255 text for a tokenizer with GPT-2's, Llama 3's or Qwen2's split, whose ids are compared with a plain merge
 * loop over the same words and then decoded back to the text. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/nfc.h"
#include "data/split.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Merges of the fixed tokenizer, over bytes: "a" "b" -> id 256 and so on; " " and newline take part. */
static const char *const merges[][2] = {{"a", "a"},           {"a", "b"},   {"aa", "aa"}, {" ", "a"},
                                        {"ab", "a"},          {" ", " "},   {"\n", "\n"}, {"\xe4", "\xbd"},
                                        {"\xe4\xbd", "\xa0"}, {" a", "ab"}, {"1", "2"}};
enum { MERGES = sizeof merges / sizeof *merges, WORD_MAX = 4096 };

static void add_letters(struct wh_text *t, const char *bytes) {
    for (const unsigned char *p = (const unsigned char *)bytes; *p; p++)
        wh_text_add(t, "\\u%04x", (unsigned)wh_byte_to_letter(*p));
}

static struct wh_tokenizer *make_tokenizer(enum wh_split_kind kind) {
    struct wh_text t = {0};
    struct wh_tokenizer *out = NULL;
    wh_text_add(&t,
                "{\"added_tokens\": [{\"id\": 900, \"content\": \"<|x|>\", \"special\": true}], \"pre_tokenizer\": "
                "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"behavior\": \"Isolated\", "
                "\"pattern\": {\"Regex\": \"");
    for (const char *p = wh_split_pattern(kind); *p; p++) wh_text_add(&t, *p == '\\' ? "\\\\" : "%c", *p);
    wh_text_add(&t, "\"}}, {\"type\": \"ByteLevel\", \"use_regex\": false}]}, \"model\": {\"vocab\": {");
    for (unsigned b = 0; b < 256; b++)
        wh_text_add(&t, "\"\\u%04x\": %u, ", (unsigned)wh_byte_to_letter((unsigned char)b), b);
    for (unsigned m = 0; m < MERGES; m++) {
        wh_text_add(&t, "%s\"", m ? ", " : "");
        add_letters(&t, merges[m][0]), add_letters(&t, merges[m][1]);
        wh_text_add(&t, "\": %u", 256 + m);
    }
    wh_text_add(&t, "}, \"merges\": [");
    for (unsigned m = 0; m < MERGES; m++) {
        wh_text_add(&t, "%s[\"", m ? ", " : "");
        add_letters(&t, merges[m][0]);
        wh_text_add(&t, "\", \"");
        add_letters(&t, merges[m][1]);
        wh_text_add(&t, "\"]");
    }
    wh_text_add(&t, "]}}");
    if (wh_tokenizer_parse_json("fixed", t.data, t.bytes, &out) != WH_OK) {
        fprintf(stderr, "%s\n", wh_error()->message);
        abort();
    }
    wh_text_fini(&t);
    return out;
}

/* The merge of pieces i and i+1; MERGES: none. */
static unsigned find_merge(struct wh_text *const *piece, size_t i) {
    for (unsigned m = 0; m < MERGES; m++)
        if (strlen(merges[m][0]) == piece[i]->bytes && memcmp(piece[i]->data, merges[m][0], piece[i]->bytes) == 0 &&
            strlen(merges[m][1]) == piece[i + 1]->bytes &&
            memcmp(piece[i + 1]->data, merges[m][1], piece[i + 1]->bytes) == 0)
            return m;
    return MERGES;
}

static uint32_t id_of(const struct wh_text *piece) {
    if (piece->bytes == 1) return (unsigned char)piece->data[0];
    for (unsigned m = 0; m < MERGES; m++) {
        size_t n = strlen(merges[m][0]);
        if (piece->bytes == n + strlen(merges[m][1]) && memcmp(piece->data, merges[m][0], n) == 0 &&
            memcmp(piece->data + n, merges[m][1], piece->bytes - n) == 0)
            return 256 + m;
    }
    abort();
}

/* Lowest merge, leftmost place, again and again, on strings. */
static size_t merge_plainly(const char *word, size_t bytes, uint32_t *ids) {
    static struct wh_text room[WORD_MAX];
    static struct wh_text *piece[WORD_MAX];
    size_t n = bytes;
    for (size_t i = 0; i < n; i++) {
        piece[i] = &room[i];
        wh_text_clear(piece[i]);
        wh_text_add_bytes(piece[i], word + i, 1);
    }
    for (;;) {
        unsigned best = MERGES;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            unsigned m = find_merge(piece, i);
            if (m < best) best = m, where = i;
        }
        if (best == MERGES) break;
        wh_text_add_bytes(piece[where], piece[where + 1]->data, piece[where + 1]->bytes);
        memmove(&piece[where + 1], &piece[where + 2], (n - where - 2) * sizeof *piece);
        n--;
    }
    for (size_t i = 0; i < n; i++) ids[i] = id_of(piece[i]);
    return n;
}

static void check_plain_ids(enum wh_split_kind kind, const char *text, size_t bytes, const struct wh_token_list *ids) {
    static struct wh_split split[WH_SPLIT_COUNT];
    static uint32_t want[WORD_MAX];
    size_t k = 0;
    if (!split[kind].code) WH_ASSERT(wh_split_new(kind, &split[kind]) == WH_OK);
    for (size_t at = 0, n; at < bytes; at += n) {
        WH_ASSERT(wh_split_next(&split[kind], text, bytes, at, &n) == WH_OK);
        size_t count = merge_plainly(text + at, n, want);
        WH_ASSERT(k + count <= ids->count && memcmp(ids->ids + k, want, count * sizeof *want) == 0);
        k += count;
    }
    WH_ASSERT(k == ids->count);
}

static void try_text(enum wh_split_kind kind, const char *text, size_t bytes) {
    static struct wh_tokenizer *tokenizer[WH_SPLIT_COUNT];
    struct wh_token_list ids = {0};
    struct wh_text back = {0}, shown = {0};
    if (bytes > WORD_MAX) return;
    if (!tokenizer[kind]) tokenizer[kind] = make_tokenizer(kind);
    enum wh_status status = wh_tokenizer_encode(tokenizer[kind], text, bytes, WH_ADDED_MATCH, &ids);
    WH_ASSERT((status == WH_OK) == (wh_utf8_check(text, bytes) == bytes));
    if (status == WH_OK) {
        WH_ASSERT(wh_tokenizer_decode_bytes(tokenizer[kind], ids.ids, ids.count, true, &back) == WH_OK);
        WH_ASSERT(back.bytes == bytes && (bytes == 0 || memcmp(back.data, text, bytes) == 0));
        WH_ASSERT(wh_nfc_check(text, bytes) <= bytes);
        ids.count = 0;
        WH_ASSERT(wh_tokenizer_encode(tokenizer[kind], text, bytes, WH_ADDED_AS_TEXT, &ids) == WH_OK);
        check_plain_ids(kind, text, bytes, &ids);
    }
    uint32_t raw[WORD_MAX];
    for (size_t i = 0; i < bytes; i++) raw[i] = (unsigned char)text[i];
    WH_ASSERT(wh_tokenizer_decode_text(tokenizer[kind], raw, bytes, true, &shown) == WH_OK);
    WH_ASSERT(shown.bytes == 0 || wh_utf8_check(shown.data, shown.bytes) == shown.bytes);
    wh_token_list_fini(&ids), wh_text_fini(&back), wh_text_fini(&shown);
}

static void try_file(const uint8_t *data, size_t size) {
    static const char text[] = "Hello  world\n\n 12345 it's <|endoftext|>";
    struct wh_tokenizer *t;
    struct wh_token_list ids = {0};
    const char *body = (const char *)data + 2;
    size_t bytes = size - 2, cut = (size_t)data[1] * 16 < bytes ? (size_t)data[1] * 16 : bytes;
    enum wh_status status = data[0] < 85
                                ? wh_tokenizer_parse_json("json", body, bytes, &t)
                                : wh_tokenizer_parse_pair("vocab", body, cut, "merges", body + cut, bytes - cut, &t);
    if (status != WH_OK) return;
    WH_ASSERT(wh_tokenizer_encode(t, text, sizeof text - 1, WH_ADDED_MATCH, &ids) == WH_OK);
    for (size_t i = 0; i < ids.count; i++) WH_ASSERT(ids.ids[i] < wh_tokenizer_vocab(t));
    wh_token_list_fini(&ids);
    wh_tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    if (data[0] < 128)
        try_file(data, size);
    else
        try_text((enum wh_split_kind)(data[0] % WH_SPLIT_COUNT), (const char *)data + 1, size - 1);
    return 0;
}
