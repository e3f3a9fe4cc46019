"""While loops that both libraries make, by what they compute."""
import ctypes
import unittest

from c_library import FLOAT, INT32, Builder, Output, Refused, millrace, output, tensorflow
from compare import Compared
from local_cluster import target


class Loop:
    def __init__(self, b, inputs):
        self.b = b
        self.n = len(inputs)
        self.inputs = (Output * self.n)(*map(output, inputs))  # TensorFlow keeps the address
        self.params = b.call("TF_NewWhile", b.graph, self.inputs, self.n)
        self.cond, self.body = (Builder(b.c, graph) for graph in (self.params.cond_graph,
                                                                  self.params.body_graph))

    def finish(self, name):
        self.params.name = name and name.encode()
        outputs = (Output * self.n)()
        self.b.c.TF_FinishWhile(ctypes.byref(self.params), self.b.status, outputs)
        self.b.check()
        return [Output(o.oper, o.index) for o in outputs]


def powers(b, limit=5, name="loop"):
    """i, x → i + 1, 2 x + 1 while i < limit."""
    loop = Loop(b, [b.constant("i", INT32, [], [0]), b.constant("x", FLOAT, [2], [1, 3])])
    cond, body, p = loop.cond, loop.body, loop.params
    p.cond_output = output(cond.op("Less", "less", p.cond_inputs[0],
                                   cond.constant("limit", INT32, [], [limit])))
    p.body_outputs[0] = output(body.op("AddV2", "next", p.body_inputs[0],
                                       body.constant("one", INT32, [], [1])))
    double = body.op("AddV2", "double", p.body_inputs[1], p.body_inputs[1])
    p.body_outputs[1] = output(body.op("AddV2", "sum", double, body.constant("1", FLOAT, [], [1])))
    return loop.finish(name)


class TestWhile(Compared):
    def test_a_loop(self):
        results = []
        for library, where in ((tensorflow(), ""), (millrace(), target())):
            b = Builder(library)
            self.addCleanup(b.close)
            outputs = powers(b)
            session = b.session(where)
            results.append((b.run(session, outputs), [b.c.TF_OperationOpType(o.oper)
                                                      for o in outputs]))
            b.call("TF_DeleteSession", session)
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[1][0], [(INT32, [], [5]), (FLOAT, [2], [63, 127])])

    def test_a_value_that_the_body_hands_through(self):
        b = Builder(millrace())
        self.addCleanup(b.close)
        loop = Loop(b, [b.constant("i", INT32, [], [0]), b.constant("x", FLOAT, [], [4])])
        p = loop.params
        p.cond_output = output(loop.cond.op("Less", "less", p.cond_inputs[0], loop.cond.constant(
            "limit", INT32, [], [3])))
        p.body_outputs[0] = output(loop.body.op("AddV2", "next", p.body_inputs[0],
                                                loop.body.constant("one", INT32, [], [1])))
        p.body_outputs[1] = p.body_inputs[1]
        i, x = loop.finish("loop")
        session = b.session(target())
        self.assertEqual(b.run(session, [i, x]), [(INT32, [], [3]), (FLOAT, [], [4])])
        b.call("TF_DeleteSession", session)

    def test_the_gradient_of_a_loop(self):
        """TensorFlow's library ends the process here."""
        b = Builder(millrace())
        self.addCleanup(b.close)
        gradients = b.gradients([powers(b)[1]], [b.find("x")])
        session = b.session(target())
        self.assertEqual(b.run(session, gradients), [(FLOAT, [2], [32, 32])])
        b.call("TF_DeleteSession", session)

    def test_refusals_leave_nothing(self):
        def no_name(b):
            powers(b, name=None)
        self.refused(no_name, "INVALID_ARGUMENT", "name")

        def no_condition(b):
            Loop(b, [b.constant("i", INT32, [], [0])]).finish("loop")
        self.refused(no_condition, "INVALID_ARGUMENT", "cond_output")

        def no_result(b):
            loop = Loop(b, [b.constant("i", INT32, [], [0])])
            loop.params.cond_output = output(loop.cond.constant("c", 10, [], [1]))
            loop.finish("loop")
        self.refused(no_result, "INVALID_ARGUMENT", "body_outputs")
        self.refused(lambda b: b.call("TF_NewWhile", b.graph, None, 0), "INVALID_ARGUMENT")

        def wrong_type(b):
            loop = Loop(b, [b.constant("i", INT32, [], [0])])
            loop.params.cond_output = loop.params.cond_inputs[0]
            loop.params.body_outputs[0] = loop.params.body_inputs[0]
            loop.finish("loop")
        self.refused(wrong_type, "INVALID_ARGUMENT")
        b = Builder(millrace())
        self.addCleanup(b.close)
        b.constant("loop/Exit1", FLOAT, [], [0])
        with self.assertRaisesRegex(Refused, "TF_FinishWhile: Node 'loop/Exit1' is not unique"):
            powers(b)
        self.assertEqual(sorted(b.name(o) for o in b.operations()), ["i", "loop/Exit1", "x"])

    def test_versions(self):
        from tensorflow.core.framework import graph_pb2, versions_pb2

        def take(b, producer, min_consumer=0):
            graph = graph_pb2.GraphDef()
            graph.versions.producer, graph.versions.min_consumer = producer, min_consumer
            serialized = graph.SerializeToString()
            buffer = b.c.TF_NewBufferFromString(serialized, len(serialized))
            b.call("TF_GraphImportGraphDef", b.graph, buffer, None if b.c.is_ours else
                   b.c.TF_NewImportGraphDefOptions())
            b.c.TF_DeleteBuffer(buffer)

        def versions(b):
            v = versions_pb2.VersionDef.FromString(b.bytes("TF_GraphVersions", b.graph))
            return v.producer, v.min_consumer

        def older(b):
            take(b, 50)
            powers(b)
            return versions(b)
        self.assertEqual(self.both(older), (50, 0))

        b = Builder(millrace())
        self.addCleanup(b.close)
        before = versions(b)
        loop = Loop(b, [b.constant("i", INT32, [], [0])])
        take(loop.cond, 30, 7)
        loop.params.cond_output = loop.params.cond_inputs[0]  # not a bool
        loop.params.body_outputs[0] = loop.params.body_inputs[0]
        with self.assertRaises(Refused):
            loop.finish("loop")
        self.assertEqual(versions(b), before)

    def test_a_loop_is_given_up(self):
        for b in self.builders():
            loop = Loop(b, [b.constant("i", INT32, [], [0])])
            b.c.TF_AbortWhile(ctypes.byref(loop.params))


if __name__ == "__main__":
    unittest.main()
