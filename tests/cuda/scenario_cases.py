"""Checks of run_ops.py that take more than one op on each device: numbers whose distribution is
compared, what a GPU says of wrong entries, lists in variables, ops that TensorFlow's CPU lacks."""
import itertools
import os
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

from op_cases import HALF_TO_DOUBLE  # noqa: E402

RAW, tf1 = tf.raw_ops, tf.compat.v1


def run_on(target, device, make, *operands):
    """What an op gives on one device."""
    with tf1.Graph().as_default() as graph, tf.device(f"/job:worker/task:0/device:{device}:0"):
        places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
        made = make(*places)
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            return session.run(made, dict(zip(places, operands)))


# mean, deviation, lower and upper bound: by normals, by uniform numbers and by exponential ones,
# from the lower tail, and with one bound
BOUNDS = [(1, 2, -4, 6), (0, 1, -0.5, 0.25), (1, 0.5, 2.5, 9), (0, 3, -30, -6),
          (-1, 1, -numpy.inf, 0), (2, 1, 1, numpy.inf)]


def distribution_failures(target):
    """ParameterizedTruncatedNormal, whose numbers are not the CPU's: it must have their
    distribution, by the statistic of Kolmogorov and Smirnov for 1 of 1000 wrong alarms."""
    n, failures = 3000, []
    most = 1.95 * (2 / n) ** 0.5
    wrong = [(0, 0, -1, 1), (0, 1, 1, 1), (0, 1, -numpy.inf, numpy.inf), (0, numpy.nan, 0, 1)]
    for dtype in HALF_TO_DOUBLE:
        def make(*parameters):
            names = ("means", "stdevs", "minvals", "maxvals")
            return RAW.ParameterizedTruncatedNormal(
                shape=tf.constant([parameters[0].shape[0], n]), seed=3, seed2=7,
                **dict(zip(names, parameters)))
        columns = numpy.array(BOUNDS, tf.as_dtype(dtype).as_numpy_dtype).T
        cpu, gpu = (run_on(target, device, make, *columns) for device in ("CPU", "GPU"))
        for (mean, deviation, low, high), x, y in zip(BOUNDS, cpu, gpu):
            name = f"ParameterizedTruncatedNormal/{dtype}/{mean},{deviation},{low},{high}"
            both = numpy.sort(numpy.concatenate([x, y]))
            counts = [numpy.searchsorted(numpy.sort(z), both, "right") for z in (x, y)]
            distance = numpy.abs(counts[0] - counts[1]).max() / n
            slack = 2 ** -8 if dtype == "half" else 0
            if not (numpy.all(y >= low - slack) and numpy.all(y <= high + slack)):
                failures.append(f"{name}: {y.min()} to {y.max()}")
            if distance > most:
                failures.append(f"{name}: a distance of {distance:.4f} from the CPU's numbers")
        columns = numpy.array(wrong + BOUNDS[:1], tf.as_dtype(dtype).as_numpy_dtype).T
        is_nan = numpy.isnan(run_on(target, "GPU", make, *columns))
        if not is_nan[:-1].all() or is_nan[-1].any():
            failures.append(f"ParameterizedTruncatedNormal/{dtype}: wrong parameters give "
                            f"{is_nan.mean(1)} of NaN")
    return failures


def entry_failures(target):
    """Entries out of range, repeated or out of order: what a GPU says, or does, about them."""
    def product(at, b):
        return RAW.SparseTensorDenseMatMul(a_indices=at, a_values=tf.ones([3]), b=b,
                                           a_shape=tf.constant([3, 2], tf.int64))

    def dense(at):
        return RAW.SparseToDense(sparse_indices=at, output_shape=tf.constant([400, 5], at.dtype),
                                 sparse_values=tf.constant(2.0), default_value=tf.constant(0.0))

    failures = []
    at = numpy.array([[0, 1], [1, 2], [5, 0]])  # entry 1 has no row of b, entry 2 none of a
    found = run_on(target, "GPU", product, at, numpy.array([[1, 2], [3, 4]], "float32"))
    if not numpy.array_equal(found, [[3, 4], [numpy.nan] * 2, [0, 0]], equal_nan=True):
        failures.append(f"SparseTensorDenseMatMul/out of range: {found.tolist()}")
    for index in ("int32", "int64"):
        right = numpy.stack(numpy.unravel_index(numpy.arange(0, 2000, 2), (400, 5)), 1)
        for where, entry in ((700, (-1, 2)), (700, (400, 0)), (999, (399, 5)), (0, (0, -7)),
                             (500, tuple(right[499])), (500, tuple(right[3])), (1, (0, 0))):
            at = right.astype(index)
            at[where], at[-1] = entry, (at[-1] if where == 999 else (9, 9))
            texts = []
            for device in ("CPU", "GPU"):
                try:
                    run_on(target, device, dense, at)
                    texts.append("no error")
                except tf.errors.InvalidArgumentError as error:
                    texts.append(re.search(r"indices\[\d+\] is [^\n\[]*", error.message)[0])
            if texts[0] != texts[1] or "indices" not in texts[0]:
                failures.append(f"SparseToDense/{index}/{entry} at {where}: {texts}")
    return failures


