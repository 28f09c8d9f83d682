enum { LANES = 4, CHAINS = 12 };
typedef float floats __attribute__((vector_size(16)));
static inline floats multiply_add(floats a, floats b, floats c) { return a * b + c; }
#define LOOPS wh_probe_loops_reference
#define NAME  "reference"
#include "os/probe_body.h"
