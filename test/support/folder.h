/* A new, empty folder for a test, which removes it (wh_dir_remove). */
#ifndef WH_TEST_SUPPORT_FOLDER_H
#define WH_TEST_SUPPORT_FOLDER_H

#include <stdbool.h>

enum { TEST_FOLDER_BYTES = 40 };

/* Writes the path of a folder that nobody else has, with `name` (up to 20 characters) in it; false: it couldn't be made. */
bool test_folder_make(char folder[TEST_FOLDER_BYTES], const char *name);

#endif
