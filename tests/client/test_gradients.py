"""Gradients that both libraries add, by their values in a step."""
import ctypes
import math
import unittest

from c_library import (DOUBLE, FLOAT, HALF, INT32, Builder, Output, Refused, ints, millrace, output,
                       tensorflow, text)
from compare import Compared
from local_cluster import target

UNARY = ["Square", "Exp", "Log", "Tanh", "Sigmoid", "Relu", "Relu6", "Elu", "Selu", "Softplus",
         "Softsign", "Sqrt", "Rsqrt", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Abs",
         "Neg", "Reciprocal", "Log1p", "Expm1", "Erf", "Sign", "Identity", "Softmax", "LogSoftmax",
         "L2Loss", "Lgamma"]
BINARY = ["Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "Pow",
          "SquaredDifference", "MatMul", "DivNoNan"]


class TestGradients(Compared):
    def same(self, scenario, digits=5):
        results, has_gradient = [], []
        for library, where in ((tensorflow(), ""), (millrace(), target())):
            builder = Builder(library)
            self.addCleanup(builder.close)
            fetches, feeds = scenario(builder)
            session = builder.session(where)
            self.addCleanup(builder.call, "TF_DeleteSession", session)
            results.append(builder.run(session, [f for f in fetches if f], feeds))
            has_gradient.append([f is not None for f in fetches])
        self.assertEqual(*has_gradient)
        for (dtype, dims, values), (our_dtype, our_dims, our_values) in zip(*results):
            self.assertEqual((our_dtype, our_dims), (dtype, dims))
            for value, our_value in zip(values, our_values):
                self.assertAlmostEqual(our_value, value, delta=10 ** -digits * max(1, abs(value)))

    def test_ops_of_one_input(self):
        for op in UNARY:
            def build(b, op=op):
                x = b.constant("x", FLOAT, [2, 3], [.5, 1.25, 2, .125, 3, .75])
                return b.gradients([b.op(op, "y", x)], [x]), []
            with self.subTest(op):
                self.same(build)

    def test_ops_of_two_inputs(self):
        for op in BINARY:
            def build(b, op=op):
                x = b.constant("x", FLOAT, [3, 3], [.5, 1.25, 2, .125, 3, .75, 4, 1, 2])
                w = b.constant("w", FLOAT, [3, 3] if op == "MatMul" else [3],
                               range(1, 10 if op == "MatMul" else 4))
                return b.gradients([b.op(op, "y", x, w)], [x, w]), []
            with self.subTest(op):
                self.same(build)

    def test_several_ys_and_their_gradients(self):
        def build(b):
            x = b.placeholder("x", DOUBLE, [2])
            y, z = b.op("Square", "y", x), b.op("Exp", "z", x)
            dys = [b.constant("dy", DOUBLE, [2], [2, 3]), b.constant("dz", DOUBLE, [2], [5, 7])]
            return (b.gradients([y, z], [x], dys) + b.gradients([y, z], [x]),
                    [(x, b.tensor(DOUBLE, [2], [1, .5]))])
        self.same(build)

    def test_an_x_that_depends_on_another(self):
        def build(b):
            x = b.constant("x", FLOAT, [], [3])
            y = b.op("Square", "y", x)
            return b.gradients([b.op("Mul", "z", y, x)], [x, y]), []
        self.same(build)

    def test_a_second_derivative_and_a_repeated_x(self):
        """TensorFlow's library has neither."""
        b = Builder(millrace())
        self.addCleanup(b.close)
        x = b.constant("x", FLOAT, [], [3])
        y = b.op("Mul", "y", b.op("Square", "s", x), x)
        first, again = b.gradients([y], [x, x])
        session = b.session(target())
        values = b.run(session, [first, again, *b.gradients([first], [x])])
        b.call("TF_DeleteSession", session)
        self.assertEqual([v[2] for v in values], [[27], [27], [18]])

    def test_a_convolution(self):
        def build(b):
            x = b.constant("x", FLOAT, [1, 4, 4, 1], range(16))
            w = b.constant("w", FLOAT, [2, 2, 1, 2], range(8))
            y = b.op("Conv2D", "y", x, w, strides=ints(1, 1, 1, 1), padding=text("SAME"))
            p = b.op("MaxPool", "p", y, ksize=ints(1, 2, 2, 1), strides=ints(1, 2, 2, 1),
                     padding=text("VALID"))
            return b.gradients([p], [x, w]), []
        self.same(build)

    def test_gathers(self):
        """Dense gradients: rows that were read twice are added up, others are 0."""
        def build(b):
            x = b.constant("x", FLOAT, [4, 2], range(8))
            rows = b.constant("rows", INT32, [3], [1, 1, 2])
            axis = b.constant("axis", INT32, [], [0])
            places = b.constant("places", INT32, [2, 1], [3, 3])
            y = b.op("GatherV2", "y", x, rows, axis)
            z = b.op("GatherNd", "z", x, places)
            return b.gradients([b.op("Square", "y2", y), b.op("Square", "z2", z)], [x]), []
        self.same(build)

    def test_gathers_of_variables(self):
        """TensorFlow's C API does not differentiate these."""
        b = Builder(millrace())
        self.addCleanup(b.close)
        v = b.op("VarHandleOp", "v", dtype=("Type", FLOAT), shared_name=text("gathered"),
                 shape=("Shape", (ctypes.c_int64 * 2)(3, 1), 2))
        init = b.op("AssignVariableOp", "init", v, b.constant("x", FLOAT, [3, 1], [5, 7, 9]))
        rows = b.constant("rows", INT32, [3], [1, 1, 2])
        segments = b.constant("segments", INT32, [3], [0, 0, 1])
        read = b.op("ReadVariableOp", "read", v, dtype=("Type", FLOAT))
        y = b.op("Square", "y", b.op("ResourceGather", "gather", v, rows, dtype=("Type", FLOAT)))
        z = b.op("SparseSegmentMean", "mean", read, rows, segments)
        session = b.session(target())
        self.addCleanup(b.call, "TF_DeleteSession", session)
        b.run(session, targets=[init])
        of_rows, of_segments = b.run(session, [*b.gradients([y], [v]), *b.gradients([z], [read])])
        self.assertEqual(of_rows[1:], ([3, 1], [0, 28, 18]))
        self.assertEqual(of_segments[1:], ([3, 1], [0, 1, 1]))

    def ours_in_both_sessions(self, build):
        """The values of gradients that our library adds, in a cluster and in process."""
        for where in (target(), ""):
            b = Builder(millrace())
            self.addCleanup(b.close)
            fetches = build(b)
            session = b.session(where)
            self.addCleanup(b.call, "TF_DeleteSession", session)
            yield [values for _, _, values in b.run(session, fetches)]

    def test_colours_of_close_channels_as_halves(self):
        """1 / (blue - red)² is no half there; TensorFlow's gradient of the first pixel is NaN."""
        pixels = [.60498046875, .336181640625, .6015625, .0010004, .00080013, .00090027]

        def build(b):
            x = b.constant("x", FLOAT, [2, 3], pixels)
            half = b.op("Cast", "half", x, DstT=("Type", HALF))
            hsv = b.op("RGBToHSV", "hsv", half)
            y = b.op("Cast", "y", hsv, DstT=("Type", FLOAT))
            z = b.op("RGBToHSV", "z", x)
            dy = b.constant("dy", FLOAT, [2, 3], [1.75, 1, .5] * 2)
            return [*b.gradients([y], [x], [dy]), *b.gradients([z], [x], [dy])]
        for halves, floats in self.ours_in_both_sessions(build):
            for half, expected in zip(halves, floats):
                self.assertAlmostEqual(half, expected, delta=.02 * max(1, abs(expected)))

    def test_least_squares_of_a_nearly_singular_matrix(self):
        """Rounding alone makes it invertible, so nothing but the existence of values is sure."""
        def build(b):
            a = b.constant("a", FLOAT, [2, 2], [1] * 4)
            rhs = b.constant("rhs", FLOAT, [2, 1], [1, 1])
            zero = b.constant("zero", DOUBLE, [], [0])
            x = b.op("MatrixSolveLs", "x", a, rhs, zero)
            return [x, *b.gradients([x], [a, rhs])]
        for solution, by_a, by_rhs in self.ours_in_both_sessions(build):
            self.assertAlmostEqual(sum(solution), 1, places=3)
            self.assertTrue(all(math.isfinite(value) for value in by_a + by_rhs), (by_a, by_rhs))

    def test_training(self):
        """A linear model learns, with variables on the cluster, by the gradients of the client."""
        losses = []
        for library, where in ((tensorflow(), ""), (millrace(), target())):
            b = Builder(library)
            self.addCleanup(b.close)
            name = f"w{id(b)}"
            w = b.op("VarHandleOp", name, dtype=("Type", FLOAT), shared_name=text(name),
                     shape=("Shape", (ctypes.c_int64 * 2)(2, 1), 2))
            zeros = b.constant("zeros", FLOAT, [2, 1], [0, 0])
            init = b.op("AssignVariableOp", "init", w, zeros)
            value = b.op("ReadVariableOp", "value", w, dtype=("Type", FLOAT))
            x = b.constant("x", FLOAT, [3, 2], [1, 2, 3, 4, 5, 7])
            wanted = b.constant("wanted", FLOAT, [3, 1], [5, 11, 19])
            loss = b.op("L2Loss", "loss", b.op("Sub", "error", b.op("MatMul", "y", x, value),
                                               wanted))
            dw, = b.gradients([loss], [value])
            rate = b.constant("rate", FLOAT, [], [.01])
            step = b.op("ResourceApplyGradientDescent", "step", w, rate, dw)
            session = b.session(where)
            b.run(session, targets=[init])
            losses.append([])
            for _ in range(30):
                b.run(session, targets=[step])
                losses[-1] += b.run(session, [loss])[0][2]
            b.call("TF_DeleteSession", session)
        for theirs, ours in zip(*losses):
            self.assertAlmostEqual(ours, theirs, delta=1e-3 * theirs)
        self.assertLess(losses[1][-1], losses[1][0] / 20)

    def test_prefixes_and_what_has_no_gradient(self):
        def conflict(b):
            x = b.constant("a/x", FLOAT, [], [3])
            b.gradients([b.op("Square", "y", x)], [x], prefix="a")
        self.refused(conflict, "INVALID_ARGUMENT", "prefix [a] conflicts with existing node")

        def unreachable(b):
            x, u = b.constant("x", FLOAT, [], [3]), b.constant("u", FLOAT, [], [3])
            b.gradients([b.op("Square", "y", x)], [u])
        self.refused(unreachable, "INVALID_ARGUMENT",
                     "Cannot compute the partial derivative for node 'u'")

        def integers(b):
            x = b.constant("x", INT32, [], [3])
            y = b.op("Cast", "y", x, SrcT=("Type", INT32), DstT=("Type", FLOAT))
            return [o and o.index for o in b.gradients([y], [x])]
        self.both(integers)

    def test_what_has_no_derivative_is_named_and_leaves_nothing(self):
        def no_derivative(b):
            x = b.placeholder("x", FLOAT, [3])
            return b.gradients([b.op("SoftsignGrad", "s", x, x)], [x])
        self.refused(no_derivative, "NOT_FOUND", "No gradient defined for op: SoftsignGrad")

        b = Builder(millrace())
        self.addCleanup(b.close)
        x = b.placeholder("x", FLOAT, [3])
        s = b.op("SoftsignGrad", "s", x, x)
        before = b.graph_def()
        with self.assertRaisesRegex(Refused, "(?s)NOT_FOUND: TF_AddGradientsWithPrefix: No "
                                             "gradient defined for op: SoftsignGrad .TensorFlow "
                                             "defines none.*node s"):
            b.gradients([s], [x])
        self.assertEqual(b.graph_def(), before)
        with self.assertRaisesRegex(Refused, "has no output 3"):
            b.gradients([Output(s, 3)], [x])
        self.assertEqual(len(b.gradients([x], [output(x)])), 1)


if __name__ == "__main__":
    unittest.main()
