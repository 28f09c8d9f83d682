#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_int.h"
#include "data/utf8.h"
#include "os/file.h"

/* Largest file taken for a tokenizer; the largest known have some 40 MB. */
enum { FILE_BYTES_MAX = 1 << 28 };

static enum wh_status parse_json(const char *name, const char *text, size_t bytes, json_t **out) {
    json_error_t e;
    json_t *root = json_loadb(text, bytes, 0, &e);
    if (!root) return WH_FAIL(WH_DATA, "%s:%d: %s", name, e.line, e.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return WH_FAIL(WH_DATA, "%s: a JSON object is expected", name);
    }
    *out = root;
    return WH_OK;
}

/* Text in the byte alphabet becomes bytes. Text outside it (an added token with spaces, say) can't come from merges and
 * stands for itself. */
static enum wh_status add_entry(struct wh_vocab *v, const char *name, const char *letters, const json_t *id) {
    size_t n = strlen(letters), bytes;
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= WH_VOCAB_MAX)
        return WH_FAIL(WH_DATA, "%s: the id of '%s' is not a number from 0 to %d", name, letters, WH_VOCAB_MAX - 1);
    unsigned char *decoded = malloc(n + 1);
    if (!decoded) return WH_FAIL(WH_NOMEM, "no memory for a token");
    bool text = wh_letters_to_bytes(letters, n, decoded, &bytes);
    enum wh_status status = wh_vocab_add(v, (uint32_t)json_integer_value(id), text ? (const void *)decoded : letters,
                                         text ? bytes : n, text);
    free(decoded);
    return wh_while(status, "reading the vocabulary of %s", name);
}

static enum wh_status load_vocab(struct wh_vocab *v, const char *name, json_t *object) {
    const char *key;
    json_t *id;
    json_object_foreach(object, key, id) WH_TRY(add_entry(v, name, key, id));
    return WH_OK;
}

static enum wh_status find_side(const struct wh_tokenizer *t, const char *name, uint32_t rank, const unsigned char *p,
                                size_t n, uint32_t *id) {
    if (wh_vocab_find(&t->vocab, p, n, id)) return WH_OK;
    return WH_FAIL(WH_DATA, "%s: merge %" PRIu32 " needs the token '%.*s', which the vocabulary has not", name, rank,
                   n < 100 ? (int)n : 100, (const char *)p);
}

enum wh_status wh_tokenizer_add_merge(struct wh_tokenizer *t, const char *name, uint32_t rank, const char *left,
                                      size_t left_bytes, const char *right, size_t right_bytes) {
    struct wh_bpe_merge m = {.rank = rank};
    size_t n, k;
    unsigned char *both = malloc(left_bytes + right_bytes + 1);
    if (!both) return WH_FAIL(WH_NOMEM, "no memory for a merge");
    enum wh_status status = WH_OK;
    if (!wh_letters_to_bytes(left, left_bytes, both, &n) || !wh_letters_to_bytes(right, right_bytes, both + n, &k))
        status = WH_FAIL(WH_DATA, "%s: merge %" PRIu32 " is not in the byte alphabet", name, rank);
    if (status == WH_OK) status = find_side(t, name, rank, both, n, &m.left);
    if (status == WH_OK) status = find_side(t, name, rank, both + n, k, &m.right);
    if (status == WH_OK) status = find_side(t, name, rank, both, n + k, &m.id);
    if (status == WH_OK) wh_bpe_add_merge(&t->bpe, &m);
    free(both);
    return status;
}

/* "a b" */
static enum wh_status add_merge_text(struct wh_tokenizer *t, const char *name, uint32_t rank, const char *line,
                                     size_t bytes) {
    const char *space = memchr(line, ' ', bytes);
    if (!space || space == line || space == line + bytes - 1)
        return WH_FAIL(WH_DATA, "%s: merge %" PRIu32 " is '%.*s'; two tokens with a space between are expected", name,
                       rank, bytes < 100 ? (int)bytes : 100, line);
    size_t left = (size_t)(space - line);
    return wh_tokenizer_add_merge(t, name, rank, line, left, space + 1, bytes - left - 1);
}

/* "a b" or ["a", "b"] (case B59). */
static enum wh_status add_merge_json(struct wh_tokenizer *t, const char *name, uint32_t rank, const json_t *merge) {
    if (json_is_string(merge))
        return add_merge_text(t, name, rank, json_string_value(merge), json_string_length(merge));
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return WH_FAIL(WH_DATA, "%s: merge %" PRIu32 " is neither \"a b\" nor [\"a\", \"b\"]", name, rank);
    return wh_tokenizer_add_merge(t, name, rank, json_string_value(left), json_string_length(left),
                                  json_string_value(right), json_string_length(right));
}

