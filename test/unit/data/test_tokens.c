/* Token files: what is read, what is refused and with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "data/sampler.h"
#include "data/token_format.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "os/file.h"
#include "test/support/folder.h"

static char folder[TEST_FOLDER_BYTES];

static const char *in_folder(const char *name) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int make_folder(void **state) {
    (void)state;
    return test_folder_make(folder, "tokens") ? 0 : -1;
}

static int drop_folder(void **state) {
    (void)state;
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static enum wh_status open_one(const char *path, enum wh_tokens_kind kind, uint32_t vocab, struct wh_tokens **out) {
    return wh_tokens_open(&path, 1, kind, vocab, out);
}

static void assert_says(const char *text) {
    if (!strstr(wh_error()->message, text)) fail_msg("'%s' is not in '%s'", text, wh_error()->message);
}

static void test_llmc_round_trip(void **state) {
    (void)state;
    enum { N = 1000 };
    uint32_t ids[N], back[N];
    struct wh_tokens *t;
    for (uint32_t i = 0; i < N; i++) ids[i] = i * 65535u / (N - 1);
    for (int wide = 0; wide < 2; wide++) {
        const char *path = in_folder("a.bin");
        assert_int_equal(wh_tokens_write_llmc(path, ids, N, wide ? 128256 : 65536), WH_OK);
        assert_int_equal(open_one(path, WH_TOKENS_AUTO, wide ? 128256 : 65536, &t), WH_OK);
        assert_int_equal(wh_tokens_count(t), N);
        assert_int_equal(wh_tokens_read(t, 0, N, back), WH_OK);
        assert_memory_equal(ids, back, sizeof ids);
        assert_int_equal(wh_tokens_read(t, N - 1, 1, back), WH_OK);
        assert_int_equal(back[0], ids[N - 1]);
        assert_int_equal(wh_tokens_read(t, N, 0, back), WH_OK);
        assert_int_equal(wh_tokens_read(t, N - 1, 2, back), WH_DATA);
        assert_int_equal(wh_tokens_read(t, UINT64_MAX, 2, back), WH_DATA);
        wh_tokens_close(t);
    }
}

/* Case B62: the right size of 1,000 tokens is 3,024 bytes. */
static void write_llmc_raw(const char *path, int32_t magic, int32_t version, int32_t count, size_t bytes) {
    unsigned char file[3100] = {0};
    const int32_t header[3] = {magic, version, count};
    memcpy(file, header, sizeof header);
    assert_int_equal(wh_file_write_all(path, file, bytes), WH_OK);
}

static void refuse_raw(int32_t magic, int32_t version, int32_t count, size_t bytes, const char *one, const char *two) {
    struct wh_tokens *t = NULL;
    const char *path = in_folder("bad.bin");
    write_llmc_raw(path, magic, version, count, bytes);
    assert_int_equal(open_one(path, WH_TOKENS_AUTO, 256, &t), WH_DATA);
    assert_null(t);
    assert_says(path), assert_says(one), assert_says(two);
}

static void test_llmc_refusals(void **state) {
    (void)state;
    static const size_t wrong[] = {3023, 3025, 3022, 1024};
    char found[32];
    for (int i = 0; i < 4; i++) {
        snprintf(found, sizeof found, "has %zu", wrong[i]);
        refuse_raw(20240520, 1, 1000, wrong[i], "need 3024 bytes", found);
    }
    refuse_raw(20240520, 1, 1000, 0, "1024 bytes", "has 0");
    refuse_raw(20240520, 1, 1000, 1023, "1024 bytes", "has 1023");
    refuse_raw(20240521, 1, 1000, 3024, "20240521", "20240520");
    refuse_raw(20240520, 2, 1000, 3024, "version 2", "version 1");
    refuse_raw(20240520, 1, 0, 3024, "0 tokens", "at least 1");
    refuse_raw(20240520, 1, -1, 3024, "-1 tokens", "at least 1");
    struct wh_tokens *t;
    write_llmc_raw(in_folder("good.bin"), 20240520, 1, 1000, 3024);
    assert_int_equal(open_one(in_folder("good.bin"), WH_TOKENS_AUTO, 256, &t), WH_OK);
    wh_tokens_close(t);
    assert_int_equal(open_one(in_folder("none.bin"), WH_TOKENS_AUTO, 256, &t), WH_IO);
    assert_int_equal(wh_tokens_open(NULL, 0, WH_TOKENS_AUTO, 256, &t), WH_CONFIG);
}

