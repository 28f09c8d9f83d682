/* The two token file formats, as checks over memory: no files here, so that a fuzzer needs none either.
 * Exact bytes: docs/formats/tokens.md. Both are little-endian, and so must the machine be.
 *
 * Every field is believed only after it was compared with the sizes given; additions and products can't overflow.
 * Errors: DATA, with the name, the size expected and the size found. Nothing is allocated or kept.
 * Source: karpathy/llm.c llmc/dataloader.h and dev/data/data_common.py; Megatron-LM core/datasets/indexed_dataset.py.
 */
#ifndef WH_DATA_TOKEN_FORMAT_H
#define WH_DATA_TOKEN_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Tokens side by side in memory, not aligned in general. A view: the bytes belong to somebody else. */
struct wh_token_span {
    const unsigned char *data;
    uint64_t count;
    unsigned width_bytes; /* 1 (bytes of text), 2 or 4 */
};

enum {
    WH_LLMC_HEADER_BYTES = 1024,
    WH_LLMC_MAGIC_16 = 20240520, /* version 1: uint16 tokens */
    WH_LLMC_MAGIC_32 = 20240801, /* version 7: uint32 tokens */
    WH_LLMC_VERSION_16 = 1,
    WH_LLMC_VERSION_32 = 7,
    WH_MEGATRON_HEADER_BYTES = 34,
    WH_MEGATRON_INT32 = 4,
    WH_MEGATRON_UINT16 = 8
};

#define WH_MEGATRON_MAGIC "MMIDIDX\0\0" /* nine bytes */
enum { WH_MEGATRON_MAGIC_BYTES = 9 };

static inline uint32_t wh_token_span_get(const struct wh_token_span *s, uint64_t i) {
    const unsigned char *p = s->data + i * s->width_bytes;
    if (s->width_bytes == 1) return p[0];
    if (s->width_bytes == 2) return (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* An llm.c token file. `name` is for messages. */
enum wh_status wh_token_parse_llmc(const char *name, const void *data, size_t bytes, struct wh_token_span *out);

/* A Megatron pair: the index, and the size and start of the data file it describes. The sequences must lie one behind
 * the other and fill the data file, as every writer of this format does. */
enum wh_status wh_token_parse_megatron(const char *idx_name, const void *idx, size_t idx_bytes, const char *bin_name,
                                       const void *bin, size_t bin_bytes, struct wh_token_span *out);

/* The first token of `s` that is not below `limit`; s->count if there is none. One pass, no branches per token. */
uint64_t wh_token_span_first_above(const struct wh_token_span *s, uint32_t limit);

#endif
