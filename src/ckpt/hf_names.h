/* Which tensor of a Hugging Face file holds which parameters. Private to this folder. */
#ifndef WH_CKPT_HF_NAMES_H
#define WH_CKPT_HF_NAMES_H

#include "arch/params.h"

enum { WH_HF_NAME_BYTES = 96 };

/* One tensor of the file. It holds a parameter, or several that lie one behind the other (GPT-2's q, k, v). */
struct wh_hf_tensor {
    char name[WH_HF_NAME_BYTES]; /* as exported */
    const char *short_name;      /* the same without the optional prefix ("transformer.", "model."); inside `name` */
    size_t offset, rows, cols;   /* of the parameters: [rows, cols], cols 0 for a vector */
    size_t elems;
    bool transposed; /* the file has [cols, rows] */
};

/* All tensors of a model in the order of the parameter table; malloc'd. UNSUPPORTED if the family has no name for one.
 */
enum wh_status wh_hf_tensors(const struct wh_model *m, const struct wh_params *p, struct wh_hf_tensor **list,
                             size_t *count);

/* Buffers that some files carry beside the weights: causal masks, inverse rotary frequencies. */
bool wh_hf_is_harmless(const char *name);

#endif