static void test_id_out_of_range(void **state) {
    (void)state;
    uint32_t ids[9000] = {0};
    struct wh_tokens *t;
    ids[8765] = 300;
    assert_int_equal(wh_tokens_write_llmc(in_folder("r.bin"), ids, 9000, 512), WH_OK);
    assert_int_equal(open_one(in_folder("r.bin"), WH_TOKENS_AUTO, 256, &t), WH_DATA);
    assert_says("token 8765 is 300"), assert_says("256 entries");
    assert_int_equal(open_one(in_folder("r.bin"), WH_TOKENS_AUTO, 301, &t), WH_OK);
    wh_tokens_close(t);
    assert_int_equal(open_one(in_folder("r.bin"), WH_TOKENS_AUTO, 0, &t), WH_OK);
    wh_tokens_close(t);
    const uint64_t one = 9000;
    assert_int_equal(wh_tokens_write_megatron(in_folder("r4"), ids, &one, 1, 70000), WH_OK); /* four bytes each */
    assert_int_equal(open_one(in_folder("r4"), WH_TOKENS_AUTO, 300, &t), WH_DATA);
    assert_says("token 8765 is 300");
    assert_int_equal(wh_tokens_write_llmc(in_folder("w.bin"), ids, 9000, 256), WH_DATA);
    assert_false(wh_file_exists(in_folder("w.bin")));
}

static void test_bytes(void **state) {
    (void)state;
    struct wh_tokens *t;
    uint32_t ids[4];
    assert_int_equal(wh_file_write_all(in_folder("x.txt"), "a\xe4\xbd\xa0", 4), WH_OK);
    assert_int_equal(open_one(in_folder("x.txt"), WH_TOKENS_AUTO, 256, &t), WH_OK);
    assert_int_equal(wh_tokens_count(t), 4);
    assert_int_equal(wh_tokens_read(t, 0, 4, ids), WH_OK);
    assert_int_equal(ids[0], 'a');
    assert_int_equal(ids[3], 0xa0);
    wh_tokens_close(t);
    assert_int_equal(open_one(in_folder("x.txt"), WH_TOKENS_AUTO, 255, &t), WH_CONFIG);
    assert_int_equal(open_one(in_folder("x.txt"), WH_TOKENS_LLMC, 256, &t), WH_DATA);
    assert_int_equal(wh_file_write_all(in_folder("e.txt"), "", 0), WH_OK);
    assert_int_equal(open_one(in_folder("e.txt"), WH_TOKENS_AUTO, 256, &t), WH_DATA);
}

/* Text through a tokenizer while it is opened, each document with its end; a token file beside it is left as it is. */
static void test_text_encoded(void **state) {
    (void)state;
    static const char text[] = "abab abab <|endoftext|>abab", line[] = "{\"text\": \"ab\"}\n{\"text\": \"ab\"}\n";
    const char *texts[] = {text};
    const size_t bytes[] = {12};
    const uint32_t four[] = {1, 2, 3, 4};
    struct wh_tokenizer *k;
    struct wh_tokens *t;
    uint32_t ids[16];
    assert_int_equal(wh_tokenizer_train(texts, bytes, 1, 259, &k), WH_OK); /* "ab" 256, "abab" 257, end 258 */
    assert_int_equal(wh_file_write_all(in_folder("x.txt"), text, strlen(text)), WH_OK);
    assert_int_equal(wh_file_write_all(in_folder("x.jsonl"), line, strlen(line)), WH_OK);
    assert_int_equal(wh_tokens_write_llmc(in_folder("x.bin"), four, 4, 259), WH_OK);
    char names[3][128];
    const char *paths[3] = {names[0], names[1], names[2]};
    strcpy(names[0], in_folder("x.txt")), strcpy(names[1], in_folder("x.jsonl")), strcpy(names[2], in_folder("x.bin"));
    assert_int_equal(wh_tokens_open_text(paths, 3, WH_TOKENS_AUTO, 259, k, 258, &t), WH_OK);
    static const uint32_t want[] = {257, ' ', 257, ' ', 258, 257, 258, 256, 258, 256, 258, 1, 2, 3, 4};
    assert_int_equal(wh_tokens_count(t), 15);
    assert_int_equal(wh_tokens_read(t, 0, 15, ids), WH_OK);
    assert_memory_equal(ids, want, sizeof want);
    wh_tokens_close(t);
    assert_int_equal(wh_tokens_open_text(paths, 1, WH_TOKENS_AUTO, 257, k, -1, &t), WH_DATA);
    assert_says("token 0 is 257");
    wh_tokenizer_close(k);
    assert_int_equal(wh_tokens_open_text(&paths[1], 1, WH_TOKENS_AUTO, 300, NULL, 299, &t), WH_OK);
    assert_int_equal(wh_tokens_count(t), 6);
    assert_int_equal(wh_tokens_read(t, 0, 6, ids), WH_OK);
    assert_memory_equal(ids, ((const uint32_t[]){'a', 'b', 299, 'a', 'b', 299}), 24);
    wh_tokens_close(t);
}

