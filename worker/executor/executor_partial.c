/* Runs partial runs: feeds arrive one after another, and each fetch leaves as soon as it is
 * computed, while the execution continues.
 *
 * A feed node without a value becomes an asynchronous node in the list of its position;
 * execution_feed completes it. */
#include <stdlib.h>

#include "worker/executor/executor_internal.h"

void partial_begin(struct execution *execution, struct iteration *root) {
    execution->waiting_feeds = execution->is_partial ? xcalloc(execution->plan->n_feeds + 1,
                                                               sizeof *execution->waiting_feeds)
                                                     : NULL;
    if (execution->is_partial && execution->plan->partial_initial)
        memcpy(root->states, execution->plan->partial_initial,
               execution->plan->frames[0].n_nodes * sizeof(struct node_state));
}

void partial_end(struct execution *execution) {
    free(execution->waiting_feeds);
    execution->waiting_feeds = NULL;
}

bool partial_start_feed(struct async_op *op) {
    struct execution *execution = op->executor->execution;
    uint32_t position = op->node->aux;
    pthread_mutex_lock(&execution->lock);
    bool is_there = execution->feeds[position].storage != TENSOR_NONE;
    if (is_there) {
        tensor_copy(&op->outputs[0], &execution->feeds[position]);
    } else {
        op->next = execution->waiting_feeds[position];
        execution->waiting_feeds[position] = op;
    }
    pthread_mutex_unlock(&execution->lock);
    return is_there;
}

void execution_feed(struct execution *execution, uint32_t position, struct tensor *value_take) {
    struct async_op *waiting = NULL;
    pthread_mutex_lock(&execution->lock);
    if (execution->waiting_feeds && execution->feeds[position].storage == TENSOR_NONE) {
        tensor_move(&execution->feeds[position], value_take);
        waiting = execution->waiting_feeds[position];
        execution->waiting_feeds[position] = NULL;
        for (struct async_op *op = waiting; op; op = op->next)
            tensor_copy(&op->outputs[0], &execution->feeds[position]);
    } else {
        tensor_clear(value_take);
    }
    pthread_mutex_unlock(&execution->lock);
    while (waiting) {
        struct async_op *op = waiting;
        waiting = op->next;
        executor_post(op);
    }
}

void partial_hand_out(struct executor *executor, uint32_t position, struct tensor *value) {
    struct tensor *mark = &executor->execution->fetches[position];
    /* two nodes have one position: the first one has given the fetch */
    if (mark->storage != TENSOR_NONE) {
        tensor_clear(value);
        return;
    }
    tensor_init_dead(mark);
    executor->execution->on_fetch(executor->execution, position, value);
}

/* Called by the owner, who reads the mailbox next. */
void partial_cancel_waits(struct executor *executor) {
    struct execution *execution = executor->execution;
    for (uint32_t i = 0; i < executor->plan->n_feeds; i++) {
        pthread_mutex_lock(&execution->lock);
        struct async_op *waiting = execution->waiting_feeds[i];
        execution->waiting_feeds[i] = NULL;
        pthread_mutex_unlock(&execution->lock);
        while (waiting) {
            struct async_op *op = waiting;
            waiting = op->next;
            op->ctx.status = status_ref(executor->status);
            executor_post(op);
        }
    }
}
