"""Conditionals and loops as TensorFlow 1 clients build them (Switch, Merge, Enter ...),
TensorArrays, and gradients through all of it."""

import numpy as np
from programs import PLACES, PS, WORKER0, WORKER1, Run, tf, tf1
from tensorflow.python.ops import gen_control_flow_ops as gen


def _cond(device):
    def build():
        with tf.device(device):
            x, p = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.bool, [])
            y = tf.cond(p, lambda: x * 2, lambda: tf.sqrt(x) + 1)
            pair = tf.cond(x > 2, lambda: [x, tf.constant(1)], lambda: [-x, tf.constant(2)])
            nested = tf.cond(p, lambda: tf.cond(x > 0, lambda: x + 1, lambda: x + 2),
                             lambda: tf.cond(x > 0, lambda: x + 3, lambda: x + 4))
            gradient = tf1.gradients(y + nested, x)
        return [Run([y, pair, nested, gradient], {x: value, p: flag}) for value in (4.0, 1.0)
                for flag in (True, False)]

    return build


def _cond_effects():
    """Only the taken branch runs: assigns in branches."""
    with tf.device(PS):
        a, b = (tf1.get_variable(n, initializer=0, use_resource=False) for n in "ab")
        r = tf1.get_variable("r", initializer=0, use_resource=True)
    p = tf1.placeholder(tf.bool, [])
    out = tf.cond(p, lambda: tf1.assign_add(a, 1) + 0, lambda: tf1.assign_add(b, 10) + 0)
    out2 = tf.cond(p, lambda: tf.identity(tf1.assign_add(r, 1)), lambda: r.read_value())
    return [Run(tf1.global_variables_initializer())] + [
        Run([out, out2], {p: f}) for f in (True, False, True)] + [Run([a, b, r])]


def _cond_across_tasks():
    x, p = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.bool, [])

    def left():
        with tf.device(PS):
            a = x * 2
        with tf.device(WORKER1):
            return a + 1

    def right():
        with tf.device(WORKER0):
            return x - 1

    with tf.device(WORKER1):
        y = tf.cond(p, left, right)
        z = tf.reduce_sum(y)
    return [Run([y, z], {x: [1, 2], p: flag}) for flag in (True, False, True)]


def _case(exclusive):
    def build():
        x = tf1.placeholder(tf.int32, [])
        y = tf.case([(x < 0, lambda: tf.constant(-1)), (x > 10, lambda: x * 2)], default=lambda: x
                    + 100, exclusive=exclusive)
        return [Run(y, {x: value}) for value in (-5, 3, 50)]

    return build


def _switch_case():
    x = tf1.placeholder(tf.int32, [])
    y = tf.switch_case(x, {0: lambda: tf.constant(1.0), 1: lambda: tf.constant(2.0)},
                       default=lambda: tf.constant(9.0))
    return [Run(y, {x: value}) for value in (0, 1, 5)]


def _while(device, parallel):
    def build():
        with tf.device(device):
            n = tf1.placeholder(tf.int32, [])
            i, total = tf1.while_loop(lambda i, _: i < n, lambda i,
                                      s: [i + 1, s + tf.cast(i, tf.float32) * 0.5], [0, 1.0],
                                      parallel_iterations=parallel)
        return [Run([i, total], {n: value}) for value in (0, 1, 10, 100)]

    return build


def _while_shapes():
    """A loop that grows a tensor."""
    i, x = tf1.while_loop(
        lambda i, x: i < 4, lambda i, x: [i + 1, tf.concat([x, [[tf.cast(i, tf.float32)] * 2]], 0)],
        [tf.constant(0), tf.ones([1, 2])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])],
    )  # fmt: skip
    return [Run([i, x, tf.shape(x)])]


def _nested_while():
    def outer(i, s):
        _, inner = tf1.while_loop(lambda j, t: j < i, lambda j, t: [j + 1, t + j * i], [0, 0])
        return [i + 1, s + inner]

    i, s = tf1.while_loop(lambda i, s: i < 6, outer, [0, 0])
    return [Run([i, s])]


def _while_cond():
    """A conditional in a loop."""
    i, s = tf1.while_loop(lambda i, s: i < 9, lambda i,
                          s: [i + 1, tf.cond(tf.equal(i % 2, 0), lambda: s + i, lambda: s - 1)],
                          [0, 0])
    return [Run([i, s]), Run(s)]


