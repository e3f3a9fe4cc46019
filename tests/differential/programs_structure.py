"""Feeds, fetches, names and devices: what a client may ask for in one run, and how graphs of many
tasks are connected."""

import numpy as np
from programs import PS, TASKS, WORKER0, WORKER1, Run, tf, tf1


def _fetch_structures():
    a, b = tf.constant(1.0, name="a"), tf.constant([1, 2], name="b")
    sparse = tf.SparseTensor([[0, 1], [2, 0]], [5.0, 6.0], [3, 2])
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([0, 3]), tf.constant([4, 1]))
    bare = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]))
    op = tf.no_op(name="op")
    return [
        Run(a), Run([a, b]), Run((a, [b, (a,)])), Run({"x": a, "y": {"z": b}}), Run(op),
        Run([op, a]), Run("a:0"), Run(["a:0", "op", "b"]), Run([]), Run({}),
        Run(sparse), Run(slices), Run(bare), Run([sparse, {"s": slices}]), Run([a, a, b, a]),
        Run((a,)), Run([a, op, a, "a:0"]),
    ]  # fmt: skip


def _feed_kinds():
    x = tf1.placeholder(tf.float32, name="x")
    known = tf1.placeholder(tf.int32, [2, 2], name="known")
    partly = tf1.placeholder(tf.float32, [None, 3], name="partly")
    words = tf1.placeholder(tf.string, [None])
    flag, half, wide = tf1.placeholder(tf.bool), tf1.placeholder(tf.float16), tf1.placeholder(
        tf.complex128)
    default = tf1.placeholder_with_default([1.0, 2.0], [None])
    return [
        Run(x + 1, {x: 3}), Run(x + 1, {"x:0": [1, 2]}), Run(x * 1, {x: np.zeros([0, 4])}),
        Run(tf.reduce_sum(known), {known: [[1, 2], [3, 4]]}),
        Run([tf.shape(partly), partly * 2], {partly: np.ones([5, 3])}),
        Run(tf.strings.length(words), {words: ["a", b"bcd", ""]}),
        Run(tf.logical_not(flag), {flag: [True, False]}), Run(half * 2, {half: [1.5]}),
        Run(tf.math.conj(wide), {wide: 1 + 2j}), Run(default * 2),
        Run(default * 2, {default: [5.0]}),
        Run(partly + 0, {partly: np.ones([2, 4])}), Run(known, {}), Run(x + 0),
    ]  # fmt: skip


