"""Functions as TensorFlow 2 clients build them in graph mode: tf.function, control flow v2 (If,
Case, While as ops), Defun; their names in errors, side effects in order, gradients."""

import functools

import numpy as np
from programs import PS, WORKER0, WORKER1, Run, tf, tf1
from tensorflow.python.framework import function as legacy


def v2(build):
    """A build with control flow v2 on."""

    @functools.wraps(build)
    def wrapped():
        tf1.enable_control_flow_v2()
        try:
            return build()
        finally:
            tf1.disable_control_flow_v2()

    return wrapped


def _variable(name, value, device=PS):
    with tf.device(device):
        return tf1.get_variable(name, initializer=value, use_resource=True)


# ---- calls ----


def _call(device):
    @v2
    def build():
        @tf.function
        def f(x, y):
            return x * y + 1, {"sum": tf.reduce_sum(x), "three": tf.constant(3)}

        with tf.device(device):
            x = tf1.placeholder(tf.float32, [2])
            a, b = f(x, 2.0), f(x, 3.0)
            c = f(a[0], b[0])
        return [Run([a, b, c], {x: [1, 2]}), Run(c[1]["three"], {x: [1, 2]})]

    return build


@v2
def _nested_calls():
    @tf.function
    def inner(x):
        return tf.sin(x) + 1

    @tf.function
    def outer(x):
        return inner(inner(x)) * inner(x)

    x = tf1.placeholder(tf.float64, [3])
    y = outer(x)
    return [Run([y, outer(y)], {x: [1, 2, 3]})]


@v2
def _variables_in_order():
    """Automatic control dependencies: assign, then read, then assign again."""
    v, w = _variable("v", 1.0), _variable("w", 10.0, WORKER1)

    @tf.function
    def f(x):
        v.assign_add(x)
        before = v.read_value()
        w.assign(before * 2)
        v.assign(w + 1)
        return before, v.read_value()

    first = f(2.0)
    with tf.control_dependencies(list(first)):
        second = f(100.0)
    return [Run(tf1.global_variables_initializer()), Run(first), Run([v, w]), Run([first, second]),
            Run([v, w])]


@v2
def _effects_without_outputs():
    """A call whose value nobody takes, as a target, by a control edge, and for one of its outputs.
    """
    v = _variable("v", 0.0)

    @tf.function
    def add(x):
        v.assign_add(x)
        return x * 2, x * 3

    a = add(1.0)
    op = a[0].op.inputs[0].op
    with tf.control_dependencies([op]):
        after = tf.constant(5)
    return [Run(v.initializer), Run(a[1]), Run(v), Run(op), Run(v), Run(after), Run(v),
            Run([a, after]), Run(v)]


@v2
def _defun():
    @legacy.Defun(tf.float32, tf.float32, func_name="Mad")
    def mad(a, b):
        return a * b + 1, tf.shape(a)

    @legacy.Defun(tf.float32, func_name="Twice")
    def twice(a):
        return mad(a, mad(a, a)[0])[0]

    x = tf1.placeholder(tf.float32, [2])
    y = mad(x, x)
    with tf.control_dependencies([y[0]]):
        z = twice(x)
    return [Run([y, z, twice(z)], {x: [1, 2]})]


def _defun_v1_flow():
    """A body with Switch, Merge and Enter of its own, copied twice."""

    @legacy.Defun(tf.float32)
    def f(a):
        b = tf.cond(a > 3, lambda: a * 2, lambda: a - 1)
        return tf1.while_loop(lambda i, s: i < 3, lambda i, s: [i + 1, s + b], [0, b])[1]

    x = tf1.placeholder(tf.float32, [])
    p = tf1.placeholder(tf.bool, [])
    y = f(f(x))
    z = tf.cond(p, lambda: f(x), lambda: tf.constant(7.0))
    return [Run([y, z], {x: value, p: flag}) for value in (1.0, 5.0) for flag in (True, False)]


@v2
def _call_gradient():
    v = _variable("v", [2.0, 3.0])

    @tf.function
    def f(x):
        return tf.reduce_sum(tf.exp(x) * v)

    x = tf1.placeholder(tf.float32, [2])
    y = f(x)
    return [Run(v.initializer), Run([y, tf1.gradients(y, [x, v])], {x: [0.5, -1]})]


