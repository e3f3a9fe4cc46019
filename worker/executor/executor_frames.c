/* Runs loops: frames and iterations [WP 4.4, CF 4.1-4.3].
 *
 *   Enter          parent iteration ──► iteration 0 of the child frame; every iteration, when the
 *                  Enter is constant
 *   NextIteration  iteration i ──► iteration i + 1, which begins when its first value arrives and
 *                  parallel_iterations allows it; until then the value waits
 *   Exit           an iteration ──► the parent iteration; a dead one only when the frame ends
 *
 * A frame ends when all its Enters have come and no iteration is alive; iterations end oldest
 * first. */
#include "worker/executor/executor_internal.h"

#include <stdlib.h>

/* ---- iterations ---- */

static size_t iteration_head_bytes(const struct plan_frame *frame) {
    size_t children = frame->n_children * sizeof(struct frame *);
    return (sizeof(struct iteration) + children + frame->n_nodes * sizeof(struct node_state) + 63) &
           ~(size_t)63;
}

size_t iteration_bytes(const struct plan_frame *frame) {
    return iteration_head_bytes(frame) + (frame->n_slots + 1) * sizeof(struct tensor);
}

size_t frame_bytes(const struct plan_frame *plan) {
    return sizeof(struct frame) + ((size_t)plan->parallel_iterations + 1) * sizeof(void *) +
           plan->n_exits;
}

struct iteration *iteration_new(struct executor *executor, uint32_t plan_frame) {
    const struct plan_frame *frame = &executor->plan->frames[plan_frame];
    struct iteration *iteration = executor->free_iterations[plan_frame];
    if (iteration) {
        executor->free_iterations[plan_frame] = iteration->next_free;
    } else {
        size_t children = frame->n_children * sizeof(struct frame *);
        size_t head = iteration_head_bytes(frame), size = iteration_bytes(frame);
        iteration = aligned_alloc(64, size);
        if (!iteration)
            out_of_memory(size);
        executor->memory_bytes += size;
        iteration->children = (struct frame **)(iteration + 1);
        iteration->states = (struct node_state *)(iteration->children + frame->n_children);
        iteration->slots = (struct tensor *)((char *)iteration + head);
        iteration->plan_frame = (uint16_t)plan_frame;
        memset(iteration->children, 0, children);
        memset(iteration->slots, 0, frame->n_slots * sizeof(struct tensor));
    }
    memcpy(iteration->states, frame->initial, frame->n_nodes * sizeof(struct node_state));
    iteration->frame = NULL;
    iteration->next_free = NULL;
    iteration->number = 0;
    iteration->frame_iter = 0;
    iteration->n_outstanding = 0;
    iteration->n_child_frames = 0;
    iteration->n_executed = 0;
    return iteration;
}

void iteration_recycle(struct executor *executor, struct iteration *iteration) {
    const struct plan_frame *frame = &executor->plan->frames[iteration->plan_frame];
    if (iteration->n_executed != frame->n_nodes)
        for (uint32_t i = 0; i < frame->n_slots; i++)
            tensor_clear(&iteration->slots[i]);
    iteration->next_free = executor->free_iterations[iteration->plan_frame];
    executor->free_iterations[iteration->plan_frame] = iteration;
}

void iteration_free(struct iteration *iteration) { free(iteration); }

/* ---- frames ---- */

static void values_add(struct frame_values *values, uint32_t node, struct tensor *value) {
    if (values->n == values->capacity) {
        uint32_t capacity = MAX(8u, values->capacity * 2);
        struct frame_value *items = aligned_alloc(64, capacity * sizeof *items);
        CHECK(items);
        if (values->n)
            memcpy(items, values->items, values->n * sizeof *items);
        free(values->items);
        values->items = items;
        values->capacity = capacity;
    }
    values->items[values->n].node = node;
    tensor_move(&values->items[values->n].value, value);
    values->n++;
}

static void values_clear(struct frame_values *values) {
    for (uint32_t i = 0; i < values->n; i++)
        tensor_clear(&values->items[i].value);
    values->n = 0;
}

static struct frame *frame_new(struct executor *executor, uint32_t plan_frame,
                               struct iteration *parent) {
    struct frame *frame = executor->free_frames[plan_frame];
    if (frame) {
        executor->free_frames[plan_frame] = frame->next_free;
    } else {
        frame = xcalloc(1, sizeof *frame);
        executor->memory_bytes += frame_bytes(&executor->plan->frames[plan_frame]);
        frame->plan_frame = plan_frame;
        frame->plan = &executor->plan->frames[plan_frame];
        frame->ring_size = (uint32_t)frame->plan->parallel_iterations + 1;
        frame->ring = xcalloc(frame->ring_size, sizeof *frame->ring);
        frame->has_exited = xcalloc(frame->plan->n_exits + 1, sizeof *frame->has_exited);
    }
    memset(frame->has_exited, 0, frame->plan->n_exits * sizeof *frame->has_exited);
    frame->parent = parent;
    frame->n_enters_pending = frame->plan->n_enters;
    frame->last = 0;
    frame->n_live = 0;
    frame->n_dead_exits = 0;
    parent->children[frame->plan->number] = frame;
    parent->n_child_frames++;
    return frame;
}

