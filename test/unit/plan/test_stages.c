/* Stages of a pipeline: whose schedule, which layers, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "plan/stages.h"

static const char text[] =
    "model: {model_config: {model_type: gpt2, n_embd: 16, n_layer: 8, n_head: 2, vocab_size: 256}}\n"
    "tokens: {global_batch_size: 12, micro_batch_size: 2, sequence_length: 32, train_steps: 20}\n"
    "data: {train: a.txt}\n";

/* `sets` in words; `schedule` NULL: no file. */
static void load(const char *sets, const char *schedule, struct wh_config *c, struct wh_faults *faults) {
    const char *list[8];
    char words[512], *rest = NULL;
    size_t count = 0;
    snprintf(words, sizeof words, "%s", sets);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) list[count++] = w;
    if (schedule) list[count++] = "parallelism.pp_schedule=own.txt";
    *faults = (struct wh_faults){0};
    wh_config_parse(text, sizeof text - 1, "run.yaml", list, count, c, faults);
    if (schedule) wh_config_set_schedule(c, schedule, strlen(schedule));
    wh_config_check(c, faults);
}

static void good(const char *sets, const char *schedule, struct wh_config *c) {
    struct wh_faults faults;
    load(sets, schedule, c, &faults);
    if (faults.count) fail_msg("%s: %s", sets, faults.text.data);
}

/* All of these lines, and no others. */
static void refused(const char *sets, const char *schedule, const char *want) {
    struct wh_config c;
    struct wh_faults faults;
    load(sets, schedule, &c, &faults);
    if (!faults.text.data) fail_msg("%s is accepted", sets);
    assert_string_equal(faults.text.data, want);
    wh_text_fini(&faults.text);
    wh_config_free(&c);
}

static void borders_are(const struct wh_config *c, uint32_t stages, const size_t *counts) {
    struct wh_sched_shape s;
    size_t border[65], sum = 0;
    assert_int_equal(wh_stages_shape(c, &s), WH_OK);
    assert_int_equal(wh_sched_stages(&s), stages);
    assert_int_equal(wh_stages_borders(c, &s, border), WH_OK);
    for (uint32_t i = 0; i < stages; i++) {
        assert_int_equal(border[i], sum);
        sum += counts[i];
    }
    assert_int_equal(border[stages], sum);
    assert_int_equal(sum, c->arch.L);
}

#define BORDERS(sets, ...)                                           \
    do {                                                             \
        struct wh_config c_;                                         \
        const size_t counts_[] = {__VA_ARGS__};                      \
        good(sets, NULL, &c_);                                       \
        borders_are(&c_, sizeof counts_ / sizeof *counts_, counts_); \
        wh_config_free(&c_);                                         \
    } while (0)

#define LAYERS "model.model_config.n_layer="

static void layers_of_stages(void **state) {
    (void)state;
    BORDERS("parallelism.pp=1", 8);
    BORDERS("parallelism.pp=2", 4, 4);
    BORDERS("parallelism.pp=2 parallelism.pp_engine=zb-v", 2, 2, 2, 2);
    BORDERS("parallelism.pp=2 parallelism.pp_layers=[1,7]", 1, 7);
    BORDERS("parallelism.pp=2 parallelism.pp_engine=interleaved parallelism.pp_layers=[3,1,1,3]", 3, 1, 1, 3);
    /* the head is worth four of these layers */
    BORDERS("parallelism.pp=2 model.model_config.vocab_size=1024", 6, 2);
    /* B17: 30 layers on 4 */
    BORDERS("parallelism.pp=4 " LAYERS "30", 8, 8, 7, 7);
    /* B79: a job's own cut of 70 layers, embedding and head a block each */
    BORDERS("parallelism.pp=12 " LAYERS "70 parallelism.pp_layers=[5,6,6,6,6,6,6,6,6,6,6,5]", 5, 6, 6, 6, 6, 6, 6, 6, 6,
            6, 6, 5);
}

