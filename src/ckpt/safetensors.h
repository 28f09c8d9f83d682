/* Safetensors files: u64 little-endian header length, a JSON header (name -> dtype, shape, data_offsets; string-only
 * __metadata__), then the data. docs/formats/safetensors.md.
 *
 * A header is believed only where it can be checked: ranges must tile the data exactly (in any header order), shape
 * times dtype must be the range, names are unique, and nothing is allocated on the word of a length that the file can't
 * hold.
 *
 *     struct wh_safetensors_file f;
 *     WH_TRY(wh_safetensors_open(path, &f));
 *     const struct wh_safetensors_tensor *t = wh_safetensors_find(&f.header, "model.norm.weight");
 *     if (t) use(f.data + t->begin, t->bytes);                              // any alignment: memcpy
 *     wh_safetensors_close(&f);
 *
 * Errors: DATA for what is wrong with the file (first fault), IO, NOMEM. */
#ifndef WH_CKPT_SAFETENSORS_H
#define WH_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "os/file.h"

enum {
    WH_SAFETENSORS_DIMS = 8,
    WH_SAFETENSORS_ALIGN = 64,                    /* of the data in files that we write */
    WH_SAFETENSORS_HEADER_LIMIT_BYTES = 100000000 /* the limit of the reference implementation */
};

struct wh_safetensors_tensor {
    const char *name;
    enum wh_dtype dtype; /* WH_DTYPE_COUNT: a legal format that nothing here computes with (BOOL, F8_E4M3, ...) */
    uint32_t dims;       /* 0: a scalar */
    uint64_t shape[WH_SAFETENSORS_DIMS];
    size_t begin, bytes; /* in the data */
};

struct wh_safetensors_pair {
    const char *key, *value;
};

/* Owns its lists and all strings in them. */
struct wh_safetensors_header {
    size_t data_begin, data_bytes; /* in the file */
    struct wh_safetensors_tensor *list;
    size_t count; /* by position in the data */
    struct wh_safetensors_pair *metadata;
    size_t metadata_count;
    struct wh_safetensors_tensor **by_name;
    void *json; /* holds the strings */
};

/* `bytes` is the whole file's size; only the first 8 + header length bytes of `data` are read. `file` names it in
 * messages. */
enum wh_status wh_safetensors_parse(const unsigned char *data, size_t bytes, const char *file,
                                    struct wh_safetensors_header *out);
void wh_safetensors_header_free(struct wh_safetensors_header *h);

/* NULL: no such tensor / no such key. */
const struct wh_safetensors_tensor *wh_safetensors_find(const struct wh_safetensors_header *h, const char *name);
const char *wh_safetensors_metadata(const struct wh_safetensors_header *h, const char *key);

struct wh_safetensors_file {
    char *path;
    struct wh_file_map map;
    struct wh_safetensors_header header;
    const unsigned char *data; /* of the tensors; inside the map */
};

enum wh_status wh_safetensors_open(const char *path, struct wh_safetensors_file *out);
void wh_safetensors_close(struct wh_safetensors_file *f);

/* Writing: all shapes first, then the data of each tensor in list order, in pieces of any size. The file appears whole
 * at wh_safetensors_commit or not at all. Hashes are XXH3-64, taken while writing (one pass over the data). */
struct wh_safetensors_writer {
    struct wh_file_writer file;
    const struct wh_safetensors_tensor *list; /* borrowed until commit or abandon */
    size_t count, current, current_bytes;
    void *file_hash, *tensor_hash;
    uint64_t *tensor_xxh3; /* count; borrowed */
};

/* Sets begin and bytes of each tensor in `list`. `tensor_xxh3` (count entries) is filled as tensors become complete. */
enum wh_status wh_safetensors_create(const char *path, struct wh_safetensors_tensor *list, size_t count,
                                     const struct wh_safetensors_pair *metadata, size_t metadata_count,
                                     uint64_t *tensor_xxh3, struct wh_safetensors_writer *out);
enum wh_status wh_safetensors_write(struct wh_safetensors_writer *w, const void *data, size_t bytes);
/* After either of these the writer is closed. `file_bytes` and `file_xxh3` describe the whole file. */
enum wh_status wh_safetensors_commit(struct wh_safetensors_writer *w, size_t *file_bytes, uint64_t *file_xxh3);
void wh_safetensors_abandon(struct wh_safetensors_writer *w);

#endif
