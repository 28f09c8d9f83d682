/* All-reduce, reduce-scatter and all-gather of any MPI library, measured as `wanhe bench collectives` measures ours: the
 * same sizes, the same data, the time of the slowest rank, batches of calls behind a barrier. One JSON object per line.
 *
 *     mpirun -n 2 peer_mpi NAME MIN_BYTES MAX_BYTES FACTOR BUDGET_SECONDS
 *
 * Bytes are those of the full vector in every operation. Sums are checked: inputs are small integers, exact in any order. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum op { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, OPS };
static const char *const op_name[OPS] = {"all_reduce", "reduce_scatter", "all_gather"};

enum { BATCHES_MAX = 1000, BATCHES_MIN = 3 };
static const double batch_seconds = 100e-6; /* long against a clock's resolution and the barrier before it */

static int rank, ranks;

struct buffers {
    float *in, *out;
    int full, slice; /* elements */
};

static void call(enum op op, const struct buffers *b, int in_place) {
    const void *in = in_place ? MPI_IN_PLACE : (const void *)b->in;
    switch (op) {
    case ALL_REDUCE:
        MPI_Allreduce(in, b->out, b->full, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(in, b->out, b->slice, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(in, b->slice, MPI_FLOAT, b->out, b->slice, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    default:
        break;
    }
}

static float input(int of_rank, size_t i) { return (float)((i * 7 + (size_t)of_rank * 3) % 17); }

static void fill(enum op op, const struct buffers *b, int in_place) {
    float *in = in_place ? b->out : b->in;
    const size_t n = op == ALL_GATHER ? (size_t)b->slice : (size_t)b->full;
    if (in_place && op == ALL_GATHER) in += (size_t)rank * b->slice;
    for (size_t i = 0; i < n; i++) in[i] = input(rank, i);
}

static float expected(enum op op, const struct buffers *b, size_t i) {
    float sum = 0;
    if (op == ALL_GATHER) return input((int)(i / (size_t)b->slice), i % (size_t)b->slice);
    if (op == REDUCE_SCATTER) i += (size_t)rank * b->slice;
    for (int r = 0; r < ranks; r++) sum += input(r, i);
    return sum;
}

static void check(enum op op, const struct buffers *b, int in_place) {
    const size_t n = op == REDUCE_SCATTER ? (size_t)b->slice : (size_t)b->full;
    fill(op, b, in_place);
    call(op, b, in_place);
    for (size_t i = 0; i < n; i++)
        if (b->out[i] != expected(op, b, i)) {
            fprintf(stderr, "%s of %d elements: element %zu is wrong on rank %d\n", op_name[op], b->full, i, rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

/* Seconds per call of the slowest rank over `calls` calls. */
static double batch(enum op op, const struct buffers *b, int in_place, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    for (int i = 0; i < calls; i++) call(op, b, in_place);
    double mine = MPI_Wtime() - began, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / calls;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, enum op op, const struct buffers *b, size_t bytes, int in_place, double budget) {
    static double times[BATCHES_MAX];
    int count = 0;
    check(op, b, in_place);
    memset(b->in, 0, bytes); /* in place, sums of sums would overflow */
    memset(b->out, 0, bytes);
    const double once = batch(op, b, in_place, 2);
    const int calls = once > batch_seconds ? 1 : (int)(batch_seconds / once) + 1;
    const double began = MPI_Wtime();
    for (int more = 1; more;) {
        times[count++] = batch(op, b, in_place, calls);
        more = count < BATCHES_MAX && (count < BATCHES_MIN || MPI_Wtime() - began < budget);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    qsort(times, (size_t)count, sizeof *times, ascending);
    if (rank == 0)
        printf(
            "{\"peer\": \"%s\", \"ranks\": %d, \"op\": \"%s\", \"in_place\": %s, \"bytes\": %zu, \"us\": %.3f, "
            "\"us_min\": %.3f, \"batches\": %d, \"calls\": %d}\n",
            name, ranks, op_name[op], in_place ? "true" : "false", bytes, times[count / 2] * 1e6, times[0] * 1e6, count,
            calls);
    fflush(stdout);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 6) {
        if (rank == 0) fprintf(stderr, "usage: peer_mpi NAME MIN_BYTES MAX_BYTES FACTOR BUDGET_SECONDS\n");
        MPI_Finalize();
        return 2;
    }
    const size_t least = strtoull(argv[2], NULL, 10), most = strtoull(argv[3], NULL, 10);
    const size_t factor = strtoull(argv[4], NULL, 10);
    struct buffers b = {.in = malloc(most), .out = malloc(most)};
    if (!b.in || !b.out || factor < 2) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int op = 0; op < OPS; op++)
        for (size_t bytes = least; bytes <= most; bytes *= factor) {
            b.full = (int)(bytes / sizeof(float));
            b.slice = b.full / ranks;
            if (op != ALL_REDUCE && b.full % ranks) continue;
            for (int in_place = 0; in_place < 2; in_place++)
                measure(argv[1], (enum op)op, &b, bytes, in_place, strtod(argv[5], NULL));
        }
    free(b.in);
    free(b.out);
    MPI_Finalize();
    return 0;
}
