"""Graphs with a cycle that is no loop, through each function that takes a graph."""
import unittest

from c_library import FLOAT, Refused, output
from compare import Compared
from local_cluster import target
from test_function import function
from test_import import Import
from test_while import Loop

NODES = {
    "a node behind itself": [("a", "Neg", ["a"])],
    "two nodes": [("a", "Neg", ["b"]), ("b", "Neg", ["a"])],
    "a control edge": [("a", "Neg", ["b"]), ("b", "Neg", ["x", "^a"])],
    "a Merge without a NextIteration": [("a", "Merge", ["x", "b"]), ("b", "Neg", ["a"])],
}


def add_nodes(add, nodes):
    for name, op, inputs in nodes:
        node = add(name=name, op=op)
        node.input.extend(inputs)
        node.attr["T"].type = FLOAT
        if op == "Merge":
            node.attr["N"].i = 2


def graph_def(nodes):
    from tensorflow.core.framework import graph_pb2
    graph = graph_pb2.GraphDef()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = FLOAT
    add_nodes(graph.node.add, nodes)
    return graph.SerializeToString()


def function_def(nodes):
    """f: x → y, which is an output of the nodes' last."""
    from tensorflow.core.framework import function_pb2
    f = function_pb2.FunctionDef()
    f.signature.name = "f"
    f.signature.input_arg.add(name="x", type=FLOAT)
    f.signature.output_arg.add(name="y", type=FLOAT)
    in_body = {"a": "a:y:0", "b": "b:y:0"}
    add_nodes(f.node_def.add, [(name, op, [in_body.get(i, i) for i in inputs])
                               for name, op, inputs in nodes])
    f.ret["y"] = in_body[nodes[-1][0]]
    return f.SerializeToString()


class TestCycles(Compared):
    def test_an_import_refuses_each_and_adds_nothing(self):
        for what, nodes in NODES.items():
            with self.subTest(what):
                serialized = graph_def(nodes)
                self.refused(lambda b, s=serialized: Import(b, s), "INVALID_ARGUMENT",
                             "in a cycle")
                for b in self.builders():
                    with self.assertRaises(Refused):
                        Import(b, serialized)
                    self.assertEqual(list(b.operations()), [])

    def test_what_a_mapping_cuts_is_no_cycle(self):
        def scenario(b):
            x = b.placeholder("there", FLOAT)
            Import(b, graph_def(NODES["two nodes"]), mapped={("b", 0): x})
        self.same_graph(scenario)

    def test_an_operation_cannot_be_its_own_input(self):
        """It exists after its finish only, and then takes no more inputs."""
        for b in self.builders():
            if b.c.is_ours:  # TensorFlow has freed the description
                x = b.placeholder("x", FLOAT)
                desc = b.c.TF_NewOperation(b.graph, b"Neg", b"y")
                b.c.TF_AddInput(desc, output(x))
                y = b.call("TF_FinishOperation", desc)
                b.c.TF_AddInput(desc, output(y))
                b.c.TF_AddControlInput(desc, y)
                with self.assertRaisesRegex(Refused, "FAILED_PRECONDITION: TF_FinishOperation"):
                    b.call("TF_FinishOperation", desc)
                self.assertEqual(b.c.TF_OperationNumInputs(y), 1)
                self.assertEqual(b.c.TF_OperationNumControlInputs(y), 0)

    def test_a_function_keeps_a_loop_whole(self):
        def build(b):
            loop = Loop(b, [b.placeholder("x", FLOAT, [])])
            p = loop.params
            p.cond_output = output(loop.cond.op("Less", "less", p.cond_inputs[0],
                                                loop.cond.constant("limit", FLOAT, [], [9])))
            p.body_outputs[0] = output(loop.body.op("Exp", "exp", p.body_inputs[0]))
            return loop.finish("loop")

        def half(b):
            outputs = build(b)
            chosen = [o for o in b.operations()
                      if b.c.TF_OperationOpType(o) in (b"Merge", b"Switch", b"Exit")]
            return function(b, "f", [], outputs, chosen)
        self.refused(half, "INVALID_ARGUMENT")

        def whole(b):
            outputs = build(b)
            b.c.TF_DeleteFunction(function(b, "f", [b.find("x")], outputs))
        self.both(whole)

    def test_a_body_with_a_cycle_fails_where_it_is_called(self):
        for what in ("a node behind itself", "two nodes"):
            serialized = function_def(NODES[what])
            for b, where in ((b, where) for where in ("", target()) for b in self.builders()):
                with self.subTest(what, ours=b.c.is_ours, where=where), \
                        self.assertRaisesRegex(Refused, "cycle"):
                    f = b.call("TF_FunctionImportFunctionDef", serialized, len(serialized))
                    b.call("TF_GraphCopyFunction", b.graph, f, None)
                    session = b.session(where)
                    self.addCleanup(b.call, "TF_DeleteSession", session)
                    b.run(session, [b.op("f", "call", b.constant("c", FLOAT, [], [1]))])


if __name__ == "__main__":
    unittest.main()
