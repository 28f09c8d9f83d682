/* Checkpoints: what goes in comes out, damage of every kind is found, and no moment is without a complete one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/checkpoint.h"
#include "ckpt/manifest.h"
#include "os/clock.h"
#include "os/file.h"
#include "test/support/folder.h"

static struct wh_model model;
static struct wh_params params;
static float *weights, *m1, *m2;
static char run[TEST_FOLDER_BYTES];

/* Odd sizes, so that flat buffers have alignment gaps (case B40). */
static void make_model(struct wh_model *m) {
    wh_model_defaults(WH_LLAMA, m);
    m->V = 13, m->C = 6, m->L = 2, m->H = 3, m->Hkv = 1, m->D = 2, m->F = 7, m->max_position = 16;
}

static void fill(float *p, float base) {
    for (size_t i = 0; i < params.buffer_elems; i++) p[i] = base + (float)i;
}

static int setup(void **state) {
    (void)state;
    assert_true(test_folder_make(run, "checkpoint"));
    make_model(&model);
    assert_int_equal(wh_params_new(&model, &params), WH_OK);
    assert_true(params.buffer_elems > params.elems);
    weights = malloc(4 * params.buffer_elems), m1 = malloc(4 * params.buffer_elems),
    m2 = malloc(4 * params.buffer_elems);
    fill(weights, 0), fill(m1, 1000), fill(m2, 2000);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(weights), free(m1), free(m2);
    wh_params_free(&params);
    return wh_dir_remove(run) == WH_OK ? 0 : -1;
}

static struct wh_ckpt_slab whole(float *data) { return wh_ckpt_whole(data, &params); }

static struct wh_ckpt_view view(uint64_t step) {
    return (struct wh_ckpt_view){.model = &model,
                                 .params = &params,
                                 .grain = {1, 4, 1, WH_BF16},
                                 .compute = WH_BF16,
                                 .state = {step, 12 * step, 3000 * step, 12 * step + 1, step - 1, UINT64_MAX - 5},
                                 .weights = whole(weights),
                                 .m = whole(m1),
                                 .v = whole(m2)};
}

static void save(uint64_t step, uint32_t keep_last) {
    struct wh_ckpt_view v = view(step);
    if (wh_ckpt_save(run, &v, keep_last, NULL) != WH_OK) fail_msg("%s", wh_error()->message);
}

static char *at(const char *inside) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/checkpoints/%s", run, inside);
    return p;
}

static bool there(const char *inside) { return wh_file_exists(at(inside)); }

static void expect(enum wh_status got, enum wh_status want, const char *text) {
    if (got != want) fail_msg("status %s: %s", wh_status_name(got), got ? wh_error()->message : "");
    if (want != WH_OK && !strstr(wh_error()->message, text))
        fail_msg("\"%s\" has no \"%s\"", wh_error()->message, text);
}

static void expect_latest(uint64_t step) {
    char *folder;
    struct wh_ckpt_info info;
    expect(wh_ckpt_find(run, WH_CKPT_LATEST, &folder, NULL), WH_OK, "");
    expect(wh_ckpt_read(folder, &info), WH_OK, "");
    assert_true(info.state.step == step);
    free(folder);
}

static enum wh_status load_step(uint64_t step) {
    char *folder;
    float *w = malloc(4 * params.buffer_elems), *m = malloc(4 * params.buffer_elems),
          *v = malloc(4 * params.buffer_elems);
    struct wh_ckpt_info info;
    enum wh_status status = wh_ckpt_find(run, step, &folder, NULL);
    if (status == WH_OK) {
        status = wh_ckpt_read(folder, &info);
        if (status == WH_OK) status = wh_ckpt_load(folder, &params, whole(w), whole(m), whole(v));
        free(folder);
    }
    free(w), free(m), free(v);
    return status;
}