def _while_variable(resource):
    def build():
        with tf.device(PS):
            v = tf1.get_variable("v", initializer=0.0, use_resource=resource)

            def body(i):
                with tf.control_dependencies([tf1.assign_add(v, tf.cast(i, tf.float32))]):
                    return tf.identity(i) + 1

            loop = tf1.while_loop(lambda i: i < 5, body, [0], parallel_iterations=1)
        return [Run(v.initializer), Run(loop), Run(v), Run(loop), Run(v)]

    return build


def _while_gradient(parallel, swap):
    def build():
        x = tf1.placeholder(tf.float64, [2])
        w = tf.constant([[0.5, 0.2], [-0.3, 0.9]], tf.float64)
        _, y = tf1.while_loop(
            lambda i, _: i < 5, lambda i, h: [i + 1, tf.tanh(tf.linalg.matvec(w, h)) + x], [0, x],
            parallel_iterations=parallel, swap_memory=swap
        )
        gradient = tf1.gradients(tf.reduce_sum(y), [x, w])
        return [Run([y, gradient], {x: [1.0, -2.0]}), Run(gradient, {x: [0.0, 0.5]})]

    return build


def _nested_while_gradient():
    x = tf1.placeholder(tf.float32, [])

    def outer(i, a):
        _, b = tf1.while_loop(lambda j, _: j < 3, lambda j, b: [j + 1, b * x + 0.1], [0, a])
        return [i + 1, b + a]

    _, y = tf1.while_loop(lambda i, _: i < 3, outer, [0, x])
    return [Run([y, tf1.gradients(y, x)], {x: 0.7})]


def _cond_in_while_gradient():
    x = tf1.placeholder(tf.float32, [])
    _, y = tf1.while_loop(lambda i, _: i < 4, lambda i,
                          a: [i + 1, tf.cond(a > 1.0, lambda: a * x, lambda: a + x)], [0, x])
    return [Run([y, tf1.gradients(y, x)], {x: value}) for value in (0.4, 2.0)]


def _while_gradient_of_variable(resource, device):
    def build():
        with tf.device(device):
            w = tf1.get_variable("w", initializer=[[0.5, 0.1], [0.2, 0.4]], use_resource=resource)
            x = tf1.placeholder(tf.float32, [1, 2])
            _, h = tf1.while_loop(lambda i, _: i < 6, lambda i,
                                  h: [i + 1, tf.tanh(tf.matmul(h, w))], [0, x])
            loss = tf.reduce_sum(h)
            train = tf1.train.GradientDescentOptimizer(0.5).minimize(loss)
        return [Run(w.initializer)] + [Run([loss, train], {x: [[1.0, 2.0]]})] * 3 + [Run(w)]

    return build


def _map_fn():
    x = tf1.placeholder(tf.float32, [None, 2])
    y = tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)
    pair = tf.map_fn(lambda t: (t[0] + t[1], t[0]), (x, 2 * x), dtype=(tf.float32, tf.float32))
    return [Run([y, pair, tf1.gradients(y, x)], {x: np.arange(6).reshape(3, 2)}),
            Run([y, pair], {x: np.zeros([0, 2])})]


def _scan():
    x = tf1.placeholder(tf.float32, [None])
    sums = tf.scan(lambda a, b: a + b, x)
    product = tf.foldl(lambda a, b: a * b, x, initializer=1.0)
    right = tf.foldr(lambda a, b: a * 0.5 + b, x)
    return [Run([sums, product, right, tf1.gradients(sums, x), tf1.gradients(product, x)],
                {x: [1, 2, 3, 4.5]})]


def _tensor_array():
    values = tf.TensorArray(tf.float32, 3, clear_after_read=False)
    for i in range(3):
        values = values.write(i, tf.fill([2], float(i)))
    parts = tf.TensorArray(tf.float32, 3, infer_shape=False).split(tf.range(6.0), [1, 2, 3])
    return [Run([values.stack(), values.read(1), values.concat(), values.gather([2, 0]),
                 values.size(), parts.read(2), parts.concat()])]


def _tensor_array_twice():
    """A second write to one index is an error."""
    values = tf.TensorArray(tf.float32, 2, name="values").write(0, 1.0).write(0, 2.0)
    return [Run(values.read(0))]


