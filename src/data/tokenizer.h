/* Tokenizers: raw bytes, and byte-level byte pair encoding as GPT-2, Llama 3 and Qwen2 use it.
 *
 *     WH_TRY(wh_tokenizer_open("model/tokenizer.json", &t));
 *     struct wh_token_list ids = {0};
 *     WH_TRY(wh_tokenizer_encode(t, text, bytes, WH_ADDED_MATCH, &ids));
 *     wh_tokenizer_close(t);
 *
 * Ids equal those of the program the file was made for (Hugging Face tokenizers, GPT-2's encoder) with nothing put
 * before or behind the text; whatever in a file would make other ids is refused by name (docs/formats/tokenizer.md).
 * Text must be UTF-8 (but for raw bytes); tokens are not: one character may be spread over several (case B58).
 * Threads: a tokenizer serves one thread at a time (it caches words). */
#ifndef WH_DATA_TOKENIZER_H
#define WH_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "data/bpe.h"

struct wh_tokenizer;

/* Added tokens spelled in a text, such as <|endoftext|> (B60): MATCH gives the one id at that place, the text on both
 * sides being encoded apart; AS_TEXT takes special ones for ordinary text. */
enum wh_added { WH_ADDED_MATCH, WH_ADDED_AS_TEXT };

/* `what`: "bytes"; a tokenizer.json; a vocab.json or encoder.json with merges.txt or vocab.bpe beside it; or a folder
 * that holds any of these. Errors: IO; DATA for a damaged file; UNSUPPORTED for one that we would not encode as its own
 * program does. Start-up only. */
enum wh_status wh_tokenizer_open(const char *what, struct wh_tokenizer **out);
void wh_tokenizer_close(struct wh_tokenizer *t); /* NULL: nothing to do */

/* The same from memory; names are for messages. */
enum wh_status wh_tokenizer_parse_json(const char *name, const char *json, size_t bytes, struct wh_tokenizer **out);
enum wh_status wh_tokenizer_parse_pair(const char *vocab_name, const char *vocab_json, size_t vocab_bytes,
                                       const char *merges_name, const char *merges, size_t merges_bytes,
                                       struct wh_tokenizer **out);

/* Largest id + 1: the least vocabulary of a model that uses it. */
uint32_t wh_tokenizer_vocab(const struct wh_tokenizer *t);

bool wh_tokenizer_is_bytes(const struct wh_tokenizer *t); /* opened as "bytes": id = byte */

/* The token that ends a document: the first there is of <|endoftext|>, <|end_of_text|>, </s>. False: none. */
bool wh_tokenizer_end_of_text(const struct wh_tokenizer *t, uint32_t *id);

/* The token that other programs put before a text: the first there is of <|begin_of_text|>, <s>, <|endoftext|>. */
bool wh_tokenizer_begin_of_text(const struct wh_tokenizer *t, uint32_t *id);

/* Appends the ids of a text. Errors: DATA with the position of a byte that is no UTF-8, or of a character that the
 * tokenizer's normalisation might change; `out` is then as before. */
enum wh_status wh_tokenizer_encode(struct wh_tokenizer *t, const char *text, size_t bytes, enum wh_added added,
                                   struct wh_token_list *out);

/* Appends the bytes of the tokens, joined; special tokens are left out unless `specials`. Errors: DATA for an unknown
 * id; `out` is then as before. */
enum wh_status wh_tokenizer_decode_bytes(const struct wh_tokenizer *t, const uint32_t *ids, size_t n, bool specials,
                                         struct wh_text *out);

/* The same as valid UTF-8: what is not becomes U+FFFD, one for each broken character. */
enum wh_status wh_tokenizer_decode_text(const struct wh_tokenizer *t, const uint32_t *ids, size_t n, bool specials,
                                        struct wh_text *out);

/* A tokenizer learned from text with GPT-2's split: ids 0..255 are the bytes, then `vocab` - 257 merges, the most
 * frequent pair first (the smaller pair of ids if equal), last <|endoftext|>. Fewer entries come out if no pair occurs
 * twice any more: see wh_tokenizer_vocab. `texts` are encoded apart. Errors: USAGE for vocab below 257 or beyond
 * WH_VOCAB_MAX; DATA as encode; NOMEM. About a second for 5 MB and 4096 entries. */
enum wh_status wh_tokenizer_train(const char *const *texts, const size_t *bytes, size_t count, uint32_t vocab,
                                  struct wh_tokenizer **out);

/* Writes a tokenizer.json that we and Hugging Face's tokenizers read. Not for raw bytes (CONFIG). */
enum wh_status wh_tokenizer_write(const struct wh_tokenizer *t, const char *path);

#endif
