/* States of activations and gradients (model/state.h), where they are followed (CONFIG=asan, tsan, debug): steps and
 * validations of the real passes run through, on one rank and many, and each mistake ends its ranks with the name of what is
 * wrong. Mistakes are made here, by calling the model's functions in a wrong order. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "model/gradient.h"
#include "model/layer.h"
#include "model/state.h"
#include "os/file.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

enum { PATH_BYTES = 96, SEQUENCES = 4, T = 8, C = 24 };

static char folder[TEST_FOLDER_BYTES], train_set[PATH_BYTES + 16], valid_set[PATH_BYTES + 16];

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "model_states", 4096, path)) return -1;
    snprintf(train_set, sizeof train_set, "data.train=%s", path);
    snprintf(valid_set, sizeof valid_set, "data.valid=%s", path);
    if (!WH_STATES_FOLLOWED) print_message("states are compiled out: nothing to catch in this configuration\n");
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

#define DP(n)   "parallelism.dp=" #n
#define TP(n)   "parallelism.tp=" #n
#define SCATTER "parallelism.tp_mode=REDUCE_SCATTER"

static void open_config(const char *const *more, struct wh_config *c) {
    static const char text[] =
        "model: {model_config: {model_type: gpt2, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,\n"
        "  num_attention_heads: 2, vocab_size: 256, max_position_embeddings: 8}}\n"
        "tokens: {global_batch_size: 4, sequence_length: 8, train_steps: 10, limit_val_batches: 1,\n"
        "  micro_batch_size: 2}\n"
        "threads: 1\n";
    const char *sets[12] = {train_set, valid_set};
    for (size_t count = 2; *more; more++) sets[count++] = *more;
    if (test_config(text, sets, c) != WH_OK) fail_msg("%s", wh_error()->message);
}

/* ---- right ---- */

static enum wh_status train(struct wh_session *s, const void *context, void *shared) {
    struct wh_step_result r;
    struct wh_evaluation e;
    (void)context, (void)shared;
    wh_net_init_weights(&s->net, 1);
    for (int i = 0; i < 2; i++) {
        WH_TRY(wh_session_step(s, &r));
        WH_TRY(wh_session_validate(s, &e));
    }
    return WH_OK;
}

