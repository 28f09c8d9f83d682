/* Runs plans symbolically: a buffer holds the text of the sum in it, so equal text means equal bits. [x] is x, rounded. */
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

enum { BUFFERS = 64, CHUNKS_MAX = 8 };

/* The definition: a leaf is its tokens in order; a node is (left+right), split at the largest power of two below. */
static void expect_leaf(struct wh_text *t, const struct wh_sum_shape *s, uint32_t leaf) {
    uint32_t group = leaf / s->chunks, chunk = leaf % s->chunks, each = s->sequences / s->groups, T = s->positions;
    for (uint32_t i = group * each; i < (group + 1) * each; i++)
        for (uint32_t p = T * chunk / s->chunks; p < T * (chunk + 1) / s->chunks; p++) wh_text_add(t, "%u ", i * T + p);
}

static void expect_tree(struct wh_text *t, const struct wh_sum_shape *s, uint32_t begin, uint32_t count) {
    uint32_t left = 1;
    if (s->rounded) wh_text_add(t, "[");
    if (count == 1) {
        expect_leaf(t, s, begin);
    } else {
        while (left * 2 < count) left *= 2;
        wh_text_add(t, "(");
        expect_tree(t, s, begin, left);
        wh_text_add(t, "+");
        expect_tree(t, s, begin + left, count - left);
        wh_text_add(t, ")");
    }
    if (s->rounded) wh_text_add(t, "]");
}

static void replace(struct wh_text *t, const char *format, const char *a, const char *b) {
    struct wh_text new = {0};
    wh_text_add(&new, format, a, b);
    wh_text_fini(t);
    *t = new;
}

static void join(const struct wh_sum_shape *s, struct wh_text *left, const struct wh_text *right) {
    replace(left, s->rounded ? "[(%s+%s)]" : "(%s+%s)", left->data, right->data);
}

enum { OPENS = BUFFERS }; /* the first of the open buffers; each holds an unrounded chain */

/* Where the call's own result goes. */
static uint32_t place_of(const struct wh_sum_shape *s, const struct wh_sum_plan *p, const struct wh_sum_call *c) {
    if (s->rounded && wh_sum_call_open(c)) {
        assert_true(c->leaves == 1 && c->open < p->opens);
        return OPENS + c->open;
    }
    assert_true(c->buffer < p->buffers);
    return c->buffer;
}

static void run_call(const struct wh_sum_shape *s, const struct wh_sum_plan *p, const struct wh_sum_call *c,
                     uint64_t piece_begin, struct wh_text *buffers) {
    struct wh_text stack[WH_TREE_DEPTH_MAX] = {{0}};
    uint32_t depth = 0, leaf = 0, place = place_of(s, p, c);
    if (c->accumulate) wh_text_add(&stack[0], "%s", buffers[place].data);
    for (uint32_t i = c->first_part; i < c->first_part + c->part_count; i++) {
        const struct wh_sum_part *q = &p->parts[i];
        for (uint32_t t = q->begin; t < q->begin + q->length; t++)
            wh_text_add(&stack[depth], "%llu ", (unsigned long long)(piece_begin + t));
        if (!q->ends_leaf) continue;
        if (s->rounded && !wh_sum_call_open(c)) replace(&stack[depth], "[%s]%s", stack[depth].data, "");
        depth++;
        for (unsigned m = wh_tree_merges(leaf, c->leaves); m > 0; m--, depth--) {
            join(s, &stack[depth - 2], &stack[depth - 1]);
            wh_text_clear(&stack[depth - 1]);
        }
        leaf++;
    }
    assert_int_equal(depth, 1);
    assert_int_equal(leaf, c->leaves);
    assert_false(c->add_left && s->rounded);
    if (c->add_left)
        join(s, &buffers[place], &stack[0]);
    else
        replace(&buffers[place], "%s%s", stack[0].data, "");
    if (c->ends && place >= OPENS) replace(&buffers[c->buffer], "[%s]%s", buffers[place].data, "");
    for (uint32_t m = 0; m < c->merges; m++) join(s, &buffers[c->merge[m].left], &buffers[c->merge[m].right]);
    for (int i = 0; i < WH_TREE_DEPTH_MAX; i++) wh_text_fini(&stack[i]);
}

