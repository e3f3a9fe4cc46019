/* What the simulator and the search share (schedule.h). For these two files. */
#ifndef MILLRACE_MASTER_COMPILE_COST_SCHEDULE_INTERNAL_H
#define MILLRACE_MASTER_COMPILE_COST_SCHEDULE_INTERNAL_H

#include "master/compile/cost/schedule.h"

/* Of events at one time, the first kind comes first: ends free lanes. */
enum schedule_event_kind {
    EVENT_END,     /* a unit has run */
    EVENT_SENT,    /* a value has left; `index` is the edge that holds the copy */
    EVENT_REQUEST, /* a gated value may leave; the same */
    EVENT_READY,   /* the inputs of a unit have arrived */
};

struct schedule_event {
    double at_ns;
    int index;
    enum schedule_event_kind kind;
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
    int *value_of;               /* by edge */
    int *members, *first_member; /* units by group */
    int *n_pending;              /* by unit: inputs that have not arrived */
    double *ready_ns, *end_ns;   /* by unit */
    /* With gates. By unit: the edge that holds the first copy that waits for its end; by edge: the
     * next one; -1. By value: the copies that have not left, and the edge of the one that stays. */
    int *first_gated, *next_gated, *n_unsent, *stays_at;
    bool *has_ended;              /* by unit */
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
