#include "data/token_format.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are mapped, not converted");

static int32_t load_i32(const unsigned char *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static int64_t load_i64(const unsigned char *p) {
    int64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static uint64_t load_u64(const unsigned char *p) { return (uint64_t)load_i64(p); }

enum wh_status wh_token_parse_llmc(const char *name, const void *data, size_t bytes, struct wh_token_span *out) {
    const unsigned char *header = data;
    if (bytes < WH_LLMC_HEADER_BYTES)
        return WH_FAIL(WH_DATA, "%s: an llm.c token file has a header of %d bytes, but the whole file has %zu", name,
                       WH_LLMC_HEADER_BYTES, bytes);
    int32_t magic = load_i32(header), version = load_i32(header + 4), count = load_i32(header + 8);
    if (magic != WH_LLMC_MAGIC_16 && magic != WH_LLMC_MAGIC_32)
        return WH_FAIL(WH_DATA, "%s: begins with %" PRId32 ", but an llm.c token file begins with %d (or %d)", name,
                       magic, WH_LLMC_MAGIC_16, WH_LLMC_MAGIC_32);
    int expected_version = magic == WH_LLMC_MAGIC_16 ? WH_LLMC_VERSION_16 : WH_LLMC_VERSION_32;
    if (version != expected_version)
        return WH_FAIL(WH_DATA, "%s: version %" PRId32 " of the llm.c token format, only version %d is known", name,
                       version, expected_version);
    if (count <= 0)
        return WH_FAIL(WH_DATA, "%s: its header says %" PRId32 " tokens; at least 1 is expected", name, count);
    unsigned width = magic == WH_LLMC_MAGIC_16 ? 2 : 4;
    uint64_t expected = WH_LLMC_HEADER_BYTES + (uint64_t)count * width;
    if (bytes != expected)
        return WH_FAIL(WH_DATA, "%s: %" PRId32 " tokens need %" PRIu64 " bytes, but the file has %zu", name, count,
                       expected, bytes);
    *out = (struct wh_token_span){header + WH_LLMC_HEADER_BYTES, (uint64_t)count, width};
    return WH_OK;
}

/* Index: header, lengths int32[sequences], pointers int64[sequences], documents int64[documents]. */
struct megatron_index {
    const char *name;
    uint64_t sequences, documents;
    unsigned width_bytes;
    const unsigned char *lengths, *pointers, *document_indices;
};

static enum wh_status parse_index_header(const char *name, const unsigned char *idx, size_t bytes,
                                         struct megatron_index *out) {
    if (bytes < WH_MEGATRON_HEADER_BYTES)
        return WH_FAIL(WH_DATA, "%s: a Megatron index has a header of %d bytes, but the whole file has %zu", name,
                       WH_MEGATRON_HEADER_BYTES, bytes);
    if (memcmp(idx, WH_MEGATRON_MAGIC, WH_MEGATRON_MAGIC_BYTES) != 0)
        return WH_FAIL(WH_DATA, "%s: does not begin with the 9 bytes \"MMIDIDX\\0\\0\" of a Megatron index", name);
    uint64_t version = load_u64(idx + 9);
    if (version != 1)
        return WH_FAIL(WH_DATA, "%s: version %" PRIu64 " of the Megatron index, only version 1 is known", name,
                       version);
    unsigned code = idx[17];
    if (code != WH_MEGATRON_UINT16 && code != WH_MEGATRON_INT32)
        return WH_FAIL(WH_DATA, "%s: token type code %u; known are %d (uint16) and %d (int32)", name, code,
                       WH_MEGATRON_UINT16, WH_MEGATRON_INT32);
    *out = (struct megatron_index){.name = name,
                                   .sequences = load_u64(idx + 18),
                                   .documents = load_u64(idx + 26),
                                   .width_bytes = code == WH_MEGATRON_UINT16 ? 2 : 4};
    return WH_OK;
}

/* 12 bytes a sequence and 8 a document; both counts are bounded by the file size first, so the sum can't overflow. */
static enum wh_status place_index_arrays(const unsigned char *idx, size_t bytes, struct megatron_index *x) {
    if (x->sequences > bytes / 12 || x->documents > bytes / 8 ||
        WH_MEGATRON_HEADER_BYTES + 12 * x->sequences + 8 * x->documents != bytes)
        return WH_FAIL(WH_DATA,
                       "%s: %" PRIu64 " sequences and %" PRIu64
                       " document marks need 34 + 12 a sequence + 8 a mark bytes, but the file has %zu",
                       x->name, x->sequences, x->documents, bytes);
    x->lengths = idx + WH_MEGATRON_HEADER_BYTES;
    x->pointers = x->lengths + 4 * x->sequences;
    x->document_indices = x->pointers + 8 * x->sequences;
    return WH_OK;
}

static enum wh_status check_sequences(const struct megatron_index *x, const char *bin_name, size_t bin_bytes) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < x->sequences; i++) {
        int32_t length = load_i32(x->lengths + 4 * i);
        int64_t pointer = load_i64(x->pointers + 8 * i);
        if (length < 0) return WH_FAIL(WH_DATA, "%s: sequence %" PRIu64 " has length %" PRId32, x->name, i, length);
        if ((uint64_t)pointer != at)
            return WH_FAIL(WH_DATA,
                           "%s: sequence %" PRIu64 " is at byte %" PRId64 ", expected %" PRIu64
                           " (directly behind the one before)",
                           x->name, i, pointer, at);
        at += (uint64_t)length * x->width_bytes;
        if (at > bin_bytes) break; /* at stays below bin_bytes + 2^33: no overflow */
    }
    if (at != bin_bytes || at == 0)
        return WH_FAIL(WH_DATA, "%s: its index describes %s%" PRIu64 " bytes of tokens, but the file has %zu", bin_name,
                       at > bin_bytes ? "at least " : "", at, bin_bytes);
    return WH_OK;
}