/* Runs the plan of a range in `buffers`. */
static void run_plan(const struct wh_sum_shape *s, const struct wh_sum_plan *p, struct wh_text *buffers) {
    const uint64_t each = (uint64_t)(s->sequences / s->groups) * s->positions, first = s->first_group * each;
    const uint64_t tokens = (s->group_count ? s->group_count : s->groups) * each;
    uint64_t begin = 0, span = s->span_tokens ? s->span_tokens : tokens;
    uint32_t leaves_max = 0, calls = 0;
    assert_in_range(p->buffers, p->kept, BUFFERS);
    assert_in_range(p->kept, p->roots, p->buffers);
    assert_in_range(p->opens, 0, s->rounded ? s->chunks : 0);
    for (uint32_t i = 0; i < p->piece_count; i++) {
        assert_int_equal(p->pieces[i].first_call, calls);
        calls += p->pieces[i].call_count;
        for (uint32_t k = p->pieces[i].first_call; k < calls; k++) {
            const struct wh_sum_call *c = &p->calls[k];
            assert_true(!s->leaf_calls || c->leaves == 1);
            for (uint32_t m = 0; m < c->merges; m++)
                assert_true(c->merge[m].left < p->buffers && c->merge[m].right < p->buffers);
            if (c->leaves > leaves_max) leaves_max = c->leaves;
            run_call(s, p, c, first + begin, buffers);
        }
        for (uint32_t k = p->kept; k < p->buffers; k++) replace(&buffers[k], "%s%s", "lost", "");
        uint64_t end = begin + s->piece_tokens, bound = (begin / span + 1) * span;
        if (end > bound) end = bound;
        begin = end < tokens ? end : tokens;
    }
    assert_int_equal(begin, tokens);
    assert_int_equal(p->call_count, calls);
    assert_int_equal(p->leaves_max, leaves_max);
    if (p->piece_count > 1) return;
    assert_int_equal(p->kept, p->roots);
    assert_int_equal(p->opens, 0);
    if (s->rounded) return;
    assert_int_equal(p->call_count, p->roots);
    assert_int_equal(p->buffers, p->roots);
}

/* The definition: how many complete subtrees of [begin, begin + count) it takes to cover what of it lies in the range. */
static uint32_t expect_roots(uint32_t begin, uint32_t count, uint32_t range_begin, uint32_t range_end) {
    if (begin + count <= range_begin || begin >= range_end) return 0;
    if (begin >= range_begin && begin + count <= range_end) return 1;
    uint32_t left = 1;
    while (left * 2 < count) left *= 2;
    return expect_roots(begin, left, range_begin, range_end) +
           expect_roots(begin + left, count - left, range_begin, range_end);
}

