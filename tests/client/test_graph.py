"""Graphs that are built by the same calls through both libraries."""
import ctypes
import unittest

from c_library import (BOOL, DOUBLE, FLOAT, INT32, INT64, STRING, Buffer, Output, Refused, ints,
                       millrace, output, text, types)
from compare import Compared


def mlp(b):
    x = b.placeholder("x", FLOAT, [-1, 3])
    w = b.constant("w", FLOAT, [3, 2], range(6), device="/cpu:0")
    y = b.op("MatMul", "y", x, w, device="/job:worker/task:1")
    bias = b.constant("b", FLOAT, [2], [1, 2])
    z = b.op("BiasAdd", "z", y, bias)
    return b.op("Relu", "r", z, controls=[w, x], colocate=[w, y])


class TestBuilding(Compared):
    def test_an_mlp(self):
        self.same_graph(lambda b: mlp(b) and None)

    def test_lists_of_inputs_and_types(self):
        def build(b):
            parts = [b.constant(f"c{i}", INT32, [i, 2], range(2 * i)) for i in range(1, 4)]
            axis = b.constant("axis", INT32, [], [0])
            b.op("ConcatV2", "joined", parts, axis)
            b.op("IdentityN", "all", [parts[0], b.constant("f", FLOAT, [], [1])])
            b.op("NoOp", "group", controls=parts + parts)
            b.op("Split", "split", axis, parts[1], num_split=("Int", 2))
            b.op("Pack", "pack", [axis, axis], axis=("Int", 0))
            b.op("PlaceholderWithDefault", "p", parts[0], shape=("Shape", None, -1))
        self.same_graph(build)

    def test_attrs_of_every_type(self):
        def build(b):
            dims = (ctypes.c_int64 * 2)(4, -1)
            shapes = (ctypes.c_void_p * 2)(ctypes.addressof(dims), 0)
            ranks = (ctypes.c_int * 2)(2, -1)
            b.op("FIFOQueueV2", "q", component_types=types(FLOAT, INT64),
                 shapes=("ShapeList", shapes, ranks, 2), capacity=("Int", 7),
                 container=text("c"), shared_name=text("s"))
            b.op("Placeholder", "p", dtype=("Type", BOOL), shape=("Shape", dims, 2),
                 _f=("Float", 1.5), _fl=("FloatList", (ctypes.c_float * 2)(1, 2), 2),
                 _b=("Bool", 1), _bl=("BoolList", (ctypes.c_ubyte * 2)(1, 0), 2),
                 _il=ints(1, -2, 3), _fn=("FuncName", b"a_function", 10),
                 _ph=("Placeholder", b"T"), _s=text("bytes \0 with nul"))
            strings = (ctypes.c_char_p * 2)(b"ab", b"")
            b.op("NoOp", "n", _sl=("StringList", strings, (ctypes.c_size_t * 2)(2, 0), 2),
                 _shape=("TensorShapeProto", b"\x12\x02\x08\x05", 4),
                 _value=("ValueProto", b"\x18\x05", 2))
            x = b.placeholder("x", FLOAT, [1, 8, 8, 1])
            b.op("MaxPool", "pool", x, ksize=ints(1, 2, 2, 1), strides=ints(1, 2, 2, 1),
                 padding=text("VALID"))
        self.same_graph(build)

    def test_attrs_are_read_back(self):
        from tensorflow.core.framework import attr_value_pb2

        def build(b):
            dims = (ctypes.c_int64 * 2)(4, -1)
            shapes = (ctypes.c_void_p * 2)(ctypes.addressof(dims), 0)
            q = b.op("FIFOQueueV2", "q", component_types=types(FLOAT, INT64),
                     shapes=("ShapeList", shapes, (ctypes.c_int * 2)(2, -1), 2),
                     container=text("cont"))
            p = b.placeholder("p", FLOAT, [4, -1])
            out = {}
            for oper in (q, p):
                names = []
                for i in range(b.c.TF_OperationGetNumAttrs(oper)):
                    n = b.c.TF_OperationGetAttrNameLength(oper, i)
                    name = ctypes.create_string_buffer(n + 1)
                    b.call("TF_OperationGetAttrName", oper, i, name)
                    names.append(name.raw[:n])
                for name in names:
                    m = b.call("TF_OperationGetAttrMetadata", oper, name)
                    out[b.name(oper), name] = (m.is_list, m.list_size, m.type, m.total_size,
                                               str(attr_value_pb2.AttrValue.FromString(b.bytes(
                                                   "TF_OperationGetAttrValueProto", oper, name))))
            value = ctypes.create_string_buffer(9)
            b.call("TF_OperationGetAttrString", q, b"container", value, 3)
            out["string"] = value.raw
            kinds = (ctypes.c_int * 3)()
            b.call("TF_OperationGetAttrTypeList", q, b"component_types", kinds, 3)
            sizes = (ctypes.c_int64 * 3)(7, 7, 7)
            b.call("TF_OperationGetAttrShape", p, b"shape", sizes, 2)
            starts, ranks, storage = (ctypes.c_void_p * 2)(), (ctypes.c_int * 2)(), (
                ctypes.c_int64 * 2)()
            b.call("TF_OperationGetAttrShapeList", q, b"shapes", starts, ranks, 2, storage, 2)
            out["lists"] = list(kinds), list(sizes), list(ranks), list(storage)
            out["proto"] = b.bytes("TF_OperationGetAttrTensorShapeProto", p, b"shape")
            number = ctypes.c_int64()
            b.call("TF_OperationGetAttrInt", q, b"capacity", ctypes.byref(number))
            out["int"] = number.value
            return out
        self.both(build)

    def test_operations_are_read_back(self):
        def build(b):
            r = mlp(b)
            w, y = b.find("w"), b.find("y")
            out = {"none": b.find("nowhere")}
            for oper in b.operations():
                n = b.c.TF_OperationNumInputs(oper)
                inputs = (Output * max(n, 1))()
                b.c.TF_OperationAllInputs(oper, inputs, n)
                opers = (ctypes.c_void_p * 8)()
                consumers = (Output * 8)()
                n_used = b.c.TF_OperationOutputConsumers(output(oper), consumers, 8)
                n_controls = b.c.TF_OperationGetControlInputs(oper, opers, 8)
                controls = sorted(b.name(o) for o in opers[:n_controls])
                n_after = b.c.TF_OperationGetControlOutputs(oper, opers, 8)
                out[b.name(oper)] = (
                    b.c.TF_OperationOpType(oper), b.c.TF_OperationDevice(oper),
                    [(b.name(i.oper), i.index) for i in inputs[:n]],
                    b.c.TF_OperationOutputNumConsumers(output(oper)),
                    sorted((b.name(i.oper), i.index) for i in consumers[:n_used]), controls,
                    sorted(b.name(o) for o in opers[:n_after]),
                    b.c.TF_OperationNumControlInputs(oper),
                    b.c.TF_OperationNumControlOutputs(oper),
                    b.c.TF_OperationOutputType(output(oper)),
                    [b.c.TF_OperationInputType(Output(oper, i)) for i in range(n)])
            out["lengths"] = (b.call("TF_OperationInputListLength", y, b"a"),
                              b.call("TF_OperationOutputListLength", y, b"product"))
            self.assertEqual(b.name(b.c.TF_OperationInput(Output(y, 1)).oper), "w")
            self.assertEqual((r, w), (b.find("r"), b.find("w")))
            return out
        self.both(build)

    def test_arrays_that_are_too_short(self):
        def build(b):
            x, first, second = b.placeholder("x", FLOAT), b.op("NoOp", "1"), b.op("NoOp", "2")
            for name in "ab":
                b.op("Relu", name, x, controls=[first, second])
            out = []
            for most in (0, 1, 2):
                opers, inputs = (ctypes.c_void_p * 2)(), (Output * 2)()
                out.append([
                    b.c.TF_OperationOutputConsumers(output(x), inputs, most),
                    [bool(i.oper) for i in inputs],
                    b.c.TF_OperationGetControlInputs(b.find("a"), opers, most),
                    [bool(o) for o in opers]])
                opers = (ctypes.c_void_p * 2)()
                out.append([b.c.TF_OperationGetControlOutputs(first, opers, most),
                            [bool(o) for o in opers]])
            return out
        self.assertEqual(self.both(build)[:2], [[2, [False] * 2, 2, [False] * 2],
                                                [2, [False] * 2]])

    def test_tensors_are_copied(self):
        def fill(b, tensor, value):
            array = (ctypes.c_double * 8).from_address(b.c.TF_TensorData(tensor))
            array[:] = [value] * 8

        def build(b):
            tensor, out = b.tensor(DOUBLE, [8]), []
            for i, name in enumerate("ab"):  # a program that refills one tensor
                fill(b, tensor, i)
                b.op("Const", name, dtype=("Type", DOUBLE), value=("Tensor", tensor),
                     _list=("TensorList", (ctypes.c_void_p * 2)(tensor, tensor), 2))
            fill(b, tensor, 7)
            b.c.TF_DeleteTensor(tensor)
            for name in "aabb":  # and one that writes to what it reads
                found, some = ctypes.c_void_p(), (ctypes.c_void_p * 3)()
                b.call("TF_OperationGetAttrTensor", b.find(name), b"value", ctypes.byref(found))
                b.call("TF_OperationGetAttrTensorList", b.find(name), b"_list", some, 2)
                b.call("TF_TryEvaluateConstant", b.graph, output(b.find(name)),
                       ctypes.addressof(some) + 2 * ctypes.sizeof(ctypes.c_void_p))
                for result in (found, *some):
                    shown = list((ctypes.c_double * 8).from_address(b.c.TF_TensorData(result)))
                    fill(b, result, 9)
                    out.append((shown, b.values(result)))
            return out
        self.same_graph(build)

    def test_constants_are_evaluated(self):
        def build(b):
            x = b.placeholder("x", FLOAT, [2, 5])
            shape = b.op("Shape", "shape", x)
            c = b.constant("c", DOUBLE, [2], [3, 4])
            out = []
            for oper in (shape, c, x):
                result = ctypes.c_void_p()
                is_known = b.call("TF_TryEvaluateConstant", b.graph, output(oper),
                                  ctypes.byref(result))
                out.append(b.values(result) if is_known else None)
            return out
        self.both(build)

    def test_shapes_are_set(self):
        def build(b):
            x = b.placeholder("x", FLOAT)
            out = [b.shape(x)]
            b.call("TF_GraphSetTensorShape", b.graph, output(x), (ctypes.c_int64 * 2)(2, -1), 2)
            out.append(b.shape(x))
            b.call("TF_GraphSetTensorShape", b.graph, output(x), (ctypes.c_int64 * 2)(-1, 3), 2)
            out.append(b.shape(x))
            y = b.op("Relu", "y", x)
            return out, b.shape(y)
        self.both(build)

        def contradict(b):
            x = b.placeholder("x", FLOAT, [2, 3])
            b.call("TF_GraphSetTensorShape", b.graph, output(x), (ctypes.c_int64 * 2)(2, 4), 2)
        self.refused(contradict, "INVALID_ARGUMENT", "Dimension 1 in both shapes must be equal")

        def rank(b):
            x = b.placeholder("x", FLOAT, [2, 3])
            b.call("TF_GraphGetTensorShape", b.graph, output(x), (ctypes.c_int64 * 9)(), 9)
        self.refused(rank, "INVALID_ARGUMENT", "Expected rank is 9 but actual rank is 2")

        def unknown(b):
            x = b.placeholder("x", FLOAT)
            b.call("TF_GraphGetTensorShape", b.graph, output(x), None, -1)
            b.call("TF_GraphGetTensorShape", b.graph, output(x), (ctypes.c_int64 * 2)(), 2)
        self.refused(unknown, "INVALID_ARGUMENT", "Expected rank is 2 but actual rank is -1")

    def test_node_defs_versions_and_op_defs(self):
        from tensorflow.core.framework import node_def_pb2, op_def_pb2, versions_pb2

        def op_def(serialized):
            message = op_def_pb2.OpDef.FromString(serialized)
            for part in (message, *message.attr, *message.input_arg, *message.output_arg):
                part.description = ""
                for field in ("experimental_full_type", "handle_data"):
                    if hasattr(part, field):
                        part.ClearField(field)
            message.summary = ""
            for attr in message.attr:
                types = sorted(attr.allowed_values.list.type)
                if types:
                    attr.allowed_values.list.type[:] = types
            message.deprecation.explanation = ""
            return message

        def build(b):
            mlp(b)
            node = node_def_pb2.NodeDef.FromString(b.bytes("TF_OperationToNodeDef", b.find("y")))
            return (node.name, node.op, list(node.input), node.device, sorted(node.attr),
                    versions_pb2.VersionDef.FromString(b.bytes("TF_GraphVersions", b.graph)),
                    [op_def(b.bytes("TF_GraphGetOpDef", b.graph, op)) for op in (
                        b"Conv2D", b"ConcatV2", b"FIFOQueueV2", b"TensorListReserve", b"Assign",
                        b"While", b"AddN", b"Cumsum", b"RandomUniformInt", b"PyFunc", b"_Arg")])
        self.both(build)
        self.refused(lambda b: b.bytes("TF_GraphGetOpDef", b.graph, b"Nothing"), "NOT_FOUND",
                     "Nothing")

    def test_the_list_of_all_ops(self):
        from tensorflow.core.framework import op_def_pb2

        def names(library):
            buffer = library.TF_GetAllOpList()
            b = Buffer.from_address(buffer)
            ops = op_def_pb2.OpList.FromString(ctypes.string_at(b.data, b.length))
            library.TF_DeleteBuffer(buffer)
            return {op.name: ([a.name for a in op.input_arg], [a.name for a in op.output_arg],
                              [(a.name, a.type) for a in op.attr], op.is_stateful)
                    for op in ops.op}
        from c_library import tensorflow
        ours, theirs = names(millrace()), names(tensorflow())
        # what other parts of the wheel register when they are loaded
        self.assertEqual({name: theirs[name] for name in ours if name in theirs},
                         {name: ours[name] for name in ours if name in theirs})
        self.assertGreater(len(set(ours) & set(theirs)), 1300)


