/* Prices against closed forms. Tolerances: a walk adds up at most a few thousand doubles, each rounded once, so it is
 * within 1e-12 of the closed form; figures quoted with n digits are compared to those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "coll/cost.h"

static double price(const char *algorithm, const struct wh_coll_request *q, const struct wh_coll_topology *t) {
    struct wh_coll_plan p;
    struct wh_coll_price price;
    assert_int_equal(wh_coll_plan_new(q, wh_coll_algorithm(algorithm), &p), WH_OK);
    assert_int_equal(wh_coll_price(&p, t, &price), WH_OK);
    double seconds = price.seconds;
    for (uint32_t k = 1; k < p.rounds; k++) assert_true(price.round_s[k] >= price.round_s[k - 1]);
    for (uint32_t r = 0; r < q->ranks; r++) assert_true(price.rank_s[r] <= seconds);
    wh_coll_price_free(&price);
    wh_coll_plan_free(&p);
    return seconds;
}

static void assert_close(double got, double expected, double relative) {
    double off = got / expected - 1;
    if (off > relative || off < -relative) fail_msg("%.17g instead of %.17g", got, expected);
}

/* One port for each rank, a machine for each. */
static struct wh_coll_topology ports(double latency_s, double bytes_per_s) {
    return (struct wh_coll_topology){.ranks_per_machine = 1,
                                     .network = {.latency_s = latency_s, .bytes_per_s = bytes_per_s},
                                     .memory = {.bytes_per_s = 1e300}};
}

/* 100 MB over 8 devices of 50 GB/s, 10 ns a hop (astra-sim issue 296). */
static void ring_of_100_megabytes(void **state) {
    (void)state;
    struct wh_coll_topology t = ports(10e-9, 50e9);
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 8, 0, 25000000, WH_F32};
    assert_close(price("ring", &q, &t), 3.50014e-3, 1e-12);
    assert_close(price("direct", &q, &t), 3.50002e-3, 1e-12);
    assert_close(price("halving_doubling", &q, &t), 3.5e-3 + 6 * 10e-9, 1e-12);
    q.op = WH_COLL_REDUCE_SCATTER;
    assert_close(price("ring", &q, &t), 1.75007e-3, 1e-12);
    q.op = WH_COLL_ALL_GATHER;
    assert_close(price("ring", &q, &t), 1.75007e-3, 1e-12);
}

static void nothing_beats_the_bound(void **state) {
    (void)state;
    struct wh_coll_topology t = ports(10e-9, 50e9);
    for (int i = 0; wh_coll_algorithms[i]; i++)
        for (uint32_t n = 2; n <= 33; n++) {
            struct wh_coll_request q = {WH_COLL_ALL_REDUCE, n, 0, 100000 * n, WH_F32, .chunks = n};
            double bound = 2.0 * (n - 1) / n * (double)q.count * 4 / 50e9;
            if (wh_coll_can(&q, wh_coll_algorithms[i]) != WH_OK) continue;
            assert_true(price(wh_coll_algorithms[i]->name, &q, &t) > bound);
        }
}

/* The usual formulas, with additions (g seconds a byte) and costs of messages. */
static void closed_forms(void **state) {
    (void)state;
    double a = 3e-6, o = 1e-6, b = 1 / 10e9, g = 1 / 7e9;
    struct wh_coll_topology t = ports(a, 1 / b);
    t.network.message_s = o;
    t.add_s_per_byte = g;
    for (uint32_t n = 2, l = 1; n <= 32; n *= 2, l++) {
        struct wh_coll_request q = {WH_COLL_ALL_REDUCE, n, 0, 1000 * n, WH_F32};
        double S = (double)q.count * 4, part = S * (n - 1) / n;
        assert_close(price("ring", &q, &t), 2 * (n - 1) * (a + o) + 2 * part * b + part * g, 1e-12);
        assert_close(price("direct", &q, &t), 2 * a + 2 * (n - 1) * o + 2 * part * b + part * g, 1e-12);
        assert_close(price("halving_doubling", &q, &t), 2 * l * (a + o) + 2 * part * b + part * g, 1e-12);
        q.op = WH_COLL_REDUCE;
        assert_close(price("binomial", &q, &t), l * (a + o + S * b + S * g), 1e-12);
        q.op = WH_COLL_BROADCAST;
        assert_close(price("binomial", &q, &t), l * (a + o + S * b), 1e-12);
    }
    struct wh_coll_request barrier = {WH_COLL_BARRIER, 13};
    assert_close(price("bruck", &barrier, &t), 4 * (a + o), 1e-12);
}

/* alpha 5 us, 50 GB/s. The tree's figures are those of a double binary tree with so many pieces that neither filling the
 * pipeline nor the pieces' own latencies count: 2 log2(n) alpha + 2 S / B. */
static double ideal_tree(double n_log2, double bytes) { return 2 * n_log2 * 5e-6 + 2 * bytes / 50e9; }