@v2
def _training():
    w, b = _variable("w", np.ones([3, 2], np.float32)), _variable(
        "b", np.zeros([2], np.float32), WORKER0)

    @tf.function
    def model(x):
        return tf.nn.tanh(tf.matmul(x, w) + b)

    x = tf1.placeholder(tf.float32, [None, 3])
    loss = tf.reduce_mean(tf.square(model(x) - 0.3))
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    data = np.arange(12, dtype=np.float32).reshape([4, 3]) / 12
    return [Run(tf1.global_variables_initializer())] + [Run([train, loss], {x: data})] * 4 + [
        Run([w, b])]


def _devices():
    """Bodies whose nodes ask for devices of their own, in calls that ask for others."""

    @tf.function
    def f(x):
        with tf.device(PS):
            a = x + 1
        with tf.device("/cpu:0"):
            b = a * 2
        return b - 1

    x = tf1.placeholder(tf.float32, [2])
    with tf.device(WORKER1):
        y = f(x)
    return [Run([y, f(y)], {x: [1, 2]})]


@v2
def _many_captures():
    """More arguments than an op of the registry may have."""
    parts = [tf1.placeholder_with_default(float(i), []) for i in range(300)]

    @tf.function
    def f():
        return tf.add_n(parts), parts[17] * 2

    return [Run(f())]


@v2
def _call_feeds():
    @tf.function
    def f(x):
        return x + 1, x + 2

    a, b = f(tf.constant(1.0))
    c = a + b
    inner = a.op.inputs[0]
    return [Run(c), Run(c, {a: 10.0}), Run([c, b], {inner: 5.0})]


# ---- If, Case ----


def _cond(device):
    @v2
    def build():
        with tf.device(device):
            x, p = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.bool, [])
            y = tf.cond(p, lambda: x * 2, lambda: tf.sqrt(x) + 1)
            pair = tf.cond(x > 2, lambda: [x, tf.constant(1)], lambda: [-x, tf.constant(2)])
            deep = tf.cond(p, lambda: tf.cond(x > 2, lambda: x + 1, lambda: tf.constant(2.0)),
                           lambda: tf.cond(x > 2, lambda: x + 3, lambda: x))
        return [Run([y, pair, deep], {x: value, p: flag}) for value in (4.0, 1.0)
                for flag in (True, False)]

    return build


@v2
def _cond_effects():
    a, b = _variable("a", 0), _variable("b", 0, WORKER0)
    p = tf1.placeholder(tf.bool, [])
    op = []

    def left():
        with tf.control_dependencies([a.assign_add(1)]):
            return tf.identity(a.read_value())

    def right():
        with tf.control_dependencies([b.assign_add(10), tf1.Assert(tf.constant(True), ["never"])]):
            return tf.constant(-1)

    out = tf.cond(p, left, right)
    op.append(out.op.inputs[0].op)
    with tf.control_dependencies(op):
        seen = tf.stack([a.read_value(), b.read_value()])
    return [Run(tf1.global_variables_initializer())] + [
        Run([out, seen], {p: f}) for f in (True, False, True)] + [
            Run(op[0], {p: False}), Run([a, b])]


@v2
def _cond_in_function():
    """A branch of a tf.function changes variables; what comes after it sees that."""
    v = _variable("v", 0.0)

    @tf.function
    def f(x):
        if x > 0:
            v.assign_add(x)
            if x > 10:
                v.assign(v * 2)
        else:
            v.assign(-1.0)
        return v.read_value()

    x = tf1.placeholder(tf.float32, [])
    y = f(x)
    return [Run(v.initializer)] + [Run(y, {x: value}) for value in (1.0, 20.0, -5.0, 3.0)] + [
        Run(v)]


@v2
def _cond_across_tasks():
    x, p = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.bool, [])
    v = _variable("v", [1.0, 2.0])

    def left():
        with tf.device(PS):
            a = x * v
        with tf.device(WORKER1):
            return a + 1

    def right():
        with tf.device(WORKER0):
            return x - 1

    with tf.device(WORKER1):
        y = tf.cond(p, left, right)
        z = tf.reduce_sum(y)
    return [Run(v.initializer)] + [Run([y, z], {x: [1, 2], p: flag})
                                   for flag in (True, False, True)]


