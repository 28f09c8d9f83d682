#include "run/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/booked.h"

/* ---- making the plans ---- */

static uint32_t pipeline_ranks(const struct wh_engine *e) { return e->stage->mesh.degrees.pp; }

/* 0: the next rank of the pipeline (round it), 1: the one before. */
static uint32_t peer_number(const struct wh_engine *e, uint32_t peer) {
    return peer == (e->stage->place.pp + 1) % pipeline_ranks(e) ? 0 : 1;
}

static uint32_t peer_at(const struct wh_engine *e, uint32_t number) {
    const uint32_t n = pipeline_ranks(e), me = e->stage->place.pp;
    return number == 0 ? (me + 1) % n : (me + n - 1) % n;
}

static enum wh_status make_message(struct wh_engine *e, enum wh_traffic_row row, bool sends, uint32_t peer,
                                   void *buffer, struct wh_comm_plan **out) {
    struct wh_comm_call call = wh_traffic_message(&e->plan, row, sends, peer);
    if (sends)
        call.in = buffer;
    else
        call.out = buffer;
    return wh_comm_plan_make(e->team->pp, &call, out);
}

static enum wh_status make_kind(struct wh_engine *e, enum wh_engine_kind kind) {
    const enum wh_traffic_row row = kind == WH_ENGINE_ACT ? WH_TRAFFIC_ACT : WH_TRAFFIC_GRAD;
    struct wh_net *net = e->net;
    const uint32_t slots = kind == WH_ENGINE_ACT ? net->shape.act_slots : net->shape.grad_slots;
    e->receive[kind] = calloc((size_t)slots * WH_ENGINE_PEERS, sizeof(struct wh_comm_plan *));
    if (!e->receive[kind]) return WH_FAIL(WH_NOMEM, "no memory for the plans of %u slots", slots);
    for (uint32_t k = 0; k < WH_ENGINE_PEERS; k++) {
        for (uint32_t i = 0; i < WH_NET_OUTPUTS; i++)
            WH_TRY(make_message(e, row, true, peer_at(e, k), kind == WH_ENGINE_ACT ? net->act_out[i] : net->grad_out[i],
                                &e->out[kind].send[i][k]));
        for (uint32_t i = 0; i < slots; i++)
            WH_TRY(make_message(e, row, false, peer_at(e, k), kind == WH_ENGINE_ACT ? net->slot[i].x[0] : net->grad[i],
                                &e->receive[kind][i * WH_ENGINE_PEERS + k]));
    }
    return WH_OK;
}

/* The tied table: its gradient's part from the embedded tokens goes to the last stage, its new weights come back. */
static enum wh_status make_table(struct wh_engine *e) {
    const struct wh_net *net = e->net;
    const struct wh_sched_shape *shape = &e->stage->plan.shape;
    const uint32_t last = wh_sched_stage_rank(shape, wh_sched_stages(shape) - 1);
    const bool owns = wh_stage_owns_table(e->stage), first = wh_stage_is_first(e->stage);
    if (!wh_stage_copies_table(e->stage) || (!owns && !first)) return WH_OK;
    const size_t row = (size_t)wh_net_first_sequence(&net->shape) * net->shape.T;
    WH_TRY(make_message(e, WH_TRAFFIC_EMBED_MOVE, first, first ? last : 0,
                        wh_rows_at(net, net->dx, row * net->shape.model->C), &e->embed_move));
    return make_message(e, WH_TRAFFIC_TABLE_MOVE, owns, owns ? 0 : last, owns ? net->unit_weights[0] : net->table_copy,
                        &e->table_move);
}

static enum wh_status make_sum(struct wh_comm *comm, struct wh_comm_call call, double *values,
                               struct wh_comm_plan **out) {
    call.in = call.out = values;
    return wh_comm_plan_make(comm, &call, out);
}

