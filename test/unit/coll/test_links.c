/* Figures of links: between levels, predictions, choices, and the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/links.h"

/* Two levels, 1 KiB and 1 MiB; powers of two, so that predictions are exact. */
static struct wh_coll_links example(void) {
    struct wh_coll_links l = {.machine = "a machine", .ranks = 4, .level_count = 2};
    l.latency_s = 0x1p-20, l.message_s = 0x1p-22, l.piece_bytes = 4096, l.piped_most_bytes = 2048;
    l.start_s[WH_COLL_SHARED] = 0x1p-20, l.start_s[WH_COLL_STAGED] = 0x1p-18;
    for (int i = 0; i < 2; i++) {
        struct wh_coll_level *at = &l.level[i];
        at->bytes = i ? 1 << 20 : 1 << 10;
        at->piped = i ? 0x1p-30 : 0x1p-33, at->placed = at->piped * 2, at->copy = at->add = at->piped;
        for (int op = 0; op < WH_COLL_MEASURED_OPS; op++)
            at->way[WH_COLL_SHARED][op] = at->piped / (2 << op), at->way[WH_COLL_STAGED][op] = at->piped * 4;
    }
    return l;
}

static void levels_blend(void **state) {
    (void)state;
    const struct wh_coll_links l = example();
    static const struct {
        uint64_t bytes;
        double rate;
    } at[] = {{1, 0x1p33}, {1 << 10, 0x1p33}, {1 << 20, 0x1p30}, {UINT64_MAX, 0x1p30}};
    for (int i = 0; i < 4; i++) {
        const struct wh_coll_link m = wh_coll_links_topology(&l, at[i].bytes, WH_COLL_SHARED).memory;
        assert_true(m.bytes_per_s == at[i].rate && m.placed_bytes_per_s == at[i].rate / 2);
        assert_true(wh_coll_links_topology(&l, at[i].bytes, WH_COLL_STAGED).memory.placed_bytes_per_s == 0);
    }
    /* half of the way by logarithm */
    const struct wh_coll_topology half = wh_coll_links_topology(&l, 1 << 15, WH_COLL_SHARED);
    assert_float_equal(half.copy_s_per_byte, (0x1p-30 + 0x1p-33) / 2, 1e-20);
    assert_true(half.memory.half_duplex && half.memory.piece_bytes == 4096 && half.memory.latency_s == 0x1p-20 &&
                half.memory.piped_most_bytes == 2048);
}

/* start + vectors that a rank moves. */
static void ways(void **state) {
    (void)state;
    const struct wh_coll_links l = example();
    const double S = 1 << 20, shared = 0x1p-31;
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 4, 0, 1 << 18, WH_F32, .in_place = true};
    assert_true(wh_coll_way_s(&l, &q, WH_COLL_SHARED) == 0x1p-20 + 2 * S * shared);
    assert_true(wh_coll_way_s(&l, &q, WH_COLL_STAGED) == 0x1p-18 + 2 * S * 0x1p-28);
    q.op = WH_COLL_REDUCE_SCATTER;
    assert_true(wh_coll_way_s(&l, &q, WH_COLL_SHARED) == 0x1p-20 + 1.25 * S * shared / 2);
    q.op = WH_COLL_ALL_GATHER; /* 3 of 4 slices are written blindly */
    assert_true(wh_coll_way_s(&l, &q, WH_COLL_SHARED) == 0x1p-20 + 1.75 * S * shared / 4);
    q.op = WH_COLL_BROADCAST; /* nobody has measured it: as all-reduce, by what it moves */
    assert_true(wh_coll_way_s(&l, &q, WH_COLL_SHARED) == 0x1p-20 + 1.75 * S * shared);
    q.op = WH_COLL_BARRIER;
    q.count = 0;
    assert_true(wh_coll_way_s(&l, &q, WH_COLL_SHARED) == 0x1p-20);
}

static struct wh_coll_choice choose(const struct wh_coll_links *l, bool fast) {
    const struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 4, 0, 1 << 18, WH_F32, .in_place = true};
    struct wh_coll_choice c;
    assert_int_equal(wh_coll_choose(l, &q, WH_COLL_SHARED, &(struct wh_coll_limits){fast, UINT64_MAX}, &c), WH_OK);
    return c;
}

/* The same figures, the same choice; other figures, another. */
static void choice_follows_the_figures(void **state) {
    (void)state;
    struct wh_coll_links l = example();
    struct wh_coll_choice c = choose(&l, true);
    assert_false(c.lists);
    wh_coll_choice_free(&c);
    for (int i = 0; i < 2; i++) l.level[i].way[WH_COLL_SHARED][0] = 0x1p-20; /* the arena is slow here */
    for (int fast = 0; fast < 2; fast++) {
        c = choose(&l, fast);
        struct wh_coll_choice again = choose(&l, fast);
        const struct wh_coll_candidate *best = &c.ranking.items[0];
        assert_true(c.lists && best->usable && (fast || best->canonical));
        assert_true(best->seconds < c.way_s && best->seconds == again.ranking.items[0].seconds);
        assert_ptr_equal(best->algorithm, again.ranking.items[0].algorithm);
        wh_coll_choice_free(&c);
        wh_coll_choice_free(&again);
    }
}

