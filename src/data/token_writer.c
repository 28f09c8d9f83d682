#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/token_format.h"
#include "data/tokens.h"
#include "os/file.h"

/* Largest vocabulary whose ids fit uint16. */
enum { VOCAB_16_MAX = 65536 };

static enum wh_status check_ids(const char *path, const uint32_t *ids, uint64_t count, uint32_t vocab) {
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return WH_FAIL(WH_DATA, "%s: token %" PRIu64 " is %" PRIu32 ", but the vocabulary has %" PRIu32 " entries",
                           path, i, ids[i], vocab);
    return WH_OK;
}

static enum wh_status write_ids(struct wh_file_writer *w, const uint32_t *ids, uint64_t count, uint32_t vocab) {
    if (vocab > VOCAB_16_MAX) return wh_file_write(w, ids, count * sizeof *ids);
    uint16_t block[4096];
    while (count > 0) {
        size_t n = count < 4096 ? (size_t)count : 4096;
        for (size_t i = 0; i < n; i++) block[i] = (uint16_t)ids[i];
        WH_TRY(wh_file_write(w, block, n * sizeof *block));
        ids += n, count -= n;
    }
    return WH_OK;
}

/* Commits if all went well; else the file never was. */
static enum wh_status finish(struct wh_file_writer *w, enum wh_status status) {
    if (status == WH_OK) return wh_file_commit(w);
    wh_file_abandon(w);
    return status;
}

enum wh_status wh_tokens_write_llmc(const char *path, const uint32_t *ids, uint64_t count, uint32_t vocab) {
    struct wh_file_writer w;
    int32_t header[WH_LLMC_HEADER_BYTES / 4] = {WH_LLMC_MAGIC_16, WH_LLMC_VERSION_16, (int32_t)count};
    if (count == 0 || count > INT32_MAX)
        return WH_FAIL(WH_DATA, "%s: the llm.c format holds 1 to 2147483647 tokens, not %" PRIu64 "%s", path, count,
                       count ? "; write several files or the megatron format" : "");
    if (vocab > VOCAB_16_MAX) header[0] = WH_LLMC_MAGIC_32, header[1] = WH_LLMC_VERSION_32;
    WH_TRY(check_ids(path, ids, count, vocab));
    WH_TRY(wh_file_create(path, &w));
    enum wh_status status = wh_file_write(&w, header, sizeof header);
    if (status == WH_OK) status = write_ids(&w, ids, count, vocab);
    return finish(&w, status);
}

static enum wh_status write_index_header(struct wh_file_writer *w, uint64_t documents, uint32_t vocab) {
    unsigned char header[WH_MEGATRON_HEADER_BYTES];
    const uint64_t version = 1, marks = documents + 1;
    memcpy(header, WH_MEGATRON_MAGIC, WH_MEGATRON_MAGIC_BYTES);
    memcpy(header + 9, &version, 8);
    header[17] = vocab > VOCAB_16_MAX ? WH_MEGATRON_INT32 : WH_MEGATRON_UINT16;
    memcpy(header + 18, &documents, 8);
    memcpy(header + 26, &marks, 8);
    return wh_file_write(w, header, sizeof header);
}

static enum wh_status write_index_arrays(struct wh_file_writer *w, const uint64_t *lengths, uint64_t documents,
                                         uint32_t vocab) {
    const uint64_t width = vocab > VOCAB_16_MAX ? 4 : 2;
    for (uint64_t i = 0; i < documents; i++) {
        int32_t length = (int32_t)lengths[i];
        WH_TRY(wh_file_write(w, &length, sizeof length));
    }
    for (uint64_t i = 0, at = 0; i < documents; at += lengths[i++] * width) WH_TRY(wh_file_write(w, &at, sizeof at));
    for (uint64_t i = 0; i <= documents; i++) WH_TRY(wh_file_write(w, &i, sizeof i));
    return WH_OK;
}

static enum wh_status write_pair(const char *bin_path, const char *idx_path, const uint32_t *ids, uint64_t count,
                                 const uint64_t *lengths, uint64_t documents, uint32_t vocab) {
    struct wh_file_writer bin, idx;
    WH_TRY(wh_file_create(bin_path, &bin));
    WH_TRY(finish(&bin, write_ids(&bin, ids, count, vocab)));
    WH_TRY(wh_file_create(idx_path, &idx));
    enum wh_status status = write_index_header(&idx, documents, vocab);
    if (status == WH_OK) status = write_index_arrays(&idx, lengths, documents, vocab);
    return finish(&idx, status);
}

enum wh_status wh_tokens_write_megatron(const char *prefix, const uint32_t *ids, const uint64_t *lengths,
                                        uint64_t documents, uint32_t vocab) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < documents; i++) {
        if (lengths[i] > INT32_MAX)
            return WH_FAIL(WH_DATA,
                           "%s: document %" PRIu64 " has %" PRIu64 " tokens; the megatron format holds 2147483647",
                           prefix, i, lengths[i]);
        count += lengths[i];
    }
    if (count == 0) return WH_FAIL(WH_DATA, "%s: no tokens to write; at least 1 is expected", prefix);
    if (vocab > INT32_MAX)
        return WH_FAIL(WH_DATA, "%s: ids of a vocabulary of %" PRIu32 " don't fit int32", prefix, vocab);
    WH_TRY(check_ids(prefix, ids, count, vocab));
    char *bin_path = malloc(2 * (strlen(prefix) + 5));
    if (!bin_path) return WH_FAIL(WH_NOMEM, "no memory for a path");
    char *idx_path = bin_path + strlen(prefix) + 5;
    sprintf(bin_path, "%s.bin", prefix);
    sprintf(idx_path, "%s.idx", prefix);
    enum wh_status status = write_pair(bin_path, idx_path, ids, count, lengths, documents, vocab);
    free(bin_path);
    return status;
}
