#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/nfc.h"
#include "data/tokenizer_int.h"
#include "data/utf8.h"

struct wh_tokenizer *wh_tokenizer_new(void) {
    return calloc(1, sizeof(struct wh_tokenizer));
}

void wh_tokenizer_close(struct wh_tokenizer *t) {
    if (!t) return;
    wh_split_free(&t->split);
    wh_vocab_free(&t->vocab);
    wh_bpe_free(&t->bpe);
    free(t->added);
    free(t);
}

bool wh_tokenizer_is_bytes(const struct wh_tokenizer *t) { return t->raw_bytes; }

uint32_t wh_tokenizer_vocab(const struct wh_tokenizer *t) { return t->vocab.count; }

/* Counting sort by first byte, then insertion by length inside each (there are few). */
static enum wh_status list_added(struct wh_tokenizer *t) {
    const struct wh_vocab *v = &t->vocab;
    uint32_t count[257] = {0};
    for (uint32_t id = 0; id < v->count; id++)
        if (v->entry[id].added) count[v->pool[v->entry[id].offset] + 1]++, t->added_count++;
    for (int b = 0; b < 256; b++) count[b + 1] += count[b];
    memcpy(t->added_first, count, sizeof count);
    t->added = calloc(t->added_count + 1, sizeof *t->added);
    if (!t->added) return WH_FAIL(WH_NOMEM, "no memory for added tokens");
    for (uint32_t id = 0; id < v->count; id++) {
        if (!v->entry[id].added) continue;
        unsigned char b = v->pool[v->entry[id].offset];
        uint32_t i = count[b]++;
        for (; i > t->added_first[b] && v->entry[t->added[i - 1]].bytes < v->entry[id].bytes; i--)
            t->added[i] = t->added[i - 1];
        t->added[i] = id;
    }
    return WH_OK;
}

enum wh_status wh_tokenizer_prepare(struct wh_tokenizer *t, const char *name, uint32_t merges) {
    WH_TRY(wh_bpe_init(&t->bpe, merges));
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        if (!wh_vocab_find(&t->vocab, &byte, 1, &t->bpe.byte_id[b]))
            return WH_FAIL(WH_UNSUPPORTED, "%s: the vocabulary has no entry for byte 0x%02x; all 256 are needed", name,
                           b);
    }
    WH_TRY(wh_split_new(t->kind, &t->split));
    return list_added(t);
}

/* The first of three names that is an added token. */
static bool find_added(const struct wh_tokenizer *t, const char *const names[3], uint32_t *id) {
    for (size_t n = 0; n < 3; n++)
        for (uint32_t i = 0; i < t->added_count; i++) {
            const struct wh_vocab_entry *e = &t->vocab.entry[t->added[i]];
            if (e->bytes != strlen(names[n]) || memcmp(t->vocab.pool + e->offset, names[n], e->bytes) != 0) continue;
            *id = t->added[i];
            return true;
        }
    return false;
}

bool wh_tokenizer_end_of_text(const struct wh_tokenizer *t, uint32_t *id) {
    static const char *const names[] = {WH_END_OF_TEXT, "<|end_of_text|>", "</s>"};
    return find_added(t, names, id);
}

bool wh_tokenizer_begin_of_text(const struct wh_tokenizer *t, uint32_t *id) {
    static const char *const names[] = {"<|begin_of_text|>", "<s>", WH_END_OF_TEXT};
    return find_added(t, names, id);
}

/* The added token that starts at p, or NULL. */
static const uint32_t *match_added(const struct wh_tokenizer *t, const char *p, size_t left, enum wh_added mode) {
    unsigned char first = (unsigned char)*p;
    for (uint32_t i = t->added_first[first]; i < t->added_first[first + 1]; i++) {
        const struct wh_vocab_entry *e = &t->vocab.entry[t->added[i]];
        if (e->special && mode == WH_ADDED_AS_TEXT) continue;
        if (e->bytes <= left && memcmp(t->vocab.pool + e->offset, p, e->bytes) == 0) return &t->added[i];
    }
    return NULL;
}

static enum wh_status encode_plain(struct wh_tokenizer *t, const char *text, size_t bytes, struct wh_token_list *out) {
    for (size_t at = 0, n; at < bytes; at += n) {
        uint32_t id;
        WH_TRY(wh_split_next(&t->split, text, bytes, at, &n));
        if (t->ignore_merges && wh_vocab_find(&t->vocab, text + at, n, &id))
            WH_TRY(wh_token_list_add(out, &id, 1));
        else
            WH_TRY(wh_bpe_encode(&t->bpe, text + at, n, out));
    }
    return WH_OK;
}

