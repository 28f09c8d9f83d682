#include "os/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { WRITER_BUFFER_BYTES = 1 << 20 };

static enum wh_status failed(const char *what, const char *path) {
    return WH_FAIL(WH_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static enum wh_status open_regular(const char *path, int *fd, size_t *bytes) {
    struct stat st;
    int f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0) return failed("open", path);
    if (fstat(f, &st) != 0) {
        enum wh_status status = failed("read the size of", path);
        close(f);
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(f);
        return WH_FAIL(WH_IO, "%s is not a regular file", path);
    }
    *fd = f;
    *bytes = (size_t)st.st_size;
    return WH_OK;
}

enum wh_status wh_file_map(const char *path, struct wh_file_map *out) {
    int fd;
    size_t bytes;
    WH_TRY(open_regular(path, &fd, &bytes));
    void *data = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    enum wh_status status = data == MAP_FAILED ? failed("map", path) : WH_OK;
    close(fd);
    if (status == WH_OK) *out = (struct wh_file_map){data, bytes};
    return status;
}

void wh_file_unmap(struct wh_file_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (struct wh_file_map){0};
}

static enum wh_status read_fully(int fd, const char *path, char *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed("read", path);
        if (n == 0) return WH_FAIL(WH_IO, "%s became shorter while it was read", path);
        done += (size_t)n;
    }
    return WH_OK;
}

enum wh_status wh_file_read(const char *path, size_t limit_bytes, char **data, size_t *bytes) {
    int fd;
    size_t size;
    enum wh_status status;
    WH_TRY(open_regular(path, &fd, &size));
    if (size > limit_bytes) {
        close(fd);
        return WH_FAIL(WH_DATA, "%s has %zu bytes; at most %zu are expected here", path, size, limit_bytes);
    }
    char *buffer = malloc(size + 1);
    if (!buffer) {
        close(fd);
        return WH_FAIL(WH_NOMEM, "no memory for the %zu bytes of %s", size, path);
    }
    status = read_fully(fd, path, buffer, size);
    close(fd);
    if (status != WH_OK) {
        free(buffer);
        return status;
    }
    buffer[size] = '\0';
    *data = buffer;
    *bytes = size;
    return WH_OK;
}

static enum wh_status write_fully(int fd, const char *path, const unsigned char *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed("write", path);
        done += (size_t)n;
    }
    return WH_OK;
}