def optimizer_failures(target):
    """ProximalAdagrad of half, which TensorFlow's CPU does not have, beside NumPy."""
    failures, rows = [], numpy.array([4, 0, 2])
    rng = numpy.random.default_rng(3)
    var, grad = (rng.normal(size=(5, 3)).astype("float16") for _ in range(2))
    accum = rng.uniform(0.5, 1, (5, 3)).astype("float16")
    for is_sparse, is_resource in itertools.product((False, True), (False, True)):
        at = rows if is_sparse else numpy.arange(5)
        g = grad[:3] if is_sparse else grad
        with tf1.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
            values = [tf1.Variable(x, use_resource=is_resource) for x in (var, accum)]
            op = ("Resource" if is_resource else "") + ("Sparse" if is_sparse else "")
            extra = {"indices": tf.constant(rows)} if is_sparse else {}
            refs = [v.handle if is_resource else v._ref() for v in values]
            lr, l1, l2 = (tf.constant(x, tf.float16) for x in (0.1, 0.2, 0.3))
            step = getattr(RAW, op + "ApplyProximalAdagrad")(
                var=refs[0], accum=refs[1], lr=lr, l1=l1, l2=l2, grad=tf.constant(g), **extra)
            config = tf1.ConfigProto(allow_soft_placement=False)
            with tf1.Session(target, graph=graph, config=config) as session:
                session.run([v.initializer for v in values])
                session.run(step.op if hasattr(step, "op") else step)
                found = session.run([v.read_value() for v in values])
        x, a, g = (z.astype("float64") for z in (var[at], accum[at], g))
        a = a + g * g
        rate = 0.1 / numpy.sqrt(a)
        x = x - g * rate
        x = numpy.sign(x) * numpy.maximum(numpy.abs(x) - rate * 0.2, 0) / (1 + rate * 0.3)
        expected = [var.astype("float64"), accum.astype("float64")]
        expected[0][at], expected[1][at] = x, a
        if not all(numpy.allclose(f, e, 3e-3, 1e-3) for f, e in zip(found, expected)):
            failures.append(f"ProximalAdagrad/half/{op}: {found} instead of {expected}")
    return failures


def list_of(*values):
    made = RAW.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.float32)
    for value in values:
        made = RAW.TensorListPushBack(input_handle=made, tensor=value)
    return made


def stack(made):
    return RAW.TensorListStack(input_handle=made, element_shape=[3], element_dtype=tf.float32)


def list_variable_failures(target, index):
    """A variable of lists that a GPU keeps, with indices of a type."""
    with tf1.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
        x, at = tf1.placeholder(tf.float32, [3]), tf1.placeholder(index, [])
        cpu = "/job:worker/task:0/device:CPU:0"  # for ops that GPUs have not for variants
        three = [list_of(x * 2), list_of(x * 3), list_of(x * 4)]
        with tf.device(cpu):
            lists = RAW.Pack(values=three)
        v = RAW.VarHandleOp(dtype=tf.variant, shape=[3])
        assign = RAW.AssignVariableOp(resource=v, value=lists)
        kept = RAW.ReadVariableOp(resource=v, dtype=tf.variant)
        read = stack(RAW.ResourceGather(resource=v, indices=at, dtype=tf.variant))
        with tf.control_dependencies([kept]):  # so that the update has to copy the variants
            update = RAW.ResourceScatterUpdate(resource=v, indices=at, updates=list_of(x * 5))
        with tf.control_dependencies([update]):
            former = tf.identity(kept)
            pair = RAW.ResourceGather(resource=v, indices=tf.stack([at, 0]), dtype=tf.variant)
        with tf.device(cpu):
            parts = RAW.Unpack(value=former, num=3) + RAW.Unpack(value=pair, num=2)
        updated = [stack(made) for made in parts]
    value, failures = numpy.arange(3, dtype="float32"), []
    config = tf1.ConfigProto(allow_soft_placement=False)
    with tf1.Session(target, graph=graph, config=config) as session:
        session.run(assign, {x: value})
        found = [session.run(read, {at: 1})] + session.run(updated, {x: value, at: 2})
        found.append(session.run(read, {at: 2}))
        for name, wrong in (("ResourceGather", read), ("ResourceScatterUpdate", update)):
            try:
                failures.append(f"{name}/variant: {session.run(wrong, {x: value, at: 3})}")
            except tf.errors.InvalidArgumentError:
                pass
    if not numpy.array_equal(found, [[value * k] for k in (3, 2, 3, 4, 5, 2, 5)]):
        failures.append(f"ResourceGather and ResourceScatterUpdate/variant: {found}")
    return failures


