#include <float.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "coll/links.h"

static const char schema[] = "wanhe.links/2";

/* Members of the whole and of a level, for reader and writer. */
struct member {
    const char *name;
    size_t offset;
    bool may_be_zero;
};
#define WHOLE(field) offsetof(struct wh_coll_links, field)
#define LEVEL(field) offsetof(struct wh_coll_level, field)
static const struct member whole[] = {{"latency_s", WHOLE(latency_s), true},
                                      {"message_s", WHOLE(message_s), true},
                                      {"piece_bytes", WHOLE(piece_bytes), true},
                                      {"piped_most_bytes", WHOLE(piped_most_bytes), true},
                                      {"arena_start_s", WHOLE(start_s[WH_COLL_SHARED]), true},
                                      {"staged_start_s", WHOLE(start_s[WH_COLL_STAGED]), true}};
static const struct member level[] = {{"piped_s_per_byte", LEVEL(piped), false},
                                      {"placed_s_per_byte", LEVEL(placed), false},
                                      {"copy_s_per_byte", LEVEL(copy), true},
                                      {"add_s_per_byte", LEVEL(add), true},
                                      {"arena_all_reduce_s_per_byte", LEVEL(way[WH_COLL_SHARED][0]), true},
                                      {"arena_reduce_scatter_s_per_byte", LEVEL(way[WH_COLL_SHARED][1]), true},
                                      {"arena_all_gather_s_per_byte", LEVEL(way[WH_COLL_SHARED][2]), true},
                                      {"staged_all_reduce_s_per_byte", LEVEL(way[WH_COLL_STAGED][0]), true},
                                      {"staged_reduce_scatter_s_per_byte", LEVEL(way[WH_COLL_STAGED][1]), true},
                                      {"staged_all_gather_s_per_byte", LEVEL(way[WH_COLL_STAGED][2]), true}};
enum { WHOLES = sizeof whole / sizeof *whole, LEVELS = sizeof level / sizeof *level };

static void write_members(const void *from, const struct member *m, size_t count, json_t *to) {
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)from + m[i].offset, sizeof value);
        json_object_set_new(to, m[i].name, json_real(value));
    }
}

void wh_coll_links_write(const struct wh_coll_links *l, struct wh_text *out) {
    json_t *o = json_pack("{sssssI}", "schema", schema, "machine", l->machine, "ranks", (json_int_t)l->ranks);
    json_t *levels = json_array();
    write_members(l, whole, WHOLES, o);
    for (uint32_t i = 0; i < l->level_count; i++) {
        json_t *at = json_pack("{sI}", "bytes", (json_int_t)l->level[i].bytes);
        write_members(&l->level[i], level, LEVELS, at);
        json_array_append_new(levels, at);
    }
    json_object_set_new(o, "levels", levels);
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    WH_ASSERT(text != NULL); /* no memory: as wh_text_add */
    wh_text_add(out, "%s\n", text);
    free(text);
    json_decref(o);
}

static enum wh_status read_members(const json_t *from, const char *file, const struct member *m, size_t count,
                                   void *to) {
    for (size_t i = 0; i < count; i++) {
        const json_t *j = json_object_get(from, m[i].name);
        const double value = json_number_value(j);
        const bool fits = json_is_number(j) && value >= (m[i].may_be_zero ? 0 : DBL_MIN) && value < 1e9;
        if (!fits)
            return WH_FAIL(WH_CONFIG, "%s: %s must be a number %s 0 and below 1e9", file, m[i].name,
                           m[i].may_be_zero ? "at least" : "above");
        const double positive = value + 0.0; /* -0 becomes 0 */
        memcpy((char *)to + m[i].offset, &positive, sizeof positive);
    }
    return WH_OK;
}

static enum wh_status read_count(const json_t *from, const char *file, const char *name, json_int_t least,
                                 json_int_t most, uint64_t *out) {
    const json_t *j = json_object_get(from, name);
    if (!json_is_integer(j) || json_integer_value(j) < least || json_integer_value(j) > most)
        return WH_FAIL(WH_CONFIG, "%s: %s must be a whole number from %lld to %lld", file, name, (long long)least,
                       (long long)most);
    *out = (uint64_t)json_integer_value(j);
    return WH_OK;
}

static enum wh_status read_levels(const json_t *list, const char *file, struct wh_coll_links *l) {
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > WH_COLL_LEVELS_MAX)
        return WH_FAIL(WH_CONFIG, "%s: levels must be a list of 1 to %d objects", file, WH_COLL_LEVELS_MAX);
    l->level_count = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < l->level_count; i++) {
        const json_t *j = json_array_get(list, i);
        const json_int_t least = i ? (json_int_t)l->level[i - 1].bytes + 1 : 1;
        WH_TRY(read_count(j, file, "bytes", least, (json_int_t)1 << 50, &l->level[i].bytes));
        WH_TRY(read_members(j, file, level, LEVELS, &l->level[i]));
    }
    return WH_OK;
}

static enum wh_status read_all(const json_t *json, const char *file, struct wh_coll_links *l) {
    const char *is = json_string_value(json_object_get(json, "schema"));
    const char *machine = json_string_value(json_object_get(json, "machine"));
    uint64_t ranks;
    if (!is || strcmp(is, schema) != 0)
        return WH_FAIL(WH_CONFIG, "%s is no file of `wanhe tune`: its schema is not %s", file, schema);
    if (!machine || strlen(machine) >= sizeof l->machine || strchr(machine, '\n'))
        return WH_FAIL(WH_CONFIG, "%s: machine must be a text of one line, below %zu bytes", file, sizeof l->machine);
    memcpy(l->machine, machine, strlen(machine) + 1);
    WH_TRY(read_count(json, file, "ranks", 1, 1 << 20, &ranks));
    l->ranks = (uint32_t)ranks;
    WH_TRY(read_members(json, file, whole, WHOLES, l));
    return read_levels(json_object_get(json, "levels"), file, l);
}

enum wh_status wh_coll_links_parse(const char *text, size_t bytes, const char *file, struct wh_coll_links *out) {
    struct wh_coll_links l = {0};
    json_error_t e;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!json) return WH_FAIL(WH_CONFIG, "%s:%d: %s", file, e.line, e.text);
    const enum wh_status status = read_all(json, file, &l);
    json_decref(json);
    if (status == WH_OK) *out = l;
    return status;
}
