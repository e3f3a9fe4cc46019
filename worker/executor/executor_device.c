/* What an execution does about devices with a memory of their own: it copies values between
 * memories, and it ends only when the devices have done its work.
 *
 * A kernel of such a device is done once it is enqueued, so an execution that has run all its nodes
 * still has two things to do: copy the fetched variables, which are read last, to the host; and
 * wait for each device that it has used, so that a failure of the device is the execution's.
 *
 * A small value that is only fetched may be copied with the work that comes after it, so that its
 * copy does not part what the device replays as one.
 *
 * An execution that is far ahead of a device pauses: it runs no node until the device has done a
 * good part of what is enqueued, and gives up its thread.
 *
 * A large value that only Sends take is handed to them when its copy to the host begins, in a
 * buffer that the copy fills meanwhile. The execution waits for that copy at its end, too, and
 * fails if it fails. */
#include "worker/executor/executor_internal.h"

#include "common/base/clock.h"
#include "common/tensor/growing_buffer.h"
#include "worker/exchange/peer_streams.h"

enum end_phase { END_COPY_FETCHES, END_WAIT_FOR_DEVICES, END_IS_REACHED };

/* ---- work that is held back ---- */

/* Returns the first failure. */
static struct status *flush_all_but(struct executor *executor, const struct device *left_out) {
    struct status *first = NULL;
    for (uint32_t i = 0; i < executor->plan->n_used_devices; i++) {
        struct device *device = executor->plan->used_devices[i];
        if (!device->ops->flush || device == left_out)
            continue;
        struct status *st = device->ops->flush(device, executor);
        if (!first)
            first = st;
        else
            status_unref(st);
    }
    return first;
}

struct status *device_take_failure(struct executor *executor) {
    return flush_all_but(executor, NULL);
}

/* A device that has to catch up has enough to do. Where that is differs from step to step, and must
 * not part what the device replays as one. */
void device_flush(struct executor *executor) {
    struct status *st = flush_all_but(executor, executor->paused_for);
    if (unlikely(st != NULL))
        executor_fail(executor, NULL, st); /* it names the node */
}

/* ---- operations that belong to no node ---- */

static void end_op_done(struct executor *executor, struct async_op *op) {
    struct status *st = op->ctx.status;
    op->ctx.status = NULL;
    if (op->is_pause)
        executor->paused_for = NULL;
    executor->n_async--;
    pthread_mutex_lock(&executor->lock); /* /stepz may show what is pending */
    list_remove(&op->link);
    pthread_mutex_unlock(&executor->lock);
    op->is_end = false;
    op->next = executor->free_ops;
    executor->free_ops = op;
    if (st) /* that of a node's copy names the node */
        executor_fail(executor, NULL, st);
}

static struct async_op *end_op_new(struct executor *executor, const struct device *device,
                                   const char *until) {
    struct async_op *op = async_op_take(executor);
    op->is_end = true;
    op->is_pause = false;
    op->node = NULL;
    op->device = device;
    op->until = until;
    op->since_ns = clock_now_ns();
    op->ctx.status = NULL;
    executor->n_async++;
    pthread_mutex_lock(&executor->lock);
    list_push_back(&executor->pending, &op->link);
    pthread_mutex_unlock(&executor->lock);
    return op;
}

void device_end_arrived(struct async_op *op) { end_op_done(op->executor, op); }

/* ---- copies ---- */

/* The task that the value is sent to may be the one whose failure the client hears of. */
static void end_growth(struct async_op *op) {
    struct device_copy *copy = &op->copy;
    if (!copy->growing)
        return;
    copy->status = executor_name_take(op->executor, op->node, copy->status);
    growing_buffer_end(copy->growing, copy->status);
    buffer_unref(copy->growing);
    copy->growing = NULL;
}

static void on_copied(struct device_copy *copy) {
    struct async_op *op = CONTAINER_OF(copy, struct async_op, copy);
    end_growth(op);
    op->ctx.status = copy->status;
    executor_post(op);
}

/* Moves the value into the operation's copy. */
static void take_value(struct async_op *op, struct tensor *value) {
    op->copy.from = TENSOR_INIT;
    op->copy.growing = NULL;
    op->copy.may_wait = false;
    op->copy.node = op->node ? device_copied_node(op->node)->name : NULL;
    tensor_move(&op->copy.from, value);
}

