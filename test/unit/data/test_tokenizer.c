/* Tokenizers against golden ids and words, files in all spellings, refusals, training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "data/nfc.h"
#include "data/split.h"
#include "data/tokenizer.h"
#include "data/utf8.h"
#include "os/file.h"
#include "test/support/folder.h"

/* Made by tools/make_gpt2_golden.js; tests run in the root of the repository. */
static const char golden[] = "test/golden/tokenizer";

static void assert_says(const char *text) {
    const struct wh_error *e = wh_error();
    bool said = strstr(e->message, text) != NULL;
    for (int i = 0; i < e->frames; i++) said |= strstr(e->frame[i], text) != NULL;
    if (!said) fail_msg("'%s' is not in '%s'", text, e->message);
}

static void check_ids(struct wh_tokenizer *t, const char *text, size_t bytes, enum wh_added mode, const uint32_t *want,
                      size_t count) {
    struct wh_token_list ids = {0};
    assert_int_equal(wh_tokenizer_encode(t, text, bytes, mode, &ids), WH_OK);
    assert_int_equal(ids.count, count);
    if (count) assert_memory_equal(ids.ids, want, count * sizeof *want);
    wh_token_list_fini(&ids);
}

static void check_round_trip(struct wh_tokenizer *t, const char *text, size_t bytes) {
    struct wh_token_list ids = {0};
    struct wh_text raw = {0}, shown = {0};
    assert_int_equal(wh_tokenizer_encode(t, text, bytes, WH_ADDED_MATCH, &ids), WH_OK);
    assert_int_equal(wh_tokenizer_decode_bytes(t, ids.ids, ids.count, true, &raw), WH_OK);
    assert_int_equal(wh_tokenizer_decode_text(t, ids.ids, ids.count, true, &shown), WH_OK);
    assert_int_equal(raw.bytes, bytes);
    assert_int_equal(shown.bytes, bytes);
    if (bytes) assert_memory_equal(raw.data, text, bytes);
    if (bytes) assert_memory_equal(shown.data, text, bytes);
    wh_token_list_fini(&ids), wh_text_fini(&raw), wh_text_fini(&shown);
}

static json_t *golden_cases(json_t **root) {
    char path[128];
    snprintf(path, sizeof path, "%s/gpt2.json", golden);
    *root = json_load_file(path, 0, NULL);
    assert_non_null(*root);
    return json_object_get(*root, "cases");
}

static void test_gpt2_golden(void **state) {
    (void)state;
    static const uint32_t hello[] = {15496, 995, 0, 220, 19526, 254, 25001, 121};
    struct wh_tokenizer *t;
    json_t *root, *list = golden_cases(&root), *one;
    size_t i;
    uint32_t end;
    assert_int_equal(wh_tokenizer_open(golden, &t), WH_OK);
    assert_int_equal(wh_tokenizer_vocab(t), 50257);
    assert_true(wh_tokenizer_end_of_text(t, &end));
    assert_int_equal(end, 50256);
    assert_true(wh_tokenizer_begin_of_text(t, &end));
    assert_int_equal(end, 50256);
    check_ids(t, "Hello world! 你好", strlen("Hello world! 你好"), WH_ADDED_MATCH, hello, 8);
    assert_true(json_array_size(list) >= 15);
    json_array_foreach(list, i, one) {
        const json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
        uint32_t want[512];
        size_t n = json_array_size(ids);
        for (size_t k = 0; k < n; k++) want[k] = (uint32_t)json_integer_value(json_array_get(ids, k));
        for (int again = 0; again < 2; again++) /* the second time from the cache of words */
            check_ids(t, json_string_value(text), json_string_length(text), WH_ADDED_MATCH, want, n);
        check_round_trip(t, json_string_value(text), json_string_length(text));
    }
    wh_tokenizer_close(t);
    json_decref(root);
}

static void test_split_golden(void **state) {
    (void)state;
    static const char *const names[WH_SPLIT_COUNT] = {"gpt2", "llama3", "qwen2"};
    json_t *root, *list = golden_cases(&root), *one, *word;
    for (int kind = 0; kind < WH_SPLIT_COUNT; kind++) {
        struct wh_split split;
        size_t i, w;
        assert_int_equal(wh_split_new((enum wh_split_kind)kind, &split), WH_OK);
        json_array_foreach(list, i, one) {
            const char *text = json_string_value(json_object_get(one, "text"));
            size_t at = 0, n, bytes = strlen(text);
            json_array_foreach(json_object_get(json_object_get(one, "words"), names[kind]), w, word) {
                assert_true(at < bytes);
                assert_int_equal(wh_split_next(&split, text, bytes, at, &n), WH_OK);
                assert_int_equal(n, json_string_length(word));
                assert_memory_equal(text + at, json_string_value(word), n);
                at += n;
            }
            assert_int_equal(at, bytes);
        }
        wh_split_free(&split);
    }
    json_decref(root);
}

