/* Makes and reads fused programs (fused.h). */
#include "common/graph/fused.h"

#include <stdlib.h>

#include "common/graph/graph_rewrite.h"

/* ---- making one ---- */

struct maker {
    struct graph *graph;
    struct node *const *members;
    int n_members;
    struct arena arena; /* lists, until the node's attrs are copies of them */
    struct node_input *inputs;
    struct node **controls;
    struct attr_value *operands;
    int n_inputs, n_controls, n_operands;
};

static int member_index(const struct maker *m, const struct node *node) {
    for (int i = 0; i < m->n_members; i++)
        if (m->members[i] == node)
            return i;
    return -1;
}

static int input_number(struct maker *m, const struct node_input *in) {
    for (int i = 0; i < m->n_inputs; i++)
        if (m->inputs[i].src == in->src && m->inputs[i].index == in->index)
            return i;
    m->inputs[m->n_inputs] = *in;
    return m->n_inputs++;
}

/* Numbers the inputs first, because the numbers of instructions follow them. */
static void gather_inputs(struct maker *m) {
    int n = 0;
    for (int i = 0; i < m->n_members; i++)
        n += m->members[i]->n_inputs;
    m->inputs = arena_array(&m->arena, struct node_input, n + 1);
    m->controls = arena_array(&m->arena, struct node *, n + 1);
    m->operands = arena_array(&m->arena, struct attr_value, n + 1);
    for (int i = 0; i < m->n_members; i++) {
        const struct node *node = m->members[i];
        for (int k = 0; k < node->n_inputs; k++) {
            const struct node_input *in = &node->inputs[k];
            if (member_index(m, in->src) >= 0)
                continue;
            if (k < node->n_data)
                input_number(m, in);
            else
                m->controls[m->n_controls++] = in->src;
        }
    }
}

static void list_operands(struct maker *m) {
    for (int i = 0; i < m->n_members; i++)
        for (int k = 0; k < m->members[i]->n_data; k++) {
            int member = member_index(m, m->members[i]->inputs[k].src);
            m->operands[m->n_operands++] =
                (struct attr_value){.type = ATTR_INT,
                                    .i = member >= 0 ? m->n_inputs + member
                                                     : input_number(m, &m->members[i]->inputs[k])};
        }
}

/* The member's op with its attrs; those of clients (_class, _output_shapes) stay behind. */
static struct attr_value instruction_of(struct maker *m, const struct node *node) {
    struct attr_func *func = arena_new(&m->arena, struct attr_func);
    func->name = node->op_name;
    func->attrs = arena_array(&m->arena, struct attr, node->n_attrs + 1);
    func->n_attrs = 0;
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].name[0] != '_')
            func->attrs[func->n_attrs++] = node->attrs[i];
    return (struct attr_value){.type = ATTR_FUNC, .func = func};
}

static void set_list(struct graph *graph, struct node *node, const char *name, enum attr_type type,
                     const struct attr_value *values, int n) {
    struct attr_value list = {.type = type, .list = {values, n}};
    node_set_attr(graph, node, name, &list);
}

/* The attrs of a node. */
struct attr_lists {
    struct attr_value *program, *names, *operands, *results, *out_types;
    int n, n_operands, n_results;
};

static void set_attrs(struct maker *m, struct node *node, const struct attr_lists *lists) {
    struct attr_value *in_types = arena_array(&m->arena, struct attr_value, m->n_inputs + 1);
    for (int i = 0; i < m->n_inputs; i++)
        in_types[i] = (struct attr_value){
            .type = ATTR_TYPE, /* a reference is read before the kernel sees it */
            .dtype = dtype_base((enum dtype)m->inputs[i].src->out_types[m->inputs[i].index])};
    node_change_op(m->graph, node, OP_FUSED);
    set_list(m->graph, node, "Tin", ATTR_LIST_TYPE, in_types, m->n_inputs);
    set_list(m->graph, node, "Tout", ATTR_LIST_TYPE, lists->out_types, lists->n_results);
    set_list(m->graph, node, "program", ATTR_LIST_FUNC, lists->program, lists->n);
    set_list(m->graph, node, "names", ATTR_LIST_STRING, lists->names, lists->n);
    set_list(m->graph, node, "operands", ATTR_LIST_INT, lists->operands, lists->n_operands);
    set_list(m->graph, node, "results", ATTR_LIST_INT, lists->results, lists->n_results);
}

static struct attr_value name_of(const struct node *node) {
    return (struct attr_value){.type = ATTR_STRING, .s = span_of(node->name)};
}

