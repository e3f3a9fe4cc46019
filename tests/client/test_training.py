"""Training helpers on a local cluster, against tf.compat.v1 in this process."""
import ctypes
import locale
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np
import tensorflow as tf

import c_library
from c_library import DOUBLE, FLOAT, INT32, INT64, Output, Refused
from local_cluster import target
from training_library import Gradient, Model, dims_of, pointers

tf1 = tf.compat.v1
TYPES = {FLOAT: tf.float32, DOUBLE: tf.float64}
N_STEPS, RATE = 10, .125

# name: (ours, its arguments after the rate, TensorFlow's, by rate). All numbers are binary
# fractions, which TensorFlow's float32 hyperparameters hold exactly.
OPTIMIZERS = {
    "gradient descent": ("NewGradientDescent", (), tf1.train.GradientDescentOptimizer),
    "momentum": ("NewMomentum", (.875, 0),
                 lambda rate, momentum, _: tf1.train.MomentumOptimizer(rate, momentum)),
    "nesterov": ("NewMomentum", (.75, 1),
                 lambda rate, momentum, _: tf1.train.MomentumOptimizer(rate, momentum,
                                                                       use_nesterov=True)),
    "adagrad": ("NewAdagrad", (.125,), tf1.train.AdagradOptimizer),
    "adadelta": ("NewAdadelta", (.9375, 2**-20), tf1.train.AdadeltaOptimizer),
    "rmsprop": ("NewRmsProp", (.875, .5, 2**-33, 0), tf1.train.RMSPropOptimizer),
    "centered rmsprop": ("NewRmsProp", (.75, .125, 2**-10, 1), tf1.train.RMSPropOptimizer),
    "adam": ("NewAdam", (.875, 1 - 2**-10, 2**-27), tf1.train.AdamOptimizer),
}


class TestOptimizers(unittest.TestCase):
    """Each trains a dense variable, and one whose rows are gathered twice, with repeats."""

    ids = [[0, 2, 2], [5, 2, 1]], [3, 5]

    def ours(self, name, dtype):
        m = Model()
        self.addCleanup(m.close)
        prefix = f"{name.replace(' ', '')}{dtype}"
        m.mr("SetPrefix", prefix)
        w = m.variable("w", dtype, [4, 3], m.c.MR_RandomUniform(-1, 2, 3))
        table = m.variable("table", dtype, [6, 2], m.c.MR_TruncatedNormal(.5, 2, 5))
        step = m.mr("NewGlobalStep")
        rows = [m.mr("EmbeddingLookup", pointers([table]), 1, m.array(i, INT32)) for i in self.ids]
        losses = [m.add("Sum", m.add("Square", m.add("Sub", m.mr("Read", w),
                                                     m.mr("Scalar", dtype, .25))), axis(m, 2))]
        losses += [m.add("Sum", m.add("Exp", r), axis(m, len(np.shape(i)) + 1))
                   for r, i in zip(rows, self.ids)]
        make, arguments, _ = OPTIMIZERS[name]
        optimizer = m.mr(make, m.mr("Scalar", dtype, RATE), *arguments)
        train = m.mr("Minimize", optimizer, m.add("AddN", *losses), step)
        values = [m.mr("Read", v) for v in (w, table, step)]
        m.step(targets=[m.mr("InitializeAll")])
        out = [m.step(values)]
        for _ in range(N_STEPS):
            m.step(targets=[train])
            out.append(m.step(values))
        kinds = {m.c.TF_OperationOpType(o).decode() for o in m.operations()}
        return out, kinds, {m.name(o) for o in m.operations()
                            if m.c.TF_OperationOpType(o) == b"VarHandleOp"}, prefix

    def theirs(self, name, dtype):
        with tf.Graph().as_default(), tf1.Session() as session:
            w = tf1.get_variable("w", [4, 3], TYPES[dtype], use_resource=True,
                                 initializer=tf1.random_uniform_initializer(-1, 2, seed=3,
                                                                            dtype=TYPES[dtype]))
            table = tf1.get_variable("table", [6, 2], TYPES[dtype], use_resource=True,
                                     initializer=tf1.truncated_normal_initializer(
                                         .5, 2, seed=5, dtype=TYPES[dtype]))
            step = tf1.train.get_or_create_global_step()
            loss = tf.reduce_sum(tf.square(w - .25)) + tf.add_n([
                tf.reduce_sum(tf.exp(tf1.nn.embedding_lookup(table, i))) for i in self.ids])
            _, arguments, optimizer = OPTIMIZERS[name]
            if optimizer is tf1.train.RMSPropOptimizer:
                arguments = (*arguments[:3], False, bool(arguments[3]))
            train = optimizer(RATE, *arguments).minimize(loss, global_step=step)
            session.run(tf1.global_variables_initializer())
            out = [session.run([w, table, step])]
            for _ in range(N_STEPS):
                session.run(train)
                out.append(session.run([w, table, step]))
            return out, {v.op.name for v in tf1.global_variables()}

    def test_ten_steps(self):
        for name in OPTIMIZERS:
            for dtype in (FLOAT, DOUBLE):
                with self.subTest(name, dtype=dtype):
                    ours, ops, names, prefix = self.ours(name, dtype)
                    theirs, their_names = self.theirs(name, dtype)
                    tolerance = 1e-5 if dtype == FLOAT else 1e-12
                    for step, (mine, wanted) in enumerate(zip(ours, theirs)):
                        for a, b in zip(mine, wanted):
                            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
                            np.testing.assert_allclose(a, b, tolerance, tolerance,
                                                       err_msg=f"{step}")
                    np.testing.assert_array_equal(ours[0][0], theirs[0][0])
                    self.assertEqual({n.replace(prefix + "/", "") for n in names}, their_names)
                    self.assertTrue(any("Sparse" in op or "Scatter" in op for op in ops), ops)


class Models(unittest.TestCase):
    def model(self):
        m = Model()
        self.addCleanup(m.close)
        m.mr("SetPrefix", self.id().split(".")[-1])  # the cluster shares variables by name
        return m

    def refused(self, message, call):
        m = self.model()
        with self.assertRaisesRegex(Refused, "(?s)^INVALID_ARGUMENT: " + message):
            call(m)
        with self.assertRaisesRegex(Refused, "(?s)^INVALID_ARGUMENT: " + message):
            m.mr("Scalar", FLOAT, 1)  # the status is sticky


