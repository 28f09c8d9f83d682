#include <immintrin.h>

enum { LANES = 16, CHAINS = 24 };
typedef __m512 floats;
#define multiply_add _mm512_fmadd_ps
#define LOOPS        wh_probe_loops_avx512
#define NAME         "avx512"
#include "os/probe_body.h"
