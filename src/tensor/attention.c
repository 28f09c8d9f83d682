#include "tensor/attention.h"

#include "tensor/attention_scratch.h"

size_t wh_attention_scratch_bytes(size_t T, size_t D, uint32_t chunks) {
    struct attention_scratch unused;
    return attention_scratch_lay(&unused, NULL, T, D, chunks);
}

const struct wh_attention_kernels *wh_attention_select(const char *name) {
    const struct wh_vec *v = wh_vec_select(name);
    if (v == &wh_vec_avx512) return &wh_attention_avx512;
    if (v == &wh_vec_avx2) return &wh_attention_avx2;
    return v ? &wh_attention_reference : NULL;
}
