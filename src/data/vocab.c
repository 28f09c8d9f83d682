#include "data/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static enum wh_status no_memory(void) { return WH_FAIL(WH_NOMEM, "no memory for a vocabulary"); }

/* Room for entry `id`. */
static enum wh_status grow_entries(struct wh_vocab *v, uint32_t id) {
    if (id >= v->capacity) {
        uint32_t capacity = v->capacity ? v->capacity : 512;
        while (capacity <= id) capacity *= 2;
        struct wh_vocab_entry *longer = realloc(v->entry, capacity * sizeof *longer);
        if (!longer) return no_memory();
        memset(longer + v->capacity, 0, (capacity - v->capacity) * sizeof *longer);
        v->entry = longer;
        v->capacity = capacity;
    }
    if (id >= v->count) v->count = id + 1;
    return WH_OK;
}

static enum wh_status grow_pool(struct wh_vocab *v, size_t n) {
    if (n <= v->pool_capacity - v->pool_bytes) return WH_OK;
    size_t capacity = 2 * v->pool_capacity + n + 4096;
    unsigned char *longer = realloc(v->pool, capacity);
    if (!longer) return no_memory();
    v->pool = longer;
    v->pool_capacity = capacity;
    return WH_OK;
}

/* The slot that holds these bytes or is free for them. */
static uint32_t find_slot(const struct wh_vocab *v, const void *bytes, size_t n) {
    uint32_t i = (uint32_t)XXH3_64bits(bytes, n) & (v->slots - 1);
    for (; v->slot[i]; i = (i + 1) & (v->slots - 1)) {
        const struct wh_vocab_entry *e = &v->entry[v->slot[i] - 1];
        if (e->bytes == n && memcmp(v->pool + e->offset, bytes, n) == 0) break;
    }
    return i;
}

static enum wh_status grow_slots(struct wh_vocab *v) {
    if (2 * (v->filled + 1) <= v->slots) return WH_OK;
    struct wh_vocab larger = *v;
    larger.slots = v->slots ? 2 * v->slots : 1024;
    larger.slot = calloc(larger.slots, sizeof *larger.slot);
    if (!larger.slot) return no_memory();
    for (uint32_t i = 0; i < v->slots; i++) {
        if (!v->slot[i]) continue;
        const struct wh_vocab_entry *e = &v->entry[v->slot[i] - 1];
        larger.slot[find_slot(&larger, v->pool + e->offset, e->bytes)] = v->slot[i];
    }
    free(v->slot);
    *v = larger;
    return WH_OK;
}

enum wh_status wh_vocab_add(struct wh_vocab *v, uint32_t id, const void *bytes, size_t n, bool text) {
    if (id >= WH_VOCAB_MAX) return WH_FAIL(WH_DATA, "token id %" PRIu32 " is not below %d", id, WH_VOCAB_MAX);
    if (n == 0 || n > UINT32_MAX) return WH_FAIL(WH_DATA, "token id %" PRIu32 " has %zu bytes", id, n);
    WH_TRY(grow_entries(v, id));
    WH_TRY(grow_pool(v, n));
    WH_TRY(grow_slots(v));
    if (v->entry[id].present) return WH_FAIL(WH_DATA, "token id %" PRIu32 " is given twice", id);
    if (text) {
        uint32_t i = find_slot(v, bytes, n);
        if (v->slot[i])
            return WH_FAIL(WH_DATA, "token ids %" PRIu32 " and %" PRIu32 " have the same text", v->slot[i] - 1, id);
        v->slot[i] = id + 1;
        v->filled++;
    }
    memcpy(v->pool + v->pool_bytes, bytes, n);
    v->entry[id] =
        (struct wh_vocab_entry){.offset = v->pool_bytes, .bytes = (uint32_t)n, .present = true, .text = text};
    v->pool_bytes += n;
    return WH_OK;
}

enum wh_status wh_vocab_mark_added(struct wh_vocab *v, uint32_t id, const void *bytes, size_t n, bool special) {
    size_t have;
    const unsigned char *old = wh_vocab_get(v, id, &have);
    if (!old)
        WH_TRY(wh_vocab_add(v, id, bytes, n, false));
    else if (have != n || memcmp(old, bytes, n) != 0)
        return WH_FAIL(WH_DATA, "added token '%.*s' has id %" PRIu32 ", which is another token of the vocabulary",
                       n < 100 ? (int)n : 100, (const char *)bytes, id);
    v->entry[id].added = true;
    v->entry[id].special = special;
    return WH_OK;
}

bool wh_vocab_find(const struct wh_vocab *v, const void *bytes, size_t n, uint32_t *id) {
    if (v->slots == 0) return false;
    uint32_t found = v->slot[find_slot(v, bytes, n)];
    if (!found) return false;
    *id = found - 1;
    return true;
}

const unsigned char *wh_vocab_get(const struct wh_vocab *v, uint32_t id, size_t *n) {
    if (id >= v->count || !v->entry[id].present) return NULL;
    *n = v->entry[id].bytes;
    return v->pool + v->entry[id].offset;
}

void wh_vocab_free(struct wh_vocab *v) {
    free(v->pool);
    free(v->entry);
    free(v->slot);
    *v = (struct wh_vocab){0};
}