/* All ranks' plans, joined, are the sum; returns the most buffers that one of them needs. `s` without a range. */
static uint32_t check_one(struct wh_sum_shape s, uint32_t ranks) {
    const uint32_t leaves = s.groups * s.chunks, each = leaves / ranks;
    struct wh_text stack[WH_TREE_DEPTH_MAX + 1] = {{0}}, expected = {0};
    uint32_t depth = 0, input = 0, buffers_max = 0;
    struct wh_sum_joins joins;
    assert_int_equal(wh_sum_joins(s.groups, s.chunks, ranks, &joins), WH_OK);
    assert_int_equal(joins.ranks, ranks);
    s.group_count = ranks == 1 ? 0 : s.groups / ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        struct wh_text buffers[BUFFERS + CHUNKS_MAX] = {{0}};
        struct wh_sum_plan p;
        s.first_group = r * s.group_count;
        assert_int_equal(wh_sum_plan_new(&s, &p), WH_OK);
        run_plan(&s, &p, buffers);
        assert_int_equal(p.leaves, leaves);
        assert_int_equal(p.roots, expect_roots(0, leaves, r * each, (r + 1) * each));
        assert_int_equal(p.roots, joins.inputs[r]);
        if ((each & (each - 1)) == 0) assert_int_equal(p.roots, 1);
        for (uint32_t j = 0; j < p.roots; j++, input++) {
            assert_true(depth < WH_TREE_DEPTH_MAX);
            wh_text_add(&stack[depth++], "%s", buffers[j].data);
            for (unsigned m = joins.merges[input]; m > 0; m--, depth--) {
                assert_true(depth >= 2);
                join(&s, &stack[depth - 2], &stack[depth - 1]);
                wh_text_clear(&stack[depth - 1]);
            }
        }
        if (p.buffers > buffers_max) buffers_max = p.buffers;
        wh_sum_plan_free(&p);
        for (int i = 0; i < BUFFERS + CHUNKS_MAX; i++) wh_text_fini(&buffers[i]);
    }
    assert_int_equal(input, joins.count);
    assert_int_equal(depth, 1);
    expect_tree(&expected, &s, 0, leaves);
    assert_string_equal(stack[0].data, expected.data);
    for (int i = 0; i <= WH_TREE_DEPTH_MAX; i++) wh_text_fini(&stack[i]);
    wh_text_fini(&expected);
    return buffers_max;
}

/* Plain, and rounded with calls of many leaves and of one. */
static uint32_t check(struct wh_sum_shape s, uint32_t ranks) {
    const uint32_t buffers = check_one(s, ranks);
    s.rounded = true;
    check_one(s, ranks);
    s.leaf_calls = true;
    check_one(s, ranks);
    return buffers;
}

static struct wh_sum_shape shape_of(uint32_t sequences, uint32_t positions, uint32_t groups, uint32_t chunks,
                                    uint32_t piece_tokens, uint32_t span_tokens) {
    return (struct wh_sum_shape){.sequences = sequences,
                                 .positions = positions,
                                 .groups = groups,
                                 .chunks = chunks,
                                 .piece_tokens = piece_tokens,
                                 .span_tokens = span_tokens};
}

/* Every cut of every small batch gives the same sum. */
static void every_cut_gives_the_canonical_sum(void **state) {
    (void)state;
    for (uint32_t sequences = 1; sequences <= 12; sequences++)
        for (uint32_t groups = 1; groups <= sequences; groups++) {
            if (sequences % groups) continue;
            for (uint32_t piece = 1; piece <= 3 * sequences; piece++)
                for (uint32_t span = 0; span <= sequences; span++)
                    check(shape_of(sequences, 3, groups, 1, piece, span * 3), 1);
            for (uint32_t chunks = 2; chunks <= 8; chunks *= 2)
                for (uint32_t piece = 1; piece <= sequences; piece++)
                    check(shape_of(sequences, 8, groups, chunks, piece * 8, 0), 1);
        }
}

/* Pieces smaller and larger than a group, that end inside groups and sequences, the last one shorter. */
static void check_cuts(uint32_t groups, uint32_t ranks, uint32_t chunks, uint32_t each) {
    const uint32_t T = 5, sequences = groups * each, share = sequences / ranks * T;
    const uint32_t pieces[] = {T,     2 * T,       3 * T, 5 * T, share, /* and, for unbroken sequences: */ 3,
                               T + 2, each * T + 1};
    for (size_t i = 0; i < (chunks == 1 ? 8 : 5); i++) {
        check(shape_of(sequences, T, groups, chunks, pieces[i], 0), ranks);
        check(shape_of(sequences, T, groups, chunks, pieces[i], 2 * T), ranks);
    }
}

