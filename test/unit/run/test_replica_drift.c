/* checks.replicas: one bit that differs on one rank ends the run within the step of the next comparison, on all ranks, with
 * what differs and where; and runs in which nothing drifts are never stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "os/file.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

enum { STEPS = 4, SETS_MAX = 8 };

static char folder[TEST_FOLDER_BYTES], data[TEST_TEXT_PATH_BYTES];

static int make_folder(void **state) {
    (void)state;
    if (!test_folder_with_text(folder, "drift", 4096, data)) return -1;
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

enum what { NOTHING, WEIGHTS, GRADIENTS, MASTERS, FIRST_MOMENTS, SECOND_MOMENTS };

struct drift {
    uint32_t dp, zero;
    const char *dtype;
    enum what what;
    uint32_t rank;    /* where a bit is turned over ... */
    uint64_t after;   /* ... behind this step ... */
    bool within;      /* ... or in the next one, once all weights have been gathered */
    uint32_t every;   /* checks.replicas */
    const char *says; /* NULL: silent */
    uint32_t tp; /* above 1: tensor ranks, of which `rank` is one; the bit is one of a norm's gain, which isn't cut */
    const char *mode;
};

static void flip(void *buffer, size_t elem, size_t elem_bytes) { ((char *)buffer)[elem * elem_bytes] ^= 1; }

static void turn_over(struct wh_net *net, enum what what) {
    const bool cut = net->shape.tensor.ranks > 1;
    const size_t gain = wh_net_param(net, WH_P_MLP_NORM_GAIN, 0)->offset;
    const size_t own = cut ? gain : (net->own.end - net->own.begin) / 2;
    const size_t line = cut ? gain : net->shape.params->buffer_elems / 2;
    if (what == WEIGHTS) flip(net->weights, line, wh_dtype_bytes(net->shape.dtype));
    if (what == GRADIENTS) flip(net->grads, line, wh_dtype_bytes(net->shape.grad_dtype));
    if (what == MASTERS) flip(net->master, own, sizeof(float));
    if (what == FIRST_MOMENTS) flip(net->adam_m, own, sizeof(float));
    if (what == SECOND_MOMENTS) flip(net->adam_v, own, sizeof(float));
}

static bool is_at(const struct wh_session *s, const struct drift *d) {
    return d->rank == (d->tp > 1 ? s->net.shape.tensor.rank : s->net.shape.data.rank);
}

/* ---- within a step: when the last unit's gradients are under way all weights have been gathered ---- */

struct within {
    struct wh_session *s;
    const struct drift *drift;
    enum wh_status (*done)(void *, uint32_t);
    void *inner;
};
static struct within within;

static enum wh_status done(void *context, uint32_t unit) {
    const struct wh_session *s = within.s;
    if (unit == 1 && s->step == within.drift->after && is_at(s, within.drift))
        turn_over(&within.s->net, within.drift->what);
    return within.done(context, unit);
}

static void watch(struct wh_session *s, const struct drift *d) {
    within = (struct within){s, d, s->net.hooks.done, s->net.hooks.context};
    s->net.hooks.done = done;
}

/* The first half of a step, up to where replicas are compared, with a gradient turned over before. */
static enum wh_status drifting_gradients(struct wh_session *s, const struct drift *d) {
    const struct wh_config *c = s->config;
    const struct wh_batch data_of = {.tokens = s->train, .sampler = &s->sampler};
    const struct wh_net_batch batch = {s->ids, s->labels, NULL};
    uint64_t valid;
    double loss;
    WH_TRY(wh_batch_fill(&data_of, s->step, 0, c->tokens.global_batch, s->ids, s->labels, NULL, &valid));
    WH_TRY(wh_engine_step(&s->engine, &batch, 1.0f / (float)valid, (uint32_t)s->step, &loss));
    WH_TRY(wh_engine_compare(&s->engine, s->step + 1));
    if (is_at(s, d)) turn_over(&s->net, GRADIENTS);
    return wh_engine_compare(&s->engine, s->step + 1);
}