/* A tokenizer.json of the 256 bytes (ids from `first`), `more` entries, merges and added tokens; caller frees. */
static char *make_json(uint32_t first, const char *more, const char *merges, const char *added, const char *pre,
                       const char *rest) {
    struct wh_text t = {0};
    wh_text_add(&t,
                "{\"added_tokens\": [%s], \"normalizer\": null, \"pre_tokenizer\": %s, %s \"model\": "
                "{\"type\": \"BPE\", \"merges\": [%s], \"vocab\": {",
                added, pre, rest, merges);
    for (uint32_t b = 0; b < 256; b++)
        wh_text_add(&t, "%s\"\\u%04x\": %u", b ? ", " : "", wh_byte_to_letter((unsigned char)b), first + b);
    wh_text_add(&t, "%s}}}", more);
    return t.data;
}

static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}";

static struct wh_tokenizer *parse(char *json) {
    struct wh_tokenizer *t = NULL;
    enum wh_status status = wh_tokenizer_parse_json("t.json", json, strlen(json), &t);
    if (status != WH_OK) fail_msg("%s", wh_error()->message);
    free(json);
    return t;
}

static void refuse(char *json, enum wh_status code, const char *says) {
    struct wh_tokenizer *t = NULL;
    assert_int_equal(wh_tokenizer_parse_json("t.json", json, strlen(json), &t), code);
    assert_null(t);
    assert_says("t.json"), assert_says(says);
    free(json);
}

/* Case B58. */
static void test_one_character_over_tokens(void **state) {
    (void)state;
    static const uint32_t lai[] = {0xe4, 0xbe, 0x86}, umlaut[] = {0xc3, 0xa4};
    struct wh_tokenizer *t = parse(make_json(0, "", "", "", byte_level, ""));
    struct wh_text text = {0};
    assert_int_equal(wh_byte_to_letter(0xe4), 0xe4);
    assert_int_equal(wh_byte_to_letter(0xbe), 0xbe);
    assert_int_equal(wh_byte_to_letter(0x86), 0x128);
    check_ids(t, "\xe4\xbe\x86", 3, WH_ADDED_MATCH, lai, 3);
    check_ids(t, "\xc3\xa4", 2, WH_ADDED_MATCH, umlaut, 2);
    check_round_trip(t, "\xe4\xbe\x86\xc3\xa4", 5);
    assert_int_equal(wh_tokenizer_decode_text(t, lai, 2, true, &text), WH_OK);
    assert_string_equal(text.data, "\xef\xbf\xbd");
    wh_text_clear(&text);
    assert_int_equal(wh_tokenizer_decode_bytes(t, lai, 2, true, &text), WH_OK);
    assert_string_equal(text.data, "\xe4\xbe");
    wh_text_fini(&text);
    struct wh_token_list ids = {0};
    assert_int_equal(wh_tokenizer_encode(t, "ab\xe4\xbe", 4, WH_ADDED_MATCH, &ids), WH_DATA);
    assert_says("byte 2 (0xe4)");
    assert_int_equal(ids.count, 0);
    static const uint32_t unknown[] = {256};
    assert_int_equal(wh_tokenizer_decode_bytes(t, unknown, 1, true, &text), WH_DATA);
    wh_tokenizer_close(t);
}

