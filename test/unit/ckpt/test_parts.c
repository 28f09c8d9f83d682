/* Checkpoints of ranks that hold parts: the bytes of one rank, on any other number of ranks again, and every failure is
 * everybody's. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "os/file.h"
#include "test/support/ranks.h"

enum { RANKS_MAX = 5, CLASSES = 3 };

static struct wh_model model;
static struct wh_params params;
static float *values[CLASSES]; /* what one rank holds of weights, m and v */
static char folder[64];

/* Odd sizes, so that flat buffers have alignment gaps; V 9001: an embedding of more than one piece of 1 MiB. */
static void make(uint32_t V, uint32_t C) {
    wh_model_defaults(WH_LLAMA, &model);
    model.V = V, model.C = C, model.L = 2, model.H = 3, model.Hkv = 1, model.D = 2, model.F = 7;
    model.max_position = 16;
    assert_int_equal(wh_params_new(&model, &params), WH_OK);
    for (int c = 0; c < CLASSES; c++) {
        values[c] = malloc(4 * params.buffer_elems);
        for (size_t i = 0; i < params.buffer_elems; i++) values[c][i] = (float)(c * 100000000 + (int)i);
    }
}

static void unmake(void) {
    for (int c = 0; c < CLASSES; c++) free(values[c]);
    wh_params_free(&params);
}

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/wh-parts-XXXXXX");
    assert_non_null(mkdtemp(folder));
    make(13, 6);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unmake();
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static char *in(const char *run, const char *inside) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s/%s", folder, run, inside);
    return p;
}

static void expect(enum wh_status got, enum wh_status want, const char *text) {
    if (got != want) fail_msg("status %s: %s", wh_status_name(got), got ? wh_error()->message : "");
    if (want != WH_OK && !strstr(wh_error()->message, text))
        fail_msg("\"%s\" has no \"%s\"", wh_error()->message, text);
}

/* How a job saves. Hundredths of the line, so that one list serves all models; equal ones: an empty part. */
struct layout {
    uint32_t ranks;
    size_t percent[RANKS_MAX + 1];
    enum wh_dtype compute;
};

static const struct layout layouts[] = {
    {1, {0, 100}, WH_BF16},
    {1, {0, 100}, WH_F32},
    {2, {0, 50, 100}, WH_F32},
    {2, {0, 0, 100}, WH_BF16},
    {2, {0, 83, 100}, WH_BF16},
    {3, {0, 5, 6, 100}, WH_BF16},
    {3, {0, 33, 33, 100}, WH_F32},
    {3, {0, 0, 0, 100}, WH_F32},
    {5, {0, 3, 40, 40, 77, 100}, WH_F32},
    {5, {0, 100, 100, 100, 100, 100}, WH_BF16},
};

static void cut(const struct layout *l, size_t *border) {
    for (uint32_t r = 0; r <= l->ranks; r++) border[r] = params.buffer_elems * l->percent[r] / 100;
}

/* A copy of just what the rank holds, so that sanitizers see every step beyond it. */
static struct wh_ckpt_slab slab_of(int class, const size_t *border, uint32_t rank) {
    struct wh_ckpt_slab s = {NULL, border[rank], border[rank + 1] - border[rank]};
    s.data = malloc(4 * s.elems + 1);
    memcpy(s.data, values[class] + s.first, 4 * s.elems);
    return s;
}

struct saving {
    const struct layout *layout;
    const char *run;
    uint64_t step;
};

static struct wh_ckpt_view view_of(const struct saving *s, const size_t *border, uint32_t rank) {
    return (struct wh_ckpt_view){.model = &model,
                                 .params = &params,
                                 .grain = {1, 4, 1},
                                 .compute = s->layout->compute,
                                 .state = {s->step, 12 * s->step, 3000 * s->step, 12 * s->step, s->step, 7},
                                 .weights = slab_of(0, border, rank),
                                 .m = slab_of(1, border, rank),
                                 .v = slab_of(2, border, rank)};
}

static void free_view(struct wh_ckpt_view *v) { free(v->weights.data), free(v->m.data), free(v->v.data); }

static enum wh_status open_all(struct wh_comm_job *job, struct wh_comm **comm) {
    static const uint32_t members[] = {0, 1, 2, 3, 4};
    return wh_comm_open(job, 0, "dp", members, wh_comm_job_ranks(job), comm);
}

static enum wh_status save(struct wh_comm *comm, const struct saving *s) {
    size_t border[RANKS_MAX + 1];
    struct wh_ckpt_holding holding[RANKS_MAX];
    cut(s->layout, border);
    for (uint32_t r = 0; r < s->layout->ranks; r++)
        holding[r] = (struct wh_ckpt_holding){&params, {border[r], border[r + 1]}};
    struct wh_ckpt_view v = view_of(s, border, wh_comm_rank(comm));
    v.comm = comm, v.holding = holding;
    enum wh_status status = wh_ckpt_save(in(s->run, ""), &v, 0, NULL);
    free_view(&v);
    return status;
}

