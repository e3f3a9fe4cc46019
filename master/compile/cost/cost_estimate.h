/* Estimates what the nodes of a placed or half placed graph take, and how large their values are:
 * measured times where there are some (cost_table.h), the op rows otherwise (kernels/cost.h). For
 * the compiler's rooms. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_COST_COST_ESTIMATE_H
#define MILLRACE_MASTER_COMPILE_COST_COST_ESTIMATE_H

#include "master/compile/compilation.h"
#include "master/compile/cost/schedule.h"

/* Iterations of a loop, whose number is not known before the step. */
enum { COST_LOOP_TRIPS = 10 };

struct cost_estimates {
    const struct compilation *c;
    const struct graph_shapes *shapes;
    struct arena *arena; /* scratch, borrowed */
    bool has_measured;   /* there are measured costs */
    int n_measured;      /* answers of cost_estimate_ns that were measured */
};

/* Infers the shapes of c->graph. */
void cost_estimates_init(struct cost_estimates *estimates, struct compilation *c,
                         struct arena *arena);
/* The time of one execution of the node on the device, with its dispatch. */
double cost_estimate_ns(struct cost_estimates *estimates, const struct node *node,
                        const struct device_info *device);
/* The size of a value. Sizes that are not static are expected ones (expected_shapes.h). */
double cost_estimate_bytes(const struct cost_estimates *estimates, const struct node *node,
                           int output);
/* What a value costs from device `a` to device `b`. */
struct schedule_link cost_estimate_link(const struct compilation *c, const struct device_info *a,
                                        const struct device_info *b);

#endif
