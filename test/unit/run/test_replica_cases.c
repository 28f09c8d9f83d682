/* Cases of other programs' users among data-parallel ranks: averages over unequal numbers of labels (B02, B03), evaluation
 * (B05, B06), who reads which samples (B07).
 *
 * The models are made so that a token's loss is known: embedding row i is the unit vector i, layers add nothing, and the
 * head turns a unit vector into logits that were chosen. So the numbers are those of the reports. */
#include <math.h>
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

enum { V = 256, WIDTH = 8, END = WIDTH - 1, ELEMS_MAX = 8192, SETS_MAX = 20, RANKS_MAX = 4, DOCUMENTS = 64 };

static char folder[TEST_FOLDER_BYTES];

static int make_folder(void **state) {
    (void)state;
    return test_folder_make(folder, "cases") ? 0 : -1;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

/* ---- a layout, and what a run of it leaves ---- */

struct layout {
    uint32_t dp, zero, micro;
};

struct outcome {
    uint64_t steps, labels, sequences;
    double loss[RANKS_MAX]; /* as each rank has it */
    double norm;
    size_t elems;
    float grads[ELEMS_MAX];
    uint32_t read[16][DOCUMENTS], reads[16]; /* by rank: documents in the order in which they went through */
};

static void open_config(const struct layout *l, uint32_t batch, uint32_t T, uint32_t width, const char *const *more,
                        struct wh_config *c) {
    static const char text[] =
        "model: {model_config: {intermediate_size: 16, num_hidden_layers: 2,\n"
        "  num_attention_heads: 2, vocab_size: 256}}\n"
        "tokens: {train_steps: 100}\n"
        "data: {shuffle: false}\n"
        "optimizer: {learning_rate_scheduler: {learning_rate: 0}}\n"
        "threads: 1\n";
    char made[7][96];
    const char *sets[SETS_MAX];
    size_t count = 0;
    snprintf(made[0], sizeof *made, "parallelism.dp=%u", l->dp);
    snprintf(made[1], sizeof *made, "optimizer.zero_stage=%u", l->zero);
    snprintf(made[2], sizeof *made, "tokens.micro_batch_size=%u", l->micro);
    snprintf(made[3], sizeof *made, "tokens.global_batch_size=%u", batch);
    snprintf(made[4], sizeof *made, "tokens.sequence_length=%u", T);
    snprintf(made[5], sizeof *made, "model.model_config.hidden_size=%u", width);
    snprintf(made[6], sizeof *made, "grain.data=%u", batch);
    for (; count < 7; count++) sets[count] = made[count];
    for (; *more; more++) sets[count++] = *more;
    sets[count] = NULL;
    if (test_config(text, sets, c) != WH_OK) fail_msg("%s", wh_error()->message);
}

static const char *write_tokens(const char *key, const uint32_t *ids, size_t count, char *set) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s.bin", folder, key);
    assert_int_equal(wh_tokens_write_llmc(path, ids, count, V), WH_OK);
    sprintf(set, "data.%s=%s", key, path);
    return set;
}

static void run(const struct wh_config *c, enum wh_status (*body)(struct wh_session *, const void *, void *),
                const void *context, struct outcome *out) {
    struct test_sessions t = {.config = c, .body = body, .context = context};
    assert_true(sizeof *out <= TEST_RANKS_SHARED_BYTES);
    if (test_sessions_run(&t) != 0) {
        test_ranks_print(&t.ranks);
        fail_msg("dp %u, ZeRO %u", c->parallelism.dp, c->optimizer.zero_stage);
    }
    memcpy(out, t.ranks.shared, sizeof *out);
    test_ranks_free(&t.ranks);
}

/* ---- weights that give chosen losses ---- */

/* After token i each of two tokens, i and `other`, costs `nats`; the rest is even. */
struct cost {
    double nats;
    uint32_t other;
};

