/* Case B22: what all tensor ranks hold (norms, and biases that aren't cut) has under sequence parallelism a gradient of which
 * each rank has its positions' part. They are added up, never averaged; the copies never drift apart, and are those of one
 * rank. Also: what a rank has is what `wanhe layout` shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/gradient.h"
#include "os/file.h"
#include "plan/layout.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

enum { STEPS = 20, RANKS_MAX = 4, ELEMS_MAX = 1024, SETS_MAX = 12 };

static char folder[TEST_FOLDER_BYTES], data_set[96];

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "positions", 4096, path)) return -1;
    snprintf(data_set, sizeof data_set, "data.train=%s", path);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

#define MC "model.model_config."

static void run(const char *const *sets, enum wh_status (*body)(struct wh_session *, const void *, void *), void *out,
                size_t bytes) {
    static const char text[] =
        "model: {model_config: {num_hidden_layers: 2, vocab_size: 256}}\n"
        "tokens: {train_steps: 100}\n"
        "optimizer: {learning_rate_scheduler: {learning_rate: 0.01}}\n"
        "threads: 1\n";
    const char *all[SETS_MAX] = {data_set};
    struct wh_config c;
    for (size_t count = 1; *sets; sets++) all[count++] = *sets;
    if (test_config(text, all, &c) != WH_OK) fail_msg("%s", wh_error()->message);
    struct test_sessions t = {.config = &c, .body = body};
    if (test_sessions_run(&t) != 0) {
        test_ranks_print(&t.ranks);
        fail_msg("a rank failed");
    }
    memcpy(out, t.ranks.shared, bytes);
    test_ranks_free(&t.ranks);
    wh_config_free(&c);
}

/* ---- the reported numbers: a sequence of two positions, one on each rank ---- */

static void add_row(const void *context, size_t r, float *acc, float *scratch) {
    const float *partial = context;
    (void)scratch;
    for (int i = 0; i < 2; i++) acc[i] += partial[2 * r + (size_t)i];
}

static enum wh_status sum_of_partials(struct wh_session *s, const void *context, void *shared) {
    static const float partial[2][2] = {{0.50f, -0.25f}, {0.25f, 0.75f}};
    struct wh_net *net = &s->net;
    const uint32_t rank = net->shape.tensor.rank;
    const struct wh_param *gain = wh_net_param(net, WH_P_FINAL_NORM_GAIN, -1);
    (void)context;
    RANK_CHECK(wh_net_stream_border(&net->shape, rank + 1) - wh_net_stream_border(&net->shape, rank) == 1);
    wh_gradient_vectors(net, 0, gain, NULL, add_row, partial[rank]);
    wh_gradient_join_vectors(net, wh_net_unit(net, gain));
    WH_TRY(net->status);
    memcpy((float *)shared + (size_t)2 * rank, test_grad(net, gain->offset), 2 * sizeof(float));
    return WH_OK;
}

static void partials_are_added(void **state) {
    static const char *const sets[] = {"parallelism.tp=2",
                                       "parallelism.tp_mode=REDUCE_SCATTER",
                                       MC "model_type=llama",
                                       MC "hidden_size=2",
                                       MC "head_dim=2",
                                       MC "num_attention_heads=2",
                                       MC "intermediate_size=4",
                                       "tokens.global_batch_size=1",
                                       "tokens.sequence_length=2",
                                       NULL};
    float grads[2][2];
    (void)state;
    run(sets, sum_of_partials, grads, sizeof grads);
    for (int rank = 0; rank < 2; rank++) assert_true(grads[rank][0] == 0.75f && grads[rank][1] == 0.50f);
}

/* ---- copies after 20 steps ---- */

struct copies {
    size_t elems;
    float weight[RANKS_MAX][ELEMS_MAX], m[RANKS_MAX][ELEMS_MAX];
    double loss, norm; /* of the last step */
};

static bool is(struct wh_range r, size_t begin, size_t length) { return r.begin == begin && r.end - r.begin == length; }

