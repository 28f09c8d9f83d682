/* Training runs of one and several ranks: the same files; how they end. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* after its needs */
#include <cmocka.h>

#include "ckpt/checkpoint.h"
#include "os/file.h"
#include "run/train.h"
#include "test/support/folder.h"

enum { STEPS = 8, DEADLINE_S = 90 };

static char folder[TEST_FOLDER_BYTES];

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "train", 8192, path)) return -1;
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static char *in_folder(const char *name) { return wh_path_join(folder, name); }

static void open_config(uint32_t dp, uint64_t steps, const char *set, struct wh_config *c) {
    static const char text[] =
        "model: {model_config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,\n"
        "  num_attention_heads: 2, vocab_size: 256}}\n"
        "tokens: {global_batch_size: 12, micro_batch_size: 2, sequence_length: 16, val_check_interval: 4}\n"
        "checkpoints: {checkpoint_interval: 4}\n"
        "grain: {data: 6}\n"
        "threads: 1\n"; /* none may be started in this process before it forks */
    char train[128], valid[128], ranks[64], train_steps[64];
    const char *const sets[] = {train, valid, ranks, train_steps, set};
    struct wh_faults faults = {0};
    snprintf(train, sizeof train, "data.train=%s/data.txt", folder);
    snprintf(valid, sizeof valid, "data.valid=%s/data.txt", folder);
    snprintf(ranks, sizeof ranks, "parallelism.dp=%u", dp);
    snprintf(train_steps, sizeof train_steps, "tokens.train_steps=%llu", (unsigned long long)steps);
    wh_config_parse(text, sizeof text - 1, "test.yaml", sets, set ? 5 : 4, c, &faults);
    wh_config_check(c, &faults);
    if (wh_faults_status(&faults, WH_CONFIG) != WH_OK) fail_msg("%s", wh_error()->message);
}

struct speech {
    struct wh_text said;                    /* here */
    void (*progress)(void *, const char *); /* for each line, of one rank or several */
};

static void hear(void *context, const char *text) {
    struct speech *s = context;
    if (s->progress) s->progress(s, text);
    wh_text_add(&s->said, "%s\n", text);
}

static enum wh_status train(const char *name, uint32_t dp, uint64_t steps, enum wh_train_start start, const char *set,
                            struct speech *speech, struct wh_train_summary *summary) {
    struct wh_config c;
    struct speech silent = {0};
    char *out = in_folder(name);
    if (!speech) speech = &silent;
    open_config(dp, steps, set, &c);
    const struct wh_train_options o = {.out = out, .start = start, .say = hear, .context = speech};
    *summary = (struct wh_train_summary){0};
    const enum wh_status status = wh_train_run(&c, &o, summary);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    wh_text_fini(&silent.said);
    wh_config_free(&c);
    free(out);
    return status;
}

static void train_well(const char *name, uint32_t dp, uint64_t steps, enum wh_train_start start) {
    struct wh_train_summary s;
    if (train(name, dp, steps, start, NULL, NULL, &s) != WH_OK) fail_msg("%s: %s", name, wh_error()->message);
    assert_int_equal(s.steps, steps);
    assert_int_equal(s.ranks, dp);
    assert_int_equal(s.threads, 1);
    assert_int_equal(s.stopped_by, 0);
    assert_true(s.loss > 1.0 && s.loss < 6.0 && s.seconds > 0.0 && s.peak_bytes > 0);
}

/* --- the same files --- */

static char *read_file(const char *name, const char *file, size_t *bytes) {
    char path[256], *text;
    snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    if (wh_file_read(path, 1 << 24, &text, bytes) != WH_OK) fail_msg("%s", wh_error()->message);
    return text;
}

static void same_file(const char *a, const char *b, const char *file) {
    size_t a_bytes, b_bytes;
    char *one = read_file(a, file, &a_bytes), *other = read_file(b, file, &b_bytes);
    if (a_bytes != b_bytes || memcmp(one, other, a_bytes) != 0) fail_msg("%s of %s and %s differ", file, a, b);
    free(one);
    free(other);
}

/* Times apart, which stand at the end of a line. */
static char *numbers(const char *name) {
    size_t bytes;
    struct wh_text kept = {0}, all = {0};
    char *text = read_file(name, "metrics.jsonl", &bytes);
    wh_text_add(&all, "%s", text);
    for (char *at = NULL, *line; (line = wh_text_next_line(&all, &at));) {
        char *times = strstr(line, ", \"step_ms\"");
        wh_text_add(&kept, "%.*s\n", (int)(times ? times - line : (ptrdiff_t)strlen(line)), line);
    }
    wh_text_fini(&all);
    free(text);
    return kept.data;
}

static void same_run(const char *a, const char *b) {
    static const char *const files[] = {"weights.safetensors", "adam_m.safetensors", "adam_v.safetensors", "state.json",
                                        "manifest.json"};
    char *one = numbers(a), *other = numbers(b), path[64];
    assert_string_equal(one, other);
    free(one);
    free(other);
    for (uint64_t step = 4; step <= STEPS; step += 4)
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(path, sizeof path, "checkpoints/step-%08llu/%s", (unsigned long long)step, files[i]);
            same_file(a, b, path);
        }
}

