#define VECTOR 32
#define TABLE  wh_reduce_avx2
#define NAME   "avx2"
#include "comm/reduce_body.h"
