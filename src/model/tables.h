/* A net's tables, private to model: all that start-up works out from the shape alone, before any memory is laid out (layout.c).
 * They are the only allocations of a net besides its two arenas. */
#ifndef WH_MODEL_TABLES_H
#define WH_MODEL_TABLES_H

#include "model/net.h"

/* Of a net with its shape alone: local sizes, slices, sum plans, units, slots, parameters by id. After an error, too,
 * wh_net_tables_free takes what is there. Errors: NOMEM. */
enum wh_status wh_net_tables_new(struct wh_net *net);
void wh_net_tables_free(struct wh_net *net);

/* Layers of the chunk that has most. */
uint32_t wh_net_longest_chunk(const struct wh_net *net);

#endif