/* Starts the copy of op->copy.from into *ret. */
static bool start_copy(struct async_op *op, struct device *src, struct device *dst,
                       struct allocator *allocator, struct tensor *ret) {
    struct executor *executor = op->executor;
    op->copy.owner = executor;
    op->copy.src = src;
    op->copy.dst = dst;
    op->copy.allocator = allocator;
    op->copy.ret = ret;
    op->copy.status = NULL;
    op->copy.on_done = on_copied;
    struct device *device = src ? src : dst;
    bool has_ended = device->ops->copy_start(device, &op->copy);
    if (has_ended) {
        end_growth(op);
        op->ctx.status = op->copy.status;
    }
    /* A failure of what makes the value is not the copy's, and names its own node. */
    if (src && !op->copy.may_wait)
        device_flush(executor);
    return has_ended;
}

/* Do only fetches take the copy? The client gets them at the end of the step. */
static bool is_fetched_only(const struct async_op *op, const struct plan_copy *copy) {
    const struct plan *plan = op->executor->plan;
    for (uint32_t i = 0; i < op->node->n_edges; i++) {
        const struct plan_edge *edge = &plan->edges[op->node->first_edge + i];
        if ((edge->flags & EDGE_CONTROL) || plan->nodes[edge->dst].kind != PLAN_FETCH)
            return false;
    }
    return !copy->dst && !op->executor->execution->is_partial;
}

/* Do only Sends take the copy, to tasks that take a value in pieces? Then nobody reads bytes that
 * are not there yet. */
static bool is_sent_while_copied(const struct async_op *op, const struct plan_copy *copy) {
    const struct executor *executor = op->executor;
    const struct plan *plan = executor->plan;
    const struct plan_node *node = op->node;
    struct rendezvous *rendezvous = executor->execution->rendezvous;
    if (copy->dst || !rendezvous || node->n_edges == 0 ||
        tensor_size_bytes(&op->ctx.inputs[0]) < PEER_STRIPE_MIN_BYTES)
        return false;
    for (uint32_t i = 0; i < node->n_edges; i++) {
        const struct plan_edge *edge = &plan->edges[node->first_edge + i];
        const struct plan_node *consumer = &plan->nodes[edge->dst];
        if ((edge->flags & EDGE_CONTROL) || consumer->kind != PLAN_SEND ||
            !rendezvous_sends_pieces(rendezvous, &plan->channels[consumer->aux]))
            return false;
    }
    return true;
}

/* The node ends now, and its output grows. An operation of the execution's end waits for the
 * copy. */
static bool start_growing_copy(struct async_op *op, const struct plan_copy *copy) {
    struct executor *executor = op->executor;
    struct tensor *value = &op->ctx.inputs[0];
    size_t size = tensor_size_bytes(value);
    struct buffer *buffer = growing_buffer_new(copy->allocator, size);
    op->ctx.status = buffer ? tensor_view(buffer, buffer->data, (enum dtype)value->dtype,
                                          tensor_shape(value), &op->outputs[0])
                            : status_exhausted("no memory for %zu bytes that are copied from %s",
                                               size, copy->src->full_name);
    if (op->ctx.status) {
        buffer_unref(buffer);
        return true;
    }
    struct async_op *rest = end_op_new(executor, copy->src, "to copy a value that is being sent");
    rest->node = op->node;
    take_value(rest, value);
    rest->copy.growing = buffer; /* the reference */
    if (start_copy(rest, copy->src, NULL, copy->allocator, &rest->outputs[0]))
        end_op_done(executor, rest);
    return true;
}

bool device_start_copy(struct async_op *op) {
    const struct plan_copy *copy = &op->executor->plan->copies[op->node->aux];
    struct tensor *value = &op->ctx.inputs[0];
    if (value->dtype == DT_VARIANT)
        return device_start_variant_copy(op, copy);
    bool is_as_wanted = value->n_elements == 0 || value->storage == TENSOR_REF || /* no value */
                        (copy->keeps_inline && value->storage == TENSOR_INLINE) ||
                        (!copy->dst && !tensor_is_on_device(value));
    if (is_as_wanted) {
        tensor_move(&op->outputs[0], value);
        return true;
    }
    if (is_sent_while_copied(op, copy))
        return start_growing_copy(op, copy);
    take_value(op, value);
    op->copy.may_wait = is_fetched_only(op, copy);
    saves_note_copy(op, true); /* the copy may end on another thread at once; its mail waits */
    return start_copy(op, copy->src, copy->dst, copy->allocator, &op->outputs[0]);
}

/* The used device whose memory holds the value. */
static struct device *owner_of(const struct plan *plan, const struct tensor *value) {
    for (uint32_t i = 0; i < plan->n_used_devices; i++)
        if (plan->used_devices[i]->allocator == value->buffer->allocator)
            return plan->used_devices[i];
    return NULL;
}

static struct status *foreign_memory(const struct tensor *value) {
    return status_internal("a value of %s is in the memory of a device that the plan does not use",
                           value->buffer->allocator->name);
}

