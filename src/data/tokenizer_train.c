#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_int.h"

/* Layout: every different word once, its symbols in one pool; every pair of neighbours once, with its count over the
 * whole text and the words it was seen in (a superset: words where it was merged away stay listed). The heap may hold a
 * pair several times, with counts of earlier moments; an entry is used only if its count is still the pair's.
 * Invariant: each pair with count >= 2 has a heap entry with a count not below it. */
struct word {
    size_t first; /* in symbols */
    uint32_t length;
    uint64_t count, hash; /* hash of the bytes */
};

struct pair {
    uint32_t left, right;
    uint64_t count;
    uint32_t *where; /* words */
    size_t where_count, where_capacity;
    bool touched; /* on the list of pairs that grew in this merge */
};

struct candidate {
    uint64_t count;
    uint32_t left, right, pair;
};

struct trainer {
    uint32_t *symbols;
    size_t symbol_count, symbol_capacity;
    struct word *words;
    size_t word_count, word_capacity;
    uint32_t *word_slot; /* index + 1 by hash of the bytes; bytes are the symbols before any merge */
    size_t word_slots;
    struct pair *pairs;
    size_t pair_count, pair_capacity;
    uint32_t *pair_slot; /* index + 1 by hash of (left, right) */
    size_t pair_slots;
    struct candidate *heap;
    size_t heap_count, heap_capacity;
    uint32_t *touched;
    size_t touched_count, touched_capacity;
};

static enum wh_status no_memory(void) { return WH_FAIL(WH_NOMEM, "no memory to train a tokenizer"); }

/* Room for `need` elements of `size` bytes behind *array. */
static enum wh_status reserve(void **array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return WH_OK;
    size_t larger = need + need / 2 + 16;
    void *moved = realloc(*array, larger * size);
    if (!moved) return no_memory();
    *array = moved;
    *capacity = larger;
    return WH_OK;
}

#define RESERVE(array, capacity, need) reserve((void **)&(array), &(capacity), (need), sizeof *(array))

static void trainer_free(struct trainer *t) {
    for (size_t i = 0; i < t->pair_count; i++) free(t->pairs[i].where);
    free(t->symbols), free(t->words), free(t->word_slot), free(t->pairs), free(t->pair_slot), free(t->heap);
    free(t->touched);
}

static bool same_word(const struct trainer *t, const struct word *w, const unsigned char *p, size_t n) {
    if (w->length != n) return false;
    for (size_t i = 0; i < n; i++)
        if (t->symbols[w->first + i] != p[i]) return false;
    return true;
}

/* FNV-1a, folded so that the low bits depend on all. */
static uint64_t hash_bytes(const unsigned char *p, size_t n) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* A table twice as large with every item put where its hash says. */
static enum wh_status grow_word_slots(struct trainer *t) {
    if (2 * (t->word_count + 1) <= t->word_slots) return WH_OK;
    size_t slots = t->word_slots ? 2 * t->word_slots : 1 << 14;
    uint32_t *slot = calloc(slots, sizeof *slot);
    if (!slot) return no_memory();
    for (size_t w = 0; w < t->word_count; w++) {
        size_t i = t->words[w].hash & (slots - 1);
        while (slot[i]) i = (i + 1) & (slots - 1);
        slot[i] = (uint32_t)w + 1;
    }
    free(t->word_slot);
    t->word_slot = slot;
    t->word_slots = slots;
    return WH_OK;
}

