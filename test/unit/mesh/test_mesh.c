#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "mesh/mesh.h"

static struct wh_mesh mesh_of(uint32_t dp, uint32_t cp, uint32_t tp, uint32_t pp, uint32_t ep, uint32_t per_machine) {
    struct wh_faults faults = {0};
    struct wh_mesh m;
    const struct wh_mesh_degrees d = {.dp = dp, .cp = cp, .tp = tp, .pp = pp, .ep = ep};
    assert_true(wh_mesh_init(&d, per_machine, &m, &faults));
    assert_int_equal(faults.count, 0);
    return m;
}

static void group_is(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group, const char *want) {
    struct wh_text text = {0};
    wh_mesh_print_group(m, axis, group, &text);
    assert_string_equal(text.data, want);
    wh_text_fini(&text);
}

/* LAB A7: 1024 = 8 x 8 x 16, tensor groups within a machine of 8. */
static void test_tower(void **state) {
    (void)state;
    const struct wh_mesh m = mesh_of(8, 1, 8, 16, 1, 8);
    struct wh_text text = {0};
    assert_int_equal(m.world, 1024);
    wh_mesh_print(&m, &text);
    assert_string_equal(text.data, "1024 ranks = dp 8 * cp 1 * tp 8 * pp 16, 8 ranks per machine, 128 machines");
    wh_text_fini(&text);
    assert_int_equal(wh_mesh_group_count(&m, WH_AXIS_TP), 128);
    assert_int_equal(wh_mesh_group_count(&m, WH_AXIS_DP), 128);
    assert_int_equal(wh_mesh_group_count(&m, WH_AXIS_PP), 64);
    group_is(&m, WH_AXIS_TP, 0, "0-7");
    group_is(&m, WH_AXIS_TP, 127, "1016-1023");
    group_is(&m, WH_AXIS_DP, 0, "0,8..56");
    group_is(&m, WH_AXIS_DP, 127, "967,975..1023");
    group_is(&m, WH_AXIS_PP, 0, "0,64..960");
    group_is(&m, WH_AXIS_PP, 63, "63,127..1023");
    group_is(&m, WH_AXIS_STAGE, 15, "960-1023");
    group_is(&m, WH_AXIS_WORLD, 0, "0-1023");
    const struct wh_mesh_place p = wh_mesh_place(&m, 1000); /* 1000 = 0 + 8 * (5 + 8 * 15) */
    assert_int_equal(p.tp, 0);
    assert_int_equal(p.dp, 5);
    assert_int_equal(p.pp, 15);
    for (uint32_t g = 0; g < 128; g++) {
        assert_false(wh_mesh_group_crosses(&m, WH_AXIS_TP, g));
        assert_true(wh_mesh_group_crosses(&m, WH_AXIS_DP, g));
    }
    assert_int_equal(wh_mesh_machine(&m, 1023), 127);
}

static void test_small(void **state) {
    (void)state;
    const struct wh_mesh m = mesh_of(2, 3, 2, 2, 3, 0);
    assert_int_equal(wh_mesh_machine_count(&m), 1);
    group_is(&m, WH_AXIS_CP, 1, "1,3,5");
    group_is(&m, WH_AXIS_DP, 0, "0,6");
    group_is(&m, WH_AXIS_EP, 0, "0,2,4");
    group_is(&m, WH_AXIS_EDP, 5, "5,11");
    group_is(&m, WH_AXIS_DATA, 0, "0,2..10");
    group_is(&m, WH_AXIS_MODEL, 0, "0,1,12,13");
    group_is(&m, WH_AXIS_MODEL, 5, "10,11,22,23");
    group_is(&m, WH_AXIS_PP, 11, "11,23");
    const struct wh_mesh one = mesh_of(1, 1, 1, 1, 1, 0);
    for (int a = 0; a < WH_AXIS_COUNT; a++) group_is(&one, (enum wh_mesh_axis)a, 0, "0");
}

