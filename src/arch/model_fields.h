/* Every field of struct wh_model by name: to write a model into JSON and read it back exactly, and to tell two models
 * apart. Hugging Face's config.json can't say everything that a model of ours can be; checkpoints use this. */
#ifndef WH_ARCH_MODEL_FIELDS_H
#define WH_ARCH_MODEL_FIELDS_H

#include "arch/model.h"
#include "base/text.h"

/* Adds {"family": "llama", "vocab_size": 256, ...} on one line; floats in the fewest digits that read back the same. */
void wh_model_fields_write(const struct wh_model *m, struct wh_text *out);

/* `json` is a json_t object. Every field must be there; a missing, unknown or ill-typed one is a fault. */
void wh_model_fields_read(const void *json, const char *file, struct wh_model *out, struct wh_faults *faults);

/* Adds "hidden_size 64 / 32, ..." for each field in which two models differ, those without effect ignored (theta beside
 * learned positions, factors of a scaling that is off). True: they are the same. */
bool wh_model_fields_equal(const struct wh_model *a, const struct wh_model *b, struct wh_text *differences);

/* Adds a finite number as a JSON real in the fewest digits (of 9 or 17) that strtof or strtod read back the same. */
void wh_text_add_f32(struct wh_text *t, float x);
void wh_text_add_f64(struct wh_text *t, double x);

extern const char *const wh_rope_kind_names[3]; /* Hugging Face rope_type: "default", "linear", "llama3" */

#endif
