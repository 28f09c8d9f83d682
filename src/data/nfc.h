/* Is a text in Unicode normal form C? Tokenizers that normalise (Qwen2) give our ids only for text that is: we check
 * and refuse, and never change a text. This is the quick check of Unicode annex 15: it may refuse a text that is in
 * form C already but holds a character that can join the one before it. Pure. */
#ifndef WH_DATA_NFC_H
#define WH_DATA_NFC_H

#include <stddef.h>
#include <stdint.h>

struct wh_nfc_run {
    uint32_t first, last; /* code points */
    uint32_t kind;        /* 255: may change under normalisation; else a combining class, not 0 */
};

/* Sorted. Code points in no run have combining class 0 and never change. */
extern const struct wh_nfc_run wh_nfc_table[];
extern const size_t wh_nfc_table_count;

/* Position of the first character that may change; `bytes` if none. The text must be valid UTF-8. */
size_t wh_nfc_check(const char *text, size_t bytes);

#endif