class TestBuilder(Models):
    def test_attrs_and_lists_of_inputs(self):
        m = self.model()
        x = m.add("Const", attrs="dtype=float, value=float[2,2]{1, 2, 3, 4}")
        y = m.add("MatMul", x, x, attrs="transpose_b=true")
        joined = m.add("ConcatV2", y, x, m.mr("Scalar", INT32, 1))
        stitched = m.add("DynamicStitch", m.array([0], INT32), m.array([1], INT32),
                         m.array([5], FLOAT), m.array([7], FLOAT))
        got = m.step([y, joined, stitched, m.mr("Ints", (ctypes.c_int64 * 2)(-3, 4), 2),
                      m.mr("Scalar", INT64, 2**40),
                      m.mr("Cast", m.mr("Scalar", DOUBLE, 2.5), INT32)])
        np.testing.assert_array_equal(got[0], [[5, 11], [11, 25]])
        np.testing.assert_array_equal(got[1], [[5, 11, 1, 2], [11, 25, 3, 4]])
        for array, wanted in zip(got[2:], ([5, 7], [-3, 4], 2**40, 2)):
            np.testing.assert_array_equal(array, wanted)

    def test_numbers_have_a_point_in_every_locale(self):
        """A locale with a comma is made here; setlocale finds it by LOCPATH."""
        folder = tempfile.mkdtemp(prefix="millrace-locale-")
        self.addCleanup(shutil.rmtree, folder)
        made = shutil.which("localedef") and subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", f"{folder}/de_DE.UTF-8"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
        if not made:
            self.skipTest("localedef cannot make a locale with a comma")
        m = self.model()
        with unittest.mock.patch.dict(os.environ, LOCPATH=folder):
            self.addCleanup(locale.setlocale, locale.LC_ALL, locale.setlocale(locale.LC_ALL))
            locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
        self.assertEqual(locale.localeconv()["decimal_point"], ",")
        values = [m.mr("Scalar", DOUBLE, .1), m.mr("Scalar", FLOAT, -2.5e-30),
                  m.add("Const", attrs="dtype=float, value=float[2]{0.5, 1.25}")]
        m.add("LeakyRelu", values[1], attrs="alpha=0.75")
        w = m.variable("w", FLOAT, [2], m.c.MR_RandomUniform(-.25, .75, 3))
        m.mr("Minimize", m.mr("NewAdam", m.mr("Scalar", FLOAT, .125), .9, .999, 1e-8),
             m.add("L2Loss", m.mr("Read", w)), None)
        tenth, small, pair = m.step(values)
        self.assertEqual((float(tenth), float(small)), (.1, float(np.float32(-2.5e-30))))
        self.assertEqual(list(pair), [.5, 1.25])

    def test_devices_prefixes_and_controls(self):
        m = self.model()
        m.mr("SetPrefix", "deep")
        m.mr("SetDevice", "/job:worker/task:0")
        first = m.mr("Placeholder", "x", FLOAT, dims_of([-1, 3]), 2)
        m.mr("SetControls", pointers([first.oper]), 1)
        y, z = m.mr("Scalar", FLOAT, 1), m.mr("Scalar", FLOAT, 1)
        self.assertEqual([m.name(o.oper) for o in (first, y, z)],
                         ["deep/x", "deep/Const", "deep/Const_1"])
        self.assertEqual(m.c.TF_OperationDevice(y.oper), b"/job:worker/task:0")
        self.assertEqual(m.c.TF_OperationNumControlInputs(y.oper), 1)
        self.assertEqual(m.shape(first), [-1, 3])
        m.mr("SetControls", None, 0)
        m.mr("SetDevice", None)
        self.assertEqual(m.c.TF_OperationNumControlInputs(m.mr("Scalar", FLOAT, 1).oper), 0)

    def test_refusals(self):
        x = lambda m: m.mr("Scalar", FLOAT, 1)
        for message, call in (
                ("MR_Op: there is no op 'Relux'", lambda m: m.add("Relux", x(m))),
                ("MR_Op: op 'AddV2' takes 2 inputs, not 1", lambda m: m.add("AddV2", x(m))),
                ("MR_Op: op 'ConcatV2' takes 2 inputs or more, not 0",
                 lambda m: m.add("ConcatV2")),
                ("MR_Op: input 1 of '.*/AddV2' is NULL", lambda m: m.add("AddV2", x(m), Output())),
                ("MR_Op: Inconsistent values for attr 'T' float vs. int32 .*AddV2",
                 lambda m: m.add("AddV2", x(m), m.mr("Scalar", INT32, 1))),
                ("MR_Op: .* in the attrs of '.*/Relu'",
                 lambda m: m.add("Relu", x(m), attrs="T=flat")),
                ("MR_Op: .*beautiful", lambda m: m.add("Relu", x(m), attrs="beautiful=true")),
                ("MR_Op: op_type is NULL", lambda m: m.mr("Op", None, None, None, 0)),
                ("MR_Scalar: 1.5 is not a value of int32", lambda m: m.mr("Scalar", INT32, 1.5)),
                ("MR_Scalar: 300 is not a value of uint8", lambda m: m.mr("Scalar", 4, 300)),
                ("MR_Scalar: nan is not a value of int64", lambda m: m.mr("Scalar", INT64, np.nan)),
                ("MR_Scalar: 1 is not a value of string", lambda m: m.mr("Scalar", 7, 1)),
                ("MR_Ints: value 1 is 2147483648, which is not an int32",
                 lambda m: m.mr("Ints", (ctypes.c_int64 * 2)(-2**31, 2**31), 2)),
                ("MR_Constant: value is NULL", lambda m: m.mr("Constant", None)),
                ("MR_SetControls: control 0 is NULL",
                 lambda m: m.mr("SetControls", pointers([None]), 1)),
                ("MR_NewVariable: name is NULL",
                 lambda m: m.mr("NewVariable", None, FLOAT, None, 0, m.c.MR_Zeros())),
                ("MR_NewVariable: size 1 of variable 'v' is -1",
                 lambda m: m.variable("v", FLOAT, [2, -1], m.c.MR_Zeros())),
                ("MR_NewVariable: .*v",
                 lambda m: [m.variable("v", FLOAT, [2], m.c.MR_Zeros()) for _ in range(2)]),
                ("MR_NewVariable: .*RandomUniform",
                 lambda m: m.variable("v", INT32, [2], m.c.MR_RandomUniform(0, 1, 1))),
                ("MR_NewPartitionedVariable: variable 'v' with 2 rows cannot have 3 parts",
                 lambda m: m.mr("NewPartitionedVariable", "v", FLOAT, dims_of([2]), 1,
                                m.c.MR_Zeros(), None, 3, pointers([None] * 3))),
                ("MR_EmbeddingLookup: ids '.*' are float",
                 lambda m: m.mr("EmbeddingLookup", pointers(
                     [m.variable("v", FLOAT, [2], m.c.MR_Zeros())]), 1, x(m))),
                ("MR_Read: a variable is NULL", lambda m: m.mr("Read", None)),
                ("MR_NewAdam: rate is NULL", lambda m: m.mr("NewAdam", Output(), .9, .9, .1)),
                ("MR_NewAdagrad: initial is 0", lambda m: m.mr("NewAdagrad", x(m), 0)),
                ("MR_NewGradientDescent: rate '.*' is no scalar",
                 lambda m: m.mr("NewGradientDescent", m.array([1, 2], FLOAT))),
                ("MR_Minimize: optimizer is NULL", lambda m: m.mr("Minimize", None, x(m), None)),
                ("MR_Minimize: loss is NULL",
                 lambda m: m.mr("Minimize", m.mr("NewGradientDescent", x(m)), Output(), None)),
                ("MR_Minimize: no variable has a gradient",
                 lambda m: m.mr("Minimize", m.mr("NewGradientDescent", x(m)), x(m), None)),
                ("MR_ClipByGlobalNorm: clip is -1",
                 lambda m: m.mr("ClipByGlobalNorm", (Gradient * 1)(), 1, -1)),
                ("MR_ClipByGlobalNorm: -2 gradients",
                 lambda m: m.mr("ClipByGlobalNorm", (Gradient * 1)(), -2, 1)),
                ("MR_CosineDecay: dtype is int32",
                 lambda m: m.mr("CosineDecay", INT32, x(m), 1, 10, 0)),
                ("MR_PiecewiseConstant: 3000000000 is not a value of int32",
                 lambda m: m.mr("PiecewiseConstant", FLOAT, m.mr("Scalar", INT32, 1),
                                (ctypes.c_int64 * 1)(3 * 10**9), (ctypes.c_double * 2)(1, 2), 1)),
                ("MR_Op: .*Malformed elements in a tensor of type int32",
                 lambda m: m.add("Const", attrs="dtype=int32, value=int32[]{4294967301}")),
                ("MR_PiecewiseConstant: boundary 1 is 3, not above 3",
                 lambda m: m.mr("PiecewiseConstant", FLOAT, m.mr("Scalar", INT64, 1),
                                (ctypes.c_int64 * 2)(3, 3), (ctypes.c_double * 3)(1, 2, 3), 2))):
            with self.subTest(message):
                self.refused(message, call)
        other = Model()
        self.addCleanup(other.close)
        v = other.variable("v", FLOAT, [], other.c.MR_Zeros())
        self.refused("MR_Read: variable 'v' is of another builder", lambda m: m.mr("Read", v))
        for name in ("DeleteBuilder", "BuilderStatus", "BuilderGraph", "InitializeAll"):
            getattr(other.c, "MR_" + name)(None)


