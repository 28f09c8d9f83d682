/* UTF-8 checked by hand, and the byte alphabet of byte-level tokenizers. Pure. */
#ifndef WH_DATA_UTF8_H
#define WH_DATA_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at p (1 to 4; n >= 1 bytes are there), or 0 with *bad_bytes = what stands for one
 * replacement character: the longest start of a well-formed sequence, at least 1 (Unicode 15, section 3.9, "maximal
 * subpart"). Surrogates, overlong forms and values beyond U+10FFFF are not well-formed. */
size_t wh_utf8_length(const unsigned char *p, size_t n, size_t *bad_bytes);

/* Position of the first byte that is not part of well-formed UTF-8; `bytes` if all is. */
size_t wh_utf8_check(const void *text, size_t bytes);

/* The character at p, whose length wh_utf8_length gave. */
uint32_t wh_utf8_get(const unsigned char *p, size_t length);
/* Writes `c` (a valid code point) and returns its length, at most 4. */
size_t wh_utf8_put(uint32_t c, unsigned char *p);

/* The alphabet of GPT-2: every byte has a printable character. Printable bytes stand for themselves (as Latin-1), the
 * other 68 are U+0100, U+0101 ... in order of the byte. Source: openai/gpt-2 src/encoder.py, bytes_to_unicode. */
uint32_t wh_byte_to_letter(unsigned char byte);
bool wh_letter_to_byte(uint32_t letter, unsigned char *byte);

/* Text in the alphabet to the bytes it stands for: `out` has room for `bytes`. False (and nothing meant in `out`) if a
 * character isn't of the alphabet or the text isn't UTF-8. */
bool wh_letters_to_bytes(const char *letters, size_t bytes, unsigned char *out, size_t *out_bytes);

#endif
