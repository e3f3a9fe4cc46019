/* The compiler: makes partitions from a session's graph and a step's signature [WP 3.2.1, 3.3.1,
 * 5.1; OSDI 3.3].
 *
 *   session graph ─► cut at feeds and fetches ─► prune ─► inline ─► simplify ─►
 *     invariants ─► fold ─► branches ─► cse ─► pads ─► transposes ─► waits ─► controls ─►
 *     place ─► debug ─► fuse ─► contract ─► gathers ─► partition ─► one graph per task, with the
 *     functions that kernels call
 *
 * Stateful nodes and their colocation groups have been placed before, once for the session's whole
 * graph (place_session). The passes are rows of a table (compile.c). A pass says whether it changed
 * the graph. Passes that do not change results can be switched off. Debug builds verify the graph
 * after each pass. Pure: no I/O, and no clock but that of the fold budget. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_COMPILE_H
#define MILLRACE_MASTER_COMPILE_COMPILE_H

#include "common/base/pool.h"
#include "common/graph/graph.h"
#include "common/ops/infer.h"
#include "master/compile/device_table.h"
#include "master/request/placement.h"

/* What a step asks for, in the client's names: endpoints "node:index" and names of nodes. */
struct signature {
    const char **feeds, **fetches, **targets;
    int n_feeds, n_fetches, n_targets;
    /* Endpoint from[i] of the graph takes the place of endpoint to[i], as a feed would. */
    const char **connect_from, **connect_to;
    int n_connections;
    /* serialized DebugTensorWatch messages: what a debugger wants to see (pass_debug.c) */
    const struct span *watches;
    int n_watches;
    /* a partial run: fetches may be asked for before all feeds have come, so the compiler fills
     * `feed_needs` */
    bool is_partial;
};

struct link_table;
struct cost_table;
struct placed_graph;
struct compiled_cost;
struct compiled;
struct node_placement;

enum { DEBUG_MAX_BYTES = 1 << 30 };

struct compile_options {
    enum placement placement;
    struct link_table *links; /* borrowed; NULL: nothing is known of them */
    struct cost_table *costs; /* borrowed; NULL: nothing is measured for this session */
    /* by task of the device table: it cannot be reached now, so the cost model moves nothing
     * there. Borrowed; NULL: there is none */
    const bool *is_away;
    /* With PLACEMENT_COST: each node goes where the simple rule puts it, so that measured steps can
     * be compared. */
    bool is_by_simple_rule;
    /* The signature's present executable, if it is placed again: what has state stays where it is
     * there, and other nodes stay unless the simulated step is relevantly shorter. Borrowed. */
    const struct compiled *present;
    bool allow_soft_placement;
    bool no_optimizations; /* opt_level L0: no optional pass */
    /* floats travel between tasks as bfloat16: the client's wish, or the operator's */
    bool bfloat16_sends;
    /* receives start shortly before their values are needed (partition_receives.c): the client's
     * wish, or the operator's */
    bool recv_scheduling;
    const char *const *disabled_passes; /* names; NULL-terminated or NULL */
    const char *const *enabled_passes;  /* the same, of passes that are off by default */
    /* a pass ("cse") or "all": write the graph's text to the log after it; NULL: never */
    const char *dump_after;
    /* gets a line for each node: its device, and why; NULL: nobody wants to know */
    struct str *placement_log;
    /* is filled with the placed nodes, and why each is where it is; NULL: nobody wants to know */
    struct placed_graph *placed_graph;
    /* saves without the attr _consistent_save ask for a consistent checkpoint
     * (master/session/save_barrier.h) */
    bool consistent_saves;
    /* how many nodes a step's graph may have after inlining; default 1,000,000 */
    int max_inlined_nodes;
    int64_t fold_max_bytes; /* of one folded tensor: default 10 MiB */
    int64_t fold_budget_ns; /* of the whole pass: default 200 ms */
    /* of the graphs that a debugger's watches add to partitions: default DEBUG_MAX_BYTES */
    int64_t debug_max_bytes;
    /* run graph_verify after each pass that changed the graph; default in debug builds */
    bool verify;
};
void compile_options_default(struct compile_options *options);

/* One pass's view of the work. */
struct compilation {
    struct graph graph; /* changed in place */
    const struct signature *signature;
    const struct device_table *devices;
    const struct compile_options *options;
    struct pool *pool;
    struct node **fetch_nodes; /* n_fetches _MrFetch nodes, made by the cut pass */
    /* the signature's targets, then the effects of inlined functions */
    struct node **target_nodes;
    int n_targets;
    enum dtype *feed_types, *fetch_types; /* base types, set by the cut pass */
    uint64_t *feed_needs; /* set by the cut pass for a partial run; see struct compiled */
    /* the number of SaveV2 nodes if one of them asks for a consistent checkpoint, else 0 */
    int n_barrier_saves;
    /* by task, if n_barrier_saves > 0: are values of that task saved? */
    bool *is_saved_task;
    struct graph_shapes shapes;   /* what compilation_shapes keeps */
    struct graph_shapes expected; /* what expected_shapes keeps (expected_shapes.h) */
    bool *is_guessed;             /* by node id, as expected_is_guessed says; NULL: none is */
    struct compiled_size *sizes;  /* what `expected` lacked */
    int n_sizes, sizes_capacity;
    struct compiled_cost *costs; /* set by the place pass (cost_rows.h) */
    int n_costs;
    int *cost_of, n_cost_ids; /* by id of nodes that were placed: the first of its costs, or -1 */
    struct node_placement *placement; /* where the place pass had a choice; else none */
    int n_placed;
    bool has_rival;          /* as in struct compiled */
    struct arena arena;      /* scratch, lives as long as the compilation */
    struct compiled *result; /* filled by partition */
};