static void round_trip(void **state) {
    (void)state;
    save(40, 0);
    char *folder;
    struct wh_ckpt_info info;
    expect(wh_ckpt_find(run, 40, &folder, NULL), WH_OK, "");
    expect(wh_ckpt_read(folder, &info), WH_OK, "");
    assert_memory_equal(&info.model, &model, sizeof model);
    assert_true(info.grain.tensor == 1 && info.grain.data == 4 && info.grain.sequence == 1 &&
                info.grain.wire == WH_BF16 && info.compute == WH_BF16);
    struct wh_ckpt_view v = view(40);
    assert_memory_equal(&info.state, &v.state, sizeof v.state);
    assert_true(info.moments);

    float *out[3];
    for (int i = 0; i < 3; i++) {
        out[i] = malloc(4 * params.buffer_elems);
        for (size_t k = 0; k < params.buffer_elems; k++) out[i][k] = -1.0f;
    }
    expect(wh_ckpt_load(folder, &params, whole(out[0]), whole(out[1]), whole(out[2])), WH_OK, "");
    const float *in[3] = {weights, m1, m2};
    for (int i = 0; i < 3; i++) {
        size_t touched = 0;
        for (size_t k = 0; k < params.buffer_elems; k++) touched += out[i][k] != -1.0f;
        assert_int_equal(touched, params.elems); /* gaps are left alone */
        for (size_t k = 0; k < params.count; k++)
            assert_memory_equal(out[i] + params.list[k].offset, in[i] + params.list[k].offset,
                                4 * params.list[k].elems);
    }
    /* at least 12 bytes of state per parameter (B31) */
    struct wh_ckpt_manifest manifest;
    uint64_t total = 0;
    expect(wh_ckpt_manifest_read(folder, &manifest), WH_OK, "");
    for (uint32_t i = 0; i < manifest.file_count; i++) total += manifest.files[i].bytes;
    assert_true(total >= 12 * params.elems);
    assert_true(total <= wh_ckpt_bytes(&params, true));
    assert_int_equal(manifest.tensor_count, 3 * params.count);
    wh_ckpt_manifest_free(&manifest);
    for (int i = 0; i < 3; i++) free(out[i]);
    free(folder);
}

static void same_bytes_whenever_and_wherever(void **state) {
    (void)state;
    char command[300];
    save(3, 0);
    struct wh_ckpt_view v = view(3);
    char other[160];
    snprintf(other, sizeof other, "%s/elsewhere/x/", run);
    expect(wh_ckpt_write(other, &v), WH_OK, "");
    snprintf(command, sizeof command, "diff -r %s %s", at("step-00000003"), other);
    assert_int_equal(system(command), 0);
    expect(wh_ckpt_write(other, &v), WH_CONFIG, "not empty");
}

static void another_model_is_refused_with_all_differences(void **state) {
    (void)state;
    const struct wh_ckpt_slab none = {0};
    save(1, 0);
    struct wh_model other = model;
    struct wh_params p;
    other.F = 8, other.L = 1, other.qkv_bias = true;
    assert_int_equal(wh_params_new(&other, &p), WH_OK);
    float *w = calloc(p.buffer_elems, 4);
    expect(wh_ckpt_load(at("step-00000001"), &p, wh_ckpt_whole(w, &p), none, none), WH_CONFIG,
           "layer.0.mlp.up.weight is F32 [7, 6]");
    expect(WH_CONFIG, WH_CONFIG, "no tensor layer.0.attn.q.bias");
    expect(WH_CONFIG, WH_CONFIG, "layer.1.attn.q.weight, which the model has not");
    for (size_t i = 0; i < p.buffer_elems; i++) assert_true(w[i] == 0.0f);
    free(w);
    wh_params_free(&p);
}

