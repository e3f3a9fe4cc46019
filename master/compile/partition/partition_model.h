/* A placed step as a problem for the simulation (schedule.h), before the graph is cut. For the
 * scheduling of receives, and of nodes with large values [WP 5.2]. Pool thread.
 *
 *   nodes ─► units, in topological order     edges ─► values, a device gets each once
 *   devices: all of one type of a task are one, with as many lanes
 *
 * step_trial simulates the step with and without late values, in several worlds. Estimates are
 * rough, so what is done must be right in all of them:
 *
 *   as told    the lanes, the costs and the links that are known
 *   one lane   kernels use all threads of a task, so that they run one after another
 *   slow       links take four times as long, or, which is the same, nodes a fourth of their time,
 *              and there are four times as many lanes */
#ifndef MILLRACE_MASTER_COMPILE_PARTITION_PARTITION_MODEL_H
#define MILLRACE_MASTER_COMPILE_PARTITION_PARTITION_MODEL_H

#include "master/compile/partition/partition.h"
#include "master/compile/cost/schedule.h"

struct step_model {
    struct arena arena;
    struct schedule_problem problem;
    struct schedule_value *values; /* the problem's */
    struct schedule *schedule;     /* simulates the problem */
    int *unit_of;                  /* by node id; of a removed node undefined */
    int *device_of_unit;           /* in the problem */
    int *first_device;             /* by index in the problem: a device of the table */
    int *output_of;                /* by value: which output it is, or CONTROL_EDGE */
};

/* Makes the model of p->c->graph, whose nodes are in topological order. Reads p->frames. */
struct step_model *step_model_new(const struct partitioner *p, struct node *const *order);
void step_model_free(struct step_model *model); /* accepts NULL */
/* Gates that gate nothing. In the model's arena. */
int *step_model_new_gates(struct step_model *model);
/* Lets a task request src:index when the node `gate`, which is on that task, has ended. NULL: when
 * it exists. */
void step_model_set_gate(const struct step_model *model, const struct partitioner *p, int *gates,
                         const struct node *src, int index, int task, const struct node *gate);
/* Says of all copies of src:index that go elsewhere that its device holds it anyway. */
void step_model_keep(struct step_model *model, const struct node *src, int index);

enum { STEP_N_WORLDS = 3 };

/* What the step takes in one world. */
struct step_result {
    double makespan_ns;
    double *peak_bytes; /* by device of the problem */
};
/* Simulates the step in a world. *ret gets arrays of the model's arena. */
void step_model_run(struct step_model *model, int world, const int *gates, struct step_result *ret);

struct step_trial {
    struct step_result without[STEP_N_WORLDS];
    double *lowest_bytes; /* by device: the first world's peaks of what has paid so far */
};
void step_trial_init(struct step_trial *trial, struct step_model *model);
enum step_verdict {
    STEP_PAYS,
    STEP_HARMS, /* in some world the step takes longer, or a device's peak of memory is higher */
    STEP_GAINS_NOTHING, /* in the first world no peak is relevantly lower */
};
/* Of the model of the trial with gates, or of another one of the same nodes with more edges. */
enum step_verdict step_trial_run(struct step_trial *trial, struct step_model *model,
                                 const int *gates);

/* Compares results of one world: is `late` as short, and no peak higher? */
bool step_result_is_harmless(const struct step_result *late, const struct step_result *at_once,
                             int n_devices);

#endif
