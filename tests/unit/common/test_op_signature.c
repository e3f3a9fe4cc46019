/* The table of op signatures: it is well formed, look-ups find what is there, and known ops read
 * as TensorFlow declares them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/base.h"
#include "common/signatures/op_signature_internal.h"

static const struct op_signature *known(const char *name) {
    const struct op_signature *signature = op_signature_find(name);
    if (!signature)
        fail_msg("no signature of %s", name);
    return signature;
}

static const struct op_attr_signature *known_attr(const char *op, const char *name,
                                                  enum attr_type type) {
    const struct op_attr_signature *attr = op_signature_attr(known(op), name);
    if (!attr)
        fail_msg("%s has no attr %s", op, name);
    if (attr->type != type)
        fail_msg("%s.%s is %s, not %s", op, name, attr_type_name(attr->type), attr_type_name(type));
    return attr;
}

static void assert_default_string(const char *op, const char *name, const char *expected) {
    const struct op_attr_signature *attr = known_attr(op, name, ATTR_STRING);
    assert_true(attr->has_default);
    assert_int_equal(attr->default_value->n, strlen(expected));
    assert_memory_equal(attr->default_value->s, expected, strlen(expected));
}

static void assert_default_int(const char *op, const char *name, int64_t expected) {
    const struct op_attr_signature *attr = known_attr(op, name, ATTR_INT);
    assert_true(attr->has_default);
    assert_int_equal(attr->default_value->i, expected);
}

/* ---- The whole table ---- */

static void rows_are_sorted_and_unique(void **state) {
    (void)state;
    assert_true(op_signature_count() > 1500);
    for (size_t i = 1; i < op_signature_count(); i++)
        if (strcmp(op_signature_at(i - 1)->name, op_signature_at(i)->name) >= 0)
            fail_msg("%s does not come before %s", op_signature_at(i - 1)->name,
                     op_signature_at(i)->name);
    assert_null(op_signature_at(op_signature_count()));
    assert_null(op_signature_at(SIZE_MAX));
}

static void every_row_is_found_by_its_name(void **state) {
    (void)state;
    for (size_t i = 0; i < op_signature_count(); i++) {
        const struct op_signature *signature = op_signature_at(i);
        char longer[256];
        size_t len = strlen(signature->name);
        assert_true(len > 0 && len < sizeof(longer) - 1);
        memcpy(longer, signature->name, len);
        longer[len] = '!';
        longer[len + 1] = '\0';
        assert_ptr_equal(op_signature_find(signature->name), signature);
        assert_ptr_equal(op_signature_find_n(longer, len), signature);
        assert_null(op_signature_find(longer));
    }
}

static void strange_names_are_not_found(void **state) {
    (void)state;
    static const char *const names[] = {"",     "matmul",  "MatMul ", "MatMu", "~",
                                        "\xff", " MatMul", "zzz",     "_"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_null(op_signature_find(names[i]));
    assert_null(op_signature_find_n("MatMul\0", 7));
    assert_null(op_signature_find_n("Mat\0Mul", 7));
    assert_null(op_signature_find_n(NULL, 0));
    assert_null(op_signature_attr(known("MatMul"), "t"));
    assert_null(op_signature_attr(known("MatMul"), ""));
    assert_null(op_signature_attr_n(known("MatMul"), "T\0", 2));
    assert_null(op_signature_attr(known("NoOp"), "T"));
}

static void check_arg(const struct op_signature *op, const struct op_arg_signature *arg) {
    if (!arg->name || !arg->name[0])
        fail_msg("%s has an argument without a name", op->name);
    int n_sources =
        (arg->type != DT_INVALID) + (arg->type_attr != NULL) + (arg->type_list_attr != NULL);
    if (n_sources != 1)
        fail_msg("%s.%s has %d sources of its dtype", op->name, arg->name, n_sources);
    if (arg->type != DT_INVALID && !dtype_is_known((int)arg->type))
        fail_msg("%s.%s has dtype %d", op->name, arg->name, (int)arg->type);
    if (arg->type_list_attr && arg->number_attr)
        fail_msg("%s.%s has two lengths", op->name, arg->name);
    struct {
        const char *name;
        enum attr_type type;
    } named[] = {{arg->type_attr, ATTR_TYPE},
                 {arg->number_attr, ATTR_INT},
                 {arg->type_list_attr, ATTR_LIST_TYPE}};
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        if (!named[i].name)
            continue;
        const struct op_attr_signature *attr = op_signature_attr(op, named[i].name);
        if (!attr || attr->type != named[i].type)
            fail_msg("%s.%s names %s, which is no %s attr of the op", op->name, arg->name,
                     named[i].name, attr_type_name(named[i].type));
    }
    /* Nothing can have a negative number of tensors, whatever a node says. */
    if (arg->number_attr) {
        const struct op_attr_signature *number = op_signature_attr(op, arg->number_attr);
        if (!number->has_minimum || number->minimum < 0)
            fail_msg("%s.%s may be negative", op->name, arg->number_attr);
    }
}