static void moments_may_be_absent_at_step_zero(void **state) {
    (void)state;
    struct wh_ckpt_view v = view(0);
    v.m = v.v = (struct wh_ckpt_slab){0};
    v.state.optimizer_step = 0;
    expect(wh_ckpt_save(run, &v, 0, NULL), WH_OK, "");
    assert_false(there("step-00000000/adam_m.safetensors"));
    expect(wh_ckpt_load(at("step-00000000"), &params, whole(weights), whole(m1), whole(m2)), WH_OK, "");
    for (size_t k = 0; k < params.list[0].elems; k++) assert_true(m1[k] == 0.0f && m2[k] == 0.0f);
    v = view(5);
    v.m = v.v = (struct wh_ckpt_slab){0};
    expect(wh_ckpt_save(run, &v, 0, NULL), WH_OK, "");
    expect(load_step(5), WH_DAMAGED, "has no adam_m.safetensors");
}

/* Case B45 */
static void missing_step_lists_what_exists(void **state) {
    (void)state;
    char *folder, typo[80];
    save(10, 0), save(20, 0);
    expect(wh_ckpt_find(run, 15, &folder, NULL), WH_DAMAGED, "no checkpoint of step 15");
    expect(WH_DAMAGED, WH_DAMAGED, "there are steps 10, 20");
    snprintf(typo, sizeof typo, "%s/checkpointz", run);
    expect(wh_ckpt_find(typo, WH_CKPT_LATEST, &folder, NULL), WH_DAMAGED, "is not a folder");
    assert_int_equal(wh_dir_create(typo), WH_OK);
    expect(wh_ckpt_find(typo, WH_CKPT_LATEST, &folder, NULL), WH_DAMAGED, "there is none");
    assert_false(wh_ckpt_any(typo));
    assert_true(wh_ckpt_any(run));
    /* a checkpoint itself is found too */
    expect(wh_ckpt_find(at("step-00000010"), WH_CKPT_LATEST, &folder, NULL), WH_OK, "");
    free(folder);
    expect(wh_ckpt_find(at("step-00000010"), 20, &folder, NULL), WH_DAMAGED, "is the checkpoint of step 10, not 20");
}

/* Case B42: all files of the newest are empty after a power cut; leftovers of a kill do not pile up. */
static void newest_complete_one_is_taken(void **state) {
    (void)state;
    save(10, 0), save(20, 0), save(30, 0);
    char **names;
    size_t count;
    assert_int_equal(wh_dir_list(at("step-00000030"), &names, &count), WH_OK);
    assert_int_equal(count, 6);
    for (size_t i = 0; i < count; i++) {
        char inside[100];
        snprintf(inside, sizeof inside, "step-00000030/%s", names[i]);
        assert_int_equal(truncate(at(inside), 0), 0);
    }
    wh_dir_list_free(names, count);
    assert_int_equal(unlink(at("step-00000020/adam_v.safetensors")), 0);
    char *folder;
    struct wh_text remarks = {0};
    expect(wh_ckpt_find(run, WH_CKPT_LATEST, &folder, &remarks), WH_OK, "");
    assert_string_equal(strrchr(folder, '/'), "/step-00000010");
    assert_non_null(strstr(remarks.data, "step-00000030: "));
    assert_non_null(strstr(remarks.data, "(0 bytes) is damaged"));
    assert_non_null(strstr(remarks.data, "adam_v.safetensors is missing"));
    free(folder);
    expect(wh_ckpt_find(run, 30, &folder, NULL), WH_DAMAGED, "manifest.json");

    assert_int_equal(wh_dir_create(at("step-00000012.part")), WH_OK);
    assert_int_equal(wh_file_write_all(at("step-00000012.part/weights.safetensors.part"), "x", 1), WH_OK);
    wh_text_clear(&remarks);
    struct wh_ckpt_view v = view(12);
    expect(wh_ckpt_save(run, &v, 0, &remarks), WH_OK, "");
    assert_non_null(strstr(remarks.data, "step-00000012.part: left by a save"));
    assert_false(there("step-00000012.part") || there("step-00000030") || there("step-00000020"));
    wh_text_fini(&remarks);
}