static enum wh_status check_slices(const struct wh_session *s) {
    const struct wh_net *net = &s->net;
    const uint32_t rank = net->shape.tensor.rank;
    const size_t positions = wh_net_stream_elems(&net->shape) / net->shape.micro_batch / net->local.C;
    struct wh_layout l;
    WH_TRY(wh_layout_new(s->config, &(struct wh_layout_options){0}, &l));
    const struct wh_layout_slices k = l.slices[rank];
    wh_layout_free(&l);
    RANK_CHECK(is(k.heads, wh_net_first_head(net), net->local.H) &&
               k.kv_heads.end - k.kv_heads.begin == net->local.Hkv);
    RANK_CHECK(k.channels.end - k.channels.begin == net->local.F && is(k.tokens, net->first_token, net->local.V));
    RANK_CHECK(
        is(k.positions, wh_net_cuts_stream(&net->shape) ? wh_net_stream_border(&net->shape, rank) : 0, positions));
    return WH_OK;
}

static enum wh_status train(struct wh_session *s, const void *context, void *shared) {
    const struct wh_net *net = &s->net;
    const uint32_t rank = net->shape.tensor.rank;
    struct copies *out = shared;
    struct wh_step_result r;
    size_t at = 0;
    (void)context;
    WH_TRY(check_slices(s));
    wh_net_init_weights(&s->net, 3);
    for (int i = 0; i < STEPS; i++) WH_TRY(wh_session_step(s, &r));
    for (size_t i = 0; i < net->shape.params->count; i++) {
        const struct wh_param *p = &net->shape.params->list[i];
        if (p->cols || p->cut != WH_CUT_NONE) continue;
        RANK_CHECK(at + p->elems <= ELEMS_MAX, "%zu elements", at + p->elems);
        memcpy(out->weight[rank] + at, test_master(net, p->offset), p->elems * sizeof(float));
        memcpy(out->m[rank] + at, net->adam_m + p->offset, p->elems * sizeof(float));
        at += p->elems;
    }
    out->elems = at, out->loss = r.loss, out->norm = r.grad_norm;
    return WH_OK;
}

static void copies_of(const char *family, const char *tp, const char *mode, struct copies *out) {
    const char *const sets[] = {family,
                                tp,
                                mode,
                                MC "hidden_size=24",
                                MC "num_attention_heads=4",
                                MC "intermediate_size=40",
                                MC "max_position_embeddings=10",
                                "tokens.global_batch_size=8",
                                "tokens.micro_batch_size=4",
                                "tokens.sequence_length=10",
                                NULL};
    run(sets, train, out, sizeof *out);
}

static void copies_are_those_of_one_rank(void **state) {
    static const char *const families[] = {MC "model_type=llama", MC "model_type=gpt2"};
    static const struct {
        const char *tp, *mode;
        uint32_t ranks;
    } layouts[] = {{"parallelism.tp=2", "parallelism.tp_mode=ALL_REDUCE", 2},
                   {"parallelism.tp=2", "parallelism.tp_mode=REDUCE_SCATTER", 2},
                   {"parallelism.tp=4", "parallelism.tp_mode=REDUCE_SCATTER", 4}};
    static struct copies one, other;
    (void)state;
    for (int f = 0; f < 2; f++) {
        copies_of(families[f], "parallelism.tp=1", "parallelism.tp_mode=ALL_REDUCE", &one);
        for (size_t i = 0; i < one.elems; i++) /* each has moved */
            assert_true(one.m[0][i] != 0.0f);
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            copies_of(families[f], layouts[l].tp, layouts[l].mode, &other);
            assert_true(other.elems == one.elems && one.elems >= 5 * 24);
            assert_true(other.loss == one.loss && other.norm == one.norm);
            for (uint32_t rank = 0; rank < layouts[l].ranks; rank++) {
                assert_memory_equal(other.weight[rank], one.weight[0], one.elems * sizeof(float));
                assert_memory_equal(other.m[rank], one.m[0], one.elems * sizeof(float));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(partials_are_added),
                                       cmocka_unit_test(copies_are_those_of_one_rank)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
