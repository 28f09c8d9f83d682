/* Cases of other programs' users: how losses are averaged, masked tokens, documents, evaluation, dropout (cases B01, B03,
 * B05, B16, B27, B33). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "model/layer.h"
#include "test/unit/model/tiny.h"

static void setup(struct tiny *t, enum wh_family family, uint32_t sequences, uint32_t T) {
    *t = (struct tiny){.model = tiny_model(family)};
    t->model.tied = false;
    assert_int_equal(wh_params_new(&t->model, &t->params), WH_OK);
    tiny_batch(t, sequences, T);
}

/* Loss summed over the batch, and gradients, of sequences first .. first+count-1 in micro-batches. */
struct outcome {
    double loss;
    float *grads;
};

static struct outcome train(const struct tiny *t, uint32_t first, uint32_t count, uint32_t micro, uint64_t labels) {
    struct wh_net_shape shape = tiny_shape(t);
    struct wh_net net;
    struct outcome out;
    const size_t at = (size_t)first * t->T;
    const struct wh_net_batch batch = {t->ids + at, t->labels + at, NULL};
    shape.grain = (struct wh_grain){2, 1, 1}, shape.global_batch = count, shape.micro_batch = micro;
    assert_int_equal(wh_net_new(&shape, &net), WH_OK);
    wh_net_init_weights(&net, 1);
    for (uint32_t i = 0; i < count / micro; i++) wh_net_train(&net, i, &batch, 1.0f / (float)labels, 0);
    out.loss = wh_net_finish(&net, &batch, 0);
    out.grads = calloc(t->params.buffer_elems, sizeof *out.grads);
    for (size_t i = 0; i < t->params.count; i++) {
        const struct wh_param *p = &t->params.list[i];
        memcpy(out.grads + p->offset, (float *)net.grads + p->offset, p->elems * sizeof(float));
    }
    wh_net_free(&net);
    return out;
}

static uint64_t count_labels(const struct tiny *t, uint32_t sequence) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->T; i++) n += t->labels[(size_t)sequence * t->T + i] >= 0;
    return n;
}

/* Sequence s keeps its first lengths[s] labels. */
static void keep_labels(struct tiny *t, const uint32_t *lengths) {
    t->valid = 0;
    for (uint32_t s = 0; s < t->sequences; s++)
        for (uint32_t i = 0; i < t->T; i++) {
            const size_t at = (size_t)s * t->T + i;
            t->labels[at] = i < lengths[s] ? (int32_t)(at * 7 % t->model.V) : -1;
            t->valid += i < lengths[s];
        }
}

/* B01: the mean is over tokens, however the batch is cut. */
static void unequal_micro_batches(void **state) {
    (void)state;
    static const uint32_t lengths[] = {3, 17, 60, 64};
    struct tiny t;
    setup(&t, WH_LLAMA, 4, 64);
    keep_labels(&t, lengths);
    struct outcome one = train(&t, 0, 4, 1, t.valid);
    for (uint32_t micro = 2; micro <= 4; micro *= 2) {
        struct outcome other = train(&t, 0, 4, micro, t.valid);
        assert_memory_equal(&one.loss, &other.loss, sizeof one.loss);
        assert_memory_equal(one.grads, other.grads, t.params.buffer_elems * sizeof(float));
        free(other.grads);
    }
    /* Each sequence by itself, weighed with its number of tokens. */
    double loss = 0.0, *sum = calloc(t.params.buffer_elems, sizeof *sum), largest = 0.0;
    for (uint32_t s = 0; s < 4; s++) {
        assert_int_equal(count_labels(&t, s), lengths[s]);
        struct outcome alone = train(&t, s, 1, 1, lengths[s]);
        loss += alone.loss;
        for (size_t i = 0; i < t.params.buffer_elems; i++)
            sum[i] += (double)alone.grads[i] * lengths[s] / (double)t.valid;
        free(alone.grads);
    }
    assert_true(fabs(loss - one.loss) < 1e-9 * loss);
    for (size_t i = 0; i < t.params.buffer_elems; i++) largest = fmax(largest, fabs(sum[i]));
    for (size_t i = 0; i < t.params.buffer_elems; i++) assert_true(fabs(sum[i] - one.grads[i]) < 1e-5 * largest);
    free(one.grads), free(sum);
    tiny_free(&t);
}

