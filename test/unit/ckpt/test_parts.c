/* Checkpoints of ranks that hold parts: the bytes of one rank, and on any other layout again. */
#include "test/unit/ckpt/layouts.h"

static const struct layout layouts[] = {
    /* whole tables, their line shared out or not */
    {.compute = WH_BF16},
    {.own = {{0, 50}, {50, 100}}, .dp = 2},
    {.own = {{0, 0}, {0, 100}}, .dp = 2, .compute = WH_BF16},
    {.own = {{0, 5}, {5, 6}, {6, 100}}, .dp = 3, .compute = WH_BF16},
    {.own = {{0, 33}, {33, 33}, {33, 100}}, .dp = 3},
    {.own = {{0, 3}, {3, 40}, {40, 40}, {40, 77}, {77, 100}}, .dp = 5},
    {.dp = 3},
    {.dp = 4, .owners = true},
    /* one element kept by several */
    {.own = {{40, 60}, {0, 50}, {30, 100}}, .dp = 3},
    {.own = {{1, 3}, {0, 100}, {20, 80}}, .dp = 3, .holes = true},
    /* stages: uneven ones, ones without layers, several on a rank */
    {.layer_border = {0, 1, 5}, .pp = 2},
    {.layer_border = {0, 2, 4, 5}, .pp = 3, .dp = 2, .owners = true, .compute = WH_BF16},
    {.layer_border = {0, 2, 4, 5}, .pp = 3, .dp = 2},
    {.layer_border = {0, 0, 3, 5, 5}, .pp = 4},
    {.layer_border = {0, 2, 3, 4, 5}, .own = {{0, 30}, {30, 100}}, .pp = 2, .chunks = 2, .dp = 2},
    {.layer_border = {0, 0, 3, 4, 5}, .pp = 2, .chunks = 2, .vee = true, .dp = 2, .owners = true},
    /* slices */
    {.tp = 2},
    {.tp = 4, .compute = WH_BF16},
    {.own = {{0, 37}, {37, 100}}, .tp = 2, .dp = 2},
    {.own = {{50, 100}, {0, 71}}, .tp = 4, .dp = 2},
    /* all together */
    {.layer_border = {0, 1, 5}, .own = {{0, 61}, {61, 100}}, .pp = 2, .dp = 2, .tp = 2},
    {.layer_border = {0, 2, 3, 4, 5}, .own = {{0, 8}, {8, 100}}, .pp = 2, .chunks = 2, .dp = 2, .tp = 4},
    {.layer_border = {0, 2, 2, 4, 5}, .pp = 4, .dp = 2, .tp = 2, .owners = true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Elements that this rank must be asked for, and into how many messages they fit. */
static void count(const struct world *w, uint32_t rank, uint64_t *elems, uint64_t *messages) {
    *elems = *messages = 0;
    for (size_t i = 0; i < params.count; i++) {
        const struct wh_param *p = &params.list[i];
        const uint64_t before = *elems;
        for (size_t k = p->offset; k < p->offset + p->elems; k++) *elems += w->keeper[k] == rank;
        if (*elems > before) *messages += 4 * p->elems / (1 << 20) + 1;
    }
}

/* Nothing is sent twice, and not in crumbs, whatever it is cut by. */
static enum wh_status check_traffic(const struct wh_comm_job *job, uint32_t rank, const struct layout *l) {
    uint64_t elems, messages, sent = 0, calls = 0;
    uint32_t rows;
    struct world w;
    const struct wh_comm_row *row = wh_comm_rows(job, &rows);
    for (uint32_t i = 0; i < rows; i++)
        if (strcmp(row[i].name, "ckpt.send") == 0) sent = row[i].sent_bytes, calls = row[i].calls;
    make_world(l, &w);
    count(&w, rank, &elems, &messages);
    free_world(&w);
    if (rank == 0) calls = 0; /* what it receives */
    RANK_CHECK(rank == 0 || l->holes || sent == 4 * CLASSES * elems, "%llu bytes", (unsigned long long)sent);
    RANK_CHECK(calls <= CLASSES * messages, "%llu messages", (unsigned long long)calls);
    return WH_OK;
}

static enum wh_status rank_that_saves(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct saving *s = t->context;
    struct wh_comm *comm;
    char *found;
    WH_TRY(open_all(job, &comm));
    WH_TRY(save(comm, s));
    WH_TRY(wh_ckpt_find(in(s->run, ""), s->step, &found, NULL)); /* in place when the call returns, on every rank */
    free(found);
    return check_traffic(job, rank, s->layout);
}

static void save_by_job(const struct layout *l, const char *run, uint64_t step) {
    const struct saving s = {l, run, step};
    struct test_ranks t = job_of(ranks_of(l), &s, rank_that_saves);
    if (test_ranks_run(&t)) {
        test_ranks_print(&t);
        fail_msg("%u ranks, layout %td", ranks_of(l), l - layouts);
    }
    test_ranks_free(&t);
}

static void expect_same(const char *a, const char *b) {
    char command[600];
    snprintf(command, sizeof command, "diff -r %s %s", in(a, "checkpoints"), in(b, "checkpoints"));
    if (system(command) != 0) fail_msg("%s and %s differ", a, b);
}

/* By every layout of `list` that the model has to do with. */
static void saved_by(const struct layout *list, size_t number) {
    save_alone("f32", WH_F32, 20);
    save_alone("bf16", WH_BF16, 20);
    for (size_t i = 0; i < number; i++) {
        if (model.tied && !list[i].pp) continue;
        save_by_job(&list[i], "parts", 20);
        expect_same(list[i].compute == WH_F32 ? "f32" : "bf16", "parts");
        assert_int_equal(wh_dir_remove(in("parts", "")), WH_OK);
    }
}

static void bytes_of_one_rank(void **state) {
    (void)state;
    saved_by(layouts, LAYOUTS);
}

/* Its last stage holds the table of the first, too. */
static void bytes_of_one_rank_tied(void **state) {
    (void)state;
    unmake();
    make(WH_GPT2, 13, 6, 7, 5);
    assert_true(model.tied);
    saved_by(layouts, LAYOUTS);
}

static void tensors_of_several_pieces(void **state) {
    (void)state;
    static const struct layout some[] = {
        {.own = {{0, 1}, {1, 70}, {70, 100}}, .dp = 3}, {.tp = 4}, {.own = {{0, 45}, {45, 100}}, .tp = 2, .dp = 2}};
    unmake();
    make(WH_LLAMA, 4201, 64, 5001, 1);
    saved_by(some, 3);
    unmake();
    make(WH_LLAMA, 13, 2, 300001, 1); /* rows of more than a piece */
    saved_by(some, 3);
}

static void loads_on_any_other_layout(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        unmake();
        make(tied ? WH_GPT2 : WH_LLAMA, 13, 6, 7, 5);
        save_by_job(&layouts[tied ? 14 : 3], "run", 20);
        char *path = in("run", "checkpoints/step-00000020");
        for (size_t i = 0; i < LAYOUTS; i++)
            for (uint32_t r = 0; r < ranks_of(&layouts[i]); r++) {
                bool right;
                expect(load_part(path, &layouts[i], r, &right), WH_OK, "");
                assert_true(right);
            }
        assert_int_equal(wh_dir_remove(in("run", "")), WH_OK);
    }
}

static void parts_of_an_imported_model_have_zero_moments(void **state) {
    (void)state;
    const struct saving s = {&layouts[1], "import", 0};
    static const struct layout one = {0};
    struct world w;
    make_world(&one, &w);
    struct wh_ckpt_view v = view_of(&s, &w, 0);
    free(v.m.data), free(v.v.data);
    v.m = v.v = (struct wh_ckpt_slab){0};
    expect(wh_ckpt_save(in("import", ""), &v, 0, NULL), WH_OK, "");
    free_view(&v);
    free_world(&w);
    memset(values[1], 0, 4 * params.buffer_elems), memset(values[2], 0, 4 * params.buffer_elems);
    for (size_t i = 0; i < LAYOUTS; i++)
        for (uint32_t r = 0; r < ranks_of(&layouts[i]); r++) {
            bool right;
            expect(load_part(in("import", "checkpoints/step-00000000"), &layouts[i], r, &right), WH_OK, "");
            assert_true(right);
        }
}

/* Whether or not a part has the tensor that differs. */
static void parts_of_another_model_are_refused(void **state) {
    (void)state;
    save_alone("run", WH_F32, 20);
    unmake();
    make(WH_LLAMA, 13, 9, 7, 5);
    for (size_t i = 0; i < LAYOUTS; i++)
        for (uint32_t r = 0; r < ranks_of(&layouts[i]); r++) {
            bool right;
            expect(load_part(in("run", "checkpoints/step-00000020"), &layouts[i], r, &right), WH_CONFIG,
                   "embed.token.weight is F32 [13, 6]; the model's is F32 [13, 9]");
            assert_true(right);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(bytes_of_one_rank),
        T(bytes_of_one_rank_tied),
        T(tensors_of_several_pieces),
        T(loads_on_any_other_layout),
        T(parts_of_an_imported_model_have_zero_moments),
        T(parts_of_another_model_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
