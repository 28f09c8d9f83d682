/* Documents out of text files, to be tokenized.
 *
 *     struct wh_corpus c = {0};
 *     WH_TRY(wh_corpus_add(&c, "stories.jsonl", WH_DOCUMENTS_FILE));
 *     for (i = 0; i < c.count; i++) ... c.document[i].text, .bytes ...
 *     wh_corpus_free(&c);
 *
 * *.jsonl: one JSON object per line whose "text" is a document. All other files are text: one document, or several (see
 * wh_document_split). Documents without a byte are left out. Text files are mapped, JSON texts kept in memory.
 * Start-up only (allocates). */
#ifndef WH_DATA_CORPUS_H
#define WH_DATA_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "os/file.h"

enum wh_document_split {
    WH_DOCUMENTS_FILE, /* a file is a document */
    WH_DOCUMENTS_LINE, /* a line is, without its line end */
    WH_DOCUMENTS_BLANK /* lines up to a line of white space only, without the last line end */
};

struct wh_document {
    const char *text; /* not NUL-terminated */
    size_t bytes;
    const char *path; /* as given to wh_corpus_add: the caller's */
    size_t line;      /* where it starts, from 1 */
};

struct wh_corpus {
    struct wh_document *document;
    size_t count, capacity;
    uint64_t bytes; /* of all documents */
    struct wh_file_map *map;
    size_t map_count;
    void *kept; /* JSON strings that documents point into */
};

/* Appends the documents of a file. Errors: IO; DATA with file and line for what is no JSON object with a "text". */
enum wh_status wh_corpus_add(struct wh_corpus *c, const char *path, enum wh_document_split split);

/* Where a held-out part of about `fraction` of the bytes starts: the document from which on all are held out, at least
 * one on either side. A corpus of one document is cut in two first, behind a line end if there is one. fraction in
 * (0, 1). Errors: DATA if there is nothing to cut; NOMEM. */
enum wh_status wh_corpus_cut(struct wh_corpus *c, double fraction, size_t *first_held_out);

void wh_corpus_free(struct wh_corpus *c);

#endif