/* Case B59: a text of 1 KiB from both spellings. */
static void test_merges_as_pairs(void **state) {
    (void)state;
    static const char more[] = ", \"th\": 256, \"the\": 257, \"\\u0120the\": 258, \"in\": 259";
    struct wh_tokenizer *a =
        parse(make_json(0, more, "\"t h\", \"th e\", \"\\u0120 the\", \"i n\"", "", byte_level, ""));
    struct wh_tokenizer *b = parse(make_json(
        0, more, "[\"t\", \"h\"], [\"th\", \"e\"], [\"\\u0120\", \"the\"], [\"i\", \"n\"]", "", byte_level, ""));
    char text[1025] = "";
    struct wh_token_list ids = {0};
    while (strlen(text) + 21 < sizeof text) strcat(text, "the thin man in there ");
    assert_int_equal(wh_tokenizer_encode(a, text, strlen(text), WH_ADDED_MATCH, &ids), WH_OK);
    assert_int_equal(ids.ids[0], 257);
    assert_true(ids.count < strlen(text) * 3 / 4);
    check_ids(b, text, strlen(text), WH_ADDED_MATCH, ids.ids, ids.count);
    wh_token_list_fini(&ids);
    wh_tokenizer_close(a), wh_tokenizer_close(b);
}

/* Case B60: </s> has id 2. Ids of bytes start at 10. */
static void test_special_in_text(void **state) {
    (void)state;
    static const uint32_t one[] = {10 + 'a', 10 + 'b', 2}, two[] = {10 + 'a', 10 + ' ', 10 + 'b', 2, 10 + 'c'};
    static const uint32_t longer[] = {3, 2}, plain[] = {10 + '<', 10 + '/', 10 + 's', 10 + '>'};
    struct wh_tokenizer *t =
        parse(make_json(10, "", "",
                        "{\"id\": 2, \"content\": \"</s>\", \"special\": true}, {\"id\": 3, \"content\": "
                        "\"</s></s>\", \"special\": true}, {\"id\": 4, \"content\": \"@@\", \"special\": false}",
                        byte_level, ""));
    check_ids(t, "ab</s>", 6, WH_ADDED_MATCH, one, 3);
    check_ids(t, "a b</s>c", 8, WH_ADDED_MATCH, two, 5);
    check_ids(t, "</s></s></s>", 12, WH_ADDED_MATCH, longer, 2);
    check_ids(t, "</s>", 4, WH_ADDED_AS_TEXT, plain, 4);
    check_ids(t, "@@", 2, WH_ADDED_AS_TEXT, (const uint32_t[]){4}, 1); /* added, but not special */
    check_round_trip(t, "a b</s>c", 8);
    struct wh_text text = {0};
    assert_int_equal(wh_tokenizer_decode_text(t, two, 5, false, &text), WH_OK);
    assert_string_equal(text.data, "a bc");
    wh_text_fini(&text);
    uint32_t end;
    assert_true(wh_tokenizer_end_of_text(t, &end));
    assert_int_equal(end, 2);
    assert_false(wh_tokenizer_begin_of_text(t, &end));
    wh_tokenizer_close(t);
}

static void test_ignore_merges(void **state) {
    (void)state;
    char *json = make_json(0, ", \"xyz\": 300", "", "", byte_level, "");
    struct wh_tokenizer *t = parse(strdup(json));
    check_ids(t, "xyz", 3, WH_ADDED_MATCH, (const uint32_t[]){'x', 'y', 'z'}, 3);
    wh_tokenizer_close(t);
    struct wh_text with = {0};
    wh_text_add(&with, "%.*s\"ignore_merges\": true, %s", (int)(strstr(json, "\"type\": \"BPE\"") - json), json,
                strstr(json, "\"type\": \"BPE\""));
    free(json);
    t = parse(with.data);
    check_ids(t, "xyz", 3, WH_ADDED_MATCH, (const uint32_t[]){300}, 1);
    wh_tokenizer_close(t);
}

#define SPLIT(pattern)                                                                                             \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern       \
    "\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, " \
    "\"use_regex\": false}]}"

