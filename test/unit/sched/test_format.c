/* Schedule files: what is written reads back the same; faults are told with their lines, all at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "sched/check.h"
#include "sched/format.h"

static void expect_same(const struct wh_sched_plan *a, const struct wh_sched_plan *b) {
    assert_memory_equal(&a->shape, &b->shape, sizeof a->shape);
    for (uint32_t r = 0; r < a->shape.ranks; r++) {
        const struct wh_sched_program *x = &a->rank[r], *y = &b->rank[r];
        assert_int_equal(x->count, y->count);
        for (size_t i = 0; i < x->count; i++) {
            struct wh_sched_instr read = y->instrs[i];
            read.line = 0;
            assert_memory_equal(&x->instrs[i], &read, sizeof read);
        }
        assert_true(x->act_slots == y->act_slots && x->grad_slots == y->grad_slots && x->resident == y->resident);
    }
}

static void what_is_written_reads_back(void **state) {
    (void)state;
    for (int i = 0; wh_sched_generators[i]; i++)
        for (uint32_t n = 0; n < 60; n++) {
            const struct wh_sched_generator *g = wh_sched_generators[i];
            struct wh_sched_request q = {1 + n % 5, 1 + n % 12, g->chunks_default};
            struct wh_sched_plan p, read;
            struct wh_text text = {0};
            struct wh_faults faults = {0};
            assert_int_equal(wh_sched_plan_new(&q, g, &p), WH_OK);
            wh_sched_print(&p, n % 2, &text);
            if (!wh_sched_parse(text.data, text.bytes, "text", &read, &faults)) fail_msg("%s", faults.text.data);
            expect_same(&p, &read);
            assert_true(wh_sched_check(&read, WH_SCHED_DEPTH, "text", &faults));
            wh_text_fini(&text);
            wh_sched_plan_free(&read);
            wh_sched_plan_free(&p);
        }
}

static const char small[] =
    "wanhe schedule 1\nranks 2\nmicro-batches 2\nchunks 2\nplacement v\nmessages written\n"
    "\nrank 0\nF0a SA0a>1 RA0b<1 F0b I0b SG0b>1 W0b RG0a<1 I0a W0a F1a SA1a>1 RA1b<1 F1b I1b SG1b>1 W1b RG1a<1 I1a "
    "W1a\n"
    "\nrank 1\nRA0a<0 F0a PA0b F0b SA0b>0 RG0b<0 I0b PG0a I0a SG0a>0 W0b W0a RA1a<0 F1a PA1b F1b SA1b>0 RG1b<0 I1b "
    "PG1a\n"
    "I1a SG1a>0 W1b W1a\n";

static void writing_is_stable(void **state) {
    (void)state;
    struct wh_sched_plan p;
    struct wh_faults faults = {0};
    struct wh_text text = {0};
    assert_true(wh_sched_parse(small, strlen(small), "small", &p, &faults));
    assert_true(wh_sched_check(&p, 1, "small", &faults));
    wh_sched_print(&p, false, &text);
    assert_string_equal(text.data, small);
    wh_text_fini(&text);
    wh_sched_plan_free(&p);
}

/* The programs for 4 ranks and 8 micro-batches: a changed generator is seen here first. */
static void goldens(void **state) {
    (void)state;
    for (int i = 0; wh_sched_generators[i]; i++) {
        char path[100], golden[16384];
        struct wh_sched_request q = {4, 8, wh_sched_generators[i]->chunks_default};
        struct wh_sched_plan p;
        struct wh_text text = {0};
        snprintf(path, sizeof path, "test/golden/schedules/%s.txt", wh_sched_generators[i]->name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        golden[fread(golden, 1, sizeof golden - 1, f)] = '\0';
        fclose(f);
        assert_int_equal(wh_sched_plan_new(&q, wh_sched_generators[i], &p), WH_OK);
        wh_sched_print(&p, false, &text);
        assert_string_equal(text.data, golden);
        wh_text_fini(&text);
        wh_sched_plan_free(&p);
    }
}

static void expect_faults(const char *text, const char *want) {
    struct wh_sched_plan p;
    struct wh_faults faults = {0};
    if (wh_sched_parse(text, strlen(text), "own", &p, &faults)) fail_msg("accepted:\n%s", text);
    if (strcmp(faults.text.data, want) != 0) fail_msg("%s\ngot:\n%s\nwanted:\n%s", text, faults.text.data, want);
    wh_text_fini(&faults.text);
}

#define FIRST "wanhe schedule 1\n"
#define HEAD  FIRST "ranks 2\nmicro-batches 3\nmessages derived\n"

static void faults_have_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "own:1: this is no schedule of a known version: it should begin with 'wanhe schedule 1'"},
        {"\n# mine\nwanhe schedule 2\n",
         "own:3: this is no schedule of a known version: it should begin with 'wanhe schedule 1'"},
        {FIRST, "own:2: there is no 'rank'"},
        {FIRST "rank 0\n",
         "own:2: before the first 'rank' must be said: ranks N micro-batches N messages derived|written"},
        {FIRST
         "ranks 0\nmicro-batches 9999999999\nmicrobatches 4\nplacement U\nmessages auto\nranks 3\nmode x\nchunks\nF0\n",
         "own:2: ranks 0: a whole number above 0 is wanted\n"
         "own:3: micro-batches 9999999999: a whole number above 0 is wanted\n"
         "own:4: unknown word 'microbatches'; did you mean 'micro-batches'?\n"
         "own:5: placement U: loop or v is wanted\n"
         "own:6: messages auto: derived or written is wanted\n"
         "own:7: ranks is given twice; first in line 2\n"
         "own:8: unknown word 'mode'; ranks, micro-batches, chunks, placement, messages and rank are known\n"
         "own:9: chunks wants a value\n"
         "own:10: 'F0' belongs behind a line 'rank N'\n"
         "own:11: there is no 'rank'"},
        {FIRST "ranks 5000\nmicro-batches 3\nmessages derived\nrank 0\nF0\n", "own:5: 5000 ranks: 1 to 4096 are legal"},
        {HEAD "rank 0 F0\nrank 2\nF0\nrank 0\nrank one\nrank\n",
         "own:5: 'F0' is one word too many\n"
         "own:6: rank 2: 0 to 1 is wanted\n"
         "own:8: rank 0 has a program already, in line 5\n"
         "own:9: rank one: 0 to 1 is wanted\n"
         "own:10: rank: 0 to 1 is wanted\n"
         "own:11: rank 1 has no program"},
        {HEAD "rank 0\nF3 F Fx F0a F0b X0 F99999999999 SA0 F0>1 f0 # B9\n chunks 2\nB0, B1 B2,\nrank 1\n",
         "own:6: 'F3': micro-batches are 0 to 2\n"
         "own:6: 'F': micro-batches are 0 to 2\n"
         "own:6: 'Fx': F, B, I, W, SA, RA, SG, RG, PA or PG and a micro-batch are wanted, as in F0\n"
         "own:6: 'F0b': another chunk is wanted behind the micro-batch: a to a\n"
         "own:6: 'X0': F, B, I, W, SA, RA, SG, RG, PA or PG and a micro-batch are wanted, as in F0\n"
         "own:6: 'F99999999999': micro-batches are 0 to 2\n"
         "own:6: 'SA0': with 'messages derived' programs hold F, B, I and W only\n"
         "own:6: 'F0>1': '>1' isn't understood\n"
         "own:6: 'f0': F, B, I, W, SA, RA, SG, RG, PA or PG and a micro-batch are wanted, as in F0\n"
         "own:7: chunks belongs before the first 'rank'"},
        {FIRST "ranks 2\nmicro-batches 1\nchunks 2\nmessages written\nrank 0\nF0 F0c SA0a<1 SA0a>2 RA0b<1x\nrank 1\n",
         "own:7: 'F0': a chunk is wanted behind the micro-batch: a to b\n"
         "own:7: 'F0c': another chunk is wanted behind the micro-batch: a to b\n"
         "own:7: 'SA0a<1': '<1' isn't understood\n"
         "own:7: 'SA0a>2': '>2' isn't understood\n"
         "own:7: 'RA0b<1x': '<1x' isn't understood"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_faults(rows[i].text, rows[i].says);
}

static void many_faults_end(void **state) {
    (void)state;
    struct wh_text text = {0};
    struct wh_faults faults = {0};
    struct wh_sched_plan p;
    wh_text_add(&text, "%s", HEAD "rank 0\n");
    for (int i = 0; i < 1000; i++) wh_text_add(&text, "X%d\n", i);
    assert_false(wh_sched_parse(text.data, text.bytes, "own", &p, &faults));
    assert_int_equal(faults.count, 51);
    assert_non_null(strstr(faults.text.data, "own:56: too many faults; the rest isn't read"));
    wh_text_fini(&faults.text);
    wh_text_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back), cmocka_unit_test(writing_is_stable), cmocka_unit_test(goldens),
        cmocka_unit_test(faults_have_lines),          cmocka_unit_test(many_faults_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
