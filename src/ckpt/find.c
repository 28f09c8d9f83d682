#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "ckpt/manifest.h"
#include "ckpt/steps.h"
#include "os/file.h"

/* The folder that holds the step-* folders of what the user named. */
static char *steps_folder(const char *path) {
    char *inside = wh_path_join(path, "checkpoints");
    if (wh_dir_exists(inside)) return inside;
    free(inside);
    inside = strdup(path);
    WH_ASSERT(inside != NULL);
    return inside;
}

bool wh_ckpt_any(const char *path) {
    uint64_t *steps;
    size_t count = 0;
    char *folder = steps_folder(path);
    if (wh_ckpt_steps(folder, &steps, &count) == WH_OK) free(steps);
    free(folder);
    return count > 0;
}

static void list_steps(const uint64_t *steps, size_t count, struct wh_text *out) {
    wh_text_add(out, count ? "there are steps " : "there is none");
    for (size_t i = 0; i < count; i++) wh_text_add(out, "%s%llu", i ? ", " : "", (unsigned long long)steps[i]);
}

static enum wh_status find_step(const char *folder, uint64_t step, const uint64_t *steps, size_t count, char **out) {
    for (size_t i = 0; i < count; i++) {
        if (steps[i] != step) continue;
        WH_TRY(wh_ckpt_step_check(folder, step));
        *out = wh_ckpt_step_path(folder, step);
        return WH_OK;
    }
    struct wh_text list = {0};
    list_steps(steps, count, &list);
    enum wh_status status =
        WH_FAIL(WH_DAMAGED, "no checkpoint of step %llu in %s; %s", (unsigned long long)step, folder, list.data);
    wh_text_fini(&list);
    return status;
}

/* `latest` is for people and other programs; the newest complete folder decides. Somebody who edited it should know. */
static void compare_with_pointer(const char *folder, const char *chosen, struct wh_text *remarks) {
    char *path = wh_path_join(folder, "latest"), *name = NULL;
    size_t bytes;
    const char *slash = strrchr(chosen, '/');
    if (wh_file_exists(path) && wh_file_read(path, 256, &name, &bytes) == WH_OK) {
        name[strcspn(name, "\r\n")] = '\0';
        if (slash && strcmp(name, slash + 1) != 0)
            wh_ckpt_remark(remarks,
                           "%s names \"%s\"; the newest complete checkpoint is %s, which is taken (ask for a step to "
                           "get another)",
                           path, name, slash + 1);
    }
    free(name);
    free(path);
}

static enum wh_status find_latest(const char *folder, const uint64_t *steps, size_t count, char **out,
                                  struct wh_text *remarks) {
    struct wh_text skipped = {0};
    for (size_t i = count; i-- > 0;) {
        char *path = wh_ckpt_step_path(folder, steps[i]);
        if (wh_ckpt_step_check(folder, steps[i]) == WH_OK) {
            compare_with_pointer(folder, path, remarks);
            wh_text_fini(&skipped);
            *out = path;
            return WH_OK;
        }
        wh_ckpt_remark(remarks, "skipped %s: %s", path, wh_error()->message);
        wh_ckpt_remark(&skipped, "%s: %s", path, wh_error()->message);
        free(path);
    }
    enum wh_status status = WH_FAIL(WH_DAMAGED, "no complete checkpoint in %s%s%s", folder,
                                    count ? "\n" : "; there is none", skipped.data ? skipped.data : "");
    wh_text_fini(&skipped);
    return status;
}

/* `path` is a checkpoint itself. */
static enum wh_status find_itself(const char *path, uint64_t step, char **out) {
    struct wh_ckpt_manifest m;
    WH_TRY(wh_ckpt_manifest_read(path, &m));
    uint64_t own = m.step;
    wh_ckpt_manifest_free(&m);
    if (step != WH_CKPT_LATEST && step != own)
        return WH_FAIL(WH_DAMAGED, "%s is the checkpoint of step %llu, not %llu", path, (unsigned long long)own,
                       (unsigned long long)step);
    *out = strdup(path);
    WH_ASSERT(*out != NULL);
    return WH_OK;
}

static bool has(const char *folder, const char *name) {
    char *path = wh_path_join(folder, name);
    const bool found = wh_file_exists(path);
    free(path);
    return found;
}

static bool is_checkpoint(const char *path) { return has(path, "manifest.json") || has(path, "weights.safetensors"); }

enum wh_status wh_ckpt_find(const char *path, uint64_t step, char **folder, struct wh_text *remarks) {
    uint64_t *steps;
    size_t count;
    if (!wh_dir_exists(path)) return WH_FAIL(WH_DAMAGED, "no checkpoint: %s is not a folder", path);
    if (is_checkpoint(path)) return find_itself(path, step, folder);
    if (has(path, "config.json") && !wh_ckpt_any(path))
        return WH_FAIL(WH_DAMAGED,
                       "no checkpoint: %s is a Hugging Face folder; `wanhe import` makes a checkpoint of it", path);
    char *inside = steps_folder(path);
    enum wh_status status = wh_ckpt_steps(inside, &steps, &count);
    if (status == WH_OK) {
        status = step == WH_CKPT_LATEST ? find_latest(inside, steps, count, folder, remarks)
                                        : find_step(inside, step, steps, count, folder);
        free(steps);
    }
    free(inside);
    return status;
}

/* The newest checkpoint in `parent` below `step` that holds; malloc'd; NULL: none. */
static char *newest_sound(const char *parent, uint64_t step) {
    uint64_t *steps;
    size_t count;
    char *found = NULL;
    if (wh_ckpt_steps(parent, &steps, &count) != WH_OK) return NULL;
    for (size_t i = count; i-- > 0 && !found;) {
        if (steps[i] >= step) continue;
        found = wh_ckpt_step_path(parent, steps[i]);
        if (wh_ckpt_verify(found) == WH_OK) break;
        free(found);
        found = NULL;
    }
    free(steps);
    return found;
}

void wh_ckpt_advise(const char *folder) {
    struct wh_error *e = wh_error();
    const struct wh_error first = *e;
    const char *slash = strrchr(folder, '/');
    uint64_t step;
    if (!wh_ckpt_step_from_name(slash ? slash + 1 : folder, &step)) return;
    char *parent = wh_path_parent(folder), *older = newest_sound(parent, step);
    *e = first;
    const size_t n = strlen(e->message);
    if (older)
        snprintf(e->message + n, sizeof e->message - n, "\n%s is whole: move %s away to go on from there", older,
                 folder);
    else
        snprintf(e->message + n, sizeof e->message - n, "\nno older checkpoint in %s is whole", parent);
    free(older);
    free(parent);
}