static void all_damaged_says_why(void **state) {
    (void)state;
    char *folder;
    save(10, 0);
    assert_int_equal(unlink(at("step-00000010/manifest.json")), 0);
    expect(wh_ckpt_find(run, WH_CKPT_LATEST, &folder, NULL), WH_DAMAGED,
           "manifest.json is missing: the checkpoint was never");
    assert_true(wh_ckpt_any(run));
    expect(wh_ckpt_find(at("step-00000010"), WH_CKPT_LATEST, &folder, NULL), WH_DAMAGED, "never completed");
}

/* Case B43: one byte off the end and one flipped bit, of each file, everywhere. */
static void every_cut_and_every_flipped_byte_is_found(void **state) {
    (void)state;
    save(2, 0);
    char **names;
    size_t count;
    assert_int_equal(wh_dir_list(at("step-00000002"), &names, &count), WH_OK);
    for (size_t i = 0; i < count; i++) {
        char inside[100], *path, *bytes;
        size_t n;
        snprintf(inside, sizeof inside, "step-00000002/%s", names[i]);
        path = at(inside);
        assert_int_equal(wh_file_read(path, 1 << 24, &bytes, &n), WH_OK);
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        for (size_t k = 0; k<n; k += n> 4000 ? 7 : 1) {
            char flipped = (char)(bytes[k] ^ (1 << k % 8));
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)k), 1);
            expect(load_step(2), WH_DAMAGED, names[i]);
            assert_int_equal(pwrite(fd, &bytes[k], 1, (off_t)k), 1);
        }
        assert_int_equal(ftruncate(fd, (off_t)n - 1), 0);
        expect(load_step(2), WH_DAMAGED, names[i]);
        assert_int_equal(pwrite(fd, bytes, n, 0), n);
        assert_int_equal(pwrite(fd, "\0", 1, (off_t)n), 1); /* a byte too many */
        expect(load_step(2), WH_DAMAGED, names[i]);
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        expect(load_step(2), WH_OK, "");
        close(fd);
        free(bytes);
    }
    wh_dir_list_free(names, count);
}

static void the_damaged_tensor_is_named(void **state) {
    (void)state;
    save(2, 0);
    int fd = open(at("step-00000002/adam_m.safetensors"), O_RDWR);
    assert_int_equal(pwrite(fd, "\x55", 1, lseek(fd, 0, SEEK_END) - 4 * 13 * 6 - 4), 1); /* just before head.weight */
    close(fd);
    expect(load_step(2), WH_DAMAGED, "adam_m.safetensors is damaged: the hash of tensor final.norm.gain");
}

static void the_newest_sound_one_is_named(void **state) {
    (void)state;
    save(1, 0), save(2, 0), save(3, 0), save(4, 0);
    char newest[200], *older = at("step-00000003/adam_v.safetensors");
    snprintf(newest, sizeof newest, "%s", at("step-00000004"));
    int fd = open(older, O_RDWR);
    assert_int_equal(pwrite(fd, "\x55", 1, lseek(fd, 0, SEEK_END) - 1), 1);
    close(fd);
    assert_int_equal(WH_FAIL(WH_DAMAGED, "what is wrong with it"), WH_DAMAGED);
    wh_ckpt_advise(newest);
    expect(wh_error()->code, WH_DAMAGED, "what is wrong with it\n");
    expect(WH_DAMAGED, WH_DAMAGED, "checkpoints/step-00000002 is whole: move ");
    expect(WH_DAMAGED, WH_DAMAGED, "checkpoints/step-00000004 away");
    assert_int_equal(WH_FAIL(WH_DAMAGED, "what is wrong with it"), WH_DAMAGED);
    wh_ckpt_advise(at("step-00000001"));
    expect(WH_DAMAGED, WH_DAMAGED, "no older checkpoint in ");
    assert_int_equal(WH_FAIL(WH_DAMAGED, "what is wrong with it"), WH_DAMAGED);
    wh_ckpt_advise("/a/checkpoint/elsewhere");
    assert_string_equal(wh_error()->message, "what is wrong with it");
}

