#include "sched/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "sched/build.h"

enum { FAULTS_MAX = 50, WORD_BYTES = 64, DIGITS_MAX = 9, LINE_CHARS = 100 };
enum key { RANKS, MICRO_BATCHES, CHUNKS, PLACEMENT, MESSAGES, KEYS };
static const char *const key_names[KEYS] = {"ranks", "micro-batches", "chunks", "placement", "messages"};

struct reader {
    const char *at, *end, *file;
    int line;
    struct wh_faults *faults;
    size_t before;  /* faults that others have found */
    int seen[KEYS]; /* line of each key */
    uint32_t value[KEYS];
    bool derived;               /* messages derived */
    bool sizes;                 /* the header's sizes are legal */
    struct wh_sched_plan plan;  /* programs as written */
    int *rank_line;             /* [ranks] where its program begins, 0: nowhere yet */
    struct wh_sched_builder *b; /* program being read; NULL: none */
    struct wh_sched_builder builder;
    bool no_memory, gave_up;
};

/* A word of the line being read, cut to what messages show. */
struct word {
    char text[WORD_BYTES];
    bool cut;
};

#define FAULT(r, ...)                                                                       \
    do {                                                                                    \
        if (may_complain(r)) wh_faults_add((r)->faults, (r)->file, (r)->line, __VA_ARGS__); \
    } while (0)

static bool may_complain(struct reader *r) {
    size_t count = r->faults->count - r->before;
    if (count == FAULTS_MAX && !r->gave_up) {
        wh_faults_add(r->faults, r->file, r->line, "too many faults; the rest isn't read");
        r->gave_up = true;
    }
    return !r->gave_up;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == ','; }

/* False at the end of the line or at a comment. */
static bool next_word(struct reader *r, struct word *out) {
    size_t bytes = 0;
    while (r->at < r->end && is_blank(*r->at)) r->at++;
    while (r->at < r->end && *r->at != '\n' && *r->at != '#' && !is_blank(*r->at)) {
        unsigned char c = (unsigned char)*r->at++;
        if (bytes < WORD_BYTES - 1) out->text[bytes] = (char)(c < ' ' || c > '~' ? '?' : c);
        bytes++;
    }
    out->cut = bytes >= WORD_BYTES;
    out->text[bytes < WORD_BYTES ? bytes : WORD_BYTES - 1] = '\0';
    return bytes > 0;
}

static void skip_line(struct reader *r) {
    const char *end = r->at < r->end ? memchr(r->at, '\n', (size_t)(r->end - r->at)) : NULL;
    r->at = end ? end + 1 : r->end;
    r->line++;
}

static void expect_end_of_line(struct reader *r) {
    struct word w;
    if (next_word(r, &w)) FAULT(r, "'%s' is one word too many", w.text);
}

/* Digits from *at on; false if there are none or too many. */
static bool read_number(const char **at, uint32_t *out) {
    const char *p = *at;
    uint32_t n = 0;
    while (isdigit((unsigned char)*p) && p - *at < DIGITS_MAX) n = n * 10 + (uint32_t)(*p++ - '0');
    if (p == *at || isdigit((unsigned char)*p)) return false;
    *at = p;
    *out = n;
    return true;
}

/* ---- header ---- */

static void read_choice(struct reader *r, enum key key, const struct word *w) {
    static const char *const choices[KEYS][2] = {[PLACEMENT] = {"loop", "v"}, [MESSAGES] = {"derived", "written"}};
    const char *const *choice = choices[key];
    r->value[key] = strcmp(w->text, choice[1]) == 0;
    if (key == MESSAGES) r->derived = strcmp(w->text, choice[0]) == 0;
    if (!r->value[key] && strcmp(w->text, choice[0]) != 0)
        FAULT(r, "%s %s: %s or %s is wanted", key_names[key], w->text, choice[0], choice[1]);
}

static void read_size(struct reader *r, enum key key, const struct word *w) {
    const char *at = w->text;
    uint32_t n = 0;
    if (read_number(&at, &n) && !*at && n > 0)
        r->value[key] = n;
    else
        FAULT(r, "%s %s: a whole number above 0 is wanted", key_names[key], w->text);
}

static void read_key(struct reader *r, const struct word *w) {
    struct word value;
    enum key key = RANKS;
    while (key < KEYS && strcmp(key_names[key], w->text) != 0) key++;
    if (key == KEYS) {
        const char *nearest = wh_text_nearest(w->text, key_names, KEYS);
        if (nearest)
            FAULT(r, "unknown word '%s'; did you mean '%s'?", w->text, nearest);
        else
            FAULT(r, "unknown word '%s'; ranks, micro-batches, chunks, placement, messages and rank are known",
                  w->text);
    } else if (r->sizes) {
        FAULT(r, "%s belongs before the first 'rank'", key_names[key]);
    } else if (r->seen[key]) {
        FAULT(r, "%s is given twice; first in line %d", key_names[key], r->seen[key]);
    } else {
        r->seen[key] = r->line;
        if (!next_word(r, &value)) {
            FAULT(r, "%s wants a value", key_names[key]);
            return;
        }
        if (key >= PLACEMENT)
            read_choice(r, key, &value);
        else
            read_size(r, key, &value);
        expect_end_of_line(r);
    }
}

