/* Runs nodes that end elsewhere: asynchronous kernels, kernels on the pool, Send and Recv; and
 * cancels an execution's waits.
 *
 * An async_op is one such node in one iteration. The owner starts it, and it completes exactly
 * once: through the mailbox, or at once when nothing had to be waited for. */
#include "worker/executor/executor_internal.h"

#include <stdlib.h>

#include "common/base/clock.h"

/* ---- records ---- */

size_t async_op_bytes(const struct plan *plan) {
    return sizeof(struct async_op) + ((size_t)plan->max_outputs + 1) * sizeof(struct tensor);
}

void async_op_free(struct async_op *op) {
    free(op->outputs);
    free(op);
}

struct async_op *async_op_take(struct executor *executor) {
    struct async_op *op = executor->free_ops;
    if (op) {
        executor->free_ops = op->next;
        return op;
    }
    op = aligned_alloc(_Alignof(struct async_op), sizeof *op);
    CHECK(op);
    memset(op, 0, sizeof *op);
    op->executor = executor;
    executor->memory_bytes += async_op_bytes(executor->plan);
    op->outputs_capacity = (uint32_t)executor->plan->max_outputs + 1;
    op->outputs = aligned_alloc(64, op->outputs_capacity * sizeof *op->outputs);
    CHECK(op->outputs);
    memset(op->outputs, 0, op->outputs_capacity * sizeof *op->outputs);
    return op;
}

struct async_op *async_op_new(struct executor *executor, struct iteration *iteration,
                              const struct plan_node *node) {
    struct async_op *op = async_op_take(executor);
    op->iteration = iteration;
    op->node = node;
    op->is_dead_send = false;
    op->ctx = (struct kernel_ctx){.inputs = &iteration->slots[node->first_slot],
                                  .outputs = op->outputs,
                                  .instance = node->instance,
                                  .host = &executor_host,
                                  .pool = executor->execution->pool,
                                  .host_data = executor,
                                  .step_id = executor->execution->step_id};
    op->since_ns = clock_now_ns();
    op->started_ns = 0;
    pthread_mutex_lock(&executor->lock);
    list_push_back(&executor->pending, &op->link);
    pthread_mutex_unlock(&executor->lock);
    return op;
}

/* The reference that a kernel forwards becomes its output, under the shape of what it made. */
static void hand_on_late(struct async_op *op) {
    if (!op->ctx.status) {
        tensor_set_ref_shape(&op->late, tensor_shape(&op->outputs[0]), op->outputs[0].n_elements);
        tensor_clear(&op->outputs[0]);
        tensor_move(&op->outputs[0], &op->late);
    }
    tensor_clear(&op->late);
}

void async_complete(struct async_op *op) {
    if (unlikely(op->late.storage == TENSOR_REF))
        hand_on_late(op);
    struct executor *executor = op->executor;
    const struct plan_node *node = op->node;
    struct status *st = op->ctx.status;
    bool is_dead =
        node->kind == PLAN_RECV ? op->outputs[0].storage == TENSOR_DEAD : op->is_dead_send;
    op->ctx.status = NULL;
    pthread_mutex_lock(&executor->lock);
    list_remove(&op->link);
    pthread_mutex_unlock(&executor->lock);
    executor->n_async--;
    if (unlikely(node->kind == PLAN_COPY))
        saves_note_copy(op, false);
    if (unlikely(executor->stats != NULL))
        stats_async_node(executor, op, node->n_outputs && !is_dead ? &op->outputs[0] : NULL);
    if (is_dead && node->kind == PLAN_RECV)
        op->outputs[0].storage = TENSOR_NONE;
    if (unlikely(node->kind == PLAN_FETCH && !st)) {
        executor_finish_fetch(executor, node, &op->outputs[0], false);
        executor_finish_node(executor, op->iteration, node, op->outputs, false, NULL);
    } else if (unlikely(node->kind == PLAN_FEED && !st))
        executor_finish_feed(executor, op->iteration, node, op->outputs);
    else
        executor_finish_node(executor, op->iteration, node, op->outputs, is_dead, st);
    op->next = executor->free_ops;
    executor->free_ops = op;
}

/* ---- starting ---- */

static void run_on_pool(struct pool_task *task) {
    struct async_op *op = CONTAINER_OF(task, struct async_op, task);
    wake_defer_begin();
    bool is_timed = op->executor->is_timed;
    struct kernel_start start = {0};
    if (is_timed)
        start = kernel_start_now();
    executor_compute_long(op->node, &op->ctx);
    if (is_timed)
        op->busy_ns = executor_slow_down(op->executor, start);
    op->started_ns = start.at_ns;
    op->ended_ns = is_timed ? clock_now_ns() : 0;
    executor_post(op);
    wake_defer_end();
}

void async_start_on_pool(struct async_op *op) {
    op->task.run = run_on_pool;
    pool_submit(op->executor->execution->pool, &op->task);
}

/* A Send of much text, while its value is encoded. */
struct encoded_send {
    struct text_encoding encoding;
    struct async_op *op;
};

static void on_value(struct rendezvous_recv *recv, struct status *status_take,
                     struct tensor *value_take) {
    struct async_op *op = CONTAINER_OF(recv, struct async_op, recv);
    op->ctx.status = status_take;
    if (value_take) /* a granted Send has no outputs */
        tensor_move(&op->outputs[0], value_take);
    executor_post(op);
}

static bool start_recv(struct async_op *op) {
    const struct plan_channel *channel = &op->executor->plan->channels[op->node->aux];
    op->recv.on_value = on_value;
    if (unlikely(channel->slot_bytes > 0)) /* a pre-grant may be queued */
        op->executor->wants_flush = true;
    return rendezvous_recv_start(op->executor->execution->rendezvous, channel,
                                 op->iteration->frame_iter, &op->recv, &op->outputs[0]);
}

