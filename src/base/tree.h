/* The contract's canonical tree over `count` leaves: split at the largest power of two below the count, left plus right.
 *
 * Fed leaf by leaf it is a binary counter: keep a stack of finished subtrees; after leaf i is pushed, merge the two
 * topmost as long as both are complete, which is once for each trailing one bit of i; after the last leaf merge what
 * remains from the top down.
 *
 *     leaves 0..6:   ((0 1)(2 3)) ((4 5) 6)          7 = 4 + 3, 3 = 2 + 1
 *
 *     for (i = 0; i < count; i++) {
 *         push(leaf[i]);
 *         for (m = wh_tree_merges(i, count); m > 0; m--) { right = pop(); left = pop(); push(left + right); }
 *     }
 *
 * The stack never holds more than wh_tree_depth(count) subtrees. */
#ifndef WH_BASE_TREE_H
#define WH_BASE_TREE_H

#include <stdint.h>

enum { WH_TREE_DEPTH_MAX = 33 };

/* How many merges follow leaf `i` of `count`. */
static inline unsigned wh_tree_merges(uint32_t i, uint32_t count) {
    if (i + 1 == count) return (unsigned)__builtin_popcount(i); /* all that is left on the stack */
    return (unsigned)__builtin_ctz(i + 1);
}

/* Most subtrees on the stack at once, the leaf just pushed included. */
static inline unsigned wh_tree_depth(uint32_t count) {
    unsigned depth = 0;
    for (uint32_t i = 0; i < count; i++) { /* stack before leaf i: popcount(i) subtrees */
        unsigned d = (unsigned)__builtin_popcount(i) + 1;
        if (d > depth) depth = d;
    }
    return depth;
}

#endif