def _predicates():
    """If takes a predicate of any type and shape."""
    from tensorflow.python.ops import functional_ops

    @legacy.Defun(tf.float32)
    def yes(x):
        return x + 1

    @legacy.Defun(tf.float32)
    def no(x):
        return x - 1

    values = [
        np.int32(0), np.int32(-3), np.float32(0), np.float32(-0.0), np.float32(0.5),
        np.float32("nan"), np.int64(1 << 40), b"", b"no",
        np.zeros([2], np.float32), np.zeros([0], np.float32), np.uint8(0), np.float64(-0.0),
        np.int8(1), np.array([b""]), np.bool_(True),
    ]  # fmt: skip  (complex, half and wider unsigned scalars abort TensorFlow)
    outs = [functional_ops.If(tf1.placeholder_with_default(v, None), [tf.constant(10.0)], yes,
                              no)[0] for v in values]
    return [Run(outs)]


@v2
def _case():
    x = tf1.placeholder(tf.int32, [])
    y = tf.case([(x < 0, lambda: tf.constant(-1)), (x > 10, lambda: x * 2)], default=lambda: x
                + 100)
    z = tf.case([(x < 0, lambda: tf.constant(-1)), (x > 10, lambda: x * 2)], default=lambda: x
                + 100, exclusive=True)
    return [Run([y, z], {x: value}) for value in (-5, 3, 50)]


@v2
def _switch_case():
    x, t = tf1.placeholder(tf.int32, []), tf1.placeholder(tf.float32, [])
    v = _variable("v", 0.0)
    y = tf.switch_case(x, {0: lambda: tf.constant(1.0), 1: lambda: t * 2, 2: lambda: tf.sqrt(t)},
                       default=lambda: tf.constant(9.0))
    z = tf.switch_case(x, [lambda: v.assign_add(1.0), lambda: v.assign_add(10.0),
                           lambda: v.read_value()])
    return [Run(v.initializer)] + [Run([y, z], {x: value, t: 4.0}) for value in (0, 1, 2, 5, -1)]


@v2
def _cond_gradient():
    x, p = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: x * 3, lambda: x + 1)  # needs nothing of the taken branch
    return [Run([y, tf1.gradients(y, x)], {x: 2.0, p: flag}) for flag in (True, False)]


@v2
def _cond_gradient_intermediates():
    x, p = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.exp(x) * 2, lambda: tf.sin(x) * x)
    deep = tf.cond(p, lambda: tf.cond(x > 1, lambda: x * x, lambda: tf.exp(x)), lambda: tf.tanh(x))
    return [Run([y, tf1.gradients(y + deep, x)], {x: value, p: flag}) for value in (2.0, 0.5)
            for flag in (True, False)]


# ---- While ----


def _while(device, parallel):
    @v2
    def build():
        with tf.device(device):
            n = tf1.placeholder(tf.int32, [])
            i, total = tf.while_loop(
                lambda i, _: i < n, lambda i, s: [i + 1, s + tf.cast(i, tf.float32) * 0.5],
                [0, 1.0], parallel_iterations=parallel
            )
        return [Run([i, total], {n: value}) for value in (0, 1, 10, 100)] + [Run(total, {n: 7})]

    return build


@v2
def _while_shapes():
    i, x = tf.while_loop(
        lambda i, x: i < 4, lambda i, x: [i + 1, tf.concat([x, [[tf.cast(i, tf.float32)] * 2]], 0)],
        [tf.constant(0), tf.ones([1, 2])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])],
    )  # fmt: skip
    return [Run([i, x, tf.shape(x)])]


@v2
def _while_nested():
    n = tf1.placeholder(tf.int32, [])

    def outer(i, s):
        _, inner = tf.while_loop(lambda j, t: j < i, lambda j,
                                 t: [j + 1, t + tf.cond(tf.equal(j % 2, 0), lambda: j * i,
                                         lambda: n)], [0, 0])
        return [i + 1, s + inner]

    i, s = tf.while_loop(lambda i, s: i < n, outer, [0, 0])
    return [Run([i, s], {n: value}) for value in (0, 1, 6)]


@v2
def _while_swaps():
    x = tf1.placeholder(tf.int32, [])
    i, a, b, c = tf.while_loop(lambda i, a, b, c: i < 5, lambda i, a, b, c: [i + 1, b, c, a],
                               [0, x, x + 1, x + 2])
    return [Run([i, a, b, c], {x: 10})]


@v2
def _while_maximum_iterations():
    n = tf1.placeholder(tf.int32, [])
    r = tf.while_loop(lambda i: i < 10, lambda i: i + 1, [0], maximum_iterations=n)
    return [Run(r, {n: value}) for value in (0, 4, 100)]


