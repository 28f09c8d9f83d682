/* Schedules that are broken on purpose are refused, with the rank, the instruction and the micro-batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "base/rng.h"
#include "sched/check.h"
#include "sched/format.h"

/* Two ranks, three micro-batches, 1F1B. */
#define HEAD    "wanhe schedule 1\nranks 2\nmicro-batches 3\n"
#define DERIVED HEAD "messages derived\n"
#define WRITTEN HEAD "messages written\n"
#define RANK_0  "rank 0\nF0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 RG2 B2\n"
#define RANK_1  "rank 1\nRA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2\n"

static void read_and_check(const char *text, uint32_t depth, struct wh_faults *faults) {
    struct wh_sched_plan p;
    if (!wh_sched_parse(text, strlen(text), "own", &p, faults)) fail_msg("%s", faults->text.data);
    wh_sched_check(&p, depth, "own", faults);
    wh_sched_plan_free(&p);
}

static void expect_fault(const char *text, const char *want) {
    struct wh_faults faults = {0};
    read_and_check(text, WH_SCHED_DEPTH, &faults);
    if (!faults.count || strcmp(faults.text.data, want) != 0)
        fail_msg("got:\n%s\nwanted:\n%s", faults.count ? faults.text.data : "no fault", want);
    wh_text_fini(&faults.text);
}

static void a_right_one_passes(void **state) {
    (void)state;
    struct wh_faults faults = {0};
    read_and_check(WRITTEN RANK_0 RANK_1, 1, &faults);
    read_and_check(DERIVED "rank 0\nF0 F1 B0 F2 B1 B2\nrank 1\nF0 B0 F1 B1 F2 B2", 1, &faults);
    /* The output of F0a has to be passed on before F1a makes the next. */
    read_and_check(
        "wanhe schedule 1\nranks 1\nmicro-batches 2\nchunks 2\nmessages derived\nrank 0\n"
        "F0a F1a F0b F1b B0b B1b B0a B1a\n",
        0, &faults);
    if (faults.count) fail_msg("%s", faults.text.data);
}

