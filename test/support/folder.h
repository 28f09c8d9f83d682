/* A new, empty folder for a test, which removes it (wh_dir_remove). */
#ifndef WH_TEST_SUPPORT_FOLDER_H
#define WH_TEST_SUPPORT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { TEST_FOLDER_BYTES = 40, TEST_TEXT_PATH_BYTES = TEST_FOLDER_BYTES + 16 };

/* Writes the path of a folder that nobody else has, with `name` (up to 20 characters) in it; false: it couldn't be made. */
bool test_folder_make(char folder[TEST_FOLDER_BYTES], const char *name);

/* Such a folder with a text to train on in it, `bytes` of small letters that don't repeat soon; `path` gets the text's. */
bool test_folder_with_text(char folder[TEST_FOLDER_BYTES], const char *name, size_t bytes,
                           char path[TEST_TEXT_PATH_BYTES]);

#endif