static void test_refusals(void **state) {
    (void)state;
    refuse(strdup("{"), WH_DATA, "t.json:1");
    refuse(strdup("[]"), WH_DATA, "object");
    refuse(make_json(0, "", "", "", "null", ""), WH_UNSUPPORTED, "pre_tokenizer");
    refuse(make_json(0, "", "", "", "{\"type\": \"Whitespace\"}", ""), WH_UNSUPPORTED, "Whitespace");
    refuse(make_json(0, "", "", "", SPLIT("\\\\w+"), ""), WH_UNSUPPORTED, "unknown split pattern '\\w+'");
    refuse(make_json(0, "", "", "", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", ""), WH_UNSUPPORTED,
           "add_prefix_space");
    refuse(make_json(0, "", "", "", "{\"type\": \"ByteLevel\", \"use_regex\": false}", ""), WH_UNSUPPORTED,
           "use_regex");
    refuse(make_json(0, "", "", "", byte_level, "\"decoder\": {\"type\": \"WordPiece\"},"), WH_UNSUPPORTED,
           "WordPiece");
    refuse(make_json(0, "", "", "{\"id\": 300, \"content\": \"x\", \"lstrip\": true}", byte_level, ""), WH_UNSUPPORTED,
           "lstrip");
    refuse(make_json(0, "", "", "{\"id\": 300, \"content\": \"x\"}", byte_level, ""), WH_DATA, "300");
    refuse(make_json(0, "", "", "{\"id\": 97, \"content\": \"zz\"}", byte_level, ""), WH_DATA, "t.json");
    refuse(make_json(0, ", \"ab\": 97", "", "", byte_level, ""), WH_DATA, "twice");
    refuse(make_json(0, ", \"ab\": -1", "", "", byte_level, ""), WH_DATA, "'ab'");
    refuse(make_json(0, ", \"ab\": 99999999", "", "", byte_level, ""), WH_DATA, "'ab'");
    refuse(make_json(0, "", "\"a b\"", "", byte_level, ""), WH_DATA, "'ab'");
    refuse(make_json(0, "", "\"ab\"", "", byte_level, ""), WH_DATA, "merge 0");
    refuse(make_json(0, "", "[\"a\"]", "", byte_level, ""), WH_DATA, "merge 0");
    refuse(strdup("{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"Unigram\"}}"), WH_UNSUPPORTED,
           "Unigram");
    refuse(strdup("{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"byte_fallback\": true, \"vocab\": {}, "
                  "\"merges\": []}}"),
           WH_UNSUPPORTED, "byte_fallback");
    refuse(strdup("{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": 1}, "
                  "\"merges\": []}}"),
           WH_UNSUPPORTED, "byte 0x00");
    refuse(strdup("{\"normalizer\": {\"type\": \"Lowercase\"}}"), WH_UNSUPPORTED, "Lowercase");
    struct wh_tokenizer *t;
    assert_int_equal(wh_tokenizer_open("/nowhere/tokenizer.json", &t), WH_IO);
    assert_int_equal(wh_tokenizer_open("test", &t), WH_IO);
    assert_says("neither");
}

/* Qwen2: its pattern takes digits one by one; NFC is checked, not done. */
static void test_qwen2(void **state) {
    (void)state;
    struct wh_text json = {0};
    char *rest = make_json(0, ", \"12\": 256", "\"1 2\"", "", "null", "");
    const char *old = "\"normalizer\": null, \"pre_tokenizer\": null";
    char *at = strstr(rest, old);
    struct wh_text pattern = {0};
    for (const char *p = wh_split_pattern(WH_SPLIT_QWEN2); *p; p++)
        wh_text_add(&pattern, *p == '\\' ? "\\\\" : "%c", *p);
    wh_text_add(
        &json,
        "%.*s\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": "
        "[{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}, {\"type\": "
        "\"ByteLevel\", \"use_regex\": false}]}%s",
        (int)(at - rest), rest, pattern.data, at + strlen(old));
    free(rest), wh_text_fini(&pattern);
    struct wh_tokenizer *t = parse(json.data);
    check_ids(t, "12", 2, WH_ADDED_MATCH, (const uint32_t[]){'1', '2'}, 2);
    check_round_trip(t, "模型 caf\xc3\xa9 한국 😀", strlen("模型 caf\xc3\xa9 한국 😀"));
    struct wh_token_list ids = {0};
    assert_int_equal(wh_tokenizer_encode(t, "cafe\xcc\x81", 6, WH_ADDED_MATCH, &ids), WH_UNSUPPORTED);
    assert_says("U+0301 at byte 4");
    assert_int_equal(wh_tokenizer_encode(t, "\xe2\x84\xab", 3, WH_ADDED_MATCH, &ids), WH_UNSUPPORTED); /* Angstrom */
    wh_token_list_fini(&ids);
    wh_tokenizer_close(t);
    /* Marks of other scripts stay where their classes are in order: kasra 32, shadda 33. */
    assert_int_equal(wh_nfc_check("\xd9\x90\xd9\x91", 4), 4);
    assert_int_equal(wh_nfc_check("\xd9\x91\xd9\x90", 4), 2);
    assert_int_equal(wh_nfc_check("a\xcc\x96\xcc\x96", 5), 5); /* equal classes */
}

