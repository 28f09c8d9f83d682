#include "ckpt/steps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/manifest.h"
#include "os/file.h"

void wh_ckpt_remark(struct wh_text *remarks, const char *format, ...) {
    char line[1024];
    va_list args;
    if (!remarks) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    wh_text_add(remarks, "%s\n", line);
}

char *wh_ckpt_step_path(const char *folder, uint64_t step) {
    char name[32];
    snprintf(name, sizeof name, "step-%08llu", (unsigned long long)step);
    return wh_path_join(folder, name);
}

bool wh_ckpt_step_from_name(const char *name, uint64_t *step) {
    char again[32];
    if (strncmp(name, "step-", 5) != 0) return false;
    *step = strtoull(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step-%08llu", (unsigned long long)*step);
    return strcmp(name, again) == 0;
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum wh_status wh_ckpt_steps(const char *folder, uint64_t **steps, size_t *count) {
    char **names = NULL;
    size_t name_count = 0, n = 0;
    if (wh_dir_exists(folder)) WH_TRY(wh_dir_list(folder, &names, &name_count));
    uint64_t *list = malloc((name_count + 1) * sizeof *list);
    WH_ASSERT(list != NULL);
    for (size_t i = 0; i < name_count; i++)
        if (wh_ckpt_step_from_name(names[i], &list[n])) n++;
    wh_dir_list_free(names, name_count);
    qsort(list, n, sizeof *list, ascending);
    *steps = list;
    *count = n;
    return WH_OK;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void remove_folder(const char *path, const char *why, struct wh_text *remarks) {
    if (wh_dir_remove(path) == WH_OK)
        wh_ckpt_remark(remarks, "removed %s: %s", path, why);
    else
        wh_ckpt_remark(remarks, "could not remove %s: %s", path, wh_error()->message);
}

void wh_ckpt_clean(const char *folder, struct wh_text *remarks) {
    char **names;
    size_t count;
    if (wh_dir_list(folder, &names, &count) != WH_OK) return;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "step-", 5) != 0 || !(ends_with(names[i], ".part") || ends_with(names[i], ".replaced")))
            continue;
        char *path = wh_path_join(folder, names[i]);
        remove_folder(path, "left by a save that was interrupted", remarks);
        free(path);
    }
    wh_dir_list_free(names, count);
}

enum wh_status wh_ckpt_step_check(const char *folder, uint64_t step) {
    struct wh_ckpt_manifest m;
    char *path = wh_ckpt_step_path(folder, step);
    enum wh_status status = wh_ckpt_manifest_read(path, &m);
    if (status == WH_OK) {
        if (m.step != step)
            status = WH_FAIL(WH_DAMAGED, "%s holds a checkpoint of step %llu", path, (unsigned long long)m.step);
        wh_ckpt_manifest_free(&m);
    }
    free(path);
    return status;
}

static void set_aside(const char *path, struct wh_text *remarks) {
    char *aside = wh_path_suffix(path, ".ahead");
    enum wh_status status = wh_dir_exists(aside) ? wh_dir_remove(aside) : WH_OK;
    if (status == WH_OK) status = wh_file_rename(path, aside);
    if (status == WH_OK)
        wh_ckpt_remark(remarks, "renamed %s to %s: it is of a later step than the one just saved", path, aside);
    else
        wh_ckpt_remark(remarks, "could not rename %s: %s", path, wh_error()->message);
    free(aside);
}

void wh_ckpt_retain(const char *folder, uint64_t step, uint32_t keep_last, struct wh_text *remarks) {
    uint64_t *steps;
    size_t count, complete = 0;
    if (wh_ckpt_steps(folder, &steps, &count) != WH_OK) return;
    for (size_t i = count; i-- > 0;) {
        char *path = wh_ckpt_step_path(folder, steps[i]);
        bool whole = steps[i] == step || wh_ckpt_step_check(folder, steps[i]) != WH_DAMAGED;
        if (steps[i] > step && whole)
            set_aside(path, remarks);
        else if (steps[i] > step)
            remove_folder(path, "it is incomplete", remarks);
        else if (keep_last && complete >= keep_last)
            remove_folder(path, "newer ones are kept", remarks);
        else
            complete += whole;
        free(path);
    }
    free(steps);
}
