/* Inside of a tokenizer: shared by the files tokenizer*.c, not for others. */
#ifndef WH_DATA_TOKENIZER_INT_H
#define WH_DATA_TOKENIZER_INT_H

#include "data/split.h"
#include "data/tokenizer.h"
#include "data/vocab.h"

struct wh_tokenizer {
    bool raw_bytes;     /* nothing of the below but `vocab` */
    bool ignore_merges; /* a word that is an entry is that entry, whatever the merges give */
    bool nfc;           /* text must be in Unicode normal form C */
    enum wh_split_kind kind;
    struct wh_split split;
    struct wh_vocab vocab;
    struct wh_bpe bpe;
    uint32_t *added; /* [added_count], ids of added tokens by first byte, the longest first */
    uint32_t added_count;
    uint32_t added_first[257]; /* those that begin with byte b: added_first[b] .. added_first[b+1]-1 */
};

#define WH_END_OF_TEXT "<|endoftext|>"

/* Empty tokenizer to be filled; NULL: out of memory. */
struct wh_tokenizer *wh_tokenizer_new(void);

/* After the vocabulary is complete: byte ids, room for merges, split pattern, list of added tokens. Errors: UNSUPPORTED
 * if a byte has no entry; NOMEM. `name` for messages. */
enum wh_status wh_tokenizer_prepare(struct wh_tokenizer *t, const char *name, uint32_t merges);

/* Merge number `rank`: the text of both sides and their sum must be entries. */
enum wh_status wh_tokenizer_add_merge(struct wh_tokenizer *t, const char *name, uint32_t rank, const char *left,
                                      size_t left_bytes, const char *right, size_t right_bytes);

/* Errors as wh_tokenizer_encode; for the trainer. */
enum wh_status wh_tokenizer_check_utf8(const char *text, size_t bytes);

#endif
