/* Inputs, labels and document borders of the sequences that one step works on.
 *
 *     struct wh_batch b = {.tokens = tokens, .sampler = &sampler, .end_of_text = 50256, .split_documents = true};
 *     WH_TRY(wh_batch_fill(&b, step, first, count, ids, labels, document_start, &valid));
 *
 * `first` and `count` are positions in the global batch: a rank (or a micro-batch) fills its own and no others.
 * Documents: with split_documents a document starts behind every end-of-text token. Attention then doesn't look beyond
 * its start, and an end-of-text position has no label (its next token belongs to another text).
 * Threads: pure but for the mapped file; any number of callers. Nothing is allocated. */
#ifndef WH_DATA_BATCH_H
#define WH_DATA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "data/sampler.h"
#include "data/tokens.h"

enum { WH_LABEL_NONE = -1 }; /* this position is not counted in the loss */

struct wh_batch {
    const struct wh_tokens *tokens;
    const struct wh_sampler *sampler;
    uint32_t end_of_text; /* used with split_documents only */
    bool split_documents;
};

/* Fills for positions first .. first+count-1 of `step`: ids [count][T]; labels [count][T] (the next token, or
 * WH_LABEL_NONE); document_start [count][T], the position in the sequence where the document of this position starts
 * (0 if that lies before the sequence; NULL: not wanted). *valid: labels that are not WH_LABEL_NONE.
 * Errors: DATA for an id outside the vocabulary in a large file (see tokens.h). */
enum wh_status wh_batch_fill(const struct wh_batch *b, uint64_t step, uint32_t first, uint32_t count, uint32_t *ids,
                             int32_t *labels, uint32_t *document_start, uint64_t *valid);

/* The number of valid labels alone, for the whole step's divisor on a rank that fills only a part. Without
 * split_documents it is count * T and nothing is read. */
enum wh_status wh_batch_count_valid(const struct wh_batch *b, uint64_t step, uint32_t first, uint32_t count,
                                    uint64_t *valid);

#endif