static void arguments_are_well_formed_and_name_attrs_of_the_right_type(void **state) {
    (void)state;
    for (size_t i = 0; i < op_signature_count(); i++) {
        const struct op_signature *op = op_signature_at(i);
        assert_true((op->n_inputs == 0) == (op->inputs == NULL));
        assert_true((op->n_outputs == 0) == (op->outputs == NULL));
        for (size_t k = 0; k < op->n_inputs; k++)
            check_arg(op, &op->inputs[k]);
        for (size_t k = 0; k < op->n_outputs; k++)
            check_arg(op, &op->outputs[k]);
    }
}

static void check_value(const struct op_signature *op, const struct op_attr_signature *attr,
                        enum attr_type element, const struct op_attr_default *value) {
    switch (element) {
    case ATTR_STRING:
        if (value->n < 0 || !value->s ||
            !op_attr_signature_allows_string(attr, value->s, (size_t)value->n))
            fail_msg("%s.%s has a default string outside its allowed values", op->name, attr->name);
        break;
    case ATTR_TYPE:
        if (!op_attr_signature_allows_type(attr, value->type))
            fail_msg("%s.%s has dtype %d by default, outside its allowed types", op->name,
                     attr->name, (int)value->type);
        break;
    case ATTR_SHAPE:
        if (value->n < -1 || (value->n > 0) != (value->dims != NULL))
            fail_msg("%s.%s has a broken default shape", op->name, attr->name);
        for (int32_t i = 0; i < value->n; i++)
            assert_true(value->dims[i] >= -1);
        break;
    case ATTR_INT:
        if (!attr_type_is_list(attr->type) && attr->has_minimum && value->i < attr->minimum)
            fail_msg("%s.%s is below its minimum by default", op->name, attr->name);
        break;
    case ATTR_TENSOR:
    case ATTR_FUNC:
        assert_true(value->n > 0 && value->s);
        break;
    default:
        break;
    }
}

static void check_attr(const struct op_signature *op, const struct op_attr_signature *attr) {
    if (!attr->name || !attr->name[0] || strcmp(attr_type_name(attr->type), "?") == 0)
        fail_msg("%s has an attr without name or type", op->name);
    enum attr_type element = attr_type_element(attr->type);
    bool is_list = attr_type_is_list(attr->type);
    if (attr->has_minimum && !is_list && attr->type != ATTR_INT)
        fail_msg("%s.%s: only ints and lists have a minimum", op->name, attr->name);
    if (is_list && attr->has_minimum && attr->minimum < 0)
        fail_msg("%s.%s: a list of negative length", op->name, attr->name);
    if (attr->allowed_types &&
        (element != ATTR_TYPE || (attr->allowed_types & 1) || attr->allowed_types >> DT_N_TYPES))
        fail_msg("%s.%s has a wrong set of types", op->name, attr->name);
    if ((attr->n_allowed_strings > 0) != (attr->allowed_strings != NULL) ||
        (attr->n_allowed_strings && element != ATTR_STRING))
        fail_msg("%s.%s has wrong allowed strings", op->name, attr->name);
    if (attr->has_default != (attr->default_value != NULL))
        fail_msg("%s.%s: has_default disagrees with default_value", op->name, attr->name);
    if (!attr->has_default)
        return;
    if (!is_list) {
        check_value(op, attr, element, attr->default_value);
        return;
    }
    assert_true(attr->default_value->n >= 0 &&
                (attr->default_value->n == 0) == (attr->default_value->list == NULL));
    if (attr->has_minimum && attr->default_value->n < attr->minimum)
        fail_msg("%s.%s is shorter than its minimum by default", op->name, attr->name);
    for (int32_t i = 0; i < attr->default_value->n; i++)
        check_value(op, attr, element, &attr->default_value->list[i]);
}

