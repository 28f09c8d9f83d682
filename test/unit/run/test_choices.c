/* Data-parallel ranks that are told of their links: what they choose is what is run and what is said, numbers under the
 * contract are those of one rank whichever it is, `fast` is the same on all replicas and from run to run, and what is sent and
 * held is what was predicted before anybody knew. Where the figures come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>

#include "os/file.h"
#include "run/choices.h"
#include "run/links_file.h"
#include "test/support/folder.h"
#include "test/support/sessions.h"

enum { STEPS = 4, SETS_MAX = 12 };

static char folder[TEST_FOLDER_BYTES], data_set[128];

static int make_folder(void **state) {
    char path[TEST_TEXT_PATH_BYTES];
    (void)state;
    if (!test_folder_with_text(folder, "choices", 8192, path)) return -1;
    snprintf(data_set, sizeof data_set, "data.train=%s", path);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

/* Messages that are placed are slow, so a ring, whose partial sums go through pipes, is the fastest of all orders. `arena`:
 * seconds a byte there. */
static struct wh_team_links figures(uint32_t ranks, double arena) {
    struct wh_team_links l = {.from = WH_LINKS_FILE, .figures = {.ranks = ranks, .level_count = 1}};
    struct wh_coll_level *at = &l.figures.level[0];
    *at = (struct wh_coll_level){.bytes = 4096, .piped = 1e-12, .placed = 1e-9, .copy = 1e-12, .add = 1e-12};
    for (int op = 0; op < WH_COLL_MEASURED_OPS; op++)
        at->way[WH_COLL_SHARED][op] = arena, at->way[WH_COLL_STAGED][op] = 1;
    wh_text_add(&l.why, "figures of a test");
    return l;
}

static const double slow = 1e-6, quick = 1e-15;

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t master; /* hash */
};

/* What a rank must find. */
struct expect {
    const char *bucket; /* way of the longest; NULL: a list; "": any */
    const char *says;   /* in its line */
    bool told;
};

static enum wh_status check_said(const struct wh_session *s, const struct expect *e) {
    const struct wh_replica *r = &s->engine.replica;
    struct wh_choice choice[WH_CHOICES_MAX];
    struct wh_text text = {0};
    const uint32_t count = wh_choices(r, choice);
    RANK_CHECK(r->links.told == e->told && count >= 2);
    const struct wh_choice *longest = &choice[0];
    for (uint32_t i = 0; i < count; i++)
        if (strncmp(choice[i].row, "dp.grad.", 8) == 0 &&
            wh_comm_plan_bytes(choice[i].largest) > wh_comm_plan_bytes(longest->largest))
            longest = &choice[i];
    const char *way = wh_comm_plan_way(longest->largest);
    wh_choice_describe(longest, &text);
    if (!e->bucket) RANK_CHECK(wh_coll_algorithm(way) != NULL, "%s", text.data);
    if (e->bucket && *e->bucket) RANK_CHECK(strcmp(way, e->bucket) == 0, "%s", text.data);
    RANK_CHECK(strncmp(text.data, longest->row, strlen(longest->row)) == 0 && strstr(text.data, e->says), "%s",
               text.data);
    wh_text_clear(&text);
    wh_team_links_describe(s->team, &r->links, &text);
    RANK_CHECK(!e->told || strstr(text.data, s->team->links->from == WH_LINKS_FILE ? "as kept in" : "measured in"),
               "%s", text.data);
    wh_text_fini(&text);
    return WH_OK;
}

