"""Variables as real programs use them: both kinds, on parameter servers, partitioned, averaged,
sparse updates, checks of initialisation."""

import numpy as np
from programs import PS, TASKS, WORKER1, Run, tf, tf1

KINDS = {"ref": False, "resource": True}


def _variable(name, value, resource, **keywords):
    return tf1.get_variable(name, initializer=tf.constant(value), use_resource=resource, **keywords)


def _lifecycle(resource, device):
    def build():
        with tf.device(device):
            v = _variable("v", np.arange(6, dtype=np.float32).reshape(2, 3), resource)
        init, read = v.initializer, tf.identity(v)
        grow, shrink = tf1.assign_add(v, tf.ones([2, 3])), tf1.assign_sub(v, 2 * tf.ones([2, 3]))
        put = tf1.assign(v, tf.fill([2, 3], 7.0))
        checks = [tf1.is_variable_initialized(v), tf1.report_uninitialized_variables()]
        return [Run(checks), Run(v), Run(init), Run(checks), Run([v, read]), Run(grow), Run(shrink),
                Run(v), Run(put), Run([read, v]), Run(init), Run(v)]

    return build


def _read_after_write(resource):
    def build():
        with tf.device(PS):
            v = _variable("v", 1.0, resource)
        # a copy: TensorFlow's Identity of a ref is the variable's own buffer
        before = tf.add(v.read_value() if resource else v, 0.0, name="before")
        with tf.control_dependencies([before]):
            with tf.control_dependencies([tf1.assign_add(v, 10.0)]):
                after = tf.identity(v.read_value(), name="after")
        with tf.device(WORKER1):
            total = after * 2 + before
        return [Run(v.initializer), Run([before, after, total]), Run([after, total]), Run(v)]

    return build


def _update_then_use(resource, device):
    """What comes under control of an update uses the new value: by way of v/read too, which no
    update controls."""
    def build():
        with tf.device(device):
            v = _variable("v", 1.0, resource)
            average = tf1.train.ExponentialMovingAverage(0.5)
            with tf.control_dependencies([tf1.assign_add(v, 10.0)]):
                follow = average.apply([v])
            with tf.control_dependencies([tf1.assign_add(v, 100.0)]):
                used, copied = v * 1.0, tf.identity(v)
        return [Run(tf1.global_variables_initializer()), Run(follow), Run(average.average(v)),
                Run([used, copied]), Run(v)]

    return build


def _scatter(resource, name):
    def build():
        with tf.device(PS):
            v = _variable("v", np.arange(12, dtype=np.float32).reshape(6, 2), resource)
        index, update = tf1.placeholder(tf.int32, [None]), tf1.placeholder(tf.float32, [None, 2])
        op = getattr(tf1, "scatter_" + name)(v, index, update)
        feeds = {index: [4, 0, 4], update: [[1, 2], [3, 4], [5, 6]]}
        if name in ("update",):
            feeds = {index: [4, 0], update: [[1, 2], [3, 4]]}
        out_of_range = {index: [1, 9], update: [[1, 2], [3, 4]]}
        return [Run(v.initializer), Run(op, feeds), Run(v), Run(op, feeds), Run(v),
                Run(tf.group(op), out_of_range)]

    return build


def _dtype(resource, dtype, value):
    def build():
        v = tf1.get_variable("v", initializer=tf.constant(value, dtype), use_resource=resource)
        return [Run(v.initializer), Run(v), Run(tf1.assign(v, tf.reverse(v, [0]))),
                Run([v, tf.shape(v)])]

    return build


def _strings(resource):
    def build():
        with tf.device(PS):
            v = tf1.get_variable("v",
                                 initializer=tf.constant(
                                     ["a", "", "longer than any inline string would be"]),
                                 use_resource=resource)
        joined = tf.strings.join([v, tf.constant(["x", "y", "z"])], separator="-")
        fed = tf1.placeholder(tf.string, [None])
        return [Run(v.initializer), Run([v, joined]),
                Run(tf1.assign(v, fed), {fed: [b"\0\1", b"q", b""]}),
                Run([joined, tf.strings.length(joined)])]

    return build


