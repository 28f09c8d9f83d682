/* Rotary angles: cos and sin of position * inverse frequency, [T, D/2], computed in double and rounded once. */
#ifndef WH_MODEL_ROPE_H
#define WH_MODEL_ROPE_H

#include "arch/model.h"

void wh_rope_tables(const struct wh_model *m, uint32_t T, float *cos, float *sin);

#endif