def variant_failures(target):
    """Ops that hand lists on, whose tensors stay in the GPU's memory."""
    ops = {"Conj": lambda made: RAW.Conj(input=made),
           "EnsureShape": lambda made: RAW.EnsureShape(input=made, shape=[]),
           "PlaceholderWithDefault": lambda made: RAW.PlaceholderWithDefault(input=made, shape=[])}
    failures, x = [], numpy.arange(3, dtype="float32")
    for name, op in ops.items():
        found = run_on(target, "GPU", lambda x, op=op: stack(op(list_of(x * 2, x + 1))), x)
        if not numpy.array_equal(found, [x * 2, x + 1]):
            failures.append(f"{name}/variant: {found}")

    def wrong(x):
        hidden = RAW.PlaceholderWithDefault(input=list_of(x), shape=None)
        return stack(RAW.EnsureShape(input=hidden, shape=[1]))
    try:
        failures.append(f"EnsureShape/variant: {run_on(target, 'GPU', wrong, x)}")
    except tf.errors.InvalidArgumentError:
        pass
    return failures + [failure for index in (tf.int32, tf.int64)
                       for failure in list_variable_failures(target, index)]


def device_failures(target):
    """Ops that a GPU has and TensorFlow's CPU has not, and those that only hand values over."""
    failures = []
    x = numpy.array([5, 1, -1, 0, -7, 1 << 40])
    for op in (RAW.Reciprocal, RAW.Inv):
        found = run_on(target, "GPU", lambda x, op=op: op(x=x), x)
        if found.tolist() != [0, 1, -1, -1, 0, 0]:
            failures.append(f"Reciprocal/int64: {found}")

    def relu(x):
        return tf.bitcast(RAW.Relu(features=tf.bitcast(x, tf.qint8)), tf.int8)
    for shape in ([256], [3, 5, 4], [0], [2, 2]):
        x = numpy.resize(numpy.arange(-128, 128), shape).astype("int8")
        found = run_on(target, "GPU", relu, x)
        if not numpy.array_equal(found, numpy.maximum(x, 0)):
            failures.append(f"Relu/qint8/{shape}: {found}")
    try:
        failures.append(f"Relu/qint8: {run_on(target, 'GPU', relu, x.reshape(-1)[:3])}")
    except tf.errors.InvalidArgumentError as error:
        if "multiple of 4" not in error.message:
            failures.append(f"Relu/qint8: {error.message}")
    x = numpy.arange(6, dtype="float32").reshape(2, 3)
    if not numpy.array_equal(run_on(target, "GPU", lambda x: RAW.Copy(input=x) * 2, x), x * 2):
        failures.append("Copy")
    zeros = run_on(target, "GPU", lambda x: RAW.FakeParam(dtype=tf.float32, shape=[2, 3]) + x, x)
    if not numpy.array_equal(zeros, x):
        failures.append(f"FakeParam: {zeros}")

    def synced(x):
        product = x * 3
        with tf.control_dependencies([product]):
            wait = RAW.SyncDevice()
        with tf.control_dependencies([wait]):
            return tf.identity(product)
    if not numpy.array_equal(run_on(target, "GPU", synced, x), x * 3):
        failures.append("SyncDevice")
    gpu, cpu = (f"/job:worker/replica:0/task:0/device:{device}:0" for device in ("GPU", "CPU"))
    with tf1.Graph().as_default() as graph, tf.device(gpu):
        handle = RAW.GetSessionHandle(value=tf.constant(x) + 1)
        place = tf1.placeholder(tf.string)
        kept = RAW.GetSessionTensor(handle=place, dtype=tf.float32) * 2
        delete = RAW.DeleteSessionTensor(handle=place)
        with tf.device(cpu):
            moved = RAW.GetSessionTensor(handle=place, dtype=tf.float32)
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            made = session.run(handle)  # lives, or the tensor would be deleted
            name = made.handle
            if gpu not in str(name):
                failures.append(f"GetSessionHandle: {name}")
            if not numpy.array_equal(session.run(kept, {place: name}), (x + 1) * 2):
                failures.append("GetSessionTensor")
            try:
                failures.append(f"GetSessionTensor on a CPU: {session.run(moved, {place: name})}")
            except tf.errors.InvalidArgumentError as error:
                if "is not in the memory of" not in error.message:
                    failures.append(f"GetSessionTensor on a CPU: {error.message}")
            session.run(delete, {place: name})
            try:
                failures.append(f"GetSessionTensor/deleted: {session.run(kept, {place: name})}")
            except tf.errors.InvalidArgumentError:
                pass
    return failures
