/* The entries of a tokenizer: id to bytes, and bytes to id. Ids may have holes.
 *
 * Entries are of two sorts. Text: made by merging, found by their bytes. Added: whole pieces like <|endoftext|> that
 * are looked for in a text before it is split; only they may share their bytes with a text entry. Start-up only
 * (allocates); read from any number of threads afterwards. */
#ifndef WH_DATA_VOCAB_H
#define WH_DATA_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { WH_VOCAB_MAX = 1 << 24 }; /* ids are below this: a damaged file can't ask for any amount of memory */

struct wh_vocab_entry {
    size_t offset; /* into the pool */
    uint32_t bytes;
    bool present, text, added, special; /* special: an added one that decoding can leave out */
};

struct wh_vocab {
    unsigned char *pool;
    size_t pool_bytes, pool_capacity;
    struct wh_vocab_entry *entry; /* [count] */
    uint32_t count, capacity;     /* count: largest id + 1 */
    uint32_t *slot;               /* [slots], id + 1 of text entries, by hash of their bytes; 0: free */
    uint32_t slots, filled;       /* slots: a power of two */
};

/* A new text entry (its bytes can be found) or one that can't be found (`text` false). Errors: DATA if the id is taken
 * or too large, or the bytes are; NOMEM. */
enum wh_status wh_vocab_add(struct wh_vocab *v, uint32_t id, const void *bytes, size_t n, bool text);

/* Marks an entry as added; makes it if the id is free, else its bytes must be the same. Errors as above. */
enum wh_status wh_vocab_mark_added(struct wh_vocab *v, uint32_t id, const void *bytes, size_t n, bool special);

bool wh_vocab_find(const struct wh_vocab *v, const void *bytes, size_t n, uint32_t *id);

/* NULL if there is no such id. */
const unsigned char *wh_vocab_get(const struct wh_vocab *v, uint32_t id, size_t *n);

void wh_vocab_free(struct wh_vocab *v);

#endif
