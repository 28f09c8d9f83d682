#include "tensor/lanes_ref.h"
#include "tensor/vec_body.h"

const struct wh_vec wh_vec_reference = VEC_TABLE("reference");