static enum wh_status body(struct wh_session *s, const void *context, void *shared) {
    const struct drift *d = context;
    struct wh_step_result r;
    uint64_t *steps_done = shared;
    wh_net_init_weights(&s->net, 1);
    if (d->within) watch(s, d);
    while (s->step < STEPS) {
        if (s->step == d->after && d->what == GRADIENTS) return drifting_gradients(s, d);
        WH_TRY(wh_session_step(s, &r));
        steps_done[s->stage.rank] = s->step;
        if (s->step == d->after && !d->within && is_at(s, d)) turn_over(&s->net, d->what);
    }
    return WH_OK;
}

static void open_config(const struct drift *d, struct wh_config *c) {
    static const char text[] =
        "model: {model_config: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,\n"
        "  num_attention_heads: 4, vocab_size: 256}}\n"
        "tokens: {global_batch_size: 24, micro_batch_size: 2, sequence_length: 8, train_steps: 100}\n"
        "grain: {data: 12}\n"
        "threads: 1\n";
    char made[7][128];
    const char *sets[SETS_MAX] = {made[0], made[1], made[2], made[3], made[4], made[5], made[6]};
    snprintf(made[0], sizeof *made, "parallelism.dp=%u", d->dp);
    snprintf(made[1], sizeof *made, "optimizer.zero_stage=%u", d->zero);
    snprintf(made[2], sizeof *made, "model.dtype=%s", d->dtype);
    snprintf(made[3], sizeof *made, "checks.replicas=%u", d->every);
    snprintf(made[4], sizeof *made, "data.train=%s", data);
    snprintf(made[5], sizeof *made, "parallelism.tp=%u", d->tp ? d->tp : 1);
    snprintf(made[6], sizeof *made, "parallelism.tp_mode=%s", d->mode ? d->mode : "ALL_REDUCE");
    if (test_config(text, sets, c) != WH_OK) fail_msg("%s", wh_error()->message);
}

static void check(const struct drift *d) {
    struct wh_config c;
    struct test_sessions t = {.config = &c, .body = body, .context = d};
    open_config(d, &c);
    const uint32_t bad = test_sessions_run(&t);
    const uint64_t *steps_done = t.ranks.shared;
    const uint32_t ranks = wh_config_ranks(&c);
    for (uint32_t r = 0; r < ranks; r++) {
        const struct test_rank_end *e = &t.ranks.end[r];
        const bool as_wanted =
            d->says ? e->status == WH_INTERNAL && strcmp(e->message, d->says) == 0 : steps_done[r] == STEPS;
        if (bad == (d->says ? ranks : 0) && as_wanted) continue;
        test_ranks_print(&t.ranks);
        fail_msg("dp %u, tp %u, ZeRO %u, %s: wanted: %s", d->dp, c.parallelism.tp, d->zero, d->dtype,
                 d->says ? d->says : "silence");
    }
    test_ranks_free(&t.ranks);
    wh_config_free(&c);
}

#define FP32    "float32"
#define BF16    "bfloat16"
#define SCATTER "REDUCE_SCATTER"
#define ARE_NOT(step, what, rank, those)                                                         \
    "step " #step ": the " what " of data-parallel rank " #rank " are not those of rank " #those \
    "; they must be "                                                                            \
    "equal"