class TestNothing(Models):
    def test_no_function_needs_its_arguments(self):
        """NULL and 0 everywhere, with no builder, a good one and a failed one: no call crashes."""
        good, failed = self.model(), self.model()
        failed.c.MR_Op(failed.builder, None, None, None, 0)
        status = good.c.TF_NewStatus()
        self.addCleanup(good.c.TF_DeleteStatus, status)
        for name, (_, types) in sorted(training_prototypes().items()):
            for builder in (None, good.builder, failed.builder):
                arguments = [status if "TF_Status" in text else
                             builder if "MR_Builder" in text else
                             None if kind in (ctypes.c_void_p, ctypes.c_char_p) else kind()
                             for kind, text in types]
                if name not in ("MR_NewCoordinator", "MR_DeleteBuilder"):
                    getattr(good.c, name)(*arguments)


class TestVariables(Models):
    def test_initial_values(self):
        for name, (ours, theirs) in {
                "glorot": (lambda c: c.MR_GlorotUniform(7),
                           tf1.glorot_uniform_initializer(seed=7)),
                "uniform": (lambda c: c.MR_RandomUniform(-.3, .7, 11),
                            tf1.random_uniform_initializer(-.3, .7, seed=11)),
                "normal": (lambda c: c.MR_RandomNormal(1, .25, 13),
                           tf1.random_normal_initializer(1, .25, seed=13)),
                "truncated": (lambda c: c.MR_TruncatedNormal(0, .1, 17),
                              tf1.truncated_normal_initializer(0, .1, seed=17)),
                "ones": (lambda c: c.MR_Ones(), tf1.ones_initializer())}.items():
            for shape in ([3, 3, 2, 4], [5, 7], [9], []):
                with self.subTest(name, shape=shape):
                    m = self.model()
                    v = m.variable(f"{name}{len(shape)}", FLOAT, shape, ours(m.c))
                    m.step(targets=[m.c.MR_VariableInitializer(v)])
                    mine, = m.step([m.mr("Read", v)])
                    with tf.Graph().as_default(), tf1.Session() as session:
                        wanted = session.run(theirs(shape, tf.float32))
                    np.testing.assert_array_equal(mine, wanted)

    def test_seeds_are_normalised(self):
        for i, (graph_seed, seed) in enumerate((
                (0, 0), (2**31 - 1, 0), (-1, 5), (2**31 + 3, 2**40), (5, -7), (0, 3))):
            with self.subTest(graph=graph_seed, operation=seed):
                m = self.model()
                m.mr("SetSeed", graph_seed)
                v = m.variable(f"v{i}", FLOAT, [4], m.c.MR_RandomUniform(0, 1, seed))
                m.step(targets=[m.c.MR_VariableInitializer(v)])
                mine, = m.step([m.mr("Read", v)])
                with tf.Graph().as_default(), tf1.Session() as session:
                    tf1.set_random_seed(graph_seed)
                    initializer = tf1.random_uniform_initializer(0, 1, seed=seed)
                    wanted = session.run(initializer([4], tf.float32))
                np.testing.assert_array_equal(mine, wanted)

    def test_the_fans_of_parts_are_those_of_the_whole(self):
        m = self.model()
        parts = pointers([None] * 3)
        m.mr("NewPartitionedVariable", "t", FLOAT, dims_of([8, 2]), 2, m.c.MR_GlorotUniform(7),
             None, 3, parts)
        m.step(targets=[m.mr("InitializeAll")])
        mine = m.step([m.mr("Read", part) for part in parts])
        for i, part in enumerate(mine):
            with tf.Graph().as_default(), tf1.Session() as session:
                theirs = tf1.get_variable(
                    "t", [8, 2], partitioner=tf1.fixed_size_partitioner(3),
                    initializer=tf1.glorot_uniform_initializer(seed=7 + i))
                session.run(tf1.global_variables_initializer())
                np.testing.assert_array_equal(part, session.run(list(theirs)[i]))

    def test_what_a_variable_says(self):
        m = self.model()
        v = m.variable("v", DOUBLE, [2, 3], m.c.MR_Fill(4))
        dims = (ctypes.c_int64 * 2)()
        self.assertEqual(m.c.MR_VariableShape(v, dims, 2), 2)
        self.assertEqual((list(dims), m.c.MR_VariableType(v)), ([2, 3], DOUBLE))
        name = m.c.MR_VariableName(v)
        self.assertEqual(m.c.MR_FindVariable(m.builder, name), v)
        assign = m.mr("Assign", v, m.array([[1, 2, 3], [4, 5, 6]], DOUBLE))
        read = m.mr("Read", v)
        m.step(targets=[m.mr("InitializeAll")])
        np.testing.assert_array_equal(m.step([read])[0], np.full([2, 3], 4))
        m.step(targets=[assign])
        np.testing.assert_array_equal(m.step([read])[0], [[1, 2, 3], [4, 5, 6]])

    def test_lookups_in_parts(self):
        rows = np.arange(22).reshape(11, 2) * 1.
        for n_parts in (1, 2, 3, 4, 11):
            for dtype in (INT32, INT64):
                with self.subTest(n_parts=n_parts):
                    m = self.model()
                    parts = pointers([None] * n_parts)
                    m.mr("NewPartitionedVariable", f"t{n_parts}", FLOAT, dims_of([11, 2]), 2,
                         m.c.MR_Zeros(), None, n_parts, parts)
                    at, assigns = 0, []
                    for part in parts:
                        size = m.shape(m.mr("Read", part))[0]
                        assigns.append(m.mr("Assign", part, m.array(rows[at:at + size], FLOAT)))
                        at += size
                    m.step(targets=assigns)
                    ids = [[0, 10, 3], [7, 7, 5], [1, 9, 8], [2, 4, 6]]
                    found, = m.step([m.mr("EmbeddingLookup", parts, n_parts, m.array(ids, dtype))])
                    np.testing.assert_array_equal(found, rows[ids])