def _dynamic_rnn():
    """What dynamic_rnn builds: TensorArrays unstacked, a loop, gradients to the weights."""
    x = tf1.placeholder(tf.float32, [4, 2, 3])
    w = tf1.get_variable("w", initializer=(np.arange(15, dtype=np.float32).reshape(5, 3)[:, :2]
                                           / 30))
    inputs, outputs = tf.TensorArray(tf.float32, 4).unstack(x), tf.TensorArray(tf.float32, 4)

    def body(t, h, out):
        h = tf.tanh(tf.matmul(tf.concat([inputs.read(t), h], 1), w))
        return t + 1, h, out.write(t, h)

    _, h, outputs = tf1.while_loop(lambda t, *_: t < 4, body, [0, tf.zeros([2, 2]), outputs])
    loss = tf.reduce_sum(outputs.stack() ** 2)
    feeds = {x: np.random.default_rng(3).normal(size=(4, 2, 3))}
    return [Run(w.initializer), Run([h, loss, tf1.gradients(loss, [w, x])], feeds)]


def _dead_fetch():
    """Fetch of a tensor whose branch is not taken."""
    p, x = tf1.placeholder(tf.bool, []), tf.constant(3.0)
    off, on = tf1.raw_ops.Switch(data=x, pred=p)
    dead = tf.identity(off, name="dead")
    return [Run(on, {p: True}), Run(dead, {p: True}), Run(dead, {p: False}),
            Run(dead.op, {p: True}), Run(off, {p: True})]


def _merge():
    p = tf1.placeholder(tf.bool, [])
    off, on = tf1.raw_ops.Switch(data=tf.constant(3.0), pred=p)
    merged = tf1.raw_ops.Merge(inputs=[off * 2, on * 5])
    return [Run([merged.output, merged.value_index], {p: flag}) for flag in (True, False)]


def _print_assert():
    x = tf1.placeholder(tf.float32, [2])
    check = tf1.Assert(tf.reduce_all(x > 0), [x, "must be positive"], name="check")
    with tf.control_dependencies([check]):
        y = tf1.Print(x * 2, [x], "x is: ") + 1
    z = tf1.assert_equal(x, tf.abs(x), message="signs", name="signs")
    return [Run(y, {x: [1, 2]}), Run(y, {x: [1, -2]}), Run(z, {x: [1, 1]}), Run(z, {x: [1, -1]})]


def _print_v2():
    x = tf1.placeholder(tf.float32, [2])
    with tf.control_dependencies([tf.print("x:", x)]):
        y = tf.identity(x)
    return [Run(y, {x: [1, 2]})]


def _control_dependencies():
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=1.0, use_resource=False)
    with tf.device(WORKER0):
        first = tf1.assign(v, 5.0)
        with tf.control_dependencies([first]):
            with tf.device(WORKER1):
                nothing = tf.no_op()
        with tf.control_dependencies([nothing]):
            read = v.read_value() * 2
        with tf.control_dependencies(None):
            free = tf.constant(3.0) + 1
    return [Run(v.initializer), Run([read, free]), Run(v), Run(tf.group(first, nothing)),
            Run(tf.tuple([read, free], control_inputs=[first]))]


def _loop_across_tasks():
    with tf.device(WORKER0):
        v = tf1.placeholder(tf.float32, [])

    def body(i, x):
        with tf.device(PS):
            y = x + 1
        with tf.device(WORKER1):
            return [i + 1, y * 2]

    _, y = tf1.while_loop(lambda i, x: i < 3, body, [0, v])
    return [Run(y, {v: 1.0})]


def _long_loop():
    i, s = tf1.while_loop(lambda i, s: i < 20000, lambda i, s: [i + 1, s + 1.0], [0, 0.0])
    return [Run([i, s])]


def _invariants(source):
    """The loop's kernels for GPUs and those for strings take the same value."""
    fed = tf1.placeholder(tf.float32, [8])
    with tf.device(WORKER0):
        v = tf1.get_variable("v", initializer=tf.linspace(-1.0, 2.0, 8), use_resource=False)
        x = {"fed": fed, "constant": tf.linspace(0.5, 1.5, 8), "variable": v,
             "computed": tf.strings.to_number(tf.strings.as_string(fed))}[source]

        def body(i, total, words):
            word = tf.strings.reduce_join(tf.strings.as_string(x, precision=3))
            return i + 1, tf.tanh(total * x), words + word

        loop = tf1.while_loop(lambda i, *_: i < 3, body, [0, tf.ones([8]), ""])
    return [Run(v.initializer)] + [Run(loop, {fed: np.linspace(-k, 1, 8)}) for k in range(2)]


