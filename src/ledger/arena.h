/* Arenas: named lifetimes instead of malloc and free.
 *
 * A layout function runs twice over the same code: first on a measuring arena (no memory behind it: every take returns
 * NULL and only counts), then on one with memory of exactly that size. So the prediction is the allocation. After the
 * second run the arena is sealed: a later take is a bug.
 *
 *     void layout(struct wh_arena *a, struct net *n) { n->x = wh_arena_take(a, WH_ROW_ACTIVATIONS, bytes); ... }
 *
 *     struct wh_arena a = wh_arena_measuring("job");     layout(&a, &net);
 *     wh_memory_reserve(a.used_bytes, &memory);
 *     a = wh_arena_over("job", memory, a.used_bytes);    layout(&a, &net);   wh_arena_seal(&a);
 *
 * Every block starts on a cache line (64 bytes). Threads: none; take before the threads start. */
#ifndef WH_LEDGER_ARENA_H
#define WH_LEDGER_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "ledger/rows.h"

enum { WH_ARENA_ALIGN = 64 };

struct wh_arena {
    const char *name;
    char *base; /* NULL while measuring; borrowed */
    size_t size_bytes, used_bytes;
    bool sealed;
    size_t row_bytes[WH_ROW_COUNT]; /* what each ledger row took, padding included */
};

struct wh_arena wh_arena_measuring(const char *name);
struct wh_arena wh_arena_over(const char *name, void *memory, size_t bytes);

/* Next `bytes` on a cache line, booked under ledger row `row`; NULL while measuring. Asserts that it fits. */
void *wh_arena_take(struct wh_arena *a, enum wh_row row, size_t bytes);

/* Asserts that everything measured was taken; from here on a take is a bug. */
void wh_arena_seal(struct wh_arena *a);

#endif