static void check_megatron(const char *path, const uint32_t *ids, size_t n, uint32_t vocab) {
    struct wh_tokens *t;
    uint32_t back[64];
    assert_int_equal(open_one(path, WH_TOKENS_AUTO, vocab, &t), WH_OK);
    assert_int_equal(wh_tokens_count(t), n);
    assert_int_equal(wh_tokens_read(t, 0, n, back), WH_OK);
    assert_memory_equal(ids, back, n * 4);
    wh_tokens_close(t);
}

static void test_megatron_round_trip(void **state) {
    (void)state;
    static const uint32_t ids[] = {5, 6, 7, 256, 9, 10, 256};
    static const uint64_t lengths[] = {4, 0, 3};
    for (int wide = 0; wide < 2; wide++) {
        uint32_t vocab = wide ? 70000 : 300;
        assert_int_equal(wh_tokens_write_megatron(in_folder("m"), ids, lengths, 3, vocab), WH_OK);
        check_megatron(in_folder("m"), ids, 7, vocab);
        check_megatron(in_folder("m.bin"), ids, 7, vocab);
        check_megatron(in_folder("m.idx"), ids, 7, vocab);
    }
    struct wh_tokens *t;
    assert_int_equal(open_one(in_folder("m"), WH_TOKENS_AUTO, 200, &t), WH_DATA);
    assert_says("token 3 is 256");
}

/* An index of two sequences (3 and 2 uint16 tokens) in one document each, to be bent. */
static size_t good_index(unsigned char *idx) {
    const uint64_t version = 1, sequences = 2, marks = 3;
    const int32_t lengths[] = {3, 2};
    const int64_t pointers[] = {0, 6}, documents[] = {0, 1, 2};
    memcpy(idx, "MMIDIDX\0\0", 9);
    memcpy(idx + 9, &version, 8);
    idx[17] = 8;
    memcpy(idx + 18, &sequences, 8);
    memcpy(idx + 26, &marks, 8);
    memcpy(idx + 34, lengths, 8);
    memcpy(idx + 42, pointers, 16);
    memcpy(idx + 58, documents, 24);
    return 82;
}

static void refuse_index(size_t at, int64_t value, size_t value_bytes, const char *says) {
    unsigned char idx[82];
    static const unsigned char bin[10];
    struct wh_token_span span;
    size_t n = good_index(idx);
    memcpy(idx + at, &value, value_bytes);
    assert_int_equal(wh_token_parse_megatron("i.idx", idx, n, "i.bin", bin, 10, &span), WH_DATA);
    assert_says(says);
}

static void test_megatron_refusals(void **state) {
    (void)state;
    unsigned char idx[90] = {0};
    static const unsigned char bin[12];
    struct wh_token_span span;
    size_t n = good_index(idx);
    assert_int_equal(wh_token_parse_megatron("i.idx", idx, n, "i.bin", bin, 10, &span), WH_OK);
    assert_int_equal(span.count, 5);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(wh_token_parse_megatron("i.idx", idx, cut, "i.bin", bin, 10, &span), WH_DATA);
    assert_int_equal(wh_token_parse_megatron("i.idx", idx, n + 1, "i.bin", bin, 10, &span), WH_DATA);
    for (size_t bytes = 0; bytes <= 12; bytes++)
        if (bytes != 10)
            assert_int_equal(wh_token_parse_megatron("i.idx", idx, n, "i.bin", bin, bytes, &span), WH_DATA);
    assert_says("i.bin"), assert_says("10 bytes"), assert_says("has 12");
    refuse_index(0, 'X', 1, "MMIDIDX");
    refuse_index(9, 2, 8, "version 2");
    refuse_index(17, 5, 1, "code 5");
    refuse_index(18, INT64_MAX, 8, "has 82");
    refuse_index(18, 3, 8, "has 82");
    refuse_index(18, ((int64_t)1 << 62) + 2, 8, "has 82"); /* 12 times that is 24, modulo 2^64 */
    refuse_index(26, ((int64_t)1 << 61) + 3, 8, "has 82");
    refuse_index(26, -1, 8, "has 82");
    refuse_index(34, -3, 4, "length -3");
    refuse_index(34, INT32_MAX, 4, "i.bin");
    refuse_index(50, 8, 8, "byte 8, expected 6");
    refuse_index(50, -6, 8, "byte -6");
    refuse_index(58, 1, 8, "mark 0");
    refuse_index(66, 3, 8, "mark 1");
    refuse_index(74, 1, 8, "last document mark is 1");
}

