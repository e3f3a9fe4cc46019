/* A step's beginning and end: its memory, recycled from run to run of a plan; start, cancel, and
 * what is handed to the caller. */
#include <stdlib.h>

#include "worker/container.h"
#include "worker/executor/executor_internal.h"

enum {
    MAX_FREE_STEPS = 8, /* recycled arenas kept per plan */
    LARGE_PLAN_NODES =
        4096, /* a step of more outlasts its turn on a loop thread: it begins on the pool, and its memory stays in one cache */
};

/* ---- memory ---- */

static struct step *step_new(struct plan *plan) {
    struct step *step = aligned_alloc(64, (sizeof *step + 63) & ~(size_t)63);
    if (!step)
        out_of_memory(sizeof *step);
    memset(step, 0, sizeof *step);
    step->plan = plan;
    step->free_iterations = xcalloc(plan->n_frames, sizeof(struct iteration *));
    step->free_frames = xcalloc(plan->n_frames, sizeof(struct frame *));
    step->ready_capacity = plan->n_roots + 64;
    step->ready = xcalloc(step->ready_capacity, sizeof *step->ready);
    step->outputs = aligned_alloc(64, (size_t)(plan->max_outputs + 1) * sizeof(struct tensor));
    CHECK(step->outputs);
    memset(step->outputs, 0, (size_t)(plan->max_outputs + 1) * sizeof(struct tensor));
    pthread_mutex_init(&step->lock, NULL);
    list_init(&step->pending);
    list_init(&step->woken_link);
    list_init(&step->cancel_hooks);
    return step;
}

static void step_free(struct step *step) {
    for (uint32_t i = 0; i < step->plan->n_frames; i++)
        for (struct iteration *iteration = step->free_iterations[i], *next; iteration;
             iteration = next) {
            next = iteration->next_free;
            iteration_free(iteration);
        }
    for (uint32_t i = 0; i < step->plan->n_frames; i++)
        for (struct frame *frame = step->free_frames[i], *next; frame; frame = next) {
            next = frame->next_free;
            frame_free(frame);
        }
    for (struct async_op *op = step->free_ops, *next; op; op = next) {
        next = op->next;
        free(op->outputs);
        free(op);
    }
    pthread_mutex_destroy(&step->lock);
    free(step->free_iterations);
    free(step->free_frames);
    free(step->ready);
    free(step->outputs);
    free(step);
}

static void steps_free(struct step *first) {
    for (struct step *step = first, *next; step; step = next) {
        next = step->next_free;
        step_free(step);
    }
}

static struct step *step_take(struct plan *plan) {
    pthread_mutex_lock(&plan->lock);
    struct step *step = plan->free_steps;
    if (step) {
        plan->free_steps = step->next_free;
        plan->n_free_steps--;
    }
    pthread_mutex_unlock(&plan->lock);
    return step ? step : step_new(plan);
}

static void step_give_back(struct step *step) {
    struct plan *plan = step->plan;
    pthread_mutex_lock(&plan->lock);
    bool keep = plan->n_free_steps < MAX_FREE_STEPS;
    if (keep) {
        step->next_free = plan->free_steps;
        plan->free_steps = step;
        plan->n_free_steps++;
        plan->steps_free = steps_free;
    }
    pthread_mutex_unlock(&plan->lock);
    if (!keep)
        step_free(step);
    plan_unref(plan);
}

/* ---- the end ---- */

void step_end(struct step *step) {
    struct step_run *run = step->run;
    struct status *st = step->status;
    pthread_mutex_lock(&run->lock);
    run->step = NULL; /* executor_cancel finds nothing from here on */
    partial_end(run);
    pthread_mutex_unlock(&run->lock);
    for (uint32_t i = 0; i < step->plan->n_fetches && !st; i++)
        if (run->fetches[i].storage == TENSOR_NONE)
            st = status_internal(
                "the step ended without a value for fetch %u: the graph never produced it", i);
    if (st)
        for (uint32_t i = 0; i < step->plan->n_fetches; i++)
            tensor_clear(&run->fetches[i]);
    if (step->root->n_executed != step->plan->frames[0].n_nodes || step->root->n_child_frames > 0 ||
        step->is_aborted) {
        frames_drop_all(step);
        step->root->n_executed = UINT32_MAX;
    }
    iteration_recycle(step, step->root);
    container_table_free(step->own_container);
    status_unref(step->cancel_why);
    status_unref(step->asked_why);
    step->own_container = NULL;
    step->cancel_why = step->asked_why = NULL;
    run->n_executed = step->n_executed;
    run->stats = step->stats;
    step->stats = NULL;
    step_give_back(step);
    run->on_done(run, st);
}

/* ---- start and cancel ---- */

void executor_start(struct step_run *run) {
    struct step *step = step_take(run->plan);
    plan_ref(run->plan);
    step->run = run;
    step->status = NULL;
    step->is_aborted = step->wants_flush = false;
    step->is_on_pool = pool_is_current();
    step->n_async = 0;
    step->n_executed = 0;
    step->n_ready = 0;
    step->task.run = step_drive_on_pool;
    atomic_store_explicit(&step->mailbox, NULL, memory_order_relaxed);
    atomic_store_explicit(&step->cancel_asked, false, memory_order_relaxed);
    atomic_store_explicit(&step->has_failed, false, memory_order_relaxed);
    run->stats = NULL;
    run->n_executed = 0;
    if (run->collect_stats)
        stats_begin(step);
    step->root = iteration_new(step, 0);
    partial_begin(run, step->root);
    for (uint32_t i = 0; i < run->plan->n_roots; i++)
        if (likely(!run->is_partial) ||
            step->root->states[run->plan->nodes[run->plan->roots[i]].state].pending == 0)
            step_push_ready(step, step->root, run->plan->roots[i], false);
    pthread_mutex_lock(&run->lock);
    run->step = step;
    struct status *why = run->cancelled_before;
    run->cancelled_before = NULL;
    pthread_mutex_unlock(&run->lock);
    if (why)
        step_fail(step, NULL, why);
    if (run->plan->n_nodes > LARGE_PLAN_NODES && run->inline_budget_ns > 0 && run->pool &&
        !step->is_on_pool)
        step_move_to_pool(step);
    else
        step_drive(step, NULL);
}

void executor_cancel(struct step_run *run, struct status *why) {
    struct step *step;
    bool owns = false;
    pthread_mutex_lock(&run->lock);
    step = run->step;
    if (step && !atomic_exchange_explicit(&step->cancel_asked, true, memory_order_relaxed)) {
        step->asked_why = status_ref(why);
        step->cancel_op.step = step;
        step->cancel_op.is_cancel = true;
        owns = step_mailbox_post(step, &step->cancel_op);
    } else if (!step && !run->cancelled_before) {
        run->cancelled_before = status_ref(why);
    }
    pthread_mutex_unlock(&run->lock);
    if (owns)
        step_wake(step, &step->cancel_op);
}

void step_run_init(struct step_run *run) {
    memset(run, 0, sizeof *run);
    pthread_mutex_init(&run->lock, NULL);
}

void step_run_fini(struct step_run *run) {
    status_unref(run->cancelled_before);
    run->cancelled_before = NULL;
    pthread_mutex_destroy(&run->lock);
}