/* Case B44 */
static void mixed_parts_are_found(void **state) {
    (void)state;
    char command[400];
    save(10, 0), save(20, 0);
    static const char *const parts[] = {"adam_m.safetensors", "weights.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "cp %s/%s %s/%s", at("step-00000010"), parts[i], at("step-00000020"),
                 parts[i]);
        assert_int_equal(system(command), 0);
        expect(load_step(20), WH_DAMAGED, "is of step 10 (save ");
        expect(WH_DAMAGED, WH_DAMAGED, "parts of two checkpoints");
        save(20, 0); /* replaces it */
        expect(load_step(20), WH_OK, "");
    }
    snprintf(command, sizeof command, "cp -r %s %s", at("step-00000010"), at("step-00000030"));
    assert_int_equal(system(command), 0);
    expect(load_step(30), WH_DAMAGED, "step-00000030 holds a checkpoint of step 10");
    expect_latest(20);
}

static size_t complete_ones(void) {
    size_t n = 0;
    for (uint64_t step = 0; step <= 50; step++) {
        char *folder;
        if (wh_ckpt_find(run, step, &folder, NULL) == WH_OK) free(folder), n++;
    }
    return n;
}

/* Case B47 */
static void keep_last(void **state) {
    (void)state;
    for (uint64_t step = 5; step <= 20; step += 5) {
        save(step, 1);
        assert_int_equal(complete_ones(), 1);
        expect_latest(step);
    }
    save(25, 3), save(30, 3), save(35, 3);
    assert_int_equal(complete_ones(), 3);
    assert_false(there("step-00000020"));
    /* a damaged one doesn't count, and goes when it is old enough */
    assert_int_equal(truncate(at("step-00000035/weights.safetensors"), 3), 0);
    save(40, 2);
    assert_true(there("step-00000030") && there("step-00000035") && !there("step-00000025"));
    save(45, 2);
    assert_false(there("step-00000035") || there("step-00000030"));
    assert_int_equal(complete_ones(), 2);
}

/* A watcher that looks all the time never finds fewer than one complete checkpoint. */
static void never_without_a_complete_one(void **state) {
    (void)state;
    save(1, 1);
    pid_t child = fork();
    if (child == 0) {
        for (uint64_t step = 2; step < 32; step++) {
            struct wh_ckpt_view v = view(step % 10 == 0 ? step - 1 : step); /* sometimes the same step again */
            if (wh_ckpt_save(run, &v, 1, NULL) != WH_OK) _exit(1);
        }
        _exit(0);
    }
    int result = 0, looks = 0, misses = 0;
    while (waitpid(child, &result, WNOHANG) == 0) {
        /* a folder may be removed between listing and reading; two looks in a row can't both miss */
        char *folder;
        bool found = false;
        for (int tries = 0; tries < 5 && !found; tries++)
            if ((found = wh_ckpt_find(run, WH_CKPT_LATEST, &folder, NULL) == WH_OK)) free(folder);
        misses += !found, looks++;
    }
    assert_int_equal(result, 0);
    assert_true(looks > 10);
    assert_int_equal(misses, 0);
}