def _shape_changes(resource):
    def build():
        v = tf1.get_variable("v", initializer=tf.constant([1.0, 2.0]), validate_shape=False,
                             use_resource=resource)
        x = tf1.placeholder(tf.float32)
        put = tf1.assign(v, x, validate_shape=False)
        return [Run(v.initializer), Run(tf.shape(v)), Run(put, {x: np.ones([3, 2])}),
                Run([v, tf.shape(v)]), Run(put, {x: 5.0}), Run(v)]

    return build


def _count_up_to():
    v = tf1.get_variable("v", initializer=tf.constant(0), use_resource=False)
    count = v.count_up_to(3)
    return [Run(v.initializer)] + [Run(count)] * 4 + [Run(v)]


def _initialized_value():
    a = _variable("a", [1.0, 2.0], False)
    b = tf1.get_variable("b", initializer=a.initialized_value() * 3, use_resource=False)
    return [Run(tf1.global_variables_initializer()), Run([a, b])]


def _partitioned(resource, strategy):
    def build():
        values = np.arange(40, dtype=np.float32).reshape(10, 4)

        def initializer(shape, dtype=None, partition_info=None):
            at = partition_info.var_offset if partition_info else [0, 0]
            return values[at[0] : at[0] + shape[0]]

        with tf1.device(tf1.train.replica_device_setter(
            cluster={"ps": ["a"], "worker": ["b", "c"]})):
            table = tf1.get_variable("t", [10, 4], initializer=initializer,
                                     partitioner=tf1.fixed_size_partitioner(3),
                                     use_resource=resource)
        ids = tf1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids) if strategy == "div" else tf1.nn.embedding_lookup(
            list(table), ids, partition_strategy="mod")
        whole = tf.convert_to_tensor(table)
        runs = [Run(tf1.global_variables_initializer()), Run(whole)]
        return runs + ([Run([rows, tf.shape(rows)], {ids: x}) for x in ([0, 9, 3, 3], [], [5])]
                       if strategy == "mod" else [Run(list(table))])

    return build


def _sparse_lookup(resource):
    def build():
        with tf.device(PS):
            table = tf1.get_variable("t",
                                     initializer=np.arange(30, dtype=np.float32).reshape(10, 3),
                                     use_resource=resource)
        ids = tf1.sparse_placeholder(tf.int64)
        sums = [tf1.nn.embedding_lookup_sparse(table, ids, None, combiner=how)
                for how in ("sum", "mean", "sqrtn")]
        value = tf1.SparseTensorValue([[0, 0], [0, 1], [1, 0], [2, 1]],
                                      np.array([1, 3, 9, 0], np.int64), [3, 2])
        return [Run(table.initializer), Run(sums, {ids: value})]

    return build


def _moving_average(resource):
    def build():
        v = _variable("v", [1.0, 5.0], resource)
        average = tf1.train.ExponentialMovingAverage(0.9)
        step, grow = average.apply([v]), tf1.assign_add(v, [1.0, -1.0])
        return [Run(tf1.global_variables_initializer())] + [Run(grow), Run(step)] * 2 + [
            Run([average.average(v), v])]

    return build


def _replica_setter(resource):
    def build():
        cluster = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
        with tf1.device(tf1.train.replica_device_setter(cluster=cluster,
                worker_device="/job:worker/task:1")):
            step = tf1.train.create_global_step() if not resource else tf1.get_variable(
                "global_step", [], tf.int64, tf1.zeros_initializer(), use_resource=True)
            w = tf1.get_variable("w", [3, 2], initializer=tf1.constant_initializer(0.5),
                                 use_resource=resource)
            x = tf1.placeholder(tf.float32, [None, 3])
            y = tf.matmul(x, w)
            loss = tf.reduce_mean(tf.square(y - 1.0))
            train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        feeds = {x: np.arange(6).reshape(2, 3) / 6}
        return [Run(tf1.global_variables_initializer())] + [Run([train, loss], feeds)] * 3 + [
            Run([w, step])]

    return build


