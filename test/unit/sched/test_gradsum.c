/* Runs plans symbolically: a buffer holds the text of the sum in it, so equal text means equal bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "base/text.h"
#include "base/tree.h"
#include "sched/gradsum.h"

/* The definition: a leaf is its tokens in order; a node is (left+right), split at the largest power of two below. */
static void expect_leaf(struct wh_text *t, const struct wh_sum_shape *s, uint32_t leaf) {
    uint32_t group = leaf / s->chunks, chunk = leaf % s->chunks, each = s->sequences / s->groups, T = s->positions;
    for (uint32_t i = group * each; i < (group + 1) * each; i++)
        for (uint32_t p = T * chunk / s->chunks; p < T * (chunk + 1) / s->chunks; p++) wh_text_add(t, "%u ", i * T + p);
}

static void expect_tree(struct wh_text *t, const struct wh_sum_shape *s, uint32_t begin, uint32_t count) {
    if (count == 1) {
        expect_leaf(t, s, begin);
        return;
    }
    uint32_t left = 1;
    while (left * 2 < count) left *= 2;
    wh_text_add(t, "(");
    expect_tree(t, s, begin, left);
    wh_text_add(t, "+");
    expect_tree(t, s, begin + left, count - left);
    wh_text_add(t, ")");
}

static void join(struct wh_text *left, const struct wh_text *right) {
    struct wh_text sum = {0};
    wh_text_add(&sum, "(%s+%s)", left->data, right->data);
    wh_text_fini(left);
    *left = sum;
}

static void run_call(const struct wh_sum_plan *p, const struct wh_sum_call *c, uint64_t piece_begin,
                     struct wh_text *buffers) {
    struct wh_text stack[WH_TREE_DEPTH_MAX] = {{0}};
    uint32_t depth = 0, leaf = 0;
    if (c->accumulate) wh_text_add(&stack[0], "%s", buffers[c->buffer].data);
    for (uint32_t i = c->first_part; i < c->first_part + c->part_count; i++) {
        const struct wh_sum_part *q = &p->parts[i];
        for (uint32_t t = q->begin; t < q->begin + q->length; t++)
            wh_text_add(&stack[depth], "%llu ", (unsigned long long)(piece_begin + t));
        if (!q->ends_leaf) continue;
        depth++;
        for (unsigned m = wh_tree_merges(leaf, c->leaves); m > 0; m--, depth--) {
            join(&stack[depth - 2], &stack[depth - 1]);
            wh_text_clear(&stack[depth - 1]);
        }
        leaf++;
    }
    assert_int_equal(depth, 1);
    assert_int_equal(leaf, c->leaves);
    if (c->add_left) {
        join(&buffers[c->buffer], &stack[0]);
    } else {
        wh_text_clear(&buffers[c->buffer]);
        wh_text_add(&buffers[c->buffer], "%s", stack[0].data);
    }
    for (uint32_t m = 0; m < c->merges; m++) join(&buffers[c->merge[m].left], &buffers[c->merge[m].right]);
    for (int i = 0; i < WH_TREE_DEPTH_MAX; i++) wh_text_fini(&stack[i]);
}

static void check(const struct wh_sum_shape *s, uint32_t buffers_max) {
    struct wh_sum_plan p;
    struct wh_text buffers[64] = {{0}}, expected = {0};
    assert_int_equal(wh_sum_plan_new(s, &p), WH_OK);
    uint64_t tokens = (uint64_t)s->sequences * s->positions, begin = 0, span = s->span_tokens ? s->span_tokens : tokens;
    assert_true(p.buffers <= 64);
    for (uint32_t i = 0; i < p.piece_count; i++) {
        for (uint32_t c = 0; c < p.pieces[i].call_count; c++)
            run_call(&p, &p.calls[p.pieces[i].first_call + c], begin, buffers);
        uint64_t end = begin + s->piece_tokens, bound = (begin / span + 1) * span;
        if (end > bound) end = bound;
        begin = end < tokens ? end : tokens;
    }
    assert_int_equal(begin, tokens);
    expect_tree(&expected, s, 0, s->groups * s->chunks);
    assert_string_equal(buffers[0].data, expected.data);
    if (buffers_max) assert_true(p.buffers <= buffers_max);
    for (int i = 0; i < 64; i++) wh_text_fini(&buffers[i]);
    wh_text_fini(&expected);
    wh_sum_plan_free(&p);
}

/* Every cut of every small batch gives the same sum. */
static void every_cut_gives_the_canonical_sum(void **state) {
    (void)state;
    for (uint32_t sequences = 1; sequences <= 12; sequences++)
        for (uint32_t groups = 1; groups <= sequences; groups++) {
            if (sequences % groups) continue;
            for (uint32_t piece = 1; piece <= 3 * sequences; piece++)
                for (uint32_t span = 0; span <= sequences; span++)
                    check(&(struct wh_sum_shape){sequences, 3, groups, 1, piece, span * 3}, 0);
            for (uint32_t chunks = 2; chunks <= 8; chunks *= 2)
                for (uint32_t piece = 1; piece <= sequences; piece++)
                    check(&(struct wh_sum_shape){sequences, 8, groups, chunks, piece * 8, 0}, 0);
        }
}

/* What the grain costs: nothing in one piece; log2 of the groups when they come one by one. */
static void buffers_are_few(void **state) {
    (void)state;
    check(&(struct wh_sum_shape){8, 4, 8, 1, 32, 0}, 1);
    check(&(struct wh_sum_shape){8, 4, 2, 1, 16, 0}, 1);
    check(&(struct wh_sum_shape){8, 4, 4, 1, 8, 0}, 2);
    check(&(struct wh_sum_shape){8, 4, 8, 1, 4, 0}, 3);
    check(&(struct wh_sum_shape){8, 4, 1, 1, 4, 0}, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_canonical_sum),
        cmocka_unit_test(buffers_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
