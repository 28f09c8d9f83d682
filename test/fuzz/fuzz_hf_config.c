/* Hugging Face config.json. What is accepted passes the model's own checks, is the same after
 * it was written and read again. */
#include <stdint.h>
#include <string.h>

#include "arch/hf_config.h"
#include "arch/model_fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct wh_hf_config config, again;
    struct wh_text notes = {0}, text = {0}, differences = {0};
    if (wh_hf_config_parse((const char *)data, bytes, "fuzz", &config, &notes) == WH_OK) {
        WH_ASSERT(wh_hf_config_write(&config, config.ours, &text) == WH_OK);
        WH_ASSERT(wh_hf_config_parse(text.data, text.bytes, "again", &again, NULL) == WH_OK);
        WH_ASSERT(wh_model_fields_equal(&config.model, &again.model, &differences));
    }
    wh_text_fini(&notes);
    wh_text_fini(&text);
    return 0;
}
