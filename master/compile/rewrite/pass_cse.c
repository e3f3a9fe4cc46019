/* Common subexpressions [WP 5.1]: nodes that compute the same from the same become one.
 *
 * Two nodes are twins when op, attrs (_class with the colocation among them), requested device,
 * place, data inputs and the set of control inputs are equal. A commutative op of two inputs
 * takes them in either order (not one of more: the order of a long sum shows in its last bits).
 * One sweep in topological order, so twins of twins are found; linear.
 *
 * Left alone: state, effects, references (a read at another time may see another value),
 * placeholders, our own nodes, what makes loops, Consts of more than 64 KiB (their bytes would
 * be hashed in every compile), and nodes with very many control inputs. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "master/compile/compilation.h"

enum {
    CSE_MAX_CONST_BYTES = 64 << 10,
    CSE_MAX_CONTROLS = 64, /* the comparison of two sets is quadratic */
};

struct merger {
    struct compilation *c;
    struct node **twin;  /* by node id: the twin that replaces it; NULL: none */
    uint64_t *hash;      /* by node id */
    struct node **slots; /* open addressing */
    size_t mask;
    int *last_seen; /* by node id: 1 + the consumer that had it as a control input last */
};

static bool is_placeholder(const struct node *node) {
    return strncmp(node->op_name, "Placeholder", strlen("Placeholder")) == 0;
}

static bool may_be_merged(const struct node *node) {
    if (node_is_stateful(node) || node_is_internal(node) || is_placeholder(node) ||
        node_is_frame_op(node) || node_has_ref(node))
        return false;
    return node->n_inputs - node->n_data <= CSE_MAX_CONTROLS &&
           const_size_bytes(node) <= CSE_MAX_CONST_BYTES;
}

/* ---- hash ---- */

static uint64_t hash_text(const char *text, uint64_t seed) {
    return hash_bytes(text, strlen(text), seed);
}

static uint64_t hash_edge(const struct node_input *in) {
    return hash_mix((uint64_t)in->src->id, (uint64_t)(uint32_t)in->index);
}

static bool has_free_order(const struct node *node) {
    return node->op->is_commutative && node->n_data == 2;
}

static uint64_t hash_node(const struct node *node) {
    uint64_t hash = hash_mix((uint64_t)(uintptr_t)node->op,
                             hash_text(node->device, (uint64_t)(int64_t)node->placed));
    for (int i = 0; i < node->n_attrs; i++)
        hash =
            hash_mix(hash_text(node->attrs[i].name, hash), attr_value_hash(&node->attrs[i].value));
    uint64_t unordered = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        if (i >= node->n_data || has_free_order(node))
            unordered += hash_edge(&node->inputs[i]);
        else
            hash = hash_mix(hash, hash_edge(&node->inputs[i]));
    }
    return hash_mix(hash, unordered);
}

/* ---- equality ---- */

static bool same_edge(const struct node_input *a, const struct node_input *b) {
    return a->src == b->src && a->index == b->index;
}

static bool same_data(const struct node *a, const struct node *b) {
    bool same = true;
    for (int i = 0; i < a->n_data && same; i++)
        same = same_edge(&a->inputs[i], &b->inputs[i]);
    return same || (has_free_order(a) && same_edge(&a->inputs[0], &b->inputs[1]) &&
                    same_edge(&a->inputs[1], &b->inputs[0]));
}

/* Neither set has repeated members, so it is enough that one contains the other. */
static bool same_controls(const struct node *a, const struct node *b) {
    for (int i = a->n_data; i < a->n_inputs; i++) {
        int k = b->n_data;
        while (k < b->n_inputs && b->inputs[k].src != a->inputs[i].src)
            k++;
        if (k == b->n_inputs)
            return false;
    }
    return true;
}

static bool same_attrs(const struct node *a, const struct node *b) {
    for (int i = 0; i < a->n_attrs; i++)
        if (strcmp(a->attrs[i].name, b->attrs[i].name) != 0 ||
            !attr_value_equal(&a->attrs[i].value, &b->attrs[i].value))
            return false;
    return true;
}

static bool are_twins(const struct node *a, const struct node *b) {
    return a->op == b->op && a->placed == b->placed && a->n_data == b->n_data &&
           a->n_inputs == b->n_inputs && a->n_attrs == b->n_attrs &&
           strcmp(a->device, b->device) == 0 && same_data(a, b) && same_controls(a, b) &&
           same_attrs(a, b);
}

/* ---- the sweep ---- */

/* Returns the first node that computes the same. NULL: there is none, and this node is noted. */
static struct node *find_or_note(struct merger *m, struct node *node) {
    uint64_t hash = m->hash[node->id] = hash_node(node);
    for (size_t i = hash & m->mask;; i = (i + 1) & m->mask) {
        struct node *other = m->slots[i];
        if (!other) {
            m->slots[i] = node;
            return NULL;
        }
        if (m->hash[other->id] == hash && are_twins(other, node))
            return other;
    }
}

/* Inputs from merged nodes come from their twins. Control edges that become equal are joined. */
static void rewire(struct merger *m, struct node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        struct node *twin = m->twin[node->inputs[i].src->id];
        if (twin)
            node_set_input(node, i, twin, node->inputs[i].index);
    }
    node_drop_doubled_controls(node, m->last_seen);
}

static bool merge_all(struct merger *m, struct node *const *order, int n_nodes) {
    bool changed = false;
    for (int i = 0; i < n_nodes; i++) {
        rewire(m, order[i]);
        m->twin[order[i]->id] = may_be_merged(order[i]) ? find_or_note(m, order[i]) : NULL;
        changed = changed || m->twin[order[i]->id];
    }
    if (!changed)
        return false;
    struct graph *graph = &m->c->graph;
    memset(m->last_seen, 0, (size_t)graph->n_nodes * sizeof(int));
    for (int i = 0; i < n_nodes; i++) /* once more, for the back edges of loops */
        rewire(m, order[i]);
    for (int i = 0; i < m->c->n_targets; i++)
        if (m->twin[m->c->target_nodes[i]->id])
            m->c->target_nodes[i] = m->twin[m->c->target_nodes[i]->id];
    for (int i = 0; i < n_nodes; i++)
        if (m->twin[order[i]->id])
            graph_remove_node(graph, order[i]);
    return true;
}

struct status *pass_cse(struct compilation *c, bool *ret_changed) {
    struct node **order;
    TRY(graph_topological_order(&c->graph, &order));
    size_t n_slots = 64;
    while (n_slots < 2 * (size_t)c->graph.n_live)
        n_slots *= 2;
    struct merger m = {
        .c = c,
        .twin = xcalloc((size_t)c->graph.n_nodes + 1, sizeof(*m.twin)),
        .hash = xcalloc((size_t)c->graph.n_nodes + 1, sizeof(*m.hash)),
        .slots = xcalloc(n_slots, sizeof(*m.slots)),
        .mask = n_slots - 1,
        .last_seen = xcalloc((size_t)c->graph.n_nodes + 1, sizeof(*m.last_seen)),
    };
    *ret_changed = merge_all(&m, order, c->graph.n_live);
    free(m.twin);
    free(m.hash);
    free(m.slots);
    free(m.last_seen);
    free(order);
    return NULL;
}
