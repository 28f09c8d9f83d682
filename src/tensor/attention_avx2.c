#include "tensor/lanes_avx2.h"
#include "tensor/vec.h"

static const struct wh_vec *const vec = &wh_vec_avx2;

#include "tensor/attention_body.h"

const struct wh_attention_kernels wh_attention_avx2 = {"avx2", attention_forward, attention_backward};
