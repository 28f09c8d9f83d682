/* Measured limits are possible numbers, in a possible order. Bounds are wide: neighbours may take most of a machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>

#include "os/clock.h"
#include "os/probe.h"

static void peak_is_possible(void **state) {
    (void)state;
    double best = wh_probe_fma_gflops(1, NULL), reference = wh_probe_fma_gflops(1, "reference");
    print_message("1 thread: best %.1f, reference %.1f GFLOP/s\n", best, reference);
    assert_true(reference > 0.1);
    assert_true(best < 1000);            /* 2 units x 16 lanes x 2 at 6 GHz are 384 */
    assert_true(best > 0.5 * reference); /* a wider unit is not slower */
    assert_true(wh_probe_fma_gflops(1, "auto") > 0.1 * best);
}

static void wider_instructions_are_named(void **state) {
    (void)state;
    assert_true(wh_probe_fma_gflops(1, "no such kernels") == 0);
    assert_true(wh_probe_fma_gflops(0, NULL) == 0);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        assert_true(wh_probe_fma_gflops(1, "avx2") > wh_probe_fma_gflops(1, "reference"));
    }
}

static void peak_takes_little_time(void **state) {
    (void)state;
    uint64_t begin = wh_clock_ns();
    wh_probe_fma_gflops(1, NULL);
    assert_in_range(wh_clock_ns() - begin, 10000000u, 2000000000u);
}

static void memory_is_possible(void **state) {
    (void)state;
    double one[WH_PROBE_MEMORY_COUNT], all[WH_PROBE_MEMORY_COUNT];
    int n = wh_probe_processors();
    assert_int_equal(wh_probe_memory_gbs(1, one), WH_OK);
    assert_int_equal(wh_probe_memory_gbs(n, all), WH_OK);
    for (int i = 0; i < WH_PROBE_MEMORY_COUNT; i++) {
        print_message("kind %d: %.1f GB/s by one thread, %.1f by %d\n", i, one[i], all[i], n);
        assert_true(one[i] > 0.05 && one[i] < 2000);
        assert_true(all[i] > 0.05 && all[i] < 20000);
    }
}

static void machine_is_json(void **state) {
    (void)state;
    struct wh_text t = {0};
    wh_probe_machine(&t);
    print_message("%s\n", t.data);
    json_t *root = json_loads(t.data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "processors")), wh_probe_processors());
    assert_true(json_integer_value(json_object_get(root, "memory_bytes")) > 1 << 20);
    assert_true(json_string_length(json_object_get(root, "compiler")) > 4);
    assert_true(json_array_size(json_object_get(root, "kernels")) >= 1);
    json_decref(root);
    wh_text_fini(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peak_is_possible),       cmocka_unit_test(wider_instructions_are_named),
        cmocka_unit_test(peak_takes_little_time), cmocka_unit_test(memory_is_possible),
        cmocka_unit_test(machine_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
