/* Finds groups of elementwise nodes that may become one node each (pass_fuse.c). For this room.
 * Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_FUSE_FUSE_H
#define MILLRACE_MASTER_COMPILE_FUSE_FUSE_H

#include "master/compile/compilation.h"

struct fuse_group {
    struct node **members; /* producers first */
    int n_members;
};

/* Arrays are in the compilation's arena. */
struct fuse_groups {
    int *of; /* by node id: its group; -1: it is in none */
    struct fuse_group *groups;
    int n_groups;
};

/* Finds the groups of two and more nodes in a placed graph. If each group became one node, the
 * graph would have no cycle, and no value would wait for what can wait for it. `order` is the
 * topological order, `feed_sets` what compile_feed_sets returns. */
void fuse_groups_find(struct compilation *c, struct node *const *order,
                      const struct graph_consumers *consumers, const uint64_t *feed_sets,
                      struct fuse_groups *ret);

/* May the node be a member as a reduction (fuse_reductions.c)? False for all other nodes. */
bool fuse_may_reduce(struct compilation *c, const struct node *node);
/* Has the program of an _MrFused node a reduction? */
bool fuse_has_reduction(const struct node *fused);

#endif