/* Kill -9 at any moment of a save: the next run finds a complete checkpoint. */
static void killed_while_saving(void **state) {
    (void)state;
    uint64_t least = 1, begin = wh_clock_ns();
    save(1, 2);
    uint64_t save_us = (wh_clock_ns() - begin) / 1000;
    for (uint64_t round = 0; round < 40; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (uint64_t step = least + 1;; step++) {
                struct wh_ckpt_view v = view(step);
                if (wh_ckpt_save(run, &v, 2, NULL) != WH_OK) _exit(1);
            }
        }
        usleep((useconds_t)(3 * save_us * (round + 1) / 40)); /* from early in the first save to after the third */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        char *folder;
        struct wh_ckpt_info info;
        expect(wh_ckpt_find(run, WH_CKPT_LATEST, &folder, NULL), WH_OK, "");
        expect(wh_ckpt_read(folder, &info), WH_OK, "");
        expect(wh_ckpt_load(folder, &params, whole(weights), whole(m1), whole(m2)), WH_OK, "");
        assert_true(info.state.step >= least);
        least = info.state.step;
        free(folder);
    }
    assert_true(least > 1);
    save(least + 1, 2);
    char **names;
    size_t count;
    assert_int_equal(wh_dir_list(at(""), &names, &count), WH_OK);
    assert_true(count <= 3 + 1); /* two checkpoints, latest, at most latest.part */
    wh_dir_list_free(names, count);
}

/* Case B46: a file size limit stands for a full disk. */
static void disk_full_leaves_the_old_one(void **state) {
    (void)state;
    save(15, 1);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {2000, 2000};
        setrlimit(RLIMIT_FSIZE, &limit);
        struct wh_ckpt_view v = view(20);
        if (wh_ckpt_save(run, &v, 1, NULL) != WH_IO) _exit(1);
        if (!strstr(wh_error()->message, "step-00000020.part/weights.safetensors.part: File too large")) _exit(2);
        if (wh_error()->frames != 1 || !strstr(wh_error()->frame[0], "bytes are needed")) _exit(3);
        _exit(wh_dir_exists(at("step-00000020.part")) ? 4 : 0);
    }
    int result;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
    expect_latest(15);
    expect(load_step(15), WH_OK, "");
    expect(wh_ckpt_check_space(run, UINT64_MAX), WH_IO, "18446744073709551615 bytes are needed and ");
}

/* Resumed from 10 though 20 exists: what is saved next is the latest, 20 is kept under another name. */
static void a_branch_becomes_the_latest(void **state) {
    (void)state;
    save(10, 0), save(20, 0);
    struct wh_text remarks = {0};
    struct wh_ckpt_view v = view(15);
    expect(wh_ckpt_save(run, &v, 1, &remarks), WH_OK, "");
    assert_non_null(strstr(remarks.data, "step-00000020.ahead"));
    assert_true(there("step-00000020.ahead") && !there("step-00000020"));
    expect_latest(15);
    wh_text_fini(&remarks);
}

static void an_edited_pointer_is_remarked(void **state) {
    (void)state;
    save(10, 0), save(20, 0);
    char *text, *folder;
    size_t bytes;
    struct wh_text remarks = {0};
    assert_int_equal(wh_file_read(at("latest"), 100, &text, &bytes), WH_OK);
    assert_string_equal(text, "step-00000020\n");
    free(text);
    assert_int_equal(wh_file_write_all(at("latest"), "step-00000010\n", 14), WH_OK);
    expect(wh_ckpt_find(run, WH_CKPT_LATEST, &folder, &remarks), WH_OK, "");
    assert_non_null(
        strstr(remarks.data, "latest names \"step-00000010\"; the newest complete checkpoint is step-00000020"));
    wh_text_fini(&remarks);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(round_trip),
        T(same_bytes_whenever_and_wherever),
        T(another_model_is_refused_with_all_differences),
        T(moments_may_be_absent_at_step_zero),
        T(missing_step_lists_what_exists),
        T(newest_complete_one_is_taken),
        T(all_damaged_says_why),
        T(every_cut_and_every_flipped_byte_is_found),
        T(the_damaged_tensor_is_named),
        T(the_newest_sound_one_is_named),
        T(mixed_parts_are_found),
        T(keep_last),
        T(never_without_a_complete_one),
        T(killed_while_saving),
        T(disk_full_leaves_the_old_one),
        T(a_branch_becomes_the_latest),
        T(an_edited_pointer_is_remarked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
