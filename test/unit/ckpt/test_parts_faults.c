/* Checkpoints of ranks that hold parts: no changed bit is taken, and every failure is everybody's. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "test/unit/ckpt/layouts.h"

static const struct layout shards = {.dp = 3, .own = {{0, 5}, {5, 6}, {6, 100}}};
static const struct layout slices = {.tp = 4};
static const struct layout stages = {.pp = 2, .layer_border = {0, 0, 1}};
static const struct layout mixed = {.pp = 2, .layer_border = {0, 0, 1}, .tp = 2};
static const struct layout late = {.dp = 2, .own = {{0, 0}, {0, 100}}};
static const struct layout gap = {.dp = 3, .own = {{0, 50}, {51, 90}, {90, 100}}};

/* One flipped bit of each byte: a part that doesn't see it is right nevertheless, and one of the parts sees it if it is in
 * the numbers. Every fifth byte, from a place that moves from file to file. */
static void flip_bits(const struct layout *l) {
    static const char *const names[] = {"weights.safetensors", "adam_m.safetensors", "adam_v.safetensors"};
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
        for (size_t k = (size_t)f; k < bytes; k += 5) {
            const char old = (char)file.map.data[k], flipped = (char)(old ^ (1 << k % 8));
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)k), 1);
            uint32_t seen = 0;
            for (uint32_t r = 0; r < ranks_of(l); r++) {
                bool right;
                enum wh_status status = load_part(path, l, r, &right);
                assert_true(right);
                if (status != WH_OK) expect(status, WH_DAMAGED, names[f]);
                seen += status != WH_OK;
            }
            assert_true(seen || (k < data_begin && ranks_of(l) > 1));
            assert_true(k < data_begin || l->pp < 2 || seen == 1); /* others needn't read it */
            assert_int_equal(pwrite(fd, &old, 1, (off_t)k), 1);
        }
        close(fd);
        wh_safetensors_close(&file);
    }
}

static void a_flipped_bit_is_never_taken(void **state) {
    (void)state;
    static const struct layout one = {0};
    unmake();
    make(WH_LLAMA, 13, 6, 7, 1);
    flip_bits(&one);
    flip_bits(&shards);
    flip_bits(&slices);
    flip_bits(&stages);
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
    make(WH_LLAMA, 5001, 32, 7, 1); /* 1.3 MB a class: the writer gathers 1 MiB before it asks the system */
    save_alone("one", WH_F32, 20);
    for (rlim_t limit = 100; limit < 1300000; limit += 310000)
        for (int i = 0; i < 3; i++) {
            static const struct layout *const list[] = {&shards, &mixed, &late};
            const struct failing f = {{list[i], "run", 20}, limit};
            struct test_ranks t = job_of(ranks_of(list[i]), &f, rank_of_full_disk);
            save_alone("run", WH_F32, 10);
            if (test_ranks_run(&t)) {
                test_ranks_print(&t);
                fail_msg("limit %llu, layout %d", (unsigned long long)limit, i);
            }
            test_ranks_free(&t);
            char command[600];
            snprintf(command, sizeof command, "diff -r %s %s", in("one", "checkpoints/step-00000020"),
                     in("run", "checkpoints/step-00000020"));
            assert_int_equal(system(command), 0);
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
    const struct saving s = {&shards, "file", 20};
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

static enum wh_status rank_with_a_gap(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t) {
    const struct saving *s = t->context, good = {&shards, s->run, s->step};
    struct wh_comm *comm;
    WH_TRY(open_all(job, &comm));
    enum wh_status status = save(comm, s);
    RANK_CHECK(status == (rank == 0 ? WH_INTERNAL : WH_PEER), "%s", wh_status_name(status));
    RANK_CHECK(strstr(wh_error()->message, "no rank keeps") && strstr(wh_error()->message, " of tensor layer.0."),
               "%.900s", wh_error()->message);
    RANK_CHECK(!wh_dir_exists(in(s->run, "checkpoints/step-00000020.part")), "leftovers");
    WH_TRY(wh_comm_run(comm, &(struct wh_comm_call){.op = WH_BARRIER}));
    return save(comm, &good);
}

/* A mistake of who describes the ranks: never a checkpoint with anything in its place. */
static void what_nobody_keeps_is_named(void **state) {
    (void)state;
    const struct saving s = {&gap, "run", 20};
    struct test_ranks t = job_of(3, &s, rank_with_a_gap);
    unmake();
    make(WH_LLAMA, 13, 6, 99, 1);
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
    make(WH_LLAMA, 5001, 32, 7, 1);
    for (int i = 0; i < 12; i++) {
        const struct death d = {{&shards, "run", 20}, (uint32_t)i % 3, i / 3 * 4000};
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
        T(a_flipped_bit_is_never_taken), T(disk_full_is_told_to_all),  T(no_folder_is_told_to_all),
        T(what_nobody_keeps_is_named),   T(a_dead_rank_ends_the_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
