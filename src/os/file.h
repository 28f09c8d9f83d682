/* Files: whole-file reads, read-only mappings, and writes that appear complete or not at all.
 *
 * Every failure names the path and the system's reason. Nothing here keeps a file open after it returns, so few
 * descriptors are enough (case B65). Sizes are 64-bit throughout (B61). */
#ifndef WH_OS_FILE_H
#define WH_OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct wh_file_map {
    const unsigned char *data; /* NULL for an empty file */
    size_t bytes;
};

/* Maps a regular file read-only. The file may be unlinked later; it must not be shortened (a reader would get SIGBUS).
 */
enum wh_status wh_file_map(const char *path, struct wh_file_map *out);
void wh_file_unmap(struct wh_file_map *m);

/* Reads a whole file into malloc'd memory with a NUL behind it (not counted). Refuses more than `limit_bytes`. */
enum wh_status wh_file_read(const char *path, size_t limit_bytes, char **data, size_t *bytes);

/* A file being written: to "PATH.part" until wh_file_commit syncs and renames it; wh_file_abandon removes it. A file
 * size limit (ulimit -f) is reported like a full disk: the first wh_file_create sets SIGXFSZ to be ignored if nobody
 * handles it. */
struct wh_file_writer {
    int fd;
    char *path, *part_path;
    unsigned char *buffer; /* 1 MiB, gathers small writes */
    size_t buffered, written_bytes;
};

enum wh_status wh_file_create(const char *path, struct wh_file_writer *out);
enum wh_status wh_file_write(struct wh_file_writer *w, const void *data, size_t bytes);
/* After either of these the writer is closed. A failed commit leaves neither a new file nor a part file. */
enum wh_status wh_file_commit(struct wh_file_writer *w);
void wh_file_abandon(struct wh_file_writer *w);

/* create + write + commit. */
enum wh_status wh_file_write_all(const char *path, const void *data, size_t bytes);

/* Appends one block and returns when the kernel has it (no sync): logs and metrics. */
enum wh_status wh_file_append(const char *path, const void *data, size_t bytes);

enum wh_status wh_dir_create(const char *path); /* with parents; fine if it is there */
enum wh_status wh_dir_sync(const char *path);   /* makes renames inside it durable */
enum wh_status wh_dir_remove(const char *path); /* with all that is in it */
/* Names in a folder, sorted, without . and ..; malloc'd array of malloc'd strings, free with wh_dir_list_free. */
enum wh_status wh_dir_list(const char *path, char ***names, size_t *count);
void wh_dir_list_free(char **names, size_t count);
enum wh_status wh_file_rename(const char *from, const char *to);

/* A folder being written: everything goes into PATH.part, which wh_dir_commit syncs and renames and wh_dir_abandon
 * removes (keeping the error record). PATH must not be there or be empty (CONFIG); parents are made. Either call frees
 * `part`. */
enum wh_status wh_dir_begin(const char *path, char **part);
enum wh_status wh_dir_commit(char *part, const char *path);
void wh_dir_abandon(char *part);

/* Puts folder `from` in the place of folder `to` (which exists) and removes the old one: in one step where the file
 * system can exchange names, else by two renames. */
enum wh_status wh_dir_replace(const char *from, const char *to);

bool wh_file_exists(const char *path);
enum wh_status wh_file_size(const char *path, uint64_t *bytes);
bool wh_dir_exists(const char *path);
/* Bytes that an ordinary user can still write on the file system that holds `path` (an existing folder). */
enum wh_status wh_dir_free_bytes(const char *path, uint64_t *out);

/* "a/b" from "a" and "b"; malloc'd. */
char *wh_path_join(const char *folder, const char *name);
/* "a/b.part" from "a/b" or "a/b/" and ".part"; malloc'd. */
char *wh_path_suffix(const char *path, const char *suffix);
/* The folder that holds `path` ("." and "/" where there is no other); trailing slashes don't count. malloc'd. */
char *wh_path_parent(const char *path);

/* Takes the lock file FOLDER/lock for this process; held until exit or wh_lock_release. Refuses with CONFIG if another
 * process holds it, naming its pid. */
enum wh_status wh_lock_take(const char *folder, int *fd);
void wh_lock_release(int fd);

#endif