/* Case B65: 200 shards under `ulimit -n 64`, read across every border. */
static void test_many_shards(void **state) {
    (void)state;
    enum { SHARDS = 200, EACH = 7 };
    static char names[SHARDS][128];
    const char *paths[SHARDS];
    uint32_t ids[SHARDS * EACH], back[SHARDS * EACH];
    for (uint32_t i = 0; i < SHARDS * EACH; i++) ids[i] = i;
    for (int i = 0; i < SHARDS; i++) {
        snprintf(names[i], sizeof names[i], "%s/s%03d.bin", folder, i);
        paths[i] = names[i];
        assert_int_equal(wh_tokens_write_llmc(paths[i], ids + i * EACH, EACH, 2000), WH_OK);
    }
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct wh_tokens *t;
    assert_int_equal(wh_tokens_open(paths, SHARDS, WH_TOKENS_AUTO, 2000, &t), WH_OK);
    assert_int_equal(wh_tokens_count(t), SHARDS * EACH);
    for (size_t first = 0; first < SHARDS * EACH; first += 10) {
        size_t n = SHARDS * EACH - first < 33 ? SHARDS * EACH - first : 33;
        assert_int_equal(wh_tokens_read(t, first, n, back), WH_OK);
        assert_memory_equal(ids + first, back, n * 4);
    }
    wh_tokens_close(t);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Case B61: 1,100,000,000 tokens in a sparse file; the last 257 are 1..257, and two known ones stand where the last
 * batch of 256 starts: byte 2,200,000,000. Written with plain calls: nothing else here makes a hole. The file is too
 * large for the check at open, so a bad id is found by the read. */
static void write_large(const char *path) {
    const int32_t header[3] = {20240520, 1, 1100000000};
    static const uint16_t known[2] = {77, 78};
    uint16_t tail[257];
    for (uint16_t i = 0; i < 257; i++) tail[i] = (uint16_t)(i + 1);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 4, 3, f), 3);
    assert_int_equal(fseeko(f, 2200000000, SEEK_SET), 0);
    assert_int_equal(fwrite(known, 2, 2, f), 2);
    assert_int_equal(fseeko(f, 2200001024 - 2 * 257, SEEK_SET), 0);
    assert_int_equal(fwrite(tail, 2, 257, f), 257);
    assert_int_equal(fclose(f), 0);
}

static void test_beyond_2_gib(void **state) {
    (void)state;
    const char *path = in_folder("large.bin");
    struct wh_tokens *t;
    struct wh_sampler s;
    uint32_t ids[257];
    write_large(path);
    assert_int_equal(open_one(path, WH_TOKENS_AUTO, 50257, &t), WH_OK);
    assert_int_equal(wh_sampler_init(wh_tokens_count(t), 256, 1, 0, false, &s), WH_OK);
    assert_int_equal(s.steps_per_epoch, 4296874);
    uint64_t last = wh_sampler_sequence(&s, 4296873, 0) * 256;
    assert_int_equal(1024 + 2 * last, 2200000000);
    assert_int_equal(wh_tokens_read(t, last, 257, ids), WH_OK);
    assert_int_equal(ids[0], 77);
    assert_int_equal(ids[1], 78);
    assert_int_equal(ids[254], 0);
    assert_int_equal(ids[255], 1); /* the first of the last 257 */
    assert_int_equal(ids[256], 2);
    assert_int_equal(wh_tokens_read(t, 1099999743, 257, ids), WH_OK);
    for (uint32_t i = 0; i < 257; i++) assert_int_equal(ids[i], i + 1);
    wh_tokens_close(t);
    assert_int_equal(open_one(path, WH_TOKENS_AUTO, 257, &t), WH_OK);
    assert_int_equal(wh_tokens_read(t, 1099999743, 257, ids), WH_DATA);
    assert_says("token 1099999999 is 257");
    wh_tokens_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llmc_round_trip),   cmocka_unit_test(test_llmc_refusals),
        cmocka_unit_test(test_id_out_of_range),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_text_encoded),      cmocka_unit_test(test_megatron_round_trip),
        cmocka_unit_test(test_megatron_refusals), cmocka_unit_test(test_many_shards),
        cmocka_unit_test(test_beyond_2_gib)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
