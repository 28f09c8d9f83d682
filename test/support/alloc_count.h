/* Counts allocations: for the claim "a step allocates nothing". Works in test programs named test_*_noalloc.c, which the
 * makefile links so that every call of malloc, calloc, realloc, aligned_alloc, posix_memalign and free from our objects
 * comes by here (calls inside shared libraries don't). Counters are shared by all threads.
 *
 *     size_t before = alloc_count();
 *     step();
 *     assert_int_equal(alloc_count() - before, 0); */
#ifndef WH_TEST_ALLOC_COUNT_H
#define WH_TEST_ALLOC_COUNT_H

#include <stddef.h>

size_t alloc_count(void); /* calls so far that ask for memory */
size_t free_count(void);  /* calls of free so far, free(NULL) included */

#endif