static void faults_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {DERIVED "rank 0\nF0 F1 B0 F2 B1\nrank 1\nF0 B0 F1 B1 F2 B2\n", /* missing backward */
         "own: rank 0: micro-batch 2 has no backward, and its slot is never freed"},
        {DERIVED "rank 0\nF0 F1 B0 F2 B1 B2\nrank 1\nF0 B0 F1 B1\n", /* missing micro-batch */
         "own:6: rank 0, instruction 10 (B2): its gradient is not there yet\n"
         "own: rank 1: micro-batch 2 has no forward"},
        {DERIVED "rank 0\nF0 F1 I0 F2 I1 I2 W0 W2\nrank 1\nF0 B0 F1 B1 F2 B2\n",
         "own:6: rank 0, instruction 13 (W2): micro-batch 2 is out of order: the backward of micro-batch 1 comes next\n"
         "own: rank 0: micro-batch 1 has no weight part of the backward, and its slot is never freed"},
        {DERIVED "rank 0\nF0 F1 B0 F2 B1 B2\nrank 1\nF0 B0\nF0 F1 B1 F2 B2\n",
         "own:9: rank 1, instruction 4 (F0): micro-batch 0 has had its forward already"},
        {DERIVED "rank 0\nF0 F1 B1 F2 B0 B2\nrank 1\nF0 F1 B1 B0 F2 B2\n",
         "own:6: rank 0, instruction 5 (B1): micro-batch 1 is out of order: the backward of micro-batch 0 comes next\n"
         "own:8: rank 1, instruction 4 (B1): micro-batch 1 is out of order: the backward of micro-batch 0 comes next"},
        {WRITTEN "rank 0\nF0 SA0 F1 SA1 RG0 B0 F2 SA2 RG1 B1 RG2 B2\n"
                 "rank 1\nRA0 F0 B0 SG0 RA2 RA1 F1 B1 SG1 F2 B2 SG2\n", /* swapped receives */
         "own:8: rank 1, instruction 4 (RA2<0): what comes next from rank 0 is the message of rank 0, instruction 3 "
         "(SA1>1)"},
        {WRITTEN "rank 0\nF0 SA0 F1 RG0 B0 F2 SA1 SA2 RG1 B1 RG2 B2\n" RANK_1, /* swapped sends */
         "own:6: rank 0, instruction 5 (F2): the output of instruction 2 hasn't been sent or passed on yet\n"
         "own:6: rank 0, instruction 6 (SA1>1): what is to be sent or passed on next is the output of instruction 5\n"
         "own:6: rank 0, instruction 7 (SA2>1): there is no output to send or pass on"},
        {WRITTEN "rank 0\nF0 SA0 F1 SA1 RG0 B0 F2 RG1 B1 RG2 B2\n" RANK_1,
         "own:6: rank 0, instruction 6 (F2): its output is never sent or passed on"},
        {WRITTEN RANK_0 "rank 1\nF0 RA0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2\n",
         "own:8: rank 1, instruction 0 (F0): its activation is not there yet"},
        {WRITTEN RANK_0 "rank 1\nRA0 F0 B0 SG0 RA1 F1 B1 SG1 RA1 RA2 F2 B2 SG2\n",
         "own:8: rank 1, instruction 8 (RA1<0): its activation slot was taken before"},
        {WRITTEN "rank 0\nF0 SA0 F1 SA1 B0 RG0 F2 SA2 RG1 B1 RG2 B2\n" RANK_1,
         "own:6: rank 0, instruction 4 (B0): its gradient is not there yet\n"
         "own: rank 0: a slot of micro-batch 0 is never freed"},
        {WRITTEN "rank 0\nB0 F0 SA0>1 F1 SG1 SA1 RG0 F2 SA2 RG1 B1 RG2 B2\n" RANK_1,
         "own:6: rank 0, instruction 0 (B0): micro-batch 0 hasn't gone forward yet\n"
         "own:6: rank 0, instruction 4 (SG1): stage 0 is the first: there is no stage before it\n"
         "own:6: rank 0, instruction 10 (B1): micro-batch 1 is out of order: the backward of micro-batch 0 comes next\n"
         "own: rank 0: a slot of micro-batch 0 is never freed"},
        {WRITTEN "rank 0\nF0 SA0 F1 SA1 RG0 PA1 B0 F2 SA2 RG1 B1 RG2 B2\n" RANK_1,
         "own:6: rank 0, instruction 5 (PA1): stage 0 is the first: there is no stage before it"},
        {WRITTEN RANK_0 "rank 1\nRA0 F0 B0 SG0 RA1 F1 B1 SG1 RA2 F2 B2 SG2>1\n",
         "own:8: rank 1, instruction 11 (SG2>1): its peer is rank 0, not 1\n"
         "own:8: rank 1, instruction 10 (B2): its gradient is never sent or passed on"},
        {"wanhe schedule 1\nranks 2\nmicro-batches 1\nchunks 2\nmessages written\n" /* the same micro-batch, another chunk */
         "rank 0\nF0a SA0a RA0b F0b SA0b RG0a RG0b B0b SG0b B0a\nrank 1\nRA0a F0a SA0a RA0b F0b B0b SG0b RG0a B0a "
         "SG0a\n",
         "own:7: rank 0, instruction 5 (RG0a<1): what comes next from rank 1 is the message of rank 1, instruction 6 "
         "(SG0b>0)"},
        {WRITTEN "rank 0\nRG0 F0 SA0 F1 SA1 B0 F2 SA2 RG1 B1 RG2 B2\n" RANK_1,
         "own:8: waits in a circle, with 2 messages per queue: rank 0, instruction 0 (RG0<1) waits for rank 1; rank 1, "
         "instruction 0 (RA0<0) waits for rank 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_fault(rows[i].text, rows[i].says);
}

/* Ways to break an instruction. Each returns false if it doesn't apply. */
static bool lost(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    (void)p;
    memmove(&of->instrs[at], &of->instrs[at + 1], (--of->count - at) * sizeof *of->instrs);
    return true;
}

