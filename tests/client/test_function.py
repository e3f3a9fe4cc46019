"""Functions that both libraries make of the same graphs."""
import ctypes
import unittest

from c_library import DOUBLE, FLOAT, INT32, Builder, Output, Refused, millrace, output
from compare import Compared
from local_cluster import target


def texts(values):
    if not values:
        return None
    return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))


def function(b, name, inputs, outputs, opers=None, output_names=None, controls=None,
             control_names=None, hashed=0, description=None):
    chosen = (ctypes.c_void_p * max(len(opers or ()), 1))(*(opers or ()))
    common = (b.graph, name.encode(), hashed, -1 if opers is None else len(opers), chosen,
              len(inputs), (Output * max(len(inputs), 1))(*map(output, inputs)),
              len(outputs), (Output * max(len(outputs), 1))(*map(output, outputs)),
              texts(output_names))
    if controls is None:
        return b.call("TF_GraphToFunction", *common, None, description)
    return b.call("TF_GraphToFunctionWithControlOutputs", *common, len(controls),
                  (ctypes.c_void_p * max(len(controls), 1))(*controls), texts(control_names), None,
                  description)


def normal(serialized):
    """A FunctionDef with what TensorFlow adds for itself left out."""
    from tensorflow.core.framework import function_pb2
    f = function_pb2.FunctionDef.FromString(serialized)
    return (f.signature.name, [(a.name, a.type) for a in f.signature.input_arg],
            [(a.name, a.type) for a in f.signature.output_arg], f.signature.description,
            list(f.signature.control_output), f.signature.is_stateful,
            {n.name: (n.op, list(n.input), n.device, sorted(n.attr)) for n in f.node_def},
            dict(f.ret), dict(f.control_ret), sorted(f.attr), dict(f.arg_attr))