static void ranks_join_to_the_canonical_sum(void **state) {
    (void)state;
    for (uint32_t groups = 1; groups <= 24; groups++)
        for (uint32_t ranks = 1; ranks <= 12; ranks++)
            for (uint32_t chunks = 1; chunks <= 4 && groups % ranks == 0; chunks++)
                for (uint32_t each = 1; each <= 3; each++) check_cuts(groups, ranks, chunks, each);
    for (uint32_t chunks = 1; chunks <= 4; chunks++) {
        check_cuts(60, 12, chunks, 1);
        check_cuts(60, 2, chunks, 1);
        check_cuts(100, 4, chunks, 1);
        check_cuts(121, 11, chunks, 1);
        check_cuts(192, 64, chunks, 1);
    }
}

/* Tensor ranks sum their own chunks of each group: rows are those of their positions alone, which the text of a sum takes for
 * tokens counted in them; groups, joined over the ranks and then among themselves, are the sum of whole sequences. */
static void rename_rows(struct wh_text *t, const struct wh_sum_shape *s) {
    const uint32_t T = s->positions, first = T * s->first_chunk / s->chunks;
    const uint32_t rows = T * (s->first_chunk + s->own_chunks) / s->chunks - first;
    struct wh_text out = {0};
    for (const char *c = t->data; *c;) {
        char *end = (char *)(uintptr_t)c;
        const unsigned long row = *c >= '0' && *c <= '9' ? strtoul(c, &end, 10) : 0;
        if (end == c)
            wh_text_add(&out, "%c", *c++);
        else
            wh_text_add(&out, "%lu", row / rows * T + first + row % rows), c = end;
    }
    wh_text_fini(t);
    *t = out;
}

/* What tensor rank `s->first_chunk / s->own_chunks` has of each group, in stack[group]. */
static void run_own(const struct wh_sum_shape *s, struct wh_text *groups) {
    struct wh_text buffers[BUFFERS + CHUNKS_MAX] = {{0}};
    struct wh_sum_plan p;
    struct wh_sum_shape rows = *s; /* as the plan counts them: a sequence has this rank's rows */
    assert_int_equal(wh_sum_plan_new(s, &p), WH_OK);
    assert_int_equal(p.roots, s->groups);
    rows.positions =
        s->positions * (s->first_chunk + s->own_chunks) / s->chunks - s->positions * s->first_chunk / s->chunks;
    rows.piece_tokens = s->piece_tokens / s->positions * rows.positions;
    rows.span_tokens = s->span_tokens / s->positions * rows.positions;
    rows.chunks = s->own_chunks;
    run_plan(&rows, &p, buffers);
    for (uint32_t g = 0; g < s->groups; g++) {
        wh_text_add(&groups[g], "%s", buffers[g].data);
        rename_rows(&groups[g], s);
    }
    wh_sum_plan_free(&p);
    for (int i = 0; i < BUFFERS + CHUNKS_MAX; i++) wh_text_fini(&buffers[i]);
}

static void check_own(struct wh_sum_shape s, uint32_t tensor_ranks) {
    struct wh_text part[CHUNKS_MAX][8] = {{{0}}}, expected = {0};
    s.own_chunks = s.chunks / tensor_ranks;
    for (uint32_t t = 0; t < tensor_ranks; t++) {
        s.first_chunk = t * s.own_chunks;
        run_own(&s, part[t]);
    }
    for (uint32_t g = 0; g < s.groups; g++) {
        for (uint32_t step = 1; step < tensor_ranks; step *= 2) /* the rest of the group's tree */
            for (uint32_t t = 0; t < tensor_ranks; t += 2 * step) join(&s, &part[t][g], &part[t + step][g]);
        expect_tree(&expected, &s, g * s.chunks, s.chunks);
        assert_string_equal(part[0][g].data, expected.data);
        wh_text_clear(&expected);
    }
    for (uint32_t t = 0; t < tensor_ranks; t++)
        for (uint32_t g = 0; g < s.groups; g++) wh_text_fini(&part[t][g]);
    wh_text_fini(&expected);
}

