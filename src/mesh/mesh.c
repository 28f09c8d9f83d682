#include "mesh/mesh.h"

#include <inttypes.h>

/* An axis as a walk through the ranks: member k = first + k % inner * inner_stride + k / inner * outer_stride. */
struct walk {
    uint32_t inner, inner_stride, outer, outer_stride;
};

static struct walk walk(const struct wh_mesh *m, enum wh_mesh_axis axis) {
    const struct wh_mesh_degrees *d = &m->degrees;
    const uint32_t data = d->cp * d->dp, stage = d->tp * data;
    switch (axis) {
    case WH_AXIS_TP:
        return (struct walk){d->tp, 1, 1, 0};
    case WH_AXIS_CP:
        return (struct walk){d->cp, d->tp, 1, 0};
    case WH_AXIS_DP:
        return (struct walk){d->dp, d->tp * d->cp, 1, 0};
    case WH_AXIS_PP:
        return (struct walk){d->pp, stage, 1, 0};
    case WH_AXIS_EP:
        return (struct walk){d->ep, d->tp, 1, 0};
    case WH_AXIS_EDP:
        return (struct walk){data / d->ep, d->tp * d->ep, 1, 0};
    case WH_AXIS_DATA:
        return (struct walk){data, d->tp, 1, 0};
    case WH_AXIS_MODEL:
        return (struct walk){d->tp, 1, d->pp, stage};
    case WH_AXIS_STAGE:
        return (struct walk){stage, 1, 1, 0};
    case WH_AXIS_WORLD:
        return (struct walk){m->world, 1, 1, 0};
    case WH_AXIS_COUNT:
        break;
    }
    WH_ASSERT(axis < WH_AXIS_COUNT);
    return (struct walk){1, 1, 1, 0};
}

/* --- degrees --- */

static void check_ep(const struct wh_mesh_degrees *d, struct wh_faults *faults) {
    const uint64_t data = (uint64_t)d->dp * d->cp;
    if (data % d->ep == 0) return;
    uint64_t below = d->ep < data ? d->ep : data, above = d->ep;
    while (data % below) below--;
    while (above < data && data % above) above++;
    if (above < data || (above == data && below != data))
        wh_faults_add(faults, NULL, 0,
                      "ep %u does not divide dp %u * cp %u = %" PRIu64 "; nearest legal: %" PRIu64 " or %" PRIu64,
                      d->ep, d->dp, d->cp, data, below, above);
    else
        wh_faults_add(faults, NULL, 0, "ep %u does not divide dp %u * cp %u = %" PRIu64 "; nearest legal: %" PRIu64,
                      d->ep, d->dp, d->cp, data, below);
}

bool wh_mesh_init(const struct wh_mesh_degrees *d, uint32_t ranks_per_machine, struct wh_mesh *out,
                  struct wh_faults *faults) {
    const char *const name[] = {"dp", "cp", "tp", "pp", "ep"};
    const uint32_t degree[] = {d->dp, d->cp, d->tp, d->pp, d->ep};
    const size_t before = faults->count;
    uint64_t world = 1;
    for (int i = 0; i < 5; i++) {
        if (degree[i] == 0) wh_faults_add(faults, NULL, 0, "%s 0: a degree is at least 1", name[i]);
        /* once it is too large it stays so: the next factor can't wrap it around */
        if (i < 4 && world <= WH_MESH_WORLD_MAX) world *= degree[i];
    }
    if (faults->count != before) return false;
    if (world > WH_MESH_WORLD_MAX)
        wh_faults_add(faults, NULL, 0, "dp %u * cp %u * tp %u * pp %u are more than %d ranks", d->dp, d->cp, d->tp,
                      d->pp, WH_MESH_WORLD_MAX);
    else
        check_ep(d, faults);
    if (faults->count != before) return false;
    *out = (struct wh_mesh){*d, (uint32_t)world, ranks_per_machine ? ranks_per_machine : (uint32_t)world};
    return true;
}

/* --- ranks --- */

struct wh_mesh_place wh_mesh_place(const struct wh_mesh *m, uint32_t rank) {
    const struct wh_mesh_degrees *d = &m->degrees;
    WH_ASSERT(rank < m->world);
    const uint32_t behind_tp = rank / d->tp, behind_cp = behind_tp / d->cp, behind_dp = behind_cp / d->dp;
    return (struct wh_mesh_place){.tp = rank % d->tp,
                                  .cp = behind_tp % d->cp,
                                  .dp = behind_cp % d->dp,
                                  .pp = behind_dp,
                                  .ep = behind_tp % (d->cp * d->dp) % d->ep};
}

uint32_t wh_mesh_rank(const struct wh_mesh *m, const struct wh_mesh_place *p) {
    const struct wh_mesh_degrees *d = &m->degrees;
    WH_ASSERT(p->tp < d->tp && p->cp < d->cp && p->dp < d->dp && p->pp < d->pp);
    return p->tp + d->tp * (p->cp + d->cp * (p->dp + d->dp * p->pp));
}

/* --- groups --- */

/* Between the strides of a walk lie ranks of other groups, so a rank is
 *
 *     low + inner_stride * (i + inner * (middle + outer_stride / (inner_stride * inner) * (o + outer * high)))
 *
 * with i and o its place in the group and low, middle, high the group: numbered in this order groups ascend with their
 * smallest member. A walk of one level has outer = 1 and no middle. */
