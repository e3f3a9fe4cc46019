"""GraphDefs that both libraries import with the same options."""
import ctypes
import unittest

from c_library import FLOAT, Builder, Output, Refused, millrace, normal_graph_def, output
from compare import Compared, outputs_of


def source(b):
    """A GraphDef: x, c → y = x + c; z after y, beside x; two = split of y."""
    x = b.placeholder("x", FLOAT, [4])
    c = b.constant("c", FLOAT, [4], [1, 2, 3, 4], device="/cpu:0")
    y = b.op("AddV2", "y", x, c, colocate=[c])
    b.op("Relu", "z", y, controls=[x])
    b.op("Split", "two", b.constant("axis", 3, [], [0]), y, num_split=("Int", 2))
    return b.graph_def()


class Import:
    """The options of an import, from keywords, and what it returns."""

    def __init__(self, b, serialized, **keywords):
        c, self.b = b.c, b
        options = c.TF_NewImportGraphDefOptions()
        for name, value in keywords.items():
            getattr(self, name)(options, value)
        buffer = c.TF_NewBufferFromString(serialized, len(serialized))
        try:
            results = b.call("TF_GraphImportGraphDefWithResults", b.graph, buffer, options)
        finally:
            c.TF_DeleteBuffer(buffer)
        n, array = ctypes.c_int(), ctypes.c_void_p()
        c.TF_ImportGraphDefResultsReturnOutputs(results, ctypes.addressof(n),
                                                ctypes.addressof(array))
        found = (Output * n.value).from_address(array.value) if n.value else []
        self.outputs = [(b.name(o.oper), o.index) for o in found]
        c.TF_ImportGraphDefResultsReturnOperations(results, ctypes.addressof(n),
                                                   ctypes.addressof(array))
        opers = (ctypes.c_void_p * n.value).from_address(array.value) if n.value else []
        self.operations = [b.name(o) for o in opers]
        indexes = ctypes.c_void_p()
        c.TF_ImportGraphDefResultsMissingUnusedInputMappings(
            results, ctypes.addressof(n), ctypes.addressof(array), ctypes.addressof(indexes))
        names = (ctypes.c_char_p * n.value).from_address(array.value) if n.value else []
        numbers = (ctypes.c_int * n.value).from_address(indexes.value) if n.value else []
        self.missing = sorted(zip(names, numbers))
        c.TF_DeleteImportGraphDefResults(results)
        c.TF_DeleteImportGraphDefOptions(options)

    def results(self):
        """TensorFlow's missing names point to what has been freed."""
        if self.b.c.is_ours:
            assert {b"nowhere", b"two"} >= {name for name, _ in self.missing}, self.missing
        return self.outputs, self.operations, sorted(index for _, index in self.missing)

    def prefix(self, options, value):
        self.b.c.TF_ImportGraphDefOptionsSetPrefix(options, value.encode())

    def device(self, options, value):
        self.b.c.TF_ImportGraphDefOptionsSetDefaultDevice(options, value.encode())

    def uniquify_names(self, options, value):
        self.b.c.TF_ImportGraphDefOptionsSetUniquifyNames(options, value)

    def uniquify_prefix(self, options, value):
        self.b.c.TF_ImportGraphDefOptionsSetUniquifyPrefix(options, value)

    def mapped(self, options, value):
        for (name, index), dst in value.items():
            if index == -1:
                self.b.c.TF_ImportGraphDefOptionsRemapControlDependency(options, name.encode(), dst)
            else:
                self.b.c.TF_ImportGraphDefOptionsAddInputMapping(options, name.encode(), index,
                                                                 output(dst))

    def controls(self, options, value):
        for oper in value:
            self.b.c.TF_ImportGraphDefOptionsAddControlDependency(options, oper)

    def outputs_of(self, options, value):
        for name, index in value:
            self.b.c.TF_ImportGraphDefOptionsAddReturnOutput(options, name.encode(), index)

    def operations_of(self, options, value):
        for name in value:
            self.b.c.TF_ImportGraphDefOptionsAddReturnOperation(options, name.encode())


