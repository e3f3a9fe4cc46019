/* Strings that are exchanged with other tasks. What holds much text is encoded and decoded on the
 * pool, in pieces, because neither the loop nor the steps that wait for a pool thread may wait for
 * it.
 *
 *   Send node ─► text_encoding_start ─► a task of 2 ms, again and again ─► rendezvous_send_encoded
 *   Push ─────► rendezvous_decode_later ─► the same ──────────────────────► rendezvous_deliver */
#include <stdlib.h>

#include "common/tensor/tensor_pieces.h"
#include "worker/exchange/rendezvous_internal.h"

enum { PIECE_UNITS = 2 * TENSOR_UNITS_PER_MS };

void rendezvous_table_set_pool(struct rendezvous_table *table, struct pool *pool) {
    table->pool = pool;
}

/* The status of the step's abort; NULL: it goes on. The caller gets a reference. */
static struct status *why_over(struct rendezvous *rendezvous) {
    struct status *why = NULL;
    pthread_mutex_lock(&rendezvous->lock);
    if (rendezvous->why)
        why = status_ref(rendezvous->why);
    else if (rendezvous->is_ended)
        why = status_new(STATUS_CANCELLED, "the step has ended");
    pthread_mutex_unlock(&rendezvous->lock);
    return why;
}

static struct rendezvous *hold(struct rendezvous *rendezvous) {
    atomic_fetch_add_explicit(&rendezvous->n_refs, 1, memory_order_relaxed);
    return rendezvous;
}

/* ---- encoding ---- */

bool rendezvous_encodes_apart(const struct rendezvous *rendezvous,
                              const struct plan_channel *channel, const struct tensor *value) {
    const struct rendezvous_table *table = rendezvous->table;
    return table->pool && table->task && tensor_has_much_text(value) &&
           strcmp(channel->peer_task, table->task) != 0;
}

static void encode_piece(struct pool_task *task) {
    struct text_encoding *encoding = CONTAINER_OF(task, struct text_encoding, task);
    struct rendezvous *rendezvous = encoding->rendezvous;
    struct status *why = why_over(rendezvous);
    int64_t units = PIECE_UNITS;
    if (!why && !tensor_encoder_run(&encoding->encoder, &units)) {
        pool_submit(rendezvous->table->pool, task);
        return;
    }
    struct buffer *proto = NULL;
    if (!why) {
        size_t size = encoding->encoder.out.len;
        char *bytes = str_detach(&encoding->encoder.out);
        proto = buffer_wrap(bytes, size, free, bytes);
    }
    tensor_encoder_fini(&encoding->encoder);
    encoding->on_encoded(encoding, why, proto);
    rendezvous_unref(rendezvous);
}

void text_encoding_start(struct text_encoding *encoding, struct rendezvous *rendezvous,
                         const struct tensor *value) {
    encoding->rendezvous = hold(rendezvous);
    encoding->task.run = encode_piece;
    tensor_encoder_init(&encoding->encoder, value);
    pool_submit(rendezvous->table->pool, &encoding->task);
}

/* ---- decoding ---- */

struct decode_job {
    struct pool_task task;
    struct rendezvous *rendezvous; /* one reference */
    struct buffer *payload;        /* one reference: the TensorProto is part of it */
    struct tensor_decoder decoder;
    struct value_source source;
    uint32_t edge;
    uint64_t frame_iter;
};

static void decode_piece(struct pool_task *task) {
    struct decode_job *job = CONTAINER_OF(task, struct decode_job, task);
    struct rendezvous *rendezvous = job->rendezvous;
    struct status *why = why_over(rendezvous), *st = NULL;
    struct tensor value = TENSOR_INIT;
    int64_t units = PIECE_UNITS;
    if (!why)
        st = tensor_decoder_run(&job->decoder, &units, &value);
    if (!why && !st && value.storage == TENSOR_NONE) {
        pool_submit(rendezvous->table->pool, task);
        return;
    }
    if (!why && !st)
        st = rendezvous_deliver(rendezvous, job->edge, job->frame_iter, job->source, &value);
    if (st) {
        st = status_prefix_take(st, "from task %s: ", peer_name(job->source.peer));
        rendezvous_abort(rendezvous, st);
    }
    status_unref(st);
    status_unref(why);
    tensor_decoder_fini(&job->decoder);
    buffer_unref(job->payload);
    free(job);
    rendezvous_unref(rendezvous);
}

struct status *rendezvous_decode_later(struct rendezvous *rendezvous, struct value_source source,
                                       const struct wire_message *message,
                                       const struct edge_message *edge, bool *ret_is_later) {
    struct rendezvous_table *table = rendezvous->table;
    size_t offset = 0;
    struct span proto;
    *ret_is_later = table->pool && edge->tensor.proto.len == 0 && !edge->tensor.is_dead &&
                    !tensor_meta_is_plain(&edge->tensor) && edge->tensor.dtype == DT_STRING;
    if (!*ret_is_later)
        return NULL;
    TRY(tensor_meta_find_proto(&edge->tensor, message, &offset, &proto));
    struct decode_job *job = aligned_alloc(64, (sizeof(*job) + 63) & ~(size_t)63);
    if (!job)
        out_of_memory(sizeof(*job));
    *job = (struct decode_job){.task = {.run = decode_piece},
                               .rendezvous = hold(rendezvous),
                               .payload = buffer_ref(message->payload),
                               .source = source,
                               .edge = edge->edge,
                               .frame_iter = edge->frame_iter};
    tensor_decoder_init(&job->decoder, proto, table->allocator);
    pool_submit(table->pool, &job->task);
    return NULL;
}
