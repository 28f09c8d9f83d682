/* Documents of text and JSON lines, and the held-out part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/corpus.h"
#include "test/support/folder.h"

static char folder[TEST_FOLDER_BYTES], path[128];

static int make_folder(void **state) {
    (void)state;
    return test_folder_make(folder, "corpus") ? 0 : -1;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static enum wh_status add(struct wh_corpus *c, const char *name, const char *content, enum wh_document_split split) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(wh_file_write_all(path, content, strlen(content)), WH_OK);
    return wh_corpus_add(c, path, split);
}

static void check(const struct wh_corpus *c, size_t i, const char *text, size_t line) {
    assert_true(i < c->count);
    assert_int_equal(c->document[i].bytes, strlen(text));
    assert_memory_equal(c->document[i].text, text, strlen(text));
    assert_int_equal(c->document[i].line, line);
}

static void test_text(void **state) {
    (void)state;
    static const char text[] = "one\ntwo\r\n\n \t\n\nthree\nfour";
    struct wh_corpus c = {0};
    assert_int_equal(add(&c, "a.txt", text, WH_DOCUMENTS_FILE), WH_OK);
    assert_int_equal(c.count, 1);
    check(&c, 0, text, 1);
    wh_corpus_free(&c);
    assert_int_equal(add(&c, "a.txt", text, WH_DOCUMENTS_LINE), WH_OK);
    assert_int_equal(c.count, 4);
    check(&c, 1, "two", 2), check(&c, 2, "three", 6);
    wh_corpus_free(&c);
    assert_int_equal(add(&c, "a.txt", text, WH_DOCUMENTS_BLANK), WH_OK);
    assert_int_equal(add(&c, "b.txt", "", WH_DOCUMENTS_FILE), WH_OK);
    assert_int_equal(c.count, 2);
    check(&c, 0, "one\ntwo", 1), check(&c, 1, "three\nfour", 6);
    assert_int_equal(c.bytes, 17);
    wh_corpus_free(&c);
}

static void test_json_lines(void **state) {
    (void)state;
    struct wh_corpus c = {0};
    assert_int_equal(add(&c, "a.jsonl", "{\"text\": \"a\\nb\", \"id\": 1}\n\n{\"text\": \"\\u4f60\"}\n{\"text\": \"\"}",
                         WH_DOCUMENTS_FILE),
                     WH_OK);
    assert_int_equal(c.count, 2);
    check(&c, 0, "a\nb", 1), check(&c, 1, "\xe4\xbd\xa0", 3);
    assert_int_equal(add(&c, "b.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n", WH_DOCUMENTS_FILE), WH_DATA);
    assert_non_null(strstr(wh_error()->message, "b.jsonl:2: no string \"text\""));
    assert_int_equal(add(&c, "c.jsonl", "{\"text\": \"a\"", WH_DOCUMENTS_FILE), WH_DATA);
    assert_non_null(strstr(wh_error()->message, "c.jsonl:1: "));
    assert_int_equal(wh_corpus_add(&c, "/nowhere.txt", WH_DOCUMENTS_FILE), WH_IO);
    wh_corpus_free(&c);
}

static void test_cut(void **state) {
    (void)state;
    struct wh_corpus c = {0};
    size_t first;
    assert_int_equal(wh_corpus_cut(&c, 0.1, &first), WH_DATA);
    assert_int_equal(add(&c, "a.txt", "1234567\n90123456789", WH_DOCUMENTS_FILE), WH_OK);
    assert_int_equal(wh_corpus_cut(&c, 0.1, &first), WH_OK);
    assert_int_equal(first, 1);
    check(&c, 0, "1234567\n", 1), check(&c, 1, "90123456789", 2);
    wh_corpus_free(&c);
    assert_int_equal(add(&c, "a.txt", "\xe4\xbd\xa0\xe5\xa5\xbd", WH_DOCUMENTS_FILE), WH_OK);
    assert_int_equal(wh_corpus_cut(&c, 0.25, &first), WH_OK);
    check(&c, 0, "\xe4\xbd\xa0", 1), check(&c, 1, "\xe5\xa5\xbd", 1);
    wh_corpus_free(&c);
    assert_int_equal(add(&c, "a.txt", "\xe4\xbd\xa0", WH_DOCUMENTS_FILE), WH_OK);
    assert_int_equal(wh_corpus_cut(&c, 0.5, &first), WH_DATA);
    wh_corpus_free(&c);
    static const double fractions[] = {0.001, 0.1, 0.5, 0.95};
    static const size_t want[] = {9, 9, 5, 1}; /* never all, never none */
    assert_int_equal(add(&c, "a.txt", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", WH_DOCUMENTS_LINE), WH_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(wh_corpus_cut(&c, fractions[i], &first), WH_OK);
        assert_int_equal(first, want[i]);
    }
    wh_corpus_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_json_lines),
                                       cmocka_unit_test(test_cut)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
