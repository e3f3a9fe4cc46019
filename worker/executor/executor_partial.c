/* Partial runs: a step whose feeds come one after another and whose fetches leave as soon as
 * they are there, while it goes on.
 *
 * A feed node that finds no value becomes an asynchronous operation in its position's list;
 * executor_feed sends it home. */
#include <stdlib.h>

#include "worker/executor/executor_internal.h"

void partial_begin(struct step_run *run, struct iteration *root) {
    run->waiting_feeds =
        run->is_partial ? xcalloc(run->plan->n_feeds + 1, sizeof *run->waiting_feeds) : NULL;
    if (run->is_partial && run->plan->partial_initial)
        memcpy(root->states, run->plan->partial_initial,
               run->plan->frames[0].n_nodes * sizeof(struct node_state));
}

void partial_end(struct step_run *run) {
    free(run->waiting_feeds);
    run->waiting_feeds = NULL;
}

bool partial_start_feed(struct async_op *op) {
    struct step_run *run = op->step->run;
    uint32_t position = op->node->aux;
    pthread_mutex_lock(&run->lock);
    bool is_there = run->feeds[position].storage != TENSOR_NONE;
    if (is_there) {
        tensor_copy(&op->outputs[0], &run->feeds[position]);
    } else {
        op->next = run->waiting_feeds[position];
        run->waiting_feeds[position] = op;
    }
    pthread_mutex_unlock(&run->lock);
    return is_there;
}

void executor_feed(struct step_run *run, uint32_t position, struct tensor *value_take) {
    struct async_op *waiting = NULL;
    pthread_mutex_lock(&run->lock);
    if (run->waiting_feeds && run->feeds[position].storage == TENSOR_NONE) {
        tensor_move(&run->feeds[position], value_take);
        waiting = run->waiting_feeds[position];
        run->waiting_feeds[position] = NULL;
        for (struct async_op *op = waiting; op; op = op->next)
            tensor_copy(&op->outputs[0], &run->feeds[position]);
    } else {
        tensor_clear(value_take);
    }
    pthread_mutex_unlock(&run->lock);
    while (waiting) {
        struct async_op *op = waiting;
        waiting = op->next;
        step_post(op);
    }
}

void partial_hand_out(struct step *step, uint32_t position, struct tensor *value) {
    struct tensor *mark = &step->run->fetches[position];
    if (mark->storage != TENSOR_NONE) { /* two nodes name one place: the first was heard */
        tensor_clear(value);
        return;
    }
    tensor_init_dead(mark);
    step->run->on_fetch(step->run, position, value);
}

/* By the owner, whose mailbox they reach. */
void partial_cancel_waits(struct step *step) {
    struct step_run *run = step->run;
    for (uint32_t i = 0; i < step->plan->n_feeds; i++) {
        pthread_mutex_lock(&run->lock);
        struct async_op *waiting = run->waiting_feeds[i];
        run->waiting_feeds[i] = NULL;
        pthread_mutex_unlock(&run->lock);
        while (waiting) {
            struct async_op *op = waiting;
            waiting = op->next;
            op->ctx.status = status_ref(step->status);
            step_post(op);
        }
    }
}
