#include "tensor/lanes_avx512.h"
#include "tensor/vec.h"

static const struct wh_vec *const vec = &wh_vec_avx512;

#include "tensor/attention_body.h"

const struct wh_attention_kernels wh_attention_avx512 = {"avx512", attention_forward, attention_backward};
