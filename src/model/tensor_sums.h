/* Sums over tensor ranks. A matrix that is cut on its input side, or the input gradient of one that is cut on its output
 * side, gives each rank the subtree sum of its own slices; the ranks' sums are joined by the rest of the canonical tree. */
#ifndef WH_MODEL_TENSOR_SUMS_H
#define WH_MODEL_TENSOR_SUMS_H

#include "model/net.h"

/* Ledger rows. */
#define WH_TP_FORWARD  "tp.fwd.all_reduce"
#define WH_TP_BACKWARD "tp.bwd.all_reduce"
#define WH_TP_EMBED    "tp.embed.all_reduce"
#define WH_TP_HEAD     "tp.head.all_reduce"

/* Runs g, whose C is [m, n <= C] in the compute dtype, with its epilogue of bias and residual, over all tensor ranks. With
 * one rank: the product alone. */
void wh_tensor_gemm(struct wh_net *net, enum wh_time row, struct wh_gemm *g, const char *ledger_row);

/* The same sums and extremes for `count` numbers of each rank, in place, in the net's shared memory. */
void wh_tensor_sum(struct wh_net *net, float *values, size_t count, const char *ledger_row);
void wh_tensor_max(struct wh_net *net, float *values, size_t count, const char *ledger_row);
/* Of ranks that hold zeros and one that holds a value, the value, bit by bit (so that -0 stays -0); `bytes` a multiple of 4. */
void wh_tensor_select(struct wh_net *net, void *values, size_t bytes, const char *ledger_row);

#endif
