#define VECTOR 64
#define TABLE  wh_reduce_avx512
#define NAME   "avx512"
#include "comm/reduce_body.h"
