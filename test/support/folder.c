#include "test/support/folder.h"

#include <stdio.h>
#include <stdlib.h>

bool test_folder_make(char folder[TEST_FOLDER_BYTES], const char *name) {
    const int length = snprintf(folder, TEST_FOLDER_BYTES, "/tmp/wh-%s-XXXXXX", name);
    return length > 0 && length < TEST_FOLDER_BYTES && mkdtemp(folder);
}