class TestGradients(Models):
    def test_rows_of_parts_and_clipping(self):
        """Against tf.clip_by_global_norm of the same gradients, made dense."""
        m = self.model()
        parts = pointers([None] * 2)
        m.mr("NewPartitionedVariable", "t", FLOAT, dims_of([5, 2]), 2, m.c.MR_Ones(), None, 2,
             parts)
        w = m.variable("w", FLOAT, [2], m.c.MR_Fill(3))
        unused = m.variable("unused", FLOAT, [2], m.c.MR_Zeros())
        ids = [0, 4, 1, 4]
        embedded = m.mr("EmbeddingLookup", parts, 2, m.array(ids, INT64))
        loss = m.add("Sum", m.add("Mul", embedded, m.mr("Read", w)), axis(m, 2))
        gradients = (Gradient * 4)()
        self.assertEqual(m.mr("Gradients", loss, None, -1, gradients, 4), 4)
        self.assertEqual([bool(g.indices.oper) for g in gradients], [True, True, False, False])
        self.assertEqual(gradients[3].variable, unused)
        self.assertFalse(gradients[3].values.oper)
        norm = m.mr("ClipByGlobalNorm", gradients, 4, 2)
        m.step(targets=[m.mr("InitializeAll")])
        got = m.step([norm] + [g.values for g in gradients[:3]] +
                     [g.indices for g in gradients[:2]])
        wanted = [np.full([4, 2], 3.), np.full([2], 4.)]
        clipped, wanted_norm = tf.clip_by_global_norm(wanted, 2.)
        self.assertAlmostEqual(float(got[0]), float(wanted_norm), 5)
        np.testing.assert_allclose(np.concatenate(got[1:3]), clipped[0], 1e-6)
        np.testing.assert_allclose(got[3], clipped[1], 1e-6)
        self.assertEqual([list(i) for i in got[4:]], [[0, 1], [1, 1]])


    def test_a_variable_that_is_read_and_gathered_has_a_dense_gradient(self):
        m = self.model()
        t = m.variable("t", DOUBLE, [3, 2], m.c.MR_RandomUniform(1, 2, 1))
        whole = m.add("Sum", m.add("Square", m.mr("Read", t)), axis(m, 2))
        rows = m.mr("EmbeddingLookup", pointers([t]), 1, m.array([2, 2, 0], INT32))
        loss = m.add("AddV2", whole, m.add("Sum", m.add("Exp", rows), axis(m, 2)))
        gradients = (Gradient * 1)()
        m.mr("Gradients", loss, pointers([t]), 1, gradients, 1)
        self.assertFalse(gradients[0].indices.oper)
        m.step(targets=[m.mr("InitializeAll")])
        value, got = m.step([m.mr("Read", t), gradients[0].values])
        np.testing.assert_allclose(got, 2 * value + np.exp(value) * [[1], [0], [2]], 1e-12)

    def test_updates_are_where_their_variables_are(self):
        m = self.model()
        devices = [f"/job:worker/task:0/device:CPU:{i}".encode() for i in range(2)]
        parts = pointers([None] * 2)
        m.mr("NewPartitionedVariable", "t", FLOAT, dims_of([4, 2]), 2, m.c.MR_Ones(),
             (ctypes.c_char_p * 2)(*devices), 2, parts)
        m.mr("SetDevice", "/job:worker/task:0")
        rows = m.mr("EmbeddingLookup", parts, 2, m.array([0, 3], INT32))
        m.mr("Minimize", m.mr("NewAdagrad", m.mr("Scalar", FLOAT, 1), .1),
             m.add("Sum", rows, axis(m, 2)), None)
        found = {}
        for oper in m.operations():
            kind = m.c.TF_OperationOpType(oper).decode()
            found.setdefault(kind, []).append(m.c.TF_OperationDevice(oper))
        self.assertEqual(sorted(found["VarHandleOp"]), sorted(devices * 2))  # with the slots
        for kind in ("ResourceGather", "ResourceSparseApplyAdagrad"):
            self.assertEqual(sorted(found[kind]), devices, kind)


class TestSchedules(Models):
    def test_values(self):
        c64, reals = ctypes.c_int64 * 2, ctypes.c_double * 3
        v1 = tf1.train
        schedules = {
            "exponential": (("ExponentialDecay", .5, 10, .9, 0),
                            lambda s: v1.exponential_decay(.5, s, 10, .9)),
            "staircase": (("ExponentialDecay", .5, 10, .9, 1),
                          lambda s: v1.exponential_decay(.5, s, 10, .9, staircase=True)),
            "piecewise": (("PiecewiseConstant", c64(5, 20), reals(1, .5, .25), 2),
                          lambda s: v1.piecewise_constant(s, [5, 20], [1., .5, .25])),
            "polynomial": (("PolynomialDecay", .5, 20, .125, 2),
                           lambda s: v1.polynomial_decay(.5, s, 20, .125, 2.)),
            "cosine": (("CosineDecay", .5, 20, .125), lambda s: v1.cosine_decay(.5, s, 20, .125))}
        m = self.model()
        step = m.mr("Placeholder", "step", INT64, None, 0)
        ours = [m.mr(name, FLOAT, step, *rest) for (name, *rest), _ in schedules.values()]
        for at in (0, 1, 5, 6, 10, 19, 20, 21, 50):
            got = m.step(ours, feeds=[(step, m.tensor(INT64, [], [at]))])
            with tf.Graph().as_default(), tf1.Session() as session:
                wanted = session.run([f(tf.constant(at, tf.int64)) for _, f in schedules.values()])
            np.testing.assert_allclose(got, wanted, 1e-6)