static bool done_twice(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    (void)p;
    if (at + 1 == of->count) return false;
    of->instrs[at + 1] = of->instrs[at];
    return true;
}

static bool other_micro_batch(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    of->instrs[at].micro_batch = (of->instrs[at].micro_batch + 1) % p->shape.micro_batches;
    return p->shape.micro_batches > 1;
}

static bool other_chunk(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    of->instrs[at].chunk = (uint16_t)((of->instrs[at].chunk + 1) % p->shape.chunks);
    return p->shape.chunks > 1;
}

static bool other_operation(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    (void)p;
    of->instrs[at].op = (of->instrs[at].op + 1) % WH_SCHED_OP_COUNT;
    return true;
}

static bool other_peer(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    of->instrs[at].peer = (of->instrs[at].peer + 1) % p->shape.ranks;
    return p->shape.ranks > 1;
}

static bool other_slot(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    (void)p;
    of->instrs[at].act++;
    return of->instrs[at].act != WH_SCHED_NO_SLOT + 1;
}

/* Two messages of one queue change places. */
static bool swapped(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at) {
    (void)p;
    struct wh_sched_instr first = of->instrs[at];
    for (size_t i = at + 1; i < of->count; i++) {
        if (of->instrs[i].op != first.op || of->instrs[i].peer != first.peer) continue;
        of->instrs[at] = of->instrs[i];
        of->instrs[i] = first;
        return wh_sched_ops[first.op].message != WH_SCHED_NO_MESSAGE;
    }
    return false;
}

static const struct breakage {
    const char *name;
    bool (*apply)(const struct wh_sched_plan *p, struct wh_sched_program *of, size_t at);
} breakages[] = {
    {"lost", lost},
    {"done_twice", done_twice},
    {"other_micro_batch", other_micro_batch},
    {"other_chunk", other_chunk},
    {"other_operation", other_operation},
    {"other_peer", other_peer},
    {"other_slot", other_slot},
    {"swapped", swapped},
};

enum { BREAKAGES = sizeof breakages / sizeof *breakages, TRIES = 4000, SCHEDULES = 5 };

struct dice {
    struct wh_rng rng;
    uint64_t thrown;
};

static uint32_t throw(struct dice * d, uint32_t below) { return wh_rng_u32(&d->rng, d->thrown++) % below; }

static void broken_schedules_are_caught(void **state) {
    (void)state;
    struct dice d = {wh_rng_stream(7, WH_RNG_TEST, 0, 0)};
    uint32_t caught[BREAKAGES] = {0};
    for (int n = 0; n < TRIES; n++) {
        const struct wh_sched_generator *g = wh_sched_generators[throw(&d, SCHEDULES)];
        struct wh_sched_request q = {2 + throw(&d, 6), 2 + throw(&d, 12), g->chunks_default};
        struct wh_sched_plan p;
        struct wh_faults faults = {0};
        const struct breakage *how = &breakages[n % BREAKAGES];
        assert_int_equal(wh_sched_plan_new(&q, g, &p), WH_OK);
        struct wh_sched_program *of = &p.rank[throw(&d, q.ranks)];
        size_t at = throw(&d, (uint32_t)of->count);
        if (how->apply(&p, of, at)) {
            if (wh_sched_check(&p, WH_SCHED_DEPTH, NULL, &faults))
                fail_msg("%s of %s, %u ranks, %u micro-batches, rank %d, instruction %zu was not caught", how->name,
                         g->name, q.ranks, q.micro_batches, (int)(of - p.rank), at);
            if (!strstr(faults.text.data, "rank ")) fail_msg("names no rank: %s", faults.text.data);
            caught[n % BREAKAGES]++;
        }
        wh_text_fini(&faults.text);
        wh_sched_plan_free(&p);
    }
    for (int i = 0; i < BREAKAGES; i++) assert_true(caught[i] > TRIES / BREAKAGES / 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_one_passes),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(broken_schedules_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
