#include "plan/states.h"

struct wh_state_bytes wh_state_bytes(uint64_t all, uint64_t own, uint32_t zero_stage, enum wh_dtype weights,
                                     enum wh_dtype gradients) {
    const uint64_t real = sizeof(float), master = weights == WH_F32 ? 0 : real;
    return (struct wh_state_bytes){
        .weights = wh_dtype_bytes(weights) * (zero_stage >= 3 ? own : all),
        .gradients = wh_dtype_bytes(gradients) * (zero_stage >= 2 ? own : all),
        .optimizer = (2 * real + master) * (zero_stage >= 1 ? own : all),
    };
}
