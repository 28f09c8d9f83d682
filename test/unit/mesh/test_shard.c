#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "mesh/shard.h"

enum { PARTS_MAX = 64 };

/* Borders as lengths of parts: "8 8 7 7". */
static void parts_are(const size_t *border, uint32_t parts, const size_t *want) {
    assert_int_equal(border[0], 0);
    for (uint32_t k = 0; k < parts; k++) assert_int_equal(border[k + 1] - border[k], want[k]);
}

static void check_partition(const size_t *border, uint32_t parts, size_t n) {
    assert_int_equal(border[0], 0);
    assert_int_equal(border[parts], n);
    for (uint32_t k = 0; k < parts; k++) assert_true(border[k] <= border[k + 1]);
    for (size_t i = 0; i < n; i += 1 + n / 97) {
        const uint32_t owner = wh_shard_owner(border, parts, i);
        assert_true(border[owner] <= i && i < border[owner + 1]);
    }
}

static void test_even(void **state) {
    (void)state;
    size_t b[PARTS_MAX + 1];
    wh_shard_even(30, 4, b);
    parts_are(b, 4, (size_t[]){8, 8, 7, 7});
    for (uint32_t parts = 1; parts <= 12; parts++)
        for (size_t n = 0; n < 40; n++) {
            wh_shard_even(n, parts, b);
            check_partition(b, parts, n);
            for (uint32_t k = 0; k + 1 < parts; k++) assert_true(b[k + 1] - b[k] >= b[k + 2] - b[k + 1]);
            assert_true(b[1] - (b[parts] - b[parts - 1]) <= 1);
        }
}

static void test_slices(void **state) {
    (void)state;
    size_t b[PARTS_MAX + 1], one[PARTS_MAX + 1];
    wh_shard_slices(50257, 8, 2, b); /* slices of 6283 */
    parts_are(b, 2, (size_t[]){25132, 25125});
    wh_shard_slices(5, 4, 4, b); /* slices of 2: the last is empty */
    parts_are(b, 4, (size_t[]){2, 2, 1, 0});
    for (size_t n = 0; n < 70; n++)
        for (uint32_t S = 1; S <= 16; S++)
            for (uint32_t parts = 1; parts <= S; parts++) {
                if (S % parts) continue;
                wh_shard_slices(n, S, parts, b);
                wh_shard_slices(n, S, S, one);
                check_partition(b, parts, n);
                for (uint32_t k = 0; k <= parts; k++) assert_int_equal(b[k], one[k * (S / parts)]); /* whole slices */
            }
}

/* case B40. */
static void test_padded(void **state) {
    (void)state;
    size_t b[PARTS_MAX + 1];
    wh_shard_padded(57, 4, 2, b);
    parts_are(b, 2, (size_t[]){30, 27});
    wh_shard_padded(57, 4, 3, b);
    parts_are(b, 3, (size_t[]){20, 20, 17});
    wh_shard_padded(57, 4, 1, b);
    parts_are(b, 1, (size_t[]){57});
    wh_shard_padded(57, 1, 3, b);
    parts_are(b, 3, (size_t[]){19, 19, 19});
    wh_shard_padded(57, 4, 5, b);
    parts_are(b, 5, (size_t[]){12, 12, 12, 12, 9});
    wh_shard_padded(57, 4, 7, b); /* to 84: two parts are padding alone */
    parts_are(b, 7, (size_t[]){12, 12, 12, 12, 9, 0, 0});
    wh_shard_padded(0, 4, 3, b);
    parts_are(b, 3, (size_t[]){0, 0, 0});
}

/* Each part in memory of its own; element i stays i through every change of the number of parts (B40). */
static void test_padded_moves(void **state) {
    (void)state;
    const uint32_t parts[] = {1, 2, 3, 1, 7, 5, 4};
    int held[8][64] = {{0}}, next[8][64];
    size_t from[8], to[8];
    struct wh_shard_move moves[16];
    for (int i = 0; i < 57; i++) held[0][i] = i;
    for (size_t step = 1; step < sizeof parts / sizeof *parts; step++) {
        const uint32_t before = parts[step - 1], now = parts[step];
        wh_shard_padded(57, 4, before, from);
        wh_shard_padded(57, 4, now, to);
        const size_t count = wh_shard_moves(from, before, to, now, moves);
        assert_true(count <= before + now - 1);
        memset(next, -1, sizeof next);
        for (const struct wh_shard_move *m = moves; m < moves + count; m++)
            memcpy(&next[m->to][m->begin - to[m->to]], &held[m->from][m->begin - from[m->from]],
                   (m->end - m->begin) * sizeof **held);
        for (size_t i = 0; i < 57; i++) {
            const uint32_t owner = wh_shard_owner(to, now, i);
            assert_int_equal(next[owner][i - to[owner]], i);
        }
        memcpy(held, next, sizeof held);
    }
}