def _while_variable(device):
    @v2
    def build():
        """The condition reads what the body assigns, so iterations must not overtake each other."""
        v = _variable("v", 0.0)
        with tf.device(device):

            @tf.function
            def f(limit):
                i = 0
                while v < limit:
                    v.assign_add(1.0)
                    v.assign(v * 1.5)
                    i += 1
                return i, v.read_value()

            limit = tf1.placeholder(tf.float32, [])
            r = f(limit)
        return [Run(v.initializer), Run(r, {limit: 20.0}), Run(v), Run(r, {limit: 500.0}), Run(v),
                Run(r, {limit: 0.0})]

    return build


@v2
def _while_in_branch():
    """Loops in branches that are not taken, and in bodies that run no iteration."""
    p, n = tf1.placeholder(tf.bool, []), tf1.placeholder(tf.int32, [])

    def loop(k):
        return tf.while_loop(lambda i, s: i < n, lambda i, s: [i + 1, s + k], [0, tf.constant(0)])[
            1]

    y = tf.cond(p, lambda: loop(2), lambda: loop(3) + loop(4))
    z = tf.while_loop(lambda i, s: i < 3, lambda i,
                      s: [i + 1, s + tf.cond(p, lambda: loop(5), lambda: loop(1))], [0, 0])
    return [Run([y, z], {p: flag, n: value}) for flag in (True, False) for value in (0, 3)]


@v2
def _while_print():
    """Stateful nodes without outputs in a loop."""
    v = _variable("v", 0)

    @tf.function
    def f(n):
        for i in tf.range(n):
            tf.debugging.assert_less(i, 100)
            v.assign_add(i)
        return n

    n = tf1.placeholder(tf.int32, [])
    y = f(n)
    return [Run(v.initializer), Run(y, {n: 10}), Run(v), Run(y, {n: 0}), Run(v)]


@v2
def _while_tuple_of_names():
    """A loop over a structure, in a function, with a break and a continue."""

    @tf.function
    def collatz(n):
        steps = 0
        while tf.constant(True):
            if n <= 1:
                break
            steps += 1
            if n % 2 == 0:
                n = n // 2
                continue
            n = 3 * n + 1
        return steps, n

    n = tf1.placeholder(tf.int64, [])
    return [Run(collatz(n), {n: value}) for value in (1, 6, 27)]


@v2
def _while_long():
    i, s = tf.while_loop(lambda i, s: i < 20000, lambda i, s: [i + 1, s + tf.cast(i % 7, tf.int64)],
                         [0, tf.constant(0, tf.int64)])
    return [Run([i, s])]


@v2
def _while_random():
    """Stateful nodes whose values are used."""
    _, s = tf.while_loop(lambda i, s: i < 5, lambda i,
                         s: [i + 1, s + tf.cast(tf1.random_uniform([4]) < 2, tf.int32)],
                         [0, tf.zeros([4], tf.int32)])
    return [Run(s)]


@v2
def _while_gradient():
    x = tf1.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: [i + 1, y * x], [0, x],
                         maximum_iterations=10)
    return [Run([y, tf1.gradients(y, x)], {x: 1.5})]


@v2
def _map_fn():
    x = tf1.placeholder(tf.float32, [None])
    return [Run(tf.map_fn(lambda v: v * v + 1, x), {x: [1, 2, 3]})]


