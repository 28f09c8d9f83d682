#include "base/dtype.h"

const char *wh_dtype_name(enum wh_dtype t) {
    static const char *const names[WH_DTYPE_COUNT] = {"F32", "BF16", "F16", "F64", "I32", "I64", "U16", "U8"};
    return t < WH_DTYPE_COUNT ? names[t] : "?";
}

static float bits_to_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float wh_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000u | (fraction << 13));
    if (exponent != 0) return bits_to_float(sign | ((exponent + 112u) << 23) | (fraction << 13));
    float subnormal = (float)fraction * 0x1p-24f; /* exact: 10 bits times a power of two */
    return sign ? -subnormal : subnormal;
}

/* Rounds the 24-bit significand `m` right by `shift` bits, ties to even. */
static uint32_t shift_round_even(uint32_t m, uint32_t shift) {
    uint32_t kept = m >> shift, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

uint16_t wh_f32_to_f16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and up round to infinity */
    if (magnitude >= 0x38800000u) /* normal half: a carry out of the fraction runs into the exponent, as it should */
        return (uint16_t)(sign | shift_round_even(magnitude - 0x38000000u, 13));
    uint32_t exponent = magnitude >> 23;
    if (exponent < 101u) return (uint16_t)sign; /* below 2^-26: less than half of the least subnormal 2^-24 */
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(significand, 126u - exponent));
}