class TestSaver(Models):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="millrace-saver-")
        self.addCleanup(shutil.rmtree, self.folder)

    def filled(self, seed):
        """A model with a whole and a partitioned variable, a slot and a step, and a saver that
        keeps two."""
        m = self.model()
        w = m.variable("w", FLOAT, [2, 2], m.c.MR_RandomUniform(0, 1, seed))
        parts = pointers([None] * 2)
        m.mr("NewPartitionedVariable", "t", FLOAT, dims_of([5, 3]), 2,
             m.c.MR_RandomUniform(0, 1, seed), None, 2, parts)
        step = m.mr("NewGlobalStep")
        loss = m.add("L2Loss", m.mr("Read", w))
        adagrad = m.mr("NewAdagrad", m.mr("Scalar", FLOAT, 1), .5)
        m.mr("Minimize", adagrad, loss, step)
        m.reads = [m.mr("Read", v) for v in (w, *parts, step, m.c.MR_Slot(adagrad, w, 0))]
        m.saver = m.mr("NewSaver", None, -1, 2)
        m.init = m.mr("InitializeAll")
        m.step(targets=[m.init])
        return m

    def prefix(self):
        return self.id().split(".")[-1]

    def save(self, m, step):
        return m.call("MR_Save", m.saver, m.running, f"{self.folder}/model".encode(), step)

    def latest(self, m, size=200):
        path = ctypes.create_string_buffer(size)
        found = m.c.MR_LatestCheckpoint(self.folder.encode(), path, size)
        return path.value.decode() if found else None

    def test_tensorflow_reads_and_writes_the_same(self):
        m = self.filled(3)
        self.assertIsNone(self.latest(m))
        self.assertEqual(self.save(m, 7).decode(), f"{self.folder}/model-7")
        self.assertEqual(self.latest(m), tf1.train.latest_checkpoint(self.folder))
        self.assertIsNone(self.latest(m, 10))
        reader = tf1.train.load_checkpoint(self.folder)
        prefix = self.prefix()
        w, t0, t1, step, slot = m.step(m.reads)
        wanted = {"w": w, "t": np.concatenate([t0, t1]), "global_step": step, "w/Adagrad": slot}
        self.assertEqual(set(reader.get_variable_to_shape_map()),
                         {f"{prefix}/{name}" for name in wanted})
        for name, value in wanted.items():
            np.testing.assert_array_equal(reader.get_tensor(f"{prefix}/{name}"), value)
        with tf.Graph().as_default(), tf1.Session() as session:
            for name, value in wanted.items():
                tf1.get_variable(f"{prefix}/{name}", initializer=value * 2 + 1)
            session.run(tf1.global_variables_initializer())
            path = tf1.train.Saver().save(session, f"{self.folder}/theirs")
        self.assertEqual(self.latest(m), path)
        m.call("MR_Restore", m.saver, m.running, path.encode())
        for value, before in zip(m.step(m.reads), (w, t0, t1, step, slot)):
            np.testing.assert_array_equal(value, before * 2 + 1)

    def test_retention(self):
        m = self.filled(4)
        for step in (1, 2, 2, 3, 4):
            self.save(m, step)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["checkpoint", "model-3.data-00000-of-00001", "model-3.index",
                          "model-4.data-00000-of-00001", "model-4.index"])
        state = tf1.train.get_checkpoint_state(self.folder)
        self.assertEqual(list(state.all_model_checkpoint_paths),
                         [f"{self.folder}/model-{i}" for i in (3, 4)])

    def test_without_a_limit_all_stay_and_the_state_names_the_latest(self):
        """As tf.compat.v1.train.Saver."""
        m = self.filled(8)
        m.saver = m.mr("NewSaver", None, -1, 0)
        for step in (1, 2, 3):
            self.save(m, step)
        self.assertEqual(sum(name.endswith(".index") for name in os.listdir(self.folder)), 3)
        state = tf1.train.get_checkpoint_state(self.folder)
        self.assertEqual(list(state.all_model_checkpoint_paths), [f"{self.folder}/model-3"])

    def test_nothing_is_deleted_while_the_state_cannot_be_written(self):
        m = self.filled(9)
        self.save(m, 1)
        self.save(m, 2)
        state = f"{self.folder}/checkpoint"
        os.rename(state, state + ".old")
        os.mkdir(state)  # which no file replaces
        for step in (3, 4):
            with self.assertRaisesRegex(Refused, f": MR_Save: {state}; "):
                self.save(m, step)
        indices = lambda: {name for name in os.listdir(self.folder) if name.endswith(".index")}
        self.assertEqual(indices(), {f"model-{i}.index" for i in (1, 2, 3, 4)})
        self.assertEqual([name for name in os.listdir(self.folder) if "tmp" in name], [])
        os.rmdir(state)
        self.save(m, 5)
        self.assertEqual(indices(), {f"model-{i}.index" for i in (4, 5)})

    def test_a_checkpoint_whose_index_is_gone_is_not_the_latest(self):
        m = self.filled(10)
        self.save(m, 1)
        os.remove(f"{self.folder}/model-1.index")
        self.assertIsNone(self.latest(m))

    def test_other_shapes_are_refused(self):
        m = self.filled(11)
        before = m.step(m.reads)
        for changed, shape in (("w", [1]), ("w", [4]), ("w", []), ("global_step", [1]),
                               ("t", [10, 3])):
            with self.subTest(changed, shape=shape), tf.Graph().as_default(), \
                    tf1.Session() as session:
                shapes = {"w": [2, 2], "w/Adagrad": [2, 2], "global_step": [], "t": [5, 3]}
                shapes[changed] = shape
                for name, dims in shapes.items():
                    value = np.zeros(dims, np.int64 if name == "global_step" else np.float32)
                    tf1.get_variable(f"{self.prefix()}/{name}", initializer=value)
                session.run(tf1.global_variables_initializer())
                path = tf1.train.Saver().save(session, f"{self.folder}/theirs")
                with self.assertRaisesRegex(Refused, "(?s)^INVALID_ARGUMENT: .*" + re.escape(
                        str(shape).replace(" ", ""))):
                    m.call("MR_Restore", m.saver, m.running, path.encode())
        self.assertEqual([a.shape for a in m.step(m.reads)], [a.shape for a in before])

    def test_local_steps_of_replicas_are_not_saved(self):
        m = self.filled(12)
        w = m.c.MR_FindVariable(m.builder, f"{self.prefix()}/w".encode())
        step = m.c.MR_FindVariable(m.builder, f"{self.prefix()}/global_step".encode())
        sync = m.mr("NewSyncReplicas", m.mr("NewGradientDescent", m.mr("Scalar", FLOAT, 1)), step,
                    1, 1)
        gradient = (Gradient * 1)()
        m.mr("Gradients", m.add("L2Loss", m.mr("Read", w)), pointers([w]), 1, gradient, 1)
        m.mr("SyncTrain", sync, gradient, 1)
        m.saver = m.mr("NewSaver", None, -1, 1)
        self.save(m, 1)
        names = tf1.train.load_checkpoint(self.folder).get_variable_to_shape_map()
        self.assertEqual({name[len(self.prefix()) + 1:] for name in names},
                         {"w", "w/Adagrad", "t", "global_step"})

    def test_names_with_escapes(self):
        m = self.filled(5)
        path = f"{self.folder}/a \"b\" 'c' \\é\t"
        m.call("MR_Save", m.saver, m.running, path.encode(), -1)
        self.assertEqual(self.latest(m), path)
        self.assertEqual(tf1.train.get_checkpoint_state(self.folder).model_checkpoint_path, path)

    def test_refusals(self):
        m = self.filled(6)
        for arguments, code, words in (
                ((None, m.running, b"x", 1), "INVALID_ARGUMENT", "MR_Save: saver is NULL"),
                ((m.saver, None, b"x", 1), "INVALID_ARGUMENT", "MR_Save: session is NULL"),
                ((m.saver, m.running, None, 1), "INVALID_ARGUMENT", "MR_Save: prefix is NULL")):
            with self.assertRaisesRegex(Refused, f"^{code}: {words}"):
                m.call("MR_Save", *arguments)
        with self.assertRaisesRegex(Refused, "(?s)^NOT_FOUND: .*nowhere"):
            m.call("MR_Restore", m.saver, m.running, f"{self.folder}/nowhere".encode())
        with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: MR_NewSaver: there are no"):
            self.model().mr("NewSaver", None, -1, 1)
        for variables, keep, words in (([1, 1], 1, "MR_NewSaver: variable '.*' is there twice"),
                                       ([1], -1, "MR_NewSaver: max_to_keep is -1")):
            def call(m):
                v = m.variable("v", FLOAT, [], m.c.MR_Zeros())
                m.mr("NewSaver", pointers([v] * len(variables)), len(variables), keep)
            self.refused(words, call)