/* The signal's default action would end the process without a word (case B46). */
static void ignore_size_signal(void) {
    struct sigaction now;
    if (sigaction(SIGXFSZ, NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGXFSZ, SIG_IGN);
}

enum wh_status wh_file_create(const char *path, struct wh_file_writer *out) {
    struct wh_file_writer w = {.fd = -1};
    ignore_size_signal();
    w.path = strdup(path);
    w.part_path = wh_path_suffix(path, ".part");
    w.buffer = malloc(WRITER_BUFFER_BYTES);
    if (w.path && w.buffer) w.fd = open(w.part_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w.fd < 0) {
        enum wh_status status = failed("create", path);
        free(w.path), free(w.part_path), free(w.buffer);
        return status;
    }
    *out = w;
    return WH_OK;
}

static enum wh_status flush(struct wh_file_writer *w) {
    size_t n = w->buffered;
    w->buffered = 0;
    return write_fully(w->fd, w->part_path, w->buffer, n);
}

enum wh_status wh_file_write(struct wh_file_writer *w, const void *data, size_t bytes) {
    w->written_bytes += bytes;
    if (bytes > WRITER_BUFFER_BYTES - w->buffered) WH_TRY(flush(w));
    if (bytes >= WRITER_BUFFER_BYTES) return write_fully(w->fd, w->part_path, data, bytes);
    if (bytes) memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
    return WH_OK;
}

static void close_writer(struct wh_file_writer *w) {
    if (w->fd >= 0) close(w->fd);
    free(w->path), free(w->part_path), free(w->buffer);
    *w = (struct wh_file_writer){.fd = -1};
}

void wh_file_abandon(struct wh_file_writer *w) {
    if (w->part_path) unlink(w->part_path);
    close_writer(w);
}

enum wh_status wh_file_commit(struct wh_file_writer *w) {
    enum wh_status status = flush(w);
    if (status == WH_OK && fsync(w->fd) != 0) status = failed("sync", w->part_path);
    if (status == WH_OK && rename(w->part_path, w->path) != 0) status = failed("rename into place", w->path);
    if (status == WH_OK)
        close_writer(w);
    else
        wh_file_abandon(w);
    return status;
}

enum wh_status wh_file_write_all(const char *path, const void *data, size_t bytes) {
    struct wh_file_writer w;
    WH_TRY(wh_file_create(path, &w));
    enum wh_status status = wh_file_write(&w, data, bytes);
    if (status == WH_OK) return wh_file_commit(&w);
    wh_file_abandon(&w);
    return status;
}

enum wh_status wh_file_append(const char *path, const void *data, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return failed("open", path);
    enum wh_status status = write_fully(fd, path, data, bytes);
    close(fd);
    return status;
}

enum wh_status wh_dir_create(const char *path) {
    char *copy = strdup(path);
    if (!copy) return WH_FAIL(WH_NOMEM, "no memory for a path");
    enum wh_status status = WH_OK;
    for (char *p = copy + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0') continue;
        *p = '\0';
        if (mkdir(copy, 0755) != 0 && !(errno == EEXIST && wh_dir_exists(copy))) {
            status = failed("create folder", copy);
            break;
        }
        if (c == '\0') break;
        *p = c;
    }
    free(copy);
    return status;
}

enum wh_status wh_dir_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return failed("open folder", path);
    enum wh_status status = fsync(fd) == 0 ? WH_OK : failed("sync folder", path);
    close(fd);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

enum wh_status wh_dir_list(const char *path, char ***names, size_t *count) {
    DIR *d = opendir(path);
    if (!d) return failed("read folder", path);
    char **list = NULL;
    size_t n = 0, capacity = 0;
    bool fits = true;
    for (struct dirent *e; fits && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            char **longer = realloc(list, capacity * sizeof *list);
            if (!(fits = longer != NULL)) break;
            list = longer;
        }
        if ((fits = (list[n] = strdup(e->d_name)) != NULL)) n++;
    }
    closedir(d);
    if (!fits) {
        wh_dir_list_free(list, n);
        return WH_FAIL(WH_NOMEM, "no memory to list folder %s", path);
    }
    if (n) qsort(list, n, sizeof *list, by_name);
    *names = list;
    *count = n;
    return WH_OK;
}