class TestKernels(unittest.TestCase):
    """The list of kernels: TensorFlow's has the same form, other rows, and labels."""

    def kernels(self, library, *op):
        from tensorflow.core.framework import kernel_def_pb2
        status = library.TF_NewStatus()
        function = (library.TF_GetRegisteredKernelsForOp if op
                    else library.TF_GetAllRegisteredKernels)
        buffer = function(*op, status)
        self.assertEqual(library.TF_GetCode(status), 0)
        library.TF_DeleteStatus(status)
        b = Buffer.from_address(buffer)
        found = kernel_def_pb2.KernelList.FromString(ctypes.string_at(b.data, b.length)).kernel
        library.TF_DeleteBuffer(buffer)
        return {(k.op, k.device_type, c.name, t) for k in found if not k.label
                for c in k.constraint for t in c.allowed_values.list.type}, {k.op for k in found}

    def test_they_are_those_of_tensorflow_where_both_have_them(self):
        from c_library import tensorflow
        for op in (b"BiasAdd", b"Softmax", b"Conv2D", b"Abs"):
            ours, theirs = (self.kernels(library, op)[0] for library in (millrace(), tensorflow()))
            self.assertLessEqual({row for row in theirs if row[1] == "CPU"}, ours, op)

    def test_all_are_the_sum_of_each(self):
        rows, ops = self.kernels(millrace())
        self.assertGreater(len(ops), 1100)
        self.assertIn(("MatMul", "GPU", "T", 1), rows)
        for op in ("MatMul", "Gather", "NoOp"):
            self.assertEqual(self.kernels(millrace(), op.encode()),
                             ({row for row in rows if row[0] == op}, {op}))

    def test_an_unknown_op_has_none(self):
        from c_library import tensorflow
        for library in (millrace(), tensorflow()):
            self.assertEqual(self.kernels(library, b"Nothing"), (set(), set()))


