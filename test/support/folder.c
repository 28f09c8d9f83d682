#include "test/support/folder.h"

#include <stdio.h>
#include <stdlib.h>

#include "os/file.h"

bool test_folder_make(char folder[TEST_FOLDER_BYTES], const char *name) {
    const int length = snprintf(folder, TEST_FOLDER_BYTES, "/tmp/wh-%s-XXXXXX", name);
    return length > 0 && length < TEST_FOLDER_BYTES && mkdtemp(folder);
}

bool test_folder_with_text(char folder[TEST_FOLDER_BYTES], const char *name, size_t bytes,
                           char path[TEST_TEXT_PATH_BYTES]) {
    char *text = malloc(bytes);
    bool made = text && test_folder_make(folder, name);
    for (size_t i = 0; i < bytes && made; i++) text[i] = (char)('a' + (i * i + i / 7) % 26);
    if (made) snprintf(path, TEST_TEXT_PATH_BYTES, "%s/data.txt", folder);
    made = made && wh_file_write_all(path, text, bytes) == WH_OK;
    free(text);
    return made;
}