@v2
def _unused_effects():
    """What nobody uses of a branch, a body or a function is pruned in a graph of TensorFlow 1, but
    for what a tf.function or a Defun does."""
    v = _variable("v", 0)
    p, x = tf1.placeholder(tf.bool, []), tf1.placeholder(tf.float32, [])

    def plain(y):
        v.assign_add(1, read_value=False)
        return y * 2.0

    f = tf.function(plain, autograph=False)

    @legacy.Defun(tf.float32, tf.resource)
    def defun(y, handle):
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=1)
        return y * 2.0

    @legacy.Defun(tf.float32, tf.resource)
    def outer(y, handle):
        defun(y, handle)
        return y * 3.0

    def called(y, g=defun):
        return tf.reshape(g(y, v.handle), [])

    def loop(step):
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, step(y)), [0, x])[1]

    def both(y):
        return plain(y), f(y), y * 3.0

    made = [
        tf.cond(p, lambda: plain(x), lambda: x),
        tf.cond(p, lambda: f(x), lambda: x),
        tf.cond(p, lambda: (f(x), x * 2.0)[1], lambda: x),
        tf.cond(p, lambda: tf.cond(p, lambda: (called(x), f(x))[1], lambda: x), lambda: x),
        tf.cond(p, lambda: called(x), lambda: x),
        tf.cond(p, lambda: (called(x), x * 2.0)[1], lambda: x),
        tf.cond(p, lambda: called(x, outer), lambda: x),
        loop(plain), loop(f), loop(called), loop(lambda y: (f(y), y * 2.0)[1]),
        loop(lambda y: tf.cond(p, lambda: plain(y), lambda: y)),
        tf.switch_case(tf.cast(x, tf.int32), [lambda: x, lambda: plain(x), lambda: f(x)]),
        tf.function(lambda y: tf.cond(y > 0, lambda: plain(y), lambda: y), autograph=False)(x),
        tf.function(both, autograph=False)(x)[2],
        defun(x, v.handle), outer(x, v.handle), f(x),
        tf.raw_ops.StatefulPartitionedCall(args=[x, v.handle], Tout=[tf.float32], f=defun)[0],
        tf.raw_ops.StatefulPartitionedCall(args=[x, v.handle], Tout=[tf.float32], f=outer)[0].op,
        tf1.wrap_function(plain, [tf.TensorSpec([], tf.float32)])(x),
    ]  # fmt: skip
    return [Run(v.initializer)] + [run for fetch in made
                                   for run in (Run(fetch, {p: True, x: 1.0}), Run(v))]


def _wrong_numbers(make):
    def build():
        return [Run(make()[0])]

    return build


def _loops_with_wrong_numbers():
    from tensorflow.python.ops import functional_ops

    def going(n, x):
        return n > 0

    def going_two(n, x):
        return n > 0, x

    def three(n, x):
        return n - 1, x + n, x

    def two(n, x):
        return n - 1, x + n

    floats, numbered = legacy.Defun(tf.float32, tf.float32), legacy.Defun(tf.int32, tf.float32)
    return {
        "condition": (lambda: functional_ops.While([5.0, 0.0], floats(going_two), floats(two)),
                      "Expected a single scalar.*got 2 tensors"),
        "body": (lambda: functional_ops.While([5.0, 0.0], floats(going), floats(three)),
                 "While loop body returned 3 arguments. Expected: 2"),
        "for": (lambda: functional_ops.For(0, 10, 1, [0.0], _twice(numbered)),
                "For loop body returned 2 arguments. Expected: 1"),
        "executor": (lambda: tf.raw_ops.PartitionedCall(args=[1.0, 2.0],
                Tout=[tf.float32, tf.float32], f=floats(two), executor_type="NONE_SUCH"),
                     "executor type: NONE_SUCH"),
    }


def _twice(numbered):
    @numbered
    def twice(i, x):
        return x, x

    return twice


def _raw_case(stateless):
    """The op itself, whose index is fed: in range, below, above; and no scalar."""

    def build():
        twice, thrice, less = (legacy.Defun(tf.float32, tf.float32)(f)
                               for f in (lambda x, y: (x * 2, y), lambda x, y: (x * 3, -y),
                                         lambda x, y: (x - 1, y * y)))
        index, x = tf1.placeholder(tf.int32, None), tf1.placeholder(tf.float32, [])
        op = tf.raw_ops.StatelessCase if stateless else tf.raw_ops.Case
        made = op(branch_index=index, input=[x, x + 1], Tout=[tf.float32, tf.float32],
                  branches=[twice, thrice, less], name="chosen")
        return [Run(made, {index: k, x: 3.0}) for k in (0, 1, 2, 3, -1, 2**31 - 1, -(2**31))] + [
            Run("chosen:1", {index: 1, x: 2.0}), Run(made, {index: [0], x: 1.0})]

    return build


def _recursion(n_functions):
    """Functions that call each other in a ring: a client can only make such a library by hand. The
    error says how they go round."""

    def build():
        with tf.Graph().as_default() as graph:

            @legacy.Defun(tf.int32, func_name="last")
            def last(x):
                return x + 1

            def calling(inner):
                return lambda x: inner(x) + 1

            inner = last
            for k in range(n_functions):
                inner = legacy.Defun(tf.int32, func_name=f"ring_{k}")(calling(inner))
            inner(tf1.placeholder(tf.int32, [], name="x"), name="call")
        graph_def = graph.as_graph_def()
        for function in graph_def.library.function:
            for node in function.node_def:
                if node.op == "last":
                    node.op = f"ring_{n_functions - 1}"
        x, called = tf1.import_graph_def(graph_def, return_elements=["x:0", "call:0"], name="")
        return [Run(called, {x: 1})]

    return build


