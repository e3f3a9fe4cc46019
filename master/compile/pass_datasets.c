/* Replaces each DatasetToGraph by a Const that holds a GraphDef: the nodes that make its dataset,
 * and the functions that those name. Clients read it (Keras: is there a Shuffle?).
 *
 *   r = Range(…)   s = Shuffle(r, …)   g = DatasetToGraphV2(s)
 *      =>  g = Const ^s {"r = Range … s = Shuffle … dataset = _Retval(s)"}
 *
 * A worker's datasets do not know their nodes and functions; the compiler knows both. The pass runs
 * after folding, so that everything that can be computed is a Const. Where TensorFlow writes a
 * value that only the step knows, the graph has a node: a Placeholder for a fed value, a node that
 * reads the variable for a variable's.
 *
 * It also gives each SnapshotDatasetV2 that has none the hash of the GraphDef of its input.
 *
 * The Const has a control edge from its dataset: if the dataset cannot be made the step fails, and
 * in a branch that is not taken the graph is dead. */
#include <stdlib.h>

#include "common/graph/function_body.h"
#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/support/hashes.h"
#include "master/compile/compilation.h"

enum { MAX_DEPTH = 64 }; /* how deep functions may name functions */

static const char RESULT[] = "dataset"; /* the name of the node that says which dataset is meant */

struct writer {
    struct graph *graph; /* the step's graph */
    struct graph out;
    struct node **made;  /* by the step's node ids: the node of `out`, or NULL */
    struct node **stack; /* nodes whose inputs are not visited yet */
    int n_stack;
    bool has_fed; /* a node of `out` stands for a value that only the step knows */
    struct graph_limits limits;
};

/* ---- functions ---- */

static struct status *add_function(struct writer *w, const char *name, int depth) MUST_USE;

static struct status *add_named(struct writer *w, const struct attr_value *value, int depth) {
    if (value->is_placeholder)
        return NULL;
    if (value->type == ATTR_FUNC)
        return add_function(w, value->func->name, depth);
    if (value->type == ATTR_LIST_FUNC)
        for (int i = 0; i < value->list.n_values; i++)
            TRY(add_named(w, &value->list.values[i], depth));
    return NULL;
}

/* Adds the function and all functions that its body names. A missing one is reported where it is
 * called. */
static struct status *add_function(struct writer *w, const char *name, int depth) {
    struct graph_function *function = strmap_get(&w->graph->functions, name);
    struct function_body *body = NULL;
    struct status *st = NULL;
    if (!function || strmap_get(&w->out.functions, name))
        return NULL;
    if (depth == MAX_DEPTH)
        return status_invalid("Functions that name functions are nested deeper than %d at '%s'",
                              MAX_DEPTH, name);
    strmap_put(&w->out.functions, function->name, function);
    TRY(function_body_read(w->graph, function, &w->limits, &body));
    for (int i = 0; i < body->n_nodes; i++) {
        const struct function_node *node = &body->nodes[i];
        TRY_OUT(add_function(w, node->op->name, depth + 1));
        for (int k = 0; k < node->n_attrs; k++)
            TRY_OUT(add_named(w, &node->attrs[k].value, depth + 1));
    }
out:
    function_body_fini(body);
    return st;
}

/* ---- nodes ---- */

/* Placement and colocation are those of this step, not of the dataset. Attrs that begin with "_"
 * are between the client and us. */
static struct status *add_node(struct writer *w, struct node *node) {
    bool is_fed = node_is_internal(node);
    struct node *made;
    if (w->made[node->id])
        return NULL;
    TRY(graph_add_node(&w->out, node->name, is_fed ? "Placeholder" : node->op_name, "", &made));
    w->made[node->id] = made;
    w->stack[w->n_stack++] = node;
    if (is_fed) {
        w->has_fed = true;
        node_set_attr_type(&w->out, made, "dtype", (enum dtype)node->out_types[0]);
        return NULL;
    }
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].name[0] == '_')
            continue;
        node_set_attr(&w->out, made, node->attrs[i].name, &node->attrs[i].value);
        TRY(add_named(w, &node->attrs[i].value, 0));
    }
    return NULL;
}

static struct status *add_nodes(struct writer *w, struct node *dataset) {
    TRY(add_node(w, dataset));
    while (w->n_stack > 0) {
        const struct node *node = w->stack[--w->n_stack];
        for (int i = 0; i < node->n_data; i++)
            TRY(add_node(w, node->inputs[i].src));
    }
    for (int id = 0; id < w->graph->n_nodes; id++)
        for (int i = 0; w->made[id] && i < w->graph->nodes[id]->n_data; i++) {
            const struct node_input *in = &w->graph->nodes[id]->inputs[i];
            node_add_input(&w->out, w->made[id], w->made[in->src->id], in->index);
        }
    return NULL;
}

