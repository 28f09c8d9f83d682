/* The tensors of a Hugging Face folder, whichever files they lie in. Private to this folder. */
#ifndef WH_CKPT_HF_SOURCE_H
#define WH_CKPT_HF_SOURCE_H

#include "base/faults.h"
#include "ckpt/safetensors.h"

struct wh_hf_entry {
    const char *name;                           /* inside the file's header */
    const struct wh_safetensors_file *file;     /* borrowed from the source */
    const struct wh_safetensors_tensor *tensor; /* the same */
    bool used;
};

struct wh_hf_source {
    struct wh_safetensors_file *files;
    size_t file_count;
    struct wh_hf_entry *entries; /* by name; what the index lists, or all of the single file */
    size_t entry_count;
};

/* Errors: DATA, with all faults of an index at once (files that are not there, tensors that are not in their file). */
enum wh_status wh_hf_source_open(const char *folder, struct wh_hf_source *out);
void wh_hf_source_close(struct wh_hf_source *s);

struct wh_hf_entry *wh_hf_source_find(const struct wh_hf_source *s, const char *name);
/* A file that has the tensor though the index doesn't list it; NULL: none. */
const char *wh_hf_source_unlisted(const struct wh_hf_source *s, const char *name);

static inline const unsigned char *wh_hf_entry_data(const struct wh_hf_entry *e) {
    return e->file->data + e->tensor->begin;
}

#endif
