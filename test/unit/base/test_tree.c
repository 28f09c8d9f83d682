#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "base/tree.h"

enum { LEAVES = 200 };

/* A subtree as the bytes of its expression in prefix form: '+', left, right; a leaf is its number. */
struct expression {
    uint16_t node[2 * LEAVES];
    size_t length;
};

static const uint16_t plus = 0xffff;

static void join(struct expression *out, const struct expression *left, const struct expression *right) {
    struct expression e = {.length = 1 + left->length + right->length};
    e.node[0] = plus;
    memcpy(e.node + 1, left->node, left->length * sizeof e.node[0]);
    memcpy(e.node + 1 + left->length, right->node, right->length * sizeof e.node[0]);
    *out = e;
}

/* The definition: split at the largest power of two below the count. */
static void define(struct expression *out, uint32_t first, uint32_t count) {
    if (count == 1) {
        *out = (struct expression){.node = {(uint16_t)first}, .length = 1};
        return;
    }
    uint32_t split = 1;
    while (split * 2 < count) split *= 2;
    struct expression left, right;
    define(&left, first, split);
    define(&right, first + split, count - split);
    join(out, &left, &right);
}

/* Leaf by leaf as base/tree.h says; the most subtrees on the stack go to *deepest. */
static void feed(struct expression *out, uint32_t count, unsigned *deepest) {
    static struct expression stack[WH_TREE_DEPTH_MAX];
    unsigned on_stack = 0;
    *deepest = 0;
    for (uint32_t i = 0; i < count; i++) {
        stack[on_stack++] = (struct expression){.node = {(uint16_t)i}, .length = 1};
        if (on_stack > *deepest) *deepest = on_stack;
        for (unsigned m = wh_tree_merges(i, count); m > 0; m--, on_stack--) {
            assert_true(on_stack >= 2);
            join(&stack[on_stack - 2], &stack[on_stack - 2], &stack[on_stack - 1]);
        }
    }
    assert_int_equal(on_stack, 1);
    *out = stack[0];
}

static void merges_build_the_defined_tree(void **state) {
    (void)state;
    for (uint32_t count = 1; count <= LEAVES; count++) {
        struct expression want, got;
        unsigned deepest;
        define(&want, 0, count);
        feed(&got, count, &deepest);
        assert_int_equal(got.length, want.length);
        assert_memory_equal(got.node, want.node, want.length * sizeof want.node[0]);
        assert_int_equal(deepest, wh_tree_depth(count));
    }
}

static void depth_of_large_counts(void **state) {
    (void)state;
    assert_int_equal(wh_tree_depth(1), 1);
    assert_int_equal(wh_tree_depth(8), 4);
    assert_int_equal(wh_tree_depth(9), 4);
    assert_int_equal(wh_tree_depth(1u << 20), 21);
    assert_true(wh_tree_depth((1u << 20) + 1) <= WH_TREE_DEPTH_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_build_the_defined_tree),
        cmocka_unit_test(depth_of_large_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
