/* From a session's graph and one step's signature to partitions: the compiler of the master [WP
 * 3.2.1, 3.3.1, 5.1; OSDI 3.3].
 *
 *   session graph ─ cut at feeds and fetches ─ prune ─ inline, lower ─ fold ─ cse ─ place ─ partition ─► one graph per task
 *                                                                     and the functions that its
 *                                                                     kernels call
 *
 * Stateful nodes and their colocation groups have been placed once, on the session's whole graph
 * (place_session). The passes are a table (compile.c): a pass says whether it changed the graph;
 * each can be switched off; debug builds verify the graph after each. Pure: no I/O, no clock but
 * the fold budget; runs on a pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_COMPILE_H
#define MILLRACE_MASTER_COMPILE_COMPILE_H

#include "common/base/pool.h"
#include "common/graph/graph.h"
#include "master/compile/device_table.h"

/* What a step asks for. Names are the client's: endpoints "node:index" and node names. */
struct signature {
    const char **feeds, **fetches, **targets;
    int n_feeds, n_fetches, n_targets;
    /* Values that take the place of others, as feeds do, but come from the graph: endpoint
     * from[i] for endpoint to[i]. */
    const char **connect_from, **connect_to;
    int n_connections;
    /* fetches may be asked for before all feeds are there: `feed_needs` is wanted */
    bool is_partial;
};

struct compile_options {
    bool allow_soft_placement;
    bool no_fold, no_cse; /* opt_level L0, or an operator's --disable-pass */
    /* floats cross between tasks cut to 16 bits: the client's wish, or the operator's */
    bool bfloat16_sends;
    const char *const *disabled_passes; /* names; NULL-terminated or NULL */
    /* "cse" or "all": graph text to the log after that pass; NULL */
    const char *dump_after;
    /* saves that say nothing else ask for a consistent checkpoint (master/session/save_barrier.h) */
    bool consistent_saves;
    /* that functions may grow a step's graph to: default 1,000,000 */
    int max_inlined_nodes;
    int64_t fold_max_bytes; /* of one folded tensor: default 10 MiB */
    int64_t fold_budget_ns; /* of the whole pass: default 200 ms */
    /* graph_verify after each pass that changed something: default in debug builds */
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
    struct node **fetch_nodes; /* n_fetches: _MrFetch nodes once cut */
    /* n_targets: the signature's, then what functions do besides handing out values */
    struct node **target_nodes;
    int n_targets;
    enum dtype *feed_types, *fetch_types; /* base types, set by the cut */
    /* set by the cut for a partial run; see struct compiled */
    bool *feed_needs;
    /* all SaveV2 nodes, if one asks for a consistent checkpoint: tasks tell of each; else 0 */
    int n_barrier_saves;
    /* by task, where there are such: what is saved comes from it */
    bool *is_saved_task;
    struct arena arena;      /* scratch, lives as long as the compilation */
    struct compiled *result; /* filled by partition */
};

struct pass {
    const char *name;
    struct status *(*run)(struct compilation *c, bool *ret_changed);
    const char *source; /* the paper's section, for docs and --help */
    bool is_optional;   /* may be switched off without changing results */
};
extern const struct pass compile_passes[];
extern const size_t n_compile_passes;
const struct pass *pass_find(const char *name);

/* A function that kernels of a task call (pass_functions.c). */
struct compiled_function {
    const char *name, *key;
    struct span graphdef;
};

/* One task's share. */
struct partition {
    int task; /* index in the device table */
    /* nodes placed on this task, with _MrSend/_MrRecv where edges were cut; device attrs full
     * names */
    struct graph graph;
    int *feeds; /* position in the partition's feeds → position in the signature's */
    int n_feeds;
    int *fetches; /* position in the partition's fetches → position in the signature's */
    int n_fetches;
    int *peers; /* tasks it exchanges tensors with */
    int n_peers;
    struct compiled_function *functions;
    int n_functions;
};

struct compiled {
    struct partition *partitions;
    int n_partitions;
    int n_edges;            /* cut edges: channels are numbered 0 … n_edges - 1 */
    enum dtype *feed_types; /* of the signature's feeds: what must be fed */
    enum dtype *fetch_types;
    /* of a partial run, else NULL: [fetch * n_feeds + feed], does the fetch depend on the feed? */
    bool *feed_needs;
    int n_barrier_saves; /* all SaveV2 nodes, if one asks for a consistent checkpoint; else 0 */
    int *saved_tasks;    /* where what they save comes from */
    int n_saved_tasks;
    struct device_table *devices; /* one reference */
    struct arena arena;
    /* what the partitions borrow names and attrs from, besides the session's graph */
    struct graph graph;
};

/* Compiles a copy of the session's graph. The copy shares names, attr values and functions with
 * it: the session's graph (whose memory only grows) must outlive the result. Errors:
 * TensorFlow's codes and key words for unknown or doubled feeds, fetches and targets
 * (tests/differential/wrong_requests.py compares them), for nodes that cannot be placed (naming the asked device and those
 * there are), for placeholders that are not fed nothing is said here (their kernel does). */
struct status *compile_step(const struct graph *session_graph, const struct signature *signature,
                            const struct device_table *devices,
                            const struct compile_options *options, struct pool *pool,
                            struct compiled **ret) MUST_USE;
void compiled_free(struct compiled *compiled);

/* Places the stateful nodes that have no place yet, and all nodes colocated with them, on the
 * session's whole graph: node->placed is a device index of `devices` and stays. Called after
 * create and after each extend. Errors: INVALID_ARGUMENT naming node and device. */
struct status *place_session(struct graph *graph, const struct device_table *devices,
                             const struct compile_options *options) MUST_USE;

/* Does the graph keep its invariants (names found, inputs live and in range, types agree, no
 * doubled control edges, acyclic)? INTERNAL naming the node. */
struct status *graph_verify(const struct graph *graph) MUST_USE;
/* Is its op one of our own (common/ops/internal_ops.h), which no client writes? */
bool node_is_internal(const struct node *node);

#endif