/* ---- the GraphDef ---- */

static void add_attr(struct str *node, const char *name, uint32_t field, uint64_t value) {
    size_t entry = proto_begin(node, 5, 0);
    proto_add_bytes(node, 1, name, strlen(name));
    size_t at = proto_begin(node, 2, 0);
    proto_add_int(node, field, value);
    proto_end(node, at, 0);
    proto_end(node, entry, 0);
}

/* The fields of a GraphDef may be in any order, so one more node is appended, of an op that no
 * client's graph may have. */
static void add_result(const struct writer *w, const struct node_input *dataset, struct str *out) {
    const char *name = graph_unique_name(w->graph, RESULT);
    struct str input = STR_INIT;
    str_addf(&input, dataset->index > 0 ? "%s:%d" : "%s", dataset->src->name, dataset->index);
    size_t node = proto_begin(out, 1, 0);
    proto_add_bytes(out, 1, name, strlen(name));
    proto_add_bytes(out, 2, "_Retval", strlen("_Retval"));
    proto_add_bytes(out, 3, input.data, input.len);
    add_attr(out, "T", 6, DT_VARIANT);
    add_attr(out, "index", 3, 0);
    proto_end(out, node, 0);
    str_fini(&input);
}

static struct status *write_dataset(struct writer *w, const struct node_input *dataset,
                                    struct str *out) {
    graph_limits_default(&w->limits);
    graph_init(&w->out);
    w->out.producer = w->graph->producer;
    w->made = xcalloc((size_t)w->graph->n_nodes + 1, sizeof(struct node *));
    w->stack = xcalloc((size_t)w->graph->n_nodes + 1, sizeof(struct node *));
    struct status *st = add_nodes(w, dataset->src);
    if (!st) {
        graph_to_graphdef(&w->out, NULL, out);
        add_result(w, dataset, out);
    }
    free(w->stack);
    free(w->made);
    graph_fini(&w->out);
    return st;
}

/* The node itself becomes the Const, so that its consumers need not change. */
static struct status *become_const(struct graph *graph, struct node *node, const struct str *text) {
    struct node *dataset = node->inputs[0].src;
    struct tensor value;
    TRY(tensor_new(allocator_host(), DT_STRING, SHAPE_SCALAR, &value));
    tensor_set_string(&value, 0, text->data, text->len);
    node_remove_input(node, 0);
    node->op_name = "Const";
    node->op = graph_op_lookup(graph, "Const");
    node->n_attrs = 0;
    node_set_attr_type(graph, node, "dtype", DT_STRING);
    node_set_attr_tensor(graph, node, "value", &value);
    tensor_clear(&value);
    node_add_control(graph, node, dataset);
    return node_finish(graph, node);
}

/* A snapshot is kept under the hash of the graph that makes its input. The same graph may make
 * other elements of values that only the step knows, so it has no hash then. */
static void set_hash(struct graph *graph, struct node *node, const struct writer *w,
                     const struct str *text) {
    struct attr_value is_valid = {.type = ATTR_BOOL, .b = true};
    struct attr_value hash = {.type = ATTR_INT};
    if (w->has_fed)
        return;
    hash.i = (int64_t)hash_fingerprint64(text->data, text->len);
    node_set_attr(graph, node, "hash", &hash);
    node_set_attr(graph, node, "hash_valid", &is_valid);
}

static bool wants_hash(const struct node *node) {
    bool has_hash = true;
    if (!node_is_op(node, "SnapshotDatasetV2"))
        return false;
    status_unref(node_get_b(node, "hash_valid", &has_hash));
    return !has_hash;
}

struct status *pass_datasets(struct compilation *c, bool *ret_changed) {
    struct graph *graph = &c->graph;
    for (int id = 0; id < graph->n_nodes; id++) {
        struct node *node = graph->nodes[id];
        bool is_hashed = !node->is_removed && wants_hash(node);
        if (node->is_removed || (!is_hashed && !node_is_op(node, "DatasetToGraph") &&
                                 !node_is_op(node, "DatasetToGraphV2")))
            continue;
        struct writer writer = {.graph = graph};
        struct str text = STR_INIT;
        struct status *st = write_dataset(&writer, &node->inputs[0], &text);
        if (!st && is_hashed)
            set_hash(graph, node, &writer, &text);
        else if (!st)
            st = become_const(graph, node, &text);
        str_fini(&text);
        TRY(st);
        *ret_changed = true;
    }
    return NULL;
}