static void tensor_ranks_sum_their_positions(void **state) {
    (void)state;
    for (uint32_t groups = 1; groups <= 8; groups++)
        for (uint32_t each = 1; each <= 3; each++)
            for (uint32_t micro = 1; micro <= groups * each; micro++)
                for (uint32_t chunks = 2; chunks <= CHUNKS_MAX; chunks *= 2)
                    for (uint32_t ranks = 2; ranks <= chunks; ranks *= 2)
                        for (uint32_t T = chunks; T <= chunks + 3; T += 3) {
                            struct wh_sum_shape s = shape_of(groups * each, T, groups, chunks, micro * T, micro * T);
                            if (groups * each % micro) continue;
                            check_own(s, ranks);
                            s.rounded = true;
                            check_own(s, ranks);
                        }
}

/* Every number of groups on every number of ranks, without tokens: merges add up and never lack an operand. */
static void joins_are_complete(void **state) {
    (void)state;
    struct wh_sum_joins q;
    for (uint32_t groups = 1; groups <= 4096; groups += groups < 300 ? 1 : 37)
        for (uint32_t ranks = 1; ranks <= WH_SUM_RANKS_MAX; ranks++) {
            if (groups % ranks) continue;
            assert_int_equal(wh_sum_joins(groups, 1, ranks, &q), WH_OK);
            uint32_t depth = 0, inputs = 0, merges = 0;
            for (uint32_t r = 0; r < ranks; r++) inputs += q.inputs[r];
            for (uint32_t i = 0; i < q.count; i++) {
                depth++;
                assert_true(q.merges[i] < depth && depth <= WH_TREE_DEPTH_MAX);
                depth -= q.merges[i];
                merges += q.merges[i];
            }
            assert_int_equal(inputs, q.count);
            assert_int_equal(merges, q.count - 1);
            assert_int_equal(depth, 1);
        }
    /* leaves that fill 32 bits */
    assert_int_equal(wh_sum_joins(63 * ((1u << 26) - 1), 1, 63, &q), WH_OK);
    for (uint32_t r = 0; r < 63; r++) assert_in_range(q.inputs[r], 1, WH_SUM_ROOTS_MAX);
}

static void impossible_ranks_are_refused(void **state) {
    (void)state;
    struct wh_sum_joins q = {.ranks = 7};
    assert_int_equal(wh_sum_joins(8, 1, 0, &q), WH_CONFIG);
    assert_int_equal(wh_sum_joins(8, 1, 3, &q), WH_CONFIG);
    assert_int_equal(wh_sum_joins(8, 1, 16, &q), WH_CONFIG);
    assert_int_equal(wh_sum_joins(128, 1, 128, &q), WH_CONFIG);
    assert_int_equal(q.ranks, 7);
}

static void assert_same_calls(const struct wh_sum_plan *p, const struct wh_sum_plan *q) {
    assert_int_equal(p->call_count, q->call_count);
    for (uint32_t i = 0; i < p->call_count; i++) {
        const struct wh_sum_call *x = &p->calls[i], *y = &q->calls[i];
        assert_int_equal(x->first_part, y->first_part);
        assert_int_equal(x->part_count, y->part_count);
        assert_int_equal(x->leaves, y->leaves);
        assert_int_equal(x->buffer, y->buffer);
        assert_int_equal(x->accumulate, y->accumulate);
        assert_int_equal(x->add_left, y->add_left);
        assert_int_equal(x->merges, y->merges);
        assert_memory_equal(x->merge, y->merge, sizeof x->merge);
    }
}

/* Saying that the range is all of it changes nothing. */
static void the_whole_range_is_the_default(void **state) {
    (void)state;
    for (uint32_t piece = 1; piece <= 14 * 4; piece++) {
        struct wh_sum_shape s = shape_of(14, 4, 7, 1, piece, 0);
        struct wh_sum_plan p, q;
        assert_int_equal(wh_sum_plan_new(&s, &p), WH_OK);
        s.group_count = 7;
        assert_int_equal(wh_sum_plan_new(&s, &q), WH_OK);
        assert_int_equal(p.roots, 1);
        assert_int_equal(p.buffers, q.buffers);
        assert_same_calls(&p, &q);
        wh_sum_plan_free(&p);
        wh_sum_plan_free(&q);
    }
}