static enum wh_status check_documents(const struct megatron_index *x) {
    int64_t before = 0;
    for (uint64_t i = 0; i < x->documents; i++) {
        int64_t mark = load_i64(x->document_indices + 8 * i);
        if (mark < before || (uint64_t)mark > x->sequences || (i == 0 && mark != 0))
            return WH_FAIL(WH_DATA,
                           "%s: document mark %" PRIu64 " is %" PRId64
                           "; marks begin at 0, never fall and end at %" PRIu64,
                           x->name, i, mark, x->sequences);
        before = mark;
    }
    if ((uint64_t)before != x->sequences)
        return WH_FAIL(WH_DATA, "%s: the last document mark is %" PRId64 ", expected %" PRIu64 " (all sequences)",
                       x->name, before, x->sequences);
    return WH_OK;
}

enum wh_status wh_token_parse_megatron(const char *idx_name, const void *idx, size_t idx_bytes, const char *bin_name,
                                       const void *bin, size_t bin_bytes, struct wh_token_span *out) {
    struct megatron_index x = {0};
    WH_TRY(parse_index_header(idx_name, idx, idx_bytes, &x));
    WH_TRY(place_index_arrays(idx, idx_bytes, &x));
    WH_TRY(check_sequences(&x, bin_name, bin_bytes));
    WH_TRY(check_documents(&x));
    *out = (struct wh_token_span){bin, bin_bytes / x.width_bytes, x.width_bytes};
    return WH_OK;
}

static uint32_t max_of_bytes(const unsigned char *p, size_t n) {
    unsigned char max = 0;
    for (size_t i = 0; i < n; i++) max = p[i] > max ? p[i] : max;
    return max;
}

static uint32_t max_of_16(const unsigned char *p, size_t n) {
    uint16_t max = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t id;
        memcpy(&id, p + 2 * i, 2);
        max = id > max ? id : max;
    }
    return max;
}

static uint32_t max_of_32(const unsigned char *p, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t id;
        memcpy(&id, p + 4 * i, 4);
        max = id > max ? id : max;
    }
    return max;
}

/* Blocks keep the answer near the fault cheap; within a block only a maximum is kept. */
uint64_t wh_token_span_first_above(const struct wh_token_span *s, uint32_t limit) {
    enum { BLOCK = 4096 };
    const unsigned width = s->width_bytes;
    if (width < 4 && limit >= 1u << (8 * width)) return s->count;
    for (uint64_t begin = 0; begin < s->count; begin += BLOCK) {
        size_t n = s->count - begin < BLOCK ? (size_t)(s->count - begin) : BLOCK;
        const unsigned char *p = s->data + begin * width;
        uint32_t max = width == 1 ? max_of_bytes(p, n) : width == 2 ? max_of_16(p, n) : max_of_32(p, n);
        if (max < limit) continue;
        for (uint64_t i = begin;; i++)
            if (wh_token_span_get(s, i) >= limit) return i;
    }
    return s->count;
}
