#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* after its needs */
#include <cmocka.h>

#include "os/probe.h"
#include "os/topology.h"

static void describe(const struct wh_topology *t, const char *want) {
    struct wh_text text = {0};
    wh_topology_describe(t, &text);
    if (!strstr(text.data, want)) fail_msg("'%s' does not say '%s'", text.data, want);
    wh_text_fini(&text);
}

/* All cores go to ranks, none to two; a pinned process may run on its own alone. */
static void test_pinned(void **state) {
    (void)state;
    struct wh_topology *t;
    assert_int_equal(wh_topology_new(1, &t), WH_OK);
    const uint32_t cores = wh_topology_cores(t);
    wh_topology_free(t);
    if (cores == 0) skip(); /* a machine that shows none */
    for (uint32_t ranks = 1; ranks <= cores && ranks <= 9; ranks++) {
        uint32_t sum = 0;
        int processors = 0;
        assert_int_equal(wh_topology_new(ranks, &t), WH_OK);
        for (uint32_t r = 0; r < ranks; r++) {
            int wait_status;
            const int child = fork();
            if (child == 0) _exit(wh_topology_pin(t, r) == WH_OK ? wh_probe_processors() : 255);
            assert_int_equal(waitpid(child, &wait_status, 0), child);
            assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) < 255);
            assert_true(WEXITSTATUS(wait_status) >= (int)wh_topology_rank_cores(t, r));
            processors += WEXITSTATUS(wait_status);
            sum += wh_topology_rank_cores(t, r);
        }
        assert_int_equal(sum, cores);
        assert_int_equal(processors, wh_probe_processors());
        describe(t, "pinned: 0 on core");
        wh_topology_free(t);
    }
}

static void test_too_many(void **state) {
    (void)state;
    struct wh_topology *t;
    const int before = wh_probe_processors();
    assert_int_equal(wh_topology_new(100000, &t), WH_OK);
    assert_int_equal(wh_topology_rank_cores(t, 7), 0);
    assert_int_equal(wh_topology_pin(t, 7), WH_OK);
    assert_int_equal(wh_probe_processors(), before);
    describe(t, "100000 ranks, not pinned: more ranks than cores");
    wh_topology_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pinned), cmocka_unit_test(test_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