static enum wh_status make_plans(struct wh_engine *e) {
    if (pipeline_ranks(e) > 1) {
        WH_TRY(make_kind(e, WH_ENGINE_ACT));
        WH_TRY(make_kind(e, WH_ENGINE_GRAD));
        WH_TRY(make_table(e));
    }
    struct wh_comm *norm = wh_traffic_norm_axis(&e->plan) == WH_AXIS_WORLD ? e->team->all : e->team->model;
    WH_TRY(make_sum(e->team->all, wh_traffic_loss(&e->plan), e->net->leaf_loss, &e->loss));
    if (wh_comm_size(norm) > 1) WH_TRY(make_sum(norm, wh_traffic_norm(&e->plan), e->net->norm_partial, &e->norm));
    WH_TRY(make_sum(e->team->all, wh_traffic_eval(&e->plan), e->eval_loss, &e->eval));
    WH_TRY(wh_compare_open(e->team->dp, wh_traffic_check(&e->plan, WH_TRAFFIC_CHECK), false, &e->replicas));
    WH_TRY(wh_compare_open(e->team->tp, wh_traffic_check(&e->plan, WH_TRAFFIC_CHECK_UNCUT), true, &e->uncut));
    if (wh_comm_size(e->team->dp) == 1) return WH_OK;
    return wh_replica_open(e->net, e->team, &e->plan, &e->replica);
}

/* "RA3b<0 (micro-batch 3 from rank 4)" */
static void write_note(const struct wh_stage *s, const struct wh_sched_instr *i, char *out) {
    static const char *const what[] = {"forward of ", "backward of ", "backward, input part, of ",
                                       "backward, weight part, of "};
    static const char *const way[] = {"", " to rank ", " from rank "};
    const enum wh_sched_message message = wh_sched_ops[i->op].message;
    struct wh_text text = {0};
    wh_sched_label(&s->plan.shape, i, &text);
    wh_text_add(&text, " (%smicro-batch %u%s", wh_sched_computes((enum wh_sched_op)i->op) ? what[i->op] : "",
                i->micro_batch, way[message]);
    if (message != WH_SCHED_NO_MESSAGE)
        wh_text_add(&text, "%u", wh_mesh_member(&s->mesh, WH_AXIS_PP, s->rank, i->peer));
    wh_text_add(&text, ")");
    snprintf(out, WH_LAUNCH_NOTE_BYTES, "%s", text.data);
    wh_text_fini(&text);
}

static enum wh_status write_notes(struct wh_engine *e) {
    const struct wh_sched_program *p = e->stage->program;
    e->note = calloc(p->count, sizeof *e->note);
    if (!e->note) return WH_FAIL(WH_NOMEM, "no memory for the names of %zu instructions", p->count);
    for (size_t i = 0; i < p->count; i++) write_note(e->stage, &p->instrs[i], e->note[i]);
    return WH_OK;
}

enum wh_status wh_engine_open(const struct wh_stage *stage, struct wh_net *net, const struct wh_team *team,
                              uint64_t bucket_bytes, struct wh_engine *out) {
    struct wh_engine *e = out;
    *e = (struct wh_engine){.stage = stage, .net = net, .team = team};
    enum wh_status status = wh_traffic_new(stage, bucket_bytes, &e->plan);
    if (status != WH_OK) return status;
    const size_t losses = (size_t)stage->mesh.degrees.dp * net->shape.micro_batch;
    e->eval_loss = calloc(losses, sizeof *e->eval_loss);
    status = e->eval_loss ? WH_OK : WH_FAIL(WH_NOMEM, "no memory for %zu losses", losses);
    if (status == WH_OK) status = write_notes(e);
    if (status == WH_OK && team) status = make_plans(e);
    if (status != WH_OK) wh_engine_close(e);
    return status;
}

static void free_kind(struct wh_engine *e, enum wh_engine_kind kind) {
    const struct wh_net_shape *s = e->net ? &e->net->shape : NULL;
    for (uint32_t i = 0; i < WH_NET_OUTPUTS; i++)
        for (uint32_t k = 0; k < WH_ENGINE_PEERS; k++) wh_comm_plan_free(e->out[kind].send[i][k]);
    const uint32_t slots = s ? (kind == WH_ENGINE_ACT ? s->act_slots : s->grad_slots) : 0;
    for (uint32_t i = 0; e->receive[kind] && i < slots * WH_ENGINE_PEERS; i++) wh_comm_plan_free(e->receive[kind][i]);
    free(e->receive[kind]);
}

