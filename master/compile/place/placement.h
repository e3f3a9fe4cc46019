/* The placement of a step's nodes, kept with the compiled step so that the signature can be placed
 * again: state stays where it is, and all else only moves if that gains something. For the
 * compiler's rooms and for master/session. Any thread; nothing is shared. */
#ifndef MILLRACE_MASTER_COMPILE_PLACE_PLACEMENT_H
#define MILLRACE_MASTER_COMPILE_PLACE_PLACEMENT_H

#include "master/compile/compile.h"

struct node_placement {
    const char *name;
    int device;     /* index in the device table */
    bool has_state; /* it must stay there */
};

/* Keeps the placement of the graph, which is complete, in the compilation. */
void placement_keep(struct compilation *c);
/* Hands the placement on to the result. */
void placement_keep_in_result(const struct compilation *c, struct compiled *compiled);
/* Puts the nodes with state where options->present has them. Before the graph is placed; no effect
 * without a present placement. */
void placement_pin_state(struct compilation *c);
/* The device of each node in options->present, by node id in the arena; -1: it was not there.
 * Returns NULL without a present placement. */
int *placement_present_devices(const struct compilation *c, struct arena *arena);
/* Are the same nodes on the same devices? */
bool placements_are_equal(const struct compiled *a, const struct compiled *b);

#endif