/* Each of these would change the ids: they must be absent, null, false, 0 or "". */
static enum wh_status require_off(const char *name, const char *where, const json_t *object, const char *const *keys) {
    for (; *keys; keys++) {
        const json_t *value = json_object_get(object, *keys);
        bool off = !value || json_is_null(value) || json_is_false(value) ||
                   (json_is_number(value) && json_number_value(value) == 0) ||
                   (json_is_string(value) && json_string_length(value) == 0);
        if (!off)
            return WH_FAIL(WH_UNSUPPORTED, "%s: %s.%s is set; wanhe encodes without it and would give other ids", name,
                           where, *keys);
    }
    return WH_OK;
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(no type)";
}

static enum wh_status read_normalizer(struct wh_tokenizer *t, const char *name, const json_t *normalizer) {
    if (!normalizer || json_is_null(normalizer)) return WH_OK;
    t->nfc = strcmp(type_of(normalizer), "NFC") == 0;
    if (t->nfc) return WH_OK;
    return WH_FAIL(WH_UNSUPPORTED, "%s: normalizer %s; known are null and NFC", name, type_of(normalizer));
}

static enum wh_status check_byte_level(const char *name, const json_t *step, bool own_split) {
    static const char *const off[] = {"add_prefix_space", NULL};
    const json_t *use_regex = json_object_get(step, "use_regex");
    bool splits = !use_regex || !json_is_false(use_regex);
    if (strcmp(type_of(step), "ByteLevel") != 0)
        return WH_FAIL(WH_UNSUPPORTED, "%s: pre_tokenizer %s; known are ByteLevel and Split followed by ByteLevel",
                       name, type_of(step));
    WH_TRY(require_off(name, "pre_tokenizer", step, off));
    if (splits == own_split) return WH_OK;
    return WH_FAIL(WH_UNSUPPORTED, "%s: pre_tokenizer ByteLevel with use_regex %s %s", name, splits ? "true" : "false",
                   splits ? "behind a Split" : "and no Split before it");
}

static enum wh_status read_split(struct wh_tokenizer *t, const char *name, const json_t *split) {
    static const char *const off[] = {"invert", NULL};
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (strcmp(type_of(split), "Split") != 0 || !pattern || !behavior || strcmp(behavior, "Isolated") != 0)
        return WH_FAIL(WH_UNSUPPORTED,
                       "%s: pre_tokenizer begins with %s; a Split by Regex with behavior Isolated is expected", name,
                       type_of(split));
    WH_TRY(require_off(name, "pre_tokenizer", split, off));
    if (wh_split_find(pattern, &t->kind)) return WH_OK;
    return WH_FAIL(WH_UNSUPPORTED,
                   "%s: unknown split pattern '%s'; known are those of GPT-2, Llama 3 (cl100k) and Qwen2", name,
                   pattern);
}

/* ByteLevel alone (GPT-2's pattern), or a Sequence of it, or of Split and ByteLevel. */
static enum wh_status read_pre_tokenizer(struct wh_tokenizer *t, const char *name, const json_t *pre) {
    const json_t *steps = json_object_get(pre, "pretokenizers");
    t->kind = WH_SPLIT_GPT2;
    if (strcmp(type_of(pre), "Sequence") != 0) return check_byte_level(name, pre, true);
    if (json_array_size(steps) == 1) return check_byte_level(name, json_array_get(steps, 0), true);
    if (json_array_size(steps) != 2)
        return WH_FAIL(WH_UNSUPPORTED, "%s: pre_tokenizer Sequence of %zu steps; known is Split, ByteLevel", name,
                       json_array_size(steps));
    WH_TRY(read_split(t, name, json_array_get(steps, 0)));
    return check_byte_level(name, json_array_get(steps, 1), false);
}

/* An added token that the vocabulary spells too must have its id from there. */
static enum wh_status check_added_once(const struct wh_tokenizer *t, const char *name, const json_t *content,
                                       uint32_t id) {
    const char *letters = json_string_value(content);
    size_t bytes;
    uint32_t other = id;
    unsigned char *decoded = malloc(json_string_length(content) + 1);
    if (!decoded) return WH_FAIL(WH_NOMEM, "no memory for a token");
    if (wh_letters_to_bytes(letters, json_string_length(content), decoded, &bytes))
        wh_vocab_find(&t->vocab, decoded, bytes, &other);
    free(decoded);
    if (other == id) return WH_OK;
    return WH_FAIL(WH_DATA, "%s: added token '%s' has id %" PRIu32 ", but %" PRIu32 " in the vocabulary", name, letters,
                   id, other);
}