static enum wh_status rank_that_saves(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct saving *s = t->context;
    struct wh_comm *comm;
    WH_TRY(open_all(job, &comm));
    WH_TRY(save(comm, s));
    char *found;
    WH_TRY(wh_ckpt_find(in(s->run, ""), s->step, &found, NULL)); /* in place when the call returns, on every rank */
    free(found);
    uint64_t sent = 0, elems = 0;
    uint32_t rows;
    const struct wh_comm_row *row = wh_comm_rows(job, &rows);
    for (uint32_t i = 0; i < rows; i++)
        if (strcmp(row[i].name, "ckpt.send") == 0) sent = row[i].sent_bytes;
    size_t border[RANKS_MAX + 1];
    cut(s->layout, border);
    for (size_t i = 0; i < params.count && rank > 0; i++)
        for (size_t k = params.list[i].offset; k < params.list[i].offset + params.list[i].elems; k++)
            elems += k >= border[rank] && k < border[rank + 1];
    RANK_CHECK(sent == 4 * CLASSES * elems, "%llu bytes", (unsigned long long)sent);
    return WH_OK;
}

static struct test_ranks job_of(uint32_t ranks, const void *context,
                                enum wh_status (*body)(struct wh_comm_job *, uint32_t, const struct test_ranks *)) {
    return (struct test_ranks){
        .config = {.ranks = ranks, .deadline_ns = 20000000000u}, .body = body, .context = context, .limit_s = 40};
}

static void save_by_job(const struct layout *l, const char *run, uint64_t step) {
    const struct saving s = {l, run, step};
    struct test_ranks t = job_of(l->ranks, &s, rank_that_saves);
    if (test_ranks_run(&t)) {
        test_ranks_print(&t);
        fail_msg("%u ranks, layout %td", l->ranks, l - layouts);
    }
    test_ranks_free(&t);
}

/* Saved by one process without a job. */
static void save_alone(const char *run, enum wh_dtype compute, uint64_t step) {
    const struct layout l = {1, {0, 100}, compute};
    const struct saving s = {&l, run, step};
    size_t border[2];
    cut(&l, border);
    struct wh_ckpt_view v = view_of(&s, border, 0);
    expect(wh_ckpt_save(in(run, ""), &v, 0, NULL), WH_OK, "");
    free_view(&v);
}

static void expect_same(const char *a, const char *b) {
    char command[600];
    snprintf(command, sizeof command, "diff -r %s %s", in(a, "checkpoints"), in(b, "checkpoints"));
    if (system(command) != 0) fail_msg("%s and %s differ", a, b);
}

static void bytes_of_one_rank(void **state) {
    (void)state;
    save_alone("f32", WH_F32, 20);
    save_alone("bf16", WH_BF16, 20);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char run[16];
        snprintf(run, sizeof run, "parts-%zu", i);
        save_by_job(&layouts[i], run, 20);
        expect_same(layouts[i].compute == WH_F32 ? "f32" : "bf16", run);
    }
}

static void tensors_of_several_pieces(void **state) {
    (void)state;
    unmake();
    make(9001, 64);
    static const struct layout l = {3, {0, 1, 70, 100}, WH_F32};
    save_alone("one", WH_F32, 20);
    save_by_job(&l, "parts", 20);
    expect_same("one", "parts");
}

/* Loads part `rank` of a layout into exactly its room. */
static enum wh_status load_part(const char *path, const struct layout *l, uint32_t rank, bool *right) {
    size_t border[RANKS_MAX + 1];
    struct wh_ckpt_slab slabs[CLASSES];
    cut(l, border);
    for (int c = 0; c < CLASSES; c++) {
        slabs[c] = slab_of(c, border, rank);
        for (size_t i = 0; i < slabs[c].elems; i++) slabs[c].data[i] = -1.0f;
    }
    enum wh_status status = wh_ckpt_load(path, &params, slabs[0], slabs[1], slabs[2]);
    *right = true;
    for (int c = 0; c < CLASSES; c++) {
        float *expected = malloc(4 * slabs[c].elems + 1);
        for (size_t i = 0; i < slabs[c].elems; i++) expected[i] = -1.0f;
        for (size_t i = 0; i < params.count && status == WH_OK; i++) /* gaps are left alone, and all after a failure */
            for (size_t k = 0; k < params.list[i].elems; k++) {
                size_t at = params.list[i].offset + k;
                if (at >= slabs[c].first && at - slabs[c].first < slabs[c].elems)
                    expected[at - slabs[c].first] = values[c][at];
            }
        *right &= !slabs[c].elems || memcmp(expected, slabs[c].data, 4 * slabs[c].elems) == 0;
        free(expected);
        free(slabs[c].data);
    }
    return status;
}