def _sparse_feed():
    sparse = tf1.sparse_placeholder(tf.float32)
    value = tf1.SparseTensorValue([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    return [Run([sparse.values, tf.sparse.to_dense(sparse)], {sparse: value})]


def _inner_feeds():
    """Any endpoint may be fed: what computes it does not run."""
    with tf.device(PS):
        a = tf.constant([1.0, 2.0], name="a")
        bad = tf1.placeholder(tf.float32, [2], name="bad")
    with tf.device(WORKER0):
        b = tf.add(a, bad, name="b")
    with tf.device(WORKER1):
        c = tf.multiply(b, b, name="c")
    parts = tf.split(tf.constant([1.0, 2.0, 3.0, 4.0]), 2)
    total = parts[0] + parts[1]
    v = tf1.get_variable("v", initializer=[9.0])
    read = tf.identity(v)
    return [
        Run(c, {b: [3, 4]}), Run(c, {a: [0, 0], bad: [1, 1]}), Run([c, a], {b: [1, 1]}),
        Run(total, {parts[0]: [10, 20]}), Run([total, parts[1]], {parts[0]: [10, 20]}),
        Run(read, {v: [7.0]}), Run(c), Run(read, {read.op.inputs[0]: [2.0]}),
    ]  # fmt: skip


def _feed_beside_effects():
    """A fed output's node still runs for the sake of a control edge."""
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=0.0, use_resource=False)
    grow = tf1.assign_add(v, 1.0)
    copy = tf.identity(grow, name="copy")
    with tf.control_dependencies([copy]):
        out = tf.constant(5.0) + 1
    return [Run(v.initializer), Run(out, {copy: 3.0}), Run(v), Run([out, copy * 2], {copy: 3.0}),
            Run(v), Run([out, copy]), Run(v)]


def _multi_output():
    values, indices = tf.nn.top_k(tf.constant([3.0, 9.0, 1.0]), 2)
    unique = tf.unique_with_counts(tf.constant([1, 2, 1]))
    mean, variance = tf.nn.moments(tf.constant([1.0, 2.0, 6.0]), [0])
    return [Run([values, indices]), Run(indices), Run(unique), Run([mean, variance]),
            Run(unique.count)]


def _names():
    with tf1.name_scope("outer"), tf1.variable_scope("vs"):
        a = tf.constant(1.0, name="x")
        with tf1.name_scope("inner.with-odd/chars_1"):
            b = tf.constant(2.0, name="x")
        v = tf1.get_variable("w", initializer=3.0)
    with tf1.variable_scope("vs", reuse=True):
        same = tf1.get_variable("w", initializer=3.0)
    return [Run(tf1.global_variables_initializer()), Run([a, b, a + b, same + v]),
            Run([b.name, v.name])]


def _pipeline_of_tasks():
    """A chain that visits every task many times; a wide fan-out; control edges beside data edges.
    """
    x = tf1.placeholder(tf.float32, [3])
    y = x
    for i in range(12):
        with tf.device(TASKS[i % 3]):
            y = y * 1.5 + float(i)
    wide = []
    for i in range(30):
        with tf.device(TASKS[i % 3]):
            wide.append(y + float(i))
    with tf.device(PS):
        total = tf.add_n(wide)
    return [Run(total, {x: [1, 2, 3]}), Run([y, wide[7], total], {x: [1, 2, 3]}),
            Run(wide, {y: [0, 0, 1]})]


def _dtypes_across_tasks():
    """Every dtype over an edge between tasks, small and large, empty and scalar."""
    out, feeds = [], {}
    for dtype in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
                  "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "bfloat16"):
        for shape in ([], [0], [2, 3], [300, 100]):
            with tf.device(PS):
                x = tf1.placeholder(dtype, shape)
                a = tf.identity(x)
            with tf.device(WORKER1):
                out.append(tf.reshape(a, [-1]))
            feeds[x] = np.resize(np.arange(7), shape).astype(tf.as_dtype(dtype).as_numpy_dtype)
    with tf.device(PS):
        words = tf.constant(["", "abc", "x" * 5000, "\0\1"])
        many = tf.tile(words, [2000])
    with tf.device(WORKER1):
        out += [tf.identity(words), tf.identity(many), tf.strings.length(many)]
    return [Run(out, feeds), Run(out[:5], {k: v for k, v in feeds.items()})]


def _large_across_tasks():
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=tf.fill([1000, 1000], 0.5), use_resource=False)
    with tf.device(WORKER0):
        a = tf.reduce_sum(v)
        b = v[:2, :2] * 2
    with tf.device(WORKER1):
        c = tf.identity(v) + 1
    x = tf1.placeholder(tf.float32, [None])
    with tf.device(PS):
        y = x * 2
    big = np.arange(1 << 20, dtype=np.float32)
    return [Run(v.initializer), Run([a, b]), Run(c), Run(y, {x: big}), Run([y, c], {x: big})]


def _device_functions():
    def by_op(op):
        return PS if op.type in ("VariableV2",
                                 "VarHandleOp") else WORKER1 if op.type == "MatMul" else WORKER0

    with tf1.device(by_op):
        w = tf1.get_variable("w", initializer=[[1.0, 2.0], [3.0, 4.0]], use_resource=False)
        y = tf.matmul(w, w)
        with tf.device("/job:worker"):
            z = y + 1
    return [Run(w.initializer), Run([y, z])]


def _constants():
    """All encodings of Const: splat, typed, content, empty, strings."""
    values = [
        tf.zeros([100, 3]), tf.constant(7, shape=[5, 5]), tf.constant([], tf.float32),
        tf.constant([[]], tf.int64), tf.constant(np.arange(1000)), tf.constant(True),
        tf.constant("one"), tf.constant([["a", "b"], ["", "c"]]),
        tf.constant([1.5, 2.5], tf.bfloat16), tf.constant([1, 2], tf.float16), tf.constant(1 - 2j),
        tf.constant(np.float32("nan")), tf.constant([np.inf, -np.inf]), tf.ones([0, 5]),
        tf.range(10), tf.linspace(0.0, 1.0, 5), tf.eye(3), tf.constant([2**63 - 1, -(2**63)]),
        tf.constant([2**64 - 1], tf.uint64), tf.constant([[1, 2], [3, 4]], tf.int8),
        tf.constant("x", shape=[3]),
    ]  # fmt: skip
    return [Run(values), Run([tf.identity(v) for v in values])]