static void test_bytes(void **state) {
    (void)state;
    struct wh_tokenizer *t;
    uint32_t id, all[256];
    char text[256];
    for (uint32_t i = 0; i < 256; i++) all[i] = i, text[i] = (char)i;
    assert_int_equal(wh_tokenizer_open("bytes", &t), WH_OK);
    assert_int_equal(wh_tokenizer_vocab(t), 256);
    assert_false(wh_tokenizer_end_of_text(t, &id));
    check_ids(t, text, 256, WH_ADDED_MATCH, all, 256);
    assert_int_equal(wh_tokenizer_write(t, "never.json"), WH_CONFIG);
    wh_tokenizer_close(t);
}

/* The alphabet is one to one, and printable. */
static void test_alphabet(void **state) {
    (void)state;
    int seen[512] = {0};
    for (int b = 0; b < 256; b++) {
        unsigned char back;
        uint32_t letter = wh_byte_to_letter((unsigned char)b);
        assert_true(letter < 512 && !seen[letter]++ && letter > 32);
        assert_true(wh_letter_to_byte(letter, &back));
        assert_int_equal(back, b);
    }
    unsigned char byte;
    for (uint32_t c = 0; c < 0x400; c++)
        if (c >= 512 || !seen[c]) assert_false(wh_letter_to_byte(c, &byte));
    assert_int_equal(wh_byte_to_letter(' '), 0x120);
    assert_int_equal(wh_byte_to_letter('\n'), 0x10a);
    assert_int_equal(wh_byte_to_letter(173), 0x143);
}

/* Broken UTF-8, one replacement per maximal subpart (Unicode 15, table 3-8 and its kin). */
static void test_broken_utf8(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t parts[8];
    } cases[] = {{"\x80", {1}},
                 {"\xc0\xaf", {1, 1}},
                 {"\xe0\x80\x80", {1, 1, 1}},
                 {"\xf4\x8f\xbf", {3}},
                 {"\xf4\x90\x80", {1, 1, 1}},
                 {"\xed\xa0\x80", {1, 1, 1}},
                 {"\xe4\xbe", {2}},
                 {"\xf0\x9f\x98", {3}},
                 {"\xf5\x80", {1, 1}},
                 {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf", {2, 1, 3, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned char *p = (const unsigned char *)cases[i].bytes;
        size_t n = strlen(cases[i].bytes), at = 0, bad;
        for (int k = 0; at < n; k++, at += bad) {
            assert_int_equal(wh_utf8_length(p + at, n - at, &bad), 0);
            assert_int_equal(bad, cases[i].parts[k]);
        }
        assert_int_equal(wh_utf8_check(p, n), 0);
    }
    for (uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        unsigned char p[4];
        size_t bad, n = wh_utf8_put(c, p);
        if (c >= 0xd800 && c < 0xe000) {
            assert_int_equal(wh_utf8_length(p, n, &bad), 0);
            continue;
        }
        assert_int_equal(wh_utf8_length(p, n, &bad), n);
        assert_int_equal(wh_utf8_get(p, n), c);
    }
}

/* hug pug pun bun hugs: the textbook example, counts chosen so that every choice is forced or a tie. */
static void test_train_by_hand(void **state) {
    (void)state;
    static const char text[] =
        "hug hug hug hug hug hug hug hug hug hug pug pug pug pug pug pun pun pun pun pun pun "
        "pun pun pun pun pun pun bun bun bun bun hugs hugs hugs hugs hugs";
    const char *texts[] = {text};
    const size_t bytes[] = {sizeof text - 1};
    struct wh_tokenizer *t;
    struct wh_text out = {0};
    assert_int_equal(wh_tokenizer_train(texts, bytes, 1, 260, &t), WH_OK);
    assert_int_equal(wh_tokenizer_vocab(t), 260);
    /* "ug" 20 times; then "un" 16 and " p" 17: " p" first; then "un" 16 */
    static const char *const want[] = {"ug", " p", "un"};
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t id = 256 + i;
        wh_text_clear(&out);
        assert_int_equal(wh_tokenizer_decode_bytes(t, &id, 1, true, &out), WH_OK);
        assert_string_equal(out.data, want[i]);
    }
    wh_text_fini(&out);
    uint32_t end;
    assert_true(wh_tokenizer_end_of_text(t, &end));
    assert_int_equal(end, 259);
    wh_tokenizer_close(t);
    assert_int_equal(wh_tokenizer_train(texts, bytes, 1, 5000, &t), WH_OK); /* ends when nothing repeats */
    assert_true(wh_tokenizer_vocab(t) < 290);
    wh_tokenizer_close(t);
    assert_int_equal(wh_tokenizer_train(texts, bytes, 1, 256, &t), WH_USAGE);
    const char *broken[] = {"\xff"};
    const size_t one[] = {1};
    assert_int_equal(wh_tokenizer_train(broken, one, 1, 300, &t), WH_DATA);
}