static void what_if(void **state) {
    (void)state;
    static const size_t blocks[] = {0, 5, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 70};
    struct wh_config c;
    struct wh_sched_shape s;
    size_t border[13];
    good("parallelism.pp=12 " LAYERS "70", NULL, &c);
    assert_int_equal(wh_stages_shape(&c, &s), WH_OK);
    assert_int_equal(wh_stages_what_if(&c, &s, WH_BALANCE_BLOCKS, border), WH_OK);
    assert_memory_equal(border, blocks, sizeof blocks);
    wh_config_free(&c);
}

static void layers_refused(void **state) {
    (void)state;
    refused("parallelism.pp=4 " LAYERS "3", NULL,
            "--set: parallelism.pp 4 with 1 stage each is above num_hidden_layers 3: a stage has one layer at least; "
            "nearest legal: 3");
    refused("parallelism.pp=2 parallelism.pp_layers=[4,5]", NULL,
            "--set: parallelism.pp_layers add up to 9: num_hidden_layers is 8; for example [4, 4]");
    refused("parallelism.pp=2 parallelism.pp_layers=[0,x,8]", NULL,
            "--set: parallelism.pp_layers: '0' for stage 0: 1 to 8 layers are legal\n"
            "--set: parallelism.pp_layers: 'x' for stage 1: 1 to 8 layers are legal\n"
            "--set: parallelism.pp_layers has 3 numbers: there are 2 stages; for example [4, 4]");
    refused("parallelism.pp_layers=[4,4]", NULL,
            "--set: parallelism.pp_layers has 2 numbers: there are 1 stages; for example [8]");
}

/* Rank 1 splits one backward, rank 0 none. */
static const char own[] =
    "wanhe schedule 1\nranks 2\nmicro-batches 6\nmessages derived\n"
    "rank 0\nF0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5\n"
    "rank 1\nF0 I0 F1 W0 B1 F2 B2 F3 B3 F4 B4 F5 B5\n";

static void own_schedule(void **state) {
    (void)state;
    struct wh_config c;
    struct wh_sched_plan p;
    const size_t halves[] = {4, 4};
    good("parallelism.pp=2", own, &c);
    assert_int_equal(wh_stages_plan(&c, &p), WH_OK);
    assert_null(p.generator);
    assert_int_equal(wh_stages_prove(&p), WH_OK);
    assert_int_equal(p.rank[0].resident, 2);
    borders_are(&c, 2, halves);
    assert_true(wh_config_wants_schedule(&c));
    wh_sched_plan_free(&p);
    wh_config_free(&c);
}

/* The effective configuration with a schedule names no engine, so it can be read again. */
static void effective_reads_back(void **state) {
    (void)state;
    struct wh_config c, again;
    struct wh_faults faults = {0};
    struct wh_text first = {0}, second = {0};
    good("parallelism.pp=2 parallelism.pp_layers=[3,5]", own, &c);
    wh_config_effective(&c, &first);
    wh_config_parse(first.data, first.bytes, "run.yaml", NULL, 0, &again, &faults);
    wh_config_set_schedule(&again, own, strlen(own));
    wh_config_check(&again, &faults);
    if (faults.count) fail_msg("%s", faults.text.data);
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        struct wh_text a = {0}, b = {0};
        wh_config_value(&c, (enum wh_config_key)k, &a);
        wh_config_value(&again, (enum wh_config_key)k, &b);
        assert_string_equal(a.data, b.data);
        wh_text_fini(&a);
        wh_text_fini(&b);
    }
    wh_text_fini(&first);
    wh_text_fini(&second);
    wh_config_free(&c);
    wh_config_free(&again);
}

static void own_schedule_refused(void **state) {
    (void)state;
    /* faults of the file, with its lines */
    refused("parallelism.pp=2", "wanhe schedule 1\nranks 2\nmicro-batches 6\nmessages derived\nrank 0\nF0 X1\nrank 2\n",
            "own.txt:6: 'X1': F, B, I, W, SA, RA, SG, RG, PA or PG and a micro-batch are wanted, as in F0\n"
            "own.txt:7: rank 2: 0 to 1 is wanted\n"
            "own.txt:8: rank 1 has no program");
    refused("parallelism.pp=2",
            "wanhe schedule 1\nranks 2\nmicro-batches 2\nmessages derived\nrank 0\nF0 F1 B0 B1\nrank 1\nF0 B0 F1\n",
            "own.txt:6: rank 0, instruction 6 (B1): its gradient is not there yet\n"
            "own.txt: rank 1: micro-batch 1 has no backward, and its slot is never freed");
}