static void test_same_bits(void **state) {
    (void)state;
    train_well("one", 1, STEPS, WH_TRAIN_FRESH);
    train_well("two", 2, STEPS, WH_TRAIN_FRESH);
    train_well("three", 3, STEPS, WH_TRAIN_FRESH);
    same_run("one", "two");
    same_run("one", "three");
}

/* Gone on with by another number of ranks. */
static void test_other_ranks(void **state) {
    (void)state;
    train_well("changing", 3, 4, WH_TRAIN_RESUME_IF_PRESENT);
    train_well("changing", 1, 6, WH_TRAIN_RESUME);
    train_well("changing", 2, STEPS, WH_TRAIN_RESUME_IF_PRESENT);
    same_file("one", "changing", "checkpoints/step-00000008/manifest.json");
    struct wh_train_summary s;
    assert_int_equal(train("changing", 2, STEPS, WH_TRAIN_RESUME_IF_PRESENT, NULL, NULL, &s), WH_OK); /* all done */
    assert_int_equal(s.first_step, STEPS);
}

/* --- refusals --- */

static void message_has(const char *part) {
    if (!strstr(wh_error()->message, part)) fail_msg("'%s' does not say '%s'", wh_error()->message, part);
}

static void test_refused(void **state) {
    (void)state;
    struct wh_train_summary s;
    char *absent = in_folder("absent"), *locked = in_folder("locked");
    int lock;
    assert_int_equal(train("two", 2, STEPS, WH_TRAIN_FRESH, NULL, NULL, &s), WH_CONFIG);
    message_has("two already holds checkpoints");
    assert_int_equal(train("absent", 2, STEPS, WH_TRAIN_RESUME, NULL, NULL, &s), WH_DAMAGED);
    assert_int_equal(train("absent", 2, STEPS, WH_TRAIN_FRESH, "data.train=/nowhere", NULL, &s), WH_IO);
    message_has("/nowhere");
    assert_int_equal(
        train("absent", 2, STEPS, WH_TRAIN_FRESH, "model.model_config.intermediate_size=16777216", NULL, &s), WH_FIT);
    message_has("GiB in 2 ranks");
    assert_false(wh_dir_exists(absent));
    assert_int_equal(wh_dir_create(locked), WH_OK);
    assert_int_equal(wh_lock_take(locked, &lock), WH_OK);
    assert_int_equal(train("locked", 2, STEPS, WH_TRAIN_FRESH, NULL, NULL, &s), WH_CONFIG);
    message_has("in use by process");
    wh_lock_release(lock);
    free(absent);
    free(locked);
}

/* --- ends --- */

/* The children of this process in the order in which they were started. */
static int rank_process(int rank) {
    char path[64];
    int process = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", getpid(), getpid());
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i <= rank; i++) assert_int_equal(fscanf(f, "%d", &process), 1);
    fclose(f);
    assert_true(process > 1);
    return process;
}

static bool is_step_3(const char *text) { return strncmp(text, "step 3/", 7) == 0; }
static void kill_rank_2(void *context, const char *text) {
    (void)context;
    if (is_step_3(text)) kill(rank_process(2), SIGKILL);
}
static void stop_launcher(void *context, const char *text) {
    (void)context;
    if (is_step_3(text)) kill(getpid(), SIGTERM);
}
static void stop_rank_1(void *context, const char *text) {
    (void)context;
    if (is_step_3(text)) kill(rank_process(1), SIGINT);
}

static void test_rank_dies(void **state) {
    (void)state;
    struct wh_train_summary s;
    struct speech speech = {.progress = kill_rank_2};
    assert_int_equal(train("dead", 3, 1000, WH_TRAIN_FRESH, NULL, &speech, &s), WH_PEER);
    message_has("rank 2 (step ");
    message_has(") was ended by SIGKILL");
    assert_non_null(strstr(speech.said.data, "3 ranks of 1 thread"));
    wh_text_fini(&speech.said);
}

/* Asked for at step 3 by a signal to anyone, all stop after the same step, whichever it is. */
static void stops(const char *name, void (*progress)(void *, const char *), int number) {
    struct wh_train_summary s;
    struct speech speech = {.progress = progress};
    char *out = in_folder(name), *latest;
    assert_int_equal(train(name, 2, 1000, WH_TRAIN_FRESH, NULL, &speech, &s), WH_RETRY);
    message_has("which is saved; --resume goes on");
    assert_int_equal(s.stopped_by, number);
    assert_true(s.steps >= 3 && s.steps < 1000 && s.first_step == 0);
    assert_int_equal(wh_ckpt_find(out, s.steps, &latest, NULL), WH_OK);
    wh_text_fini(&speech.said);
    free(latest);
    free(out);
}

static void test_stops(void **state) {
    (void)state;
    stops("stopped", stop_launcher, SIGTERM);
    stops("interrupted", stop_rank_1, SIGINT);
}

/* All ranks find it: told once, as of one unless one of them was too late to say it (test_launch.c: test_same_words). */
static void test_all_fail(void **state) {
    (void)state;
    struct wh_train_summary s;
    const char set[] = "optimizer.learning_rate_scheduler.learning_rate=1e6";
    assert_int_equal(train("infinite", 2, 100, WH_TRAIN_FRESH, set, NULL, &s), WH_DATA);
    message_has("are not finite");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_other_ranks), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rank_dies), cmocka_unit_test(test_stops),       cmocka_unit_test(test_all_fail),
    };
    alarm(DEADLINE_S);
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