static enum wh_status read_added(struct wh_tokenizer *t, const char *name, const json_t *list) {
    static const char *const off[] = {"single_word", "lstrip", "rstrip", NULL};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i), *content = json_object_get(token, "content");
        const json_t *id = json_object_get(token, "id");
        if (!json_is_string(content) || !json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= WH_VOCAB_MAX)
            return WH_FAIL(WH_DATA, "%s: added token %zu has no content or no id from 0 to %d", name, i,
                           WH_VOCAB_MAX - 1);
        WH_TRY(require_off(name, "added_tokens", token, off));
        WH_TRY(check_added_once(t, name, content, (uint32_t)json_integer_value(id)));
        WH_TRY(
            wh_while(wh_vocab_mark_added(&t->vocab, (uint32_t)json_integer_value(id), json_string_value(content),
                                         json_string_length(content), json_is_true(json_object_get(token, "special"))),
                     "reading the added tokens of %s", name));
    }
    return WH_OK;
}

static enum wh_status read_model(struct wh_tokenizer *t, const char *name, const json_t *root) {
    static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
                                      NULL};
    const json_t *model = json_object_get(root, "model"), *type = json_object_get(model, "type");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    if (type && strcmp(type_of(model), "BPE") != 0) /* GPT-2's own file names no type */
        return WH_FAIL(WH_UNSUPPORTED, "%s: model of type %s; only byte-level BPE is known", name, type_of(model));
    if (!json_is_object(vocab) || !json_is_array(merges))
        return WH_FAIL(WH_DATA, "%s: model.vocab (an object) and model.merges (a list) are expected", name);
    WH_TRY(require_off(name, "model", model, off));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    WH_TRY(load_vocab(&t->vocab, name, vocab));
    WH_TRY(read_added(t, name, json_object_get(root, "added_tokens")));
    WH_TRY(wh_tokenizer_prepare(t, name, (uint32_t)json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++)
        WH_TRY(add_merge_json(t, name, (uint32_t)i, json_array_get(merges, i)));
    return WH_OK;
}

