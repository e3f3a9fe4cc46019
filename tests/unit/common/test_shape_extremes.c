/* Calls every shape function with the integer attrs and inputs of its op at the ends of their
 * range, over inputs of many shapes. A build with sanitizers finds overflows; any build finds
 * shapes with negative sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/ops/infer.h"
#include "common/ops/op_def.h"

static const int64_t numbers[] = {
    INT64_MIN,       INT64_MIN + 1, -2,       -1, 0, 1, 3, INT32_MAX - 1, INT32_MAX,
    INT32_MAX + 1ll, INT64_MAX - 1, INT64_MAX};

static const struct shape shapes[] = {
    {-1, NULL},
    {0, NULL},
    {1, (const int64_t[]){3}},
    {1, (const int64_t[]){-1}},
    {2, (const int64_t[]){2, 3}},
    {3, (const int64_t[]){2, -1, 4}},
    {4, (const int64_t[]){2, 7, 7, 4}},
    {4, (const int64_t[]){INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}},
    {5, (const int64_t[]){2, 5, 5, 5, 4}},
};

enum { MAX_LIST = 10, N_TENSORS = 2 };

static enum dtype type_of(const struct op_attr_signature *attr) {
    if (attr->has_default && attr->type == ATTR_TYPE)
        return attr->default_value->type;
    if (attr->allowed_types & DTYPE_BIT(DT_INT64)) /* so that it may be a constant of integers */
        return DT_INT64;
    return attr->allowed_types ? (enum dtype)__builtin_ctzll(attr->allowed_types) : DT_FLOAT;
}

/* Sets every attr that an op needs; `extreme` gets `number`, in a list at the entry `at` of n. */
static void set_attrs(struct graph *graph, struct node *node,
                      const struct op_attr_signature *extreme, int64_t number, int n, int at) {
    struct attr_func function = {.name = "f"};
    struct tensor one;
    tensor_init_scalar_f32(&one, 1);
    for (int i = 0; i < node->op->n_attrs; i++) {
        const struct op_attr_signature *attr = &node->op->attrs[i];
        struct attr_value value = {.type = attr->type}, elements[MAX_LIST];
        if (attr == extreme && attr->type == ATTR_INT) {
            value.i = number;
        } else if (attr->type == ATTR_LIST_INT && (attr == extreme || !attr->has_default)) {
            for (int k = 0; k < n; k++)
                elements[k] = (struct attr_value){.type = ATTR_INT,
                                                  .i = attr == extreme && k == at ? number : 1};
            value.list.values = elements;
            value.list.n_values = n;
        } else if (attr->has_default) {
            continue;
        } else if (attr->type == ATTR_INT) {
            value.i = attr->has_minimum ? MAX(attr->minimum, (int64_t)N_TENSORS) : N_TENSORS;
        } else if (attr->type == ATTR_TYPE) {
            value.dtype = type_of(attr);
        } else if (attr->type == ATTR_LIST_TYPE) {
            elements[0] = (struct attr_value){.type = ATTR_TYPE, .dtype = type_of(attr)};
            value.list.values = elements;
            value.list.n_values = 1;
        } else if (attr->type == ATTR_STRING) {
            value.s = span_of(attr->n_allowed_strings ? attr->allowed_strings[0] : "s");
        } else if (attr->type == ATTR_SHAPE) {
            value.shape = SHAPE_UNKNOWN;
        } else if (attr->type == ATTR_LIST_SHAPE) {
            elements[0] = (struct attr_value){.type = ATTR_SHAPE, .shape = SHAPE_UNKNOWN};
            value.list.values = elements;
            value.list.n_values = 1;
        } else if (attr->type == ATTR_FUNC) {
            value.func = &function;
        } else if (attr->type == ATTR_TENSOR) {
            value.tensor = &one;
        } /* a list of others stays empty */
        node_set_attr(graph, node, attr->name, &value);
    }
}

static struct node *new_input(struct graph *graph, enum dtype dtype, bool is_ref,
                              struct shape shape) {
    struct node *node;
    assert_null(graph_add_node(graph, graph_unique_name(graph, "in"),
                               is_ref ? "VariableV2" : "Placeholder", "", &node));
    node_set_attr_type(graph, node, "dtype", dtype);
    node_set_attr_shape(graph, node, "shape", shape);
    struct status *st = node_finish(graph, node);
    if (st)
        fail_msg("%s of %s %s: %s", node->op_name, dtype_name(dtype), SHAPE_TEXT(shape),
                 status_message(st));
    return node;
}

/* The constant that integer inputs are: a scalar, or n entries of which one is `number`. */
struct constant {
    int64_t number;
    int n, at; /* n -1: a scalar, 0: no constant */
};

static struct node *new_constant(struct graph *graph, enum dtype dtype,
                                 const struct constant *constant) {
    struct node *node;
    struct tensor value;
    int64_t n = constant->n;
    assert_null(graph_add_node(graph, graph_unique_name(graph, "in"), "Const", "", &node));
    assert_null(tensor_new(allocator_host(), dtype, (struct shape){n < 0 ? 0 : 1, &n}, &value));
    for (int64_t i = 0; i < value.n_elements; i++) {
        int64_t element = n < 0 || i == constant->at ? constant->number : 1;
        memcpy((char *)tensor_data(&value) + (size_t)i * dtype_size(dtype), &element,
               dtype_size(dtype));
    }
    node_set_attr_type(graph, node, "dtype", dtype);
    node_set_attr_tensor(graph, node, "value", &value);
    tensor_clear(&value);
    assert_null(node_finish(graph, node));
    return node;
}

