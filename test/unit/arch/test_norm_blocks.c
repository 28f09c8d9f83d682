#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after its needs */
#include <cmocka.h>

#include "arch/norm_blocks.h"

/* Block of each element of the logical tensor, from the blocks themselves. */
static uint32_t *owners(const struct wh_param *p, uint32_t S, size_t *count) {
    struct wh_norm_block *blocks = calloc(p->elems + 1, sizeof *blocks);
    uint32_t *of = calloc(p->elems, sizeof *of);
    *count = wh_norm_blocks(p, S, blocks);
    assert_int_equal(wh_norm_blocks(p, S, NULL), *count);
    for (size_t b = 0; b < *count; b++) {
        assert_true((size_t)blocks[b].rows * blocks[b].cols <= WH_NORM_BLOCK_ELEMS || blocks[b].rows == 1);
        for (size_t r = 0; r < blocks[b].rows; r++)
            for (size_t c = 0; c < blocks[b].cols; c++) {
                const size_t i = blocks[b].offset - p->offset + r * blocks[b].ld + c;
                assert_int_equal(of[i], 0); /* each element in one block */
                of[i] = (uint32_t)b + 1;
            }
    }
    for (size_t i = 0; i < p->elems; i++) assert_true(of[i] > 0);
    free(blocks);
    return of;
}

/* Logical element behind element `i` of what rank t of tp holds. */
static size_t logical(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t, size_t i, size_t *held) {
    const bool by_cols = p->cut == WH_CUT_COLS || (p->cut == WH_CUT_ROWS && !p->cols);
    const bool by_rows = p->cut == WH_CUT_ROWS && p->cols;
    const size_t rows = p->cols ? p->rows : 1, cols = p->cols ? p->cols : p->rows;
    const struct wh_range first = wh_grain_slice(by_rows ? rows : cols, S, t * (S / tp));
    const struct wh_range last = wh_grain_slice(by_rows ? rows : cols, S, (t + 1) * (S / tp) - 1);
    if (by_cols) {
        const size_t width = last.end - first.begin;
        *held = rows * width;
        return width ? i / width * cols + first.begin + i % width : 0;
    }
    *held = by_rows ? (last.end - first.begin) * cols : rows * cols;
    return (by_rows ? first.begin * cols : 0) + i;
}

static void check(size_t rows, size_t cols, enum wh_param_cut cut, uint32_t S, uint32_t tp) {
    const struct wh_param p = {.rows = rows, .cols = cols, .elems = rows * (cols ? cols : 1), .offset = 96, .cut = cut};
    size_t blocks, held;
    uint32_t *of = owners(&p, S, &blocks);
    for (uint32_t t = 0; t < tp; t++) {
        size_t *cuts = calloc(p.elems + 1, sizeof *cuts);
        const size_t count = wh_norm_cuts(&p, S, tp, t, 1000, cuts);
        assert_int_equal(wh_norm_cuts(&p, S, tp, t, 1000, NULL), count);
        logical(&p, S, tp, t, 0, &held);
        assert_int_equal(count == 0, held == 0);
        uint32_t *part = calloc(blocks + 1, sizeof *part); /* 1 + part between cuts in which a block lies */
        for (size_t i = 0, at = 0; i < held; i++) {
            while (at + 1 < count && cuts[at + 1] - 1000 <= i) at++;
            assert_true(cuts[at] - 1000 <= i);
            const uint32_t b = of[logical(&p, S, tp, t, i, &held)];
            if (part[b]) assert_int_equal(part[b], at + 1); /* not split */
            part[b] = (uint32_t)at + 1;
        }
        free(part);
        free(cuts);
    }
    free(of);
}

static void test_cuts(void **state) {
    (void)state;
    const size_t shapes[][2] = {{24, 10}, {300, 160}, {50, 2000}, {3, 40000}, {130, 0}, {40000, 0}, {5, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t S = 1; S <= 8; S *= 2)
            for (uint32_t tp = 1; tp <= S; tp *= 2) {
                check(shapes[i][0], shapes[i][1], WH_CUT_NONE, S, tp);
                check(shapes[i][0], shapes[i][1], WH_CUT_ROWS, S, tp);
                if (shapes[i][1] % S == 0) check(shapes[i][0], shapes[i][1], WH_CUT_COLS, S, tp);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
