#include "ledger/arena.h"

#include "base/status.h"

struct wh_arena wh_arena_measuring(const char *name) {
    return (struct wh_arena){.name = name, .base = NULL, .size_bytes = (size_t)-1};
}

struct wh_arena wh_arena_over(const char *name, void *memory, size_t bytes) {
    return (struct wh_arena){.name = name, .base = memory, .size_bytes = bytes};
}

void *wh_arena_take(struct wh_arena *a, enum wh_row row, size_t bytes) {
    size_t padded = (bytes + WH_ARENA_ALIGN - 1) / WH_ARENA_ALIGN * WH_ARENA_ALIGN;
    WH_ASSERT(!a->sealed);
    WH_ASSERT(padded >= bytes && padded <= a->size_bytes - a->used_bytes);
    char *block = a->base ? a->base + a->used_bytes : NULL;
    a->used_bytes += padded;
    a->row_bytes[row] += padded;
    return block;
}

void wh_arena_seal(struct wh_arena *a) {
    WH_ASSERT(a->base == NULL || a->used_bytes == a->size_bytes);
    a->sealed = true;
}