class TestFunctions(Compared):
    def same_function(self, scenario):
        return self.both(lambda b: normal(b.bytes("TF_FunctionToFunctionDef", scenario(b))))

    def test_a_whole_graph(self):
        def build(b):
            x, y = b.placeholder("X/in", FLOAT), b.placeholder("x_in", FLOAT)
            c = b.constant("c", FLOAT, [], [2])
            s = b.op("AddV2", "Sum", x, y, device="/cpu:0")
            return function(b, "f", [x, y], [b.op("Mul", "Mul", s, c), x, s],
                            description=b"what it does")
        self.same_function(build)

    def test_some_operations_and_given_names(self):
        def build(b):
            x = b.placeholder("x", FLOAT)
            parts = b.op("Split", "parts", b.constant("axis", INT32, [], [0]), x,
                         num_split=("Int", 2))
            sq = b.op("Square", "sq", Output(parts, 1), controls=[x])
            b.op("NoOp", "outside")
            return function(b, "f", [x], [sq, Output(parts, 1)], [b.find("axis"), parts, sq],
                            ["sq", "second"])
        self.same_function(build)

    def test_arguments_of_other_operations(self):
        def build(b):
            x = b.placeholder("x", FLOAT, [2, -1])
            parts = b.op("Split", "parts", b.constant("axis", INT32, [], [0]), x,
                         num_split=("Int", 2))
            total = b.op("AddV2", "total", Output(parts, 1), x)
            return function(b, "f", [Output(parts, 1), x], [total], [total])
        self.same_function(build)

    def test_control_outputs(self):
        def build(b):
            x = b.placeholder("x", FLOAT)
            n = b.op("NoOp", "n")
            return function(b, "f", [x], [x], None, None, [n], ["effect"])
        self.same_function(build)

    def test_refusals(self):
        def outside(b):
            x = b.placeholder("x", FLOAT)
            return function(b, "f", [], [b.op("Square", "y", x)], [b.find("y")])
        self.refused(outside, "INVALID_ARGUMENT", "Input 0, 'x:0', of node 'y' in function 'f'")

        def twice(b):
            x = b.placeholder("x", FLOAT)
            return function(b, "f", [x], [x, x], None, ["a", "a"])
        self.refused(twice, "INVALID_ARGUMENT", "duplicate output names", "'a'")

        def same_input(b):
            x = b.placeholder("x", FLOAT)
            return function(b, "f", [x, x], [x])
        self.refused(same_input, "INVALID_ARGUMENT", "x:0", "appears")

        def no_output(b):
            x, y = b.placeholder("x", FLOAT), b.placeholder("y", FLOAT)
            return function(b, "f", [x], [y], [])
        self.refused(no_output, "INVALID_ARGUMENT", "y:0")

        def reference(b):
            shape = ("Shape", (ctypes.c_int64 * 1)(2), 1)
            v = b.op("VariableV2", "v", dtype=("Type", FLOAT), shape=shape)
            y = b.op("Identity", "y", v)
            return function(b, "f", [v], [y], [y])
        self.refused(reference, "INVALID_ARGUMENT", "Output 0 of node 'v' has a reference type")

        def garbage(b):
            b.call("TF_FunctionImportFunctionDef", b"\xff\xff", 2)
        self.refused(garbage, "INVALID_ARGUMENT", "Invalid FunctionDef")

    def test_attrs_and_copies(self):
        def build(b):
            x = b.placeholder("x", FLOAT)
            f = function(b, "f", [x], [b.op("Square", "y", x)])
            for value in (b"\x18\x05", b"\x18\x07"):
                b.call("TF_FunctionSetAttrValueProto", f, b"_a", value, 2)
            out = [b.bytes("TF_FunctionGetAttrValueProto", f, b"_a"), b.c.TF_FunctionName(f)]
            other = Builder(b.c)
            self.addCleanup(other.close)
            other.call("TF_GraphCopyFunction", other.graph, f, None)
            other.call("TF_GraphCopyFunction", other.graph, f, None)
            call = other.op("f", "call", other.constant("c", FLOAT, [], [3]))
            out += [other.c.TF_GraphNumFunctions(other.graph), other.c.TF_OperationOpType(call)]
            found = (ctypes.c_void_p * 4)()
            n = other.call("TF_GraphGetFunctions", other.graph, found, 4)
            out += [normal(other.bytes("TF_FunctionToFunctionDef", g)) for g in found[:n]]
            for g in [f, *found[:n]]:
                b.c.TF_DeleteFunction(g)
            return out
        self.both(build)

        def different(b):
            x = b.placeholder("x", FLOAT)
            b.call("TF_GraphCopyFunction", b.graph, function(b, "f", [x], [x]), None)
            y = b.op("Square", "y", x)
            b.call("TF_GraphCopyFunction", b.graph, function(b, "f", [x], [y], [y]), None)
        self.refused(different, "INVALID_ARGUMENT", "'f'", "already exists")

        def gradients(b, names):
            x = b.placeholder("x", FLOAT)
            f, *gradients = [function(b, name, [x], [b.op("Square", "y" + name, x)],
                                      [b.find("y" + name)]) for name in ("f", *names)]
            for gradient in gradients:
                b.call("TF_GraphCopyFunction", b.graph, f, gradient)
            return b.c.TF_GraphNumFunctions(b.graph)
        self.assertEqual(self.both(lambda b: gradients(b, ["g1"])), 2)
        self.refused(lambda b: gradients(b, ["g1", "g2"]), "INVALID_ARGUMENT",
                     "Cannot assign gradient function 'g2' to 'f' because it already has gradient "
                     "function 'g1'")

        def missing(b):
            x = b.placeholder("x", FLOAT)
            b.bytes("TF_FunctionGetAttrValueProto", function(b, "f", [x], [x]), b"k")
        self.refused(missing, "INVALID_ARGUMENT", "'k'")

    def test_a_call_runs_and_has_a_gradient(self):
        b, inner = Builder(millrace()), Builder(millrace())
        self.addCleanup(b.close)
        x = inner.placeholder("x", DOUBLE, [])
        f = function(inner, "cube", [x], [inner.op("Mul", "y", inner.op("Square", "s", x), x)],
                     hashed=1)
        inner.close()
        name = b.c.TF_FunctionName(f).decode()
        self.assertRegex(name, "^cube_[0-9a-f]+$")
        c = b.constant("c", DOUBLE, [], [3])
        session = b.session(target())
        self.assertEqual(b.run(session, [c])[0][2], [3])
        b.call("TF_GraphCopyFunction", b.graph, f, None)
        b.c.TF_DeleteFunction(f)
        y = b.op(name, "call", c)
        z = b.op("PartitionedCall", "partitioned", [c],
                 Tin=("TypeList", (ctypes.c_int * 1)(DOUBLE), 1),
                 Tout=("TypeList", (ctypes.c_int * 1)(DOUBLE), 1),
                 f=("FuncName", name.encode(), len(name)))
        values = b.run(session, [y, z, *b.gradients([y], [c]), *b.gradients([z], [c])])
        b.call("TF_DeleteSession", session)
        self.assertEqual([v[2][0] for v in values], [27, 27, 27, 27])

    def test_our_refusals(self):
        b = Builder(millrace())
        self.addCleanup(b.close)
        with self.assertRaisesRegex(Refused, "TF_GraphCopyFunction: func is NULL"):
            b.call("TF_GraphCopyFunction", b.graph, None, None)
        with self.assertRaisesRegex(Refused, "TF_GraphToFunction: fn_body is NULL"):
            b.call("TF_GraphToFunction", None, b"f", 0, -1, None, 0, None, 0, None, None, None,
                   None)


if __name__ == "__main__":
    unittest.main()