void wh_engine_close(struct wh_engine *e) {
    wh_replica_close(&e->replica);
    wh_compare_close(&e->replicas), wh_compare_close(&e->uncut);
    free_kind(e, WH_ENGINE_ACT), free_kind(e, WH_ENGINE_GRAD);
    wh_comm_plan_free(e->loss), wh_comm_plan_free(e->norm), wh_comm_plan_free(e->eval);
    wh_comm_plan_free(e->embed_move), wh_comm_plan_free(e->table_move);
    wh_traffic_free(&e->plan);
    free(e->eval_loss);
    free(e->note);
    *e = (struct wh_engine){0};
}

/* ---- moving ---- */

/* The buffer to fill next, free. */
static enum wh_status take_output(struct wh_engine *e, enum wh_engine_kind kind, void **buffer) {
    struct wh_engine_outputs *o = &e->out[kind];
    struct wh_comm_plan *busy = o->busy[o->current];
    if (busy) WH_TRY(wh_booked_wait(e->net, busy));
    o->busy[o->current] = NULL;
    *buffer = kind == WH_ENGINE_ACT ? e->net->act_out[o->current] : e->net->grad_out[o->current];
    return WH_OK;
}

static enum wh_status send(struct wh_engine *e, enum wh_engine_kind kind, uint32_t peer) {
    struct wh_engine_outputs *o = &e->out[kind];
    struct wh_comm_plan *plan = o->send[o->current][peer_number(e, peer)];
    WH_TRY(wh_booked_start(e->net, plan));
    o->busy[o->current] = plan;
    o->current = (o->current + 1) % WH_NET_OUTPUTS;
    return WH_OK;
}

static size_t message_bytes(const struct wh_engine *e) {
    return wh_net_stream_elems(&e->net->shape) * wh_dtype_bytes(e->net->shape.dtype);
}

static void pass(struct wh_engine *e, enum wh_engine_kind kind, void *to) {
    struct wh_engine_outputs *o = &e->out[kind];
    memcpy(to, kind == WH_ENGINE_ACT ? e->net->act_out[o->current] : e->net->grad_out[o->current], message_bytes(e));
    o->current = (o->current + 1) % WH_NET_OUTPUTS;
}

static enum wh_status receive(struct wh_engine *e, enum wh_engine_kind kind, uint32_t slot, uint32_t peer) {
    return wh_booked_run(e->net, e->receive[kind][slot * WH_ENGINE_PEERS + peer_number(e, peer)]);
}

/* All that is under way has arrived. */
static enum wh_status settle(struct wh_engine *e) {
    for (int kind = 0; kind < WH_ENGINE_KINDS; kind++)
        for (uint32_t i = 0; i < WH_NET_OUTPUTS; i++) {
            struct wh_comm_plan *busy = e->out[kind].busy[i];
            if (busy) WH_TRY(wh_booked_wait(e->net, busy));
            e->out[kind].busy[i] = NULL;
        }
    return WH_OK;
}

/* Before the first use of weights after an update: the first stage's copy of a tied table. */
static enum wh_status refresh_table(struct wh_engine *e) {
    if (e->table_fresh || !e->table_move) return WH_OK;
    e->table_fresh = true;
    if (wh_stage_owns_table(e->stage)) WH_TRY(wh_replica_need(&e->replica, 0));
    return wh_booked_run(e->net, e->table_move);
}

/* ---- the program ---- */

static enum wh_status forward(struct wh_engine *e, const struct wh_sched_instr *i, const struct wh_net_micro *micro) {
    void *out = NULL;
    if (!wh_net_chunk(e->net, i->chunk)->head) WH_TRY(take_output(e, WH_ENGINE_ACT, &out));
    const uint64_t since = wh_trace_now(e->trace);
    WH_TRY(wh_net_chunk_forward(e->net, i->chunk, micro, i->act, out));
    wh_trace_instr(e->trace, 0, since);
    return WH_OK;
}

