/* Safetensors headers that lie (cases B49 to B52) and what the writer makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "ckpt/safetensors.h"
#include "test/support/folder.h"

/* A file image on the heap, exactly as long as the file, so that a sanitizer sees any read past it. */
static unsigned char *image(const char *header, size_t data_bytes, size_t *bytes) {
    size_t n = strlen(header);
    unsigned char *p = calloc(1, 8 + n + data_bytes);
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(n >> 8 * i);
    memcpy(p + 8, header, n);
    *bytes = 8 + n + data_bytes;
    return p;
}

static enum wh_status parse(const char *header, size_t data_bytes, struct wh_safetensors_header *h) {
    size_t bytes;
    unsigned char *p = image(header, data_bytes, &bytes);
    enum wh_status status = wh_safetensors_parse(p, bytes, "x", h);
    free(p);
    return status;
}

static void expect_refused(enum wh_status status, const char *text) {
    assert_int_equal(status, WH_DATA);
    if (!strstr(wh_error()->message, text)) fail_msg("\"%s\" has no \"%s\"", wh_error()->message, text);
}

static void refused(const char *header, size_t data_bytes, const char *text) {
    struct wh_safetensors_header h;
    expect_refused(parse(header, data_bytes, &h), text);
}

static void refused_bytes(const void *data, size_t bytes, const char *text) {
    struct wh_safetensors_header h;
    unsigned char *p = malloc(bytes + 1);
    memcpy(p, data, bytes);
    p = realloc(p, bytes ? bytes : 1);
    expect_refused(wh_safetensors_parse(p, bytes, "x", &h), text);
    free(p);
}

static void lengths_that_lie(void **state) {
    (void)state;
    char block[64] = {0x40, (char)0x9d, (char)0xdf, 0x07};
    refused_bytes(block, 32, "132095296 bytes, longer than the file (32 bytes)"); /* B49 a */
    memcpy(block, "PK\3\4\0\0\10\10", 8);
    refused_bytes(block, 32, "not a safetensors file but a zip archive"); /* b */
    refused_bytes(block, 5, "zip archive");
    refused_bytes("\x80\2}q\1ab", 7, "Python pickle");
    refused_bytes("\x80\2}q\1abcdefg", 12, "Python pickle");
    refused_bytes("abcde", 5, "5 bytes, and 8 are the least"); /* c */
    refused_bytes("", 0, "0 bytes");                           /* d */
    memset(block, 0, sizeof block);
    refused_bytes(block, 32, "byte 8 does not begin a JSON object"); /* e */
    refused_bytes(block, 8, "not a safetensors file");
    memset(block, 0xff, 8);
    refused_bytes(block, 64, "longer than the file");
    refused_bytes("version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS pointer");
}

static void a_length_that_looks_like_a_pickle_is_fine(void **state) {
    (void)state;
    struct wh_safetensors_header h;
    char header[0x280 + 1];
    memset(header, ' ', 0x280);
    header[0] = '{', header[1] = '}', header[0x280] = '\0'; /* length bytes 80 02 00 ... */
    assert_int_equal(parse(header, 0, &h), WH_OK);
    assert_int_equal(h.count, 0);
    wh_safetensors_header_free(&h);
}

static void duplicates(void **state) {
    (void)state;
    const char *b50 =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
    assert_int_equal(strlen(b50), 107);
    refused(b50, 8, "duplicate tensor name a");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "duplicate key dtype");
    refused(
        "{\"a long name, longer than what JSON libraries quote\":{}, \"a long name, longer than what JSON libraries "
        "quote\":{}}",
        0, "duplicate tensor name a long name, longer");
}

static void ranges(void **state) {
    (void)state;
    struct wh_safetensors_header h;
    const char *b51 =
        "{\"k\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    refused(b51, 8, "k and v overlap");
    assert_int_equal(parse("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                           8, &h),
                     WH_OK);
    assert_int_equal(h.count, 2);
    assert_string_equal(h.list[0].name, "a");
    assert_int_equal(wh_safetensors_find(&h, "b")->begin, 4);
    assert_null(wh_safetensors_find(&h, "c"));
    wh_safetensors_header_free(&h);
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
            "bytes 0 to 4 of the data, before tensor a");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "4 bytes after the last tensor");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "cut short");
    refused("{}", 1, "1 bytes after the last tensor");
}