/* Known before; the same whatever was chosen. */
static enum wh_status check_books(const struct wh_session *s) {
    struct wh_session_bytes bytes;
    struct wh_traffic t;
    uint32_t rows;
    const struct wh_comm_row *row = wh_comm_rows(s->team->job, &rows);
    WH_TRY(wh_session_predict(s->config, s->stage.rank, &bytes));
    RANK_CHECK(wh_comm_room_bytes(s->team->dp) == bytes.room_bytes, "room of %zu bytes, predicted %zu",
               wh_comm_room_bytes(s->team->dp), bytes.room_bytes);
    WH_TRY(wh_traffic_new(&s->stage, s->config->optimizer.bucket_bytes, &t));
    for (int i = 0; i < STEPS; i++) wh_traffic_step(&t, true);
    for (int k = 0; k < WH_TRAFFIC_COUNT; k++)
        for (uint32_t i = 0; i < rows; i++) {
            const char *name = wh_traffic_row_name(&t, (enum wh_traffic_row)k);
            RANK_CHECK(!name || strcmp(row[i].name, name) != 0 ||
                           (row[i].calls == t.row[k].calls && row[i].sent_bytes == t.row[k].sent_bytes),
                       "%s: %llu calls, %llu bytes, not as predicted", row[i].name, (unsigned long long)row[i].calls,
                       (unsigned long long)row[i].sent_bytes);
        }
    wh_traffic_free(&t);
    return WH_OK;
}

/* Replicas are compared in every step. */
static enum wh_status body(struct wh_session *s, const void *context, void *shared) {
    struct outcome *out = shared;
    const struct expect *expect = context;
    wh_net_init_weights(&s->net, 3);
    for (int i = 0; i < STEPS; i++) {
        struct wh_step_result r;
        WH_TRY(wh_session_step(s, &r));
        if (s->stage.rank == 0) out->loss[i] = r.loss, out->norm[i] = r.grad_norm;
    }
    if (s->stage.rank == 0 && s->config->optimizer.zero_stage == 0)
        out->master = XXH3_64bits(s->net.master, s->stage.part.buffer_elems * sizeof *s->net.master);
    if (!s->team) return WH_OK;
    WH_TRY(check_said(s, expect));
    return check_books(s);
}

static struct outcome run(uint32_t dp, const struct wh_team_links *links, const struct expect *expect,
                          const char *const *more) {
    static const char text[] =
        "model: {model_config: {hidden_size: 24, intermediate_size: 40, num_hidden_layers: 3, vocab_size: 257,\n"
        "  num_attention_heads: 4}}\n"
        "tokens: {global_batch_size: 24, sequence_length: 10, train_steps: 100}\n"
        "optimizer: {learning_rate_scheduler: {learning_rate: 0.01}}\n"
        "checks: {replicas: 1}\n"
        "threads: 1\n";
    char ranks[64];
    const char *sets[SETS_MAX] = {data_set, ranks};
    struct wh_config c;
    struct outcome out = {0};
    snprintf(ranks, sizeof ranks, "parallelism.dp=%u", dp);
    for (size_t i = 0; more[i]; i++) sets[2 + i] = more[i];
    if (test_config(text, sets, &c) != WH_OK) fail_msg("%s", wh_error()->message);
    struct test_sessions t = {.config = &c, .body = body, .context = expect, .links = links};
    const uint32_t bad = test_sessions_run(&t);
    if (bad) test_ranks_print(&t.ranks);
    assert_int_equal(bad, 0);
    memcpy(&out, t.ranks.shared, sizeof out);
    test_ranks_free(&t.ranks);
    wh_config_free(&c);
    return out;
}