void frame_free(struct frame *frame) {
    values_clear(&frame->waiting);
    values_clear(&frame->invariants);
    free(frame->waiting.items);
    free(frame->invariants.items);
    free(frame->has_exited);
    free(frame->dead_exits);
    free(frame->ring);
    free(frame);
}

static void frame_unlink(struct frame *frame) {
    frame->parent->children[frame->plan->number] = NULL;
    frame->parent->n_child_frames--;
}

static void frame_recycle(struct executor *executor, struct frame *frame) {
    values_clear(&frame->waiting);
    values_clear(&frame->invariants);
    frame->next_free = executor->free_frames[frame->plan_frame];
    executor->free_frames[frame->plan_frame] = frame;
}

static struct iteration *frame_iteration(const struct frame *frame, uint64_t number) {
    return frame->ring[number % frame->ring_size];
}

/* A value reaches the consumers of `node` in an iteration of the frame. */
static void deliver(struct executor *executor, struct iteration *to, uint32_t node,
                    struct tensor *value) {
    bool is_dead = value->storage == TENSOR_NONE;
    executor_propagate(executor, to, &executor->plan->nodes[node], value, is_dead);
}

static struct iteration *frame_start_iteration(struct executor *executor, struct frame *frame,
                                               uint64_t number) {
    struct iteration *iteration = iteration_new(executor, frame->plan_frame);
    iteration->frame = frame;
    iteration->number = number;
    iteration->frame_iter =
        hash_mix(frame->parent->frame_iter ^ frame->plan->name_hash, number + 1);
    frame->ring[number % frame->ring_size] = iteration;
    frame->last = number;
    frame->n_live++;
    frame->n_dead_exits = 0;
    return iteration;
}

/* The next iteration begins with the values that waited for it, and with the invariants. */
static struct iteration *frame_advance(struct executor *executor, struct frame *frame) {
    struct iteration *iteration = frame_start_iteration(executor, frame, frame->last + 1);
    for (uint32_t i = 0; i < frame->waiting.n; i++)
        deliver(executor, iteration, frame->waiting.items[i].node, &frame->waiting.items[i].value);
    frame->waiting.n = 0;
    for (uint32_t i = 0; i < frame->invariants.n; i++) {
        struct tensor value;
        tensor_copy(&value, &frame->invariants.items[i].value);
        deliver(executor, iteration, frame->invariants.items[i].node, &value);
    }
    return iteration;
}

/* The frame has ended: Exits that were never live pass their deadness on, and the parent iteration
 * may have ended too. */
static void frame_end(struct executor *executor, struct frame *frame) {
    struct iteration *parent = frame->parent;
    for (uint32_t i = 0; i < frame->n_dead_exits; i++) {
        struct tensor none = TENSOR_INIT;
        if (!frame->has_exited[executor->plan->nodes[frame->dead_exits[i]].aux])
            deliver(executor, parent, frame->dead_exits[i], &none);
    }
    frame_unlink(frame);
    frame_recycle(executor, frame);
    if (parent->frame && parent->n_outstanding == 0)
        frame_iteration_idle(executor, parent);
}

/* Ends iterations from `number` on, oldest first, as far as they have ended. For each, one that was
 * held back may begin. */
static void frame_reap(struct executor *executor, struct frame *frame, uint64_t number) {
    for (; number <= frame->last && frame->n_live > 0; number++) {
        struct iteration *iteration = frame_iteration(frame, number);
        if (!iteration || iteration->number != number)
            continue;
        bool is_first = number == 0,
             is_oldest = is_first || !frame_iteration(frame, number - 1) ||
                         frame_iteration(frame, number - 1)->number != number - 1;
        if (iteration->n_outstanding > 0 || iteration->n_child_frames > 0 || !is_oldest ||
            (is_first && frame->n_enters_pending > 0))
            break;
        frame->ring[number % frame->ring_size] = NULL;
        frame->n_live--;
        iteration_recycle(executor, iteration);
        if (frame->waiting.n > 0)
            frame_advance(executor, frame);
    }
    if (frame->n_live == 0 && frame->n_enters_pending == 0)
        frame_end(executor, frame);
}