static void rings_and_trees_of_a_training_run(void **state) {
    (void)state;
    struct wh_coll_topology t = ports(5e-6, 50e9);
    struct wh_coll_request small = {WH_COLL_ALL_REDUCE, 64, 0, 33554432 / 4, WH_F32}, large = small;
    large.count = 14000000000 / 4;
    assert_close(price("ring", &small, &t), 1.95e-3, 0.005 / 1.95);
    assert_close(price("ring", &large, &t), 551.9e-3, 0.05 / 551.9);
    assert_close(ideal_tree(6, 33554432), 1.40e-3, 0.005 / 1.40);
    assert_close(ideal_tree(6, 14e9), 560.1e-3, 0.05 / 560.1);
    assert_close(ideal_tree(10, 14e9), 560.1e-3, 0.05 / 560.1);
    small.chunks = 32;
    assert_close(price("double_tree", &small, &t), 1.75e-3, 0.005 / 1.75);
    /* Round by round, k pieces: 2 d + k - 1 rounds, none longer than alpha + 2 S / (k B). It tends to 2 S / B. */
    for (large.chunks = 64; large.chunks <= 1024; large.chunks *= 4) {
        double bound = (12 + large.chunks - 1) * (5e-6 + 2 * 14e9 / 50e9 / large.chunks);
        double got = price("double_tree", &large, &t);
        assert_true(got <= bound && got > 2 * 14e9 / 50e9);
    }
}

/* Ring over 1024 ranks; only release builds have the patience for six million steps. */
static void ring_of_1024(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    struct wh_coll_topology t = ports(5e-6, 50e9);
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 1024, 0, 14000000000 / 4, WH_F32};
    assert_close(price("ring", &q, &t), 569.7e-3, 0.05 / 569.7);
}

/* Machines with one port: flat rings don't suffer, everyone-to-everyone does; two levels send S/p a rank. */
static void machines_share_a_port(void **state) {
    (void)state;
    struct wh_coll_topology t = {.ranks_per_machine = 4,
                                 .one_port_per_machine = true,
                                 .memory = {.bytes_per_s = 1e12},
                                 .network = {.latency_s = 1e-6, .bytes_per_s = 1e9}};
    struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 16, 0, 16000000, WH_F32, .ranks_per_machine = 4};
    double S = 64e6, two = price("two_level", &q, &t), flat = price("direct", &q, &t);
    double network = 2 * (3.0 / 4) * S / 1e9, memory = 2 * (3.0 / 4) * S / 1e12;
    assert_true(two >= network + 2e-6 && two <= network + memory + 2e-6 + 1e-12);
    assert_true(flat >= 2 * 4 * (12.0 / 16) * S / 1e9);
    uint32_t own_machine[16];
    for (uint32_t r = 0; r < 16; r++) own_machine[r] = 100 + r;
    t.machine = own_machine;
    assert_close(price("direct", &q, &t), 2e-6 + 2 * (15.0 / 16) * S / 1e9, 1e-9);
}

/* Ports that copy: what is sent and what is received add up, and a receiver works behind its sender. */
static void half_duplex(void **state) {
    (void)state;
    double a = 3e-6, o = 1e-6, b = 1 / 10e9, piece = 4096;
    struct wh_coll_topology t = {.memory = {a, o, 1 / b, true, piece}};
    for (uint32_t n = 2, l = 1; n <= 32; n *= 2, l++) {
        struct wh_coll_request q = {WH_COLL_ALL_GATHER, n, 0, 16384 * n, WH_F32};
        double S = (double)q.count * 4, part = S / n;
        assert_close(price("ring", &q, &t), (n - 1) * (a + 2 * o + 2 * part * b), 1e-12);
        assert_close(price("direct", &q, &t), a + (n - 1) * (2 * o + 2 * part * b), 1e-12);
        q.op = WH_COLL_BROADCAST;
        assert_close(price("binomial", &q, &t), l * (a + 2 * o + (S + piece) * b), 1e-12);
        q.count = 256; /* one piece */
        assert_close(price("binomial", &q, &t), l * (a + 2 * o + 2 * 1024 * b), 1e-12);
    }
}

/* What is read where it lies takes its receiver's time alone, and its sender hears of the end; partial sums and short
 * messages go through the pipe. */
static void placed_messages(void **state) {
    (void)state;
    const double a = 3e-6, o = 1e-6, b = 1 / 10e9, p = 1 / 7e9, add = 1 / 20e9;
    const struct wh_coll_topology t = {.memory = {a, o, 1 / b, true, 4096, 1 / p, 4096}, .add_s_per_byte = add};
    for (uint32_t n = 2, l = 1; n <= 32; n *= 2, l++) {
        struct wh_coll_request q = {WH_COLL_ALL_GATHER, n, 0, 16384 * n, WH_F32};
        const double S = (double)q.count * 4, part = S / n;
        const double placed = 2 * a + 2 * o + part * p, piped = a + 2 * o + 2 * part * b;
        assert_close(price("ring", &q, &t), (n - 1) * placed, 1e-12);
        assert_close(price("direct", &q, &t), 2 * a + (n - 1) * (2 * o + part * p), 1e-12);
        q.op = WH_COLL_ALL_REDUCE;
        assert_close(price("ring", &q, &t), n * placed + (n - 2) * piped + (n - 1) * part * add, 1e-12);
        q.op = WH_COLL_BROADCAST;
        assert_close(price("binomial", &q, &t), l * (2 * a + 2 * o + S * p), 1e-12);
        q.count = 1024; /* the longest that is piped */
        assert_close(price("binomial", &q, &t), l * (a + 2 * o + 2 * 4096 * b), 1e-12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_of_100_megabytes), cmocka_unit_test(nothing_beats_the_bound),
        cmocka_unit_test(closed_forms),          cmocka_unit_test(rings_and_trees_of_a_training_run),
        cmocka_unit_test(ring_of_1024),          cmocka_unit_test(machines_share_a_port),
        cmocka_unit_test(half_duplex),           cmocka_unit_test(placed_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
