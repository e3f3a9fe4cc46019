/* What ends elsewhere: asynchronous kernels, kernels on the pool, Recv; and how a step's waits
 * are cancelled.
 *
 * An async_op is one such execution. It leaves the owner when it starts and comes home exactly
 * once, through the step's mailbox, or at once when nothing had to be waited for. */
#include "worker/executor/executor_internal.h"

#include <stdlib.h>

#include "common/base/clock.h"

/* ---- records ---- */

struct async_op *async_op_new(struct step *step, struct iteration *iteration,
                              const struct plan_node *node) {
    struct async_op *op = step->free_ops;
    if (op) {
        step->free_ops = op->next;
    } else {
        op = xcalloc(1, sizeof *op);
        op->step = step;
        op->outputs_capacity = (uint32_t)step->plan->max_outputs + 1;
        op->outputs = aligned_alloc(64, op->outputs_capacity * sizeof *op->outputs);
        CHECK(op->outputs);
        memset(op->outputs, 0, op->outputs_capacity * sizeof *op->outputs);
    }
    op->iteration = iteration;
    op->node = node;
    op->is_dead_send = false;
    op->ctx = (struct kernel_ctx){.inputs = &iteration->slots[node->first_slot],
                                  .outputs = op->outputs,
                                  .instance = node->instance,
                                  .host = &executor_host,
                                  .pool = step->run->pool,
                                  .step = step,
                                  .step_id = step->run->step_id};
    op->since_ns = clock_now_ns();
    pthread_mutex_lock(&step->lock);
    list_push_back(&step->pending, &op->link);
    pthread_mutex_unlock(&step->lock);
    return op;
}

void async_home(struct async_op *op) {
    struct step *step = op->step;
    const struct plan_node *node = op->node;
    struct status *st = op->ctx.status;
    bool is_dead =
        node->kind == PLAN_RECV ? op->outputs[0].storage == TENSOR_DEAD : op->is_dead_send;
    op->ctx.status = NULL;
    pthread_mutex_lock(&step->lock);
    list_remove(&op->link);
    pthread_mutex_unlock(&step->lock);
    step->n_async--;
    if (unlikely(step->stats != NULL))
        stats_node(step, node, op->since_ns, clock_now_ns(),
                   node->n_outputs && !is_dead ? &op->outputs[0] : NULL);
    if (is_dead && node->kind == PLAN_RECV)
        op->outputs[0].storage = TENSOR_NONE;
    if (unlikely(node->kind == PLAN_FEED && !st))
        step_finish_feed(step, op->iteration, node, op->outputs);
    else
        step_finish_node(step, op->iteration, node, op->outputs, is_dead, st);
    op->next = step->free_ops;
    step->free_ops = op;
}

/* ---- starting ---- */

static void run_on_pool(struct pool_task *task) {
    struct async_op *op = CONTAINER_OF(task, struct async_op, task);
    thread_begins();
    op->node->compute(&op->ctx);
    step_post(op);
    thread_ends();
}

void async_start_on_pool(struct async_op *op) {
    op->task.run = run_on_pool;
    pool_submit(op->step->run->pool, &op->task);
}

static void on_value(struct rendezvous_recv *recv, struct status *status_take,
                     struct tensor *value_take) {
    struct async_op *op = CONTAINER_OF(recv, struct async_op, recv);
    op->ctx.status = status_take;
    if (value_take) /* a granted Send has none */
        tensor_move(&op->outputs[0], value_take);
    step_post(op);
}

static bool start_recv(struct async_op *op) {
    const struct plan_channel *channel = &op->step->plan->channels[op->node->aux];
    op->recv.on_value = on_value;
    if (unlikely(channel->slot_bytes > 0)) /* a grant ahead may be queued */
        op->step->wants_flush = true;
    return rendezvous_recv_start(op->step->run->rendezvous, channel, op->iteration->frame_iter,
                                 &op->recv, &op->outputs[0]);
}

static bool start_send(struct async_op *op) {
    const struct plan_channel *channel = &op->step->plan->channels[op->node->aux];
    bool is_offered;
    op->recv.on_value = on_value;
    op->is_dead_send = op->ctx.inputs[0].storage == TENSOR_DEAD;
    op->ctx.status =
        rendezvous_send_or_offer(op->step->run->rendezvous, channel, op->iteration->frame_iter,
                                 &op->ctx.inputs[0], &op->recv, &is_offered);
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
    default:
        return op->node->compute(&op->ctx) == KERNEL_DONE;
    }
}

/* ---- cancellation ---- */

void async_cancel_waits(struct step *step) {
    struct list hooks;
    list_init(&hooks);
    pthread_mutex_lock(&step->lock);
    if (!step->cancel_why)
        step->cancel_why = status_ref(step->status);
    list_splice_back(&hooks, &step->cancel_hooks);
    for (struct list *link; (link = list_pop_front(&hooks));) {
        struct kernel_cancel_hook *hook = LIST_ENTRY(link, struct kernel_cancel_hook, link);
        pthread_mutex_unlock(&step->lock);
        hook->cancel(hook, step->cancel_why);
        pthread_mutex_lock(&step->lock);
    }
    pthread_mutex_unlock(&step->lock);
    if (step->run->rendezvous)
        rendezvous_abort(step->run->rendezvous, step->status);
    if (step->run->is_partial)
        partial_cancel_waits(step);
}

void executor_describe_waits(struct step_run *run, struct str *out) {
    pthread_mutex_lock(&run->lock);
    struct step *step = run->step;
    if (step) {
        int64_t now_ns = clock_now_ns();
        pthread_mutex_lock(&step->lock);
        LIST_FOR_EACH (link, &step->pending) {
            const struct async_op *op = LIST_ENTRY(link, struct async_op, link);
            str_addf(out, "%s (%s) for %.3f s", op->node->node->name, op->node->node->op_name,
                     (double)(now_ns - op->since_ns) / 1e9);
            if (op->node->kind == PLAN_SEND)
                str_addf(out, " to %s", step->plan->channels[op->node->aux].peer_task);
            if (op->node->kind == PLAN_RECV)
                str_addf(out, " from %s", step->plan->channels[op->node->aux].peer_task);
            if (op->node->kind == PLAN_FEED)
                str_add(out, ", to be fed");
            str_add_char(out, '\n');
        }
        pthread_mutex_unlock(&step->lock);
    }
    pthread_mutex_unlock(&run->lock);
}