static void check_owners(const size_t *cut, size_t cuts, uint32_t parts) {
    size_t b[PARTS_MAX + 1], longest = 0;
    const size_t n = cut[cuts - 1];
    wh_shard_owners(cut, cuts, parts, b);
    check_partition(b, parts, n);
    for (size_t i = 1; i < cuts; i++)
        if (cut[i] - cut[i - 1] > longest) longest = cut[i] - cut[i - 1];
    for (uint32_t k = 0; k <= parts; k++) {
        size_t i = 0;
        while (cut[i] < b[k]) i++;
        assert_int_equal(cut[i], b[k]); /* no block is split */
        if (k < parts) assert_true(b[k + 1] - b[k] <= n / parts + longest + 1);
    }
}

static void test_owners(void **state) {
    (void)state;
    size_t b[PARTS_MAX + 1], cut[400];
    const size_t by_eight[] = {0, 8, 16, 24, 32, 40, 48, 56, 57};
    wh_shard_owners(by_eight, 9, 3, b);
    parts_are(b, 3, (size_t[]){16, 24, 17}); /* 19 is nearest to 16, 38 to 40 */
    wh_shard_owners(by_eight, 1, 3, b);
    parts_are(b, 3, (size_t[]){0, 0, 0});
    const size_t single[] = {0, 10};
    wh_shard_owners(single, 2, 2, b);
    parts_are(b, 2, (size_t[]){0, 10}); /* a tie: the lower place */
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        size_t cuts = 1;
        cut[0] = 0;
        for (size_t want = 1 + (size_t)round; cuts <= want; cuts++) {
            seed = seed * 1664525u + 1013904223u;
            cut[cuts] = cut[cuts - 1] + 1 + (seed >> 16) % 100;
        }
        for (uint32_t parts = 1; parts <= 9; parts++) check_owners(cut, cuts, parts);
        check_owners(cut, cuts, PARTS_MAX);
    }
    const size_t large[] = {0, (size_t)1 << 50, (size_t)1 << 51, (size_t)3 << 50}; /* nothing wraps around */
    wh_shard_owners(large, 4, 3, b);
    parts_are(b, 3, (size_t[]){(size_t)1 << 50, (size_t)1 << 50, (size_t)1 << 50});
}

static void test_layers(void **state) {
    (void)state;
    size_t b[PARTS_MAX + 1];
    assert_int_equal(wh_shard_layers(NULL, 30, 0, 0, 4, b), WH_OK); /* case B17 */
    parts_are(b, 4, (size_t[]){8, 8, 7, 7});
    assert_int_equal(wh_shard_layers(NULL, 70, 1, 1, 12, b), WH_OK); /* case B79 */
    parts_are(b, 12, (size_t[]){5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5});
    assert_int_equal(wh_shard_layers(NULL, 3, 0, 0, 4, b), WH_CONFIG);
    assert_non_null(strstr(wh_error()->message, "nearest legal: 3"));
    for (uint32_t layers = 1; layers < 40; layers++)
        for (uint32_t stages = 1; stages <= layers; stages++) {
            assert_int_equal(wh_shard_layers(NULL, layers, 0, 0, stages, b), WH_OK);
            check_partition(b, stages, layers);
            size_t even[PARTS_MAX + 1];
            wh_shard_even(layers, stages, even);
            assert_memory_equal(b, even, (stages + 1) * sizeof *b);
        }
    const uint64_t dear_end[] = {1, 1, 1, 1, 1, 5};
    assert_int_equal(wh_shard_layers(dear_end, 6, 0, 0, 2, b), WH_OK);
    parts_are(b, 2, (size_t[]){5, 1});
    assert_int_equal(wh_shard_layers(NULL, 4, 0, 100, 2, b), WH_OK); /* a head dearer than all layers */
    parts_are(b, 2, (size_t[]){3, 1});
    const uint64_t free_layers[] = {0, 0, 0};
    assert_int_equal(wh_shard_layers(free_layers, 3, 0, 0, 3, b), WH_OK);
    parts_are(b, 3, (size_t[]){1, 1, 1});
}

