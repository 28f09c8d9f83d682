/* What `wanhe inspect` knows about each kind of file or folder: members added to one JSON object, "kind" first. */
#ifndef WH_CLI_INSPECT_H
#define WH_CLI_INSPECT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

/* `verify`: read all tensor data, check (checkpoint) or take (safetensors file) the hashes. */
enum wh_status wh_inspect_safetensors(const char *path, bool verify, json_t *out);
enum wh_status wh_inspect_checkpoint(const char *folder, bool verify, json_t *out);
/* A run folder, or its checkpoints folder: which steps are there, which are complete, and what is wrong with the others. */
enum wh_status wh_inspect_run(const char *folder, json_t *out);
enum wh_status wh_inspect_hf(const char *folder, json_t *out);
enum wh_status wh_inspect_config(const char *path, json_t *out);
enum wh_status wh_inspect_tokenizer(const char *path, json_t *out);
enum wh_status wh_inspect_tokens(const char *path, json_t *out);

#endif
