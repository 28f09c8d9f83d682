/* After the first steps wh_session_step asks for no memory and frees none; and the memory of a net is what was predicted
 * for each row. The step warms up twice: OpenMP takes memory when its threads start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "os/file.h"
#include "run/session.h"
#include "test/support/alloc_count.h"
#include "test/support/folder.h"

static char folder[TEST_FOLDER_BYTES], data[TEST_TEXT_PATH_BYTES];

static int make_folder(void **state) {
    (void)state;
    if (!test_folder_with_text(folder, "noalloc", 4096, data)) return -1;
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static void open_config(const char *const *sets, size_t count, struct wh_config *c) {
    static const char text[] =
        "model: {model_config: {hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,\n"
        "  num_attention_heads: 4, vocab_size: 256}}\n"
        "tokens: {global_batch_size: 8, micro_batch_size: 2, sequence_length: 24,\n"
        "  train_steps: 100}\n"
        "threads: 2\n";
    struct wh_faults faults = {0};
    wh_config_parse(text, sizeof text - 1, "test.yaml", sets, count, c, &faults);
    wh_config_check(c, &faults);
    assert_int_equal(wh_faults_status(&faults, WH_CONFIG), WH_OK);
}

static void memory_is_as_predicted(const struct wh_net *net) {
    struct wh_arena predicted;
    assert_int_equal(wh_net_predict(&net->shape, &predicted, NULL), WH_OK);
    assert_int_equal(net->arena.used_bytes, predicted.used_bytes);
    assert_int_equal(net->arena.used_bytes, net->arena.size_bytes);
    assert_true(net->arena.sealed);
    size_t sum = 0;
    for (int row = 0; row < WH_ROW_COUNT; row++) {
        assert_int_equal(net->arena.row_bytes[row], predicted.row_bytes[row]);
        sum += predicted.row_bytes[row];
    }
    assert_int_equal(sum, predicted.used_bytes);
}

enum { MAX_SETS = 12 };

/* `sets`: up to NULL. */
static void check(const char *const *sets) {
    struct wh_config c;
    struct wh_session s;
    struct wh_step_result r;
    char train[128];
    const char *all[MAX_SETS] = {train};
    size_t count = 1;
    snprintf(train, sizeof train, "data.train=%s", data);
    for (; *sets; sets++) all[count++] = *sets;
    open_config(all, count, &c);
    assert_int_equal(wh_session_open(&c, NULL, &s), WH_OK);
    wh_net_init_weights(&s.net, c.general.seed);
    memory_is_as_predicted(&s.net);
    for (int i = 0; i < 2; i++) assert_int_equal(wh_session_step(&s, &r), WH_OK);
    const size_t before = alloc_count(), freed = free_count();
    for (int i = 0; i < 3; i++) assert_int_equal(wh_session_step(&s, &r), WH_OK);
    assert_int_equal(alloc_count() - before, 0);
    assert_int_equal(free_count() - freed, 0);
    assert_int_equal(s.step, 5);
    wh_session_close(&s);
    wh_config_free(&c);
}

static void llama(void **state) {
    (void)state;
    check((const char *const[]){NULL});
    check((const char *const[]){"model.dtype=bfloat16", "recompute=full", "loss_block_tokens=7", NULL});
    check((const char *const[]){"model.model_config.num_key_value_heads=2", "grain.sequence=4", "recompute=selective",
                                "tokens.micro_batch_size=1", "data.document_mask=true", "data.end_of_text=97", NULL});
}

static void gpt2(void **state) {
    (void)state;
    check((const char *const[]){"model.model_config.model_type=gpt2", "recompute=full", NULL});
    check((const char *const[]){"model.model_config.model_type=gpt2", "model.dtype=bfloat16", "kernels=reference",
                                "model.model_config.attn_pdrop=0.1", "model.model_config.embd_pdrop=0.1",
                                "model.model_config.resid_pdrop=0.1", "tokens.micro_batch_size=8", NULL});
}

/* Evaluation within a run allocates nothing either. */
static void validation(void **state) {
    struct wh_config c;
    struct wh_session s;
    struct wh_evaluation first, second;
    char train[128], valid[128];
    const char *sets[] = {train, valid};
    (void)state;
    snprintf(train, sizeof train, "data.train=%s", data);
    snprintf(valid, sizeof valid, "data.valid=%s", data);
    open_config(sets, 2, &c);
    assert_int_equal(wh_session_open(&c, NULL, &s), WH_OK);
    wh_net_init_weights(&s.net, 1);
    assert_int_equal(wh_session_validate(&s, &first), WH_OK);
    const size_t before = alloc_count();
    assert_int_equal(wh_session_validate(&s, &second), WH_OK);
    assert_int_equal(alloc_count() - before, 0);
    assert_memory_equal(&first.loss, &second.loss, sizeof first.loss);
    assert_int_equal(first.sequences, 4095 / 24);
    wh_session_close(&s);
    wh_config_free(&c);
}

/* The counters see the session at all: opening one allocates. */
static void opening_is_counted(void **state) {
    struct wh_config c;
    struct wh_session s;
    char train[128];
    const char *sets[] = {train};
    (void)state;
    snprintf(train, sizeof train, "data.train=%s", data);
    open_config(sets, 1, &c);
    const size_t before = alloc_count(), freed = free_count();
    assert_int_equal(wh_session_open(&c, NULL, &s), WH_OK);
    const size_t taken = alloc_count() - before;
    wh_session_close(&s);
    assert_true(taken > 10);
    assert_true(free_count() - freed >= taken);
    wh_config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opening_is_counted), cmocka_unit_test(llama),
                                       cmocka_unit_test(gpt2), cmocka_unit_test(validation)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
