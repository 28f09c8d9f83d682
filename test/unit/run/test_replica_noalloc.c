/* Among ranks, too, a step and a validation ask for no memory and free none, comparing replicas included, in every ZeRO
 * stage, in pipelines, and while a timeline is recorded, for which there is room enough. Two steps warm up, as in test_step_noalloc.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "os/file.h"
#include "test/support/alloc_count.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

static char folder[TEST_FOLDER_BYTES], train_set[128], valid_set[128];

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "noalloc", 4096, path)) return -1;
    snprintf(train_set, sizeof train_set, "data.train=%s", path);
    snprintf(valid_set, sizeof valid_set, "data.valid=%s", path);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static enum wh_status steps(struct wh_session *s, int count) {
    struct wh_step_result r;
    struct wh_evaluation e;
    for (int i = 0; i < count; i++) {
        wh_trace_step(s->engine.trace, s->step + 1);
        WH_TRY(wh_session_step(s, &r));
        wh_trace_pause(s->engine.trace);
    }
    return wh_session_validate(s, &e);
}

/* `context`: whether to break the promise, to see that it is noticed. */
static enum wh_status body(struct wh_session *s, const void *context, void *shared) {
    const bool *leak = context;
    struct wh_trace trace;
    (void)shared;
    const size_t opened = alloc_count();
    RANK_CHECK(opened > 10, "opening is not counted");
    WH_TRY(wh_trace_open(&s->stage, s->config->optimizer.bucket_bytes, 3, 5, &trace));
    wh_trace_watch(&trace, s->team);
    s->engine.trace = &trace;
    wh_net_init_weights(&s->net, 1);
    WH_TRY(steps(s, 2));
    const size_t before = alloc_count(), freed = free_count();
    WH_TRY(steps(s, 3));
    void *volatile kept = *leak ? malloc(1) : NULL; /* volatile: else the compiler leaves it out */
    const size_t asked = alloc_count() - before;
    RANK_CHECK(asked == 0, "%zu times", asked);
    RANK_CHECK(free_count() == freed);
    RANK_CHECK(trace.dropped == 0 && trace.count > 3 * s->stage.program->count, "%zu events of %zu, %zu dropped",
               trace.count, trace.capacity, trace.dropped);
    free(kept);
    wh_trace_close(&trace);
    return WH_OK;
}

/* `sets`: at most 5, up to NULL. */
static void check(uint32_t dp, uint32_t zero, bool leak, const char *const *sets) {
    static const char text[] =
        "model: {model_config: {hidden_size: 24, intermediate_size: 40, num_hidden_layers: 3,\n"
        "  num_attention_heads: 4, vocab_size: 256}}\n"
        "tokens: {global_batch_size: 12, sequence_length: 24, train_steps: 100, limit_val_batches: 1}\n"
        "grain: {data: 12}\n"
        "checks: {replicas: 1}\n"
        "threads: 1\n";
    char made[2][64];
    const char *all[10] = {train_set, valid_set, made[0], made[1]};
    struct wh_config c;
    snprintf(made[0], sizeof *made, "parallelism.dp=%u", dp);
    snprintf(made[1], sizeof *made, "optimizer.zero_stage=%u", zero);
    for (size_t count = 4; *sets; sets++) all[count++] = *sets;
    if (test_config(text, all, &c) != WH_OK) fail_msg("%s", wh_error()->message);
    struct test_sessions t = {.config = &c, .body = body, .context = &leak};
    const uint32_t bad = test_sessions_run(&t);
    if (bad != (leak ? dp : 0)) {
        test_ranks_print(&t.ranks);
        fail_msg("dp %u, ZeRO %u: %u ranks", dp, zero, bad);
    }
    test_ranks_free(&t.ranks);
    wh_config_free(&c);
}

static void no_step_allocates(void **state) {
    (void)state;
    for (uint32_t zero = 0; zero <= 3; zero++) {
        check(2, zero, false, (const char *const[]){"tokens.micro_batch_size=6", NULL});
        check(3, zero, false,
              (const char *const[]){"tokens.micro_batch_size=2", "model.dtype=bfloat16", "optimizer.bucket_bytes=4096",
                                    "recompute=full", NULL});
        check(3, zero, false,
              (const char *const[]){"tokens.micro_batch_size=4", "model.dtype=bfloat16", "optimizer.prefetch=3",
                                    "optimizer.accumulate_grad_in_fp32=false",
                                    "model.model_config.tie_word_embeddings=true", NULL});
        check(2, zero, false,
              (const char *const[]){"tokens.micro_batch_size=2", "parallelism.pp=3", "parallelism.pp_engine=zb-h1",
                                    "model.model_config.tie_word_embeddings=true", NULL});
    }
    check(1, 0, false,
          (const char *const[]){"tokens.micro_batch_size=2", "parallelism.pp=2", "parallelism.pp_layers=[1,2]", NULL});
}

static void an_allocation_is_noticed(void **state) {
    (void)state;
    check(2, 1, true, (const char *const[]){"tokens.micro_batch_size=6", NULL});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_step_allocates), cmocka_unit_test(an_allocation_is_noticed)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
