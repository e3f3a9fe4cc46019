/* What the files of this folder share about graphs. Not for others. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_INTERNAL_H
#define MILLRACE_COMMON_GRAPH_GRAPH_INTERNAL_H

#include "common/graph/graph.h"
#include "common/graph/graph_proto.h"

/* How the attrs of a node of one op start: made at the op's first node in a graph, so that a
 * default list or tensor is built once. */
struct graph_op {
    const struct op_signature *op;
    struct attr *defaults; /* sorted by name */
    int n_defaults;
};

COLD struct status *op_not_registered(struct span op) MUST_USE;

/* [A-Za-z0-9.][A-Za-z0-9_>./\-]*, and a leading '_' where the name is ours. */
bool node_name_is_valid(struct span name, bool is_internal);
COLD struct status *node_name_refused(struct span name) MUST_USE;

/* A node with a checked, unused name and no attrs; `attrs_capacity` are reserved. Device text is
 * shared with the node before where it is the same. */
struct node *graph_new_node(struct graph *graph, struct span name, const struct op_signature *op,
                            struct span device, int attrs_capacity);
/* Takes back the newest nodes, from id `n_nodes` on; edges into them must be gone. Their arena
 * memory stays. */
void graph_drop_newest(struct graph *graph, int n_nodes);

/* Where `name` stands in sorted attrs, or would stand. True when it is there. */
bool attrs_find(const struct attr *attrs, int n_attrs, const char *name, int *ret_at);
/* Sorts attrs by name; of several with one name the last stays. Returns how many stay.
 * Quadratic: callers bound n_attrs. */
int attrs_sort(struct attr *attrs, int n_attrs);
/* Adds the op's defaults to sorted attrs that lack them; capacity is there. */
void node_fill_defaults(struct graph *graph, struct node *node);
/* Every tensor inside `value`, which lies in the graph's arena, is let go by graph_fini. */
void graph_own_tensors(struct graph *graph, const struct attr_value *value);

/* The two halves of node_finish: attrs and the types that follow; then the edges, for which
 * producers must have theirs. */
struct status *node_work_out_types(struct graph *graph, struct node *node) MUST_USE;
struct status *node_check_edges(struct graph *graph, struct node *node) MUST_USE;

/* What decoding attrs draws on and counts. */
struct attr_reader {
    struct graph *graph;
    const struct graph_limits *limits;
    struct allocator *tensors; /* with a limit of its own */
    int64_t n_list_elements;
};
void attr_reader_init(struct attr_reader *reader, struct graph *graph,
                      const struct graph_limits *limits);
void attr_reader_fini(struct attr_reader *reader);
/* As attr_value_from_proto; `depth` is how deep `proto` lies in its message. */
struct status *attr_read(struct attr_reader *reader, struct span proto,
                         const struct op_attr_signature *wanted, int depth, struct attr_value *ret,
                         bool *ret_is_set) MUST_USE;
/* A map entry {key 1, value 2} of an attr map. `op`, whose attr it may be, may be NULL. */
struct status *attr_read_entry(struct attr_reader *reader, struct span entry,
                               const struct op_signature *op, int depth, struct attr *ret,
                               bool *ret_is_set) MUST_USE;

/* ---- the text form: what the readers of graphs and of functions share ---- */
/* "A list is wanted at '…'" */
COLD struct status *text_wanted(const char *wanted, struct span at) MUST_USE;
/* name=value; what no signature knows is typed by how it is written. */
struct status *text_take_attr(struct graph *graph, const struct op_signature *op, struct span *in,
                              struct attr *ret) MUST_USE;
struct span text_take_to_blank(struct span *in);
/* A function from its head, which is `line`, to the closing brace; moves *text and *number past
 * that line. */
struct status *function_parse(struct graph *graph, struct span line, const char **text,
                              int *number) MUST_USE;

/* that a message may state; TensorFlow's ops have at most 22 of their own */
enum { NODE_MAX_ATTRS = 256 };

/* graph_add_function; *ret_added is NULL where the same function was there. */
struct status *graph_new_function(struct graph *graph, struct span functiondef,
                                  const struct graph_limits *limits,
                                  struct graph_function **ret_added) MUST_USE;

/* An ArgDef into a zeroed row. */
void op_arg_read(struct graph *graph, struct span proto, struct op_arg_signature *arg);
/* "list(int)"; false for what is no type. */
bool attr_type_parse(struct span text, enum attr_type *ret);

#endif