struct pass {
    const char *name;
    struct status *(*run)(struct compilation *c, bool *ret_changed);
    const char *source; /* the paper's section, for docs and --help */
    bool is_optional;   /* it may be switched off without changing results */
    /* its changes leave the shapes of the remaining values alone, so that compilation_shapes need
     * not infer them again */
    bool keeps_shapes;
    /* optional, and off by default, since results may differ in the last bits */
    bool is_opt_in;
};
extern const struct pass compile_passes[];
extern const size_t n_compile_passes;
const struct pass *pass_find(const char *name);

/* A function that kernels of a task call (pass_functions.c). */
struct compiled_function {
    const char *name, *key;
    struct span graphdef;
};

/* Sets of feeds, a bit for each, so that a comparison looks at 64 feeds at once. */
#define FEED_SET_WORDS(n_feeds) (((size_t)(n_feeds) + 63) / 64)
static inline void feed_set_add(uint64_t *set, int feed) {
    set[feed / 64] |= UINT64_C(1) << (feed % 64);
}
/* Finds the first feed that is in `needs`, and in neither of the other two sets; -1: none. */
static inline int feed_set_missing(const uint64_t *needs, const uint64_t *a, const uint64_t *b,
                                   int n_feeds) {
    for (size_t i = 0; i < FEED_SET_WORDS(n_feeds); i++) {
        uint64_t missing = needs[i] & ~(a[i] | b[i]);
        if (missing)
            return (int)i * 64 + __builtin_ctzll(missing);
    }
    return -1;
}

/* One task's share. */
struct partition {
    int task; /* index in the device table */
    /* the nodes placed on this task, with _MrSend and _MrRecv for edges to and from other tasks;
     * device attrs are full names */
    struct graph graph;
    int *feeds; /* position in the partition's feeds → position in the signature's */
    int n_feeds;
    int *fetches; /* position in the partition's fetches → position in the signature's */
    int n_fetches;
    int *peers; /* tasks it exchanges tensors with */
    int n_peers;
    struct compiled_function *functions;
    int n_functions;
    bool uses_devices;     /* nodes are on devices with a memory of their own */
    bool reads_peer_files; /* it has kernels that may read files of other tasks */
};

struct compiled {
    struct partition *partitions;
    int n_partitions;
    int n_edges;            /* between tasks: they are numbered 0 … n_edges - 1 */
    enum dtype *feed_types; /* of the signature's feeds */
    enum dtype *fetch_types;
    /* Which feeds each fetch depends on: for each fetch a set of FEED_SET_WORDS(n_feeds) words.
     * NULL: the run is not partial. */
    uint64_t *feed_needs;
    struct compiled_cost *costs; /* the nodes that sampled steps measure (cost_rows.h) */
    int n_costs;
    struct compiled_size *sizes; /* the values whose sizes they measure (expected_shapes.h) */
    int n_sizes;
    struct node_placement *placement; /* by cost, and there was a choice (placement.h); else none */
    int n_placed;
    bool has_rival; /* nodes were moved by cost, and the simple rule's placement would fit, too */
    int n_barrier_saves; /* as in struct compilation */
    int *saved_tasks;    /* the tasks whose values they save */
    int n_saved_tasks;
    struct device_table *devices; /* one reference */
    struct arena arena;
    /* the partitions borrow names and attrs from this graph and from the session's */
    struct graph graph;
};

/* Compiles a copy of the session's graph. The copy borrows names, attr values and functions from
 * the session's graph, which must therefore outlive the result (a graph's memory only grows).
 * Errors: TensorFlow's codes and key words for feeds, fetches and targets that are unknown or
 * stated twice (tests/differential/wrong_requests.py compares them), and for nodes that cannot be
 * placed (the message names the device that was asked for and the existing devices). A placeholder
 * that is not fed is no error here: its kernel fails when the step runs. */
struct status *compile_step(const struct graph *session_graph, const struct signature *signature,
                            const struct device_table *devices,
                            const struct compile_options *options, struct pool *pool,
                            struct compiled **ret) MUST_USE;
void compiled_free(struct compiled *compiled);

/* Places the stateful nodes of the session's whole graph that are not placed yet, and all nodes
 * colocated with them: sets node->placed to an index of `devices`, for the session's life. Called
 * when the session is created and after each extension. Errors: INVALID_ARGUMENT, which names node
 * and device. */
struct status *place_session(struct graph *graph, const struct device_table *devices,
                             const struct compile_options *options) MUST_USE;

/* Checks the invariants of a graph: names are found, inputs are live and in range, types agree, no
 * control edge appears twice, no cycle outside of loops. Errors: INTERNAL, which names the node. */
struct status *graph_verify(const struct graph *graph) MUST_USE;
/* Is its op one of our own (common/ops/internal_ops.h), which no client writes? */
bool node_is_internal(const struct node *node);

#endif
