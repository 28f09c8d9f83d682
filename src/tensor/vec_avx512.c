#include "tensor/lanes_avx512.h"
#include "tensor/vec_body.h"

const struct wh_vec wh_vec_avx512 = VEC_TABLE("avx512");
