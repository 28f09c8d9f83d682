#include "test/support/alloc_count.h"

#include <stdatomic.h>

static atomic_size_t allocations, frees;

size_t alloc_count(void) { return allocations; }
size_t free_count(void) { return frees; }

/* Names that the linker's --wrap gives: a call of malloc reaches __wrap_malloc, __real_malloc is the true one. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **out, size_t align, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes);
void __wrap_free(void *block);

void *__wrap_malloc(size_t bytes) {
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    allocations++;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *block, size_t bytes) {
    allocations++;
    return __real_realloc(block, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes) {
    allocations++;
    return __real_aligned_alloc(align, bytes);
}

int __wrap_posix_memalign(void **out, size_t align, size_t bytes) {
    allocations++;
    return __real_posix_memalign(out, align, bytes);
}

void __wrap_free(void *block) {
    frees++;
    __real_free(block);
}