def _strings():
    x = tf1.placeholder(tf.string, [None])
    return [
        Run([tf.strings.join([x, x], "+"), tf.strings.length(x), tf.strings.substr(x, 0, 1),
             tf.strings.as_string(tf.strings.length(x))], {x: ["ab", "", "cde"]}),
        Run(tf.strings.to_number(x), {x: ["1.5", "20"]}),
        Run(tf.strings.to_number(x), {x: ["nope"]}),
        Run(tf.strings.to_hash_bucket_fast(x, 100), {x: ["a", "b", "longer"]}),
        Run(tf.strings.reduce_join(x), {x: ["a", "b"]}),
    ]


def _regular_expressions():
    x = tf1.placeholder(tf.string, [None])
    return [Run([tf.strings.regex_full_match(x, "[0-9.]+"),
                 tf.strings.regex_replace(x, "[a-c]+", "-")], {x: ["1.5", "xabc"]})]


def _empty_group():
    return [Run(tf.group()), Run(tf.no_op()), Run(tf.group(tf.constant(1), tf.no_op()))]


def _same_constant_many_tasks():
    k = tf.constant([1.0, 2.0, 3.0])
    out = []
    for task in TASKS * 2:
        with tf.device(task):
            out.append(k * 2)
    return [Run(out), Run(tf.add_n(out)), Run([k, out[0]])]


def _diamond():
    """Two paths over different tasks meet again, with control edges across."""
    with tf.device(WORKER0):
        x = tf1.placeholder(tf.int64, [])
        a = x + 1
    with tf.device(PS):
        b = a * 2
    with tf.device(WORKER1), tf.control_dependencies([b]):
        c = a * 3
    with tf.device(WORKER0), tf.control_dependencies([c, b]):
        d = b - c
    return [Run([d, c], {x: 5}), Run(d, {x: 1}), Run([d, b.op, c.op], {x: 2})]


def _same_subgraphs():
    """Common subexpressions: equal nodes, random ones kept apart, stateful ones kept apart."""
    tf1.set_random_seed(3)
    x = tf1.placeholder(tf.float32, [2])
    sums = [tf.sin(x) + tf.cos(x) for _ in range(4)]
    randoms = [tf.random.uniform([2], seed=7) for _ in range(2)] + [tf.random.uniform([2])]
    return [Run([sums, sums[0] - sums[1]], {x: [1, 2]}), Run(randoms, {}),
            Run([sums[3], randoms[0]], {x: [1, 2]})]


def _folded():
    """Constants that folding computes, some fetched, one that fails."""
    a = tf.range(10) * 3 + 1
    b = tf.reshape(a, [2, 5])
    c = tf.reduce_sum(b, 1)
    bad = tf.constant([1, 2]) // tf1.placeholder_with_default(tf.zeros([2], tf.int32), [2])
    return [Run([a, b, c]), Run(c), Run([c, tf.shape(b)], {a: np.ones([10])}), Run(bad)]


def _wide_fetch():
    values = [tf.constant(i) + 1 for i in range(500)]
    return [Run(values), Run(values[::7]), Run(tf.add_n(values))]


def cases():
    yield "structure/fetches", _fetch_structures
    yield "structure/feeds", _feed_kinds
    yield "structure/sparse_feed", _sparse_feed, {"needs": "sparse kernels"}
    yield "structure/feeds_of_inner_endpoints", _inner_feeds
    yield "structure/feed_beside_effects", _feed_beside_effects
    yield "structure/multiple_outputs", _multi_output
    yield "structure/names", _names
    yield "structure/pipeline_of_tasks", _pipeline_of_tasks
    yield "structure/dtypes_across_tasks", _dtypes_across_tasks
    yield "structure/large_across_tasks", _large_across_tasks
    yield "structure/device_functions", _device_functions
    yield "structure/constants", _constants
    yield "structure/strings", _strings
    yield "structure/regular_expressions", _regular_expressions, {"needs": "regular expressions"}
    yield "structure/empty_groups", _empty_group
    yield "structure/constant_on_many_tasks", _same_constant_many_tasks
    yield "structure/diamond", _diamond
    yield "structure/common_subexpressions", _same_subgraphs
    yield "structure/folding", _folded
    yield "structure/wide_fetch", _wide_fetch
