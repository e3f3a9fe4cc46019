/* Arithmetic clean-ups [WP 5.1]: leaves out what changes nothing, and pairs of nodes that cancel
 * each other. All values stay equal to the bit.
 *
 *   a = Neg(x)   b = Neg(a)   c = Mul(b, 1)   d = Exp(c)
 *      =>  d = Exp(x)
 *
 * One sweep in topological order. A row of simplify_rules.c makes a node something simpler under
 * the same name, mostly an Identity. An Identity is removed: who takes its value takes its input's
 * value instead, and who waits for it waits for its input, and for what the Identity waited for.
 * Linear, as each node is visited once and moves a bounded number of control edges.
 *
 * An Identity stays if it is a target of the step, if another node is colocated with it, or if it
 * is on another device than its input, or colocated with other nodes than that. It also stays where
 * it carries a reference, a resource or a variant. It stays where it waits for something and a
 * Merge, another op of frames or a fetch takes its value, because these do not die with a dead
 * control input. Last, it stays if it takes an output of a Switch and others wait for it: a control
 * edge from the Switch would not tell which branch runs. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "common/graph/graph_rewrite.h"
#include "master/compile/rewrite/simplify.h"

enum { MAX_ROUNDS = 4 }; /* rewrites of one node in a row */

/* ---- control edges ---- */

/* Does a control edge from the node say that one of its outputs is alive? */
static bool tells_deadness(const struct node *node) {
    return !node_is_switch(node) && !node_is_either(node, "NextIteration", "RefNextIteration");
}

struct waits {
    struct node *srcs[4 * SIMPLIFY_MAX_CONTROLS];
    int n;
    bool is_full;
};

static void add_wait(struct waits *waits, struct node *src) {
    if (waits->n == (int)ARRAY_LEN(waits->srcs))
        waits->is_full = true;
    else
        waits->srcs[waits->n++] = src;
}

static void add_controls(struct waits *waits, const struct node *node) {
    for (int i = node->n_data; i < node->n_inputs; i++)
        add_wait(waits, node->inputs[i].src);
}

static bool same_edge(const struct node_input *a, const struct node_input *b) {
    return a->src == b->src && a->index == b->index;
}

/* A Const is there from the beginning, unless it waits for something itself. */
static void add_data(struct waits *waits, const struct node_input *in) {
    if (node_is_op(in->src, "Const"))
        add_controls(waits, in->src);
    else if (tells_deadness(in->src))
        add_wait(waits, in->src);
    else
        waits->is_full = true;
}

/* What a producer waited for that the node no longer takes. */
static void add_bypassed(struct waits *waits, const struct simplify_found *found) {
    for (int i = 0; i < found->bypassed->n_data; i++)
        if (!same_edge(&found->bypassed->inputs[i], &found->value))
            add_data(waits, &found->bypassed->inputs[i]);
    add_controls(waits, found->bypassed);
}

/* Has the producer of the value waited for the node, so that no control edge need say it? */
static bool is_implied(const struct node *producer, const struct node *src) {
    int n = MIN(producer->n_inputs, (int)SIMPLIFY_MAX_CONTROLS);
    if (src == producer)
        return tells_deadness(src);
    for (int i = 0; i < n && !node_is_frame_op(producer); i++)
        if (producer->inputs[i].src == src && tells_deadness(src))
            return true;
    return false;
}

static void drop_implied(struct waits *waits, const struct node *producer) {
    int n_kept = 0;
    for (int i = 0; i < waits->n; i++)
        if (!is_implied(producer, waits->srcs[i]))
            waits->srcs[n_kept++] = waits->srcs[i];
    waits->n = n_kept;
}

/* What the node waits for apart from the value that it will take. */
static void collect(struct waits *waits, const struct node *node,
                    const struct simplify_found *found) {
    for (int i = 0; i < node->n_data; i++) {
        const struct node_input *in = &node->inputs[i];
        if (in->src != found->bypassed && !same_edge(in, &found->value))
            add_data(waits, in);
    }
    add_controls(waits, node);
    if (found->bypassed)
        add_bypassed(waits, found);
    if (found->value.src)
        drop_implied(waits, found->value.src);
}

/* ---- rewrites ---- */

struct status *simplify_hand_on(struct simplifier *s, struct node *node,
                                const struct simplify_found *found) {
    struct graph *graph = &s->c->graph;
    struct waits waits = {.n = 0};
    collect(&waits, node, found);
    if (waits.is_full)
        return NULL;
    enum dtype type = (enum dtype)node->out_types[0];
    node_change_op(graph, node, "Identity");
    node_set_attr_type(graph, node, "T", type);
    node_add_input(graph, node, found->value.src, found->value.index);
    TRY(node_finish(graph, node));
    node_add_controls(graph, node, waits.srcs, waits.n);
    s->changed = true;
    return NULL;
}