/* B03: a micro-batch in which nothing counts adds nothing and divides by nothing. */
static void nothing_to_learn_from(void **state) {
    (void)state;
    static const uint32_t lengths[] = {10, 0};
    struct tiny t;
    setup(&t, WH_GPT2, 2, 16);
    keep_labels(&t, lengths);
    struct outcome both = train(&t, 0, 2, 1, t.valid), alone = train(&t, 0, 1, 1, 10);
    assert_int_equal(t.valid, 10);
    assert_true(both.loss == alone.loss && isfinite(both.loss));
    for (size_t i = 0; i < t.params.buffer_elems; i++) assert_true(both.grads[i] == alone.grads[i]);
    free(both.grads), free(alone.grads);
    tiny_free(&t);
}

static void new_net(const struct tiny *t, bool training, uint32_t micro, struct wh_net *net) {
    struct wh_net_shape shape = tiny_shape(t);
    shape.train = training, shape.micro_batch = micro, shape.grain = (struct wh_grain){2, 1, 1};
    assert_int_equal(wh_net_new(&shape, net), WH_OK);
    wh_net_init_weights(net, 1);
}

/* B16: no row of the vocabulary's sums is there that isn't a token. */
static void zero_head_gives_ln_V(void **state) {
    (void)state;
    static const uint32_t sizes[] = {10, 61, 257};
    for (int k = 0; k < 3; k++)
        for (uint32_t block = 0; block < 8; block += 7) {
            struct tiny t = {.model = tiny_model(WH_LLAMA)};
            struct wh_net net;
            t.model.tied = false, t.model.V = sizes[k];
            assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
            tiny_batch(&t, 2, 12);
            struct wh_net_shape shape = tiny_shape(&t);
            shape.grain = (struct wh_grain){2, 1, 1}, shape.loss_block_tokens = block;
            assert_int_equal(wh_net_new(&shape, &net), WH_OK);
            wh_net_init_weights(&net, 1);
            const struct wh_param *head = wh_params_find(&t.params, WH_P_HEAD, -1);
            memset(net.master + head->offset, 0, head->elems * sizeof(float));
            wh_net_refresh_weights(&net);
            const struct wh_net_batch batch = {t.ids, t.labels, NULL};
            wh_net_train(&net, 0, &batch, 1.0f / (float)t.valid, 0);
            const double loss = wh_net_finish(&net, &batch, 0) / (double)t.valid;
            assert_true(fabs(loss - log(sizes[k])) < 2e-7 * log(sizes[k]));
            wh_net_free(&net);
            tiny_free(&t);
        }
}

enum { B27_T = 24, B27_DOCUMENT = 9 };

/* Token losses of one sequence whose second document starts at B27_DOCUMENT. */
static void document_losses(const struct tiny *t, bool mask, double *out) {
    struct wh_net net;
    uint32_t starts[B27_T] = {0};
    for (uint32_t i = B27_DOCUMENT; i < B27_T; i++) starts[i] = B27_DOCUMENT;
    const struct wh_net_batch batch = {t->ids, t->labels, mask ? starts : NULL};
    new_net(t, true, 1, &net);
    wh_net_train(&net, 0, &batch, 1.0f / (float)t->valid, 0);
    wh_net_finish(&net, &batch, 0);
    memcpy(out, net.token_loss, B27_T * sizeof *out);
    wh_net_free(&net);
}

/* B27: another first document changes nothing in the second. */
static void documents_do_not_see_each_other(void **state) {
    (void)state;
    static const enum wh_family families[] = {WH_GPT2, WH_LLAMA};
    const size_t second = (B27_T - B27_DOCUMENT) * sizeof(double);
    for (int f = 0; f < 2; f++) {
        struct tiny t;
        double before[2][B27_T], after[2][B27_T];
        setup(&t, families[f], 1, B27_T);
        for (int mask = 0; mask < 2; mask++) document_losses(&t, mask, before[mask]);
        t.ids[3] = (t.ids[3] + 1) % t.model.V;
        for (int mask = 0; mask < 2; mask++) document_losses(&t, mask, after[mask]);
        assert_memory_equal(before[1] + B27_DOCUMENT, after[1] + B27_DOCUMENT, second);
        assert_memory_not_equal(before[0] + B27_DOCUMENT, after[0] + B27_DOCUMENT, second);
        assert_memory_not_equal(before[1], after[1], B27_DOCUMENT * sizeof(double));
        tiny_free(&t);
    }
}

static double evaluate(const struct tiny *t, uint32_t micro) {
    struct wh_net net;
    double sum = 0.0;
    new_net(t, false, micro, &net);
    for (uint32_t done = 0; done < t->sequences;) {
        const uint32_t n = t->sequences - done < micro ? t->sequences - done : micro;
        const size_t at = (size_t)done * t->T;
        const struct wh_net_batch batch = {t->ids + at, t->labels + at, NULL};
        assert_int_equal(wh_net_evaluate(&net, &batch, n), WH_OK);
        for (uint32_t i = 0; i < n; i++) sum += net.sequence_loss[i];
        done += n;
    }
    wh_net_free(&net);
    return sum;
}

