/* Counter-based random numbers: every number is a function of (seed, purpose, step, tensor, element), never of who asks
 * or in which order. So dropout masks, initial weights and shuffles are the same under every layout and after a resume.
 *
 * Generator: Philox4x32-10 (Salmon et al., SC11), key = seed, counter = (element / 4, step | purpose, tensor);
 * element % 4 picks the word. Passes that paper's known answers (test/unit/base/test_rng.c). */
#ifndef WH_BASE_RNG_H
#define WH_BASE_RNG_H

#include <stdint.h>

enum wh_rng_purpose { WH_RNG_INIT = 1, WH_RNG_DROPOUT, WH_RNG_SHUFFLE, WH_RNG_SAMPLE, WH_RNG_TEST };

/* One stream: all elements of one tensor at one step. */
struct wh_rng {
    uint32_t key[2];
    uint32_t step_purpose, tensor;
};

/* `step` below 2^28, `tensor` any id that is unique within the purpose. */
struct wh_rng wh_rng_stream(uint64_t seed, enum wh_rng_purpose purpose, uint32_t step, uint32_t tensor);

/* Four words for elements 4*block .. 4*block+3. */
void wh_rng_block(const struct wh_rng *r, uint64_t block, uint32_t out[4]);

uint32_t wh_rng_u32(const struct wh_rng *r, uint64_t element);

/* Uniform in [0,1) with 24 bits. */
float wh_rng_f32(const struct wh_rng *r, uint64_t element);

/* Philox4x32-10 itself. */
void wh_rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Element `i` of a pseudo-random permutation of 0..n-1 that depends on (seed, epoch) alone: a four-round Feistel network
 * with cycle walking, so that a shuffle needs no memory and resumes from one index. n >= 1. */
uint64_t wh_rng_permute(uint64_t seed, uint32_t epoch, uint64_t n, uint64_t i);

#endif