struct status *simplify_be_constant(struct simplifier *s, struct node *node,
                                    const struct simplify_found *found) {
    struct graph *graph = &s->c->graph;
    struct waits waits = {.n = 0};
    collect(&waits, node, found);
    if (waits.is_full)
        return NULL;
    node_change_op(graph, node, "Const");
    node_set_attr_type(graph, node, "dtype", (enum dtype)found->constant.dtype);
    node_set_attr_tensor(graph, node, "value", &found->constant);
    TRY(node_finish(graph, node));
    node_add_controls(graph, node, waits.srcs, waits.n);
    s->changed = true;
    return NULL;
}

/* Replaces one data input, and waits for what its producer waited for. */
struct status *simplify_take_input(struct simplifier *s, struct node *node,
                                   const struct simplify_found *found) {
    struct waits waits = {.n = 0};
    add_bypassed(&waits, found);
    if (waits.is_full)
        return NULL;
    node_set_input(node, found->input, found->value.src, found->value.index);
    node_add_controls(&s->c->graph, node, waits.srcs, waits.n);
    s->changed = true;
    if (!found->type_attr)
        return NULL;
    node_set_attr_type(&s->c->graph, node, found->type_attr,
                       (enum dtype)found->value.src->out_types[found->value.index]);
    return node_finish(&s->c->graph, node);
}

static struct status *add_like(struct simplifier *s, const struct node *node, const char *op,
                               const char *suffix, struct node **ret) {
    struct graph *graph = &s->c->graph;
    const char *name =
        graph_unique_name(graph, arena_printf(&s->c->arena, "%s/_%s", node->name, suffix));
    TRY(graph_add_node(graph, name, op, node->device, ret));
    (*ret)->placed = node->placed;
    const struct attr_value *colocation = node_attr(node, "_class");
    if (colocation)
        node_set_attr(graph, *ret, "_class", colocation);
    return NULL;
}

/* op(c, op(d, x)) => op(op(c, d), x), where c and d are constants and found->value is x. */
struct status *simplify_push_constant(struct simplifier *s, struct node *node,
                                      const struct simplify_found *found) {
    struct graph *graph = &s->c->graph;
    const struct node *inner = found->bypassed;
    struct node_input outer_const = node->inputs[1 - found->input],
                      inner_const = same_edge(&inner->inputs[0], &found->value) ? inner->inputs[1]
                                                                                : inner->inputs[0];
    struct node *joined;
    if (inner->n_inputs > inner->n_data)
        return NULL;
    TRY(add_like(s, node, node->op_name, "constants", &joined));
    const struct attr_value *type = node_attr(node, "T");
    if (type)
        node_set_attr(graph, joined, "T", type);
    node_add_input(graph, joined, outer_const.src, outer_const.index);
    node_add_input(graph, joined, inner_const.src, inner_const.index);
    TRY(node_finish(graph, joined));
    node_set_input(node, 1 - found->input, joined, 0);
    node_set_input(node, found->input, found->value.src, found->value.index);
    s->changed = true;
    return NULL;
}

/* Makes ConcatV2(op(x), op(y), axis) take x and y. A new node, op of its result, replaces it. */
struct status *simplify_join_first(struct simplifier *s, struct node *node,
                                   const struct simplify_found *found) {
    struct graph *graph = &s->c->graph;
    const struct node *first = found->bypassed;
    struct node *last;
    TRY(add_like(s, node, first->op_name, "joined", &last));
    for (int i = 0; i < first->n_attrs; i++)
        if (first->attrs[i].name[0] != '_')
            node_set_attr(graph, last, first->attrs[i].name, &first->attrs[i].value);
    node_set_attr_type(graph, node, "T",
                       (enum dtype)found->value.src->out_types[found->value.index]);
    for (int i = 0; i < node->n_data - 1; i++) {
        const struct node_input x = node->inputs[i].src->inputs[0];
        node_set_input(node, i, x.src, x.index);
    }
    TRY(node_finish(graph, node));
    node_add_input(graph, last, node, 0);
    TRY(node_finish(graph, last));
    s->value[node->id] = last;
    s->changed = true;
    return NULL;
}

/* ---- removing Identities ---- */