/* At the first 'rank': without sizes no instruction can be read. */
static void begin_programs(struct reader *r) {
    struct wh_text why = {0};
    bool given = r->value[RANKS] && r->value[MICRO_BATCHES] && (r->value[CHUNKS] || !r->seen[CHUNKS]);
    if (!r->seen[CHUNKS]) r->value[CHUNKS] = 1;
    if (!r->seen[RANKS] || !r->seen[MICRO_BATCHES] || !r->seen[MESSAGES])
        FAULT(r, "before the first 'rank' must be said:%s%s%s", r->seen[RANKS] ? "" : " ranks N",
              r->seen[MICRO_BATCHES] ? "" : " micro-batches N", r->seen[MESSAGES] ? "" : " messages derived|written");
    if (given && !wh_sched_sizes_legal(r->value[RANKS], r->value[MICRO_BATCHES], r->value[CHUNKS], &why))
        FAULT(r, "%s", why.data);
    if (given && !why.bytes) {
        struct wh_sched_shape s = {r->value[RANKS], r->value[MICRO_BATCHES], r->value[CHUNKS],
                                   (enum wh_sched_placement)r->value[PLACEMENT]};
        r->rank_line = calloc(s.ranks, sizeof *r->rank_line);
        r->no_memory = !r->rank_line || wh_sched_plan_alloc(&s, &r->plan) != WH_OK;
        r->sizes = !r->no_memory;
    }
    wh_text_fini(&why);
    if (!r->sizes) r->gave_up = true; /* what follows can't be judged */
}

/* ---- programs ---- */

static void end_program(struct reader *r) {
    if (!r->b) return;
    r->plan.rank[r->b->rank] = r->b->program;
    r->no_memory |= r->b->no_memory;
    r->b = NULL;
}

static void read_rank(struct reader *r) {
    struct word w;
    uint32_t rank = 0;
    if (!r->sizes) begin_programs(r);
    if (!r->sizes) return;
    end_program(r);
    bool given = next_word(r, &w);
    const char *at = w.text;
    if (!given || !read_number(&at, &rank) || *at || rank >= r->plan.shape.ranks) {
        FAULT(r, "rank%s%s: 0 to %" PRIu32 " is wanted", given ? " " : "", given ? w.text : "",
              r->plan.shape.ranks - 1);
        return;
    }
    if (r->rank_line[rank]) {
        FAULT(r, "rank %" PRIu32 " has a program already, in line %d", rank, r->rank_line[rank]);
        return;
    }
    r->rank_line[rank] = r->line;
    r->builder = (struct wh_sched_builder){.shape = r->plan.shape, .rank = rank};
    r->b = &r->builder;
    expect_end_of_line(r);
}

/* A mark, with no other letter behind it. */
static int read_mark(const char **at) {
    for (int op = 0; op < WH_SCHED_OP_COUNT; op++) {
        size_t bytes = strlen(wh_sched_ops[op].mark);
        if (strncmp(*at, wh_sched_ops[op].mark, bytes) != 0 || isalpha((unsigned char)(*at)[bytes])) continue;
        *at += bytes;
        return op;
    }
    return -1;
}

static bool read_chunk(struct reader *r, const char **at, const struct word *w, struct wh_sched_instr *i) {
    uint32_t chunks = r->plan.shape.chunks;
    bool given = islower((unsigned char)**at);
    if (!given && chunks == 1) return true;
    if (given && (uint32_t)(**at - 'a') < chunks) {
        i->chunk = (uint16_t)(*(*at)++ - 'a');
        return true;
    }
    FAULT(r, "'%s': %s is wanted behind the micro-batch: a to %c", w->text, given ? "another chunk" : "a chunk",
          'a' + (int)chunks - 1);
    return false;
}

/* ">1" behind what is sent, "<1" behind what is received; may be left out. */
static bool read_peer(struct reader *r, const char **at, const struct word *w, struct wh_sched_instr *i) {
    enum wh_sched_message message = wh_sched_ops[i->op].message;
    char sign = message == WH_SCHED_SENDS ? '>' : message == WH_SCHED_RECEIVES ? '<' : '\0';
    i->peer = wh_sched_peer(&r->plan.shape, r->b->rank, (enum wh_sched_op)i->op, i->chunk);
    if (!**at) return true;
    uint32_t peer = 0;
    const char *digits = *at + 1;
    if (!sign || **at != sign || !read_number(&digits, &peer) || *digits || peer >= r->plan.shape.ranks) {
        FAULT(r, "'%s': '%s' isn't understood", w->text, *at);
        return false;
    }
    i->peer = peer;
    return true;
}