/* Ranks of a power of two of groups have one contribution each: lists can join them. */
static void contract_is_kept(void **state) {
    static const struct {
        uint32_t dp;
        const char *grain;
        const char *bucket;
    } layouts[] = {{2, "grain.data=8", "optimizer.bucket_bytes=26214400"},
                   {4, "grain.data=8", "optimizer.bucket_bytes=20000"},
                   {3, "grain.data=24", "optimizer.bucket_bytes=20000"},
                   {6, "grain.data=24", "optimizer.bucket_bytes=26214400"}};
    const struct expect list = {NULL, "contract order (predicted ", true};
    const struct expect any = {"", "contract order (predicted ", true};
    const struct expect arena = {"arena", "several contributions of a rank", true};
    struct wh_team_links probe = {.from = WH_LINKS_PROBE};
    (void)state;
    wh_text_add(&probe.why, "a test");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *const sets[] = {"tokens.micro_batch_size=2", layouts[i].grain, layouts[i].bucket, NULL};
        const uint32_t dp = layouts[i].dp;
        struct wh_team_links links = figures(dp, slow);
        const struct outcome alone = run(1, NULL, NULL, sets), lists = run(dp, &links, &list, sets);
        assert_memory_equal(&lists, &alone, sizeof alone);
        const struct outcome probed = run(dp, &probe, &any, sets);
        assert_memory_equal(&probed, &alone, sizeof alone);
        wh_team_links_free(&links);
        if (dp != 3) continue;
        struct wh_team_links two = figures(2, slow); /* of 12 groups */
        const struct outcome several = run(2, &two, &arena, sets);
        assert_memory_equal(&several, &alone, sizeof alone);
        wh_team_links_free(&two);
    }
    wh_team_links_free(&probe);
}

/* A gradient's element is a sum over 4 replicas: two orders differ by at most 6 u sum |g_i|, u = 2^-24, and the norms by
 * 6 u sum ||g_i||. Replicas' gradients of different samples are no 64 times as long as their sum: 1e-4 of it in the first
 * step. */
static void fast_goes_by_ring(void **state) {
    static const char *const sets[] = {"comm.reduce=fast", "tokens.micro_batch_size=6", NULL};
    const struct expect by_ring = {"ring", "ring, an order of its own (predicted ", true};
    const struct expect by_arena = {"arena", "arena, contract order (predicted ", true};
    struct wh_team_links slow_arena = figures(4, slow), quick_arena = figures(4, quick);
    (void)state;
    const struct outcome ring = run(4, &slow_arena, &by_ring, sets), again = run(4, &slow_arena, &by_ring, sets);
    const struct outcome tree = run(4, &quick_arena, &by_arena, sets);
    assert_memory_equal(&ring, &again, sizeof ring);
    assert_true(ring.master != tree.master); /* it did run by the ring */
    assert_true(ring.loss[0] == tree.loss[0]);
    assert_float_equal(ring.norm[0], tree.norm[0], 1e-4 * tree.norm[0]);
    wh_team_links_free(&slow_arena);
    wh_team_links_free(&quick_arena);
}

/* Slices of owners, too, stay where they are; and who asks for nothing gets nothing. */
static void nothing_to_choose(void **state) {
    static const char *const zero[] = {"tokens.micro_batch_size=6", "grain.data=24", "optimizer.zero_stage=2", NULL};
    static const char *const off[] = {"tokens.micro_batch_size=6", "grain.data=8", "comm.links=off", NULL};
    static const char *const tiny[] = {"tokens.micro_batch_size=6", "grain.data=8", "optimizer.bucket_bytes=4096",
                                       "tokens.sequence_length=4", NULL};
    const struct expect borders = {"arena", "slices at given borders", true},
                        silent = {"arena", "contract order", false};
    static const char *const wire[] = {"tokens.micro_batch_size=6", "comm.reduce=fast", "grain.wire=bfloat16",
                                       "optimizer.bucket_bytes=25002", NULL};
    const struct expect odd = {"", "(predicted ", true}; /* buckets begin anywhere */
    struct wh_team_links links = figures(2, slow), none = {.from = WH_LINKS_OFF}, probe = {.from = WH_LINKS_PROBE};
    (void)state;
    wh_text_add(&none.why, "comm.links off");
    wh_text_add(&probe.why, "a test");
    run(2, &links, &borders, zero);
    run(2, &none, &silent, off);
    run(2, &links, &silent, tiny); /* too short to be asked about */
    run(2, &probe, &odd, wire);
    wh_team_links_free(&links);
    wh_team_links_free(&none);
    wh_team_links_free(&probe);
}

/* ---- where figures come from ---- */

static const char *lookup(const char *name) { return strcmp(name, "XDG_CACHE_HOME") == 0 ? folder : NULL; }

