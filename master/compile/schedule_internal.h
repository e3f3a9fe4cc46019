/* What the simulator and the search share (schedule.h). For these two files. */
#ifndef MILLRACE_MASTER_COMPILE_SCHEDULE_INTERNAL_H
#define MILLRACE_MASTER_COMPILE_SCHEDULE_INTERNAL_H

#include "master/compile/schedule.h"

struct schedule_event {
    double at_ns;
    int unit;
    bool is_end; /* the unit has run; otherwise its inputs have arrived */
};

/* The state of one device. */
struct schedule_lanes {
    int n_busy;
    int first_queued, last_queued; /* units that wait for a lane; -1: none */
    double bytes;                  /* that values occupy now */
    /* of the value that is being sent: the device's copy */
    const struct schedule_value *holder_value;
    int holder_edge;
    double arrival_ns;
};

struct schedule {
    const struct schedule_problem *problem;
    /* by unit: its incoming edges, inputs[first_input[u] … first_input[u + 1]) */
    int *n_inputs, *first_input, *inputs;
    int *value_of;                /* by edge */
    int *members, *first_member;  /* units by group */
    int *n_pending;               /* by unit: inputs that have not arrived */
    double *ready_ns, *end_ns;    /* by unit */
    int *next_queued;             /* by unit: the device's queue */
    int *holder, *n_users;        /* by edge: the edge that holds the copy; by holder: its users */
    struct schedule_lanes *lanes; /* by device */
    double *link_free_ns;         /* [from * n_devices + to] */
    double *peak_bytes;           /* by device */
    struct schedule_event *heap;
    int n_events;
    double sent_bytes;
    int64_t n_visits; /* of schedule_n_visits */
};

void schedule_index(struct schedule *schedule);

#endif