class TestImport(Compared):
    @classmethod
    def setUpClass(cls):
        b = Builder(millrace())
        cls.graph_def = source(b)
        b.close()

    def same_import(self, prepare=lambda b: {}, serialized=None, **keywords):
        def scenario(b):
            more = prepare(b)
            done = Import(b, serialized or self.graph_def, **keywords, **more)
            return done.results()
        result = self.same_graph(lambda b: scenario(b))
        return result

    def same_graph(self, scenario):
        """The order of operations is that of the message here, and TensorFlow's is its own."""
        def run(b):
            result = scenario(b)
            shapes = {b.name(oper): [b.shape(o) for o in outputs_of(b, oper)]
                      for oper in b.operations()}
            return normal_graph_def(b.graph_def()), shapes, result
        return self.both(run)

    def test_a_graph_as_it_is(self):
        self.same_import()

    def test_a_prefix_and_a_device(self):
        self.same_import(prefix="p", device="/job:worker/task:1")
        self.same_import(prefix="p/q", outputs_of=[("y", 0), ("two", 1)], operations_of=["x", "z"])

    def test_names_that_are_taken(self):
        def taken(b):
            b.op("NoOp", "y")
            b.op("NoOp", "c/d")
            b.op("NoOp", "p/x")
            return {}
        self.same_import(taken, uniquify_names=1, operations_of=["x", "y", "c", "z"])
        self.same_import(taken, uniquify_names=1, prefix="p", operations_of=["x", "y", "c", "z"])
        self.same_import(taken, uniquify_prefix=1, prefix="p", operations_of=["x", "y"])
        self.refused(lambda b: taken(b) or Import(b, self.graph_def), "INVALID_ARGUMENT",
                     "already exists in the Graph")
        # TensorFlow's library makes a graph with two operations of one name
        self.we_refuse(lambda b: taken(b) or Import(b, self.graph_def, prefix="p"),
                       "INVALID_ARGUMENT", "'p/x' already exists in the Graph")

    def test_mapped_inputs(self):
        def mapped(b):
            a, n = b.placeholder("a", FLOAT, [4]), b.op("NoOp", "n")
            return {"mapped": {("x", 0): a, ("x", -1): n, ("nowhere", 2): a, ("two", 7): a,
                               ("two", 1): a}}
        self.same_import(mapped, prefix="p", outputs_of=[("x", 0), ("y", 0)])

    def test_control_dependencies(self):
        def controls(b):
            n, m = b.op("NoOp", "n"), b.op("NoOp", "m")
            return {"controls": [n, m], "mapped": {("x", 0): b.placeholder("a", FLOAT, [4])}}
        self.same_import(controls, prefix="p")

    def test_versions(self):
        from tensorflow.core.framework import graph_pb2
        for producer, first in ((100, None), (3000, None), (100, 1), (0, 1)):
            graph = graph_pb2.GraphDef.FromString(self.graph_def)
            graph.versions.producer = producer

            def prepare(b, first=first):
                if first:
                    b.op("NoOp", "first")
                return {}
            self.same_import(prepare, graph.SerializeToString())

    def test_loops_and_their_shapes(self):
        def scenario(b):
            import tensorflow as tf
            tf1 = tf.compat.v1
            tf1.disable_control_flow_v2()
            with tf.Graph().as_default() as graph:
                x = tf1.placeholder(tf.float32, [2, 3], name="x")
                i, y = tf1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), [0, x])
                tf1.cond(i > 1, lambda: y, lambda: -y, name="choice")
            Import(b, graph.as_graph_def().SerializeToString(), prefix="p")
        self.same_graph(scenario)

    def test_functions(self):
        import tensorflow as tf

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
        def f(x):
            return tf.nn.relu(x) * 2.0
        with tf.Graph().as_default() as graph:
            f(tf.constant([1., 2.], name="x"))
        serialized = graph.as_graph_def().SerializeToString()

        def scenario(b):  # a call of a function has outputs of unknown shape here
            Import(b, serialized)
            return normal_graph_def(b.graph_def())
        self.both(scenario)

    def test_refusals(self):
        from tensorflow.core.framework import graph_pb2

        def broken(change):
            graph = graph_pb2.GraphDef.FromString(self.graph_def)
            change({node.name: node for node in graph.node})
            return graph.SerializeToString()
        for change, words in (
                (lambda n: n["y"].input.__setitem__(0, "nowhere"),
                 ["'y'", "Unknown input node 'nowhere'"]),
                (lambda n: n["y"].input.__setitem__(0, "x:7"), ["x"]),
                (lambda n: n["z"].input.__setitem__(0, "z"), []),
                (lambda n: n["y"].attr.pop("T"), []),
                (lambda n: n["y"].attr["T"].__setattr__("type", 3), ["y"]),
                (lambda n: n["y"].__setattr__("name", "x"), ["x"])):
            serialized = broken(change)
            self.refused(lambda b, s=serialized: Import(b, s), "INVALID_ARGUMENT", *words)
        self.refused(lambda b: Import(b, b"\xff\xff\xff"), "INVALID_ARGUMENT", "GraphDef")
        self.refused(lambda b: Import(b, self.graph_def, outputs_of=[("nowhere", 1)]),
                     "INVALID_ARGUMENT", "Requested return tensor 'nowhere:1' not found")
        self.refused(lambda b: Import(b, self.graph_def, outputs_of=[("y", 1)]),
                     "INVALID_ARGUMENT", "Invalid return output 1 of node 'y'")
        self.refused(lambda b: Import(b, self.graph_def, operations_of=["nowhere"]),
                     "INVALID_ARGUMENT", "Requested return node 'nowhere' not found")
        self.refused(lambda b: Import(b, self.graph_def, prefix="a b"), "INVALID_ARGUMENT",
                     "would lead to invalid node names")

    def test_a_refused_import_leaves_nothing(self):
        def scenario(b):
            b.op("NoOp", "first")
            for keywords in ({"outputs_of": [("nowhere", 0)]}, {"prefix": "a b"}):
                try:
                    Import(b, self.graph_def, **keywords)
                except Refused:
                    pass
            Import(b, self.graph_def)
            first = b.find("first")
            return b.c.TF_OperationNumControlOutputs(first)
        self.same_graph(scenario)

    def test_shapes_that_cannot_fit(self):
        from tensorflow.core.framework import graph_pb2
        b = Builder(millrace())
        b.constant("a", FLOAT, [2, 3], range(6))
        b.op("MatMul", "m", b.find("a"), b.find("a"), transpose_b=("Bool", 1))
        graph = graph_pb2.GraphDef.FromString(b.graph_def())
        b.close()
        graph.node[1].attr["transpose_b"].b = False
        self.refused(lambda b: Import(b, graph.SerializeToString()), "INVALID_ARGUMENT",
                     "Dimensions must be equal, but are 3 and 2")


if __name__ == "__main__":
    unittest.main()