# ---- For, RemoteCall ----


def _for(device):
    def build():
        """Up, down, by more than one, not at all; a value that the body hands on; the counter's
        ends."""
        from tensorflow.python.ops import functional_ops

        @legacy.Defun(tf.int32, tf.float32, tf.float32)
        def body(i, a, b):
            return a * 2 + tf.cast(i, tf.float32) * b, b

        @legacy.Defun(tf.int32, tf.int32)
        def count(i, n):
            return n + 1

        start, limit, delta = (tf1.placeholder(tf.int32, []) for _ in range(3))
        with tf.device(device):
            y = functional_ops.For(start, limit, delta, [1.0, 3.0], body)
            n = functional_ops.For(start, limit, delta, [0], count)
        bounds = [(0, 5, 1), (5, 0, -2), (0, 10, 3), (4, 4, 1), (4, 4, 0), (0, 5, -1), (5, 0, 1),
                  (0, 5, 0), (2**31 - 7, 2**31 - 1, 3)]
        return [Run([y, n], {start: a, limit: b, delta: c}) for a, b, c in bounds]

    return build


def _for_effects():
    from tensorflow.python.ops import functional_ops

    v = _variable("v", 1)

    @legacy.Defun(tf.int32, tf.resource, tf.int32)
    def body(i, handle, n):
        with tf.control_dependencies([tf.raw_ops.AssignAddVariableOp(resource=handle, value=i)]):
            now = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int32)
            with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=handle,
                    value=now * 2)]):
                return handle, n + now

    n = tf1.placeholder(tf.int32, [])
    y = functional_ops.For(0, n, 1, [v.handle, 0], body)[1]

    @legacy.Defun(tf.int32, tf.int32)
    def inner(j, s):
        return s + j

    @legacy.Defun(tf.int32, tf.int32)
    def outer(i, s):
        return functional_ops.For(0, i, 1, [s], inner)[0]

    z = functional_ops.For(0, n, 1, [0], outer)
    return [Run(v.initializer), Run([y, z], {n: 5}), Run(v), Run([y, z], {n: 0}), Run(v)]


def _remote_call(by_client):
    def build():
        from tensorflow.python.ops import functional_ops

        @legacy.Defun(tf.float32, tf.float32)
        def f(x, y):
            return x * y + 1, tf.shape(x)

        x = tf1.placeholder(tf.float32, [2])
        if by_client:
            calls = [f(x, x), f(x * 2, x)]
        else:
            calls = [functional_ops.remote_call(w, [x * k, x], [tf.float32, tf.int32], f) for k,
                     w in ((1, WORKER1 + "/device:CPU:0"), (2, PS + "/cpu:0"))]
        return [Run([list(c) for c in calls], {x: [2, 3]})]

    return build


def _remote_call_errors():
    from tensorflow.python.ops import functional_ops

    @legacy.Defun(tf.float32)
    def f(x):
        return x + 1

    x, where = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.string, [])
    return [Run(functional_ops.remote_call(where, [x], [tf.float32], f), {x: 1, where: WORKER1})]


# ---- errors ----


@v2
def _errors():
    x = tf1.placeholder(tf.int32, [])

    @tf.function
    def f(a):
        return tf.math.floordiv(10, a, name="bad") + 1

    y = f(x)
    z = tf.cond(x < 5, lambda: tf.math.floordiv(10, x), lambda: x)
    w = tf.while_loop(lambda i: i < 3, lambda i: i + tf.math.floordiv(10, x), [0])
    return [Run(t, {x: value}) for t in (y, z, w) for value in (0, 2, 0)]


@v2
def _uninitialized():
    v = _variable("v", 1.0)

    @tf.function
    def f():
        return v + 1

    return [Run(f()), Run(v.initializer), Run(f())]


