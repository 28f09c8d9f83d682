/* Number formats that tensors are stored in, and their sizes. Arithmetic is fp32 (or double where stated). */
#ifndef WH_BASE_DTYPE_H
#define WH_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum wh_dtype { WH_F32, WH_BF16, WH_F16, WH_F64, WH_I32, WH_I64, WH_U16, WH_U8, WH_DTYPE_COUNT };

static inline size_t wh_dtype_bytes(enum wh_dtype t) {
    static const unsigned char bytes[WH_DTYPE_COUNT] = {4, 2, 2, 8, 4, 8, 2, 1};
    return bytes[t];
}

/* Safetensors spelling: "F32", "BF16", ... */
const char *wh_dtype_name(enum wh_dtype t);

/* bf16 is the upper half of an fp32; rounding to it is to nearest, ties to even; a NaN stays a (quiet) NaN. */
static inline float wh_bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t wh_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* IEEE half precision; exact in this direction. */
float wh_f16_to_f32(uint16_t h);
/* To nearest, ties to even; overflow becomes infinity. */
uint16_t wh_f32_to_f16(float f);

#endif