static enum wh_status count_word(struct trainer *t, const unsigned char *p, size_t n) {
    WH_TRY(grow_word_slots(t));
    const uint64_t hash = hash_bytes(p, n);
    size_t i = hash & (t->word_slots - 1);
    for (; t->word_slot[i]; i = (i + 1) & (t->word_slots - 1)) {
        struct word *w = &t->words[t->word_slot[i] - 1];
        if (!same_word(t, w, p, n)) continue;
        w->count++;
        return WH_OK;
    }
    if (n > UINT32_MAX || t->word_count >= UINT32_MAX - 1) return no_memory();
    WH_TRY(RESERVE(t->words, t->word_capacity, t->word_count + 1));
    WH_TRY(RESERVE(t->symbols, t->symbol_capacity, t->symbol_count + n));
    t->words[t->word_count] = (struct word){t->symbol_count, (uint32_t)n, 1, hash};
    t->word_slot[i] = (uint32_t)++t->word_count;
    for (size_t k = 0; k < n; k++) t->symbols[t->symbol_count++] = p[k];
    return WH_OK;
}

static enum wh_status count_words(struct trainer *t, struct wh_split *split, const char *text, size_t bytes) {
    WH_TRY(wh_tokenizer_check_utf8(text, bytes));
    for (size_t at = 0, n; at < bytes; at += n) {
        WH_TRY(wh_split_next(split, text, bytes, at, &n));
        WH_TRY(count_word(t, (const unsigned char *)text + at, n));
    }
    return WH_OK;
}