static enum wh_status backward(struct wh_engine *e, const struct wh_sched_instr *i, const struct wh_net_micro *micro) {
    void *dx = wh_net_grad_rows(e->net, i->chunk, i->micro_batch, i->grad), *out;
    const uint64_t since = wh_trace_now(e->trace);
    if (i->op == WH_SCHED_BACKWARD)
        WH_TRY(wh_net_chunk_backward(e->net, i->chunk, micro, i->act, dx));
    else
        WH_TRY(wh_net_chunk_backward_input(e->net, i->chunk, micro, i->act, i->grad, dx));
    wh_trace_instr(e->trace, 0, since);
    if (wh_net_chunk(e->net, i->chunk)->embed) {
        wh_net_keep_embedded(e->net, i->micro_batch, dx);
        return WH_OK;
    }
    WH_TRY(take_output(e, WH_ENGINE_GRAD, &out));
    memcpy(out, dx, message_bytes(e));
    return WH_OK;
}

static enum wh_status backward_weight(struct wh_engine *e, const struct wh_sched_instr *i,
                                      const struct wh_net_micro *micro) {
    const uint64_t since = wh_trace_now(e->trace);
    WH_TRY(wh_net_chunk_backward_weight(e->net, i->chunk, micro, i->act, i->grad));
    wh_trace_instr(e->trace, 0, since);
    return WH_OK;
}

static enum wh_status move(struct wh_engine *e, const struct wh_sched_instr *i) {
    switch ((enum wh_sched_op)i->op) {
    case WH_SCHED_SEND_ACT:
        return send(e, WH_ENGINE_ACT, i->peer);
    case WH_SCHED_SEND_GRAD:
        return send(e, WH_ENGINE_GRAD, i->peer);
    case WH_SCHED_RECV_ACT:
        return receive(e, WH_ENGINE_ACT, i->act, i->peer);
    case WH_SCHED_RECV_GRAD:
        return receive(e, WH_ENGINE_GRAD, i->grad, i->peer);
    case WH_SCHED_PASS_ACT:
        pass(e, WH_ENGINE_ACT, e->net->slot[i->act].x[0]);
        return WH_OK;
    case WH_SCHED_PASS_GRAD:
        pass(e, WH_ENGINE_GRAD, e->net->grad[i->grad]);
        return WH_OK;
    default:
        return WH_FAIL(WH_INTERNAL, "instruction %d", i->op);
    }
}

static enum wh_status execute(struct wh_engine *e, const struct wh_sched_instr *i, const struct wh_net_micro *micro) {
    switch ((enum wh_sched_op)i->op) {
    case WH_SCHED_FORWARD:
        return forward(e, i, micro);
    case WH_SCHED_BACKWARD:
    case WH_SCHED_BACKWARD_INPUT:
        return backward(e, i, micro);
    case WH_SCHED_BACKWARD_WEIGHT:
        return backward_weight(e, i, micro);
    default:
        break;
    }
    const uint64_t since = wh_trace_now(e->trace);
    WH_TRY(move(e, i));
    wh_trace_instr(e->trace, message_bytes(e), since);
    return WH_OK;
}

/* For reports of stalls and deaths. */
static void note(struct wh_engine *e, const char *text) {
    if (e->team) wh_launch_note(e->team->self, text);
}

static enum wh_status run_program(struct wh_engine *e, const struct wh_net_batch *batch, float grad_scale,
                                  uint32_t step) {
    const struct wh_sched_program *p = e->stage->program;
    wh_net_restart(e->net);
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_sched_instr *in = &p->instrs[i];
        const struct wh_net_micro micro = {batch, in->micro_batch, step, grad_scale};
        note(e, e->note[i]);
        wh_trace_at(e->trace, (uint32_t)i);
        WH_TRY(wh_while(execute(e, in, &micro), "running %s, instruction %zu", e->note[i], i));
    }
    wh_trace_at(e->trace, WH_TRACE_NO_INSTR);
    note(e, "after the last instruction");
    return settle(e);
}

