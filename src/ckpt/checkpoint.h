/* Checkpoints: one folder per step with logical tensors, the same bytes under every layout. docs/formats/checkpoint.md.
 *
 *     RUN/checkpoints/step-00000040/weights.safetensors  fp32, names of the parameter table (arch/params.h)
 *                                   adam_m.safetensors  adam_v.safetensors
 *                                   config.json  state.json
 *                                   manifest.json        every file and tensor with its XXH3-64; written last
 *     RUN/checkpoints/latest                             name of the newest folder; written after everything else
 *
 * A folder without a sound manifest is not a checkpoint. It is written as step-N.part, synced, renamed; so a crash at
 * any point leaves the older ones whole. Nothing inside depends on time, machine or layout.
 *
 * Remarks (which folder was skipped and why, what was cleaned) go to a text of the caller, one line each; NULL: not
 * wanted. Errors: DAMAGED for what is missing, cut short, changed or mixed (naming the file), CONFIG for a checkpoint
 * of another model, IO (disk full among them: path, bytes needed, bytes free), NOMEM.
 *
 * Parts. A rank may hold a part of the states only: some tensors, slices of them (arch/part.h), and of those a range. What
 * it holds is a slab of the flat line of its own parameter table ([0, buffer_elems)); nothing in a checkpoint depends on
 * tables and slabs, so one that N ranks saved loads on any M. */
#ifndef WH_CKPT_CHECKPOINT_H
#define WH_CKPT_CHECKPOINT_H

#include "arch/grain.h"
#include "arch/params.h"
#include "base/dtype.h"
#include "base/text.h"

enum { WH_CKPT_VERSION = 1, WH_CKPT_ID_BYTES = 17 };

/* Where the run stands: everything beside the tensors that the next step depends on. */
struct wh_ckpt_state {
    uint64_t step;           /* optimizer updates done; the next one is step + 1 */
    uint64_t samples;        /* sequences consumed since the run began */
    uint64_t tokens;         /* target tokens consumed since the run began */
    uint64_t data_position;  /* index into the sampler's order of the next sequence */
    uint64_t optimizer_step; /* Adam's t; below `step` if steps were skipped */
    uint64_t seed;
};

struct wh_comm;

/* Elements [first, first + elems) of a rank's flat line lie at data[0 .. elems). data NULL: not held, not wanted. */
struct wh_ckpt_slab {
    float *data;
    size_t first, elems;
};

/* A whole flat buffer; NULL stays NULL. */
static inline struct wh_ckpt_slab wh_ckpt_whole(float *data, const struct wh_params *p) {
    return (struct wh_ckpt_slab){data, 0, data ? p->buffer_elems : 0};
}

/* What a rank keeps: of the line of its table (the model's own or a part of it) the elements `own`. */
struct wh_ckpt_holding {
    const struct wh_params *params;
    struct wh_range own;
};

/* What is saved, of three classes: weights, first and second moments. The slab of a rank covers at least what it keeps; where
 * ranks keep the same element of a tensor, the lowest one's is written. m and v NULL on all ranks: both zero (an imported
 * model, step 0), then their files are left out. If on one they are on all: a rank that keeps nothing points anywhere. */
struct wh_ckpt_view {
    const struct wh_model *model;
    const struct wh_params *params; /* the model's own table */
    struct wh_grain grain;
    enum wh_dtype compute; /* WH_F32 or WH_BF16; the weights stored are the fp32 masters in either case */
    struct wh_ckpt_state state;
    struct wh_ckpt_slab weights, m, v;
    struct wh_comm *comm;                  /* the ranks that save together; NULL: one alone */
    const struct wh_ckpt_holding *holding; /* [ranks of comm], the same on all; NULL: rank 0 keeps everything */
};

/* Saves into RUN/checkpoints, then keeps the newest `keep_last` (0: all) up to this step. Never leaves fewer complete
 * checkpoints than it found. A folder of the same step is replaced; complete ones of later steps (a run resumed from an
 * older step) are renamed to step-N.ahead, so that "latest" stays what was saved last.
 *
 * All ranks of view->comm call it; params and holding are the same on all. Rank 0 writes; the others answer what it asks
 * for, in pieces of at most 1 MiB (rows "ckpt.ask", "ckpt.send"), and return when the checkpoint is in place. If rank 0
 * fails, they return PEER with its message; the group stays usable. No rank holds more than it did, but for rank 0's 2.25
 * MiB. A rank waits at most the job's deadline for the next word of rank 0, which gives one for each tensor: the
 * deadline must exceed the time in which the largest tensor is written and a file is synced. Only rank 0 looks at
 * `keep_last` and has remarks. Cost: about one pass of writing. */
enum wh_status wh_ckpt_save(const char *run, const struct wh_ckpt_view *view, uint32_t keep_last,
                            struct wh_text *remarks);

/* Writes one checkpoint as folder `path` itself, which must not exist (or be empty). By one rank alone. */
enum wh_status wh_ckpt_write(const char *path, const struct wh_ckpt_view *view);

/* Bytes that one save writes, at most; and whether the file system of `folder` has them. For a check before step 1. */
uint64_t wh_ckpt_bytes(const struct wh_params *params, bool moments);
enum wh_status wh_ckpt_check_space(const char *folder, uint64_t needed_bytes);

#define WH_CKPT_LATEST UINT64_MAX

/* The folder of `step`, or of the newest complete checkpoint; malloc'd. `path` is a run folder, its checkpoints folder,
 * or a checkpoint itself (then `step` must be LATEST or its own). Complete: manifest sound, all files there with their
 * sizes (their hashes are checked when they are read). Refuses with DAMAGED and a list of what exists. */
enum wh_status wh_ckpt_find(const char *path, uint64_t step, char **folder, struct wh_text *remarks);
/* Is there any folder that claims to be a checkpoint (complete or not)? To tell "start afresh" from "all are damaged".
 */
bool wh_ckpt_any(const char *path);

/* What a checkpoint says about itself; config.json and state.json verified. */
struct wh_ckpt_info {
    struct wh_model model;
    struct wh_grain grain;
    enum wh_dtype compute;
    struct wh_ckpt_state state;
    char save_id[WH_CKPT_ID_BYTES];
    bool moments;
};
enum wh_status wh_ckpt_read(const char *folder, struct wh_ckpt_info *out);

/* Fills slabs; m and v may both be NULL (evaluation). Everything that is taken is verified first, so on failure the slabs
 * are untouched. Alignment gaps are never touched. `params` may be a part: slabs are of its line. Names and shapes must be
 * those of the model's table: all differences at once (CONFIG). Local: meets nobody.
 * A slab of the whole model reads the file and its hash; a part reads the tensors that it touches, each in full for its hash.
 * Ranks that load parts read the file once between them (and a tensor that is cut several times), but then one of them may
 * fail where the others don't: they learn it from the job. */
enum wh_status wh_ckpt_load(const char *folder, const struct wh_params *params, struct wh_ckpt_slab weights,
                            struct wh_ckpt_slab m, struct wh_ckpt_slab v);

/* Reads everything and checks every hash. */
enum wh_status wh_ckpt_verify(const char *folder);

/* After `folder`, one of a run, turned out damaged: adds to the error record which older one the run could go on from. That
 * one is verified, which reads it in full. */
void wh_ckpt_advise(const char *folder);

#endif
