#include "tensor/lanes_ref.h"
#include "tensor/vec.h"

static const struct wh_vec *const vec = &wh_vec_reference;

#include "tensor/attention_body.h"

const struct wh_attention_kernels wh_attention_reference = {"reference", attention_forward, attention_backward};