bool device_start_fetch(struct async_op *op) {
    struct tensor *value = &op->ctx.inputs[0];
    struct device *owner = owner_of(op->executor->plan, value);
    if (!owner) {
        op->ctx.status = foreign_memory(value);
        return true;
    }
    take_value(op, value);
    op->copy.may_wait = !op->executor->execution->is_partial;
    return start_copy(op, owner, NULL, allocator_host(), &op->outputs[0]);
}

/* ---- the end ---- */

/* Replaces a fetched reference to a variable in a device's memory by the variable's value. */
static void copy_fetch(struct executor *executor, struct tensor *fetch) {
    struct tensor value = TENSOR_INIT;
    if (fetch->storage != TENSOR_REF)
        return;
    struct status *st = executor_read_reference(fetch, &value);
    if (st) {
        executor_fail(executor, NULL, st);
        return;
    }
    if (!tensor_is_on_device(&value)) { /* the end of the execution reads it */
        tensor_clear(&value);
        return;
    }
    struct device *owner = owner_of(executor->plan, &value);
    if (!owner) {
        executor_fail(executor, NULL, foreign_memory(&value));
        tensor_clear(&value);
        return;
    }
    struct async_op *op = end_op_new(executor, owner, "to copy a fetched variable");
    tensor_clear(fetch);
    take_value(op, &value);
    if (start_copy(op, owner, NULL, allocator_host(), fetch))
        end_op_done(executor, op);
}

static void on_idle(struct device_wait *wait) {
    struct async_op *op = CONTAINER_OF(wait, struct async_op, wait);
    op->ctx.status = wait->status;
    executor_post(op);
}

static void wait_for(struct executor *executor, struct device *device) {
    struct async_op *op = end_op_new(executor, device, "to end what is enqueued");
    op->wait.status = NULL;
    op->wait.on_done = on_idle;
    if (!device->ops->wait_start(device, &op->wait))
        return;
    op->ctx.status = op->wait.status;
    end_op_done(executor, op);
}

/* ---- the devices' steps ---- */

static void count_step(struct executor *executor, int change) {
    for (uint32_t i = 0; i < executor->plan->n_used_devices; i++)
        atomic_fetch_add(&executor->plan->used_devices[i]->n_steps, change);
}

void device_steps_begin(struct executor *executor) { count_step(executor, 1); }
void device_steps_end(struct executor *executor) { count_step(executor, -1); }

/* ---- a device that has to catch up ---- */

static bool is_behind(struct device *device) {
    return device->ops->is_far_ahead && device->ops->is_far_ahead(device);
}

/* Has the execution wait for a device. True: it waits. */
static COLD bool pause_for(struct executor *executor, struct device *device) {
    struct async_op *op = end_op_new(executor, device, "to catch up");
    op->wait.status = NULL;
    op->wait.on_done = on_idle;
    op->is_pause = true;
    executor->paused_for = device;
    if (!device->ops->catch_up_start(device, &op->wait))
        return true;
    op->ctx.status = op->wait.status;
    end_op_done(executor, op);
    return false;
}

bool device_pauses(struct executor *executor) {
    const struct plan *plan = executor->plan;
    for (uint32_t i = 0; i < plan->n_used_devices; i++)
        if (unlikely(is_behind(plan->used_devices[i])) && !executor->is_aborted &&
            pause_for(executor, plan->used_devices[i]))
            return true;
    return false;
}

/* ---- the end of an execution ---- */

bool device_may_end(struct executor *executor) {
    const struct plan *plan = executor->plan;
    if (executor->end_phase == END_COPY_FETCHES) {
        executor->end_phase = END_WAIT_FOR_DEVICES;
        for (uint32_t i = 0; i < plan->n_fetches && !executor->status; i++)
            copy_fetch(executor, &executor->execution->fetches[i]);
        if (executor->n_async > 0)
            return false;
    }
    if (executor->end_phase == END_WAIT_FOR_DEVICES) {
        executor->end_phase = END_IS_REACHED;
        for (uint32_t i = 0; i < plan->n_used_devices; i++)
            wait_for(executor, plan->used_devices[i]);
    }
    return executor->n_async == 0;
}

bool executor_end_hooks(struct executor *executor) {
    struct list hooks, *link;
    list_init(&hooks);
    pthread_mutex_lock(&executor->lock);
    list_splice_back(&hooks, &executor->end_hooks);
    pthread_mutex_unlock(&executor->lock);
    atomic_store_explicit(&executor->has_end_hooks, false, memory_order_relaxed);
    while ((link = list_pop_front(&hooks))) {
        struct kernel_end_hook *hook = LIST_ENTRY(link, struct kernel_end_hook, link);
        hook->record = end_op_new(executor, NULL, hook->what);
        hook->begin(hook);
    }
    return executor->n_async == 0;
}
