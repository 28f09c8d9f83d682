/* Safetensors headers. What is accepted must hold: ranges inside the data, in order, and found by name. */
#include <stdint.h>
#include <string.h>

#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct wh_safetensors_header h;
    if (wh_safetensors_parse(data, bytes, "fuzz", &h) != WH_OK) return 0;
    size_t end = 0;
    for (size_t i = 0; i < h.count; i++) {
        const struct wh_safetensors_tensor *t = &h.list[i];
        WH_ASSERT(t->begin == end && t->bytes <= h.data_bytes - t->begin);
        WH_ASSERT(wh_safetensors_find(&h, t->name) == t);
        end += t->bytes;
    }
    WH_ASSERT(end == h.data_bytes && h.data_begin + h.data_bytes == bytes);
    wh_safetensors_header_free(&h);
    return 0;
}