static void loads_on_any_other_number(void **state) {
    (void)state;
    save_by_job(&layouts[5], "run", 20);
    char *path = in("run", "checkpoints/step-00000020");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (uint32_t r = 0; r < layouts[i].ranks; r++) {
            bool right;
            expect(load_part(path, &layouts[i], r, &right), WH_OK, "");
            assert_true(right);
        }
}

static void parts_of_an_imported_model_have_zero_moments(void **state) {
    (void)state;
    const struct saving s = {&layouts[1], "import", 0};
    struct wh_ckpt_view v = view_of(&s, (const size_t[]){0, params.buffer_elems}, 0);
    free(v.m.data), free(v.v.data);
    v.m = v.v = (struct wh_ckpt_slab){0};
    expect(wh_ckpt_save(in("import", ""), &v, 0, NULL), WH_OK, "");
    free_view(&v);
    memset(values[1], 0, 4 * params.buffer_elems), memset(values[2], 0, 4 * params.buffer_elems);
    for (uint32_t r = 0; r < 3; r++) {
        bool right;
        expect(load_part(in("import", "checkpoints/step-00000000"), &layouts[5], r, &right), WH_OK, "");
        assert_true(right);
    }
}

/* One flipped bit of each byte: a part that doesn't see it is right nevertheless, and one of the parts sees it if it is in
 * the numbers. Every third byte, from a place that moves from file to file. */
static void a_flipped_bit_is_never_taken(void **state) {
    (void)state;
    static const char *const names[] = {"weights.safetensors", "adam_m.safetensors", "adam_v.safetensors"};
    const struct layout *l = &layouts[5];
    save_alone("run", WH_F32, 20);
    char path[200];
    snprintf(path, sizeof path, "%s", in("run", "checkpoints/step-00000020"));
    for (int f = 0; f < 3; f++) {
        char name[300];
        snprintf(name, sizeof name, "%s/%s", path, names[f]);
        struct wh_safetensors_file file;
        expect(wh_safetensors_open(name, &file), WH_OK, "");
        const size_t data_begin = file.header.data_begin, bytes = file.map.bytes;
        int fd = open(name, O_RDWR);
        for (size_t k = (size_t)f; k < bytes; k += 3) {
            const char old = (char)file.map.data[k], flipped = (char)(old ^ (1 << k % 8));
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)k), 1);
            bool seen = false;
            for (uint32_t r = 0; r < l->ranks; r++) {
                bool right;
                enum wh_status status = load_part(path, l, r, &right);
                assert_true(right);
                if (status != WH_OK) expect(status, WH_DAMAGED, names[f]);
                seen |= status != WH_OK;
            }
            assert_true(seen || k < data_begin);
            assert_int_equal(pwrite(fd, &old, 1, (off_t)k), 1);
        }
        close(fd);
        wh_safetensors_close(&file);
    }
}

static void parts_of_another_model_are_refused(void **state) {
    (void)state;
    save_alone("run", WH_F32, 20);
    unmake();
    make(13, 9);
    for (uint32_t r = 0; r < 3; r++) {
        bool right;
        expect(load_part(in("run", "checkpoints/step-00000020"), &layouts[5], r, &right), WH_CONFIG,
               "embed.token.weight is F32 [13, 6]; the model's is F32 [13, 9]");
        assert_true(right);
    }
}

/* ---- failures ---- */

struct failing {
    struct saving saving;
    rlim_t limit_bytes; /* of the files that rank 0 writes */
};

/* Fails, then saves again with the limit lifted: the ranks are still in step. */
static enum wh_status rank_of_full_disk(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct failing *f = t->context;
    struct wh_comm *comm;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    WH_TRY(open_all(job, &comm));
    limit.rlim_cur = f->limit_bytes;
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &limit);
    enum wh_status status = save(comm, &f->saving);
    limit.rlim_cur = before;
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &limit);
    RANK_CHECK(status == (rank == 0 ? WH_IO : WH_PEER), "%s", wh_status_name(status));
    RANK_CHECK(strstr(wh_error()->message, ".part: File too large"), "%.900s", wh_error()->message);
    RANK_CHECK(rank == 0 || strstr(wh_error()->message, "rank 0, which saves, failed: "), "%.900s",
               wh_error()->message);
    RANK_CHECK(wh_error()->frames == 1 && strstr(wh_error()->frame[0], "bytes are needed"), "frames");
    char *found;
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    RANK_CHECK(!wh_dir_exists(in(f->saving.run, "checkpoints/step-00000020.part")), "leftovers");
    RANK_CHECK(wh_ckpt_find(in(f->saving.run, ""), 20, &found, NULL) == WH_DAMAGED, "half a checkpoint");
    WH_TRY(wh_ckpt_find(in(f->saving.run, ""), 10, &found, NULL));
    free(found);
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    return save(comm, &f->saving);
}