static void list_members(struct maker *m, const bool *is_result, struct attr_lists *ret) {
    int n = m->n_members;
    *ret = (struct attr_lists){.program = arena_array(&m->arena, struct attr_value, n),
                               .names = arena_array(&m->arena, struct attr_value, n),
                               .operands = m->operands,
                               .results = arena_array(&m->arena, struct attr_value, n),
                               .out_types = arena_array(&m->arena, struct attr_value, n),
                               .n = n,
                               .n_operands = m->n_operands};
    for (int i = 0; i < n; i++) {
        ret->program[i] = instruction_of(m, m->members[i]);
        ret->names[i] = name_of(m->members[i]);
        if (!is_result[i])
            continue;
        ret->results[ret->n_results] = (struct attr_value){.type = ATTR_INT, .i = i};
        ret->out_types[ret->n_results++] =
            (struct attr_value){.type = ATTR_TYPE, .dtype = m->members[i]->out_types[0]};
    }
}

static struct status *add_edges(struct maker *m, struct node *node) {
    for (int i = 0; i < m->n_inputs; i++)
        node_add_input(m->graph, node, m->inputs[i].src, m->inputs[i].index);
    TRY(node_finish(m->graph, node));
    for (int i = 0; i < m->n_controls; i++)
        node_add_control(m->graph, node, m->controls[i]);
    return NULL;
}

struct status *fused_node_make(struct graph *graph, struct node *const *members, int n_members,
                               const bool *is_result) {
    struct maker m = {.graph = graph, .members = members, .n_members = n_members};
    struct attr_lists lists;
    struct node *node = members[n_members - 1];
    struct status *st = NULL;
    arena_init(&m.arena);
    gather_inputs(&m);
    list_operands(&m);
    list_members(&m, is_result, &lists);
    set_attrs(&m, node, &lists);
    TRY_OUT(add_edges(&m, node));
    for (int i = 0; i < n_members - 1; i++)
        graph_remove_node(graph, members[i]);
out:
    arena_fini(&m.arena);
    return st;
}

/* ---- a producer in front of one ---- */

/* A list with one more value at its beginning, which the caller sets. */
static struct attr_value *grown(struct maker *m, const struct node *node, const char *attr,
                                int n_more, int *ret_n) {
    const struct attr_value *list = node_attr(node, attr);
    struct attr_value *values =
        arena_array(&m->arena, struct attr_value, list->list.n_values + n_more + 1);
    for (int i = 0; i < list->list.n_values; i++)
        values[n_more + i] = list->list.values[i];
    *ret_n = list->list.n_values + n_more;
    return values;
}

/* The operands of the producer come first. Those of the others have new numbers. */
static void renumber(struct maker *m, const struct node *node, const struct node *producer,
                     struct attr_lists *lists) {
    lists->operands = grown(m, node, "operands", producer->n_data, &lists->n_operands);
    for (int i = 0; i < producer->n_data; i++)
        lists->operands[i] =
            (struct attr_value){.type = ATTR_INT, .i = input_number(m, &producer->inputs[i])};
    for (int i = 0; i < node->n_data; i++)
        if (node->inputs[i].src != producer)
            input_number(m, &node->inputs[i]);
    for (int i = producer->n_data; i < lists->n_operands; i++) {
        int64_t *operand = &lists->operands[i].i;
        if (*operand >= node->n_data)
            *operand += m->n_inputs + 1 - node->n_data;
        else if (node->inputs[*operand].src == producer)
            *operand = m->n_inputs;
        else
            *operand = input_number(m, &node->inputs[*operand]);
    }
}

static void list_controls(struct maker *m, const struct node *node, const struct node *but) {
    for (int i = node->n_data; i < node->n_inputs; i++)
        if (node->inputs[i].src != but)
            m->controls[m->n_controls++] = node->inputs[i].src;
}

struct status *fused_node_prepend(struct graph *graph, struct node *node, struct node *producer) {
    struct maker m = {.graph = graph};
    struct attr_lists lists = {0};
    int n = node->n_inputs + producer->n_inputs, n_names;
    arena_init(&m.arena);
    m.inputs = arena_array(&m.arena, struct node_input, n + 1);
    m.controls = arena_array(&m.arena, struct node *, n + 1);
    renumber(&m, node, producer, &lists);
    list_controls(&m, producer, NULL);
    list_controls(&m, node, producer);
    lists.program = grown(&m, node, "program", 1, &lists.n);
    lists.program[0] = instruction_of(&m, producer);
    lists.names = grown(&m, node, "names", 1, &n_names);
    lists.names[0] = name_of(producer);
    lists.results = grown(&m, node, "results", 0, &lists.n_results);
    for (int i = 0; i < lists.n_results; i++)
        lists.results[i].i++;
    lists.out_types = grown(&m, node, "Tout", 0, &lists.n_results);
    set_attrs(&m, node, &lists);
    struct status *st = add_edges(&m, node);
    if (!st)
        graph_remove_node(graph, producer);
    arena_fini(&m.arena);
    return st;
}

/* ---- reading one ---- */

struct lists {
    const struct attr_value *program, *names, *operands, *results;
    int n_program, n_names, n_operands, n_results;
};

static struct status *malformed(const struct node *node, const char *what) {
    return status_invalid("The fused program of '%s' is malformed: %s", node->name, what);
}