static void passes_run_clean(void **state) {
    static const char *const layouts[][8] = {
        {NULL},
        {"recompute=full", "loss_block_tokens=3"},
        {TP(2)},
        {TP(2), SCATTER},
        {TP(2), SCATTER, "recompute=selective", "model.model_config.resid_pdrop=0.1", "model.dtype=bfloat16"},
        {TP(2), SCATTER, "parallelism.pp=2", "parallelism.pp_engine=zb-h1", "recompute=full"},
        {DP(2), TP(2), SCATTER, "optimizer.zero_stage=2", "model.model_config.tie_word_embeddings=false"},
        {DP(2), "parallelism.pp=2", "optimizer.zero_stage=3", "tokens.micro_batch_size=1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct wh_config c;
        open_config(layouts[i], &c);
        struct test_sessions t = {.config = &c, .body = train};
        const uint32_t bad = test_sessions_run(&t);
        if (bad) test_ranks_print(&t.ranks);
        assert_int_equal(bad, 0);
        test_ranks_free(&t.ranks);
        wh_config_free(&c);
    }
}

/* ---- wrong ---- */

/* A session whose first micro-batch has gone forward: layer 0's activations are there. */
struct stand {
    struct wh_session *s;
    struct wh_net *net;
    struct wh_net_batch batch;
    struct wh_pass pass;
    size_t n, rows;
    struct wh_layer_acts *acts; /* of layer 0 */
};

typedef enum wh_status mistake_fn(struct stand *k);

struct mistake {
    const char *name;
    mistake_fn *make;
    const char *sets[4];
    const char *message; /* what each rank says that isn't told of another's end first */
};

/* x_mid = attn Wo^T, over all tensor ranks. */
static struct wh_gemm attention_output(const struct stand *k) {
    const size_t width = (size_t)k->net->local.H * k->net->local.D;
    return (struct wh_gemm){.m = k->n,
                            .n = C,
                            .k = width,
                            .a = {k->acts->attn, WH_F32, width, false},
                            .b = {wh_net_weight(k->net, WH_P_ATTN_O, 0), WH_F32, width, true},
                            .c = {k->acts->x_mid, WH_F32, C},
                            .parts = k->net->parts_o.list,
                            .part_count = k->net->parts_o.count};
}

static void second_norm(struct stand *k) {
    wh_norm_forward(k->net, k->rows, k->acts->x_mid, WH_P_MLP_NORM_GAIN, 0, k->acts->norm2, k->acts->norm2_stats);
}

static enum wh_status no_join(struct stand *k) {
    const struct wh_gemm g = attention_output(k);
    wh_tensor_product(k->net, WH_TIME_GEMM_FORWARD, &g, 0);
    second_norm(k);
    return WH_OK;
}

static enum wh_status two_joins(struct stand *k) {
    struct wh_gemm g = attention_output(k);
    wh_tensor_gemm(k->net, WH_TIME_GEMM_FORWARD, &g, WH_TENSOR_FORWARD);
    second_norm(k);
    wh_tensor_join(k->net, &g, WH_TENSOR_FORWARD);
    return WH_OK;
}

static enum wh_status no_gather(struct stand *k) {
    const size_t width = ((size_t)k->net->local.H + 2 * (size_t)k->net->local.Hkv) * k->net->local.D;
    const struct wh_gemm g = {.m = k->n,
                              .n = width,
                              .k = C,
                              .a = {k->acts->norm1, WH_F32, C, false},
                              .b = {wh_net_weight(k->net, WH_P_ATTN_Q, 0), WH_F32, C, true},
                              .c = {k->acts->qkv, WH_F32, width}};
    wh_tensor_columns(k->net, WH_TIME_GEMM_FORWARD, &g);
    return WH_OK;
}

static enum wh_status rows_for_all_tokens(struct stand *k) {
    const size_t width = (size_t)k->net->local.H * k->net->local.D;
    wh_gradient_matrix(k->net, &k->net->sum_matrix, 0, wh_net_param(k->net, WH_P_ATTN_O, 0), k->acts->x_mid, WH_F32, C,
                       k->acts->attn, width);
    return WH_OK;
}

/* What the other tensor ranks have of a sum over the vocabulary. */
static enum wh_status two_sums(struct stand *k) {
    float *z = k->net->tp_rows + 2 * (size_t)k->net->loss_block;
    WH_TRY(wh_net_train(k->net, 0, &k->batch, 0.1f, 0));
    wh_tensor_sum(k->net, z, 1);
    return WH_OK;
}

static enum wh_status no_vector_join(struct stand *k) {
    WH_TRY(wh_net_train(k->net, 0, &k->batch, 0.1f, 0)); /* the unit is done after the last micro-batch only */
    wh_gradient_finish(k->net);
    return WH_OK;
}

/* The buckets are on their way. */
static enum wh_status train_all(struct stand *k) {
    for (uint32_t i = 0; i < wh_net_sequences(&k->net->shape) / k->net->shape.micro_batch; i++)
        WH_TRY(wh_net_train(k->net, i, &k->batch, 0.1f, 0));
    return WH_OK;
}

static enum wh_status step_before_reduction(struct stand *k) {
    double norm;
    WH_TRY(train_all(k));
    return wh_engine_norm(&k->s->engine, &k->s->adamw, &norm);
}

static enum wh_status table_before_gather(struct stand *k) {
    WH_TRY(train_all(k));
    wh_net_finish_gradients(k->net, &k->batch, 0);
    return WH_OK;
}

static enum wh_status reduced_twice(struct stand *k) {
    struct wh_replica *r = &k->s->engine.replica;
    WH_TRY(train_all(k));
    WH_TRY(wh_replica_gather_embedded(r));
    WH_TRY(wh_replica_collect(r));
    return k->net->hooks.done(r, wh_net_unit_at(k->net, r->plan->zero.bucket[0].first));
}

static const struct mistake mistakes[] = {
    {"a join is left out",
     no_join,
     {TP(2)},
     "layer 0, test: residual stream = replicated (norm found partial sum: its reduction is missing)"},
    {"a join is left out, positions cut",
     no_join,
     {TP(2), SCATTER},
     "layer 0, test: residual stream = own positions (norm found partial sum: its reduction is missing)"},
    {"a join is left out, one rank",
     no_join,
     {NULL},
     "layer 0, test: residual stream = replicated (norm found partial sum: its reduction is missing)"},
    {"a join is done twice",
     two_joins,
     {TP(2)},
     "layer 0, test: product with own rows = partial sum (tp.fwd.all_reduce found replicated: it was reduced before)"},
    {"a join is done twice, positions cut",
     two_joins,
     {TP(2), SCATTER},
     "layer 0, test: product with own rows = partial sum (tp.fwd.reduce_scatter found own positions: it was reduced"},
    {"a gather is left out",
     no_gather,
     {TP(2), SCATTER},
     "layer 0, test: left factor = replicated (product with own columns found own positions: its gather is missing)"},
    {"rows of the stream where all tokens are wanted",
     rows_for_all_tokens,
     {TP(2), SCATTER},
     "layer 0, test: gradient of a product = replicated (layer.0.attn.o.weight found own positions: its gather is"},
    {"the softmax's sum is reduced twice",
     two_sums,
     {TP(2)},
     "numbers of the softmax = partial sum (tp.head.all_reduce found replicated: it was reduced before)"},
    {"a vector's gradient isn't joined",
     no_vector_join,
     {TP(2), SCATTER},
     "layer 0: gradients of vectors = replicated (the end of the step found partial sum: its reduction is missing)"},
    {"a bucket is stepped on before its reduction",
     step_before_reduction,
     {DP(2)},
     "embeddings: gradients of parameters = reduced (the gradient norm found own contribution: its reduction is "
     "missing)"},
    {"a bucket is reduced twice",
     reduced_twice,
     {DP(2)},
     "gradients of parameters = own contribution (the reduction of a bucket found reduced: it was reduced before)"},
    {"embedded tokens aren't gathered",
     table_before_gather,
     {DP(2)},
     "embedding, backward: gradients of the embedded tokens = reduced (gradients of the tables found replicated: "},
};

/* All have started before one dies. */
static enum wh_status meet(const struct wh_session *s) {
    const struct wh_comm_call call = {.op = WH_BARRIER, .row = "test"};
    return s->team ? wh_comm_run(s->team->all, &call) : WH_OK;
}

static void said_path(uint32_t rank, char path[PATH_BYTES]) { snprintf(path, PATH_BYTES, "%s/said-%u", folder, rank); }

static enum wh_status make(struct wh_session *s, const struct mistake *m) {
    const struct wh_net_shape *shape = &s->net.shape;
    struct stand k = {.s = s, .net = &s->net, .batch = {s->ids, s->labels, NULL}, .acts = s->net.slot[0].acts};
    char path[PATH_BYTES];
    said_path(s->stage.rank, path);
    RANK_CHECK(freopen(path, "w", stderr) && setvbuf(stderr, NULL, _IONBF, 0) == 0); /* abort flushes nothing */
    for (uint32_t i = 0; i < SEQUENCES * T; i++) s->ids[i] = i * i % 256, s->labels[i] = (int32_t)i;
    wh_net_init_weights(&s->net, 1);
    WH_TRY(meet(s));
    const struct wh_net_micro micro = {&k.batch, 0, 0, 0.1f};
    WH_TRY(wh_net_chunk_forward(&s->net, 0, &micro, 0, NULL));
    k.n = (size_t)shape->micro_batch * T, k.rows = wh_net_stream_elems(shape) / C;
    wh_state_place(&s->net, 0, "test");
    WH_TRY(m->make(&k));
    return WH_FAIL(WH_INTERNAL, "nobody has noticed");
}

static enum wh_status err(struct wh_session *s, const void *context, void *shared) {
    const enum wh_status status = make(s, context);
    (void)shared;
    if (status == WH_PEER) _exit(0); /* another rank was first; reductions that it was to join are still under way */
    return status;
}

static bool says(uint32_t rank, const char *message) {
    char path[PATH_BYTES], *said;
    size_t bytes;
    said_path(rank, path);
    assert_int_equal(wh_file_read(path, 1 << 20, &said, &bytes), WH_OK);
    const bool found = strstr(said, message) != NULL;
    print_message("%s", said);
    free(said);
    return found;
}

static void mistake_is_caught(void **state) {
    const struct mistake *m = *state;
    struct wh_config c;
    if (!WH_STATES_FOLLOWED) skip();
    open_config(m->sets, &c);
    struct test_sessions t = {.config = &c, .body = err, .context = m};
    uint32_t aborted = 0;
    test_sessions_run(&t);
    for (uint32_t r = 0; r < t.ranks.config.ranks; r++) {
        const struct test_rank_end *end = &t.ranks.end[r];
        aborted += end->signal == SIGABRT;
        if (end->signal == SIGABRT ? says(r, m->message) : end->exit_code == 0 && end->status == WH_OK) continue;
        test_ranks_print(&t.ranks);
        fail_msg("rank %u doesn't say '%s'", r, m->message);
    }
    assert_true(aborted > 0);
    test_ranks_free(&t.ranks);
    wh_config_free(&c);
}

int main(void) {
    enum { MISTAKES = sizeof mistakes / sizeof *mistakes };
    struct CMUnitTest tests[MISTAKES + 1] = {cmocka_unit_test(passes_run_clean)};
    for (size_t i = 0; i < MISTAKES; i++)
        tests[i + 1] = (struct CMUnitTest){
            .name = mistakes[i].name, .test_func = mistake_is_caught, .initial_state = (void *)&mistakes[i]};
    return _cmocka_run_group_tests("states", tests, MISTAKES + 1, make_folder, drop_folder);
}