/* Ties go to the smaller pair, whatever the order of the texts: each pair occurs twice. */
static void test_train_ties(void **state) {
    (void)state;
    static const char *const orders[2][6] = {{"ab", "cd", "ef", "ab", "cd", "ef"},
                                             {"ef", "ef", "cd", "cd", "ab", "ab"}};
    static const size_t bytes[6] = {2, 2, 2, 2, 2, 2};
    for (int i = 0; i < 2; i++) {
        struct wh_tokenizer *t;
        assert_int_equal(wh_tokenizer_train(orders[i], bytes, 6, 260, &t), WH_OK);
        check_ids(t, "ab", 2, WH_ADDED_MATCH, (const uint32_t[]){256}, 1);
        check_ids(t, "cd", 2, WH_ADDED_MATCH, (const uint32_t[]){257}, 1);
        check_ids(t, "ef", 2, WH_ADDED_MATCH, (const uint32_t[]){258}, 1);
        wh_tokenizer_close(t);
    }
}

/* Slow and plain: count all pairs of all words afresh for every merge. */
static void plain_train(const char *text, size_t bytes, size_t merges, uint32_t (*out)[2]) {
    enum { SYMBOLS = 70 };
    static uint32_t s[1 << 13], count[256 + SYMBOLS][256 + SYMBOLS];
    static unsigned char starts[1 << 13];
    struct wh_split split;
    size_t n = bytes;
    assert_true(bytes <= 1 << 13 && merges <= SYMBOLS);
    assert_int_equal(wh_split_new(WH_SPLIT_GPT2, &split), WH_OK);
    memset(starts, 0, sizeof starts);
    for (size_t at = 0, w; at < bytes; at += w) {
        assert_int_equal(wh_split_next(&split, text, bytes, at, &w), WH_OK);
        starts[at] = 1;
    }
    wh_split_free(&split);
    for (size_t i = 0; i < n; i++) s[i] = (unsigned char)text[i];
    for (size_t m = 0; m < merges; m++) {
        uint32_t best = 0, left = 0, right = 0;
        memset(count, 0, sizeof count);
        for (size_t i = 0; i + 1 < n; i++)
            if (!starts[i + 1]) count[s[i]][s[i + 1]]++;
        for (uint32_t a = 0; a < 256 + m; a++)
            for (uint32_t b = 0; b < 256 + m; b++)
                if (count[a][b] > best) best = count[a][b], left = a, right = b;
        out[m][0] = left, out[m][1] = right;
        size_t k = 0;
        for (size_t i = 0; i < n; k++) {
            bool here = i + 1 < n && !starts[i + 1] && s[i] == left && s[i + 1] == right;
            starts[k] = starts[i];
            s[k] = here ? 256 + (uint32_t)m : s[i];
            i += here ? 2 : 1;
        }
        n = k;
    }
}

/* Against the plain trainer, on random text of few letters (many ties, many overlaps). */
static void test_train_against_plain(void **state) {
    (void)state;
    enum { BYTES = 6000, MERGES = 60 };
    static char text[BYTES];
    static uint32_t want[MERGES][2];
    struct wh_rng r = wh_rng_stream(5, WH_RNG_TEST, 0, 0);
    for (uint32_t i = 0; i < BYTES; i++) text[i] = "aabbc  de"[wh_rng_u32(&r, i) % 9];
    plain_train(text, BYTES, MERGES, want);
    struct wh_tokenizer *t;
    const char *texts[] = {text};
    const size_t bytes[] = {BYTES};
    assert_int_equal(wh_tokenizer_train(texts, bytes, 1, 257 + MERGES, &t), WH_OK);
    for (uint32_t m = 0; m < MERGES; m++) {
        struct wh_text both = {0}, one = {0};
        const uint32_t id = 256 + m;
        assert_int_equal(wh_tokenizer_decode_bytes(t, want[m], 2, true, &both), WH_OK);
        assert_int_equal(wh_tokenizer_decode_bytes(t, &id, 1, true, &one), WH_OK);
        assert_string_equal(one.data, both.data);
        wh_text_fini(&both), wh_text_fini(&one);
    }
    check_round_trip(t, text, BYTES);
    wh_tokenizer_close(t);
}