static void set_elem(struct wh_net *net, const struct wh_param *p, size_t i, double value) {
    const size_t elem = p->offset + i;
    if (elem >= net->own.begin && elem < net->own.end) *test_master(net, elem) = (float)value;
}

static void set_all(struct wh_net *net, const struct wh_param *p) {
    const bool gain = p->init == WH_INIT_ONES;
    for (size_t i = 0; i < p->elems; i++) set_elem(net, p, i, gain);
}

/* Of tokens below the model's width, the only ones that occur; costs [width] or NULL: all logits 0. */
static void make_weights(struct wh_net *net, const struct cost *costs) {
    const struct wh_params *params = net->shape.params;
    const size_t C = net->shape.model->C;
    const double norm =
        sqrt(1.0 / (double)C + net->shape.model->norm_eps); /* a unit vector leaves the norm as 1 / this */
    const struct wh_param *head = wh_params_find(params, WH_P_HEAD, -1);
    for (size_t i = 0; i < params->count; i++) set_all(net, &params->list[i]);
    for (size_t i = 0; i < C; i++) set_elem(net, wh_params_find(params, WH_P_EMBED_TOKEN, -1), i * C + i, 1.0);
    for (size_t i = 0; costs && i < C; i++)
        for (size_t v = 0; v < V; v++)
            if (v != i && v != costs[i].other) /* logit 0 for the two, this for the others */
                set_elem(net, head, v * C + i, norm * log((exp(costs[i].nats) - 2.0) / (V - 2)));
    wh_net_refresh_weights(net);
}

/* ---- training ---- */

struct training {
    const struct cost *costs;
    uint32_t steps, told; /* outcome: of step `told`, from 1 */
};

static void tell_step(const struct wh_session *s, const struct wh_step_result *r, struct outcome *out) {
    const struct wh_net *net = &s->net;
    const size_t first = net->own.begin;
    out->loss[net->shape.data.rank] = r->loss;
    out->norm = r->grad_norm, out->labels = r->valid_labels, out->elems = s->stage.whole.buffer_elems;
    memcpy(out->grads + first, test_grad(net, first), (net->own.end - first) * sizeof(float));
}

static enum wh_status train(struct wh_session *s, const void *context, void *shared) {
    const struct training *t = context;
    struct outcome *out = shared;
    struct wh_step_result r;
    RANK_CHECK(s->stage.whole.buffer_elems <= ELEMS_MAX);
    make_weights(&s->net, t->costs);
    while (s->step < t->steps) {
        WH_TRY(wh_session_step(s, &r));
        if (s->step == t->told) tell_step(s, &r, out);
    }
    out->steps = s->step;
    return WH_OK;
}

static void near(double is, double want) {
    if (!(fabs(is - want) < 2e-6 * want)) fail_msg("%.9g, not %.9g", is, want);
}

/* The same bits on every rank of every layout. */
static void same_outcome(const struct outcome *one, const struct outcome *other, const struct layout *l) {
    for (uint32_t r = 0; r < l->dp; r++) assert_memory_equal(&one->loss[0], &other->loss[r], sizeof(double));
    assert_memory_equal(&one->norm, &other->norm, sizeof one->norm);
    assert_int_equal(one->labels, other->labels);
    assert_memory_equal(one->grads, other->grads, one->elems * sizeof(float));
}

static const char *const masked[] = {"data.document_mask=true", "data.end_of_text=7"};
static struct outcome one, other;

