/* Memory that holds what a number is instead of the number: for check.c.
 *
 * An expression says how a value came about: rank r's input, or left + right, rounded to the data's format or not. Equal
 * expressions are one object, so comparing ids compares orders of summation. A memory maps elements to expressions in
 * ranges: an expression holds for a whole range, whose elements are consecutive elements of the input. So work depends
 * on how many ranges a plan makes, not on how many elements. */
#ifndef WH_COLL_SYMBOLIC_H
#define WH_COLL_SYMBOLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

struct wh_coll_expression {
    uint32_t left, right; /* ids; of a leaf both are its own */
    uint32_t leaves;      /* inputs in it, repeated ones repeatedly; stops at UINT32_MAX */
    bool rounded;         /* the result */
    bool rounded_inside;  /* an operand was a rounded sum */
    bool once;            /* every rank's input exactly once; valid if `asked` */
    bool asked;
};

/* Ids 0 .. ranks - 1 are the ranks' inputs. */
struct wh_coll_expressions {
    struct wh_coll_expression *items;
    uint32_t ranks, count, capacity;
    uint32_t *slots, slot_count; /* hash table of ids + 1 */
};

bool wh_coll_expressions_init(struct wh_coll_expressions *e, uint32_t ranks);
void wh_coll_expressions_free(struct wh_coll_expressions *e);
/* left + right; UINT32_MAX if there is no memory. */
uint32_t wh_coll_expression_add(struct wh_coll_expressions *e, uint32_t left, uint32_t right, bool rounded);
/* Every rank's input is in it exactly once. */
bool wh_coll_expression_is_whole(struct wh_coll_expressions *e, uint32_t id);
/* The canonical sum of all inputs, rounded at the end or not. */
uint32_t wh_coll_expression_canonical(struct wh_coll_expressions *e, bool rounded);
/* "((0 + 1) + 2)" */
void wh_coll_expression_text(const struct wh_coll_expressions *e, uint32_t id, struct wh_text *out);

/* Elements first .. first + count - 1 hold expression `id` of input elements elem, elem + 1, ... */
struct wh_coll_stretch {
    uint64_t first, count, elem;
    uint32_t id;
};

struct wh_coll_memory {
    struct wh_coll_stretch *items; /* sorted, apart */
    size_t count, capacity;
};

struct wh_coll_stretches {
    struct wh_coll_stretch *items; /* `first` counts from the beginning of what was read */
    size_t count, capacity;
};

bool wh_coll_stretches_push(struct wh_coll_stretches *list, const struct wh_coll_stretch *s);

enum wh_coll_read { WH_COLL_READ, WH_COLL_UNWRITTEN, WH_COLL_READ_NO_MEMORY };
/* What lies at first .. first + count - 1. UNWRITTEN: some element was never written. */
enum wh_coll_read wh_coll_memory_read(const struct wh_coll_memory *m, uint64_t first, uint64_t count,
                                      struct wh_coll_stretches *out);
/* Puts `what`, which covers `count` elements, there. False: no memory. */
bool wh_coll_memory_write(struct wh_coll_memory *m, uint64_t first, uint64_t count,
                          const struct wh_coll_stretches *what);

#endif
