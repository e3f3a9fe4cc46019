/* What placement by cost shares: the problem that a graph poses (place_cost_problem.c), and the
 * choice of its solution (place_cost.c). For these two files and their tests. */
#ifndef MILLRACE_MASTER_COMPILE_PLACE_PLACE_COST_INTERNAL_H
#define MILLRACE_MASTER_COMPILE_PLACE_PLACE_COST_INTERNAL_H

#include "master/compile/compilation.h"
#include "master/compile/cost/cost_estimate.h"
#include "master/compile/place/place.h"
#include "master/compile/cost/schedule.h"

struct cost_placer {
    struct compilation *c;
    struct placer *placer;
    const struct loop_frames *frames;
    struct node *const *order;
    struct arena arena;
    struct cost_estimates estimates;
    int *device_of;  /* candidates: index in the problem → index in the device table */
    int *unit_of;    /* by node id; -1: no unit */
    bool *has_state; /* by root id of the placer: some member has state */
    int *group_of;   /* by root id of the placer: the problem's group; -1: none */
    int *loop_group; /* by outermost frame: the group of its free groups; -1: none yet */
    struct place_group **first_in; /* by the problem's group */
    int *placed;                   /* by the problem's group: its device by the simple rule */
    int *present;    /* by group: its device now, if the step is placed again; or NULL */
    bool has_choice; /* some group may be on several devices; else no units are made */
    struct schedule_problem problem;
};

/* Makes the problem. All arguments are borrowed until cost_placer_fini. */
void cost_placer_init(struct cost_placer *p, struct compilation *c, struct placer *placer,
                      const struct loop_frames *frames, struct node *const *order);
void cost_placer_fini(struct cost_placer *p);
/* The problem's group of a node; -1: the node follows others. */
int cost_placer_group(const struct cost_placer *p, const struct node *node);

struct cost_choice {
    struct schedule_result simple, best; /* by the simple rule, and of the choice */
    bool is_better;                      /* `chosen` is not the simple rule's placement */
};
/* Searches a placement, and keeps the simple rule's unless the found one is relevantly better.
 * `chosen` gets a device of the problem for each group. */
struct cost_choice cost_placer_choose(const struct cost_placer *p, struct schedule *schedule,
                                      int *chosen);

#endif
