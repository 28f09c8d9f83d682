#include "model/rope.h"
#include "base/elementary.h"

#include <stddef.h>

void wh_rope_tables(const struct wh_model *m, uint32_t T, float *cos, float *sin) {
    const uint32_t half = m->D / 2;
    for (uint32_t i = 0; i < half; i++) {
        double frequency = wh_rope_inverse_frequency(&m->rope, m->D, i);
        for (uint32_t t = 0; t < T; t++) {
            cos[(size_t)t * half + i] = (float)wh_cos(t * frequency);
            sin[(size_t)t * half + i] = (float)wh_sin(t * frequency);
        }
    }
}
