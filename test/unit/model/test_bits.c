/* Promise 1 in one process: micro-batch, blocks, threads, kernels and recompute never change a bit of the losses and
 * gradients. Everything is compared by memcmp with the plainest way of running. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include <stdio.h>

#include "test/unit/model/tiny.h"

enum { SEQUENCES = 8 };

struct outcome {
    double loss;
    void *grads;
    double *token_loss;
    size_t grad_bytes, tokens;
};

static void run(const struct tiny *t, const struct wh_net_shape *shape, bool documents, struct outcome *out) {
    struct wh_net net;
    assert_int_equal(wh_net_new(shape, &net), WH_OK);
    wh_net_init_weights(&net, 11);
    const struct wh_net_batch batch = {t->ids, t->labels, documents ? t->document_start : NULL};
    for (uint32_t i = 0; i < shape->global_batch / shape->micro_batch; i++)
        wh_net_train(&net, i, &batch, 1.0f / (float)t->valid, 5);
    out->loss = wh_net_finish(&net, &batch, 5);
    out->grad_bytes = t->params.buffer_elems * wh_dtype_bytes(shape->grad_dtype);
    out->tokens = (size_t)t->sequences * t->T;
    out->grads = malloc(out->grad_bytes);
    out->token_loss = malloc(out->tokens * sizeof(double));
    memcpy(out->grads, net.grads, out->grad_bytes);
    memcpy(out->token_loss, net.token_loss, out->tokens * sizeof(double));
    wh_net_free(&net);
}

static void release(struct outcome *o) { free(o->grads), free(o->token_loss); }

static void describe(const struct wh_net_shape *s) {
    print_message(
        "  micro_batch %u, loss block %u, threads %d, kernels %s, keep %d, grain %u/%u/%u/%s, dtype %s, grads %s\n",
        s->micro_batch, s->loss_block_tokens, s->threads, s->kernels ? s->kernels : "best", s->keep, s->grain.tensor,
        s->grain.data, s->grain.sequence, wh_dtype_name(s->grain.wire), wh_dtype_name(s->dtype),
        wh_dtype_name(s->grad_dtype));
}

/* Names the first tensor that differs. */
static void assert_same(const struct tiny *t, const struct wh_net_shape *shape, const struct outcome *want,
                        const struct outcome *got) {
    const size_t e = wh_dtype_bytes(shape->grad_dtype);
    bool same = memcmp(&want->loss, &got->loss, sizeof want->loss) == 0 &&
                memcmp(want->token_loss, got->token_loss, want->tokens * sizeof(double)) == 0;
    if (!same) print_message("losses differ: %a %a\n", want->loss, got->loss);
    for (size_t i = 0; i < t->params.count; i++) {
        const struct wh_param *p = &t->params.list[i];
        if (memcmp((char *)want->grads + p->offset * e, (char *)got->grads + p->offset * e, p->elems * e) == 0)
            continue;
        print_message("gradient of %s differs\n", p->name);
        same = false;
    }
    if (!same) describe(shape);
    assert_true(same);
}

static void check(const struct tiny *t, const struct wh_net_shape *plain, const struct wh_net_shape *other,
                  bool documents, const struct outcome *want) {
    struct outcome got;
    (void)plain;
    run(t, other, documents, &got);
    assert_same(t, other, want, &got);
    release(&got);
}

/* All the ways against one. With dropout: recompute draws the same masks again (case B34). */
static void every_way(const struct tiny *t, struct wh_net_shape plain, bool documents) {
    static const char *const kernels[] = {"reference", "avx2", "avx512"};
    struct outcome want;
    plain.keep = WH_KEEP_ALL, plain.threads = 1, plain.micro_batch = SEQUENCES, plain.kernels = NULL;
    run(t, &plain, documents, &want);
    check(t, &plain, &plain, documents, &want);
    for (uint32_t micro = 1; micro <= SEQUENCES; micro *= 2)
        for (int threads = 1; threads <= 3; threads++)
            for (int keep = WH_KEEP_ALL; keep <= WH_KEEP_INPUTS; keep++) {
                struct wh_net_shape s = plain;
                s.micro_batch = micro, s.threads = threads, s.keep = (enum wh_keep)keep;
                s.full_layers = threads == 2; /* one layer in full, the other as `keep` says */
                s.loss_block_tokens = micro == 2 ? 9 : micro == 4 ? 2 * t->T : 0;
                check(t, &plain, &s, documents, &want);
            }
    for (size_t k = 0; k < 3; k++) {
        struct wh_net_shape s = plain;
        if (!wh_vec_select(kernels[k])) continue;
        s.kernels = kernels[k], s.micro_batch = 2;
        check(t, &plain, &s, documents, &want);
    }
    release(&want);
}

