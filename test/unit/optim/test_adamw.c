/* The gradient's norm, clipping, decay and the update, against arithmetic by hand (cases B08, B11, B28, B29, B30); parts
 * updated by their owners, against the whole by memcmp. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arch/owners.h"
#include "optim/adamw.h"
#include "test/unit/model/tiny.h"

/* A model's flat buffers with an optimizer over them. */
struct bench {
    struct wh_model model;
    struct wh_params params;
    float *grads, *master, *m, *v;
    uint16_t *grads16, *weights16;
    struct wh_adamw_settings settings;
    struct wh_adamw_buffers buffers;
    size_t n; /* elements of a buffer, gaps included */
};

static float *zeros(size_t n) {
    float *p = calloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* In fp32, one thread; no decay, no clipping. */
static void setup(struct bench *b, const struct wh_model *model, uint32_t slices) {
    *b = (struct bench){.model = *model};
    assert_int_equal(wh_params_new(&b->model, &b->params), WH_OK);
    b->n = b->params.buffer_elems;
    b->grads = zeros(b->n), b->master = zeros(b->n), b->m = zeros(b->n), b->v = zeros(b->n);
    b->grads16 = calloc(b->n, 2), b->weights16 = calloc(b->n, 2);
    b->settings = (struct wh_adamw_settings){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    b->buffers = (struct wh_adamw_buffers){.params = &b->params,
                                           .grain = {slices, 1, 1},
                                           .vec = wh_vec_select(NULL),
                                           .threads = 1,
                                           .grads = b->grads,
                                           .grad_dtype = WH_F32,
                                           .master = b->master,
                                           .m = b->m,
                                           .v = b->v,
                                           .weights = b->master,
                                           .weight_dtype = WH_F32,
                                           .own = {0, b->n}};
}

static void teardown(struct bench *b) {
    free(b->grads), free(b->master), free(b->m), free(b->v), free(b->grads16), free(b->weights16);
    wh_params_free(&b->params);
}

static double norm_of(const struct bench *b) {
    struct wh_adamw a;
    assert_int_equal(wh_adamw_new(&b->settings, &b->buffers, &a), WH_OK);
    const double norm = wh_adamw_grad_norm(&a);
    wh_adamw_free(&a);
    return norm;
}

/* `updates` updates with the gradients as they are; returns the norm. */
static double update(struct bench *b, double lr, uint64_t updates) {
    struct wh_adamw a;
    double norm = 0.0;
    assert_int_equal(wh_adamw_new(&b->settings, &b->buffers, &a), WH_OK);
    for (uint64_t t = 1; t <= updates; t++) {
        norm = wh_adamw_grad_norm(&a);
        wh_adamw_update(&a, lr, t, norm);
    }
    wh_adamw_free(&a);
    return norm;
}

/* Random gradients in every tensor; the gaps between tensors hold what must not count. */
static void random_grads(struct bench *b) {
    const struct wh_rng r = wh_rng_stream(1, WH_RNG_TEST, 0, 0);
    for (size_t i = 0; i < b->n; i++) b->grads[i] = 1e30f;
    for (size_t i = 0; i < b->params.count; i++)
        for (size_t j = 0; j < b->params.list[i].elems; j++) {
            const size_t at = b->params.list[i].offset + j;
            b->grads[at] = ((float)wh_rng_u32(&r, at) * 0x1p-31f - 1.0f) * (float)(1 + i);
        }
    wh_vec_reference.narrow(b->grads16, b->grads, b->n);
}

static double plain_norm(const struct bench *b) {
    long double sum = 0.0;
    for (size_t i = 0; i < b->params.count; i++)
        for (size_t j = 0; j < b->params.list[i].elems; j++) {
            const double g = b->grads[b->params.list[i].offset + j];
            sum += g * g;
        }
    return (double)sqrtl(sum);
}

static struct wh_model small(enum wh_family family, bool tied) {
    struct wh_model m = tiny_model(family);
    m.V = 4, m.C = 4, m.H = 1, m.Hkv = 1, m.D = 4, m.F = 8, m.L = 1, m.max_position = 8, m.tied = tied;
    return m;
}

/* B08: a 4x4 embedding with all gradients 3. */
static void tied_counts_once(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct bench b;
        const struct wh_model m = small(WH_LLAMA, tied);
        setup(&b, &m, 1);
        const struct wh_param *token = wh_params_find(&b.params, WH_P_EMBED_TOKEN, -1);
        const struct wh_param *head = wh_params_find(&b.params, WH_P_HEAD, -1);
        for (size_t i = 0; i < 16; i++) b.grads[token->offset + i] = 3.0f;
        assert_int_equal(head == NULL, tied);
        assert_true(norm_of(&b) == 12.0);
        for (size_t i = 0; head && i < 16; i++) b.grads[head->offset + i] = 3.0f;
        assert_true(norm_of(&b) == (head ? sqrt(2 * 16 * 9.0) : 12.0));
        teardown(&b);
    }
}

/* B11: with these settings the update is lr * g / (|g| + eps), so that of plain gradient descent to 1e-7. */
static void expect_descent(double clip, double down0, double down1) {
    struct bench b;
    const struct wh_model m = small(WH_LLAMA, true);
    setup(&b, &m, 1);
    b.settings = (struct wh_adamw_settings){.eps = 1e8, .clip = clip};
    b.grads[b.params.list[0].offset] = 3.0f, b.grads[b.params.list[0].offset + 1] = 4.0f;
    assert_true(update(&b, 1e8, 1) == 5.0); /* the norm before clipping */
    const float *w = b.master + b.params.list[0].offset;
    assert_true(fabs(w[0] + down0) < 1e-5 && fabs(w[1] + down1) < 1e-5);
    assert_true(w[2] == 0.0f);
    teardown(&b);
}

static void clipping(void **state) {
    (void)state;
    expect_descent(1.0, 0.6, 0.8);
    expect_descent(10.0, 3.0, 4.0);
    expect_descent(0.0, 3.0, 4.0);
    expect_descent(5.0, 3.0, 4.0);
}

/* B28: gradients are zero, so only decay acts. */
static void decay(void **state) {
    (void)state;
    static const enum wh_family families[] = {WH_GPT2, WH_LLAMA, WH_QWEN2};
    for (int f = 0; f < 3; f++) {
        struct bench b;
        struct wh_model m = tiny_model(families[f]);
        m.tied = false;
        setup(&b, &m, 1);
        b.settings.weight_decay = 0.1;
        for (size_t i = 0; i < b.n; i++) b.master[i] = 1.0f + (float)(i % 7) * 0.25f;
        update(&b, 0.01, 1);
        for (size_t i = 0; i < b.params.count; i++) {
            const struct wh_param *p = &b.params.list[i];
            const float keep = p->cols ? 0.999f : 1.0f; /* matrices and embeddings decay; norms and biases don't */
            for (size_t at = p->offset; at < p->offset + p->elems; at++)
                assert_true(b.master[at] == (1.0f + (float)(at % 7) * 0.25f) * keep);
        }
        teardown(&b);
    }
}

/* B30: a constant gradient moves the master by lr at each update; its bf16 copy follows. */
static void bf16_weights_move(void **state) {
    (void)state;
    struct bench b;
    const struct wh_model m = small(WH_LLAMA, true);
    setup(&b, &m, 1);
    b.buffers.weights = b.weights16, b.buffers.weight_dtype = WH_BF16;
    const size_t at = wh_params_find(&b.params, WH_P_FINAL_NORM_GAIN, -1)->offset;
    b.master[at] = 1.0f, b.grads[at] = 0.5f;
    float copy;
    for (uint64_t t = 1; t <= 100; t++) {
        struct wh_adamw a;
        assert_int_equal(wh_adamw_new(&b.settings, &b.buffers, &a), WH_OK);
        wh_adamw_update(&a, 6e-4, t, wh_adamw_grad_norm(&a));
        wh_adamw_free(&a);
    }
    wh_vec_reference.widen(&copy, b.weights16 + at, 1);
    assert_true(fabs(b.master[at] - 0.940002) < 1e-5);
    assert_true(copy == 0.94140625f);
    teardown(&b);
}

/* Rows longer than a span, tensors longer than a block. */
static struct wh_model wide(void) {
    struct wh_model m = tiny_model(WH_LLAMA);
    m.L = 1, m.F = 9000, m.V = 500;
    return m;
}

static void norm_is_the_double_sum(void **state) {
    (void)state;
    static const char *const kernels[] = {"reference", "avx2", "avx512"};
    for (uint32_t slices = 1; slices <= 2; slices++) {
        struct bench b;
        const struct wh_model m = wide();
        setup(&b, &m, slices);
        random_grads(&b);
        const double want = norm_of(&b), plain = plain_norm(&b);
        assert_true(fabs(want - plain) <= 1e-12 * plain);
        for (int k = 0; k < 3; k++)
            for (int threads = 1; threads <= 5; threads += 2) {
                if (!(b.buffers.vec = wh_vec_select(kernels[k]))) continue;
                b.buffers.threads = threads;
                const double norm = norm_of(&b);
                assert_memory_equal(&norm, &want, sizeof norm);
            }
        b.grads[b.params.list[b.params.count - 1].offset] = NAN;
        assert_false(isfinite(norm_of(&b)));
        teardown(&b);
    }
}

/* The update doesn't depend on threads, and bf16 gradients are their fp32 values. Gaps are never touched. */
static void update_is_elementwise(void **state) {
    (void)state;
    struct bench a, b;
    const struct wh_model m = wide();
    setup(&a, &m, 2);
    setup(&b, &m, 2);
    random_grads(&a);
    wh_vec_reference.widen(a.grads, a.grads16, a.n); /* values that bf16 can hold */
    memcpy(b.grads16, a.grads16, 2 * a.n);
    b.buffers.grads = b.grads16, b.buffers.grad_dtype = WH_BF16, b.buffers.threads = 3;
    a.settings.clip = b.settings.clip = 1.0, a.settings.weight_decay = b.settings.weight_decay = 0.1;
    for (size_t i = 0; i < a.n; i++) a.master[i] = b.master[i] = (float)(i % 11) - 5.0f;
    const double norm_a = update(&a, 1e-3, 3), norm_b = update(&b, 1e-3, 3);
    assert_memory_equal(&norm_a, &norm_b, sizeof norm_a);
    assert_memory_equal(a.master, b.master, a.n * sizeof(float));
    assert_memory_equal(a.m, b.m, a.n * sizeof(float));
    assert_memory_equal(a.v, b.v, a.n * sizeof(float));
    size_t at = 0;
    for (size_t i = 0; i < a.params.count; at = a.params.list[i].offset + a.params.list[i].elems, i++)
        for (; at < a.params.list[i].offset; at++)
            assert_true(a.master[at] == (float)(at % 11) - 5.0f && a.v[at] == 0.0f);
    teardown(&a);
    teardown(&b);
}

static void *copy_of(const void *from, size_t first, size_t elems, size_t elem_bytes) {
    void *p = malloc(elems * elem_bytes + 1);
    assert_non_null(p);
    memcpy(p, (const char *)from + first * elem_bytes, elems * elem_bytes);
    return p;
}

/* The elements `own` in buffers of their own, no element more: out of bounds is out of memory (asan). */
static void cut_out(const struct bench *whole, struct wh_range own, struct bench *b) {
    const size_t n = own.end - own.begin;
    *b = *whole;
    b->grads = copy_of(whole->grads, own.begin, n, 4), b->grads16 = copy_of(whole->grads16, own.begin, n, 2);
    b->master = copy_of(whole->master, own.begin, n, 4), b->weights16 = copy_of(whole->weights16, own.begin, n, 2);
    b->m = copy_of(whole->m, own.begin, n, 4), b->v = copy_of(whole->v, own.begin, n, 4);
    const bool grads16 = whole->buffers.grad_dtype == WH_BF16, weights16 = whole->buffers.weight_dtype == WH_BF16;
    b->buffers.grads = grads16 ? (void *)b->grads16 : b->grads;
    b->buffers.weights = weights16 ? (void *)b->weights16 : b->master;
    b->buffers.master = b->master, b->buffers.m = b->m, b->buffers.v = b->v, b->buffers.own = own;
    b->buffers.grads_first = b->buffers.master_first = b->buffers.states_first = b->buffers.weights_first = own.begin;
}

static void expect_same_part(const struct bench *whole, const struct bench *b) {
    const size_t first = b->buffers.own.begin, n = b->buffers.own.end - first;
    assert_memory_equal(b->master, whole->master + first, n * 4);
    assert_memory_equal(b->m, whole->m + first, n * 4);
    assert_memory_equal(b->v, whole->v + first, n * 4);
    assert_memory_equal(b->weights16, whole->weights16 + first, n * 2);
}

/* One update of all ranks: partials, their sum, the norm, own elements. */
static void update_parts(struct wh_adamw *ranks, uint32_t parts, double *sum, uint64_t t, double want) {
    const size_t blocks = ranks[0].block_count;
    memset(sum, 0, blocks * sizeof *sum);
    for (uint32_t k = 0; k < parts; k++) {
        wh_adamw_partials(&ranks[k]);
        for (size_t i = 0; i < blocks; i++) {
            assert_false(signbit(ranks[k].partial[i]));
            sum[i] += ranks[k].partial[i];
        }
    }
    for (uint32_t k = 0; k < parts; k++) {
        memcpy(ranks[k].partial, sum, blocks * sizeof *sum);
        const double norm = wh_adamw_norm(&ranks[k]);
        assert_memory_equal(&norm, &want, sizeof norm);
        wh_adamw_update(&ranks[k], 1e-3, t, norm);
    }
}

static void expect_parts_equal(struct bench *whole, uint32_t parts) {
    enum { MOST = 64 };
    struct bench b[MOST];
    struct wh_adamw all, ranks[MOST];
    size_t border[MOST + 1];
    const uint32_t S = whole->buffers.grain.tensor;
    const size_t blocks = wh_norm_block_count(&whole->params, S);
    double *partial = calloc((size_t)(parts + 1) * blocks, sizeof *partial), *sum = partial + parts * blocks;
    assert_int_equal(wh_owners(&whole->params, S, parts, border), WH_OK);
    for (uint32_t k = 0; k < parts; k++) {
        cut_out(whole, (struct wh_range){border[k], border[k + 1]}, &b[k]);
        if (k % 2) b[k].buffers.partial = partial + k * blocks; /* the others allocate */
        assert_int_equal(wh_adamw_new(&b[k].settings, &b[k].buffers, &ranks[k]), WH_OK);
    }
    assert_int_equal(wh_adamw_new(&whole->settings, &whole->buffers, &all), WH_OK);
    for (uint64_t t = 1; t <= 3; t++) {
        const double norm = wh_adamw_grad_norm(&all);
        assert_true(norm > whole->settings.clip);
        wh_adamw_update(&all, 1e-3, t, norm);
        update_parts(ranks, parts, sum, t, norm);
        for (uint32_t k = 0; k < parts; k++) expect_same_part(whole, &b[k]);
    }
    for (uint32_t k = 0; k < parts; k++) {
        wh_adamw_free(&ranks[k]);
        free(b[k].grads), free(b[k].grads16), free(b[k].master), free(b[k].weights16), free(b[k].m), free(b[k].v);
    }
    wh_adamw_free(&all);
    free(partial);
}

/* Every rank updates the part that it owns: bits of one rank that owns all, with clipping and decay. */
static void parts_make_the_whole(void **state) {
    (void)state;
    static const uint32_t parts[] = {1, 2, 3, 5, 8, 64};
    for (int p = 0; p < 6; p++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct bench whole;
            const struct wh_model m = wide();
            setup(&whole, &m, 2);
            random_grads(&whole);
            for (size_t i = 0; i < whole.n; i++) whole.master[i] = (float)(i % 11) - 5.0f;
            whole.settings.clip = 1.0, whole.settings.weight_decay = 0.1;
            whole.buffers.threads = 2;
            if (bf16) {
                whole.buffers.grads = whole.grads16, whole.buffers.grad_dtype = WH_BF16;
                whole.buffers.weights = whole.weights16, whole.buffers.weight_dtype = WH_BF16;
            }
            expect_parts_equal(&whole, parts[p]);
            teardown(&whole);
        }
}

/* B29: gradients are summed in fp32 over 512 micro-batches and rounded once; summed in bf16 they would stick. */
static float *train_grads(const struct tiny *t, uint32_t batch, enum wh_dtype grad_dtype) {
    struct wh_net_shape shape = tiny_shape(t);
    struct wh_net net;
    shape.grain = (struct wh_grain){1, 1, 1};
    shape.dtype = WH_BF16, shape.grad_dtype = grad_dtype, shape.global_batch = batch, shape.micro_batch = 1;
    assert_int_equal(wh_net_new(&shape, &net), WH_OK);
    wh_net_init_weights(&net, 1);
    const struct wh_net_batch data = {t->ids, t->labels, NULL};
    for (uint32_t i = 0; i < batch; i++) wh_net_train(&net, i, &data, 1.0f / (float)(batch * t->T), 0);
    wh_net_finish(&net, &data, 0);
    float *out = zeros(t->params.buffer_elems);
    for (size_t i = 0; i < t->params.count; i++) {
        const struct wh_param *p = &t->params.list[i];
        if (grad_dtype == WH_F32)
            memcpy(out + p->offset, (float *)net.grads + p->offset, p->elems * sizeof *out);
        else
            wh_vec_reference.widen(out + p->offset, (uint16_t *)net.grads + p->offset, p->elems);
    }
    wh_net_free(&net);
    return out;
}

static void bf16_gradients_are_summed_in_fp32(void **state) {
    (void)state;
    enum { BATCH = 512, T = 4 };
    struct tiny t = {.model = tiny_model(WH_LLAMA)};
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    tiny_batch(&t, BATCH, T);
    for (size_t i = 0; i < (size_t)BATCH * T; i++) { /* the same sequence again and again */
        t.ids[i] = t.ids[i % T];
        t.labels[i] = (int32_t)(7 * (i % T));
    }
    float *one = train_grads(&t, 1, WH_F32), *many = train_grads(&t, BATCH, WH_F32),
          *many16 = train_grads(&t, BATCH, WH_BF16);
    float largest = 0.0f, worst = 0.0f;
    for (size_t i = 0; i < t.params.buffer_elems; i++) {
        uint16_t rounded;
        float back;
        wh_vec_reference.narrow(&rounded, &many[i], 1);
        wh_vec_reference.widen(&back, &rounded, 1);
        assert_memory_equal(&many16[i], &back, sizeof back);
        largest = fmaxf(largest, fabsf(one[i]));
        worst = fmaxf(worst, fabsf(one[i] - many[i]));
    }
    assert_true(largest > 0.0f && worst < 1e-3f * largest); /* the mean of 512 equal gradients is each of them */
    free(one), free(many), free(many16);
    tiny_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_counts_once),
        cmocka_unit_test(clipping),
        cmocka_unit_test(decay),
        cmocka_unit_test(bf16_weights_move),
        cmocka_unit_test(norm_is_the_double_sum),
        cmocka_unit_test(update_is_elementwise),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(bf16_gradients_are_summed_in_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