class TestSummaries(Models):
    def test_events(self):
        folder = tempfile.mkdtemp(prefix="millrace-events-")
        folder += "/é \\ \"\n\x01\udce9"  # the last is a byte of Latin-1
        self.addCleanup(shutil.rmtree, os.path.dirname(folder))
        m = self.model()
        step = m.mr("NewGlobalStep")
        x = m.mr("Placeholder", "x", FLOAT, dims_of([-1]), 1)
        writer = m.mr("NewSummaryWriter", os.fsencode(folder), m.mr("Read", step))
        m.mr("SummarizeScalar", writer, "sum", m.add("Sum", x, axis(m, 1)))
        m.mr("SummarizeHistogram", writer, "parts", x)
        write = m.mr("SummaryWrite", writer)
        count = m.mr("Assign", step, m.add("AddV2", m.mr("Read", step), m.mr("Scalar", INT64, 1)))
        m.step(targets=[m.mr("InitializeAll")])
        m.step(targets=[m.c.MR_SummaryOpen(writer)])
        for i in range(3):
            m.step(targets=[write], feeds=[(x, m.tensor(FLOAT, [2], [i, 10]))])
            m.step(targets=[count])
        m.step(targets=[m.c.MR_SummaryFlush(writer)])
        m.step(targets=[m.c.MR_SummaryClose(writer)])
        name, = os.listdir(folder)
        path = os.fsencode(f"{folder}/{name}")
        found = [(e.step, v.tag, float(tf.make_ndarray(v.tensor)) if v.HasField("tensor") else
                  v.simple_value or v.histo.max)
                 for e in tf1.train.summary_iterator(path) for v in e.summary.value]
        self.assertEqual(sorted(found), sorted(
            (i, tag, value) for i in range(3) for tag, value in (("sum", 10. + i), ("parts", 10.))))
        for words, call in (
                ("MR_NewSummaryWriter: folder is NULL",
                 lambda m: m.mr("NewSummaryWriter", None, m.mr("Scalar", INT64, 1))),
                ("MR_NewSummaryWriter: step '.*' is float",
                 lambda m: m.mr("NewSummaryWriter", "x", m.mr("Scalar", FLOAT, 1))),
                ("MR_SummarizeScalar: writer is NULL",
                 lambda m: m.mr("SummarizeScalar", None, "x", m.mr("Scalar", FLOAT, 1)))):
            self.refused(words, call)


class TestCoordinator(unittest.TestCase):
    def setUp(self):
        self.m = Model()
        self.addCleanup(self.m.close)
        self.coordinator = self.m.c.MR_NewCoordinator()

    def start(self, run):
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        callback = kind(lambda coordinator, arg, status: run(status))
        self.addCleanup(lambda kept: None, callback)
        self.m.call("MR_StartThread", self.coordinator, ctypes.cast(callback, ctypes.c_void_p),
                    None)

    def join(self):
        try:
            self.m.call("MR_Join", self.coordinator)
        finally:
            with self.assertRaisesRegex(Refused, "FAILED_PRECONDITION: MR_StartThread: "):
                self.start(lambda status: None)
            self.m.c.MR_DeleteCoordinator(self.coordinator)

    def test_the_first_error_stops_all(self):
        c, stopped = self.m.c, []
        for _ in range(3):
            self.start(lambda status: stopped.append(c.MR_WaitForStop(self.coordinator, -1)))
        self.assertEqual(c.MR_ShouldStop(self.coordinator), 0)
        self.assertEqual(c.MR_WaitForStop(self.coordinator, 5), 0)
        self.start(lambda status: c.TF_SetStatus(status, 9, b"the first"))
        c.MR_WaitForStop(self.coordinator, -1)
        self.start(lambda status: c.TF_SetStatus(status, 3, b"the second"))
        with self.assertRaisesRegex(Refused, "^FAILED_PRECONDITION: the first$"):
            self.join()
        self.assertEqual(stopped, [1, 1, 1])

    def test_the_end_of_a_queue_is_no_error(self):
        self.start(lambda status: self.m.c.TF_SetStatus(status, 11, b"the end"))
        self.join()

    def test_refusals(self):
        for name, arguments in (("Join", ()), ("StartThread", (None, None))):
            with self.assertRaisesRegex(Refused, f"MR_{name}: coordinator is NULL"):
                self.m.call("MR_" + name, None, *arguments)
        with self.assertRaisesRegex(Refused, "MR_StartThread: run is NULL"):
            self.m.call("MR_StartThread", self.coordinator, None, None)
        self.assertEqual(self.m.c.MR_ShouldStop(None), 1)
        self.m.c.MR_DeleteCoordinator(self.coordinator)