static void attrs_are_well_formed_and_defaults_obey_their_own_bounds(void **state) {
    (void)state;
    for (size_t i = 0; i < op_signature_count(); i++) {
        const struct op_signature *op = op_signature_at(i);
        assert_true((op->n_attrs == 0) == (op->attrs == NULL));
        for (size_t k = 0; k < op->n_attrs; k++) {
            check_attr(op, &op->attrs[k]);
            /* no name twice */
            assert_ptr_equal(op_signature_attr(op, op->attrs[k].name), &op->attrs[k]);
        }
    }
}

static void successors_of_deprecated_ops_are_ops(void **state) {
    (void)state;
    size_t n_deprecated = 0;
    for (size_t i = 0; i < op_signature_count(); i++) {
        const struct op_signature *op = op_signature_at(i);
        n_deprecated += op->deprecated_at_version > 0;
        if (!op->replaced_by)
            continue;
        assert_true(op->deprecated_at_version > 0);
        assert_ptr_not_equal(known(op->replaced_by), op);
    }
    assert_true(n_deprecated > 50);
}

/* ---- Single ops ---- */

static void matmul_reads_as_declared(void **state) {
    (void)state;
    const struct op_signature *op = known("MatMul");
    assert_int_equal(op->n_inputs, 2);
    assert_string_equal(op->inputs[0].name, "a");
    assert_string_equal(op->inputs[1].name, "b");
    assert_string_equal(op->inputs[1].type_attr, "T");
    assert_int_equal(op->n_outputs, 1);
    assert_string_equal(op->outputs[0].name, "product");
    assert_false(op->is_stateful || op->is_commutative || op->is_aggregate);
    assert_int_equal(op->deprecated_at_version, 0);
    assert_false(known_attr("MatMul", "transpose_a", ATTR_BOOL)->default_value->b);
    assert_false(known_attr("MatMul", "transpose_b", ATTR_BOOL)->default_value->b);

    const struct op_attr_signature *type = known_attr("MatMul", "T", ATTR_TYPE);
    assert_false(type->has_default);
    dtype_set expected = DTYPES_REAL_FLOAT | DTYPES_COMPLEX | DTYPES_INDEX | DTYPES_UNSIGNED_INT;
    assert_int_equal(type->allowed_types, expected);
    assert_true(op_attr_signature_allows_type(type, DT_FLOAT));
    assert_false(op_attr_signature_allows_type(type, DT_STRING));
    assert_false(op_attr_signature_allows_type(type, DT_INVALID));
    assert_false(op_attr_signature_allows_type(type, dtype_ref(DT_FLOAT)));
}

static void unbound_types_allow_all_but_references(void **state) {
    (void)state;
    const struct op_attr_signature *type = known_attr("Identity", "T", ATTR_TYPE);
    assert_int_equal(type->allowed_types, 0);
    assert_true(op_attr_signature_allows_type(type, DT_VARIANT));
    assert_true(op_attr_signature_allows_type(type, DT_FLOAT8_E5M2));
    assert_false(op_attr_signature_allows_type(type, DT_INVALID));
    assert_false(op_attr_signature_allows_type(type, dtype_ref(DT_INT32)));
    assert_false(op_attr_signature_allows_type(type, (enum dtype)64));
}