static bool is_pass_on(const struct node *node) {
    static const char *const ops[] = {"Identity", "StopGradient", "PreventGradient", "Snapshot"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return true;
    return false;
}

/* Is the node colocated with this one, and with no other? */
static bool follows_only(const struct attr_value *colocation, const struct node *src) {
    static const char prefix[] = "loc:@";
    size_t n = strlen(prefix);
    if (colocation->type != ATTR_LIST_STRING || colocation->list.n_values != 1)
        return false;
    struct span name = colocation->list.values[0].s;
    return name.len > n && memcmp(name.data, prefix, n) == 0 &&
           span_is((struct span){(const char *)name.data + n, name.len - n}, src->name);
}

/* The same place, as far as the client or the session has said. */
static bool is_beside(const struct node *node, const struct node *src) {
    const struct attr_value *a = node_attr(node, "_class"), *b = node_attr(src, "_class");
    return node->placed == src->placed && strcmp(node->device, src->device) == 0 &&
           (!a || (b && attr_value_equal(a, b)) || follows_only(a, src));
}

static bool may_be_removed(const struct simplifier *s, const struct node *node) {
    const struct node_input *in = &node->inputs[0];
    int64_t n_controls = node->n_inputs - node->n_data, n_consumers = s->n_consumers[node->id];
    if (!is_pass_on(node) || s->is_kept[node->id] || s->is_reference[node->id] ||
        !simplify_is_plain(s, in) || !is_beside(node, in->src) ||
        (s->feeds_control[node->id] && !tells_deadness(in->src)))
        return false;
    return n_controls == 0 || (!s->feeds_frame[node->id] && n_controls <= SIMPLIFY_MAX_CONTROLS &&
                               n_controls * n_consumers <= n_controls + n_consumers);
}

static void remove_later(struct simplifier *s, struct node *node) {
    struct node_input in = node->inputs[0];
    s->value[node->id] = in.src;
    s->value_index[node->id] = in.index;
    s->is_removed[node->id] = true;
    s->n_consumers[in.src->id] += MAX(s->n_consumers[node->id] - 1, 0);
    s->feeds_control[in.src->id] = s->feeds_control[in.src->id] || s->feeds_control[node->id];
    s->feeds_frame[in.src->id] = s->feeds_frame[in.src->id] || s->feeds_frame[node->id];
    s->changed = true;
}

/* The node that replaces a producer; NULL: none. */
static struct node *value_of(const struct simplifier *s, const struct node *src) {
    return src->id < s->n_ids ? s->value[src->id] : NULL;
}

/* Takes values from what replaces their producers, and waits for what removed ones waited for. */
static void rewire(struct simplifier *s, struct node *node) {
    int n_added = 0, n_kept = node->n_data;
    for (int i = 0; i < node->n_inputs; i++)
        if (value_of(s, node->inputs[i].src))
            n_added += 1 + node->inputs[i].src->n_inputs - node->inputs[i].src->n_data;
    if (n_added == 0)
        return;
    struct node **added = arena_array(&s->c->arena, struct node *, n_added);
    n_added = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        struct node_input in = node->inputs[i];
        struct node *value = value_of(s, in.src);
        if (i < node->n_data && value)
            node_set_input(node, i, value, s->value_index[in.src->id]);
        else if (i >= node->n_data && value)
            added[n_added++] = value;
        else if (i >= node->n_data)
            node->inputs[n_kept++] = in;
        for (int k = in.src->n_data; value && s->is_removed[in.src->id] && k < in.src->n_inputs;
             k++)
            added[n_added++] = in.src->inputs[k].src;
    }
    node->n_inputs = n_kept;
    node_add_controls(&s->c->graph, node, added, n_added);
}

/* ---- the sweep ---- */

static const struct simplify_rule *first_rule(const struct simplify_table *table, const char *op) {
    size_t low = 0, high = table->n_rules;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(table->rules[middle].op, op) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return &table->rules[low];
}

static bool has_rule(const struct simplify_table *table, const char *op) {
    const struct simplify_rule *rule = first_rule(table, op);
    return rule < table->rules + table->n_rules && strcmp(rule->op, op) == 0;
}

static bool is_of_rule(const struct simplifier *s, const struct simplify_rule *rule,
                       const struct node *node) {
    if (node->n_data == 0 || (rule->types && !dtype_in((enum dtype)node->in_types[0], rule->types)))
        return false;
    for (int i = 0; i < node->n_data; i++)
        if (!simplify_is_plain(s, &node->inputs[i]))
            return false;
    return true;
}