/* Gradients of the embedded tokens go where a table is: to the last stage if that owns it, then to all replicas. */
static enum wh_status collect(struct wh_engine *e) {
    WH_TRY(wh_net_gather_embedded(e->net));
    if (e->embed_move) WH_TRY(wh_booked_run(e->net, e->embed_move));
    if (!e->replica.net) return WH_OK;
    WH_TRY(wh_replica_gather_embedded(&e->replica));
    return wh_replica_collect(&e->replica);
}

enum wh_status wh_engine_step(struct wh_engine *e, const struct wh_net_batch *batch, float grad_scale, uint32_t step,
                              double *loss) {
    WH_TRY(refresh_table(e));
    WH_TRY(run_program(e, batch, grad_scale, step));
    WH_TRY(collect(e));
    wh_net_finish_leaves(e->net);
    if (e->loss) WH_TRY(wh_booked_run(e->net, e->loss));
    const uint64_t since = wh_trace_now(e->trace);
    wh_net_finish_gradients(e->net, batch, step);
    wh_trace_span(e->trace, WH_TRACK_COMPUTE, "embeddings' gradients", since);
    *loss = wh_net_finish_loss(e->net);
    return WH_OK;
}

enum wh_status wh_engine_norm(struct wh_engine *e, struct wh_adamw *adamw, double *norm) {
    wh_adamw_partials(adamw);
    if (e->norm) WH_TRY(wh_booked_run(e->net, e->norm));
    *norm = wh_adamw_norm(adamw);
    return WH_OK;
}

enum wh_status wh_engine_compare(struct wh_engine *e, uint64_t step) {
    WH_TRY(wh_compare_run(&e->replicas, e->net, step));
    return wh_compare_run(&e->uncut, e->net, step);
}

void wh_engine_updated(struct wh_engine *e) {
    wh_zero_updated(&e->plan.zero);
    e->table_fresh = false;
}

/* ---- evaluation ---- */

static enum wh_status evaluate_chunk(struct wh_engine *e, uint32_t c, const struct wh_net_batch *batch,
                                     uint32_t sequences) {
    const struct wh_sched_shape *shape = &e->stage->plan.shape;
    const uint32_t me = e->stage->place.pp, from = wh_sched_peer(shape, me, WH_SCHED_RECV_ACT, c),
                   to = wh_sched_peer(shape, me, WH_SCHED_SEND_ACT, c);
    void *out = NULL;
    if (from == me)
        pass(e, WH_ENGINE_ACT, e->net->slot[0].x[0]);
    else if (from != UINT32_MAX)
        WH_TRY(receive(e, WH_ENGINE_ACT, 0, from));
    if (to != UINT32_MAX) WH_TRY(take_output(e, WH_ENGINE_ACT, &out));
    WH_TRY(wh_net_chunk_evaluate(e->net, c, batch, sequences, out));
    return to != UINT32_MAX && to != me ? send(e, WH_ENGINE_ACT, to) : WH_OK;
}

enum wh_status wh_engine_evaluate(struct wh_engine *e, const struct wh_net_batch *batch, uint32_t sequences,
                                  const double **losses) {
    const struct wh_net_shape *s = &e->net->shape;
    const uint32_t most = s->micro_batch, first = s->data.rank * most, own = wh_net_eval_share(s, sequences);
    const size_t at = (size_t)first * s->T;
    const struct wh_net_batch part = {batch->ids + at, batch->labels + at,
                                      batch->document_start ? batch->document_start + at : NULL};
    WH_TRY(refresh_table(e));
    wh_net_restart(e->net);
    memset(e->eval_loss, 0, (size_t)e->stage->mesh.degrees.dp * most * sizeof *e->eval_loss);
    for (uint32_t c = 0; c < wh_net_chunks(s); c++) {
        WH_TRY(evaluate_chunk(e, c, &part, own));
        if (wh_net_chunk(e->net, c)->head && s->tensor.rank == 0) /* the other tensor ranks have the same */
            memcpy(e->eval_loss + first, e->net->sequence_loss, own * sizeof *e->eval_loss);
    }
    WH_TRY(settle(e));
    if (e->eval) WH_TRY(wh_booked_run(e->net, e->eval));
    *losses = e->eval_loss;
    return WH_OK;
}