static enum wh_status encode_bytes(const char *text, size_t bytes, struct wh_token_list *out) {
    uint32_t block[1024];
    for (size_t at = 0; at < bytes;) {
        size_t n = bytes - at < 1024 ? bytes - at : 1024;
        for (size_t i = 0; i < n; i++) block[i] = (unsigned char)text[at + i];
        WH_TRY(wh_token_list_add(out, block, n));
        at += n;
    }
    return WH_OK;
}

enum wh_status wh_tokenizer_check_utf8(const char *text, size_t bytes) {
    size_t at = wh_utf8_check(text, bytes);
    if (at == bytes) return WH_OK;
    return WH_FAIL(WH_DATA,
                   "byte %zu (0x%02x) of the text is not valid UTF-8; convert it, or use the tokenizer 'bytes'", at,
                   (unsigned char)text[at]);
}

static enum wh_status check_text(const struct wh_tokenizer *t, const char *text, size_t bytes) {
    WH_TRY(wh_tokenizer_check_utf8(text, bytes));
    size_t at = t->nfc ? wh_nfc_check(text, bytes) : bytes, bad;
    if (at == bytes) return WH_OK;
    const unsigned char *p = (const unsigned char *)text + at;
    return WH_FAIL(WH_UNSUPPORTED,
                   "the character U+%04" PRIX32
                   " at byte %zu of the text may change under Unicode normalisation (NFC), "
                   "which this tokenizer asks for and wanhe does not do; normalise the text first",
                   wh_utf8_get(p, wh_utf8_length(p, bytes - at, &bad)), at);
}

static enum wh_status encode_text(struct wh_tokenizer *t, const char *text, size_t bytes, enum wh_added mode,
                                  struct wh_token_list *out) {
    size_t begin = 0; /* of the plain text not yet encoded */
    WH_TRY(check_text(t, text, bytes));
    for (size_t at = 0; at < bytes;) {
        const uint32_t *id = match_added(t, text + at, bytes - at, mode);
        if (!id) {
            at++;
            continue;
        }
        WH_TRY(encode_plain(t, text + begin, at - begin, out));
        WH_TRY(wh_token_list_add(out, id, 1));
        begin = at += t->vocab.entry[*id].bytes;
    }
    return encode_plain(t, text + begin, bytes - begin, out);
}

enum wh_status wh_tokenizer_encode(struct wh_tokenizer *t, const char *text, size_t bytes, enum wh_added added,
                                   struct wh_token_list *out) {
    size_t before = out->count;
    enum wh_status status = t->raw_bytes ? encode_bytes(text, bytes, out) : encode_text(t, text, bytes, added, out);
    if (status != WH_OK) out->count = before;
    return status;
}

enum wh_status wh_tokenizer_decode_bytes(const struct wh_tokenizer *t, const uint32_t *ids, size_t n, bool specials,
                                         struct wh_text *out) {
    size_t bytes;
    for (size_t i = 0; i < n; i++)
        if (!wh_vocab_get(&t->vocab, ids[i], &bytes))
            return WH_FAIL(WH_DATA, "token %zu is %" PRIu32 ", which the tokenizer does not have", i, ids[i]);
    for (size_t i = 0; i < n; i++) {
        if (!specials && t->vocab.entry[ids[i]].special) continue;
        const unsigned char *p = wh_vocab_get(&t->vocab, ids[i], &bytes);
        wh_text_add_bytes(out, p, bytes);
    }
    return WH_OK;
}

static void add_repaired(const unsigned char *p, size_t bytes, struct wh_text *out) {
    size_t begin = 0, bad;
    for (size_t at = 0; at < bytes;) {
        size_t length = wh_utf8_length(p + at, bytes - at, &bad);
        if (length == 0) {
            wh_text_add_bytes(out, p + begin, at - begin);
            wh_text_add_bytes(out, "\xef\xbf\xbd", 3);
            begin = at + bad;
        }
        at += length ? length : bad;
    }
    wh_text_add_bytes(out, p + begin, bytes - begin);
}

enum wh_status wh_tokenizer_decode_text(const struct wh_tokenizer *t, const uint32_t *ids, size_t n, bool specials,
                                        struct wh_text *out) {
    struct wh_text joined = {0};
    WH_TRY(wh_tokenizer_decode_bytes(t, ids, n, specials, &joined));
    if (joined.bytes) add_repaired((const unsigned char *)joined.data, joined.bytes, out);
    wh_text_fini(&joined);
    return WH_OK;
}