static void shapes(void **state) {
    (void)state;
    struct wh_safetensors_header h;
    const char *b52 = "{\"t\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}";
    assert_int_equal(strlen(b52), 62);
    refused(b52, 4, "needs 4000000 bytes, its range has 4");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
            "exceeds 64 bits");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0, "shape[0]");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refused("{\"t\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype F31");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "9 dimensions");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "[begin, end]");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "[begin, end]");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "unknown field x");
    refused("{\"t\":7}", 0, "not described by an object");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "key a is not a string");
    refused("{\"__metadata__\":[]}", 0, "not an object");
    refused("{\"t\":", 0, "not JSON");
    assert_int_equal(parse("{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                           "\"e\":{\"dtype\":\"BOOL\",\"shape\":[3,0],\"data_offsets\":[0,0]}}  ",
                           8, &h),
                     WH_OK);
    assert_int_equal(h.list[0].dtype, WH_DTYPE_COUNT);
    assert_int_equal(h.list[1].dims, 0);
    wh_safetensors_header_free(&h);
}

/* Every prefix of a good file is refused. */
static void truncation(void **state) {
    (void)state;
    size_t bytes;
    struct wh_safetensors_header h;
    unsigned char *p = image("{\"a\":{\"dtype\":\"U16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 8, &bytes);
    assert_int_equal(wh_safetensors_parse(p, bytes, "x", &h), WH_OK);
    wh_safetensors_header_free(&h);
    for (size_t n = 0; n < bytes; n++) {
        unsigned char *cut = malloc(n ? n : 1);
        memcpy(cut, p, n);
        assert_int_equal(wh_safetensors_parse(cut, n, "x", &h), WH_DATA);
        free(cut);
    }
    free(p);
}

static void written_file_reads_back(void **state) {
    (void)state;
    char folder[TEST_FOLDER_BYTES], path[64];
    assert_true(test_folder_make(folder, "safetensors"));
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    enum { ROWS = 700, COLS = 613 }; /* 1.6 MB: more than one piece */
    float *big = malloc(sizeof(float) * ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) big[i] = (float)i;
    uint16_t half[3] = {1, 2, 3};
    struct wh_safetensors_tensor list[] = {{.name = "empty", .dtype = WH_F32, .dims = 2, .shape = {0, 5}},
                                           {.name = "big \"one\"", .dtype = WH_F32, .dims = 2, .shape = {ROWS, COLS}},
                                           {.name = "half", .dtype = WH_BF16, .dims = 1, .shape = {3}},
                                           {.name = "end", .dtype = WH_F32, .dims = 1, .shape = {0}}};
    const struct wh_safetensors_pair metadata[] = {{"format", "pt"}, {"who", "a \"b\""}};
    uint64_t hashes[4], file_xxh3;
    size_t file_bytes;
    struct wh_safetensors_writer w;
    assert_int_equal(wh_safetensors_create(path, list, 4, metadata, 2, hashes, &w), WH_OK);
    assert_int_equal(wh_safetensors_write(&w, big, 1000), WH_OK);
    assert_int_equal(wh_safetensors_write(&w, (char *)big + 1000, sizeof(float) * ROWS * COLS - 1000), WH_OK);
    assert_int_equal(wh_safetensors_write(&w, half, sizeof half), WH_OK);
    assert_int_equal(wh_safetensors_commit(&w, &file_bytes, &file_xxh3), WH_OK);

    struct wh_safetensors_file f;
    assert_int_equal(wh_safetensors_open(path, &f), WH_OK);
    assert_int_equal(f.header.data_begin % WH_SAFETENSORS_ALIGN, 0);
    assert_int_equal(f.map.bytes, file_bytes);
    assert_true(XXH3_64bits(f.map.data, f.map.bytes) == file_xxh3);
    assert_string_equal(wh_safetensors_metadata(&f.header, "who"), "a \"b\"");
    const struct wh_safetensors_tensor *t = wh_safetensors_find(&f.header, "big \"one\"");
    assert_memory_equal(f.data + t->begin, big, t->bytes);
    assert_true(hashes[1] == XXH3_64bits(big, t->bytes));
    assert_true(hashes[2] == XXH3_64bits(half, sizeof half));
    assert_true(hashes[0] == hashes[3] && hashes[0] == XXH3_64bits("", 0));
    assert_int_equal(wh_safetensors_find(&f.header, "half")->shape[0], 3);
    wh_safetensors_close(&f);
    free(big);
    assert_int_equal(wh_dir_remove(folder), WH_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_that_lie),
        cmocka_unit_test(a_length_that_looks_like_a_pickle_is_fine),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(ranges),
        cmocka_unit_test(shapes),
        cmocka_unit_test(truncation),
        cmocka_unit_test(written_file_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