class TestRefusals(Compared):
    def test_an_unknown_op(self):
        self.refused(lambda b: b.op("Nothing", "n"), "INVALID_ARGUMENT",
                     "Op type not registered 'Nothing'")

    def test_a_missing_attr(self):
        self.refused(lambda b: b.op("Placeholder", "p"), "INVALID_ARGUMENT", "missing attr 'dtype'")

    def test_an_unknown_attr(self):
        self.we_refuse(lambda b: b.op("NoOp", "n", what=("Int", 1)), "INVALID_ARGUMENT",
                       "NodeDef mentions attr 'what'")

    def test_an_attr_of_the_wrong_type(self):
        self.refused(lambda b: b.op("Placeholder", "p", dtype=("Int", 1)), "INVALID_ARGUMENT",
                     "attr 'dtype'", "'type' expected")

    def test_a_type_that_is_not_allowed(self):
        def build(b):
            x = b.constant("x", BOOL, [2], [1, 0])
            b.op("MatMul", "y", x, x)
        self.refused(build, "INVALID_ARGUMENT", "not in the list of allowed values", "'T'")

    def test_too_few_and_too_many_inputs(self):
        self.refused(lambda b: b.op("Relu", "y"), "INVALID_ARGUMENT",
                     "0 inputs specified of 1 inputs in Op")

        def build(b):
            x = b.constant("x", FLOAT, [2], [1, 0])
            b.op("Relu", "y", x, x)
        self.refused(build, "INVALID_ARGUMENT", "More Input() calls than the 1 input_args")

    def test_inputs_of_wrong_types(self):
        def two_types(b):
            x, y = b.constant("x", FLOAT, [2]), b.constant("y", INT32, [2])
            b.op("AddV2", "z", x, y)
        self.refused(two_types, "INVALID_ARGUMENT", "Inconsistent values for attr 'T'")

        def fixed_type(b):
            x = b.constant("x", FLOAT, [2])
            b.op("LogicalNot", "z", x)
        self.refused(fixed_type, "INVALID_ARGUMENT", "passed float expected bool")

        def attr(b):
            x = b.constant("x", FLOAT, [2])
            b.op("Relu", "z", x, T=("Type", INT32))
        self.refused(attr, "INVALID_ARGUMENT", "Inconsistent values for attr 'T'")

        def reference(b):
            x = b.constant("x", FLOAT, [2])
            b.op("Assign", "z", x, x)
        self.refused(reference, "INVALID_ARGUMENT", "ref")

    def test_lists_and_single_inputs(self):
        def single(b):
            b.op("AddN", "z", b.constant("x", FLOAT, [2]))
        self.refused(single, "INVALID_ARGUMENT", "Single tensor passed to 'inputs', expected list")

        def many(b):
            b.op("Relu", "z", [b.constant("x", FLOAT, [2])])
        self.refused(many, "INVALID_ARGUMENT",
                     "List provided to input 'features' when single Tensor expected")
        self.refused(lambda b: b.op("AddN", "z", []), "INVALID_ARGUMENT")

    def test_names(self):
        def twice(b):
            b.op("NoOp", "n")
            b.op("NoOp", "n")
        self.refused(twice, "INVALID_ARGUMENT", "Duplicate node name in graph: 'n'")
        for name in ("", "a b", "_a", "^a", "a:0"):
            self.we_refuse(lambda b, name=name: b.op("NoOp", name), "INVALID_ARGUMENT",
                           f"Illegal op name '{name}'")

    def test_shapes_that_cannot_fit(self):
        def build(b):
            b.op("MatMul", "z", b.constant("x", FLOAT, [2, 3]), b.constant("y", FLOAT, [2, 3]))
        self.refused(build, "INVALID_ARGUMENT", "Dimensions must be equal, but are 3 and 2")

    def test_a_refused_operation_leaves_nothing(self):
        def build(b):
            x, y = b.constant("x", FLOAT, [2, 3], range(6)), b.constant(
                "y", FLOAT, [2, 3], range(6))
            try:
                b.op("MatMul", "z", x, y)
            except Refused:
                pass
            b.op("MatMul", "z", x, y, transpose_b=("Bool", 1))
        self.same_graph(build)

    def test_attrs_that_are_not_there(self):
        def build(b):
            value = ctypes.c_int64()
            b.call("TF_OperationGetAttrInt", b.op("NoOp", "n"), b"k", ctypes.byref(value))
        self.refused(build, "NOT_FOUND", "No attr named 'k'")

        def metadata(b):
            b.call("TF_OperationGetAttrMetadata", b.op("NoOp", "n"), b"k")
        self.refused(metadata, "INVALID_ARGUMENT", "has no attr named 'k'")

        def wrong(b):
            value = ctypes.c_int64()
            b.call("TF_OperationGetAttrInt", b.placeholder("p", FLOAT), b"dtype",
                   ctypes.byref(value))
        self.refused(wrong, "INVALID_ARGUMENT")
        self.refused(lambda b: b.call("TF_OperationInputListLength", b.op("NoOp", "n"), b"x"),
                     "INVALID_ARGUMENT", "'x'")


if __name__ == "__main__":
    unittest.main()
