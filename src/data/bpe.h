/* Byte pair encoding of one word: the pair of neighbours with the lowest rank is merged, the leftmost first, until no
 * pair has a rank. Words live on a linked list with a heap of candidate pairs: n log n for a word of n bytes, so a
 * megabyte without a space is no trap. Short words seen before come from a cache.
 *
 * Threads: one at a time (scratch and cache). Ids equal those of Hugging Face tokenizers' BPE model (same order). */
#ifndef WH_DATA_BPE_H
#define WH_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Growing list of token ids; zero-initialise, free with wh_token_list_fini. */
struct wh_token_list {
    uint32_t *ids;
    size_t count, capacity;
};

enum wh_status wh_token_list_add(struct wh_token_list *l, const uint32_t *ids, size_t n);
void wh_token_list_fini(struct wh_token_list *l);

struct wh_bpe_merge {
    uint32_t left, right, rank, id; /* left + right become `id`; lower ranks first */
};

struct wh_bpe {
    uint32_t byte_id[256];
    struct wh_bpe_merge *merge; /* [slots], open addressing by (left, right); free: rank UINT32_MAX */
    uint32_t slots, filled;
    struct wh_bpe_node *node; /* scratch: symbols of a word */
    struct wh_bpe_pair *heap; /* scratch: candidate pairs */
    size_t node_capacity;     /* bytes of the longest word so far */
    struct wh_bpe_cached *cache;
};

/* Room for `merges` merges; `byte_id` is to be filled by the caller. Errors: NOMEM. */
enum wh_status wh_bpe_init(struct wh_bpe *b, uint32_t merges);
void wh_bpe_free(struct wh_bpe *b);

/* At most as many as were asked for. A pair given again takes the later rank, as in Hugging Face's. */
void wh_bpe_add_merge(struct wh_bpe *b, const struct wh_bpe_merge *m);
/* NULL: this pair does not merge. */
const struct wh_bpe_merge *wh_bpe_find_merge(const struct wh_bpe *b, uint32_t left, uint32_t right);

/* Appends the ids of a word. Errors: NOMEM. */
enum wh_status wh_bpe_encode(struct wh_bpe *b, const void *word, size_t bytes, struct wh_token_list *out);

#endif