static void add_inputs(struct graph *graph, struct node *node, struct shape shape,
                       const struct constant *constant) {
    for (int i = 0; i < node->op->n_inputs; i++) {
        const struct op_arg_signature *arg = &node->op->inputs[i];
        const struct attr_value *number =
                                    arg->number_attr ? node_attr(node, arg->number_attr) : NULL,
                                *type = arg->type_attr ? node_attr(node, arg->type_attr) : NULL,
                                *list = arg->type_list_attr ? node_attr(node, arg->type_list_attr)
                                                            : NULL;
        int64_t n = number ? MIN(MAX(number->i, (int64_t)0), (int64_t)4)
                    : list ? list->list.n_values
                           : 1;
        for (int64_t k = 0; k < n; k++) {
            enum dtype dtype = list ? list->list.values[k].dtype : type ? type->dtype : arg->type;
            bool is_const = constant->n != 0 && !arg->is_ref && dtype_in(dtype, DTYPES_INDEX);
            node_add_input(graph, node,
                           is_const ? new_constant(graph, dtype, constant)
                                    : new_input(graph, dtype, arg->is_ref, shape),
                           0);
        }
    }
}

/* Returns whether the shape function was called. */
static bool try_op(const char *op, const struct op_attr_signature *extreme, int64_t number, int n,
                   int at, struct shape shape, const struct constant *constant) {
    struct graph graph;
    struct graph_shapes known;
    struct infer_options options;
    struct node *node;
    graph_init(&graph);
    graph_shapes_init(&known);
    infer_options_default(&options);
    assert_null(graph_add_node(&graph, "n", op, "", &node));
    set_attrs(&graph, node, extreme, number, n, at);
    add_inputs(&graph, node, shape, constant);
    struct status *st = node_finish(&graph, node);
    bool is_called = !st;
    status_unref(st);
    if (is_called) {
        assert_null(graph_infer_shapes(&graph, &known, &options));
        for (int i = 0; i < node->n_outputs; i++) {
            struct shape out = graph_shapes_of(&known, node, i);
            assert_in_range(out.rank + 1, 0, SHAPE_MAX_RANK + 1);
            for (int d = 0; d < out.rank; d++)
                if (out.dims[d] < -1)
                    fail_msg("%s: %s = %lld gives output %d the shape %s", op,
                             extreme ? extreme->name : "an input", (long long)number, i,
                             SHAPE_TEXT(out));
        }
    }
    graph_shapes_fini(&known);
    graph_fini(&graph);
    return is_called;
}

static const struct constant no_constant;

static int try_attr(const char *op, const struct op_attr_signature *attr) {
    int n_called = 0;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
            if (attr->type == ATTR_INT)
                n_called += try_op(op, attr, numbers[i], 4, 0, shapes[s], &no_constant);
            for (int n = 4; attr->type == ATTR_LIST_INT && n <= 5; n++)
                for (int at = 0; at < n; at++)
                    n_called += try_op(op, attr, numbers[i], n, at, shapes[s], &no_constant);
        }
    }
    return n_called;
}

static bool has_integer_input(const struct op_signature *op) {
    for (int i = 0; i < op->n_inputs; i++)
        if (op->inputs[i].type_attr || dtype_in(op->inputs[i].type, DTYPES_INDEX))
            return true;
    return false;
}

static int try_constants(const char *op) {
    static const struct constant forms[] = {{0, -1, 0}, {0, 1, 0}, {0, 2, 1}, {0, 4, 0}, {0, 4, 3}};
    int n_called = 0;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s += 2)
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
            for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
                struct constant constant = forms[f];
                constant.number = numbers[i];
                n_called += try_op(op, NULL, numbers[i], 4, 0, shapes[s], &constant);
            }
    return n_called;
}

static void no_constant_of_a_client_breaks_a_shape_function(void **state) {
    int n_called = 0;
    for (size_t l = 0; l < n_op_def_lists; l++) {
        for (size_t r = 0; r < op_def_lists[l]->n_rows; r++) {
            const struct op_signature *op = op_signature_find(op_def_lists[l]->rows[r].name);
            if (op && has_integer_input(op))
                n_called += try_constants(op->name);
        }
    }
    print_message("%d calls\n", n_called);
    assert_true(n_called > 100000);
}

static void no_number_of_a_client_breaks_a_shape_function(void **state) {
    int n_called = 0;
    for (size_t l = 0; l < n_op_def_lists; l++) {
        for (size_t r = 0; r < op_def_lists[l]->n_rows; r++) {
            const struct op_signature *op = op_signature_find(op_def_lists[l]->rows[r].name);
            for (int i = 0; op && i < op->n_attrs; i++)
                n_called += try_attr(op->name, &op->attrs[i]);
        }
    }
    print_message("%d calls\n", n_called);
    assert_true(n_called > 50000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_number_of_a_client_breaks_a_shape_function),
        cmocka_unit_test(no_constant_of_a_client_breaks_a_shape_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