class TestSyncReplicas(Models):
    def setUp(self):
        """Drops the queue of the test before, which has the same name."""
        m = Model()
        self.addCleanup(m.close)
        options = m.c.TF_NewSessionOptions()
        self.addCleanup(m.c.TF_DeleteSessionOptions, options)
        m.c.TF_SetTarget(options, target().encode())
        m.call("TF_Reset", options, None, 0)

    def built(self, n_aggregate, n_replicas):
        """Replicas that learn w and two rows of a table by gradients that are fed."""
        m = self.model()
        w = m.variable("w", FLOAT, [], m.c.MR_Zeros())
        table = m.variable("t", FLOAT, [3], m.c.MR_Zeros())
        m.global_step = m.mr("NewGlobalStep")
        optimizer = m.mr("NewGradientDescent", m.mr("Scalar", FLOAT, 1))
        sync = m.mr("NewSyncReplicas", optimizer, m.global_step, n_aggregate, n_replicas)
        m.feed = m.mr("Placeholder", "g", FLOAT, None, 0)
        rows = m.mr("EmbeddingLookup", pointers([table]), 1, m.array([0, 2], INT32))
        loss = m.add("Mul", m.feed, m.add("AddV2", m.mr("Read", w), m.add("Sum", rows, axis(m, 1))))
        gradients = (Gradient * 2)()
        m.mr("Gradients", loss, None, -1, gradients, 2)
        self.assertEqual([bool(g.indices.oper) for g in gradients], [False, True])
        m.replicas = [m.mr("SyncTrain", sync, gradients, 2) for _ in range(n_replicas)]
        m.update, m.begin = m.mr("SyncUpdate", sync), m.mr("SyncInitialize", sync)
        m.end = m.mr("SyncClose", sync)
        m.reads = [m.mr("Read", v) for v in (w, table, m.global_step)]
        m.step(targets=[m.mr("InitializeAll")])
        m.step(targets=[m.begin])
        m.step(targets=[replica.init for replica in m.replicas])
        return m

    def train(self, m, replica, gradients, together=None):
        """Starts a thread with a session of its own. Its errors are in the list that is returned,
        after the thread. A token is anybody's: replicas that shall take one each per update begin
        their steps `together`, by a threading.Barrier."""
        errors = []

        def run():
            own = Model(m.graph)
            session = own.session(target())
            try:
                for value in gradients:
                    if together:
                        together.wait()
                    own.run(session, [], [(m.feed, own.tensor(FLOAT, [], [value]))],
                            [m.replicas[replica].train])
            except Refused as e:
                errors.append(e.code)
            own.call("TF_DeleteSession", session)
        thread = threading.Thread(target=run)
        thread.start()
        return thread, errors

    def test_means_of_all_replicas(self):
        m = self.built(2, 2)
        together = threading.Barrier(2)
        threads = [self.train(m, i, [4 * i + k for k in range(3)], together) for i in range(2)]
        for k in range(3):
            m.step(targets=[m.update])
        for thread, errors in threads:
            thread.join()
            self.assertEqual(errors, [])
        w, table, step = m.step(m.reads)
        total = -sum((k + 4 + k) / 2 for k in range(3))
        self.assertEqual((float(w), list(table), int(step)), (total, [total, 0, total], 3))

    def test_a_backup_worker_is_not_waited_for(self):
        m = self.built(1, 2)
        thread, errors = self.train(m, 0, [1, 2])
        m.step(targets=[m.update])
        m.step(targets=[m.update])
        thread.join()
        late, late_errors = self.train(m, 1, [100])  # for step 0, which is over: dropped
        late.join()
        self.assertEqual((errors, late_errors), ([], []))
        w, _, step = m.step(m.reads)
        self.assertEqual((float(w), int(step)), (-3, 2))

    def test_shared_names_are_those_of_tensorflow(self):
        m = self.built(1, 1)

        def shared_name(oper):
            text = ctypes.create_string_buffer(200)
            m.call("TF_OperationGetAttrString", oper, b"shared_name", text, 200)
            return text.value.decode()
        kinds = {o: m.c.TF_OperationOpType(o).decode() for o in m.operations()}
        found = {kind: shared_name(o) for o, kind in kinds.items()
                 if "Conditional" in kind or kind == "FIFOQueueV2"}
        with tf.Graph().as_default() as graph:
            with tf1.variable_scope(self.id().split(".")[-1]):
                w = tf1.get_variable("w", [], use_resource=True)
                table = tf1.get_variable("t", [3], use_resource=True)
                rows = tf1.nn.embedding_lookup(table, [0, 2])
                tf1.train.SyncReplicasOptimizer(
                    tf1.train.GradientDescentOptimizer(1.), 1, 1).minimize(
                        w + tf.reduce_sum(rows), tf1.train.get_or_create_global_step())
            wanted = {o.type: o.get_attr("shared_name").decode() for o in graph.get_operations()
                      if "Conditional" in o.type or o.type == "FIFOQueueV2"}
        self.assertEqual({k.replace("Resource", ""): v for k, v in wanted.items()}, found)

    def test_a_replica_that_lacks_a_gradient_is_refused(self):
        m = self.model()
        variables = [m.variable(name, FLOAT, [], m.c.MR_Zeros()) for name in "uv"]
        gradients = (Gradient * 2)()
        m.mr("Gradients", m.add("AddV2", *[m.mr("Read", v) for v in variables]), None, -1,
             gradients, 2)
        sync = m.mr("NewSyncReplicas", m.mr("NewGradientDescent", m.mr("Scalar", FLOAT, 1)),
                    m.mr("NewGlobalStep"), 2, 2)
        m.mr("SyncTrain", sync, gradients, 2)
        with self.assertRaisesRegex(Refused, "^INVALID_ARGUMENT: MR_SyncTrain: replica 1 has no "
                                    "gradient of '.*/v', which the first has"):
            m.mr("SyncTrain", sync, gradients, 1)

    def test_the_end(self):
        m = self.built(2, 2)
        thread, errors = self.train(m, 0, [1])
        m.step(targets=[m.end])
        thread.join()
        self.assertEqual(errors, ["OUT_OF_RANGE"])

    def test_refusals(self):
        def sync(m, n=1):
            step = m.mr("NewGlobalStep")
            return m.mr("NewSyncReplicas", m.mr("NewGradientDescent", m.mr("Scalar", FLOAT, 1)),
                        step, n, 1)
        for words, call in (
                ("MR_NewSyncReplicas: optimizer is NULL",
                 lambda m: m.mr("NewSyncReplicas", None, None, 1, 1)),
                ("MR_NewSyncReplicas: num_to_aggregate is 0", lambda m: sync(m, 0)),
                ("MR_SyncTrain: gradients is NULL",
                 lambda m: m.mr("SyncTrain", sync(m), None, 1)),
                ("MR_SyncTrain: no variable has a gradient",
                 lambda m: m.mr("SyncTrain", sync(m), (Gradient * 1)(), 1)),
                ("MR_SyncUpdate: MR_SyncTrain has not been called",
                 lambda m: m.mr("SyncUpdate", sync(m))),
                ("MR_SyncClose: sync is NULL", lambda m: m.mr("SyncClose", None))):
            with self.subTest(words):
                self.refused(words, call)


