/* Overrides and the effective configuration carry any text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "config/config.h"

static const char small[] =
    "model: {model_config: {hidden_size: 16, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
    "vocab_size: 256}}\n"
    "tokens: {global_batch_size: 8, sequence_length: 32, train_steps: 20}\n"
    "data: {train: a.txt}\n";

/* A configuration and overrides; the faults stay in `f`. */
static void load(const char *text, const char *const *sets, size_t count, struct wh_config *c, struct wh_faults *f) {
    *f = (struct wh_faults){0};
    wh_config_parse(text, strlen(text), "run.yaml", sets, count, c, f);
    wh_config_check(c, f);
}

static void load_trace(const char *trace, struct wh_config *c, struct wh_faults *f) {
    struct wh_text set = {0};
    wh_config_add_set(&set, "logging.trace", trace);
    load(small, (const char *const *)&set.data, 1, c, f);
    wh_text_fini(&set);
}

static void expect_trace(const char *trace, const struct wh_config *c, const struct wh_faults *f) {
    if (f->count) fail_msg("'%s': %s", trace, f->text.data);
    assert_string_equal(c->logging.trace, trace);
}

static void any_text(void **state) {
    (void)state;
    static const char *const texts[] = {"t.json",
                                        "a: b #c",
                                        "-",
                                        "-x",
                                        "- x",
                                        "null",
                                        "~",
                                        "\"'",
                                        "{a: [1, &x, *y]}",
                                        "!!str x",
                                        " two  spaces ",
                                        "line\n  next\r\n\n",
                                        "tab\t",
                                        "\x01\x7f\x1b[0m",
                                        "back\\slash\\n",
                                        "%TAG",
                                        "---",
                                        "|",
                                        ">",
                                        "@`",
                                        "a=b",
                                        "0x10",
                                        "万核",
                                        "\xc2\x85\xc2\xa0\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf",
                                        "\xf0\x9f\x9a\x80",
                                        "?",
                                        ": ",
                                        "#"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct wh_config first, second;
        struct wh_faults f;
        struct wh_text effective = {0};
        load_trace(texts[i], &first, &f);
        expect_trace(texts[i], &first, &f);
        wh_config_effective(&first, &effective);
        load(effective.data, NULL, 0, &second, &f);
        expect_trace(texts[i], &second, &f);
        wh_text_fini(&effective);
        wh_config_free(&first);
        wh_config_free(&second);
    }
}

/* What is not UTF-8 is refused: not read beyond its end, not taken for another text. */
static void no_text(void **state) {
    (void)state;
    static const char *const texts[] = {"\xff",       "\xf0",     "\xf0\x9f\x9a", "a\xc2",        "\x80\x80\x80",
                                        "\xe2\x80 x", "\xc0\x81", "\xe0\x80\x81", "\xed\xa0\x80", "\xf7\xbf\xbf\xbf"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *copy = strdup(texts[i]); /* on the heap, which the sanitizer watches */
        struct wh_config c;
        struct wh_faults f;
        load_trace(copy, &c, &f);
        if (f.count != 1) fail_msg("text %zu is taken for '%s'", i, c.logging.trace);
        wh_faults_status(&f, WH_CONFIG);
        wh_config_free(&c);
        free(copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_text), cmocka_unit_test(no_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