/* Written, read again, and written again: the same ids, the same bytes. */
static void test_write_and_read(void **state) {
    (void)state;
    char folder[TEST_FOLDER_BYTES], path[2][96], *file[2];
    json_t *root, *list = golden_cases(&root);
    struct wh_text text = {0};
    size_t bytes[2];
    struct wh_tokenizer *t, *again;
    for (size_t i = 0; i < json_array_size(list); i++)
        wh_text_add(&text, "%s\n", json_string_value(json_object_get(json_array_get(list, i), "text")));
    const char *texts[] = {text.data, text.data};
    const size_t sizes[] = {text.bytes, text.bytes};
    assert_int_equal(wh_tokenizer_train(texts, sizes, 2, 700, &t), WH_OK);
    assert_int_equal(wh_tokenizer_vocab(t), 700);
    assert_true(test_folder_make(folder, "tokenizer"));
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/tokenizer%d.json", folder, i);
    assert_int_equal(wh_tokenizer_write(t, path[0]), WH_OK);
    assert_int_equal(wh_tokenizer_open(path[0], &again), WH_OK);
    assert_int_equal(wh_tokenizer_write(again, path[1]), WH_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(wh_file_read(path[i], 1 << 20, &file[i], &bytes[i]), WH_OK);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(file[0], file[1], bytes[0]);
    struct wh_token_list ids = {0};
    assert_int_equal(wh_tokenizer_encode(t, text.data, text.bytes, WH_ADDED_MATCH, &ids), WH_OK);
    check_ids(again, text.data, text.bytes, WH_ADDED_MATCH, ids.ids, ids.count);
    check_ids(again, "<|endoftext|>", 13, WH_ADDED_MATCH, (const uint32_t[]){699}, 1);
    check_round_trip(again, text.data, text.bytes);
    wh_token_list_fini(&ids), wh_text_fini(&text);
    free(file[0]), free(file[1]);
    wh_tokenizer_close(t), wh_tokenizer_close(again);
    json_decref(root);
    assert_int_equal(wh_dir_remove(folder), WH_OK);
}

/* More words than the cache has places, some of equal length in the same place. */
static void test_many_words(void **state) {
    (void)state;
    struct wh_tokenizer *t = parse(make_json(0, ", \"12\": 256", "\"1 2\"", "", byte_level, ""));
    struct wh_text text = {0};
    for (uint32_t i = 0; i < 60000; i++) wh_text_add(&text, " %05u", i);
    check_round_trip(t, text.data, text.bytes);
    wh_text_fini(&text);
    wh_tokenizer_close(t);
}

/* A word of a megabyte takes n log n, not n^2 (which would take minutes). */
static void test_long_word(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, 'a', BYTES);
    struct wh_tokenizer *t =
        parse(make_json(0, ", \"aa\": 256, \"aaaa\": 257", "\"a a\", \"aa aa\"", "", byte_level, ""));
    struct wh_token_list ids = {0};
    assert_int_equal(wh_tokenizer_encode(t, text, BYTES, WH_ADDED_MATCH, &ids), WH_OK);
    assert_int_equal(ids.count, BYTES / 4);
    ids.count = 0;
    memset(text, ' ', BYTES);
    assert_int_equal(wh_tokenizer_encode(t, text, BYTES, WH_ADDED_MATCH, &ids), WH_OK);
    assert_int_equal(ids.count, BYTES);
    wh_token_list_fini(&ids);
    wh_tokenizer_close(t);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2_golden),
                                       cmocka_unit_test(test_split_golden),
                                       cmocka_unit_test(test_one_character_over_tokens),
                                       cmocka_unit_test(test_merges_as_pairs),
                                       cmocka_unit_test(test_special_in_text),
                                       cmocka_unit_test(test_ignore_merges),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_qwen2),
                                       cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_alphabet),
                                       cmocka_unit_test(test_broken_utf8),
                                       cmocka_unit_test(test_train_by_hand),
                                       cmocka_unit_test(test_train_ties),
                                       cmocka_unit_test(test_train_against_plain),
                                       cmocka_unit_test(test_write_and_read),
                                       cmocka_unit_test(test_many_words),
                                       cmocka_unit_test(test_long_word)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