def _elsewhere(kind):
    """One GPU makes a list, or an optional value; another one of its task takes from it."""
    make, read = [place for place in PLACES if "GPU" in place][:2] or ["", ""]
    fed, raw = tf1.placeholder(tf.float32, [4, 3]), tf.raw_ops
    with tf.device(make):
        x = tf.tanh(fed)
        if kind == "optional":
            made = raw.OptionalFromValue(components=[x])
        else:
            made = raw.TensorListFromTensor(tensor=x, element_shape=[3])
    with tf.device(read):
        if kind == "optional":
            y = raw.OptionalGetValue(optional=made, output_types=[tf.float32],
                                     output_shapes=[[4, 3]])[0]
        elif kind == "list":
            y = raw.TensorListStack(input_handle=made, element_shape=[3],
                                    element_dtype=tf.float32)
        else:
            made, y = raw.TensorListPopBack(input_handle=made, element_shape=[3],
                                            element_dtype=tf.float32)
        y = tf.exp(y) * 2.0
    with tf.device(make):
        back = raw.TensorListLength(input_handle=made) if kind == "popped" else y + x
    return [Run([y, back], {fed: np.linspace(-1, k, 12).reshape(4, 3)}) for k in range(3)]


def _loop_error():
    """An error in some iteration."""
    x = tf.constant([1, 2, 3])
    i, s = tf1.while_loop(lambda i, s: i < 5, lambda i,
                          s: [i + 1, s + tf.gather(x, i, name="pick")], [0, 0])
    return [Run(s), Run(i)]


def _functional_cond():
    tf1.enable_control_flow_v2()
    try:
        p = tf1.placeholder(tf.bool, [])
        y = tf.cond(p, lambda: tf.constant(1.0), lambda: tf.constant(2.0))
        _, z = tf1.while_loop(lambda i, s: i < 3, lambda i, s: [i + 1, s * 2.0], [0, 1.0])
    finally:
        tf1.disable_control_flow_v2()
    return [Run([y, z], {p: True})]


def _function_call():
    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def f(x):
        return x * 2 + 1

    x = tf1.placeholder(tf.float32, [2])
    return [Run(f(x), {x: [1, 2]})]


# ---- references, and ops that clients rarely make ----


def _reference(name, value):
    with tf.device(PS):
        return tf1.get_variable(name, initializer=value, use_resource=False)


def _ref_switch_and_merge():
    """A reference goes one of two ways and is updated there; the merged one is the variable still.
    """
    v, p = _reference("v", 1.0), tf1.placeholder(tf.bool, [])
    with tf.device(PS):
        off, on = gen.ref_switch(v._ref(), p)  # noqa: SLF001
        added, scaled = tf1.assign_add(off, 10.0), tf1.assign(on, v * 3.0)
        merged, index = gen.ref_merge([added, scaled])
        after = tf1.assign_add(merged, 0.5)
    return [Run(v.initializer), Run([after, index], {p: True}), Run(v),
            Run([after, index], {p: False}), Run(v)]


def _ref_loop(parallel):
    """A loop variable that is a reference: through Enter, Merge, Switch, NextIteration and Exit."""

    def build():
        v, n = _reference("v", 1), tf1.placeholder(tf.int32, [])
        with tf.device(PS):
            limit = gen.enter(n, "refs", is_constant=True, parallel_iterations=parallel)
            i = gen.enter(tf.constant(0), "refs", parallel_iterations=parallel)
            ref = gen.ref_enter(v._ref(), "refs", parallel_iterations=parallel)  # noqa: SLF001
            i, ref = gen.merge([i, i])[0], gen.ref_merge([ref, ref])[0]
            going = gen.loop_cond(i < limit)
            end_i, next_i = gen.switch(i, going)
            end_ref, next_ref = gen.ref_switch(ref, going)
            with tf.control_dependencies([next_i]):
                one = tf.constant(1)
            updated = tf1.assign_add(next_ref, next_i)
            i.op._update_input(1, gen.next_iteration(next_i + one))  # noqa: SLF001
            ref.op._update_input(1, gen.ref_next_iteration(updated))  # noqa: SLF001
            out = tf1.assign_add(gen.ref_exit(end_ref), 100)
        return [Run(v.initializer), Run([out, gen._exit(end_i)], {n: 5}), Run(v),
                Run([out], {n: 0}), Run(v)]

    return build


