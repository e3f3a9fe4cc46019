"""Gradients of conditionals and loops: TensorFlow's Python builds the forward graph, and
libmillrace differentiates it. What it added runs in TensorFlow and on a cluster of ours, and both
give what tf.gradients gives."""
import os
import random
import unittest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

from c_library import BOOL, FLOAT, Builder, Output, Refused, millrace, text
from local_cluster import IS_TENSORFLOW, target

tf1 = tf.compat.v1


def imported(b, graph_def):
    """Imports a GraphDef into the graph of a Builder."""
    data = graph_def.SerializeToString()
    buffer = b.c.TF_NewBufferFromString(data, len(data))
    options = b.c.TF_NewImportGraphDefOptions()
    try:
        b.call("TF_GraphImportGraphDef", b.graph, buffer, options)
    finally:
        b.c.TF_DeleteImportGraphDefOptions(options)
        b.c.TF_DeleteBuffer(buffer)


def our_gradients(graph_def, ys, xs, times=1):
    """Differentiates names of tensors. Returns the GraphDef and the names of the gradients."""
    b = Builder(millrace())
    try:
        imported(b, graph_def)

        def find(name):
            oper, index = name.split(":")
            return Output(b.find(oper), int(index))
        for _ in range(times):
            found = b.gradients([find(y) for y in ys], [find(x) for x in xs])
        names = [g and f"{b.c.TF_OperationName(g.oper).decode()}:{g.index}" for g in found]
        return tf1.GraphDef.FromString(b.graph_def()), names
    finally:
        b.close()


def run(graph_def, where, init, fetches, feeds):
    """The values of names for each of the feeds, after the operation `init`."""
    with tf.Graph().as_default() as whole:
        tf1.import_graph_def(graph_def, name="")
        with tf1.Session(where, graph=whole) as session:
            session.run(whole.get_operation_by_name(init))
            return [session.run(fetches, {f"p{i}:0": value for i, value in enumerate(values)})
                    for values in feeds]