struct stand {
    uint32_t group, position, first;
};

static struct stand stand(const struct walk *w, uint32_t rank) {
    const uint32_t low = rank % w->inner_stride, behind = rank / w->inner_stride;
    const uint32_t i = behind % w->inner, upper = behind / w->inner;
    const uint32_t middles = w->outer > 1 ? w->outer_stride / (w->inner_stride * w->inner) : 1;
    const uint32_t middle = upper % middles, o = upper / middles % w->outer, high = upper / middles / w->outer;
    return (struct stand){.group = low + w->inner_stride * (middle + middles * high),
                          .position = i + w->inner * o,
                          .first = rank - i * w->inner_stride - o * w->outer_stride};
}

static uint32_t member(const struct walk *w, uint32_t first, uint32_t position) {
    WH_ASSERT(position < w->inner * w->outer);
    return first + position % w->inner * w->inner_stride + position / w->inner * w->outer_stride;
}

/* The inverse of stand().group. */
static uint32_t first_of(const struct walk *w, uint32_t group) {
    const uint32_t middles = w->outer > 1 ? w->outer_stride / (w->inner_stride * w->inner) : 1;
    const uint32_t low = group % w->inner_stride, upper = group / w->inner_stride;
    return low + w->inner_stride * w->inner * (upper % middles + middles * w->outer * (upper / middles));
}

uint32_t wh_mesh_group_size(const struct wh_mesh *m, enum wh_mesh_axis axis) {
    const struct walk w = walk(m, axis);
    return w.inner * w.outer;
}

uint32_t wh_mesh_group_count(const struct wh_mesh *m, enum wh_mesh_axis axis) {
    return m->world / wh_mesh_group_size(m, axis);
}

uint32_t wh_mesh_group(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t rank) {
    const struct walk w = walk(m, axis);
    WH_ASSERT(rank < m->world);
    return stand(&w, rank).group;
}

uint32_t wh_mesh_position(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t rank) {
    const struct walk w = walk(m, axis);
    WH_ASSERT(rank < m->world);
    return stand(&w, rank).position;
}

uint32_t wh_mesh_member(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t rank, uint32_t position) {
    const struct walk w = walk(m, axis);
    WH_ASSERT(rank < m->world);
    return member(&w, stand(&w, rank).first, position);
}

uint32_t wh_mesh_group_member(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group, uint32_t position) {
    const struct walk w = walk(m, axis);
    WH_ASSERT(group < wh_mesh_group_count(m, axis));
    return member(&w, first_of(&w, group), position);
}

/* --- machines --- */

uint32_t wh_mesh_machine(const struct wh_mesh *m, uint32_t rank) {
    WH_ASSERT(rank < m->world);
    return rank / m->ranks_per_machine;
}

uint32_t wh_mesh_machine_count(const struct wh_mesh *m) { return wh_mesh_machine(m, m->world - 1) + 1; }

bool wh_mesh_group_crosses(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group) {
    const uint32_t last = wh_mesh_group_size(m, axis) - 1;
    return wh_mesh_machine(m, wh_mesh_group_member(m, axis, group, 0)) !=
           wh_mesh_machine(m, wh_mesh_group_member(m, axis, group, last)); /* members ascend, and machines with them */
}

/* --- text --- */

const char *wh_mesh_axis_name(enum wh_mesh_axis axis) {
    static const char *const name[WH_AXIS_COUNT] = {"tp",  "cp",   "dp",    "pp",    "ep",
                                                    "edp", "data", "model", "stage", "world"};
    WH_ASSERT(axis < WH_AXIS_COUNT);
    return name[axis];
}

enum { LISTED_MEMBERS = 8 };

void wh_mesh_print_group(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group, struct wh_text *out) {
    const uint32_t size = wh_mesh_group_size(m, axis);
    const uint32_t first = wh_mesh_group_member(m, axis, group, 0);
    const uint32_t last = wh_mesh_group_member(m, axis, group, size - 1);
    const uint32_t second = size > 1 ? wh_mesh_group_member(m, axis, group, 1) : first;
    const bool even = last - first == (size - 1) * (second - first);
    if (size > 1 && even && second == first + 1) {
        wh_text_add(out, "%u-%u", first, last);
    } else if (even && size > 3) {
        wh_text_add(out, "%u,%u..%u", first, second, last);
    } else if (size <= LISTED_MEMBERS) {
        for (uint32_t k = 0; k < size; k++)
            wh_text_add(out, "%s%u", k ? "," : "", wh_mesh_group_member(m, axis, group, k));
    } else {
        wh_text_add(out, "%u,%u..%u", first, second, last);
    }
}

void wh_mesh_print(const struct wh_mesh *m, struct wh_text *out) {
    const struct wh_mesh_degrees *d = &m->degrees;
    wh_text_add(out, "%u rank%s = dp %u * cp %u * tp %u * pp %u", m->world, m->world == 1 ? "" : "s", d->dp, d->cp,
                d->tp, d->pp);
    if (d->ep > 1) wh_text_add(out, ", experts over %u", d->ep);
    const uint32_t machines = wh_mesh_machine_count(m);
    if (machines > 1) wh_text_add(out, ", %u ranks per machine, %u machines", m->ranks_per_machine, machines);
}