def minimize(f, x, history, n_steps):
    """L-BFGS in numpy: the points and the losses of all steps. f(x) is (loss, gradient)."""
    s, y, out, x_before, g_before = [], [], [], None, None
    for _ in range(n_steps):
        loss, g = f(x)
        if x_before is not None and (x - x_before) @ (g - g_before) > 0:
            s, y = [*s, x - x_before][-history:], [*y, g - g_before][-history:]
        q, alphas = g, []
        for si, yi in zip(s[::-1], y[::-1]):
            alphas.append(si @ q / (si @ yi))
            q = q - alphas[-1] * yi
        q = q * (s[-1] @ y[-1] / (y[-1] @ y[-1]) if s else 1 / np.linalg.norm(g))
        for si, yi, alpha in zip(s, y, alphas[::-1]):
            q = q + si * (alpha - yi @ q / (si @ yi))
        x_before, g_before, length = x, g, 1.
        while f(x - length * q)[0] > loss - 1e-4 * length * (g @ q):
            length /= 2
        x = x - length * q
        out.append((f(x)[0], x))
    return out


class TestLbfgs(Models):
    def test_steps_are_those_of_numpy(self):
        """Rosenbrock's valley, as a vector and a scalar variable of two dtypes."""
        def valley(x):
            a, b = x[0], x[1]
            return 100 * (b - a * a)**2 + (1 - a)**2, np.array(
                [-400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a)])
        wanted = minimize(valley, np.array([-1.2, 1.]), 5, 45)
        self.assertLess(wanted[-1][0], 1e-12)
        for dtype, n_steps, digits in ((DOUBLE, 30, 6), (FLOAT, 6, 3)):
            m = self.model()
            m.mr("SetPrefix", f"lbfgs{dtype}")
            a = m.variable("a", dtype, [], m.c.MR_Fill(-1.2))
            b = m.variable("b", dtype, [1], m.c.MR_Fill(1))
            one, hundred = m.mr("Scalar", dtype, 1), m.mr("Scalar", dtype, 100)
            up = m.add("Square", m.add("Sub", m.mr("Read", b), m.add("Square", m.mr("Read", a))))
            away = m.add("Square", m.add("Sub", one, m.mr("Read", a)))
            loss = m.add("Sum", m.add("AddV2", m.add("Mul", hundred, up), away), axis(m, 1))
            lbfgs = m.mr("NewLbfgs", loss, None, -1, 5)
            reads = [m.mr("Read", v) for v in (a, b)]
            m.step(targets=[m.mr("InitializeAll")])
            step = lambda: m.call("MR_LbfgsStep", lbfgs, m.running, None, None, 0)
            for value, point in wanted[:n_steps]:
                self.assertAlmostEqual(step(), value, digits)
                np.testing.assert_allclose(np.concatenate([np.ravel(r) for r in m.step(reads)]),
                                           point, 10.**-digits, 10.**-digits)
            for _ in range(30):
                last = step()
            self.assertLess(last, 1e-12 if dtype == DOUBLE else 1e-4)
            self.assertLessEqual(step(), last)

    def test_variables_are_read_before_they_are_set(self):
        m = self.model()
        v = m.variable("v", DOUBLE, [3], m.c.MR_Ones())
        m.mr("NewLbfgs", m.add("L2Loss", m.mr("Read", v)), None, -1, 5)
        nodes = {node.name: node for node in tf1.GraphDef.FromString(m.graph_def()).node}

        def needed(name):
            seen, stack = set(), [name]
            while stack:
                name = stack.pop().lstrip("^").split(":")[0]
                if name not in seen:
                    seen.add(name)
                    stack.extend(nodes[name].input)
            return seen

        def of(op, variable, names):
            return {name for name in names
                    if nodes[name].op == op and nodes[name].input[0].endswith(variable)}
        steps = [needed(name) for name, node in nodes.items() if node.op == "NoOp"]
        n_reads = 0
        for step in steps:
            for variable in ("/lbfgs/s", "/lbfgs/y", "/lbfgs/x", "/lbfgs/g"):
                for write in of("AssignVariableOp", variable, step):
                    reads = of("ReadVariableOp", variable, step)
                    self.assertLessEqual(reads, needed(write))
                    n_reads += len(reads)
        self.assertEqual(n_reads, 4)

    def test_rows_and_feeds(self):
        """A least-squares problem whose variable is gathered, and whose data is fed."""
        m = self.model()
        table = m.variable("t", DOUBLE, [3, 2], m.c.MR_Zeros())
        wanted = m.mr("Placeholder", "wanted", DOUBLE, dims_of([4, 2]), 2)
        rows = m.mr("EmbeddingLookup", pointers([table]), 1, m.array([0, 1, 2, 2], INT32))
        lbfgs = m.mr("NewLbfgs", m.add("L2Loss", m.add("Sub", rows, wanted)), None, -1, 10)
        read = m.mr("Read", table)
        m.step(targets=[m.mr("InitializeAll")])
        values = pointers([m.tensor(DOUBLE, [4, 2], [1, 2, 3, 4, 5, 6, 7, 10])])
        for _ in range(12):
            loss = m.call("MR_LbfgsStep", lbfgs, m.running, (Output * 1)(wanted), values, 1)
        m.c.TF_DeleteTensor(values[0])
        self.assertAlmostEqual(loss, 5, 9)
        np.testing.assert_allclose(m.step([read])[0], [[1, 2], [3, 4], [6, 8]], 1e-6)

    def test_refusals(self):
        v = lambda m, dtype=FLOAT: m.mr("Read", m.variable("v", dtype, [], m.c.MR_Zeros()))
        for words, call in (
                ("MR_NewLbfgs: loss is NULL", lambda m: m.mr("NewLbfgs", Output(), None, -1, 5)),
                ("MR_NewLbfgs: the loss is int32",
                 lambda m: m.mr("NewLbfgs", v(m, INT32), None, -1, 5)),
                ("MR_NewLbfgs: history is 1", lambda m: m.mr("NewLbfgs", v(m), None, -1, 1)),
                ("MR_NewLbfgs: the loss does not depend on variable '.*u'",
                 lambda m: (m.variable("u", FLOAT, [], m.c.MR_Zeros()),
                            m.mr("NewLbfgs", v(m), None, -1, 5)))):
            with self.subTest(words):
                self.refused(words, call)
        with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: MR_LbfgsStep: lbfgs is NULL"):
            self.model().call("MR_LbfgsStep", None, None, None, None, 0)


def training_prototypes():
    """{name: (result, [(type, text of the argument)])} of the helpers."""
    out = {}
    for header in c_library.HEADERS:
        if header.startswith("training"):
            with open(os.path.join(c_library.ROOT, "client", header), encoding="utf-8") as f:
                text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
            for name, arguments in re.findall(r"\b(MR_\w+)\(([^;{}]*)\);", text):
                if name in c_library.prototypes():
                    result, types = c_library.prototypes()[name]
                    out[name] = result, list(zip(types, c_library.split_arguments(arguments)))
    return out


def axis(m, rank):
    return m.array(list(range(rank)), INT32)


if __name__ == "__main__":
    unittest.main()