/* No list serves it: the way of comm/ does. */
static void without_lists(void **state) {
    (void)state;
    const struct wh_coll_links l = example();
    const struct wh_coll_request q = {WH_COLL_ALL_TO_ALL, 4, 0, 3, WH_F32};
    struct wh_coll_choice c;
    assert_int_equal(wh_coll_choose(&l, &q, WH_COLL_STAGED, &(struct wh_coll_limits){true, UINT64_MAX}, &c), WH_OK);
    assert_true(!c.lists && c.ranking.count == 0 && c.way_s > 0);
    wh_coll_choice_free(&c);
}

/* Predicted as the walk does: a round of the ring's all-gather takes what was measured. */
static void a_round_is_what_was_measured(void **state) {
    (void)state;
    const struct wh_coll_links l = example();
    const struct wh_coll_request q = {WH_COLL_ALL_GATHER, 4, 0, 1 << 18, WH_F32, .in_place = true};
    struct wh_coll_choice c;
    assert_int_equal(wh_coll_choose(&l, &q, WH_COLL_SHARED, &(struct wh_coll_limits){true, UINT64_MAX}, &c), WH_OK);
    const double round = 2 * l.latency_s + 2 * l.message_s + (1 << 18) * l.level[1].placed;
    bool found = false;
    for (size_t i = 0; i < c.ranking.count; i++) {
        if (strcmp(c.ranking.items[i].algorithm->name, "ring") != 0) continue;
        assert_float_equal(c.ranking.items[i].seconds, 3 * round, 1e-15);
        found = true;
    }
    assert_true(found);
    wh_coll_choice_free(&c);
}

static void a_file_reads_back(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct wh_coll_links l, again;
        struct wh_text text = {0};
        memset(&l, 0, sizeof l); /* padding too: compared below */
        memset(&again, 0, sizeof again);
        snprintf(l.machine, sizeof l.machine, "\"%llu\" \\ \xe4\xb8\x87", (unsigned long long)seed);
        l.ranks = 1 + (uint32_t)seed % 64, l.level_count = 1 + (uint32_t)seed % WH_COLL_LEVELS_MAX;
        double *const figure[] = {&l.latency_s, &l.message_s, &l.piece_bytes, &l.start_s[0], &l.start_s[1]};
        for (int i = 0; i < 5; i++) *figure[i] = (double)((seed + 7) * (unsigned)(i + 3) % 1001) / 3e9;
        for (uint32_t i = 0; i < l.level_count; i++) {
            struct wh_coll_level *at = &l.level[i];
            at->bytes = (seed + 1) << (3 * i);
            at->piped = 1 / (3.0 + (double)seed), at->placed = at->piped / 3, at->copy = at->piped / 7;
            at->add = at->copy / 3;
            for (int w = 0; w < WH_COLL_WAY_COUNT * WH_COLL_MEASURED_OPS; w++)
                at->way[w % WH_COLL_WAY_COUNT][w / WH_COLL_WAY_COUNT] = at->add / (w + 3);
        }
        wh_coll_links_write(&l, &text);
        if (wh_coll_links_parse(text.data, text.bytes, "f", &again) != WH_OK) fail_msg("%s", wh_error()->message);
        assert_memory_equal(&l, &again, sizeof l);
        wh_text_fini(&text);
    }
}

static void refuse(const char *from, const char *to, const char *message) {
    const struct wh_coll_links l = example();
    struct wh_coll_links out = {.ranks = 77};
    struct wh_text text = {0}, changed = {0};
    wh_coll_links_write(&l, &text);
    const char *at = strstr(text.data, from);
    assert_non_null(at);
    wh_text_add(&changed, "%.*s%s%s", (int)(at - text.data), text.data, to, at + strlen(from));
    assert_int_equal(wh_coll_links_parse(changed.data, changed.bytes, "x.json", &out), WH_CONFIG);
    if (!strstr(wh_error()->message, message) || !strstr(wh_error()->message, "x.json"))
        fail_msg("'%s' instead of '%s'", wh_error()->message, message);
    assert_int_equal(out.ranks, 77);
    wh_text_fini(&text);
    wh_text_fini(&changed);
}

static void damage_is_named(void **state) {
    (void)state;
    refuse("wanhe.links/2", "wanhe.links/1", "schema is not wanhe.links/2");
    refuse("\"ranks\": 4", "\"ranks\": 0", "ranks must be a whole number from 1");
    refuse("\"ranks\": 4", "\"ranks\": \"4\"", "ranks must be a whole number");
    refuse("\"a machine\"", "7", "machine must be a text");
    refuse("\"latency_s\"", "\"latency\"", "latency_s must be a number");
    refuse("\"bytes\": 1048576", "\"bytes\": 1024", "bytes must be a whole number from 1025");
    refuse("\"piped_s_per_byte\": ", "\"piped_s_per_byte\": -", "piped_s_per_byte must be a number above 0");
    refuse("\"levels\"", "\"levls\"", "levels must be a list");
    refuse("}", "", ":");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_blend),
        cmocka_unit_test(ways),
        cmocka_unit_test(choice_follows_the_figures),
        cmocka_unit_test(without_lists),
        cmocka_unit_test(a_round_is_what_was_measured),
        cmocka_unit_test(a_file_reads_back),
        cmocka_unit_test(damage_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