static void sources_and_variables_read_as_declared(void **state) {
    (void)state;
    const struct op_signature *constant = known("Const");
    assert_int_equal(constant->n_inputs, 0);
    assert_string_equal(constant->outputs[0].type_attr, "dtype");
    assert_false(known_attr("Const", "value", ATTR_TENSOR)->has_default);

    assert_int_equal(known_attr("Placeholder", "shape", ATTR_SHAPE)->default_value->n, -1);

    assert_true(known("VarHandleOp")->is_stateful);
    assert_int_equal(known("VarHandleOp")->outputs[0].type, DT_RESOURCE);
    assert_default_string("VarHandleOp", "container", "");
    assert_default_string("VarHandleOp", "shared_name", "");
    const struct op_attr_signature *devices =
        known_attr("VarHandleOp", "allowed_devices", ATTR_LIST_STRING);
    assert_true(devices->has_default);
    assert_int_equal(devices->default_value->n, 0);

    assert_true(known("VariableV2")->outputs[0].is_ref);
    assert_true(known("Assign")->inputs[0].is_ref);
    assert_true(known("Assign")->outputs[0].is_ref);
    assert_false(known("Assign")->inputs[1].is_ref);
    assert_true(known("Assign")->allows_uninitialized_input);
}

static void runs_of_tensors_read_as_declared(void **state) {
    (void)state;
    const struct op_signature *concat = known("ConcatV2");
    assert_string_equal(concat->inputs[0].number_attr, "N");
    assert_string_equal(concat->inputs[0].type_attr, "T");
    assert_null(concat->inputs[0].type_list_attr);
    assert_null(concat->inputs[1].number_attr);
    const struct op_attr_signature *n = known_attr("ConcatV2", "N", ATTR_INT);
    assert_true(n->has_minimum && !n->has_default);
    assert_int_equal(n->minimum, 2);
    assert_int_equal(known_attr("ConcatV2", "Tidx", ATTR_TYPE)->allowed_types, DTYPES_INDEX);
    assert_int_equal(known_attr("ConcatV2", "Tidx", ATTR_TYPE)->default_value->type, DT_INT32);

    const struct op_signature *save = known("SaveV2");
    assert_int_equal(save->inputs[0].type, DT_STRING);
    assert_string_equal(save->inputs[3].type_list_attr, "dtypes");
    assert_int_equal(known_attr("SaveV2", "dtypes", ATTR_LIST_TYPE)->minimum, 1);

    assert_true(known("AddN")->is_commutative && known("AddN")->is_aggregate);
}

static void defaults_of_each_form_read_as_declared(void **state) {
    (void)state;
    static const char *const masks[] = {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask",
                                        "shrink_axis_mask"};
    for (size_t i = 0; i < ARRAY_LEN(masks); i++)
        assert_default_int("StridedSlice", masks[i], 0);
    assert_default_int("FIFOQueueV2", "capacity", -1);

    const struct op_attr_signature *dilations = known_attr("Conv2D", "dilations", ATTR_LIST_INT);
    assert_int_equal(dilations->default_value->n, 4);
    assert_int_equal(dilations->default_value->list[3].i, 1);
    const struct op_attr_signature *padding = known_attr("Conv2D", "padding", ATTR_STRING);
    assert_true(op_attr_signature_allows_string(padding, "EXPLICIT", 8));
    assert_false(op_attr_signature_allows_string(padding, "EXPLICI", 7));
    assert_false(op_attr_signature_allows_string(padding, "", 0));
    assert_default_string("Conv2D", "data_format", "NHWC");

    assert_true(known_attr("LeakyRelu", "alpha", ATTR_FLOAT)->default_value->f == 0.2f);

    /* A serialized TensorProto: dtype uint8, shape [4], ints 255 0 0 255. */
    const struct op_attr_default *color =
        known_attr("ImageSummary", "bad_color", ATTR_TENSOR)->default_value;
    static const char bytes[] = "\x08\x04\x12\x04\x12\x02\x08\x04:\x06\xff\x01\x00\x00\xff\x01";
    assert_int_equal(color->n, sizeof(bytes) - 1);
    assert_memory_equal(color->s, bytes, sizeof(bytes) - 1);
}