/* The definition: members of a rank's group differ from it in the coordinates of the axis alone. */
static bool same_group(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t a, uint32_t b) {
    const struct wh_mesh_place p = wh_mesh_place(m, a), q = wh_mesh_place(m, b);
    const uint32_t p_data = p.cp + m->degrees.cp * p.dp, q_data = q.cp + m->degrees.cp * q.dp, ep = m->degrees.ep;
    const bool tp = p.tp == q.tp, cp = p.cp == q.cp, dp = p.dp == q.dp, pp = p.pp == q.pp;
    switch (axis) {
    case WH_AXIS_TP:
        return cp && dp && pp;
    case WH_AXIS_CP:
        return tp && dp && pp;
    case WH_AXIS_DP:
        return tp && cp && pp;
    case WH_AXIS_PP:
        return tp && cp && dp;
    case WH_AXIS_EP:
        return tp && pp && p_data / ep == q_data / ep;
    case WH_AXIS_EDP:
        return tp && pp && p_data % ep == q_data % ep;
    case WH_AXIS_DATA:
        return tp && pp;
    case WH_AXIS_MODEL:
        return cp && dp;
    case WH_AXIS_STAGE:
        return pp;
    default:
        return true;
    }
}

static void check_axis(const struct wh_mesh *m, enum wh_mesh_axis axis) {
    const uint32_t size = wh_mesh_group_size(m, axis), count = wh_mesh_group_count(m, axis);
    uint32_t *seen = calloc(m->world, sizeof *seen), previous_first = 0;
    assert_int_equal(size * count, m->world);
    for (uint32_t g = 0; g < count; g++) {
        const uint32_t first = wh_mesh_group_member(m, axis, g, 0);
        if (g > 0) assert_true(first > previous_first);
        previous_first = first;
        for (uint32_t k = 0; k < size; k++) {
            const uint32_t rank = wh_mesh_group_member(m, axis, g, k);
            assert_true(rank < m->world);
            if (k > 0) assert_true(rank > wh_mesh_group_member(m, axis, g, k - 1));
            seen[rank]++;
            assert_int_equal(wh_mesh_group(m, axis, rank), g);
            assert_int_equal(wh_mesh_position(m, axis, rank), k);
            assert_int_equal(wh_mesh_member(m, axis, rank, 0), first);
            assert_int_equal(wh_mesh_member(m, axis, first, k), rank);
            assert_true(same_group(m, axis, first, rank));
        }
    }
    for (uint32_t r = 0; r < m->world; r++) assert_int_equal(seen[r], 1); /* exactly one group */
    free(seen);
}

static void check_all(const struct wh_mesh *m) {
    for (uint32_t r = 0; r < m->world; r++) {
        const struct wh_mesh_place p = wh_mesh_place(m, r);
        assert_int_equal(wh_mesh_rank(m, &p), r);
    }
    for (int a = 0; a < WH_AXIS_COUNT; a++) check_axis(m, (enum wh_mesh_axis)a);
    for (uint32_t r = 0; r < m->world; r++) /* the share of the experts is the place in the group of experts */
        assert_int_equal(wh_mesh_place(m, r).ep, wh_mesh_position(m, WH_AXIS_EP, r));
}

static void test_factorisations(void **state) {
    (void)state;
    uint32_t seed = 12345;
    for (int i = 0; i < 300; i++) {
        uint32_t d[5];
        for (int k = 0; k < 5; k++) {
            seed = seed * 1664525u + 1013904223u;
            d[k] = 1 + (seed >> 16) % 6;
        }
        while ((d[0] * d[1]) % d[4]) d[4]--;
        const struct wh_mesh m = mesh_of(d[0], d[1], d[2], d[3], d[4], d[2] * 2);
        check_all(&m);
    }
    const struct wh_mesh tower = mesh_of(8, 1, 8, 16, 4, 8);
    check_all(&tower);
}

static void refuses(uint32_t dp, uint32_t cp, uint32_t tp, uint32_t pp, uint32_t ep, const char *want) {
    struct wh_faults faults = {0};
    struct wh_mesh m = {.world = 77};
    const struct wh_mesh_degrees d = {.dp = dp, .cp = cp, .tp = tp, .pp = pp, .ep = ep};
    assert_false(wh_mesh_init(&d, 0, &m, &faults));
    assert_int_equal(m.world, 77);
    if (!strstr(faults.text.data, want)) fail_msg("'%s' does not say '%s'", faults.text.data, want);
    (void)wh_faults_status(&faults, WH_CONFIG);
}

static void test_refused(void **state) {
    (void)state;
    refuses(0, 1, 0, 1, 1, "tp 0: a degree is at least 1");
    refuses(1 << 20, 1, 2, 1, 1, "more than 1048576 ranks");
    refuses(1u << 31, 1u << 31, 1u << 31, 1u << 31, 1, "more than 1048576 ranks");
    refuses(6, 2, 1, 1, 5, "ep 5 does not divide dp 6 * cp 2 = 12; nearest legal: 4 or 6");
    refuses(2, 1, 1, 1, 3, "nearest legal: 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tower), cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_factorisations), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