static void disk_full_is_told_to_all(void **state) {
    (void)state;
    unmake();
    make(5001, 32); /* 1.3 MB a class: the writer gathers 1 MiB before it asks the system */
    save_alone("one", WH_F32, 20);
    for (rlim_t limit = 100; limit < 1300000; limit += 310000)
        for (int i = 2; i < 9; i += 3) {
            const struct failing f = {{&layouts[i], "run", 20}, limit};
            struct test_ranks t = job_of(layouts[i].ranks, &f, rank_of_full_disk);
            save_alone("run", WH_F32, 10);
            if (test_ranks_run(&t)) {
                test_ranks_print(&t);
                fail_msg("limit %llu, layout %d", (unsigned long long)limit, i);
            }
            test_ranks_free(&t);
            char command[600];
            if (layouts[i].compute == WH_F32) {
                snprintf(command, sizeof command, "diff -r %s %s", in("one", "checkpoints/step-00000020"),
                         in("run", "checkpoints/step-00000020"));
                assert_int_equal(system(command), 0);
            }
            assert_int_equal(wh_dir_remove(in("run", "")), WH_OK);
        }
}

static enum wh_status rank_without_a_folder(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    struct wh_comm *comm;
    WH_TRY(open_all(job, &comm));
    enum wh_status status = save(comm, t->context);
    RANK_CHECK(status == (rank == 0 ? WH_IO : WH_PEER), "%s", wh_status_name(status));
    RANK_CHECK(strstr(wh_error()->message, "File exists"), "%.900s", wh_error()->message);
    return WH_OK;
}

/* Rank 0 fails before it has asked for anything. */
static void no_folder_is_told_to_all(void **state) {
    (void)state;
    const struct saving s = {&layouts[5], "file", 20};
    struct test_ranks t = job_of(3, &s, rank_without_a_folder);
    char file[200];
    snprintf(file, sizeof file, "%s/file", folder);
    assert_int_equal(wh_file_write_all(file, "x", 1), WH_OK);
    if (test_ranks_run(&t)) {
        test_ranks_print(&t);
        fail();
    }
    test_ranks_free(&t);
}

struct death {
    struct saving saving;
    uint32_t victim;
    int after_us; /* 0: before the save */
};

static enum wh_status rank_of_death(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct death *d = t->context;
    struct wh_comm *comm;
    WH_TRY(open_all(job, &comm));
    enum wh_status status = wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}); /* all have joined */
    if (rank == d->victim && d->after_us) {
        const struct itimerval alarm = {.it_value = {.tv_usec = d->after_us}};
        setitimer(ITIMER_REAL, &alarm, NULL); /* ends the process */
    } else if (rank == d->victim) {
        raise(SIGALRM);
    }
    if (status == WH_OK) status = save(comm, &d->saving);
    if (rank == d->victim) pause();
    if (status == WH_OK && d->after_us) return WH_OK; /* the alarm was late */
    RANK_CHECK(status == WH_PEER, "%s", wh_status_name(status));
    char name[16];
    snprintf(name, sizeof name, "rank %u", d->victim);
    RANK_CHECK(strstr(wh_error()->message, name), "%.900s", wh_error()->message);
    RANK_CHECK(rank || !wh_dir_exists(in(d->saving.run, "checkpoints/step-00000020.part")), "leftovers");
    return WH_OK;
}

static void a_dead_rank_ends_the_save(void **state) {
    (void)state;
    unmake();
    make(5001, 32);
    for (int i = 0; i < 12; i++) {
        const struct death d = {{&layouts[5], "run", 20}, (uint32_t)i % 3, i / 3 * 4000};
        struct test_ranks t = job_of(3, &d, rank_of_death);
        save_alone("run", WH_F32, 10);
        uint32_t bad = test_ranks_run(&t);
        for (uint32_t r = 0; r < 3; r++) bad += t.end[r].killed_at_limit || t.end[r].seconds > 10;
        if (bad != 1) {
            test_ranks_print(&t);
            fail_msg("victim %u after %d us", d.victim, d.after_us);
        }
        test_ranks_free(&t);
        char *found;
        expect(wh_ckpt_find(in("run", ""), 10, &found, NULL), WH_OK, "");
        free(found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(bytes_of_one_rank),
        T(tensors_of_several_pieces),
        T(loads_on_any_other_number),
        T(parts_of_an_imported_model_have_zero_moments),
        T(a_flipped_bit_is_never_taken),
        T(parts_of_another_model_are_refused),
        T(disk_full_is_told_to_all),
        T(no_folder_is_told_to_all),
        T(a_dead_rank_ends_the_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