static void read_instr(struct reader *r, const struct word *w) {
    struct wh_sched_instr i = {.act = WH_SCHED_NO_SLOT, .grad = WH_SCHED_NO_SLOT, .line = (uint32_t)r->line};
    const char *at = w->text;
    int op = w->cut ? -1 : read_mark(&at);
    if (op < 0) {
        FAULT(r, "'%s': F, B, I, W, SA, RA, SG, RG, PA or PG and a micro-batch are wanted, as in F0", w->text);
        return;
    }
    i.op = (uint16_t)op;
    if (!read_number(&at, &i.micro_batch) || i.micro_batch >= r->plan.shape.micro_batches) {
        FAULT(r, "'%s': micro-batches are 0 to %" PRIu32, w->text, r->plan.shape.micro_batches - 1);
        return;
    }
    if (!read_chunk(r, &at, w, &i) || !read_peer(r, &at, w, &i)) return;
    if (!wh_sched_computes((enum wh_sched_op)op) && r->derived)
        FAULT(r, "'%s': with 'messages derived' programs hold F, B, I and W only", w->text);
    else
        wh_sched_append(r->b, &i);
}

static void read_line(struct reader *r) {
    struct word w;
    if (!next_word(r, &w)) return;
    if (strcmp(w.text, "rank") == 0) {
        read_rank(r);
    } else if (islower((unsigned char)w.text[0])) {
        read_key(r, &w);
    } else if (r->b) {
        do {
            read_instr(r, &w);
        } while (next_word(r, &w));
    } else if (!r->sizes || r->faults->count == r->before) { /* behind a faulty 'rank' that has been told already */
        FAULT(r, "'%s' belongs behind a line 'rank N'", w.text);
    }
}

static bool read_first_line(struct reader *r) {
    static const char *const wanted[] = {"wanhe", "schedule", "1"};
    struct word w;
    bool good = next_word(r, &w);
    while (!good && r->at < r->end) {
        skip_line(r);
        good = next_word(r, &w);
    }
    for (int i = 0; good && i < 3; i++) good = (i == 0 || next_word(r, &w)) && strcmp(w.text, wanted[i]) == 0;
    if (good)
        expect_end_of_line(r);
    else
        FAULT(r, "this is no schedule of a known version: it should begin with 'wanhe schedule 1'");
    return good;
}

static void check_complete(struct reader *r) {
    if (r->gave_up || r->no_memory) return;
    if (!r->sizes) {
        FAULT(r, "there is no 'rank'");
        return;
    }
    for (uint32_t rank = 0; rank < r->plan.shape.ranks; rank++)
        if (!r->rank_line[rank]) FAULT(r, "rank %" PRIu32 " has no program", rank);
}

static void read_text(struct reader *r) {
    if (!read_first_line(r)) return;
    for (skip_line(r); r->at < r->end && !r->gave_up && !r->no_memory; skip_line(r)) read_line(r);
    if (r->sizes) end_program(r);
    check_complete(r);
}

bool wh_sched_parse(const char *text, size_t bytes, const char *file, struct wh_sched_plan *out,
                    struct wh_faults *faults) {
    struct reader r = {.at = text, .end = text + bytes, .file = file, .line = 1, .faults = faults};
    r.before = faults->count;
    if (bytes > WH_SCHED_TEXT_BYTES_MAX)
        wh_faults_add(faults, file, 0, "%zu bytes; %d are the most", bytes, WH_SCHED_TEXT_BYTES_MAX);
    else
        read_text(&r);
    bool good = faults->count == r.before && !r.no_memory;
    if (good && r.derived) r.no_memory = wh_sched_connect(&r.plan) != WH_OK;
    if (good && !r.no_memory) r.no_memory = wh_sched_place(&r.plan) != WH_OK;
    if (r.no_memory) wh_faults_add(faults, file, 0, "no memory for the schedule");
    free(r.rank_line);
    if (good && !r.no_memory)
        *out = r.plan;
    else
        wh_sched_plan_free(&r.plan);
    return good && !r.no_memory;
}

/* ---- writing ---- */

static void print_program(const struct wh_sched_plan *p, uint32_t rank, bool derived, struct wh_text *out) {
    size_t line = out->bytes;
    const char *gap = "";
    for (size_t n = 0; n < p->rank[rank].count; n++) {
        const struct wh_sched_instr *i = &p->rank[rank].instrs[n];
        if (derived && !wh_sched_computes((enum wh_sched_op)i->op)) continue;
        wh_text_add(out, "%s", gap);
        if (out->bytes - line > LINE_CHARS) {
            out->data[out->bytes - 1] = '\n';
            line = out->bytes;
        }
        wh_sched_label(&p->shape, i, out);
        gap = " ";
    }
    wh_text_add(out, "\n");
}

void wh_sched_print(const struct wh_sched_plan *p, bool derived, struct wh_text *out) {
    const struct wh_sched_shape *s = &p->shape;
    wh_text_add(out,
                "wanhe schedule 1\nranks %" PRIu32 "\nmicro-batches %" PRIu32 "\nchunks %" PRIu32
                "\nplacement %s\nmessages %s\n",
                s->ranks, s->micro_batches, s->chunks, wh_sched_placement_name(s->placement),
                derived ? "derived" : "written");
    for (uint32_t r = 0; r < s->ranks; r++) {
        wh_text_add(out, "\nrank %" PRIu32 "\n", r);
        print_program(p, r, derived, out);
    }
}