void frame_iteration_idle(struct executor *executor, struct iteration *iteration) {
    frame_reap(executor, iteration->frame, iteration->number);
}

/* ---- the three nodes ---- */

void frame_enter(struct executor *executor, struct iteration *iteration,
                 const struct plan_node *node, struct tensor *value, bool is_dead) {
    struct frame *frame = iteration->children[executor->plan->frames[node->aux].number];
    uint32_t index = (uint32_t)(node - executor->plan->nodes);
    struct tensor kept;
    if (!frame) {
        frame = frame_new(executor, node->aux, iteration);
        frame_start_iteration(executor, frame, 0);
    }
    if (is_dead)
        tensor_clear(value);
    if (node->flags & PLAN_CONSTANT_ENTER) {
        tensor_copy(&kept, value);
        values_add(&frame->invariants, index, &kept);
        for (uint64_t number = frame->last; number > 0 && frame_iteration(frame, number) &&
                                            frame_iteration(frame, number)->number == number;
             number--) {
            tensor_copy(&kept, value);
            deliver(executor, frame_iteration(frame, number), index, &kept);
        }
    }
    /* Iteration 0 cannot end before the last Enter has come. */
    deliver(executor, frame_iteration(frame, 0), index, value);
    if (--frame->n_enters_pending == 0 && frame_iteration(frame, 0)->n_outstanding == 0)
        frame_reap(executor, frame, 0);
}

void frame_exit(struct executor *executor, struct iteration *iteration,
                const struct plan_node *node, struct tensor *value, bool is_dead) {
    struct frame *frame = iteration->frame;
    uint32_t index = (uint32_t)(node - executor->plan->nodes);
    /* Its consumers expect one value. A second one would be counted as one of the others. */
    if (!is_dead && frame->has_exited[node->aux]) {
        tensor_clear(value);
        executor_fail(executor, node,
                      status_invalid("An Exit got a live value in two iterations of its loop"));
        return;
    }
    if (!is_dead) {
        frame->has_exited[node->aux] = true;
        deliver(executor, frame->parent, index, value);
        return;
    }
    tensor_clear(value);
    if (iteration->number != frame->last)
        return;
    if (frame->n_dead_exits == frame->dead_exits_capacity) {
        frame->dead_exits_capacity = MAX(8u, frame->dead_exits_capacity * 2);
        frame->dead_exits =
            xreallocarray(frame->dead_exits, frame->dead_exits_capacity, sizeof *frame->dead_exits);
    }
    frame->dead_exits[frame->n_dead_exits++] = index;
}

void frame_next_iteration(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *value, bool is_dead) {
    struct frame *frame = iteration->frame;
    uint32_t index = (uint32_t)(node - executor->plan->nodes);
    if (is_dead) { /* deadness is not passed around the loop, because the loop would never end */
        tensor_clear(value);
        return;
    }
    if (iteration->number < frame->last) {
        deliver(executor, frame_iteration(frame, iteration->number + 1), index, value);
        return;
    }
    if (frame->n_live >= frame->plan->parallel_iterations) {
        values_add(&frame->waiting, index, value);
        return;
    }
    deliver(executor, frame_advance(executor, frame), index, value);
}

/* ---- abort ---- */

/* Finds a live child frame, from the last on. `at` remembers how far it has searched. */
static struct frame *last_child(const struct executor *executor, struct iteration *at) {
    for (; at->n_child_frames > 0 && at->n_unseen_children > 0; at->n_unseen_children--)
        if (at->children[at->n_unseen_children - 1])
            return at->children[at->n_unseen_children - 1];
    return NULL;
}

/* Returns the newest live iteration; there is always one. */
static struct iteration *last_iteration(struct frame *frame) {
    while (!frame_iteration(frame, frame->last))
        frame->last--;
    return frame_iteration(frame, frame->last);
}

static void look_at_children(const struct executor *executor, struct iteration *at) {
    at->n_unseen_children = executor->plan->frames[at->plan_frame].n_children;
}

/* Works from the innermost frame outwards, without recursion, because a graph may nest frames
 * deeply. */
void frames_drop_all(struct executor *executor) {
    struct iteration *at = executor->root;
    look_at_children(executor, at);
    for (;;) {
        struct frame *frame = last_child(executor, at);
        if (frame && frame->n_live > 0) {
            at = last_iteration(frame);
            look_at_children(executor, at);
        } else if (frame) {
            frame_unlink(frame);
            frame_recycle(executor, frame);
        } else if (at == executor->root) {
            return;
        } else {
            frame = at->frame;
            frame->ring[at->number % frame->ring_size] = NULL;
            frame->n_live--;
            at->n_executed = UINT32_MAX; /* its slots may hold anything */
            iteration_recycle(executor, at);
            at = frame->parent;
        }
    }
}
