/* Declares what the files of common/graph share. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_INTERNAL_H
#define MILLRACE_COMMON_GRAPH_GRAPH_INTERNAL_H

#include "common/graph/graph.h"
#include "common/graph/graph_proto.h"

/* The defaults of an op's attrs, made for its first node in the graph, so that a default list or
 * tensor is made once. */
struct graph_op {
    const struct op_signature *op;
    struct attr *defaults; /* sorted by name */
    int n_defaults;
};

COLD struct status *op_not_registered(struct span op) MUST_USE;

/* Does the name match [A-Za-z0-9.][A-Za-z0-9_>./\-]*? An internal name may also begin with '_'. */
bool node_name_is_valid(struct span name, bool is_internal);
COLD struct status *node_name_refused(struct span name) MUST_USE;

/* Adds a node whose name has been checked and is unused, without attrs, with room for
 * `attrs_capacity`. Shares the text of `device` with the node before where the two are equal. */
struct node *graph_new_node(struct graph *graph, struct span name, const struct op_signature *op,
                            struct span device, int attrs_capacity);
/* Removes the nodes with ids from `n_nodes` on as if they had never been added. No other node may
 * use their outputs. Their arena memory is not freed. */
void graph_drop_newest(struct graph *graph, int n_nodes);

/* The position of `name` in attrs sorted by name, or the position to insert it at. True when it is
 * there. */
bool attrs_find(const struct attr *attrs, int n_attrs, const char *name, int *ret_at);
/* Sorts attrs by name and keeps the last of those with equal names. Returns how many are kept.
 * Takes quadratic time, so callers limit n_attrs. */
int attrs_sort(struct attr *attrs, int n_attrs);
/* Adds the defaults of the attrs that the node lacks. The attrs must be sorted and have room. */
void node_fill_defaults(struct graph *graph, struct node *node);
/* Makes graph_fini release every tensor inside `value`, which is in the arena of the graph. */
void graph_own_tensors(struct graph *graph, const struct attr_value *value);

/* The two halves of node_finish: the first checks attrs and sets types, the second checks edges and
 * needs the types of the producers. */
struct status *node_work_out_types(struct graph *graph, struct node *node) MUST_USE;
struct status *node_check_edges(struct graph *graph, struct node *node) MUST_USE;

/* The limits and counts of decoding attrs. */
struct attr_reader {
    struct graph *graph;
    const struct graph_limits *limits;
    struct allocator *tensors; /* with a limit of its own */
    int64_t n_list_elements;
};
void attr_reader_init(struct attr_reader *reader, struct graph *graph,
                      const struct graph_limits *limits);
void attr_reader_fini(struct attr_reader *reader);
/* As attr_value_from_proto; `depth` is the nesting depth of `proto` in its message. */
struct status *attr_read(struct attr_reader *reader, struct span proto,
                         const struct op_attr_signature *wanted, int depth, struct attr_value *ret,
                         bool *ret_is_set) MUST_USE;
/* Reads an entry {key 1, value 2} of an attr map. `op`, which may be NULL, is the op whose attr it
 * may be. */
struct status *attr_read_entry(struct attr_reader *reader, struct span entry,
                               const struct op_signature *op, int depth, struct attr *ret,
                               bool *ret_is_set) MUST_USE;

/* ---- the text form: used by the readers of graphs and of functions ---- */
/* "A list is wanted at '…'" */
COLD struct status *text_wanted(const char *wanted, struct span at) MUST_USE;
struct span text_take_to_blank(struct span *in);
/* Reads a function from its first line, `line`, to the closing brace, and moves *text and *number
 * past that line. */
struct status *function_parse(struct graph *graph, struct span line, const char **text,
                              int *number) MUST_USE;

/* attrs of one node in a message; ops of TensorFlow have at most 22 */
enum { NODE_MAX_ATTRS = 256 };

/* As graph_add_function. *ret_added is NULL where the same function was there already. */
struct status *graph_new_function(struct graph *graph, struct span functiondef,
                                  const struct graph_limits *limits,
                                  struct graph_function **ret_added) MUST_USE;

/* Reads an ArgDef into `arg`, which is all zero. */
void op_arg_read(struct graph *graph, struct span proto, struct op_arg_signature *arg);
/* Reads a type such as "list(int)". False where the text is no type. */
bool attr_type_parse(struct span text, enum attr_type *ret);

#endif