void wh_dir_list_free(char **names, size_t count) {
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

enum wh_status wh_dir_remove(const char *path) {
    char **names;
    size_t count;
    enum wh_status status = WH_OK;
    WH_TRY(wh_dir_list(path, &names, &count));
    for (size_t i = 0; i < count && status == WH_OK; i++) {
        char *inside = wh_path_join(path, names[i]);
        struct stat st;
        if (lstat(inside, &st) == 0 && S_ISDIR(st.st_mode))
            status = wh_dir_remove(inside);
        else if (unlink(inside) != 0)
            status = failed("remove", inside);
        free(inside);
    }
    wh_dir_list_free(names, count);
    if (status == WH_OK && rmdir(path) != 0) status = failed("remove folder", path);
    return status;
}

enum wh_status wh_file_rename(const char *from, const char *to) {
    return rename(from, to) == 0 ? WH_OK : failed("rename into place", to);
}

enum wh_status wh_dir_begin(const char *path, char **part) {
    char **names = NULL, *p = wh_path_suffix(path, ".part");
    size_t count = 0;
    enum wh_status status = WH_OK;
    if (wh_file_exists(path)) status = wh_dir_list(path, &names, &count);
    wh_dir_list_free(names, count);
    if (status == WH_OK && count) status = WH_FAIL(WH_CONFIG, "%s is not empty; choose another folder", path);
    if (status == WH_OK && wh_dir_exists(p)) status = wh_dir_remove(p);
    if (status == WH_OK) status = wh_dir_create(p);
    if (status == WH_OK)
        *part = p;
    else
        free(p);
    return status;
}

enum wh_status wh_dir_commit(char *part, const char *path) {
    char *parent = wh_path_parent(path);
    enum wh_status status = wh_dir_sync(part);
    if (status == WH_OK) status = wh_file_rename(part, path);
    if (status == WH_OK) status = wh_dir_sync(parent);
    free(parent);
    if (status == WH_OK)
        free(part);
    else
        wh_dir_abandon(part);
    return status;
}

void wh_dir_abandon(char *part) {
    struct wh_error first = *wh_error();
    if (wh_dir_exists(part)) wh_dir_remove(part);
    *wh_error() = first;
    free(part);
}

enum wh_status wh_dir_replace(const char *from, const char *to) {
    enum wh_status status = WH_OK;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) return wh_dir_remove(from);
    if (errno != EINVAL && errno != ENOSYS) return failed("exchange with its successor", to);
    char *old = wh_path_suffix(to, ".replaced");
    status = wh_file_rename(to, old);
    if (status == WH_OK) status = wh_file_rename(from, to);
    if (status == WH_OK) status = wh_dir_remove(old);
    free(old);
    return status;
}

bool wh_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

enum wh_status wh_file_size(const char *path, uint64_t *bytes) {
    struct stat st;
    if (stat(path, &st) != 0) return failed("read the size of", path);
    *bytes = (uint64_t)st.st_size;
    return WH_OK;
}

bool wh_dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum wh_status wh_dir_free_bytes(const char *path, uint64_t *out) {
    struct statvfs st;
    if (statvfs(path, &st) != 0) return failed("read the free space of", path);
    *out = (uint64_t)st.f_bavail * st.f_frsize;
    return WH_OK;
}

static char *join(const char *begin, size_t begin_bytes, const char *middle, const char *end) {
    char *path = NULL;
    WH_ASSERT(asprintf(&path, "%.*s%s%s", (int)begin_bytes, begin, middle, end) >= 0);
    return path;
}

char *wh_path_join(const char *folder, const char *name) {
    size_t n = strlen(folder);
    return join(folder, n, n && folder[n - 1] == '/' ? "" : "/", name);
}

char *wh_path_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return join(path, n, "", suffix);
}

char *wh_path_parent(const char *path) {
    char *parent = strdup(path);
    WH_ASSERT(parent != NULL);
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/') n--; /* slashes at the end */
    while (n > 0 && parent[n - 1] != '/') n--; /* the name */
    while (n > 1 && parent[n - 1] == '/') n--; /* slashes before it */
    parent[n] = '\0';
    if (n > 0) return parent;
    free(parent);
    parent = strdup(".");
    WH_ASSERT(parent != NULL);
    return parent;
}

enum wh_status wh_lock_take(const char *folder, int *fd) {
    char *path = wh_path_join(folder, "lock"), owner[32] = "";
    enum wh_status status = WH_OK;
    int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (f < 0) {
        status = failed("open", path);
    } else if (flock(f, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = read(f, owner, sizeof owner - 1);
        if (n > 0 && owner[n - 1] == '\n') owner[n - 1] = '\0';
        status = WH_FAIL(WH_CONFIG, "run folder %s is in use by process %s; wait for it or choose another --out",
                         folder, owner[0] ? owner : "?");
        close(f);
    } else {
        int n = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
        if (ftruncate(f, 0) == 0 && write(f, owner, (size_t)n) == n)
            *fd = f;
        else
            status = failed("write", path), close(f);
    }
    free(path);
    return status;
}

void wh_lock_release(int fd) {
    if (fd >= 0) close(fd);
}
