/* Token file formats from memory: the first byte says which and where a Megatron input is cut into index and data. What
 * is accepted is then read to its last token. */
#include <stddef.h>
#include <stdint.h>

#include "data/token_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wh_token_span span;
    enum wh_status status;
    if (size == 0) return 0;
    const uint8_t *body = data + 1;
    size_t bytes = size - 1;
    if (data[0] < 64) {
        status = wh_token_parse_llmc("fuzz", body, bytes, &span);
    } else {
        size_t bin = (size_t)data[0] - 64 < bytes ? (size_t)data[0] - 64 : bytes;
        status = wh_token_parse_megatron("idx", body, bytes - bin, "bin", body + bytes - bin, bin, &span);
    }
    if (status != WH_OK) return 0;
    WH_ASSERT(span.count > 0 && span.data >= body && span.data + span.count * span.width_bytes == body + bytes);
    uint64_t bad = wh_token_span_first_above(&span, 300);
    WH_ASSERT(bad == span.count || wh_token_span_get(&span, bad) >= 300);
    return 0;
}