/* Cost of the dearest stage by trying every partition. */
static uint64_t dearest_by_trying(const uint64_t *cost, uint32_t layers, uint64_t before, uint64_t after,
                                  uint32_t stages) {
    if (stages == 1) {
        uint64_t all = before + after;
        for (uint32_t l = 0; l < layers; l++) all += cost[l];
        return all;
    }
    uint64_t least = UINT64_MAX, first = before;
    for (uint32_t end = 1; end + stages - 1 <= layers; end++) {
        first += cost[end - 1];
        const uint64_t rest = dearest_by_trying(cost + end, layers - end, 0, after, stages - 1);
        const uint64_t dearest = rest > first ? rest : first;
        if (dearest < least) least = dearest;
    }
    return least;
}

static void test_layers_by_cost(void **state) {
    (void)state;
    uint32_t seed = 99;
    for (int round = 0; round < 300; round++) {
        uint64_t cost[9], ends[2];
        size_t b[PARTS_MAX + 1];
        for (int l = 0; l < 11; l++) {
            seed = seed * 1664525u + 1013904223u;
            *(l < 9 ? &cost[l] : &ends[l - 9]) = (seed >> 16) % 20;
        }
        for (uint32_t stages = 1; stages <= 5; stages++) {
            uint64_t dearest = 0;
            assert_int_equal(wh_shard_layers(cost, 9, ends[0], ends[1], stages, b), WH_OK);
            check_partition(b, stages, 9);
            for (uint32_t s = 0; s < stages; s++) {
                uint64_t sum = (s == 0 ? ends[0] : 0) + (s + 1 == stages ? ends[1] : 0);
                assert_true(b[s] < b[s + 1]);
                for (size_t l = b[s]; l < b[s + 1]; l++) sum += cost[l];
                if (sum > dearest) dearest = sum;
            }
            assert_int_equal(dearest, dearest_by_trying(cost, 9, ends[0], ends[1], stages));
        }
    }
}

/* Every element of a 2-D tensor goes from exactly one old box to exactly one new one. */
static void test_boxes(void **state) {
    (void)state;
    enum { ROWS = 13, COLS = 10 };
    const enum wh_shard_axis axis[] = {WH_SHARD_WHOLE, WH_SHARD_ROWS, WH_SHARD_COLS};
    for (int a = 0; a < 9; a++)
        for (uint32_t from = 1; from <= 4; from *= 2)
            for (uint32_t to = 1; to <= 8; to *= 2) {
                int seen[ROWS][COLS] = {{0}};
                const uint32_t copies = (axis[a / 3] ? 1 : from) * (axis[a % 3] ? 1 : to);
                for (uint32_t f = 0; f < from; f++)
                    for (uint32_t t = 0; t < to; t++) {
                        const struct wh_shard_box x = wh_shard_box(axis[a / 3], ROWS, COLS, 4, from, f);
                        const struct wh_shard_box y = wh_shard_box(axis[a % 3], ROWS, COLS, 8, to, t);
                        const struct wh_shard_box both = wh_shard_box_shared(&x, &y);
                        for (size_t r = both.row; r < both.row + both.rows; r++)
                            for (size_t c = both.col; c < both.col + both.cols; c++) seen[r][c]++;
                    }
                for (int r = 0; r < ROWS; r++)
                    for (int c = 0; c < COLS; c++) assert_int_equal(seen[r][c], copies);
            }
}

static void test_box_is_slices(void **state) {
    (void)state;
    size_t b[9];
    for (uint32_t p = 0; p < 4; p++) {
        wh_shard_slices(11, 8, 4, b);
        const struct wh_shard_box rows = wh_shard_box(WH_SHARD_ROWS, 11, 3, 8, 4, p);
        const struct wh_shard_box cols = wh_shard_box(WH_SHARD_COLS, 3, 11, 8, 4, p);
        assert_int_equal(rows.row, b[p]);
        assert_int_equal(rows.rows, b[p + 1] - b[p]);
        assert_int_equal(cols.col, b[p]);
        assert_int_equal(cols.cols, b[p + 1] - b[p]);
    }
}

static void test_runs(void **state) {
    (void)state;
    for (size_t begin = 0; begin <= 20; begin++)
        for (size_t end = begin; end <= 20; end++) {
            struct wh_shard_box box[3];
            size_t at = begin;
            const int count = wh_shard_boxes_of_run(5, begin, end, box);
            for (int i = 0; i < count; i++)
                for (size_t r = 0; r < box[i].rows; r++)
                    for (size_t c = 0; c < box[i].cols; c++)
                        assert_int_equal((box[i].row + r) * 5 + box[i].col + c, at++); /* in order, none left out */
            assert_int_equal(at, end);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_even),           cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_padded),         cmocka_unit_test(test_padded_moves),
                                       cmocka_unit_test(test_owners),         cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_layers_by_cost), cmocka_unit_test(test_boxes),
                                       cmocka_unit_test(test_box_is_slices),  cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
