/* Ranks and where they stand: rank <-> coordinates, and the groups that talk to each other along an axis.
 *
 * World = dp * cp * tp * pp. tp runs fastest, then cp, dp, pp, so that the ranks of one tensor group are neighbours and
 * stay within a machine:
 *
 *     rank = tp + TP * (cp + CP * (dp + DP * pp))
 *
 * Experts (ep divides DP * CP) share out the ranks that hold the same layers and the same tensor slice: consecutive ones
 * along (cp, dp) hold different experts, those `ep` apart hold the same.
 *
 * Every rank stands in exactly one group per axis. Groups of an axis are numbered by their smallest member; members are in
 * ascending order. Pure arithmetic: nothing is stored per rank, no call fails or allocates (printing apart).
 *
 *     struct wh_mesh m;
 *     wh_mesh_init(&(struct wh_mesh_degrees){.dp = 8, .cp = 1, .tp = 8, .pp = 16, .ep = 1}, 8, &m, &faults);
 *     uint32_t next = wh_mesh_member(&m, WH_AXIS_PP, rank, wh_mesh_position(&m, WH_AXIS_PP, rank) + 1);
 *
 * Source: LAB A7, DESIGN 3. */
#ifndef WH_MESH_MESH_H
#define WH_MESH_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/faults.h"
#include "base/text.h"

enum wh_mesh_axis {
    WH_AXIS_TP,    /* tensor: slices of one matrix */
    WH_AXIS_CP,    /* context: chunks of one sequence */
    WH_AXIS_DP,    /* data: replicas */
    WH_AXIS_PP,    /* pipeline: stages */
    WH_AXIS_EP,    /* experts: different experts */
    WH_AXIS_EDP,   /* experts: replicas of the same experts */
    WH_AXIS_DATA,  /* dp and cp together: whoever sums the gradients of the same weights */
    WH_AXIS_MODEL, /* tp and pp together: the pieces of one replica */
    WH_AXIS_STAGE, /* all ranks of one pipeline stage */
    WH_AXIS_WORLD,
    WH_AXIS_COUNT
};

enum { WH_MESH_WORLD_MAX = 1 << 20 };

struct wh_mesh_degrees {
    uint32_t dp, cp, tp, pp, ep;
};

struct wh_mesh {
    struct wh_mesh_degrees degrees;
    uint32_t world;
    uint32_t ranks_per_machine; /* consecutive ranks share a machine; the last machine may hold fewer */
};

struct wh_mesh_place {
    uint32_t tp, cp, dp, pp;
    uint32_t ep; /* which share of the experts */
};

/* `ranks_per_machine` 0: all on one. Adds a fault per impossible degree (0, world above WH_MESH_WORLD_MAX, ep that does
 * not divide dp * cp, with the nearest that do) and then leaves *out alone. Returns whether *out was written. */
bool wh_mesh_init(const struct wh_mesh_degrees *degrees, uint32_t ranks_per_machine, struct wh_mesh *out,
                  struct wh_faults *faults);

/* rank < world, coordinates below their degrees; anything else is a bug (assert). */
struct wh_mesh_place wh_mesh_place(const struct wh_mesh *m, uint32_t rank);
uint32_t wh_mesh_rank(const struct wh_mesh *m, const struct wh_mesh_place *place); /* place.ep is not read */

uint32_t wh_mesh_group_size(const struct wh_mesh *m, enum wh_mesh_axis axis);
uint32_t wh_mesh_group_count(const struct wh_mesh *m, enum wh_mesh_axis axis);
/* Number of the rank's group, and its place among the members. */
uint32_t wh_mesh_group(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t rank);
uint32_t wh_mesh_position(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t rank);
/* Member `position` of the rank's group; of group number `group`. */
uint32_t wh_mesh_member(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t rank, uint32_t position);
uint32_t wh_mesh_group_member(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group, uint32_t position);

uint32_t wh_mesh_machine(const struct wh_mesh *m, uint32_t rank);
uint32_t wh_mesh_machine_count(const struct wh_mesh *m);
/* Members of the group live on more than one machine. */
bool wh_mesh_group_crosses(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group);

const char *wh_mesh_axis_name(enum wh_mesh_axis axis); /* "tp" */

/* Members of a group as text: "0-7", "0,8,16..56" (first, second .. last of an even stride), "0,1,8,9". */
void wh_mesh_print_group(const struct wh_mesh *m, enum wh_mesh_axis axis, uint32_t group, struct wh_text *out);
/* One line: "1024 ranks = dp 8 * cp 1 * tp 8 * pp 16, 8 ranks per machine, 128 machines". */
void wh_mesh_print(const struct wh_mesh *m, struct wh_text *out);

#endif