def _partial_names():
    """Devices that name only a part: "/cpu:0", "/job:worker", "/task:1"."""
    out, runs = [], []
    for i, device in enumerate(("/cpu:0", "/job:worker", "/task:0", "/job:ps", "/device:CPU:0",
                                "/job:worker/task:1/cpu:0", "/replica:0", "")):
        with tf.device(device):
            v = tf1.get_variable(f"v{i}", initializer=float(i), use_resource=bool(i % 2))
            out.append(v + 1)
    runs.append(Run(tf1.global_variables_initializer()))
    return runs + [Run(out), Run(out[3]), Run(tf.add_n(out))]


def _local_variables():
    a = tf1.get_variable("a", initializer=2.0, collections=[tf1.GraphKeys.LOCAL_VARIABLES])
    b = tf1.get_variable("b", initializer=3.0)
    missing = tf1.report_uninitialized_variables(tf1.global_variables() + tf1.local_variables())
    return [Run(missing), Run(tf1.local_variables_initializer()), Run(missing),
            Run(tf1.global_variables_initializer()), Run([missing, a, b])]


def _colocated():
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=False)
    with tf.device(WORKER1):
        with tf1.colocate_with(v):
            near = tf.identity(v) * 2
        far = tf.identity(v) * 3
    with tf1.colocate_with(near.op):
        third = near + far
    return [Run(v.initializer), Run([near, far, third]), Run(third)]


def _across_tasks(resource):
    """A variable on each task, updated from the others."""

    def build():
        variables, updates = [], []
        for i, task in enumerate(TASKS):
            with tf.device(task):
                variables.append(_variable(f"v{i}", np.full([4], i, np.float32), resource))
        for i, task in enumerate(TASKS):
            with tf.device(task):
                updates.append(tf1.assign_add(variables[(i + 1) % 3], variables[i].initial_value
                                              + float(i)))
        return [Run(tf1.global_variables_initializer()), Run(tf.group(*updates)), Run(variables),
                Run(updates[0]), Run(tf.add_n([tf.identity(v) for v in variables]))]

    return build


def _use_of_ref_output():
    """Ref edges: fetch of a ref, Identity of a ref, assign of an assign, shape of a ref."""
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
        twice = tf1.assign(tf1.assign(v, [5.0, 6.0]), [7.0, 8.0])
        chained = tf1.assign_add(tf1.assign_add(v, [1.0, 1.0]), [1.0, 1.0])
    with tf.device(WORKER1):
        shape = tf.shape(v)
        rank = tf.rank(v._ref())  # noqa: SLF001
    # noqa: SLF001
    return [Run(v.initializer), Run([v._ref(), shape, rank]), Run(twice), Run(v), Run(chained),
            Run(v.op.outputs[0])]


def cases():
    for kind, resource in KINDS.items():
        for where, device in (("anywhere", None), ("ps", PS), ("worker1", WORKER1)):
            yield f"variable/{kind}/lifecycle/{where}", _lifecycle(resource, device)
            yield f"variable/{kind}/update_then_use/{where}", _update_then_use(resource, device)
        yield f"variable/{kind}/read_after_write", _read_after_write(resource)
        for name in ("update", "add", "sub", "mul", "div", "min", "max"):
            yield f"variable/{kind}/scatter_{name}", _scatter(resource, name)
        for dtype, value in (("int32", [1, 2]), ("int64", [1, 2]), ("float64", [0.5]),
                             ("bool", [True, False]), ("complex64", [1j]), ("uint8", [3, 4]),
                             ("float16", [2.5])):
            yield f"variable/{kind}/dtype_{dtype}", _dtype(resource, dtype, value)
        yield f"variable/{kind}/strings", _strings(resource)
        yield f"variable/{kind}/shape_changes", _shape_changes(resource)
        for strategy in ("mod", "div"):
            yield f"variable/{kind}/partitioned_{strategy}", _partitioned(resource, strategy)
        yield f"variable/{kind}/embedding_lookup_sparse", _sparse_lookup(resource)
        yield f"variable/{kind}/moving_average", _moving_average(resource)
        yield f"variable/{kind}/replica_device_setter", _replica_setter(resource)
        yield f"variable/{kind}/across_tasks", _across_tasks(resource)
    yield "variable/count_up_to", _count_up_to
    yield "variable/initialized_value", _initialized_value
    yield "variable/partial_device_names", _partial_names
    yield "variable/local_variables", _local_variables
    yield "variable/colocate_with", _colocated
    yield "variable/ref_edges", _use_of_ref_output
