/* What the files of backprop.h share: the walk, and the loops that it finds. */
#ifndef MILLRACE_COMMON_GRADIENTS_BACKPROP_INTERNAL_H
#define MILLRACE_COMMON_GRADIENTS_BACKPROP_INTERNAL_H

#include "common/gradients/backprop.h"
#include "common/graph/conditions.h"
#include "common/graph/control_flow.h"

/* One contribution to the gradient of an output, in a list for each output. */
struct contribution {
    struct node_input value;
    int next; /* index + 1 of the next one; 0 at the end */
};

/* What is differentiated at a time: a node, or a whole loop. */
struct unit {
    struct node *node; /* NULL: the loop of `frame` */
    int frame;
};

/* The units that belong to one frame, producers first. */
struct region {
    struct unit *units;
    int n;
};

/* A value of a loop:  Enter ─► Merge ─► Switch ─► Exit
 *                                ▲        └─► body ─► NextIteration ─┐
 *                                └──────────────────────────────────┘ */
struct loop_var {
    struct node *enter, *merge, *switch_node, *next;
    struct node *exit; /* the first one; NULL: none */
    bool is_shared;    /* the body hands it on as it is */
    bool is_active;    /* a gradient flows through it */
};

/* A loop of the part. Arrays are in the arena of the walk. */
struct loop {
    int frame;
    struct node *cond; /* LoopCond */
    struct loop_var *vars;
    struct node **enters, **exits;
    int n_vars, n_enters, n_exits, depth;
    bool is_odd; /* it has several conditions, or a variable has several Switches */
};

/* A node that was added to a forward loop. */
struct added_node {
    bool is_forward;
    int frame, condition; /* of its outputs */
};

struct walk {
    const struct backprop *b;
    struct arena arena;
    struct node **order; /* the nodes of the part, in order */
    int n_order, n_part;
    int *first_output; /* for each node of the part: the index of its outputs in `heads` */
    int *heads;        /* for each output: its first contribution + 1 */
    /* for each node of the part: does it depend on an x? Is one of its outputs an x? */
    bool *is_on_way, *is_x;
    bool has_control_flow; /* if not, there are no frames and conditions */
    struct contribution *contributions;
    int n_contributions, capacity;
    struct loop_frames frames;
    struct conditions conditions;
    struct region *regions; /* by frame */
    struct loop *loops;     /* by frame; that of the root is empty */
    /* for each node of the part that is a Merge or Switch of a loop: its place in `vars` + 1 */
    int *var_of;
    bool *is_var_enter; /* by node of the part */
    int *seen_by;       /* by node of the part: the loop that saw it last (backprop_loop.c) */
    /* control input of new nodes without data inputs, in the region that is differentiated */
    struct node *entry;
    struct added_node *added; /* by id, from the end of the part on */
    int added_capacity;
};

bool walk_has(const struct walk *walk, const struct node *node); /* is it of the part? */
bool carries_gradient(struct node_input value);
/* Adds a contribution to the gradient of an output; no src: none. */
void walk_contribute(struct walk *walk, struct node_input to, struct node_input value);
/* The sum of the contributions to an output. src NULL: there are none. */
struct status *walk_take(struct walk *walk, struct node_input output,
                         struct node_input *ret) MUST_USE;
/* Differentiates the units of a region, from the last to the first. */
struct status *walk_region(struct walk *walk, int frame) MUST_USE;
/* What the notation of build.h needs; the names of new nodes begin with that of `node`. */
struct gradient_ctx walk_context(struct walk *walk, const struct node *node, struct node *entry);

/* ---- backprop_loop.c ---- */

/* Finds frames, conditions and loops, and orders the units of each region. */
void walk_find_loops(struct walk *walk);
/* Is the node one that makes a loop, and so differentiated with it? */
bool walk_is_of_loop(const struct node *node);
/* The variable whose value in the body this is; NULL: it is another value. */
struct loop_var *walk_var(const struct walk *walk, struct loop *loop, struct node_input value);
struct status *walk_loop(struct walk *walk, struct loop *loop) MUST_USE;

/* ---- saved_values.c ---- */

/* A value that was added to a loop: Enter, Merge, Switch, Exit. */
struct made_var {
    struct node_input merge, switch_node, exit;
};

void loop_enter(struct gradient_ctx *g, const char *frame_name, int64_t parallel_iterations,
                struct node_input initial, struct made_var *ret);
void loop_switch(struct gradient_ctx *g, struct node_input cond, struct made_var *var);
/* `next`: the value for the next iteration */
void loop_close(struct gradient_ctx *g, const struct made_var *var, struct node_input next);

/* Keeps the values of a forward loop for the loop of its gradient. */
struct loop_saver {
    struct walk *walk;
    struct loop *loop;
    struct gradient_ctx g;
    struct node *outer_pivot, *inner_pivot; /* in the forward loop's surroundings; in its body */
    const char *frame_name;
    int64_t parallel_iterations;
    /* the loop of gradients; cond and pivot are set before values are asked for */
    const char *grad_frame_name;
    struct node_input grad_cond;
    struct node *grad_pivot;
    struct u64map known; /* (id, output) → struct node_input, in the arena of the walk */
};

/* `prefix`: of the names of new nodes, and the name of the frame of gradients. */
struct status *saver_init(struct loop_saver *saver, struct walk *walk, struct loop *loop,
                          const char *prefix) MUST_USE;
void saver_fini(struct loop_saver *saver); /* accepts an all-zero one */
/* A contribution to the gradient of input i of g->node: where that lives under fewer conditions
 * than the node, zeros take its place on the other sides. */
struct node_input walk_live_as(struct gradient_ctx *g, int i, struct node_input value);
/* The last value of a variable, after the forward loop. */
struct node_input saver_exit(struct loop_saver *saver, const struct loop_var *var);
/* The number of iterations, after the forward loop. */
struct status *saver_count(struct loop_saver *saver, struct node_input *ret) MUST_USE;
/* Gives the nodes from `first_id` on that belong to the loop of gradients saved values in the place
 * of values of the forward loop. */
struct status *saver_replace(struct loop_saver *saver, int first_id) MUST_USE;

#endif