static void functional_ops_read_as_declared(void **state) {
    (void)state;
    static const char *const loops[] = {"While", "StatelessWhile"};
    for (size_t i = 0; i < ARRAY_LEN(loops); i++) {
        assert_false(known_attr(loops[i], "cond", ATTR_FUNC)->has_default);
        assert_false(known_attr(loops[i], "body", ATTR_FUNC)->has_default);
        assert_string_equal(known(loops[i])->inputs[0].type_list_attr, "T");
        assert_string_equal(known(loops[i])->outputs[0].type_list_attr, "T");
        assert_default_int(loops[i], "parallel_iterations", 10);
        assert_int_equal(known_attr(loops[i], "output_shapes", ATTR_LIST_SHAPE)->default_value->n,
                         0);
    }
    assert_true(known("While")->is_stateful);
    assert_false(known("StatelessWhile")->is_stateful);
    assert_int_equal(known_attr("Case", "branches", ATTR_LIST_FUNC)->minimum, 1);
    assert_int_equal(known("If")->inputs[0].type, DT_INVALID);
    assert_string_equal(known("If")->inputs[0].type_attr, "Tcond");
}

static void deprecated_ops_say_since_when(void **state) {
    (void)state;
    assert_int_equal(known("TopK")->deprecated_at_version, 7);
    assert_string_equal(known("TopK")->replaced_by, "TopKV2");
    assert_int_equal(known("TensorArrayV2")->deprecated_at_version, 26);
    assert_string_equal(known("TensorArrayV2")->replaced_by, "TensorArrayV3");
    assert_int_equal(known("RandomCrop")->deprecated_at_version, 8);
    assert_null(known("RandomCrop")->replaced_by);
    assert_null(known("TopKV2")->replaced_by);
}

static void internal_ops_are_present(void **state) {
    (void)state;
    static const char *const names[] = {"_Send", "_Recv",   "_HostSend",   "_HostRecv",
                                        "_Arg",  "_Retval", "_FusedMatMul"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        known(names[i]);
    assert_true(known("_Send")->is_stateful);
}

static void attr_types_know_their_elements(void **state) {
    (void)state;
    assert_true(attr_type_is_list(ATTR_LIST_FUNC) && !attr_type_is_list(ATTR_FUNC));
    assert_int_equal(attr_type_element(ATTR_LIST_SHAPE), ATTR_SHAPE);
    assert_int_equal(attr_type_element(ATTR_SHAPE), ATTR_SHAPE);
    assert_string_equal(attr_type_name(ATTR_LIST_TYPE), "list(type)");
    assert_string_equal(attr_type_name(ATTR_STRING), "string");
    assert_string_equal(attr_type_name((enum attr_type)16), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sorted_and_unique),
        cmocka_unit_test(every_row_is_found_by_its_name),
        cmocka_unit_test(strange_names_are_not_found),
        cmocka_unit_test(arguments_are_well_formed_and_name_attrs_of_the_right_type),
        cmocka_unit_test(attrs_are_well_formed_and_defaults_obey_their_own_bounds),
        cmocka_unit_test(successors_of_deprecated_ops_are_ops),
        cmocka_unit_test(matmul_reads_as_declared),
        cmocka_unit_test(unbound_types_allow_all_but_references),
        cmocka_unit_test(sources_and_variables_read_as_declared),
        cmocka_unit_test(runs_of_tensors_read_as_declared),
        cmocka_unit_test(defaults_of_each_form_read_as_declared),
        cmocka_unit_test(functional_ops_read_as_declared),
        cmocka_unit_test(deprecated_ops_say_since_when),
        cmocka_unit_test(internal_ops_are_present),
        cmocka_unit_test(attr_types_know_their_elements),
    };
    return cmocka_run_group_tests_name("op_signature", tests, NULL, NULL);
}
