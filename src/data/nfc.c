#include "data/nfc.h"

#include "data/utf8.h"

static uint32_t kind_of(uint32_t c) {
    size_t low = 0, high = wh_nfc_table_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > wh_nfc_table[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < wh_nfc_table_count && c >= wh_nfc_table[low].first ? wh_nfc_table[low].kind : 0;
}

size_t wh_nfc_check(const char *text, size_t bytes) {
    const unsigned char *p = (const unsigned char *)text;
    uint32_t before = 0;
    size_t bad;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = wh_utf8_length(p + at, bytes - at, &bad);
        uint32_t c = wh_utf8_get(p + at, length);
        uint32_t kind = c < 0x300 ? 0 : kind_of(c); /* U+0300 is the first combining mark */
        if (kind == 255 || (kind != 0 && before > kind)) return at;
        before = kind;
    }
    return bytes;
}