def _ref_select():
    """The variable that an index names is the one that is updated; no other index will do."""
    variables, i = [_reference(name, value) for name,
                    value in (("a", 1.0), ("b", 2.0), ("c", 3.0))], tf1.placeholder(tf.int32, None)
    with tf.device(PS):
        chosen = gen.ref_select(i, [v._ref() for v in variables])  # noqa: SLF001
        added = tf1.assign_add(chosen, 10.0)
    return [Run([v.initializer for v in variables]), Run(chosen, {i: 2}), Run(added, {i: 1}),
            Run(variables), Run(added, {i: 3}), Run(added, {i: -1}),
            Run(chosen, {i: [0]})]


def _ref_constant_enter():
    v = _reference("v", 7)
    with tf.device(PS):
        ref = gen.ref_enter(v._ref(), "once", is_constant=True)  # noqa: SLF001
        nine = gen.enter(tf.constant(9), "once")
        out = gen._exit(tf1.assign(ref, nine) + nine)
    return [Run(v.initializer), Run(out), Run(v)]


def _loop_sees_what_its_body_assigns():
    """A loop of the old kind: its condition and its body read a variable that the body updates, and
    end by that."""
    v, w = _reference("v", 0), _reference("w", 2.0)

    def add(_):
        with tf.control_dependencies([tf1.assign_add(v, 1)]):
            return tf.identity(v)

    def square(i, x):
        return i + 1, tf1.cond(tf.constant(True), lambda: tf1.assign(w, tf.square(w)), lambda: w)

    with tf.device(PS):
        counted = tf1.while_loop(lambda _: tf.less(v, 10), add, [v], parallel_iterations=1)
        squared = tf1.while_loop(lambda i, x: i < 4, square, [tf.constant(0), w],
                                 parallel_iterations=1)[1]
        kept = tf1.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x), [tf.constant(0), w])[1]
        doubled = tf1.cond(tf.less(w, 5.0), lambda: w * 2, lambda: w + 1)
    return [Run([v.initializer, w.initializer]), Run(counted), Run(v), Run(doubled), Run(kept),
            Run(squared), Run(w), Run(kept)]


def _control_trigger():
    """It runs after dead inputs too."""
    v, p = _reference("v", 0), tf1.placeholder(tf.bool, [])
    off, on = tf1.raw_ops.Switch(data=tf.constant(1), pred=p)
    with tf.control_dependencies([tf.identity(off), tf.identity(on)]):
        trigger = gen.control_trigger()
    with tf.control_dependencies([trigger]):
        after = tf1.assign_add(v, 1)
    return [Run(v.initializer), Run(after, {p: True}), Run(after, {p: False}), Run(v)]


def _frame_without_a_loop(tasks):
    """Enter and Exit by hand, with nothing between that turns: the frame runs once, on each task
    that has a part of it."""

    def build():
        x, p = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.bool, [])
        with tf.device(tasks[0]):
            a = gen.enter(x, "once", is_constant=False)
        with tf.device(tasks[1]):
            b = gen.enter(tf.constant(5.0), "once", is_constant=True)
            inner = gen.enter(a * b, "inside", is_constant=False)
        with tf.device(tasks[2]):
            made = gen._exit(tf.square(inner))
            off, on = gen.switch(made, gen.enter(p, "once", is_constant=True))
        with tf.device(tasks[0]):
            chosen = gen.merge([off * a, tf.negative(on)])
            out, which = gen._exit(chosen.output), gen._exit(chosen.value_index)
        return [Run([out, which], {x: [1.0, 2.0], p: flag}) for flag in (True, False)]

    return build


def _abort():
    with tf.control_dependencies([gen.abort("on purpose")]):
        return [Run(tf.constant(1)), Run(gen.abort(exit_without_error=True))]


