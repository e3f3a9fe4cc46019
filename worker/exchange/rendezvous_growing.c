/* Hands on large values while they still arrive: to a Recv whose value only copies to devices take
 * (plan_channel.takes_growing).
 *
 *   peer_arrivals.c                    here                            the Recv's step
 *   the first piece is there      ──►  GROWING, the Recv ends     ──►  copies to devices start
 *   growing_buffer_advance        ──────────────────────────────────►  each piece is copied
 *   the last piece, on_message    ──►  DONE or removed, the growth ends, and so do the copies
 *                                      abort or end of the step: the growth fails, as the copies do
 *
 * Who takes a slot out of GROWING ends the growth, so it ends exactly once. The credit of the value
 * is returned then, as for every value. A peer that is lost, or gives the value up, aborts the
 * step. */
#include "common/tensor/growing_buffer.h"
#include "worker/exchange/rendezvous_internal.h"

static bool is_plain_value(const struct edge_message *edge) {
    return edge->has_tensor && !edge->tensor.is_dead && edge->tensor.proto.len == 0 &&
           edge->reference.token == 0 && tensor_meta_is_plain(&edge->tensor);
}

/* Lock held. A value of another type than the Recv's has to arrive first to be refused. */
static bool takes_growing(const struct slot *slot, const struct peer *peer,
                          const struct edge_message *edge) {
    return slot && slot->state == SLOT_ARRIVING && slot->peer == peer && slot->recv &&
           slot->recv->channel->takes_growing && slot->dtype == edge->tensor.dtype &&
           slot->size_bytes == edge->tensor.size_bytes;
}

/* Lock held. Returns the Recv, which gets *ret_value. */
static struct rendezvous_recv *begin(struct slot *slot, struct buffer *growing,
                                     const struct tensor *value, struct tensor *ret_value) {
    struct rendezvous_recv *recv = slot->recv;
    buffer_unref(slot->memory); /* the growing buffer has a reference of its own */
    slot->memory = buffer_ref(growing);
    slot->grows = recv->channel;
    slot->recv = NULL;
    slot_move(slot, SLOT_GROWING);
    tensor_copy(ret_value, value);
    return recv;
}

/* A view of a growing buffer over the memory. */
static bool make_growing(struct buffer *memory, const struct edge_message *edge,
                         struct tensor *ret) {
    struct status *st = tensor_meta_check(&edge->tensor);
    if (!st) {
        struct buffer *growing = growing_buffer_over(buffer_ref(memory), edge->tensor.size_bytes);
        st = tensor_view(growing, growing->data, edge->tensor.dtype,
                         (struct shape){edge->tensor.rank, edge->tensor.dims}, ret);
        buffer_unref(growing);
    }
    bool is_made = !st;
    status_unref(st); /* the whole value will be refused with it */
    return is_made;
}

struct buffer *rendezvous_on_begun(void *arg, struct peer *peer, uint64_t step,
                                   const struct edge_message *edge, struct buffer *memory) {
    struct rendezvous *rendezvous;
    struct tensor made = TENSOR_INIT, value = TENSOR_INIT;
    struct rendezvous_recv *recv = NULL;
    if (!is_plain_value(edge) || rendezvous_find(arg, step, false, &rendezvous) != FOUND)
        return NULL;
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find(rendezvous, edge->edge, edge->frame_iter);
    if (takes_growing(slot, peer, edge) && make_growing(memory, edge, &made))
        recv = begin(slot, made.buffer, &made, &value);
    pthread_mutex_unlock(&rendezvous->lock);
    struct buffer *growing = recv ? buffer_ref(made.buffer) : NULL;
    tensor_clear(&made);
    if (recv)
        recv->on_value(recv, NULL, &value);
    rendezvous_unref(rendezvous);
    return growing;
}

void rendezvous_fail_growing(const struct slot *slot, struct status *why) {
    struct status *failure =
        why ? status_prefix_take(status_ref(why), "%s from task %s did not arrive completely: ",
                                 slot->grows->tensor_name, peer_name(slot->peer))
            : status_new(STATUS_CANCELLED, "the step has ended");
    growing_buffer_end(slot->memory, failure);
    status_unref(failure);
}
