#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

struct args {
    bool json, quiet;
    int verbose;
    const char *out, *file, *second;
    uint64_t steps;
    double rate;
    struct wh_option_list set, rest;
};

static const struct wh_option options[] = {
    {"FILE", 0, WH_OPTION_REQUIRED, offsetof(struct args, file), NULL, "input"},
    {"SECOND", 0, WH_OPTION_OPTIONAL, offsetof(struct args, second), NULL, "another"},
    {"MORE", 0, WH_OPTION_REST, offsetof(struct args, rest), NULL, "others"},
    {"out", 'o', WH_OPTION_TEXT, offsetof(struct args, out), "PATH", "where to"},
    {"steps", 'n', WH_OPTION_UINT, offsetof(struct args, steps), "N", "how many"},
    {"rate", 0, WH_OPTION_REAL, offsetof(struct args, rate), "X", "how fast"},
    {"set", 's', WH_OPTION_LIST, offsetof(struct args, set), "KEY=VALUE", "override"},
    {"json", 0, WH_OPTION_FLAG, offsetof(struct args, json), NULL, "JSON"},
    {"quiet", 'q', WH_OPTION_FLAG, offsetof(struct args, quiet), NULL, "silence"},
    {"verbose", 'v', WH_OPTION_COUNT, offsetof(struct args, verbose), NULL, "talk"},
    {0}};

enum { ARGUMENTS_MAX = 16 };

/* `line` is split at blanks; the fields of `a` point into `words`. */
static enum wh_status parse(const char *line, struct args *a) {
    static char words[256];
    char *argv[ARGUMENTS_MAX];
    int argc = 0;
    strcpy(words, line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
    *a = (struct args){0};
    return wh_options_parse(options, argc, argv, a);
}

static void every_form(void **state) {
    (void)state;
    struct args a;
    assert_int_equal(parse("cmd in --out x --steps=1_000 -s a=1 --set b=2 -sc=3 -vqv --rate 3.0e-4 --json", &a), WH_OK);
    assert_string_equal(a.file, "in");
    assert_string_equal(a.out, "x");
    assert_int_equal(a.steps, 1000);
    assert_int_equal(a.set.count, 3);
    assert_string_equal(a.set.item[0], "a=1");
    assert_string_equal(a.set.item[1], "b=2");
    assert_string_equal(a.set.item[2], "c=3");
    assert_true(a.json && a.quiet && a.verbose == 2 && a.rate == 3e-4);
}

static void positionals_in_order(void **state) {
    (void)state;
    struct args a;
    assert_int_equal(parse("cmd one -q two three -- --json -", &a), WH_OK);
    assert_string_equal(a.file, "one");
    assert_string_equal(a.second, "two");
    assert_int_equal(a.rest.count, 3);
    assert_string_equal(a.rest.item[1], "--json");
    assert_string_equal(a.rest.item[2], "-");
    assert_false(a.json);
}

static void expect_usage(const char *line, const char *message) {
    struct args a;
    assert_int_equal(parse(line, &a), WH_USAGE);
    assert_string_equal(wh_error()->message, message);
}

static void refusals(void **state) {
    (void)state;
    expect_usage("cmd --stpes 3", "unknown option --stpes; did you mean --steps?");
    expect_usage("cmd --something", "unknown option --something; --help lists the options");
    expect_usage("cmd --FILE x", "unknown option --FILE; --help lists the options");
    expect_usage("cmd -qx", "unknown option -x in '-qx'; --help lists the options");
    expect_usage("cmd --steps", "--steps wants a value: --steps N");
    expect_usage("cmd -n", "--steps wants a value: --steps N");
    expect_usage("cmd --json=1", "--json takes no value");
    expect_usage("cmd --steps -3", "--steps wants a whole number from 0 to 18446744073709551615, not '-3'");
    expect_usage("cmd --rate fast", "--rate wants a number like 0.5 or 3e-4, not 'fast'");
}

static void too_many_and_too_few(void **state) {
    (void)state;
    static const struct wh_option one[] = {{"FILE", 0, WH_OPTION_REQUIRED, offsetof(struct args, file), NULL, "input"},
                                           {0}};
    char *argv[] = {"cmd", "a", "b"};
    struct args a = {0};
    assert_int_equal(wh_options_require(one, &a), WH_USAGE);
    assert_string_equal(wh_error()->message, "FILE is missing: input");
    assert_int_equal(wh_options_parse(one, 3, argv, &a), WH_USAGE);
    assert_string_equal(wh_error()->message, "'b' is one argument too many");
    assert_int_equal(wh_options_require(one, &a), WH_OK);
}

static void help_lists_every_row(void **state) {
    (void)state;
    struct wh_text t = {0};
    wh_options_help(options, "cmd", "Does it.", &t);
    assert_string_equal(t.data,
                        "usage: wanhe cmd [options] FILE [SECOND] [MORE ...]\n\nDoes it.\n\narguments:\n"
                        "  FILE                        input\n"
                        "  SECOND                      another\n"
                        "  MORE                        others\n\noptions:\n"
                        "  -o, --out PATH              where to\n"
                        "  -n, --steps N               how many\n"
                        "      --rate X                how fast\n"
                        "  -s, --set KEY=VALUE         override\n"
                        "      --json                  JSON\n"
                        "  -q, --quiet                 silence\n"
                        "  -v, --verbose               talk\n");
    wh_text_fini(&t);
}

static void whole_numbers(void **state) {
    (void)state;
    uint64_t n = 7;
    assert_true(wh_text_to_uint("9_765_625", &n) && n == 9765625);
    assert_true(wh_text_to_uint("18446744073709551615", &n) && n == UINT64_MAX);
    assert_true(wh_text_to_uint("0", &n) && n == 0);
    static const char *const bad[] = {"",    "_1",   "1_",  "1__0", "18446744073709551616", "-1", "+1", "1.0",
                                      "1e3", "0x10", " 1 ", "9 765"};
    n = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(wh_text_to_uint(bad[i], &n));
    assert_int_equal(n, 7);
}

static void reals(void **state) {
    (void)state;
    double x = 7;
    assert_true(wh_text_to_real("1e-4", &x) && x == 1e-4);
    assert_true(wh_text_to_real("-3.5", &x) && x == -3.5);
    assert_true(wh_text_to_real("1_000.5", &x) && x == 1000.5);
    static const char *const bad[] = {"", "nan", "inf", "0x1p3", "1e999", "1.2.3", "e", "1_.5", " 1", "."};
    x = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(wh_text_to_real(bad[i], &x));
    assert_true(x == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(positionals_in_order),
        cmocka_unit_test(refusals),
        cmocka_unit_test(too_many_and_too_few),
        cmocka_unit_test(help_lists_every_row),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(reals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