def _parallel_iterations(n_parallel):
    """Loops of no, one, and many iterations; bodies whose iterations may overtake each other in
    part."""

    def build():
        n = tf1.placeholder(tf.int32, [])
        options = dict(parallel_iterations=n_parallel)

        def body(i, a, b, values):
            a, slow = a * 1.5 + 1, tf.reduce_sum(tf.ones([200]) * tf.cast(i, tf.float32))
            return [i + 1, tf1.math.floormod(a, 7.0), b + slow, values.write(i, a)]

        start = [0, 1.0, 0.0, tf.TensorArray(tf.float32, n)]
        i, a, b, values = tf1.while_loop(lambda i, *_: i < n, body, start, **options)
        # noqa: E731
        inner = lambda j, s: tf1.while_loop(lambda k, _: k < j, lambda k, t: [k + 1, t + k * j],
                                            [0, s], **options)[1]
        nested = tf1.while_loop(lambda j, _: j < n, lambda j, s: [j + 1, inner(j, s)], [0, 0],
                                **options)
        return [Run([i, a, b, values.size(), nested], {n: value}) for value in (0, 1, 40)] + [
            Run(values.stack(), {n: 7})]

    return build


def cases():
    for name, tasks in (("one", (PS, PS, PS)), ("two", (PS, WORKER0, PS)),
                        ("three", (WORKER1, PS, WORKER0))):
        yield f"control_flow/frame_without_a_loop/{name}", _frame_without_a_loop(tasks)
    for n_parallel in (1, 10, 32):
        yield f"flow/while/parallel_iterations/{n_parallel}", _parallel_iterations(n_parallel)
        yield f"flow/ref/loop/{n_parallel}", _ref_loop(n_parallel)
    yield "flow/ref/switch_and_merge", _ref_switch_and_merge
    yield "flow/ref/constant_enter", _ref_constant_enter
    yield "flow/ref/select", _ref_select
    yield "flow/ref/loop_sees_updates", _loop_sees_what_its_body_assigns
    yield "flow/control_trigger", _control_trigger
    yield "flow/abort", _abort, {"cluster_error": (tf.errors.AbortedError, "Abort")}
    for where, device in (("default", None), ("ps", PS)):
        yield f"flow/cond/{where}", _cond(device)
        yield f"flow/while/{where}", _while(device, 10)
    yield "flow/while/one_iteration_at_a_time", _while(None, 1)
    yield "flow/cond/effects", _cond_effects
    yield "flow/cond/across_tasks", _cond_across_tasks
    yield "flow/case", _case(False)
    yield "flow/case_exclusive", _case(True)
    yield "flow/switch_case", _switch_case
    yield "flow/while/shapes", _while_shapes
    yield "flow/while/nested", _nested_while
    yield "flow/while/cond_inside", _while_cond
    for kind in ("ref", "resource"):
        yield f"flow/while/{kind}_variable", _while_variable(kind == "resource")
        for where, device in (("default", None), ("ps", PS)):
            yield f"flow/while/gradient_of_{kind}_variable/{where}", _while_gradient_of_variable(
                kind == "resource", device)
    yield "flow/while/gradient", _while_gradient(10, False)
    yield "flow/while/gradient_swapped", _while_gradient(10, True)
    yield "flow/while/gradient_one_iteration_at_a_time", _while_gradient(1, False)
    yield "flow/while/nested_gradient", _nested_while_gradient
    yield "flow/while/cond_gradient", _cond_in_while_gradient
    yield "flow/map_fn", _map_fn
    yield "flow/scan_and_folds", _scan
    yield "flow/tensor_array", _tensor_array
    yield "flow/tensor_array_written_twice", _tensor_array_twice
    yield "flow/dynamic_rnn", _dynamic_rnn
    yield "flow/dead_fetch", _dead_fetch
    yield "flow/merge", _merge
    yield "flow/print_and_assert", _print_assert
    yield "flow/print_v2", _print_v2
    yield "flow/control_dependencies", _control_dependencies
    yield "flow/long_loop", _long_loop
    for source in ("fed", "constant", "variable", "computed"):
        yield f"flow/invariants/{source}", lambda source=source: _invariants(source), {"rtol": 1e-4}
    for kind in ("optional", "list", "popped"):
        yield f"flow/elsewhere/{kind}", lambda kind=kind: _elsewhere(kind), {"rtol": 1e-5}
    yield "flow/error_in_an_iteration", _loop_error
    yield "flow/while/across_tasks", _loop_across_tasks
    yield "flow/functional_cond_and_while", _functional_cond
    yield "flow/function_call", _function_call