static void find(const char *const *more, const char *(*environment)(const char *), enum wh_links_from from,
                 const char *why) {
    const char *sets[SETS_MAX] = {data_set};
    struct wh_config c;
    struct wh_team_links l;
    for (size_t i = 0; more[i]; i++) sets[1 + i] = more[i];
    if (test_config("model: {model_config: {hidden_size: 24, num_hidden_layers: 2, intermediate_size: 40, vocab_size: "
                    "257, num_attention_heads: 4}}\n"
                    "tokens: {global_batch_size: 24, sequence_length: 10, train_steps: 100}\n",
                    sets, &c) != WH_OK)
        fail_msg("%s", wh_error()->message);
    assert_int_equal(wh_team_links_find(&c, environment, &l), WH_OK);
    if (l.from != from || !strstr(l.why.data, why)) fail_msg("%d, %s", (int)l.from, l.why.data);
    assert_true(from != WH_LINKS_FILE || l.figures.ranks == 2);
    wh_team_links_free(&l);
    wh_config_free(&c);
}

static void keep(struct wh_coll_links *l) {
    char *path = wh_links_default_path(lookup, 2);
    assert_int_equal(wh_links_save(path, l), WH_OK);
    free(path);
}

static void figures_are_found(void **state) {
    static const char *const two[] = {"parallelism.dp=2", NULL}, *const beside[] = {"parallelism.dp=2",
                                                                                    "parallelism.pp=2", NULL};
    static const char *const probe[] = {"parallelism.dp=2", "comm.links=probe", NULL};
    static const char *const off[] = {"parallelism.dp=2", "comm.links=off", NULL}, *const one[] = {NULL};
    struct wh_team_links kept = figures(2, quick);
    (void)state;
    find(two, NULL, WH_LINKS_PROBE, "no cache folder");
    find(two, lookup, WH_LINKS_PROBE, "there is no ");
    keep(&kept.figures);
    find(two, lookup, WH_LINKS_PROBE, "another machine");
    wh_probe_links_machine(kept.figures.machine);
    keep(&kept.figures);
    find(two, lookup, WH_LINKS_FILE, "links-2.json");
    find(beside, lookup, WH_LINKS_PROBE, "beside other ranks, 4 in all");
    find(probe, lookup, WH_LINKS_PROBE, "comm.links probe");
    find(off, lookup, WH_LINKS_OFF, "comm.links off");
    find(one, lookup, WH_LINKS_OFF, "");
    wh_team_links_free(&kept);
}

/* A file that is named must do. */
static void a_named_file(void **state) {
    char set[192], other[160];
    const char *sets[] = {data_set, set, "parallelism.dp=3", NULL};
    struct wh_config c;
    struct wh_team_links l = {0};
    static const struct {
        const char *file, *says;
        enum wh_status status;
    } bad[] = {{"none.json", "none.json", WH_IO},
               {"data.txt", "data.txt:1", WH_CONFIG},
               {"wanhe/links-2.json", "measured with 2 ranks, not 3", WH_CONFIG}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, bad[i].file);
        snprintf(set, sizeof set, "comm.links=%s", other);
        assert_int_equal(test_config("model: {model_config: {hidden_size: 24, num_hidden_layers: 2, intermediate_size: "
                                     "40, vocab_size: 257, num_attention_heads: 4}}\n"
                                     "tokens: {global_batch_size: 24, sequence_length: 10, train_steps: 100}\n"
                                     "grain: {data: 24}\n",
                                     sets, &c),
                         WH_OK);
        assert_int_equal(wh_team_links_find(&c, lookup, &l), bad[i].status);
        assert_non_null(strstr(wh_error()->message, bad[i].says));
        wh_config_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_is_kept),  cmocka_unit_test(fast_goes_by_ring), cmocka_unit_test(nothing_to_choose),
        cmocka_unit_test(figures_are_found), cmocka_unit_test(a_named_file),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