/* What the grain costs: nothing in one piece; log2 of the groups when they come one by one. */
static void buffers_are_few(void **state) {
    (void)state;
    assert_int_equal(check(shape_of(8, 4, 8, 1, 32, 0), 1), 1);
    assert_int_equal(check(shape_of(8, 4, 2, 1, 16, 0), 1), 1);
    assert_int_equal(check(shape_of(8, 4, 4, 1, 8, 0), 1), 2);
    assert_int_equal(check(shape_of(8, 4, 8, 1, 4, 0), 1), 3);
    assert_int_equal(check(shape_of(8, 4, 1, 1, 4, 0), 1), 1);
}

/* What a range costs: nothing more where it is one subtree; else a buffer for each contribution. */
static void buffers_of_ranks_are_few(void **state) {
    (void)state;
    assert_int_equal(check(shape_of(16, 4, 16, 1, 32, 0), 2), 1);
    assert_int_equal(check(shape_of(16, 4, 16, 1, 4, 0), 2), 3);
    assert_int_equal(check(shape_of(12, 4, 12, 1, 12, 0), 4), 2);
    assert_int_equal(check(shape_of(12, 4, 12, 1, 4, 0), 4), 2);
    assert_int_equal(check(shape_of(24, 4, 24, 1, 24, 0), 4), 2);
    assert_int_equal(check(shape_of(24, 4, 24, 1, 4, 0), 4), 3);
}

static struct wh_sum_plan rounded_plan(struct wh_sum_shape s, bool leaf_calls) {
    struct wh_sum_plan p;
    s.rounded = true, s.leaf_calls = leaf_calls;
    assert_int_equal(wh_sum_plan_new(&s, &p), WH_OK);
    return p;
}

/* What rounding costs: in one piece buffers that hold nothing afterwards, as deep as the tree; an open buffer for each chunk
 * where a group is spread over pieces; else one more than without. */
static void rounding_costs_little(void **state) {
    (void)state;
    const struct {
        struct wh_sum_shape shape;
        bool leaf_calls;
        uint32_t buffers, kept, opens;
    } list[] = {
        {shape_of(8, 4, 8, 1, 32, 0), true, 4, 1, 0}, {shape_of(8, 4, 8, 1, 32, 0), false, 1, 1, 0},
        {shape_of(8, 4, 8, 1, 8, 0), true, 4, 2, 0},  {shape_of(8, 4, 8, 1, 4, 0), true, 4, 3, 0},
        {shape_of(8, 4, 2, 1, 4, 0), true, 2, 1, 1},  {shape_of(8, 4, 2, 4, 4, 0), true, 4, 1, 4},
        {shape_of(8, 4, 2, 1, 4, 0), false, 2, 1, 1}, {shape_of(8, 4, 1, 1, 4, 0), true, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct wh_sum_plan p = rounded_plan(list[i].shape, list[i].leaf_calls);
        assert_int_equal(p.buffers, list[i].buffers);
        assert_int_equal(p.kept, list[i].kept);
        assert_int_equal(p.opens, list[i].opens);
        wh_sum_plan_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_canonical_sum),
        cmocka_unit_test(tensor_ranks_sum_their_positions),
        cmocka_unit_test(ranks_join_to_the_canonical_sum),
        cmocka_unit_test(joins_are_complete),
        cmocka_unit_test(impossible_ranks_are_refused),
        cmocka_unit_test(the_whole_range_is_the_default),
        cmocka_unit_test(buffers_are_few),
        cmocka_unit_test(buffers_of_ranks_are_few),
        cmocka_unit_test(rounding_costs_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