/* B02: 6 labels at 2.0 on rank 0, 2 labels at 4.0 on rank 1. */
static void unequal_ranks(void **state) {
    (void)state;
    static const uint32_t ids[17] = {0, 0, 0, 0, 0, 0, END, END, 1, 1, END, END, END, END, END, END, END};
    static const struct cost costs[WIDTH] = {[0] = {2.0, END}, [1] = {4.0, END}, [2 ... END] = {3.0, 0}};
    static const struct training work = {costs, 1, 1};
    char train_set[128];
    const char *const more[] = {write_tokens("train", ids, 17, train_set), masked[0], masked[1], NULL};
    for (uint32_t dp = 1; dp <= 2; dp++)
        for (uint32_t zero = 0; zero <= (dp > 1 ? 3 : 0); zero++) {
            const struct layout l = {dp, zero, 1};
            struct wh_config c;
            open_config(&l, 2, 8, WIDTH, more, &c);
            run(&c, train, &work, dp == 1 ? &one : &other);
            if (dp > 1) same_outcome(&one, &other, &l);
            wh_config_free(&c);
        }
    assert_int_equal(one.labels, 8);
    near(one.loss[0], 2.5); /* not (2 + 4) / 2 */
}

/* B03: in step 3 rank 1 has no label at all, rank 0 has 10 of 3.0 each. */
static void nothing_to_learn_on_one_rank(void **state) {
    (void)state;
    enum { T = 12, STEPS = 4 };
    static const struct cost costs[WIDTH] = {[0] = {3.0, END}, [1 ... END] = {4.0, 0}};
    static const struct training all = {costs, STEPS, 3}, single = {costs, 1, 1};
    static struct outcome alone;
    uint32_t ids[2 * STEPS * T + 1];
    char train_set[128];
    for (uint32_t i = 0; i < 2 * STEPS * T + 1; i++) ids[i] = i * i % END;
    for (uint32_t i = 0; i < T; i++) ids[4 * T + i] = i < 10 ? 0 : END, ids[5 * T + i] = END;
    const char *const more[] = {write_tokens("train", ids, 2 * STEPS * T + 1, train_set), masked[0], masked[1], NULL};
    for (uint32_t dp = 1; dp <= 2; dp++)
        for (uint32_t zero = 0; zero <= (dp > 1 ? 3 : 0); zero++) {
            const struct layout l = {dp, zero, 1};
            struct wh_config c;
            open_config(&l, 2, T, WIDTH, more, &c);
            run(&c, train, &all, dp == 1 ? &one : &other);
            if (dp > 1) same_outcome(&one, &other, &l);
            wh_config_free(&c);
        }
    assert_int_equal(one.steps, STEPS);
    assert_int_equal(other.steps, STEPS);
    assert_int_equal(one.labels, 10);
    near(one.loss[0], 3.0);
    /* rank 0's sequence by itself, divided by its 10 labels */
    char alone_set[128];
    const char *const by_itself[] = {write_tokens("train", ids + 4 * T, T + 1, alone_set), masked[0], masked[1], NULL};
    struct wh_config c;
    open_config(&(struct layout){1, 0, 1}, 1, T, WIDTH, by_itself, &c);
    run(&c, train, &single, &alone);
    wh_config_free(&c);
    assert_true(alone.loss[0] == one.loss[0] && alone.norm > 0.0 && isfinite(alone.norm));
    for (size_t i = 0; i < one.elems; i++) assert_true(alone.grads[i] == one.grads[i]);
}

/* ---- evaluation ---- */

static enum wh_status validate(struct wh_session *s, const void *costs, void *shared) {
    struct outcome *out = shared;
    struct wh_evaluation e;
    make_weights(&s->net, costs);
    WH_TRY(wh_session_validate(s, &e));
    out->loss[s->net.shape.data.rank] = e.loss;
    out->sequences = e.sequences, out->labels = e.labels;
    return WH_OK;
}

static void evaluate_on(const struct layout *l, uint32_t batch, uint32_t T, const char *const *more,
                        const struct cost *costs, double want) {
    struct wh_config c;
    open_config(l, batch, T, WIDTH, more, &c);
    run(&c, validate, costs, l->dp == 1 ? &one : &other);
    if (l->dp == 1) near(one.loss[0], want);
    for (uint32_t r = 0; l->dp > 1 && r < l->dp; r++) assert_memory_equal(&one.loss[0], &other.loss[r], sizeof(double));
    if (l->dp > 1) assert_true(one.sequences == other.sequences && one.labels == other.labels);
    wh_config_free(&c);
}

