/* manifest.json of a checkpoint: every file with size and hash, every tensor with its hash, closed by a hash of its own
 * text, so that no bit of a checkpoint can change unseen. Private to this folder (and `wanhe inspect`). */
#ifndef WH_CKPT_MANIFEST_H
#define WH_CKPT_MANIFEST_H

#include "ckpt/checkpoint.h"

enum { WH_CKPT_FILES_MAX = 5, WH_CKPT_FILE_NAME_BYTES = 32 };

struct wh_ckpt_file {
    char name[WH_CKPT_FILE_NAME_BYTES];
    uint64_t bytes, xxh3;
};

struct wh_ckpt_tensor {
    uint32_t file; /* index into files */
    char name[WH_PARAM_NAME_BYTES];
    uint64_t xxh3;
};

struct wh_ckpt_manifest {
    char save_id[WH_CKPT_ID_BYTES];
    uint64_t step;
    struct wh_ckpt_file files[WH_CKPT_FILES_MAX];
    uint32_t file_count;
    struct wh_ckpt_tensor *tensors; /* owned */
    size_t tensor_count;
};

/* Reads FOLDER/manifest.json and checks that all files are there with their sizes. Errors: DAMAGED. */
enum wh_status wh_ckpt_manifest_read(const char *folder, struct wh_ckpt_manifest *out);
void wh_ckpt_manifest_write(const struct wh_ckpt_manifest *m, struct wh_text *out);
void wh_ckpt_manifest_free(struct wh_ckpt_manifest *m);

/* NULL: not part of this checkpoint. */
const struct wh_ckpt_file *wh_ckpt_manifest_file(const struct wh_ckpt_manifest *m, const char *name);

/* The first tensor of `file` whose data in `safetensors` doesn't have its hash; NULL: all have. */
struct wh_safetensors_file;
const char *wh_ckpt_manifest_damaged_tensor(const struct wh_ckpt_manifest *m, const char *file,
                                            const struct wh_safetensors_file *safetensors);

/* Has this tensor of `file` the hash that the manifest gives? Not if it gives none. */
bool wh_ckpt_manifest_tensor_sound(const struct wh_ckpt_manifest *m, const char *file,
                                   const struct wh_safetensors_file *safetensors, const char *tensor);

#endif