def _api_choice(for_cpu):
    """Two functions of one API: the call names the general one, and the one for CPUs runs. The
    oracle calls the latter itself."""

    def build():
        from tensorflow.python.eager import def_function
        from tensorflow.python.eager.polymorphic_function import attributes

        def made(function, device, api):
            attrs = {attributes.API_IMPLEMENTS: api}
            if device:
                attrs[attributes.API_PREFERRED_DEVICE] = device
            return def_function.function(function, experimental_attributes=attrs,
                                         autograph=False).get_concrete_function(tf.TensorSpec([2]))

        general = made(lambda x: x + 1000.0, None, "grow")
        elsewhere = made(lambda x: x + 2000.0, "GPU", "grow")
        here = made(lambda x: x + 1.0, "CPU", "grow")
        other_api = made(lambda x: x + 3000.0, "CPU", "shrink")
        alone = made(lambda x: x * 5.0, "GPU", "alone")
        for function in (general, elsewhere, here, other_api, alone):
            function.add_to_graph(tf1.get_default_graph())
        x = tf1.placeholder(tf.float32, [2])
        with tf.device(WORKER1):
            calls = [here(x), here(x), here(x)] if for_cpu else [general(x), elsewhere(x), here(x)]
        calls += [other_api(x), alone(x), tf1.gradients(alone(x), x)[0]]
        mapped = tf1.data.make_one_shot_iterator(
            tf1.data.Dataset.range(2).map(lambda i: (here if for_cpu else general)(
                tf.cast([i, i], tf.float32))))
        return [Run(calls, {x: [1.0, 2.0]}), Run(mapped.get_next())]

    return build


def cases():
    yield "function/api choice", _api_choice(False), {"oracle": _api_choice(True)}
    for where, device in (("default", None), ("ps", PS)):
        yield f"function/call/{where}", _call(device)
        yield f"function/cond/{where}", _cond(device)
        yield f"function/while/{where}", _while(device, 10)
        yield f"function/while/variable/{where}", _while_variable(device)
    yield "function/while/one_iteration_at_a_time", _while(None, 1)
    yield "function/nested_calls", _nested_calls
    yield "function/variables_in_order", _variables_in_order
    yield "function/effects_without_outputs", _effects_without_outputs
    yield "function/defun", _defun
    yield "function/defun_with_v1_control_flow", _defun_v1_flow
    yield "function/call_gradient", _call_gradient
    yield "function/training", _training
    yield "function/devices", _devices
    yield "function/many_captures", _many_captures
    yield "function/feeds", _call_feeds
    yield "function/cond/effects", _cond_effects
    yield "function/cond/in_function", _cond_in_function
    yield "function/cond/across_tasks", _cond_across_tasks
    yield "function/cond/predicates", _predicates
    yield "function/cond/gradient", _cond_gradient
    yield "function/cond/gradient_intermediates", _cond_gradient_intermediates, {
        "needs": "optional values"}
    yield "function/case", _case
    yield "function/switch_case", _switch_case
    yield "function/while/shapes", _while_shapes
    yield "function/while/nested", _while_nested
    yield "function/while/swaps", _while_swaps
    yield "function/while/maximum_iterations", _while_maximum_iterations
    yield "function/while/in_branch", _while_in_branch
    yield "function/while/effects", _while_print
    yield "function/while/break_and_continue", _while_tuple_of_names
    yield "function/while/long", _while_long
    yield "function/while/random", _while_random
    yield "function/while/gradient", _while_gradient, {"needs": "tensor lists"}
    yield "function/map_fn", _map_fn, {"needs": "tensor lists"}
    for where in (None, PS, WORKER1):
        yield f"function/for/{where}", _for(where), {
            "node": False, "message": "Invalid start/limit/delta"}
    yield "function/for/effects", _for_effects
    yield "function/remote_call", _remote_call(False), {"oracle": _remote_call(True)}
    unknown = (tf.errors.UnimplementedError, "such a call can only stay on its device")
    yield "function/remote_call/unknown_target", _remote_call_errors, {"cluster_error": unknown}
    yield "function/effects_of_nobody", _unused_effects
    for name, (make, message) in _loops_with_wrong_numbers().items():
        yield f"function/wrong/{name}", _wrong_numbers(make), {"message": message, "node": False}
    for stateless in (True, False):
        yield f"function/case/raw/{'stateless' if stateless else 'stateful'}", _raw_case(
            stateless), {"node": False}
    for n in (1, 2, 5):
        ring = " -> ".join(f"ring_{k % n}" for k in range(n - 1, -2, -1))
        refused = (tf.errors.InvalidArgumentError, f"Recursive functions are not supported: {ring}")
        yield f"function/recursion/{n}", _recursion(n), {"cluster_error": refused, "node": False}
    yield "function/errors", _errors
    yield "function/uninitialized", _uninitialized