/* The operation may have completed when this returns, because its value may be granted at once. */
static void on_encoded(struct text_encoding *encoding, struct status *status_take,
                       struct buffer *proto_take) {
    struct async_op *op = CONTAINER_OF(encoding, struct encoded_send, encoding)->op;
    struct executor *executor = op->executor;
    struct rendezvous *rendezvous = encoding->rendezvous;
    bool is_offered = false;
    free(CONTAINER_OF(encoding, struct encoded_send, encoding));
    if (!status_take)
        status_take = rendezvous_send_encoded(rendezvous, &executor->plan->channels[op->node->aux],
                                              op->iteration->frame_iter, &op->ctx.inputs[0],
                                              proto_take, &op->recv, &is_offered);
    if (is_offered) /* from now on it is on_value's */
        return;
    op->ctx.status = status_take;
    executor_post(op);
}

static void start_encoding(struct async_op *op) {
    struct encoded_send *send = xcalloc(1, sizeof(*send));
    send->op = op;
    send->encoding.on_encoded = on_encoded;
    text_encoding_start(&send->encoding, op->executor->execution->rendezvous, &op->ctx.inputs[0]);
}

static bool start_send(struct async_op *op) {
    const struct plan_channel *channel = &op->executor->plan->channels[op->node->aux];
    bool is_offered;
    op->recv.on_value = on_value;
    op->is_dead_send = op->ctx.inputs[0].storage == TENSOR_DEAD;
    if (unlikely(op->executor->stats != NULL))
        op->row = stats_send_begin(op->executor, op->iteration, op->node, &op->ctx.inputs[0]);
    if (rendezvous_encodes_apart(op->executor->execution->rendezvous, channel,
                                 &op->ctx.inputs[0])) {
        start_encoding(op);
        return false;
    }
    struct status *st = rendezvous_send_or_offer(op->executor->execution->rendezvous, channel,
                                                 op->iteration->frame_iter, &op->ctx.inputs[0],
                                                 &op->recv, &is_offered);
    if (!is_offered) /* otherwise it is on_value's from now on */
        op->ctx.status = st;
    return !is_offered;
}

bool async_start(struct async_op *op) {
    switch ((enum plan_kind)op->node->kind) {
    case PLAN_RECV:
        return start_recv(op);
    case PLAN_SEND:
        return start_send(op);
    case PLAN_FEED:
        return partial_start_feed(op);
    case PLAN_COPY:
        return device_start_copy(op);
    case PLAN_FETCH:
        return device_start_fetch(op);
    default:
        return op->node->compute(&op->ctx) == KERNEL_DONE;
    }
}

/* ---- cancellation ---- */

void async_cancel_waits(struct executor *executor) {
    struct list hooks;
    list_init(&hooks);
    pthread_mutex_lock(&executor->lock);
    if (!executor->cancel_why)
        executor->cancel_why = status_ref(executor->status);
    list_splice_back(&hooks, &executor->cancel_hooks);
    for (struct list *link; (link = list_pop_front(&hooks));) {
        struct kernel_cancel_hook *hook = LIST_ENTRY(link, struct kernel_cancel_hook, link);
        pthread_mutex_unlock(&executor->lock);
        hook->cancel(hook, executor->cancel_why);
        pthread_mutex_lock(&executor->lock);
    }
    pthread_mutex_unlock(&executor->lock);
    if (executor->execution->rendezvous)
        rendezvous_abort(executor->execution->rendezvous, executor->status);
    if (executor->execution->is_partial)
        partial_cancel_waits(executor);
}

enum { SHOWN_NAME_BYTES = 256 };

static void describe_wait(const struct executor *executor, const struct async_op *op,
                          int64_t now_ns, struct str *out) {
    if (op->is_end) {
        str_addf(out, "waits%s%s %s for %.3f s\n", op->device ? " for " : "",
                 op->device ? op->device->full_name : "", op->until,
                 (double)(now_ns - op->since_ns) / 1e9);
        return;
    }
    const struct node *node = op->node->node;
    const char *more = strlen(node->name) > SHOWN_NAME_BYTES ? "..." : "";
    str_addf(out, "%.*s%s (%s) for %.3f s", SHOWN_NAME_BYTES, node->name, more, node->op_name,
             (double)(now_ns - op->since_ns) / 1e9);
    if (op->node->kind == PLAN_SEND)
        str_addf(out, " to %s", executor->plan->channels[op->node->aux].peer_task);
    if (op->node->kind == PLAN_RECV)
        str_addf(out, " from %s", executor->plan->channels[op->node->aux].peer_task);
    if (op->node->kind == PLAN_FEED)
        str_add(out, ", to be fed");
    str_add_char(out, '\n');
}

void execution_describe_waits(struct execution *execution, size_t max_bytes, struct str *out) {
    size_t end = out->len + max_bytes, n_more = 0;
    pthread_mutex_lock(&execution->lock);
    struct executor *executor = execution->executor;
    if (executor) {
        int64_t now_ns = clock_now_ns();
        pthread_mutex_lock(&executor->lock);
        LIST_FOR_EACH (link, &executor->pending) {
            if (out->len < end)
                describe_wait(executor, LIST_ENTRY(link, struct async_op, link), now_ns, out);
            else
                n_more++;
        }
        pthread_mutex_unlock(&executor->lock);
    }
    pthread_mutex_unlock(&execution->lock);
    if (n_more > 0)
        str_addf(out, "and %zu more\n", n_more);
}
