/* Token data for training: one or more files, mapped read-only, seen as one long sequence of token ids.
 *
 *     WH_TRY(wh_tokens_open(paths, count, WH_TOKENS_AUTO, model.V, &tokens));
 *     WH_TRY(wh_tokens_read(tokens, first, T + 1, ids));
 *     wh_tokens_close(tokens);
 *
 * Formats (docs/formats/tokens.md): llm.c .bin, Megatron .bin/.idx pair, plain text taken as bytes.
 * A mapping needs no descriptor, so any number of shards opens under any descriptor limit (case B65); all positions
 * are 64-bit (B61).
 * Ids are checked against the vocabulary when files are opened, up to WH_TOKENS_EAGER_BYTES of files in all (a pass over
 * more would keep the start waiting for the disk); in the files beyond that each read checks what it returns. Either way
 * no id out of range gets out.
 * Threads: after open, reads from any number of threads. Files must not be shortened while open (os/file.h). */
#ifndef WH_DATA_TOKENS_H
#define WH_DATA_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum wh_tokens_kind { WH_TOKENS_AUTO, WH_TOKENS_LLMC, WH_TOKENS_MEGATRON, WH_TOKENS_BYTES, WH_TOKENS_KIND_COUNT };

#define WH_TOKENS_EAGER_BYTES ((size_t)256 << 20)

struct wh_tokens;
struct wh_tokenizer;

/* "auto", "llmc", "megatron", "bytes" */
const char *wh_tokens_kind_name(enum wh_tokens_kind kind);

/* Opens `count` (>= 1) files of one kind as one sequence, in the order given. AUTO: bytes for *.txt and *.jsonl; Megatron
 * for *.idx, for a *.bin beside an .idx of the same name and for a prefix with such a pair; else the first bytes decide.
 * `vocab` 0: not known, ids are not checked. Start-up only (allocates).
 * Errors: IO; DATA for a file that is not what it should be, with the size expected and found, and for an id outside
 * the vocabulary, with its position; CONFIG for bytes with a vocabulary below 256. */
enum wh_status wh_tokens_open(const char *const *paths, size_t count, enum wh_tokens_kind kind, uint32_t vocab,
                              struct wh_tokens **out);

/* The same, but text (the kind BYTES) goes through `tokenizer` when it is opened, each document (a file, or a line of
 * *.jsonl: data/corpus.h) followed by `end_of_text`. NULL: bytes are tokens; end_of_text -1: none. The ids are kept in
 * memory, 4 bytes each; nothing of the tokenizer is. For much text `wanhe tokenize` once is the better way. */
enum wh_status wh_tokens_open_text(const char *const *paths, size_t count, enum wh_tokens_kind kind, uint32_t vocab,
                                   struct wh_tokenizer *tokenizer, int64_t end_of_text, struct wh_tokens **out);

void wh_tokens_close(struct wh_tokens *t); /* NULL: nothing to do */

uint64_t wh_tokens_count(const struct wh_tokens *t);

/* Tokens first .. first+n-1, over file borders where need be. Errors: DATA past the end or outside the vocabulary. No
 * allocation; cost is the copy (and the disk, the first time). */
enum wh_status wh_tokens_read(const struct wh_tokens *t, uint64_t first, size_t n, uint32_t *out);

/* Writers: the files appear whole or not at all (os/file.h). `vocab` chooses the width: uint16 up to 65,536 entries,
 * else 32 bits (llm.c: magic 20240801, version 7). Every id must be below it. Errors: DATA, IO. */
enum wh_status wh_tokens_write_llmc(const char *path, const uint32_t *ids, uint64_t count, uint32_t vocab);

/* PREFIX.bin and PREFIX.idx with one sequence per document; `lengths` are tokens per document and sum to the number of
 * ids. The index is written last. */
enum wh_status wh_tokens_write_megatron(const char *prefix, const uint32_t *ids, const uint64_t *lengths,
                                        uint64_t documents, uint32_t vocab);

#endif
