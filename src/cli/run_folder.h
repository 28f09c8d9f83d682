/* What commands read from a run folder besides its checkpoints: the configuration it was trained with. */
#ifndef WH_CLI_RUN_FOLDER_H
#define WH_CLI_RUN_FOLDER_H

#include "cli/cli.h"
#include "data/tokenizer.h"

/* The configuration of a run folder, or of the run that a checkpoint folder lies in. False: there is none (or it can't
 * be read, which is said as a warning); else free with wh_config_free. */
bool wh_run_folder_config(const char *path, struct wh_config *out);

/* Opens the tokenizer to use with the model at `path`: `asked` if given, else the run's, else the one that an imported
 * model brought along (PATH/tokenizer.json), else bytes for a vocabulary of 256. Errors: USAGE if none is known. */
enum wh_status wh_run_folder_tokenizer(const char *path, const char *asked, uint32_t vocab, struct wh_tokenizer **out);

/* Says each line of remarks and frees them. */
void wh_cli_remarks(struct wh_text *remarks);

#endif