static enum wh_status read_tokenizer(struct wh_tokenizer *t, const char *name, const json_t *root) {
    WH_TRY(read_normalizer(t, name, json_object_get(root, "normalizer")));
    WH_TRY(read_pre_tokenizer(t, name, json_object_get(root, "pre_tokenizer")));
    const json_t *decoder = json_object_get(root, "decoder");
    if (decoder && !json_is_null(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0)
        return WH_FAIL(WH_UNSUPPORTED, "%s: decoder %s; only ByteLevel is known", name, type_of(decoder));
    return read_model(t, name, root);
}

/* Hands `t` over if all went well. */
static enum wh_status deliver(struct wh_tokenizer *t, enum wh_status status, struct wh_tokenizer **out) {
    if (status == WH_OK)
        *out = t;
    else
        wh_tokenizer_close(t);
    return status;
}

enum wh_status wh_tokenizer_parse_json(const char *name, const char *text, size_t bytes, struct wh_tokenizer **out) {
    json_t *root;
    struct wh_tokenizer *t = wh_tokenizer_new();
    if (!t) return WH_FAIL(WH_NOMEM, "no memory for a tokenizer");
    enum wh_status status = parse_json(name, text, bytes, &root);
    if (status == WH_OK) {
        status = read_tokenizer(t, name, root);
        json_decref(root);
    }
    return deliver(t, status, out);
}

static size_t line_bytes(const char *p, size_t left) {
    const char *end = memchr(p, '\n', left);
    return end ? (size_t)(end - p) : left;
}

/* One merge per line; a first line "#version..." and empty lines don't count. */
static enum wh_status read_merges(struct wh_tokenizer *t, const char *name, const char *text, size_t bytes) {
    uint32_t rank = 0;
    for (size_t at = 0; at < bytes;) {
        size_t n = line_bytes(text + at, bytes - at), with_end = n + 1;
        if (n > 0 && text[at + n - 1] == '\r') n--;
        if (n > 0 && !(at == 0 && n >= 8 && memcmp(text, "#version", 8) == 0))
            WH_TRY(add_merge_text(t, name, rank++, text + at, n));
        at += with_end;
    }
    return WH_OK;
}

static uint32_t count_lines(const char *text, size_t bytes) {
    uint32_t n = 1;
    for (size_t i = 0; i < bytes; i++) n += text[i] == '\n';
    return n;
}

static enum wh_status read_pair(struct wh_tokenizer *t, const char *vocab_name, json_t *vocab, const char *merges_name,
                                const char *merges, size_t bytes) {
    uint32_t id;
    WH_TRY(load_vocab(&t->vocab, vocab_name, vocab));
    if (wh_vocab_find(&t->vocab, WH_END_OF_TEXT, strlen(WH_END_OF_TEXT), &id))
        WH_TRY(wh_vocab_mark_added(&t->vocab, id, WH_END_OF_TEXT, strlen(WH_END_OF_TEXT), true));
    WH_TRY(wh_tokenizer_prepare(t, vocab_name, count_lines(merges, bytes)));
    return read_merges(t, merges_name, merges, bytes);
}

enum wh_status wh_tokenizer_parse_pair(const char *vocab_name, const char *vocab_json, size_t vocab_bytes,
                                       const char *merges_name, const char *merges, size_t merges_bytes,
                                       struct wh_tokenizer **out) {
    json_t *vocab;
    struct wh_tokenizer *t = wh_tokenizer_new();
    if (!t) return WH_FAIL(WH_NOMEM, "no memory for a tokenizer");
    enum wh_status status = parse_json(vocab_name, vocab_json, vocab_bytes, &vocab);
    if (status == WH_OK) {
        status = read_pair(t, vocab_name, vocab, merges_name, merges, merges_bytes);
        json_decref(vocab);
    }
    return deliver(t, status, out);
}

static enum wh_status open_json(const char *path, struct wh_tokenizer **out) {
    char *text;
    size_t bytes;
    WH_TRY(wh_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    enum wh_status status = wh_tokenizer_parse_json(path, text, bytes, out);
    free(text);
    return status;
}

static enum wh_status open_pair(const char *vocab_path, const char *merges_path, struct wh_tokenizer **out) {
    char *vocab, *merges;
    size_t vocab_bytes, merges_bytes;
    WH_TRY(wh_file_read(vocab_path, FILE_BYTES_MAX, &vocab, &vocab_bytes));
    enum wh_status status = wh_file_read(merges_path, FILE_BYTES_MAX, &merges, &merges_bytes);
    if (status == WH_OK) {
        status = wh_tokenizer_parse_pair(vocab_path, vocab, vocab_bytes, merges_path, merges, merges_bytes, out);
        free(merges);
    }
    free(vocab);
    return status;
}

static enum wh_status open_bytes(struct wh_tokenizer **out) {
    struct wh_tokenizer *t = wh_tokenizer_new();
    if (!t) return WH_FAIL(WH_NOMEM, "no memory for a tokenizer");
    enum wh_status status = WH_OK;
    t->raw_bytes = true;
    for (int b = 0; b < 256 && status == WH_OK; b++) {
        unsigned char byte = (unsigned char)b;
        status = wh_vocab_add(&t->vocab, (uint32_t)b, &byte, 1, true);
    }
    return deliver(t, status, out);
}

/* The pairs of names under which a vocabulary and its merges go. */
static const char *const pair_names[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static enum wh_status open_folder(const char *folder, struct wh_tokenizer **out) {
    char *json = wh_path_join(folder, "tokenizer.json");
    enum wh_status status = WH_FAIL(
        WH_IO, "%s: holds neither tokenizer.json nor vocab.json with merges.txt nor encoder.json with vocab.bpe",
        folder);
    bool found = wh_file_exists(json);
    if (found) status = open_json(json, out);
    free(json);
    for (int i = 0; i < 2 && !found; i++) {
        char *vocab = wh_path_join(folder, pair_names[i][0]), *merges = wh_path_join(folder, pair_names[i][1]);
        found = wh_file_exists(vocab) && wh_file_exists(merges);
        if (found) status = open_pair(vocab, merges, out);
        free(vocab), free(merges);
    }
    return status;
}

enum wh_status wh_tokenizer_open(const char *what, struct wh_tokenizer **out) {
    if (strcmp(what, "bytes") == 0) return open_bytes(out);
    if (wh_dir_exists(what)) return open_folder(what, out);
    for (int i = 0; i < 2; i++) {
        if (!ends_with(what, pair_names[i][0])) continue;
        size_t stem = strlen(what) - strlen(pair_names[i][0]);
        char *merges = malloc(stem + strlen(pair_names[i][1]) + 1);
        if (!merges) return WH_FAIL(WH_NOMEM, "no memory for a path");
        sprintf(merges, "%.*s%s", (int)stem, what, pair_names[i][1]);
        enum wh_status status = open_pair(what, merges, out);
        free(merges);
        return status;
    }
    if (!wh_file_exists(what))
        return WH_FAIL(
            WH_IO,
            "there is no tokenizer '%s'; legal: bytes, or the path of a tokenizer.json, of a vocab.json beside"
            " its merges.txt, or of a folder with these",
            what);
    return open_json(what, out);
}