/* Applies the first row that holds. */
static struct status *apply_rules(struct simplifier *s, struct node *node, bool *ret_changed) {
    const struct simplify_rule *end = s->table->rules + s->table->n_rules;
    bool before = s->changed;
    s->changed = false;
    for (const struct simplify_rule *rule = first_rule(s->table, node->op_name);
         rule < end && !s->changed && strcmp(rule->op, node->op_name) == 0; rule++) {
        struct simplify_found found = {.constant = TENSOR_INIT};
        struct status *st = NULL;
        if (is_of_rule(s, rule, node) && rule->condition(s, rule, node, &found) &&
            simplify_has_kernel(node, 0) &&
            (!found.bypassed || simplify_has_kernel(found.bypassed, 0)))
            st = rule->rewrite(s, node, &found);
        tensor_clear(&found.constant);
        TRY(st);
    }
    *ret_changed = s->changed;
    s->changed = s->changed || before;
    return NULL;
}

/* No op of the table, and none that passes its input on, has an effect or makes frames. */
static bool is_looked_at(const struct simplifier *s, const struct node *node) {
    return (has_rule(s->table, node->op_name) || is_pass_on(node)) && !node_has_ref(node) &&
           !s->is_reference[node->id];
}

static struct status *look_at_node(struct simplifier *s, struct node *node) {
    bool changed = true;
    rewire(s, node);
    if (!is_looked_at(s, node))
        return NULL;
    for (int i = 0; i < MAX_ROUNDS && changed && !s->value[node->id]; i++)
        TRY(apply_rules(s, node, &changed));
    if (s->table->removes_identities && !s->value[node->id] && may_be_removed(s, node))
        remove_later(s, node);
    return NULL;
}

static void keep_colocated(struct simplifier *s, const struct node *node) {
    static const char prefix[] = "loc:@";
    const struct attr_value *list = node_attr(node, "_class");
    for (int i = 0; list && list->type == ATTR_LIST_STRING && i < list->list.n_values; i++) {
        struct span name = list->list.values[i].s;
        size_t n = strlen(prefix);
        if (name.len <= n || memcmp(name.data, prefix, n) != 0)
            continue;
        const struct node *leader =
            graph_find_span(&s->c->graph, (struct span){(const char *)name.data + n, name.len - n});
        if (leader)
            s->is_kept[leader->id] = true;
    }
}

static void note_edges(struct simplifier *s, struct node *const *order, int n) {
    for (int i = 0; i < s->c->n_targets; i++)
        s->is_kept[s->c->target_nodes[i]->id] = true;
    for (int i = 0; i < n; i++) {
        const struct node *node = order[i];
        bool is_frame = node_is_frame_op(node) || node_is_switch(node) || node_is_internal(node);
        keep_colocated(s, node);
        for (int k = 0; k < node->n_inputs; k++) {
            int src = node->inputs[k].src->id;
            s->n_consumers[src]++;
            s->feeds_frame[src] = s->feeds_frame[src] || is_frame;
            s->feeds_control[src] = s->feeds_control[src] || k >= node->n_data;
        }
    }
}

static void simplifier_init(struct simplifier *s, struct compilation *c,
                            const struct simplify_table *table) {
    struct arena *arena = &c->arena;
    int n = c->graph.n_nodes + 1;
    *s = (struct simplifier){.c = c, .table = table, .n_ids = c->graph.n_nodes};
    s->value = arena_array(arena, struct node *, n);
    s->value_index = arena_array(arena, int, n);
    s->is_removed = arena_array(arena, bool, n);
    s->is_kept = arena_array(arena, bool, n);
    s->feeds_control = arena_array(arena, bool, n);
    s->feeds_frame = arena_array(arena, bool, n);
    s->n_consumers = arena_array(arena, int, n);
    s->is_reference = compile_references(&c->graph);
    graph_shapes_init(&s->shapes);
}

static void simplifier_fini(struct simplifier *s) {
    free(s->is_reference);
    graph_shapes_fini(&s->shapes);
}

struct status *simplify_sweep(struct compilation *c, const struct simplify_table *table,
                              bool *ret_changed) {
    struct node **order;
    struct status *st = NULL;
    int n = c->graph.n_live;
    TRY(graph_topological_order(&c->graph, &order));
    struct simplifier s;
    simplifier_init(&s, c, table);
    note_edges(&s, order, n);
    for (int i = 0; i < n; i++)
        TRY_OUT(look_at_node(&s, order[i]));
    for (int i = 0; i < n; i++)
        if (s.is_removed[order[i]->id])
            graph_remove_node(&c->graph, order[i]);
    *ret_changed = s.changed;
out:
    simplifier_fini(&s);
    free(order);
    return st;
}

struct status *pass_simplify(struct compilation *c, bool *ret_changed) {
    return simplify_sweep(c,
                          &(struct simplify_table){.rules = simplify_rules,
                                                   .n_rules = n_simplify_rules,
                                                   .removes_identities = true},
                          ret_changed);
}