/* A circle of waits is found before a rank starts. */
static void deadlock_refused(void **state) {
    (void)state;
    struct wh_config c;
    struct wh_faults faults;
    load("parallelism.pp=2",
         "wanhe schedule 1\nranks 2\nmicro-batches 6\nmessages written\n"
         "rank 0\nF0 SA0 RG0 B0 F1 SA1 RG1 B1 F2 SA2 RG2 B2 F3 SA3 RG3 B3 F4 SA4 RG4 B4 F5 SA5 RG5 B5\n"
         "rank 1\nRA0 RA1 F0 B0 SG0 F1 B1 SG1 RA2 F2 B2 SG2 RA3 F3 B3 SG3 RA4 F4 B4 SG4 RA5 F5 B5 SG5\n",
         &c, &faults);
    assert_int_equal(faults.count, 1);
    if (!strstr(faults.text.data, "own.txt:") || !strstr(faults.text.data, "waits in a circle"))
        fail_msg("%s", faults.text.data);
    wh_text_fini(&faults.text);
    wh_config_free(&c);
}

static void conflicts_refused(void **state) {
    (void)state;
    refused("parallelism.pp=4 parallelism.pp_engine=gpipe parallelism.pp_chunks=2 tokens.micro_batch_size=1", own,
            "--set: parallelism.pp_engine and parallelism.pp_schedule are both given: there is one schedule; leave one "
            "out\n"
            "--set: parallelism.pp 4: parallelism.pp_schedule own.txt is for 2 ranks; nearest legal: 2\n"
            "run.yaml: tokens.batch_accumulation_per_replica 12: parallelism.pp_schedule own.txt is for 6 "
            "micro-batches; nearest legal: 6, with tokens.micro_batch_size 2\n"
            "--set: parallelism.pp_chunks 2: parallelism.pp_schedule own.txt has 1; nearest legal: 1");
    refused("parallelism.pp=2 tokens.global_batch_size=8 tokens.micro_batch_size=2", own,
            "run.yaml: tokens.batch_accumulation_per_replica 4: parallelism.pp_schedule own.txt is for 6 "
            "micro-batches; nearest legal: 6, with tokens.global_batch_size 12");
    refused(
        "tokens.micro_batch_size=6",
        "wanhe schedule 1\nranks 1\nmicro-batches 2\nchunks 2\nmessages derived\nrank 0\n"
        "F0a F0b B0b B0a F1a F1b B1b B1a\n",
        "--set: parallelism.pp_schedule own.txt: one rank runs the model as one chunk, not 2; nearest legal: chunks "
        "1");
}

static void described(void **state) {
    (void)state;
    struct wh_config c;
    struct wh_sched_plan p;
    struct wh_text line = {0};
    size_t border[5];
    good("parallelism.pp=4 tokens.micro_batch_size=1", NULL, &c);
    assert_int_equal(wh_stages_plan(&c, &p), WH_OK);
    assert_int_equal(wh_stages_borders(&c, &p.shape, border), WH_OK);
    assert_int_equal(wh_stages_describe(&c, &p, border, &line), WH_OK);
    assert_string_equal(line.data,
                        "stages: layers 0-1 | 2-3 | 4-5 | 6-7; 1f1b, 12 micro-batches, idle 20.0 % of the "
                        "time if a backward takes two forwards, micro-batches kept by a rank 4 | 3 | 2 | 1");
    wh_text_fini(&line);
    wh_sched_plan_free(&p);
    wh_config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_of_stages),
                                       cmocka_unit_test(what_if),
                                       cmocka_unit_test(layers_refused),
                                       cmocka_unit_test(own_schedule),
                                       cmocka_unit_test(effective_reads_back),
                                       cmocka_unit_test(own_schedule_refused),
                                       cmocka_unit_test(deadlock_refused),
                                       cmocka_unit_test(conflicts_refused),
                                       cmocka_unit_test(described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