static struct status *read_lists(const struct node *node, struct lists *ret) {
    TRY(node_get_list(node, "program", &ret->program, &ret->n_program));
    TRY(node_get_list(node, "names", &ret->names, &ret->n_names));
    TRY(node_get_list(node, "operands", &ret->operands, &ret->n_operands));
    TRY(node_get_list(node, "results", &ret->results, &ret->n_results));
    if (ret->n_program < 1 || ret->n_program > FUSED_MAX_INSTRUCTIONS)
        return malformed(node, "the number of instructions");
    if (ret->n_names != ret->n_program)
        return malformed(node, "the number of names");
    if (ret->n_results != node->n_outputs)
        return malformed(node, "the number of results");
    return NULL;
}

static struct status *add_inputs(const struct node *node, struct fused_program *program) {
    program->n_inputs = node->n_data;
    program->inputs = arena_array(&program->graph.arena, struct node *, node->n_data + 1);
    for (int i = 0; i < node->n_data; i++) {
        const char *name = arena_printf(&program->graph.arena, "_operand_%d", i);
        TRY(graph_add_node(&program->graph, name, "Placeholder", "", &program->inputs[i]));
        node_set_attr_type(&program->graph, program->inputs[i], "dtype",
                           dtype_base((enum dtype)node->in_types[i]));
        TRY(node_finish(&program->graph, program->inputs[i]));
    }
    return NULL;
}

static struct status *count_operands(const struct node *node, int64_t *ret) {
    *ret = 0;
    for (int i = 0; i < node->op->n_inputs; i++) {
        int64_t n;
        TRY(node_count_arg(node, &node->op->inputs[i], &n));
        *ret += n;
    }
    return NULL;
}

/* The bytes of an empty list do not say of what type it is. */
static struct attr_value typed_value(const struct node *instruction, const struct attr *attr) {
    const struct op_attr_signature *wanted = op_signature_attr(instruction->op, attr->name);
    struct attr_value value = attr->value;
    if (wanted && attr_type_is_list(value.type) && attr_type_is_list(wanted->type) &&
        value.list.n_values == 0)
        value.type = wanted->type;
    return value;
}

/* Adds instruction k, whose operands begin at *at. */
static struct status *add_instruction(const struct node *node, const struct lists *lists, int k,
                                      int *at, struct fused_program *program) {
    const struct attr_func *func = lists->program[k].func;
    struct graph *graph = &program->graph;
    struct node *instruction;
    int64_t n;
    const char *name = arena_strndup(&graph->arena, lists->names[k].s.data, lists->names[k].s.len);
    TRY(graph_add_node(graph, name, func->name, "", &instruction));
    for (int i = 0; i < func->n_attrs; i++) {
        struct attr_value value = typed_value(instruction, &func->attrs[i]);
        node_set_attr(graph, instruction, func->attrs[i].name, &value);
    }
    TRY(count_operands(instruction, &n));
    if (n > lists->n_operands - *at)
        return malformed(node, "the number of operands");
    for (int i = 0; i < n; i++) {
        int64_t operand = lists->operands[(*at)++].i;
        if (operand < 0 || operand >= program->n_inputs + k)
            return malformed(node, "an operand that is not computed yet");
        node_add_input(graph, instruction,
                       operand < program->n_inputs
                           ? program->inputs[operand]
                           : program->instructions[operand - program->n_inputs],
                       0);
    }
    TRY(node_finish(graph, instruction));
    if (instruction->n_outputs != 1)
        return malformed(node, "an instruction without a value");
    program->instructions[program->n_instructions++] = instruction;
    return NULL;
}

static struct status *read_results(const struct node *node, const struct lists *lists,
                                   struct fused_program *program) {
    program->n_outputs = lists->n_results;
    program->results = arena_array(&program->graph.arena, int, lists->n_results + 1);
    for (int i = 0; i < lists->n_results; i++) {
        int64_t k = lists->results[i].i;
        if (k < 0 || k >= program->n_instructions)
            return malformed(node, "a result that no instruction has");
        if (program->instructions[k]->out_types[0] != node->out_types[i])
            return malformed(node, "the type of a result");
        program->results[i] = (int)k;
    }
    return NULL;
}

static struct status *read_program(const struct node *node, struct fused_program *program) {
    struct lists lists;
    int at = 0;
    TRY(read_lists(node, &lists));
    TRY(add_inputs(node, program));
    program->instructions = arena_array(&program->graph.arena, struct node *, lists.n_program);
    for (int k = 0; k < lists.n_program; k++)
        TRY(add_instruction(node, &lists, k, &at, program));
    if (at != lists.n_operands)
        return malformed(node, "the number of operands");
    return read_results(node, &lists, program);
}

struct status *fused_program_read(const struct node *node, struct fused_program *ret) {
    *ret = (struct fused_program){0};
    graph_init(&ret->graph);
    struct status *st = read_program(node, ret);
    if (st)
        fused_program_fini(ret);
    return st;
}

void fused_program_fini(struct fused_program *program) {
    graph_fini(&program->graph);
    *program = (struct fused_program){0};
}