/* B05: 21 sequences are 21 sequences, in whatever pieces they come. */
static void evaluation_in_pieces(void **state) {
    (void)state;
    static const uint32_t micro[] = {2, 4, 5, 21};
    struct tiny t;
    setup(&t, WH_LLAMA, 21, 20);
    const double one = evaluate(&t, 1);
    for (int i = 0; i < 4; i++) {
        const double other = evaluate(&t, micro[i]);
        assert_memory_equal(&one, &other, sizeof one);
    }
    struct outcome training = train(&t, 0, 21, 3, t.valid);
    assert_true(fabs(training.loss - one) < 1e-9 * one);
    free(training.grads);
    tiny_free(&t);
}

enum { B33_T = 12, B33_TOKENS = 2 * B33_T };

/* Token losses of two sequences. */
static void dropout_losses(const struct tiny *t, uint32_t micro, uint64_t seed, uint32_t step, double *out) {
    struct wh_net_shape shape = tiny_shape(t);
    struct wh_net net;
    const struct wh_net_batch batch = {t->ids, t->labels, NULL};
    shape.micro_batch = micro, shape.grain = (struct wh_grain){2, 1, 1}, shape.seed = seed;
    assert_int_equal(wh_net_new(&shape, &net), WH_OK);
    wh_net_init_weights(&net, 1);
    for (uint32_t i = 0; i < 2 / micro; i++) wh_net_train(&net, i, &batch, 1.0f / (float)t->valid, step);
    wh_net_finish(&net, &batch, step);
    memcpy(out, net.token_loss, B33_TOKENS * sizeof *out);
    wh_net_free(&net);
}

/* B33: a mask is a function of seed, step and place in the global batch. Two equal sequences get different ones, at each
 * of the three kinds of dropout; the cut into micro-batches is not felt. */
static void dropout_masks(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct tiny t;
        double a[B33_TOKENS], b[B33_TOKENS];
        setup(&t, WH_GPT2, 2, B33_T);
        memcpy(t.ids + B33_T, t.ids, B33_T * sizeof *t.ids);
        for (uint32_t i = 0; i < B33_TOKENS; i++) t.labels[i] = (int32_t)(i % B33_T);
        t.valid = B33_TOKENS;
        t.model.dropout_embed = kind == 1 ? 0.5f : 0.0f;
        t.model.dropout_attention = kind == 2 ? 0.5f : 0.0f;
        t.model.dropout_residual = kind == 3 ? 0.5f : 0.0f;
        dropout_losses(&t, 2, 3, 5, a);
        assert_int_equal(memcmp(a, a + B33_T, sizeof a / 2) == 0, kind == 0);
        dropout_losses(&t, 1, 3, 5, b);
        assert_memory_equal(a, b, sizeof a);
        dropout_losses(&t, 2, 3, 6, b);
        assert_int_equal(memcmp(a, b, sizeof a) == 0, kind == 0);
        dropout_losses(&t, 2, 4, 5, b);
        assert_int_equal(memcmp(a, b, sizeof a) == 0, kind == 0);
        tiny_free(&t);
    }
}

/* Each layer and each place in it has a random stream of its own. */
static void dropout_streams(void **state) {
    (void)state;
    enum { LAYERS = 3, STREAMS = 1 + 3 * LAYERS };
    const struct wh_model model = {.dropout_embed = 0.5f, .dropout_attention = 0.5f, .dropout_residual = 0.5f};
    const struct wh_net net = {.shape = {.model = &model, .seed = 3}};
    const struct wh_pass pass = {.step = 5, .dropout = true};
    struct wh_dropout d[STREAMS];
    d[0] = wh_dropout_at(&net, &pass, -1, WH_SITE_EMBED);
    for (int i = 1; i < STREAMS; i++)
        d[i] = wh_dropout_at(&net, &pass, (i - 1) / 3, (enum wh_dropout_site)(WH_SITE_ATTENTION + (i - 1) % 3));
    for (int i = 0; i < STREAMS; i++) {
        assert_true(d[i].threshold == 1u << 31 && d[i].scale == 2.0f);
        for (int j = 0; j < i; j++) assert_memory_not_equal(&d[i].rng, &d[j].rng, sizeof d[i].rng);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_micro_batches), cmocka_unit_test(nothing_to_learn_from),
        cmocka_unit_test(zero_head_gives_ln_V),  cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(evaluation_in_pieces),  cmocka_unit_test(dropout_masks),
        cmocka_unit_test(dropout_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
