#include "data/bpe.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { CACHE_SLOTS = 1 << 14, CACHED_WORD_MAX = 32, CACHED_IDS_MAX = 7, NONE = -1 };

struct wh_bpe_node {
    uint32_t id;
    int32_t before, after; /* NONE at the ends; a node merged away has id UINT32_MAX */
};

struct wh_bpe_pair {
    uint32_t rank;
    int32_t at;           /* left node */
    uint32_t left, right; /* ids when the pair was seen: stale if the nodes have changed since */
};

/* One cache line. `bytes` 0: empty. */
struct wh_bpe_cached {
    unsigned char bytes, ids;
    unsigned char word[CACHED_WORD_MAX];
    uint32_t id[CACHED_IDS_MAX];
};

static enum wh_status no_memory(void) { return WH_FAIL(WH_NOMEM, "no memory for token ids"); }

enum wh_status wh_token_list_add(struct wh_token_list *l, const uint32_t *ids, size_t n) {
    if (n > l->capacity - l->count) {
        size_t capacity = l->capacity + l->capacity / 2 + n + 64;
        uint32_t *longer = realloc(l->ids, capacity * sizeof *longer);
        if (!longer) return no_memory();
        l->ids = longer;
        l->capacity = capacity;
    }
    if (n) memcpy(l->ids + l->count, ids, n * sizeof *ids);
    l->count += n;
    return WH_OK;
}

void wh_token_list_fini(struct wh_token_list *l) {
    free(l->ids);
    *l = (struct wh_token_list){0};
}

enum wh_status wh_bpe_init(struct wh_bpe *b, uint32_t merges) {
    *b = (struct wh_bpe){.slots = 16};
    while (b->slots / 2 < merges) b->slots *= 2;
    b->merge = malloc(b->slots * sizeof *b->merge);
    b->cache = calloc(CACHE_SLOTS, sizeof *b->cache);
    if (!b->merge || !b->cache) {
        wh_bpe_free(b);
        return no_memory();
    }
    for (uint32_t i = 0; i < b->slots; i++) b->merge[i].rank = UINT32_MAX;
    return WH_OK;
}

void wh_bpe_free(struct wh_bpe *b) {
    free(b->merge), free(b->cache), free(b->node), free(b->heap);
    *b = (struct wh_bpe){0};
}

/* The slot that holds the pair or is free for it; at least half of all slots are free. */
static uint32_t find_slot(const struct wh_bpe *b, uint32_t left, uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t i = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32) & (b->slots - 1);
    while (b->merge[i].rank != UINT32_MAX && (b->merge[i].left != left || b->merge[i].right != right))
        i = (i + 1) & (b->slots - 1);
    return i;
}

void wh_bpe_add_merge(struct wh_bpe *b, const struct wh_bpe_merge *m) {
    uint32_t i = find_slot(b, m->left, m->right);
    if (b->merge[i].rank == UINT32_MAX) b->filled++;
    WH_ASSERT(b->filled <= b->slots / 2 && m->rank != UINT32_MAX);
    b->merge[i] = *m;
}

const struct wh_bpe_merge *wh_bpe_find_merge(const struct wh_bpe *b, uint32_t left, uint32_t right) {
    const struct wh_bpe_merge *m = &b->merge[find_slot(b, left, right)];
    return m->rank == UINT32_MAX ? NULL : m;
}

static bool comes_first(const struct wh_bpe_pair *a, const struct wh_bpe_pair *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct wh_bpe_pair *heap, size_t *n, struct wh_bpe_pair p) {
    size_t i = (*n)++;
    for (; i > 0 && comes_first(&p, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = p;
}

static struct wh_bpe_pair heap_pop(struct wh_bpe_pair *heap, size_t *n) {
    struct wh_bpe_pair top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && comes_first(&heap[child + 1], &heap[child])) child++;
        if (!comes_first(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static void consider(struct wh_bpe *b, int32_t at, size_t *heap_count) {
    if (at == NONE || b->node[at].after == NONE) return;
    uint32_t left = b->node[at].id, right = b->node[b->node[at].after].id;
    const struct wh_bpe_merge *m = wh_bpe_find_merge(b, left, right);
    if (m) heap_push(b->heap, heap_count, (struct wh_bpe_pair){m->rank, at, left, right});
}

/* A word of n bytes pushes n-1 pairs at first and two for each of at most n-1 merges. */
static enum wh_status reserve(struct wh_bpe *b, size_t bytes) {
    if (bytes <= b->node_capacity) return WH_OK;
    if (bytes > INT32_MAX / 4) return WH_FAIL(WH_DATA, "a word of %zu bytes is too long to encode", bytes);
    struct wh_bpe_node *node = realloc(b->node, bytes * sizeof *node);
    if (node) b->node = node;
    struct wh_bpe_pair *heap = realloc(b->heap, 3 * bytes * sizeof *heap);
    if (heap) b->heap = heap;
    if (!node || !heap) return no_memory();
    b->node_capacity = bytes;
    return WH_OK;
}

static enum wh_status merge_word(struct wh_bpe *b, const unsigned char *word, size_t bytes, struct wh_token_list *out) {
    size_t heap_count = 0, n = 0;
    WH_TRY(reserve(b, bytes));
    struct wh_bpe_node *node = b->node;
    for (size_t i = 0; i < bytes; i++)
        node[i] = (struct wh_bpe_node){b->byte_id[word[i]], (int32_t)i - 1, i + 1 < bytes ? (int32_t)i + 1 : NONE};
    for (size_t i = 0; i < bytes; i++) consider(b, (int32_t)i, &heap_count);
    while (heap_count > 0) {
        struct wh_bpe_pair p = heap_pop(b->heap, &heap_count);
        int32_t right = node[p.at].after;
        if (node[p.at].id != p.left || right == NONE || node[right].id != p.right) continue;
        node[p.at].id = wh_bpe_find_merge(b, p.left, p.right)->id;
        node[p.at].after = node[right].after;
        if (node[right].after != NONE) node[node[right].after].before = p.at;
        node[right].id = UINT32_MAX;
        consider(b, node[p.at].before, &heap_count);
        consider(b, p.at, &heap_count);
    }
    /* node 0 is never merged into another; the heap is empty by now and serves as room for the ids */
    uint32_t *ids = (uint32_t *)b->heap;
    for (int32_t i = 0; i != NONE; i = node[i].after) ids[n++] = node[i].id;
    return wh_token_list_add(out, ids, n);
}

enum wh_status wh_bpe_encode(struct wh_bpe *b, const void *word, size_t bytes, struct wh_token_list *out) {
    if (bytes == 0) return WH_OK;
    if (bytes > CACHED_WORD_MAX) return merge_word(b, word, bytes, out);
    struct wh_bpe_cached *c = &b->cache[XXH3_64bits(word, bytes) % CACHE_SLOTS];
    if (c->bytes == bytes && memcmp(c->word, word, bytes) == 0) return wh_token_list_add(out, c->id, c->ids);
    size_t before = out->count;
    WH_TRY(merge_word(b, word, bytes, out));
    if (out->count - before > CACHED_IDS_MAX) return WH_OK;
    c->bytes = (unsigned char)bytes;
    c->ids = (unsigned char)(out->count - before);
    memcpy(c->word, word, bytes);
    memcpy(c->id, out->ids + before, c->ids * sizeof *c->id);
    return WH_OK;
}