static void every_copy_is_compared(void **state) {
    static const struct drift drifts[] = {
        /* ZeRO 0: everything is there as often as there are ranks */
        {3, 0, FP32, WEIGHTS, 2, 2, false, 1, ARE_NOT(3, "weights", 2, 0), 1, NULL},
        {3, 0, FP32, GRADIENTS, 1, 2, false, 1, ARE_NOT(3, "gradients", 1, 0), 1, NULL},
        {3, 0, FP32, FIRST_MOMENTS, 1, 1, false, 1, ARE_NOT(2, "first moments", 1, 0), 1, NULL},
        {3, 0, FP32, SECOND_MOMENTS, 2, 3, false, 1, ARE_NOT(4, "second moments", 2, 0), 1, NULL},
        {2, 0, BF16, WEIGHTS, 1, 1, false, 1, ARE_NOT(2, "weights", 1, 0), 1, NULL},
        {2, 0, BF16, MASTERS, 1, 1, false, 1, ARE_NOT(2, "master weights", 1, 0), 1, NULL},
        {2, 0, BF16, GRADIENTS, 1, 0, false, 1, ARE_NOT(1, "gradients", 1, 0), 1, NULL},
        /* one of three: the other two name it, whichever it is */
        {3, 0, FP32, FIRST_MOMENTS, 0, 1, false, 1, ARE_NOT(2, "first moments", 0, 1), 1, NULL},
        {4, 0, BF16, MASTERS, 0, 2, false, 1, ARE_NOT(3, "master weights", 0, 1), 1, NULL},
        /* ZeRO 1, 2: copies of the weights, from the step's gather to its end */
        {3, 1, FP32, WEIGHTS, 1, 2, true, 1, ARE_NOT(3, "weights", 1, 0), 1, NULL},
        {2, 1, BF16, WEIGHTS, 1, 0, true, 1, ARE_NOT(1, "weights", 1, 0), 1, NULL},
        {3, 2, FP32, WEIGHTS, 2, 3, true, 1, ARE_NOT(4, "weights", 2, 0), 1, NULL},
        {4, 2, BF16, WEIGHTS, 0, 1, true, 1, ARE_NOT(2, "weights", 0, 1), 1, NULL},
        /* checks.replicas 2: behind steps 2 and 4 */
        {2, 0, FP32, SECOND_MOMENTS, 1, 2, false, 2, ARE_NOT(4, "second moments", 1, 0), 1, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof drifts / sizeof *drifts; i++) check(&drifts[i]);
}

#define UNCUT(step, what, rank, those)                                                                    \
    "step " #step ": the " what " that aren't cut of tensor rank " #rank " are not those of rank " #those \
    "; they "                                                                                             \
    "must be equal"

/* Case B22: norms that drift apart, in both modes. */
static void what_is_not_cut_is_compared(void **state) {
    static const struct drift drifts[] = {
        {1, 0, FP32, WEIGHTS, 1, 2, false, 1, UNCUT(3, "weights", 1, 0), 2, NULL},
        {1, 0, FP32, GRADIENTS, 1, 2, false, 1, UNCUT(3, "gradients", 1, 0), 2, SCATTER},
        {1, 0, FP32, FIRST_MOMENTS, 0, 1, false, 1, UNCUT(2, "first moments", 0, 1), 4, SCATTER},
        {1, 0, BF16, SECOND_MOMENTS, 3, 3, false, 1, UNCUT(4, "second moments", 3, 0), 4, NULL},
        {1, 0, BF16, MASTERS, 1, 1, false, 1, UNCUT(2, "master weights", 1, 0), 2, SCATTER},
        {2, 1, FP32, WEIGHTS, 1, 2, true, 1, UNCUT(3, "weights", 1, 0), 2, SCATTER},
        {1, 0, FP32, NOTHING, 0, STEPS, false, 1, NULL, 4, SCATTER},
        {2, 0, BF16, NOTHING, 0, STEPS, false, 1, NULL, 2, SCATTER},
        {2, 2, FP32, NOTHING, 0, STEPS, false, 1, NULL, 2, NULL},
        {2, 3, FP32, NOTHING, 0, STEPS, false, 1, NULL, 2, SCATTER},
    };
    (void)state;
    for (size_t i = 0; i < sizeof drifts / sizeof *drifts; i++) check(&drifts[i]);
}

static void silent_otherwise(void **state) {
    (void)state;
    for (uint32_t zero = 0; zero <= 3; zero++)
        for (uint32_t dp = 2; dp <= 4; dp++)
            check(&(struct drift){dp, zero, dp & 1 ? FP32 : BF16, NOTHING, 0, STEPS, false, 1, NULL, 1, NULL});
    /* without comparisons a drift is not seen */
    check(&(struct drift){2, 0, FP32, FIRST_MOMENTS, 1, 1, false, 0, NULL, 1, NULL});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_copy_is_compared),
                                       cmocka_unit_test(what_is_not_cut_is_compared),
                                       cmocka_unit_test(silent_otherwise)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
