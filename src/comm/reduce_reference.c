#define VECTOR 16
#define TABLE  wh_reduce_reference
#define NAME   "reference"
#include "comm/reduce_body.h"