static size_t hash_pair(uint32_t left, uint32_t right) {
    return (size_t)((((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u) >> 20);
}

static enum wh_status grow_pair_slots(struct trainer *t) {
    if (2 * (t->pair_count + 1) <= t->pair_slots) return WH_OK;
    size_t slots = t->pair_slots ? 2 * t->pair_slots : 1 << 14;
    uint32_t *slot = calloc(slots, sizeof *slot);
    if (!slot) return no_memory();
    for (size_t p = 0; p < t->pair_count; p++) {
        size_t i = hash_pair(t->pairs[p].left, t->pairs[p].right) & (slots - 1);
        while (slot[i]) i = (i + 1) & (slots - 1);
        slot[i] = (uint32_t)p + 1;
    }
    free(t->pair_slot);
    t->pair_slot = slot;
    t->pair_slots = slots;
    return WH_OK;
}

/* The pair's index; it is made if it is new. */
static enum wh_status find_pair(struct trainer *t, uint32_t left, uint32_t right, uint32_t *out) {
    WH_TRY(grow_pair_slots(t));
    size_t i = hash_pair(left, right) & (t->pair_slots - 1);
    for (; t->pair_slot[i]; i = (i + 1) & (t->pair_slots - 1)) {
        const struct pair *p = &t->pairs[t->pair_slot[i] - 1];
        if (p->left != left || p->right != right) continue;
        *out = t->pair_slot[i] - 1;
        return WH_OK;
    }
    WH_TRY(RESERVE(t->pairs, t->pair_capacity, t->pair_count + 1));
    t->pairs[t->pair_count] = (struct pair){.left = left, .right = right};
    *out = (uint32_t)t->pair_count;
    t->pair_slot[i] = (uint32_t)++t->pair_count;
    return WH_OK;
}

/* One more place of the pair, in word w. */
static enum wh_status add_place(struct trainer *t, uint32_t left, uint32_t right, uint32_t w) {
    uint32_t index;
    WH_TRY(find_pair(t, left, right, &index));
    struct pair *p = &t->pairs[index];
    p->count += t->words[w].count;
    if (!p->touched) {
        WH_TRY(RESERVE(t->touched, t->touched_capacity, t->touched_count + 1));
        t->touched[t->touched_count++] = index;
        p->touched = true;
    }
    if (p->where_count && p->where[p->where_count - 1] == w) return WH_OK;
    WH_TRY(RESERVE(p->where, p->where_capacity, p->where_count + 1));
    p->where[p->where_count++] = w;
    return WH_OK;
}

static enum wh_status drop_place(struct trainer *t, uint32_t left, uint32_t right, uint32_t w) {
    uint32_t index;
    WH_TRY(find_pair(t, left, right, &index));
    t->pairs[index].count -= t->words[w].count;
    return WH_OK;
}

/* The higher count, then the smaller pair: no two pairs are equal, so the order of everything else is free. */
static bool comes_first(const struct candidate *a, const struct candidate *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static enum wh_status heap_push(struct trainer *t, uint32_t pair) {
    const struct pair *p = &t->pairs[pair];
    if (p->count < 2) return WH_OK;
    WH_TRY(RESERVE(t->heap, t->heap_capacity, t->heap_count + 1));
    struct candidate c = {p->count, p->left, p->right, pair};
    size_t i = t->heap_count++;
    for (; i > 0 && comes_first(&c, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
    return WH_OK;
}

static struct candidate heap_pop(struct trainer *t) {
    struct candidate top = t->heap[0], last = t->heap[--t->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heap_count; i = child) {
        if (child + 1 < t->heap_count && comes_first(&t->heap[child + 1], &t->heap[child])) child++;
        if (!comes_first(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

static enum wh_status push_touched(struct trainer *t) {
    for (size_t i = 0; i < t->touched_count; i++) {
        t->pairs[t->touched[i]].touched = false;
        WH_TRY(heap_push(t, t->touched[i]));
    }
    t->touched_count = 0;
    return WH_OK;
}

static enum wh_status count_pairs(struct trainer *t) {
    for (size_t w = 0; w < t->word_count; w++) {
        const uint32_t *s = t->symbols + t->words[w].first;
        for (uint32_t i = 0; i + 1 < t->words[w].length; i++) WH_TRY(add_place(t, s[i], s[i + 1], (uint32_t)w));
    }
    return push_touched(t);
}

/* The best pair there is; *found false: none occurs twice. */
static enum wh_status best_pair(struct trainer *t, uint32_t *out, bool *found) {
    *found = false;
    while (t->heap_count > 0 && !*found) {
        struct candidate c = heap_pop(t);
        uint64_t now = t->pairs[c.pair].count;
        if (c.count == now)
            *found = true, *out = c.pair;
        else if (c.count > now)
            WH_TRY(heap_push(t, c.pair)); /* below: the entry of its last growth is there */
    }
    return WH_OK;
}

/* Replaces left,right by id in word w, from the left. Only pairs beside a replaced place change. */
static enum wh_status merge_in_word(struct trainer *t, uint32_t w, uint32_t left, uint32_t right, uint32_t id) {
    struct word *word = &t->words[w];
    uint32_t *s = t->symbols + word->first, n = 0, length = word->length;
    uint32_t i = 0;
    while (i + 1 < length && (s[i] != left || s[i + 1] != right)) i++;
    if (i + 1 >= length) return WH_OK; /* merged away before */
    for (uint32_t k = 0; k + 1 < length; k++) WH_TRY(drop_place(t, s[k], s[k + 1], w));
    for (i = 0; i < length; n++) {
        bool here = i + 1 < length && s[i] == left && s[i + 1] == right;
        s[n] = here ? id : s[i];
        i += here ? 2 : 1;
    }
    word->length = n;
    for (uint32_t k = 0; k + 1 < n; k++) {
        uint32_t index;
        bool grew = s[k] == id || s[k + 1] == id;
        if (grew)
            WH_TRY(add_place(t, s[k], s[k + 1], w));
        else {
            WH_TRY(find_pair(t, s[k], s[k + 1], &index));
            t->pairs[index].count += word->count;
        }
    }
    return WH_OK;
}

static enum wh_status merge_everywhere(struct trainer *t, uint32_t pair, uint32_t id) {
    struct pair p = t->pairs[pair]; /* its list is taken over: the table may move, and the pair is done with */
    t->pairs[pair].where = NULL;
    t->pairs[pair].where_count = t->pairs[pair].where_capacity = 0;
    enum wh_status status = WH_OK;
    for (size_t i = 0; i < p.where_count && status == WH_OK; i++)
        status = merge_in_word(t, p.where[i], p.left, p.right, id);
    free(p.where);
    return status == WH_OK ? push_touched(t) : status;
}

/* The entry of left + right. Two ways to the same bytes are one entry, as in Hugging Face's trainer. */
static enum wh_status make_entry(struct wh_vocab *v, uint32_t left, uint32_t right, uint32_t *id) {
    size_t n, k;
    const unsigned char *a = wh_vocab_get(v, left, &n), *b = wh_vocab_get(v, right, &k);
    unsigned char *both = malloc(n + k);
    if (!both) return no_memory();
    memcpy(both, a, n);
    memcpy(both + n, b, k);
    enum wh_status status = WH_OK;
    if (!wh_vocab_find(v, both, n + k, id)) {
        *id = v->count;
        status = wh_vocab_add(v, *id, both, n + k, true);
    }
    free(both);
    return status;
}

/* Fills the vocabulary and `merges` (*count of them). */
static enum wh_status learn(struct trainer *t, struct wh_vocab *v, uint32_t vocab, struct wh_bpe_merge **merges,
                            size_t *count) {
    size_t capacity = 0;
    WH_TRY(count_pairs(t));
    while (v->count + 1 < vocab) { /* one is kept for the end of text */
        uint32_t pair;
        bool found;
        WH_TRY(best_pair(t, &pair, &found));
        if (!found) break;
        struct wh_bpe_merge m = {t->pairs[pair].left, t->pairs[pair].right, (uint32_t)*count, 0};
        WH_TRY(make_entry(v, m.left, m.right, &m.id));
        WH_TRY(RESERVE(*merges, capacity, *count + 1));
        (*merges)[(*count)++] = m;
        WH_TRY(merge_everywhere(t, pair, m.id));
    }
    return WH_OK;
}

static enum wh_status train_into(struct wh_tokenizer *k, struct trainer *t, const char *const *texts,
                                 const size_t *bytes, size_t count, uint32_t vocab, struct wh_bpe_merge **merges) {
    struct wh_split split;
    size_t n = 0;
    WH_TRY(wh_split_new(WH_SPLIT_GPT2, &split));
    enum wh_status status = WH_OK;
    for (size_t i = 0; i < count && status == WH_OK; i++) status = count_words(t, &split, texts[i], bytes[i]);
    wh_split_free(&split);
    WH_TRY(status);
    for (uint32_t b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        WH_TRY(wh_vocab_add(&k->vocab, b, &byte, 1, true));
    }
    WH_TRY(learn(t, &k->vocab, vocab, merges, &n));
    WH_TRY(wh_vocab_mark_added(&k->vocab, k->vocab.count, WH_END_OF_TEXT, strlen(WH_END_OF_TEXT), true));
    WH_TRY(wh_tokenizer_prepare(k, "trained tokenizer", (uint32_t)n));
    for (size_t i = 0; i < n; i++) wh_bpe_add_merge(&k->bpe, &(*merges)[i]);
    return WH_OK;
}

enum wh_status wh_tokenizer_train(const char *const *texts, const size_t *bytes, size_t count, uint32_t vocab,
                                  struct wh_tokenizer **out) {
    struct trainer t = {0};
    struct wh_bpe_merge *merges = NULL;
    if (vocab < 257 || vocab > WH_VOCAB_MAX)
        return WH_FAIL(WH_USAGE,
                       "a trained vocabulary has 257 to %d entries (256 bytes and the end of text), not %" PRIu32,
                       WH_VOCAB_MAX, vocab);
    struct wh_tokenizer *k = wh_tokenizer_new();
    if (!k) return no_memory();
    k->kind = WH_SPLIT_GPT2;
    enum wh_status status = train_into(k, &t, texts, bytes, count, vocab, &merges);
    trainer_free(&t);
    free(merges);
    if (status == WH_OK)
        *out = k;
    else
        wh_tokenizer_close(k);
    return status;
}
