/* Files and folders that appear whole or not at all, and what is said when they can't. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/file.h"
#include "test/support/folder.h"

static char folder[TEST_FOLDER_BYTES];

static int setup(void **state) {
    (void)state;
    return test_folder_make(folder, "file") ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK && !wh_dir_exists(folder) ? 0 : -1;
}

static char *at(const char *inside) {
    static char path[4][200];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, inside);
    return p;
}

static void put(const char *name, const char *text) {
    assert_int_equal(wh_file_write_all(at(name), text, strlen(text)), WH_OK);
}

static void expect_text(const char *name, const char *text) {
    char *data;
    size_t bytes;
    assert_int_equal(wh_file_read(at(name), 1 << 20, &data, &bytes), WH_OK);
    assert_string_equal(data, text);
    assert_int_equal(bytes, strlen(text));
    free(data);
}

static void expect_failure(enum wh_status status, enum wh_status want, const char *text) {
    assert_int_equal(status, want);
    if (!strstr(wh_error()->message, text)) fail_msg("\"%s\" has no \"%s\"", wh_error()->message, text);
}

static void reading(void **state) {
    (void)state;
    struct wh_file_map map;
    char *data;
    size_t bytes;
    uint64_t size;
    put("x", "hello");
    expect_text("x", "hello");
    assert_int_equal(wh_file_map(at("x"), &map), WH_OK);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "hello", 5);
    assert_int_equal(unlink(at("x")), 0); /* the mapping outlives the name */
    assert_memory_equal(map.data, "hello", 5);
    wh_file_unmap(&map);
    put("empty", "");
    assert_int_equal(wh_file_map(at("empty"), &map), WH_OK);
    assert_true(map.data == NULL && map.bytes == 0);
    wh_file_unmap(&map);
    put("y", "12345");
    assert_int_equal(wh_file_size(at("y"), &size), WH_OK);
    assert_int_equal(size, 5);
    expect_failure(wh_file_read(at("y"), 4, &data, &bytes), WH_DATA, "has 5 bytes; at most 4");
    expect_failure(wh_file_map(at("none"), &map), WH_IO, "No such file");
    expect_failure(wh_file_map(folder, &map), WH_IO, "not a regular file");
    expect_failure(wh_file_size(at("none"), &size), WH_IO, "none: No such file");
}

/* Pieces around the size of the buffer, in an order that mixes both ways of writing. */
static void writing_in_pieces(void **state) {
    (void)state;
    static const size_t pieces[] = {0, 1, (1 << 20) - 1, 1, 1 << 20, 3, (1 << 20) + 5, 7, 2 << 20, (1 << 20) - 7, 8};
    size_t total = 0, done = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) total += pieces[i];
    unsigned char *data = malloc(total);
    for (size_t i = 0; i < total; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    struct wh_file_writer w;
    assert_int_equal(wh_file_create(at("big"), &w), WH_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        assert_int_equal(wh_file_write(&w, data + done, pieces[i]), WH_OK);
        done += pieces[i];
    }
    assert_int_equal(w.written_bytes, total);
    assert_false(wh_file_exists(at("big"))); /* not before it is complete */
    assert_int_equal(wh_file_commit(&w), WH_OK);
    struct wh_file_map map;
    assert_int_equal(wh_file_map(at("big"), &map), WH_OK);
    assert_int_equal(map.bytes, total);
    assert_memory_equal(map.data, data, total);
    wh_file_unmap(&map);
    free(data);
}

static void old_content_survives_what_is_abandoned(void **state) {
    (void)state;
    struct wh_file_writer w;
    put("x", "old");
    assert_int_equal(wh_file_create(at("x"), &w), WH_OK);
    assert_int_equal(wh_file_write(&w, "new", 3), WH_OK);
    expect_text("x", "old");
    wh_file_abandon(&w);
    expect_text("x", "old");
    assert_false(wh_file_exists(at("x.part")));
    put("x", "newer");
    expect_text("x", "newer");
    expect_failure(wh_file_create(at("no/x"), &w), WH_IO, "cannot create");
}

/* A size limit is an error like a full disk, not the end of the process (case B46). */
static void no_room(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {1000, 1000};
        char data[2000] = {0};
        setrlimit(RLIMIT_FSIZE, &limit);
        if (wh_file_write_all(at("x"), data, sizeof data) != WH_IO) _exit(1);
        if (!strstr(wh_error()->message, "x.part: File too large")) _exit(2);
        _exit(wh_file_exists(at("x")) || wh_file_exists(at("x.part")) ? 3 : 0);
    }
    int result;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
    uint64_t available = 0;
    assert_int_equal(wh_dir_free_bytes(folder, &available), WH_OK);
    assert_true(available > 0);
}

