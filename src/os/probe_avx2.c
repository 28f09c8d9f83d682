#include <immintrin.h>

enum { LANES = 8, CHAINS = 12 };
typedef __m256 floats;
#define multiply_add _mm256_fmadd_ps
#define LOOPS        wh_probe_loops_avx2
#define NAME         "avx2"
#include "os/probe_body.h"