/* B05: 21 sequences in twos; sequence 0 has loss 10, the others 1. */
static void twenty_one_sequences(void **state) {
    (void)state;
    enum { N = 21, T = 4, BATCH = 24 };
    static const struct cost costs[WIDTH] = {[0] = {10.0, 1}, [1 ... END] = {1.0, 0}};
    uint32_t ids[N * T + 1], filler[BATCH * T + 1] = {0};
    char train_set[128], valid_set[128];
    for (uint32_t i = 0; i < N * T + 1; i++) ids[i] = i >= T;
    const char *const more[] = {write_tokens("train", filler, BATCH * T + 1, train_set),
                                write_tokens("valid", ids, N * T + 1, valid_set), NULL};
    for (uint32_t dp = 1; dp <= 4; dp++)
        for (uint32_t zero = 0; zero <= (dp > 1 ? 3 : 0); zero += 3)
            evaluate_on(&(struct layout){dp, zero, 2}, BATCH, T, more, costs, 30.0 / 21.0);
    assert_int_equal(one.sequences, 21);
    assert_int_equal(one.labels, N * T);
}

/* B06: rank 0's part has 4 labels at 1.0, rank 1's has 12 at 3.0; every rank has the mean over all 16. */
static void evaluation_of_all_ranks(void **state) {
    (void)state;
    enum { T = 12 };
    static const struct cost costs[WIDTH] = {[0] = {1.0, END}, [1] = {3.0, END}, [2 ... END] = {2.0, 0}};
    uint32_t ids[2 * T + 1];
    char train_set[128], valid_set[128];
    for (uint32_t i = 0; i < 2 * T + 1; i++) ids[i] = i < 4 ? 0 : i < T ? END : 1;
    const char *const more[] = {write_tokens("train", ids, 2 * T + 1, train_set),
                                write_tokens("valid", ids, 2 * T + 1, valid_set), masked[0], masked[1], NULL};
    for (uint32_t dp = 1; dp <= 2; dp++)
        for (uint32_t zero = 0; zero <= (dp > 1 ? 3 : 0); zero++)
            evaluate_on(&(struct layout){dp, zero, 1}, 2, T, more, costs, 2.5);
    assert_int_equal(one.labels, 16);
}

/* ---- which samples a rank reads ---- */

enum { READ_T = 2, READ_BATCH = 8, READ_STEPS = 2 * DOCUMENTS / READ_BATCH };

/* Looks at what goes through the layers: rows of the residual stream behind the embedding are unit vectors. */
struct spy {
    struct wh_net *net;
    struct wh_net_hooks inner;
    struct outcome *out;
};

static uint32_t token_of(const float *row, size_t C) {
    for (uint32_t i = 0; i < C; i++)
        if (row[i] == 1.0f) return i;
    return UINT32_MAX;
}

static enum wh_status look(void *context, bool training, uint32_t read) {
    struct spy *spy = context;
    const struct wh_net_shape *s = &spy->net->shape;
    if (spy->inner.need) WH_TRY(spy->inner.need(spy->inner.context, training, read));
    const uint32_t per_micro_batch = 2 * s->model->L + 2 + s->model->tied; /* units read */
    if (!training || read % per_micro_batch != 1) return WH_OK;
    const uint32_t rank = s->data.rank;
    for (uint32_t i = 0; i < s->micro_batch * READ_T; i++) {
        const uint32_t id = token_of((const float *)spy->net->slot[0].x[0] + (size_t)i * s->model->C, s->model->C);
        uint32_t *list = &spy->out->read[rank][0];
        RANK_CHECK(id < DOCUMENTS);
        if (i % READ_T == 0) list[spy->out->reads[rank]++] = id;
        RANK_CHECK(list[spy->out->reads[rank] - 1] == id); /* a document is one token repeated */
    }
    return WH_OK;
}

