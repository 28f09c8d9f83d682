#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "base/dtype.h"

static void sizes_and_names(void **state) {
    (void)state;
    static const struct {
        enum wh_dtype t;
        size_t bytes;
        const char *name;
    } known[] = {{WH_F32, 4, "F32"}, {WH_BF16, 2, "BF16"}, {WH_F16, 2, "F16"}, {WH_F64, 8, "F64"},
                 {WH_I32, 4, "I32"}, {WH_I64, 8, "I64"},   {WH_U16, 2, "U16"}, {WH_U8, 1, "U8"}};
    assert_int_equal(sizeof known / sizeof known[0], WH_DTYPE_COUNT);
    for (size_t i = 0; i < WH_DTYPE_COUNT; i++) {
        assert_int_equal(wh_dtype_bytes(known[i].t), known[i].bytes);
        assert_string_equal(wh_dtype_name(known[i].t), known[i].name);
    }
    assert_string_equal(wh_dtype_name(WH_DTYPE_COUNT), "?");
}

/* A finite number of a format with `fraction` explicit bits, from the definition of IEEE formats. */
static double value_of(uint32_t bits, int fraction, int exponent_bits, int bias) {
    uint32_t f = bits & ((1u << fraction) - 1), e = bits >> fraction & ((1u << exponent_bits) - 1);
    double magnitude =
        e ? ldexp((double)(f | 1u << fraction), (int)e - bias - fraction) : ldexp((double)f, 1 - bias - fraction);
    return bits >> (fraction + exponent_bits) & 1 ? -magnitude : magnitude;
}

static void bf16_round_trips(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = wh_bf16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7f80) {
            assert_true(isnan(f));
            assert_int_equal(wh_f32_to_bf16(f), h | 0x40);
            continue;
        }
        assert_int_equal(wh_f32_to_bf16(f), h);
        if ((h & 0x7fff) == 0x7f80)
            assert_true(isinf(f) && (f < 0) == (h >> 15));
        else
            assert_true(f == value_of(h, 7, 8, 127) && !signbit(f) == !(h >> 15));
    }
}

static void f16_round_trips(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = wh_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f) && isnan(wh_f16_to_f32(wh_f32_to_f16(f))));
            continue;
        }
        assert_int_equal(wh_f32_to_f16(f), h);
        if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(f) && (f < 0) == (h >> 15));
        else
            assert_true(f == value_of(h, 10, 5, 15) && !signbit(f) == !(h >> 15));
    }
}

/* Between each pair of neighbours: just below the middle, the middle (to the even one), just above. */
static void check_rounding(uint16_t (*narrow)(float), float (*widen)(uint16_t), uint32_t last_finite) {
    for (uint32_t h = 0; h < last_finite; h++) {
        double low = widen((uint16_t)h), high = widen((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        assert_true(middle == (low + high) / 2);
        assert_int_equal(narrow(middle), h & 1 ? h + 1 : h);
        assert_int_equal(narrow(-middle), 0x8000 | (h & 1 ? h + 1 : h));
        assert_int_equal(narrow(nextafterf(middle, 0)), h);
        assert_int_equal(narrow(nextafterf(middle, INFINITY)), h + 1);
    }
}

static uint16_t narrow_bf16(float f) { return wh_f32_to_bf16(f); }
static float widen_bf16(uint16_t h) { return wh_bf16_to_f32(h); }

static void bf16_rounds_to_even(void **state) {
    (void)state;
    check_rounding(narrow_bf16, widen_bf16, 0x7f7f);
    assert_int_equal(wh_f32_to_bf16(0x1.fefffep127f), 0x7f7f); /* just below the middle to 2^128 */
    assert_int_equal(wh_f32_to_bf16(0x1.ffp127f), 0x7f80);
    assert_int_equal(wh_f32_to_bf16(-INFINITY), 0xff80);
}

static void f16_rounds_to_even(void **state) {
    (void)state;
    check_rounding(wh_f32_to_f16, wh_f16_to_f32, 0x7bff);
    assert_int_equal(wh_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(wh_f32_to_f16(65520), 0x7c00);
    assert_int_equal(wh_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(wh_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(wh_f32_to_f16(0x1p-25f), 0); /* half of the least subnormal: to even, zero */
    assert_int_equal(wh_f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(wh_f32_to_f16(-0x1p-140f), 0x8000);
}

/* Every NaN stays a NaN, also one whose payload lies in the bits that are cut off. */
static void nan_stays_nan(void **state) {
    (void)state;
    for (uint32_t payload = 1; payload < 0x800000; payload = payload * 3 / 2 + 1)
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t u = sign << 31 | 0x7f800000u | payload;
            float f;
            memcpy(&f, &u, 4);
            assert_true(isnan(wh_bf16_to_f32(wh_f32_to_bf16(f))));
            assert_true(isnan(wh_f16_to_f32(wh_f32_to_f16(f))));
            assert_int_equal(wh_f32_to_bf16(f) >> 15, sign);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_names),     cmocka_unit_test(bf16_round_trips),   cmocka_unit_test(f16_round_trips),
        cmocka_unit_test(bf16_rounds_to_even), cmocka_unit_test(f16_rounds_to_even), cmocka_unit_test(nan_stays_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