static void family(enum wh_family f, bool tied, enum wh_dtype dtype, enum wh_dtype grads, float dropout, bool documents,
                   struct wh_grain grain) {
    struct tiny t = {.model = tiny_model(f)};
    t.model.tied = tied;
    t.model.dropout_embed = t.model.dropout_attention = t.model.dropout_residual = dropout;
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    tiny_batch(&t, SEQUENCES, 19);
    struct wh_net_shape s = tiny_shape(&t);
    s.dtype = dtype, s.grad_dtype = grads, s.grain = grain;
    every_way(&t, s, documents);
    tiny_free(&t);
}

static void gpt2_fp32(void **state) {
    (void)state;
    family(WH_GPT2, true, WH_F32, WH_F32, 0.0f, false, (struct wh_grain){4, 8, 1});
    family(WH_GPT2, true, WH_F32, WH_F32, 0.2f, true, (struct wh_grain){2, 4, 2});
}

static void llama_fp32(void **state) {
    (void)state;
    family(WH_LLAMA, false, WH_F32, WH_F32, 0.0f, true, (struct wh_grain){2, 2, 1});
    family(WH_LLAMA, true, WH_F32, WH_F32, 0.1f, false, (struct wh_grain){1, 1, 4});
}

static void bf16(void **state) {
    (void)state;
    family(WH_LLAMA, false, WH_BF16, WH_F32, 0.0f, true, (struct wh_grain){2, 8, 1});
    family(WH_QWEN2, true, WH_BF16, WH_BF16, 0.0f, false, (struct wh_grain){2, 4, 1});
    family(WH_GPT2, true, WH_BF16, WH_BF16, 0.1f, false, (struct wh_grain){4, 2, 2});
}

static void bf16_wire(void **state) {
    (void)state;
    family(WH_GPT2, true, WH_F32, WH_F32, 0.1f, false, (struct wh_grain){4, 8, 1, WH_BF16});
    family(WH_LLAMA, false, WH_BF16, WH_F32, 0.0f, true, (struct wh_grain){2, 4, 2, WH_BF16});
    family(WH_QWEN2, false, WH_BF16, WH_BF16, 0.0f, false, (struct wh_grain){2, 2, 1, WH_BF16});
}

/* The grain does change bits: else the tests above would compare nothing. */
static void grain_is_felt(void **state) {
    (void)state;
    struct tiny t = {.model = tiny_model(WH_LLAMA)};
    struct outcome a, b;
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    tiny_batch(&t, SEQUENCES, 19);
    struct wh_net_shape s = tiny_shape(&t);
    s.grain = (struct wh_grain){1, 1, 1};
    run(&t, &s, false, &a);
    s.grain = (struct wh_grain){2, 1, 1};
    run(&t, &s, false, &b);
    assert_memory_not_equal(a.grads, b.grads, a.grad_bytes);
    release(&b);
    s.grain = (struct wh_grain){1, 2, 1};
    run(&t, &s, false, &b);
    assert_memory_not_equal(a.grads, b.grads, a.grad_bytes);
    release(&b);
    s.grain = (struct wh_grain){1, 1, 1, WH_BF16};
    run(&t, &s, false, &b);
    assert_memory_not_equal(a.grads, b.grads, a.grad_bytes);
    release(&a), release(&b);
    tiny_free(&t);
}

/* One leaf: what fp32 has, rounded. More: every node is; the sums differ from those that are rounded once. */
static void wire_rounds_every_node(void **state) {
    (void)state;
    struct tiny t = {.model = tiny_model(WH_LLAMA)};
    struct outcome a, b;
    t.model.tied = false;
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    tiny_batch(&t, SEQUENCES, 19);
    struct wh_net_shape s = tiny_shape(&t);
    for (uint32_t groups = 1; groups <= 4; groups *= 4) {
        size_t differ = 0, not_bf16 = 0;
        s.grain = (struct wh_grain){1, groups, 1, WH_F32};
        run(&t, &s, false, &a);
        s.grain.wire = WH_BF16;
        run(&t, &s, false, &b);
        const struct wh_param *table = wh_params_find(&t.params, WH_P_EMBED_TOKEN, -1); /* has a tree of its own */
        for (size_t e = table->offset + table->elems; e < t.params.buffer_elems; e++) {
            const float x = ((float *)a.grads)[e], y = ((float *)b.grads)[e];
            differ += wh_f32_to_bf16(x) != wh_f32_to_bf16(y);
            not_bf16 += wh_bf16_to_f32(wh_f32_to_bf16(y)) != y;
        }
        assert_memory_equal((float *)a.grads + table->offset, (float *)b.grads + table->offset,
                            table->elems * sizeof(float));
        assert_int_equal(not_bf16, 0);
        if (groups == 1) assert_int_equal(differ, 0);
        if (groups > 1) assert_true(differ > t.params.buffer_elems / 20);
        release(&a), release(&b);
    }
    tiny_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_fp32),     cmocka_unit_test(llama_fp32),
                                       cmocka_unit_test(bf16),          cmocka_unit_test(bf16_wire),
                                       cmocka_unit_test(grain_is_felt), cmocka_unit_test(wire_rounds_every_node)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
