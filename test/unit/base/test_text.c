#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "base/text.h"

static void add_grows(void **state) {
    (void)state;
    struct wh_text t = {0};
    char want[4000] = "";
    for (int i = 0; i < 700; i++) {
        wh_text_add(&t, "%d,", i);
        sprintf(want + strlen(want), "%d,", i);
        assert_true(t.bytes == strlen(want) && t.capacity > t.bytes);
        assert_string_equal(t.data, want);
    }
    wh_text_fini(&t);
    assert_true(t.data == NULL && t.bytes == 0 && t.capacity == 0);
}

/* Every length around the first capacity, in one piece: the NUL must always fit. */
static void add_at_the_edge(void **state) {
    (void)state;
    char piece[200];
    memset(piece, 'x', sizeof piece);
    for (int first = 0; first < 70; first++)
        for (int second = 0; second < 130; second++) {
            struct wh_text t = {0};
            wh_text_add(&t, "%.*s", first, piece);
            wh_text_add_bytes(&t, piece, (size_t)second);
            assert_int_equal(t.bytes, first + second);
            assert_int_equal(strlen(t.data), t.bytes);
            wh_text_fini(&t);
        }
}

static void empty_adds_make_text(void **state) {
    (void)state;
    struct wh_text t = {0};
    wh_text_clear(&t);
    assert_null(t.data);
    wh_text_add_bytes(&t, NULL, 0);
    assert_string_equal(t.data, "");
    wh_text_add(&t, "%s", "");
    assert_string_equal(t.data, "");
    wh_text_add_bytes(&t, "a\0b", 3);
    assert_int_equal(t.bytes, 3);
    assert_memory_equal(t.data, "a\0b", 4);
    wh_text_clear(&t);
    assert_string_equal(t.data, "");
    wh_text_fini(&t);
}

static void distances(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        size_t want;
    } known[] = {{"", "", 0},      {"", "abc", 3},          {"kitten", "sitting", 3},
                 {"dp", "dpp", 1}, {"train", "trian", 1},   {"Zero_Stage", "zero_stage", 0},
                 {"ca", "abc", 3}, {"abcdef", "abcfde", 2}, {"grain", "brain", 1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(wh_text_distance(known[i].a, known[i].b), known[i].want);
        assert_int_equal(wh_text_distance(known[i].b, known[i].a), known[i].want);
    }
}

/* Words longer than the table are compared by their first 63 letters. */
static void distance_of_long_words(void **state) {
    (void)state;
    char a[200], b[200];
    memset(a, 'a', 199), memset(b, 'b', 199);
    a[199] = b[199] = '\0';
    assert_int_equal(wh_text_distance(a, a), 0);
    assert_int_equal(wh_text_distance(a, b), 63);
    assert_int_equal(wh_text_distance(a, ""), 63);
}

static void nearest_names_typing_errors_only(void **state) {
    (void)state;
    static const char *const words[] = {"dp", "tp", "pp", "cp", "schedule", "micro_batch_size", "zero_stage"};
    const size_t count = sizeof words / sizeof words[0];
    assert_string_equal(wh_text_nearest("dpp", words, count), "dp");
    assert_string_equal(wh_text_nearest("shcedule", words, count), "schedule");
    assert_string_equal(wh_text_nearest("microbatch_size", words, count), "micro_batch_size");
    assert_string_equal(wh_text_nearest("ZERO_STAGE", words, count), "zero_stage");
    assert_string_equal(wh_text_nearest("schedule", words, count), "schedule");
    assert_null(wh_text_nearest("learning_rate", words, count));
    assert_null(wh_text_nearest("xyz", words, count));
    assert_null(wh_text_nearest("dp", words, 0));
}

static void lines_come_one_by_one(void **state) {
    (void)state;
    struct wh_text t = {0};
    char *at = NULL;
    assert_null(wh_text_next_line(&t, &at));
    wh_text_add(&t, "one\n\ntwo\nthree");
    assert_string_equal(wh_text_next_line(&t, &at), "one");
    assert_string_equal(wh_text_next_line(&t, &at), "two");
    assert_string_equal(wh_text_next_line(&t, &at), "three");
    assert_null(wh_text_next_line(&t, &at));
    wh_text_fini(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_one_by_one),
        cmocka_unit_test(add_grows),
        cmocka_unit_test(add_at_the_edge),
        cmocka_unit_test(empty_adds_make_text),
        cmocka_unit_test(distances),
        cmocka_unit_test(distance_of_long_words),
        cmocka_unit_test(nearest_names_typing_errors_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
