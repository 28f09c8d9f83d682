/* Arenas never allocate; and the counters that such claims rest on do count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/text.h"
#include "ledger/arena.h"
#include "test/support/alloc_count.h"

static void counters_see_library_calls(void **state) {
    (void)state;
    size_t before = alloc_count(), freed = free_count();
    struct wh_text t = {0};
    wh_text_add(&t, "some text");
    assert_true(alloc_count() > before);
    wh_text_fini(&t);
    assert_true(free_count() > freed);
}

static void counters_see_every_kind(void **state) {
    (void)state;
    void *volatile p[5], *aligned;
    size_t before = alloc_count(), freed = free_count();
    p[0] = malloc(8);
    p[1] = calloc(2, 4);
    p[2] = realloc(NULL, 8);
    p[3] = aligned_alloc(64, 64);
    assert_int_equal(posix_memalign(&aligned, 64, 64), 0);
    p[4] = aligned;
    assert_int_equal(alloc_count() - before, 5);
    for (int i = 0; i < 5; i++) free(p[i]);
    assert_int_equal(free_count() - freed, 5);
}

static void arena_allocates_nothing(void **state) {
    (void)state;
    static _Alignas(WH_ARENA_ALIGN) char memory[256];
    size_t before = alloc_count();
    struct wh_arena a = wh_arena_measuring("test");
    assert_null(wh_arena_take(&a, WH_ROW_WEIGHTS, 100));
    assert_null(wh_arena_take(&a, WH_ROW_GRADS, 1));
    a = wh_arena_over("test", memory, a.used_bytes);
    assert_ptr_equal(wh_arena_take(&a, WH_ROW_WEIGHTS, 100), memory);
    assert_ptr_equal(wh_arena_take(&a, WH_ROW_GRADS, 1), memory + 128);
    wh_arena_seal(&a);
    assert_int_equal(alloc_count(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_see_library_calls),
        cmocka_unit_test(counters_see_every_kind),
        cmocka_unit_test(arena_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