static enum wh_status room(void *context, uint32_t unit) {
    struct spy *spy = context;
    return spy->inner.room ? spy->inner.room(spy->inner.context, unit) : WH_OK;
}

static enum wh_status done(void *context, uint32_t unit) {
    struct spy *spy = context;
    return spy->inner.done ? spy->inner.done(spy->inner.context, unit) : WH_OK;
}

/* An epoch; `context`: which one, from 0. */
static enum wh_status log_reads(struct wh_session *s, const void *context, void *shared) {
    const uint64_t epoch = *(const uint32_t *)context, steps = s->sampler.steps_per_epoch;
    struct spy spy = {&s->net, s->net.hooks, shared};
    struct wh_step_result r;
    RANK_CHECK(steps == DOCUMENTS / READ_BATCH);
    make_weights(&s->net, NULL);
    s->net.hooks = (struct wh_net_hooks){&spy, look, room, done};
    for (s->step = epoch * steps; s->step < (epoch + 1) * steps;) WH_TRY(wh_session_step(s, &r));
    return WH_OK;
}

/* documents[step][position]: rank r reads its positions of each step in order. */
static void epoch_on(const struct layout *l, uint32_t epoch, const char *const *more, uint32_t *documents) {
    const uint32_t each = READ_BATCH / l->dp;
    struct wh_config c;
    open_config(l, READ_BATCH, READ_T, DOCUMENTS, more, &c);
    run(&c, log_reads, &epoch, &other);
    for (uint32_t r = 0; r < l->dp; r++) assert_int_equal(other.reads[r], DOCUMENTS / l->dp);
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        documents[i] = other.read[i % READ_BATCH / each][i / READ_BATCH * each + i % each];
    wh_config_free(&c);
}

/* B07: 64 documents; 4 ranks of 2, 2 ranks of 2 micro-batches of 2, one rank. */
static void who_reads_what(void **state) {
    (void)state;
    uint32_t ids[DOCUMENTS * READ_T + 1], first[DOCUMENTS], again[DOCUMENTS], next[DOCUMENTS], seeded[DOCUMENTS];
    char train_set[128];
    for (uint32_t i = 0; i < DOCUMENTS * READ_T + 1; i++) ids[i] = i / READ_T % DOCUMENTS;
    const char *more[] = {write_tokens("train", ids, DOCUMENTS * READ_T + 1, train_set), "data.shuffle=true",
                          "model.model_config.num_hidden_layers=1", NULL, NULL};
    bool seen[DOCUMENTS] = {false};
    epoch_on(&(struct layout){4, 1, 2}, 0, more, first);
    for (uint32_t i = 0; i < DOCUMENTS; i++) { /* disjoint, and all of them */
        assert_false(seen[first[i]]);
        seen[first[i]] = true;
    }
    epoch_on(&(struct layout){2, 3, 2}, 0, more, again);
    assert_memory_equal(first, again, sizeof first);
    epoch_on(&(struct layout){1, 0, 8}, 0, more, again);
    assert_memory_equal(first, again, sizeof first);
    epoch_on(&(struct layout){4, 0, 2}, 1, more, next);
    assert_memory_not_equal(first, next, sizeof first);
    epoch_on(&(struct layout){2, 2, 1}, 1, more, again);
    assert_memory_equal(next, again, sizeof next);
    more[3] = "data.seed=43";
    epoch_on(&(struct layout){4, 1, 2}, 0, more, seeded);
    assert_memory_not_equal(first, seeded, sizeof first);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(unequal_ranks), cmocka_unit_test(nothing_to_learn_on_one_rank),
                                       cmocka_unit_test(twenty_one_sequences),
                                       cmocka_unit_test(evaluation_of_all_ranks), cmocka_unit_test(who_reads_what)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
