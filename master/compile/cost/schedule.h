/* Simulates the execution of a graph on devices, and searches a placement whose simulated execution
 * is short [WP 3.2.1]. Knows no nodes: only units of work, values and devices.
 *
 *   units ──cost on each class of device──┐
 *   values ──bytes, consumers─────────────┼─► schedule_run(placement) ─► makespan, peak memory
 *   devices ──lanes, memory, links────────┘            ▲
 *                                  schedule_search ────┘ tries placements, keeps the shortest
 *
 * What is simulated: a device has lanes (threads), each runs one unit at a time; units start in the
 * order in which they become ready. A value that a unit of another device needs is sent once to
 * that device when its producer has ended. A link carries one value at a time: it is busy for the
 * value's bytes, and the value arrives a latency later. A value occupies memory on each device that
 * has a consumer of it, from the end of its producer until its last consumer there has ended. A
 * gated value is requested by its device when the gate has ended, which takes a latency, and
 * occupies memory there from then on.
 *
 * Units of one group are always on one device. Deterministic: equal problems have equal answers.
 * Times are in nanoseconds from the start of the step. Any thread; nothing is shared. */
#ifndef MILLRACE_MASTER_COMPILE_COST_SCHEDULE_H
#define MILLRACE_MASTER_COMPILE_COST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct schedule_link {
    double latency_ns, ns_per_byte; /* both 0 within a task */
};

struct schedule_device {
    int cost_class;      /* devices of one class run a unit in the same time */
    double memory_bytes; /* INFINITY: no limit */
    int n_lanes;         /* >= 1 */
};

/* A consumer of a value. */
struct schedule_edge {
    int consumer; /* a unit */
};

struct schedule_value {
    int producer; /* a unit */
    int first_edge, n_edges;
    double bytes; /* 0 for a control edge */
    bool is_kept; /* with `gate`: its producer's device holds it anyway while it is sent */
};

/* All arrays belong to the caller. Values are sorted by producer, edges by value. */
struct schedule_problem {
    int n_units, n_groups, n_values, n_edges, n_devices, n_classes;
    const int *group;       /* by unit */
    const double *cost_ns;  /* [unit * n_classes + class]; INFINITY: the class cannot run it */
    const int *first_value; /* by unit, n_units + 1 entries: values first_value[u] … [u + 1] - 1 */
    const struct schedule_value *values;
    const struct schedule_edge *edges;
    const struct schedule_device *devices;
    const struct schedule_link *links; /* [from * n_devices + to] */
    /* by group: bytes that the group holds during the whole step (variables); NULL: none */
    const double *kept_bytes;
    /* by group: the device that it must be on; -1: any that `may_use` allows */
    const int *fixed;
    /* [group * n_devices + device]; NULL: every group may use every device */
    const bool *may_use;
    /* by edge: a unit on the consumer's device whose end starts the value's way there; -1: it is
     * sent as soon as it exists. Equal for all edges of a value to one device. NULL: none, and a
     * value that is being sent occupies nothing on its producer's device, which is quicker to
     * simulate. */
    const int *gate;
};

struct schedule_result {
    double makespan_ns;  /* INFINITY if some unit is on a device that cannot run it */
    double sent_bytes;   /* over all links */
    double excess_bytes; /* by which peaks exceed the devices' memory, summed over devices */
};

/* The scratch memory of one problem. */
struct schedule;
struct schedule *schedule_new(const struct schedule_problem *problem); /* borrows the problem */
void schedule_free(struct schedule *schedule);

/* Simulates the placement, device_of[group]. Cost: O((units + edges) · log units). */
struct schedule_result schedule_run(struct schedule *schedule, const int *device_of);

/* What the runs so far have cost, in visits of a unit of some 0.1 us: a run visits each unit, and
 * counts for more where units have many edges or there are many devices. */
int64_t schedule_n_visits(const struct schedule *schedule);

/* Of the last schedule_run; [n_units] and [n_devices] entries, valid until the next call. */
const double *schedule_ends_ns(const struct schedule *schedule);
const double *schedule_peak_bytes(const struct schedule *schedule);

/* Is `a` a better result than `b`? First the memory that is missing, then the makespan, then what
 * is sent; differences below a part in a million count as none. */
bool schedule_result_is_better(const struct schedule_result *a, const struct schedule_result *b);

/* Searches a placement. `device_of` holds one that is allowed, for example the simple rule's, and
 * gets the best one that was found: it is never worse than the given one by the simulation. Starts
 * are the given placement, the list schedule with upward ranks (HEFT: Topcuoglu, Hariri, Wu 2002),
 * and each device alone; each is improved by moving groups and chains of groups. The search ends
 * when no move helps, or after about max_visits visits of units. Returns the result of
 * `device_of`. */
struct schedule_result schedule_search(struct schedule *schedule, int *device_of,
                                       int64_t max_visits);

#endif
