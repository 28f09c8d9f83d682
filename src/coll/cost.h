/* What a plan costs on a topology: walks through its rounds with a clock for each rank and each port.
 *
 * Model. A message takes message_s + bytes / bytes_per_s of its sender's port outwards and of its receiver's inwards;
 * ports share their rate among the messages of a round, so a message is through when the busier of its two ports is
 * through with the round, and arrives latency_s later. It starts when both ranks are in the round. A rank leaves the
 * round when its sends are through, its receives have arrived and its copies and additions are done. (That the busiest
 * port decides is what an ideal schedule reaches; the order of messages in a list plays no part.) Between machines, ports
 * may belong to the ranks or be one per machine.
 *
 * Half-duplex links are those between processes of a machine, where ports are processors that copy: a port has one lane for
 * both directions. A message is put into a pipe by its sender and taken out behind it by its receiver, piece by piece:
 * message_s + a piece / rate later at the least. Or, if it is long and lies in the arena (IN and OUT of a call there; never
 * LANDING, PARTIAL), it is *placed*: its receiver copies it from where it lies, at another rate, in its own time alone, and
 * its sender stays in the round until it has heard of that, latency_s later.
 *
 *     ring all-reduce:  2(n-1) (latency + S/n / rate) + (n-1)/n S add          S bytes, message_s = 0
 *     direct:           2 latency + 2(n-1)/n S / rate + (n-1)/n S add
 *
 * and no plan without additions on the way beats 2(n-1)/n S / rate. Cost: the plan's steps. */
#ifndef WH_COLL_COST_H
#define WH_COLL_COST_H

#include "coll/plan.h"

struct wh_coll_link {
    double latency_s;          /* from a byte leaving to its arrival */
    double message_s;          /* of a port's time for each message */
    double bytes_per_s;        /* of a port, each way; of a half-duplex one: of either side of a pipe */
    bool half_duplex;          /* ports are processors that copy: sending and receiving share a port's time */
    double piece_bytes;        /* half-duplex: a receiver begins when the first piece of so many bytes has arrived */
    double placed_bytes_per_s; /* half-duplex: at which a receiver copies a placed message; 0: none are placed */
    double piped_most_bytes;   /* longer ones are placed */
};

struct wh_coll_topology {
    const uint32_t *machine;     /* of each rank; NULL: rank / ranks_per_machine */
    uint32_t ranks_per_machine;  /* 0: all on one */
    bool one_port_per_machine;   /* network: shared by the machine's ranks */
    struct wh_coll_link memory;  /* between ranks of one machine */
    struct wh_coll_link network; /* between machines */
    double copy_s_per_byte;      /* in a rank: per byte copied */
    double add_s_per_byte;       /* in a rank: per byte of the sum (in the format of sums) */
};

struct wh_coll_price {
    double seconds;  /* until the last rank is done */
    double *rank_s;  /* when each rank is done */
    double *round_s; /* when the last rank is done with each of the plan's rounds */
};

/* Errors: NOMEM. The plan is one that wh_coll_check accepts. Free with wh_coll_price_free. */
enum wh_status wh_coll_price(const struct wh_coll_plan *p, const struct wh_coll_topology *t, struct wh_coll_price *out);
void wh_coll_price_free(struct wh_coll_price *price);

/* Typical figures, for pictures; a run measures its own. `ranks_per_machine` as above. */
struct wh_coll_topology wh_coll_topology_typical(uint32_t ranks_per_machine);

static inline uint32_t wh_coll_machine(const struct wh_coll_topology *t, uint32_t rank) {
    if (t->machine) return t->machine[rank];
    return t->ranks_per_machine ? rank / t->ranks_per_machine : 0;
}

#endif