class RandomProgram:
    """A function of two vectors, of nested conditionals and loops. Its values stay small."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.x = [tf.constant([.5, -.75]), tf.constant([1.25, .25])]
        self.y = self.value(self.x, tf.constant(3), 4)

    def value(self, known, number, depth):
        """A vector that is computed from known vectors, and from the counter around it."""
        kind = self.random.choice(["unary", "binary", "binary", "cond", "loop"] if depth else
                                  ["known"])
        if kind == "known":
            return self.random.choice(known)
        if kind == "unary":
            op = self.random.choice([tf.tanh, tf.sin, tf.sigmoid, tf.identity, tf.negative,
                                     tf.stop_gradient])
            return op(self.value(known, number, depth - 1))
        if kind == "binary":
            a, b = (self.value(known, number, depth - 1) for _ in range(2))
            return tf.tanh(self.random.choice([tf.multiply, tf.add, tf.subtract])(a, b))
        return (self.cond if kind == "cond" else self.loop)(known, number, depth - 1)

    def cond(self, known, number, depth):
        sides = [self.random.random() for _ in range(2)]
        if self.random.random() < .5:
            predicate = tf.equal(number % 2, self.random.randrange(2))
        else:
            predicate = self.random.choice(known)[0] > self.random.choice([-.3, .1, .4])

        def side(seed):
            self.random.seed(seed)
            return self.value(known, number, depth)
        after = self.random.random()
        result = tf1.cond(predicate, lambda: side(sides[0]), lambda: side(sides[1]))
        self.random.seed(after)
        return result

    def loop(self, known, number, depth):
        n_vars, after = self.random.randint(1, 3), self.random.random()
        limit = self.random.choice([tf.constant(self.random.randrange(4)), number % 3])
        first = [self.random.choice(known) for _ in range(n_vars)]
        seed = self.random.random()

        def body(i, *values):
            self.random.seed(seed)
            inner = [*values, *values, *known]
            return [i + 1] + [self.value(inner, i + number, depth) if self.random.random() < .8
                              else self.random.choice(inner) for _ in values]
        result = tf1.while_loop(lambda i, *_: i < limit, body, [tf.constant(0), *first],
                                parallel_iterations=self.random.choice([1, 2, 10]))
        self.random.seed(after)
        return self.random.choice(result[1:])


class TestControlFlowGradients(unittest.TestCase):
    def same(self, scenario, feeds=None, digits=5, workers=1, in_process=True,
             prune=False):
        """`scenario` returns ys and xs. The gradients are compared for each of the feeds, which
        are lists of values for placeholders p0, p1, …"""
        feeds = feeds or [[]]
        with tf.Graph().as_default() as graph:
            ys, xs = scenario()
            wanted = tf1.gradients(ys, xs)
            init = tf1.global_variables_initializer().name
            dense = [tf.convert_to_tensor(g).name for g in wanted if g is not None]
            graph_def = graph.as_graph_def()
        for node in graph_def.node:
            node.device = ""
        expected = run(graph_def, "", init, dense, feeds)
        with tf.Graph().as_default() as forward:
            ys, xs = scenario()
            init = tf1.global_variables_initializer().name
            names = [t.name for t in ys], [getattr(t, "handle", t).name for t in xs]
            graph_def = forward.as_graph_def()
        if prune:
            graph_def = tf1.graph_util.extract_sub_graph(
                graph_def, [name.split(":")[0] for name in names[0] + names[1]] + [init])
        graph_def, found = our_gradients(graph_def, *names)
        self.assertEqual([n is not None for n in found], [g is not None for g in wanted])
        found = [name for name in found if name]
        for where in [""] * (workers == 1 and in_process) + [target(workers)]:
            for got, want in zip(run(graph_def, where, init, found, feeds), expected):
                for g, w in zip(got, want):
                    np.testing.assert_allclose(g, w, 10. ** -digits, 10. ** -digits,
                                               err_msg=where)

    @classmethod
    def setUpClass(cls):
        tf1.disable_control_flow_v2()

    # ---- conditionals ----

    def test_cond(self):
        def build():
            p, x = tf1.placeholder(tf.bool, [], "p0"), tf.constant([1., 2.])
            w = tf.constant([3., 4.])
            y = tf1.cond(p, lambda: x * w + tf.sin(x), lambda: tf.exp(x))
            return [y * 2], [x, w]
        self.same(build, [[True], [False]])

    def test_nested_conds(self):
        def build():
            p, q = (tf1.placeholder(tf.bool, [], f"p{i}") for i in range(2))
            x = tf.constant([1., 2.])
            w = tf.constant(3.)
            y = tf1.cond(p, lambda: tf1.cond(q, lambda: x * w, lambda: x + w) * x,
                         lambda: tf1.cond(q, lambda: tf.square(x), lambda: w * tf.ones([2])))
            return [tf.reduce_sum(y), y], [x, w]
        self.same(build, [[a, b] for a in (True, False) for b in (True, False)])

    def test_case_of_several(self):
        def build():
            p = tf1.placeholder(tf.int32, [], "p0")
            x = tf.constant([1., 2.])
            y = tf1.case([(tf.equal(p, 0), lambda: x * 2), (tf.equal(p, 1), lambda: x * x)],
                         default=lambda: tf.exp(x))
            return [y], [x]
        self.same(build, [[0], [1], [2]])

    # ---- loops ----

    def test_power(self):
        def build():
            n, x = tf1.placeholder(tf.int32, [], "p0"), tf.constant(1.5)
            _, y = tf1.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x),
                                  [tf.constant(0), tf.constant(1.)])
            return [y], [x]
        self.same(build, [[0], [1], [5]])

    def test_values_that_depend_on_each_other(self):
        def build():
            x, w = tf.constant([.5, .25]), tf.constant([[.5, 1.], [2., .25]])

            def body(i, a, b, c):
                return i + 1, tf.tanh(b), a * c + tf.linalg.matvec(w, b), c
            _, a, b, _ = tf1.while_loop(lambda i, *_: i < 4, body,
                                        [tf.constant(0), x, x * 2, tf.constant([1., 3.])])
            return [a, b], [x, w]
        self.same(build)

    def test_only_one_result_is_asked_for(self):
        def build():
            x = tf.constant(.5)
            _, a, b = tf1.while_loop(lambda i, *_: i < 3,
                                     lambda i, a, b: (i + 1, a * x, b + a * a),
                                     [tf.constant(0), x, tf.constant(0.)])
            del a
            return [b], [x]
        self.same(build)

    def test_cond_in_a_loop(self):
        def build():
            p, x = tf1.placeholder(tf.int32, [], "p0"), tf.constant([.5, 2.])

            def body(i, a):
                return i + 1, tf1.cond(tf.equal(i % 3, p),
                                       lambda: tf.sin(a) * x,
                                       lambda: tf1.cond(a[0] > .1, lambda: a * a + x,
                                                        lambda: tf.exp(a)))
            _, y = tf1.while_loop(lambda i, a: i < 7, body, [tf.constant(0), x])
            return [y], [x]
        self.same(build, [[0], [1], [5]])

    def test_loop_in_a_cond(self):
        def build():
            p, x = tf1.placeholder(tf.bool, [], "p0"), tf.constant([.5, 2.])

            def loop():
                return tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x),
                                      [tf.constant(0), x])[1]
            return [tf1.cond(p, loop, lambda: x * 7)], [x]
        self.same(build, [[True], [False]])

    def test_loop_in_a_loop(self):
        def build():
            x, w = tf.constant([.5, .25]), tf.constant(1.25)

            def outer(i, a):
                def inner(j, b):
                    return j + 1, tf.tanh(b * w) + a * x
                return i + 1, tf1.while_loop(lambda j, b: j < i + 1, inner,
                                             [tf.constant(0), a])[1] * a
            _, y = tf1.while_loop(lambda i, a: i < 4, outer, [tf.constant(0), x])
            return [y], [x, w]
        self.same(build)

    def test_loop_in_a_cond_in_a_loop(self):
        def build():
            x = tf.constant([.5, .25])

            def outer(i, a):
                def loop():
                    return tf1.while_loop(lambda j, b: j < 3, lambda j, b: (j + 1, b * a * x),
                                          [tf.constant(0), tf.ones([2])])[1]
                return i + 1, tf1.cond(tf.equal(i % 2, 0), loop, lambda: tf.exp(a * x))
            _, y = tf1.while_loop(lambda i, a: i < 5, outer, [tf.constant(0), x])
            return [y], [x]
        self.same(build)

    def test_two_loops_in_a_row(self):
        def build():
            x = tf.constant(.9)
            a = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x),
                               [tf.constant(0), x])[1]
            b = tf1.while_loop(lambda i, b: i < 2, lambda i, b: (i + 1, b * b * a),
                               [tf.constant(0), a])[1]
            return [a + b], [x]
        self.same(build)

    def test_a_shape_that_grows(self):
        def build():
            x = tf.constant([[.5, 2.]])
            _, y = tf1.while_loop(
                lambda i, a: i < 3, lambda i, a: (i + 1, tf.concat([a * x, x], 0)),
                [tf.constant(0), x],
                shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])])
            return [y], [x]
        self.same(build)

    def test_a_value_that_changes_and_depends_on_no_x(self):
        def build():
            x = tf.constant(2.)
            _, y, c = tf1.while_loop(lambda i, *_: i < 3,
                                     lambda i, y, c: (i + 1, y * c * x, c * .5),
                                     [tf.constant(0), x, tf.constant(1.)])
            return [y, c * x], [x]
        self.same(build)

    def test_a_result_that_nobody_takes(self):
        """Its Exit is not there; the value grows."""
        def build():
            x = tf.constant([.5])

            def body(i, a, b):
                return i + 1, tf.concat([a, x], 0), b * tf.reduce_sum(a)
            shapes = [tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([1])]
            y = tf1.while_loop(lambda i, *_: i < 3, body, [tf.constant(0), x, x], shapes)[2]
            return [y], [x]
        self.same(build, prune=True)

    def test_unused_values_and_integers(self):
        def build():
            x = tf.constant(.5)
            _, k, y, z = tf1.while_loop(
                lambda i, *_: i < 3,
                lambda i, k, y, z: (i + 1, k * 2, y * tf.cast(k, tf.float32) * x,
                                    tf.stop_gradient(z * x)),
                [tf.constant(0), tf.constant(1), x, x])
            del k
            return [y, z], [x]
        self.same(build)

    def test_tensor_arrays(self):
        def build():
            x, w = tf.constant([[1., 2.], [3., 4.], [5., 6.]]), tf.constant([.5, .25])
            xs = tf.TensorArray(tf.float32, 3).unstack(x)

            def body(i, state, out):
                state = tf.tanh(state * w + xs.read(i))
                return i + 1, state, out.write(i, state * state)
            _, state, out = tf1.while_loop(
                lambda i, *_: i < 3, body,
                [tf.constant(0), tf.zeros([2]), tf.TensorArray(tf.float32, 3)])
            return [state, out.stack()], [x, w]
        self.same(build)

    def test_an_lstm_over_sequences_of_several_lengths(self):
        def build():
            x = tf.constant(np.sin(np.arange(24)).reshape(4, 2, 3), tf.float32)
            lengths, zeros = tf.constant([4, 2]), tf.zeros([2, 4])
            w = tf.constant(np.cos(np.arange(112)).reshape(7, 16) / 2, tf.float32)
            bias = tf.constant(np.arange(16) / 10, tf.float32)
            xs = tf.TensorArray(tf.float32, 4).unstack(x)

            def body(t, c, h, out):
                gates = tf.matmul(tf.concat([xs.read(t), h], 1), w) + bias
                i, j, f, o = tf.split(gates, 4, 1)
                new_c = tf.sigmoid(f + 1) * c + tf.sigmoid(i) * tf.tanh(j)
                new_h = tf.sigmoid(o) * tf.tanh(new_c)
                runs = tf.tile((t < lengths)[:, None], [1, 4])
                return (t + 1, tf1.where(runs, new_c, c), tf1.where(runs, new_h, h),
                        out.write(t, tf1.where(runs, new_h, zeros)))
            _, c, _, out = tf1.while_loop(
                lambda t, *_: t < 4, body,
                [tf.constant(0), zeros, zeros, tf.TensorArray(tf.float32, 4)],
                parallel_iterations=3)
            return [out.stack(), c], [x, w, bias]
        self.same(build)

    def test_resource_variables(self):
        def build():
            x = tf.constant([.5, 2.])
            v = tf1.get_variable("v", initializer=[1.5, 2.5], use_resource=True)
            p = tf1.placeholder(tf.int32, [], "p0")
            _, y = tf1.while_loop(lambda i, a: i < p, lambda i, a: (i + 1, a * v.read_value()),
                                  [tf.constant(0), x])
            return [tf1.cond(p > 1, lambda: y * v.read_value(), lambda: y)], [x, v]
        self.same(build, [[0], [1], [3]])

    def test_other_types(self):
        for dtype in (tf.float64, tf.complex64):
            def build(dtype=dtype):
                x = tf.constant([.5, .75], dtype)
                y = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * a + x),
                                   [tf.constant(0), x])[1]
                return [tf.abs(y)], [x]
            with self.subTest(dtype.name):
                self.same(build)

    # ---- both ----

    def test_random_programs(self):
        for seed in range(int(os.environ.get("MILLRACE_RANDOM_PROGRAMS", "25"))):
            def build(seed=seed):
                program = RandomProgram(seed)
                return [program.y, tf.add_n(program.x)], program.x
            with self.subTest(seed):
                self.same(build)

    def test_loops_that_span_tasks(self):
        def build():
            def on(task):
                return tf.device(f"/job:worker/task:{task}/cpu:0")
            with on(0):
                x = tf.constant([.5, 2.])
            with on(1):
                w = tf.constant([1.5, .5])

            def body(i, a, b):
                with on(0):
                    a = tf.tanh(a * w)
                with on(1):
                    b = b + tf.sin(a) * w
                return i + 1, a, tf1.cond(tf.equal(i % 2, 0), lambda: b * x, lambda: b)
            _, a, b = tf1.while_loop(lambda i, *_: i < 5, body, [tf.constant(0), x, w])
            return [a, b], [x, w]
        self.same(build, workers=2)

    # ---- conditionals and loops of functions: our server differentiates them ----

    def functional(self, scenario, feeds=None):
        if IS_TENSORFLOW:
            self.skipTest("TensorFlow's servers have no gradients of If, Case and While")
        tf1.enable_control_flow_v2()
        try:
            self.same(scenario, feeds, in_process=False)
        finally:
            tf1.disable_control_flow_v2()

    def test_if_of_functions(self):
        def build():
            p, x, w = tf1.placeholder(tf.bool, [], "p0"), tf.constant([1., 2.]), tf.constant(3.)
            return [tf1.cond(p, lambda: x * w, lambda: tf.exp(x))], [x, w]
        self.functional(build, [[True], [False]])

    def test_case_of_functions(self):
        def build():
            p, x = tf1.placeholder(tf.int32, [], "p0"), tf.constant([1., 2.])
            return [tf.switch_case(p, [lambda: x * 2, lambda: x * x, lambda: tf.exp(x)])], [x]
        self.functional(build, [[0], [1], [2], [7]])

    def test_while_of_functions(self):
        def build():
            n, x, w = tf1.placeholder(tf.int32, [], "p0"), tf.constant([.5, 2.]), tf.constant(.75)

            def body(i, a):
                return i + 1, tf1.cond(tf.equal(i % 2, 0), lambda: tf.sin(a) * w, lambda: a * x)
            y = tf1.while_loop(lambda i, a: i < n, body, [tf.constant(0), x])[1]
            return [y], [x, w]
        self.functional(build, [[0], [1], [4]])

    def test_variables_in_functions(self):
        def build():
            p, x = tf1.placeholder(tf.bool, [], "p0"), tf.constant([.5, 2.])
            v = tf1.get_variable("v", initializer=[1.5, 2.5], use_resource=True)

            def loop():
                return tf1.while_loop(lambda i, a: i < 3,
                                      lambda i, a: (i + 1, a * v.read_value()),
                                      [tf.constant(0), x])[1]
            return [tf1.cond(p, loop, lambda: x)], [x, v]
        self.functional(build, [[True], [False]])

    def test_random_programs_of_functions(self):
        for seed in range(int(os.environ.get("MILLRACE_RANDOM_PROGRAMS", "10"))):
            def build(seed=seed):
                program = RandomProgram(seed)
                return [program.y, tf.add_n(program.x)], program.x
            with self.subTest(seed):
                self.functional(build)

    # ---- what else there is to say ----

    def second(self, build):
        """The derivative of the sum of the derivatives, on our cluster, and by differences."""
        with tf.Graph().as_default() as forward:
            ys, xs = build()
            names = [t.name for t in ys], [t.name for t in xs]
            x = xs[0].name
        graph_def, first = our_gradients(forward.as_graph_def(), *names)
        graph_def, found = our_gradients(graph_def, first, names[1])
        with tf.Graph().as_default() as whole:
            tf1.import_graph_def(graph_def, name="")
            with tf1.Session(target(), graph=whole) as session:
                at, got = session.run([x, found[0]])

                def slope(value):
                    return np.sum(session.run(first[0], {x: value}))
                steps = np.eye(len(at)) * 1e-5
                wanted = [(slope(at + s) - slope(at - s)) / 2e-5 for s in steps]
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)

    def test_a_second_derivative_of_a_loop(self):
        def build():
            x = tf.constant([.5, .75], tf.float64)
            y = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.sin(a * x)),
                               [tf.constant(0), x])[1]
            return [y], [x]
        self.second(build)

    def test_a_second_derivative_of_a_cond(self):
        def build():
            x = tf.constant([.5, .75], tf.float64)
            return [tf1.cond(x[0] < x[1], lambda: x * x * x, lambda: x)], [x]
        self.second(build)

    def test_arrays_of_two_calls_are_apart(self):
        def build():
            x = tf.constant([1., 2., 3.])
            xs = tf.TensorArray(tf.float32, 3).unstack(x)
            y = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * xs.read(i)),
                               [tf.constant(0), tf.constant(1.)])[1]
            return [y], [x]
        with tf.Graph().as_default() as forward:
            ys, xs = build()
            names = [t.name for t in ys], [t.name for t in xs]
        graph_def, once = our_gradients(forward.as_graph_def(), *names)
        graph_def, again = our_gradients(graph_def, *names)
        with tf.Graph().as_default() as whole:
            tf1.import_graph_def(graph_def, name="")
            with tf1.Session(target(), graph=whole) as session:
                np.testing.assert_allclose(session.run(once + again), [[6, 3, 2]] * 2)

    def test_a_branch_that_uses_a_value_from_outside_without_a_switch(self):
        with tf.Graph().as_default() as forward:
            x, w, p = tf.constant(3.), tf.constant(5.), tf1.placeholder(tf.bool, [], "p0")
            off, on = tf.raw_ops.Switch(data=x, pred=p)
            y = tf.raw_ops.Merge(inputs=[off, on * w]).output + w
            init = tf.no_op().name
            names = [y.name], [x.name, w.name]
        graph_def, found = our_gradients(forward.as_graph_def(), *names)
        self.assertEqual(run(graph_def, target(), init, found, [[True], [False]]),
                         [[5, 4], [1, 1]])

    def test_a_handle_without_a_gradient(self):
        def build():
            x, p = tf.constant(3.), tf1.placeholder(tf.bool, [], "p0")
            v = tf1.get_variable("count", initializer=[0., 0.], use_resource=True)

            def counted():
                with tf.control_dependencies([v.assign_add([1., 1.])]):
                    return tf.identity(x) * x
            return [tf1.cond(p, counted, lambda: x)], [x]
        self.functional(build, [[True], [False]])

    # ---- graphs that nobody should send ----

    def test_hostile_graphs(self):
        """Loops without their parts, in numbers; each call returns, soon."""
        def merges_outside_of_loops(b, x, n):
            frame = b.op("Enter", "e", b.constant("t", BOOL, [], [True]), frame_name=text("f"))
            cond, back = b.op("LoopCond", "cond", frame), b.op("NextIteration", "next", x)
            for k in range(n):
                b.op("Switch", f"s{k}", b.op("Merge", f"m{k}", [x, back]), cond)

        def many_frames(b, x, n):
            for k in range(n):
                b.op("Enter", f"e{k}", x, frame_name=text(f"f{k}"))

        def a_long_way_of_identities(b, x, n):
            enter = b.op("Enter", "enter", x, frame_name=text("f"))
            merge = b.op("Merge", "merge", [enter, enter])
            for k in range(n):
                merge = b.op("Identity", f"i{k}", merge)
            b.op("Exit", "exit", b.op("Mul", "square", merge, merge))
        for make in (merges_outside_of_loops, many_frames, a_long_way_of_identities):
            with self.subTest(make.__name__):
                b = Builder(millrace())
                self.addCleanup(b.close)
                x = b.constant("x", FLOAT, [], [1])
                make(b, x, 20_000)
                self.assertEqual(len(b.gradients([b.op("Exp", "y", x)], [x])), 1)

    def test_a_value_within_a_loop_is_refused(self):
        with tf.Graph().as_default() as forward:
            x = tf.constant(2.)
            tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.square(a, "inner") * x),
                           [tf.constant(0), x])
            inner = next(op.name for op in forward.get_operations() if op.name.endswith("inner"))
        with self.assertRaisesRegex(Refused, f"UNIMPLEMENTED.*'{inner}'.* is within a loop"):
            our_gradients(forward.as_graph_def(), [inner + ":0"], [x.name])


if __name__ == "__main__":
    unittest.main()
