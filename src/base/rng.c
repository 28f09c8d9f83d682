#include "base/rng.h"

void wh_rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

struct wh_rng wh_rng_stream(uint64_t seed, enum wh_rng_purpose purpose, uint32_t step, uint32_t tensor) {
    return (struct wh_rng){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                           .step_purpose = (step & 0x0fffffffu) | (uint32_t)purpose << 28,
                           .tensor = tensor};
}

void wh_rng_block(const struct wh_rng *r, uint64_t block, uint32_t out[4]) {
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), r->step_purpose, r->tensor};
    wh_rng_philox(counter, r->key, out);
}

uint32_t wh_rng_u32(const struct wh_rng *r, uint64_t element) {
    uint32_t words[4];
    wh_rng_block(r, element / 4, words);
    return words[element % 4];
}

float wh_rng_f32(const struct wh_rng *r, uint64_t element) { return (float)(wh_rng_u32(r, element) >> 8) * 0x1p-24f; }

/* Feistel over 2*half bits, the least even width that holds n; values beyond n walk on until they fall inside
 * (the network is a permutation, so the walk ends; fewer than four steps on average). */
uint64_t wh_rng_permute(uint64_t seed, uint32_t epoch, uint64_t n, uint64_t i) {
    struct wh_rng r = wh_rng_stream(seed, WH_RNG_SHUFFLE, epoch, 0);
    unsigned half = 1;
    while (half < 32 && ((uint64_t)1 << (2 * half)) < n) half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t words[4];
            r.tensor = round;
            wh_rng_block(&r, right, words);
            uint64_t next = left ^ (words[0] & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
