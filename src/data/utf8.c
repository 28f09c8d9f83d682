#include "data/utf8.h"

/* Second byte's range by first byte; later bytes are 80..BF. Unicode 15, table 3-7. */
static bool second_range(unsigned char first, unsigned *length, unsigned char *low, unsigned char *high) {
    *low = 0x80, *high = 0xbf;
    if (first >= 0xc2 && first <= 0xdf)
        *length = 2;
    else if (first >= 0xe0 && first <= 0xef)
        *length = 3;
    else if (first >= 0xf0 && first <= 0xf4)
        *length = 4;
    else
        return false;
    if (first == 0xe0) *low = 0xa0;
    if (first == 0xed) *high = 0x9f;
    if (first == 0xf0) *low = 0x90;
    if (first == 0xf4) *high = 0x8f;
    return true;
}

size_t wh_utf8_length(const unsigned char *p, size_t n, size_t *bad_bytes) {
    unsigned length;
    unsigned char low, high;
    if (p[0] < 0x80) return 1;
    *bad_bytes = 1;
    if (!second_range(p[0], &length, &low, &high)) return 0;
    for (unsigned i = 1; i < length; i++) {
        if (i >= n || p[i] < low || p[i] > high) return 0;
        low = 0x80, high = 0xbf;
        *bad_bytes = i + 1;
    }
    return length;
}

size_t wh_utf8_check(const void *text, size_t bytes) {
    const unsigned char *p = text;
    size_t at = 0, bad;
    while (at < bytes) {
        size_t length = wh_utf8_length(p + at, bytes - at, &bad);
        if (length == 0) return at;
        at += length;
    }
    return bytes;
}

uint32_t wh_utf8_get(const unsigned char *p, size_t length) {
    switch (length) {
    case 1:
        return p[0];
    case 2:
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3:
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default:
        return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    }
}

size_t wh_utf8_put(uint32_t c, unsigned char *p) {
    if (c < 0x80) {
        p[0] = (unsigned char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char mark[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--, c >>= 6) p[i] = (unsigned char)(0x80u | (c & 0x3fu));
    p[0] = (unsigned char)(mark[length] | c);
    return length;
}

/* Printable: '!'..'~', U+00A1..U+00AC, U+00AE..U+00FF. The rest in three runs: 0..32, 127..160, 173. */
uint32_t wh_byte_to_letter(unsigned char b) {
    if (b <= 32) return 0x100u + b;
    if (b >= 127 && b <= 160) return 0x100u + 33 + (b - 127u);
    if (b == 173) return 0x100u + 33 + 34;
    return b;
}

bool wh_letter_to_byte(uint32_t letter, unsigned char *byte) {
    uint32_t b = letter;
    if (letter >= 0x100 && letter <= 0x100 + 32)
        b = letter - 0x100;
    else if (letter >= 0x100 + 33 && letter < 0x100 + 33 + 34)
        b = letter - 0x100 - 33 + 127;
    else if (letter == 0x100 + 67)
        b = 173;
    if (b > 255 || wh_byte_to_letter((unsigned char)b) != letter) return false;
    *byte = (unsigned char)b;
    return true;
}

bool wh_letters_to_bytes(const char *letters, size_t bytes, unsigned char *out, size_t *out_bytes) {
    const unsigned char *p = (const unsigned char *)letters;
    size_t n = 0, bad;
    for (size_t at = 0; at < bytes;) {
        size_t length = wh_utf8_length(p + at, bytes - at, &bad);
        if (length == 0 || !wh_letter_to_byte(wh_utf8_get(p + at, length), &out[n])) return false;
        at += length, n++;
    }
    *out_bytes = n;
    return true;
}