static void folders(void **state) {
    (void)state;
    char **names;
    size_t count;
    assert_int_equal(wh_dir_create(at("a/b/c")), WH_OK);
    assert_int_equal(wh_dir_create(at("a/b/c")), WH_OK);
    put("a/2", ""), put("a/10", ""), put("a/1", "");
    assert_int_equal(wh_dir_list(at("a"), &names, &count), WH_OK);
    assert_int_equal(count, 4);
    assert_string_equal(names[0], "1");
    assert_string_equal(names[1], "10");
    assert_string_equal(names[3], "b");
    wh_dir_list_free(names, count);
    expect_failure(wh_dir_create(at("a/1/x")), WH_IO, "cannot create folder");
    expect_failure(wh_dir_list(at("none"), &names, &count), WH_IO, "none");
    assert_int_equal(symlink(folder, at("a/link")), 0);
    assert_int_equal(wh_dir_remove(at("a")), WH_OK); /* doesn't follow the link */
    assert_true(wh_dir_exists(folder));
}

static void a_folder_appears_whole(void **state) {
    (void)state;
    char *part;
    assert_int_equal(wh_dir_begin(at("deep/out/"), &part), WH_OK);
    assert_string_equal(part, at("deep/out.part"));
    assert_false(wh_dir_exists(at("deep/out")));
    put("deep/out.part/x", "1");
    assert_int_equal(wh_dir_commit(part, at("deep/out/")), WH_OK);
    expect_text("deep/out/x", "1");
    assert_false(wh_dir_exists(at("deep/out.part")));
    expect_failure(wh_dir_begin(at("deep/out"), &part), WH_CONFIG, "not empty");
    put("file", "");
    expect_failure(wh_dir_begin(at("file"), &part), WH_IO, "file");
    /* leftovers of an earlier try are gone, an empty folder may be there, and giving up leaves nothing but the reason
     */
    assert_int_equal(wh_dir_create(at("again.part")), WH_OK);
    put("again.part/old", "");
    assert_int_equal(wh_dir_create(at("again")), WH_OK);
    assert_int_equal(wh_dir_begin(at("again"), &part), WH_OK);
    assert_false(wh_file_exists(at("again.part/old")));
    WH_FAIL(WH_DATA, "the reason");
    wh_dir_abandon(part);
    assert_string_equal(wh_error()->message, "the reason");
    assert_false(wh_dir_exists(at("again.part")));
}

static void a_folder_is_replaced(void **state) {
    (void)state;
    assert_int_equal(wh_dir_create(at("old/sub")), WH_OK);
    assert_int_equal(wh_dir_create(at("new")), WH_OK);
    put("old/x", "old"), put("new/x", "new");
    assert_int_equal(wh_dir_replace(at("new"), at("old")), WH_OK);
    expect_text("old/x", "new");
    assert_false(wh_dir_exists(at("new")) || wh_dir_exists(at("old/sub")) || wh_dir_exists(at("old.replaced")));
    expect_failure(wh_dir_replace(at("none"), at("old")), WH_IO, "cannot exchange");
    expect_text("old/x", "new");
}

static void paths(void **state) {
    (void)state;
    static const char *const parents[][2] = {{"a/b", "a"}, {"a/b/", "a"}, {"a//b", "a"}, {"a", "."},     {"a/", "."},
                                             {"/a", "/"},  {"/", "/"},    {"//a", "/"},  {"/a/b", "/a"}, {".", "."}};
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        char *p = wh_path_parent(parents[i][0]);
        assert_string_equal(p, parents[i][1]);
        free(p);
    }
    char *p = wh_path_join("a/", "b"), *q = wh_path_join("a", "b"), *r = wh_path_join("", "b");
    assert_string_equal(p, "a/b");
    assert_string_equal(q, "a/b");
    assert_string_equal(r, "/b");
    free(p), free(q), free(r);
}

static void appending(void **state) {
    (void)state;
    assert_int_equal(wh_file_append(at("log"), "a\n", 2), WH_OK);
    assert_int_equal(wh_file_append(at("log"), "b\n", 2), WH_OK);
    expect_text("log", "a\nb\n");
}

/* The second process is refused and told who has it; the lock ends with its holder. */
static void one_process_per_folder(void **state) {
    (void)state;
    int fd, to_parent[2];
    char pid[64], byte;
    assert_int_equal(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) {
        close(to_parent[0]);
        if (wh_lock_take(folder, &fd) != WH_OK || write(to_parent[1], "x", 1) != 1) _exit(1);
        pause();
    }
    close(to_parent[1]);
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    snprintf(pid, sizeof pid, "in use by process %d;", (int)child);
    expect_failure(wh_lock_take(folder, &fd), WH_CONFIG, pid);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(wh_lock_take(folder, &fd), WH_OK);
    wh_lock_release(fd);
    assert_int_equal(wh_lock_take(folder, &fd), WH_OK);
    wh_lock_release(fd);
    close(to_parent[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(reading),
        T(writing_in_pieces),
        T(old_content_survives_what_is_abandoned),
        T(no_room),
        T(folders),
        T(a_folder_appears_whole),
        T(a_folder_is_replaced),
        T(paths),
        T(appending),
        T(one_process_per_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
