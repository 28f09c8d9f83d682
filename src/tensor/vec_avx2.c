#include "tensor/lanes_avx2.h"
#include "tensor/vec_body.h"

const struct wh_vec wh_vec_avx2 = VEC_TABLE("avx2");
