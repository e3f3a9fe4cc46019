"""Reference variables that are read behind ops which forward their buffer, and updated before the
read is used: each such op, kind of update and place of the update, and reads that are fetched.

In TensorFlow these ops share the variable's buffer, which updates write in place, so a use after
the update sees it. Every program orders its uses by control edges, so its result is certain.
"""

import numpy as np
from programs import PS, WORKER1, Run, tf, tf1
from tensorflow.python.framework import function

START = np.arange(4, dtype=np.float32).reshape(2, 2)

FORWARD = {
    "identity": tf.identity,
    "stop_gradient": tf.stop_gradient,
    "prevent_gradient": lambda x: tf.raw_ops.PreventGradient(input=x, message=""),
    "reshape": lambda x: tf.reshape(x, [4]),
    "expand_dims": lambda x: tf.expand_dims(x, 1),
    "squeeze": lambda x: tf.squeeze(tf.expand_dims(x, 0)),
    "ensure_shape": lambda x: tf.ensure_shape(x, [2, None]),
    "check_numerics": lambda x: tf.debugging.check_numerics(x, "bad"),
    "tuple": lambda x: tf.tuple([x])[0],
    "identity_n": lambda x: tf.identity_n([x, x])[1],
    "placeholder_with_default": lambda x: tf1.placeholder_with_default(x, [2, 2]),
    "chain": lambda x: tf.reshape(tf.identity(tf.expand_dims(tf.stop_gradient(x), 0)), [2, 2]),
}
# These make a copy in TensorFlow: a use after the update sees the old value.
COPY = {
    "add": lambda x: x + 0.0,
    "transpose": lambda x: tf.transpose(x, [1, 0]),
    "concat": lambda x: tf.concat([x, x], 0),
}
UPDATES = {
    "assign": lambda v: tf1.assign(v, tf.constant(START * 3 + 1)),
    "assign_add": lambda v: tf1.assign_add(v, tf.ones([2, 2])),
    "assign_sub": lambda v: tf1.assign_sub(v, tf.ones([2, 2])),
    "scatter_update": lambda v: tf1.scatter_update(v, [1], [[50.0, 60.0]]),
    "scatter_add": lambda v: tf1.scatter_add(v, [0], [[5.0, 6.0]]),
    "gradient_descent": lambda v: tf.raw_ops.ApplyGradientDescent(
        var=v._ref(), alpha=0.5, delta=tf.ones([2, 2])),
    "momentum": lambda v: tf1.train.MomentumOptimizer(0.5, 0.9).apply_gradients(
        [(tf.ones([2, 2]), v)]),
}


def _variable():
    with tf.device(PS):
        return tf1.get_variable("v", initializer=tf.constant(START), use_resource=False)


def _after(value, *what):
    """Uses a value after something: a multiplication, which makes a value of its own."""
    with tf.control_dependencies([op for op in what if op is not None]):
        return value * 1.0


def _plain(forward, update):
    def build():
        v = _variable()
        with tf.device(PS):
            w = forward(v)
            with tf.control_dependencies([w]):
                updated = UPDATES[update](v)
            used = _after(w, updated)
        return [Run(tf1.global_variables_initializer()), Run(used), Run(used), Run(v)]

    return build


def _gathered(dtype):
    """Only the constants among the use's inputs have a control edge from the update. An integer
    variable is on the host where its rows are gathered by a GPU."""
    def build():
        v = tf1.get_variable("v", initializer=START.astype(dtype), use_resource=False)
        slow = tf1.while_loop(lambda i: i < 50, lambda i: i + 1, [0], parallel_iterations=1)
        with tf.control_dependencies([slow]):
            update = tf1.scatter_update(v, [0], [[7, 8]])
        with tf.control_dependencies([update]):
            used = tf.gather(v, tf.constant([0]))
        return [Run(tf1.global_variables_initializer()), Run(used), Run(v)]

    return build


def _in_loop(forward, update):
    """The read stands outside, the update inside of a loop."""
    def build():
        v = _variable()
        with tf.device(PS):
            w = forward(v)

            def body(i):
                with tf.control_dependencies([UPDATES[update](v)]):
                    return i + 1

            with tf.control_dependencies([w]):
                start = tf.constant(0) + 0
            done = tf1.while_loop(lambda i: i < 5, body, [start], parallel_iterations=1)
            used = _after(w, done)
        return [Run(tf1.global_variables_initializer()), Run(used), Run(v)]

    return build


def _inside_loop(forward):
    """The read stands outside, its use and the update inside: each iteration sees its update."""
    def build():
        v = _variable()
        with tf.device(PS):
            w = forward(v)

            def body(i, total):
                with tf.control_dependencies([tf1.assign_add(v, tf.ones([2, 2]))]):
                    return i + 1, total + tf.reduce_sum(w * 1.0)

            with tf.control_dependencies([w]):
                start = tf.constant(0) + 0
            _, total = tf1.while_loop(lambda i, _: i < 5, body, [start, 0.0],
                                      parallel_iterations=1)
        return [Run(tf1.global_variables_initializer()), Run(total), Run(v)]

    return build


def _in_cond(forward, taken):
    def build():
        v = _variable()
        with tf.device(PS):
            w = forward(v)
            pred = tf1.placeholder_with_default(taken, [])
            with tf.control_dependencies([w]):
                pred = tf.logical_and(pred, True)

            def grow():
                with tf.control_dependencies([tf1.assign_add(v, tf.ones([2, 2]))]):
                    return tf.constant(1)

            done = tf1.cond(pred, grow, lambda: tf.constant(0))
            used = _after(w, done)
        return [Run(tf1.global_variables_initializer()), Run(used), Run(v)]

    return build


def _through_cond(forward):
    """The read passes a branch after the update of another."""
    def build():
        v = _variable()
        with tf.device(PS):
            w = forward(v)
            pred = tf1.placeholder_with_default(True, [])
            with tf.control_dependencies([w]):
                updated = tf1.assign_add(v, tf.ones([2, 2]))
            with tf.control_dependencies([updated]):
                pred = tf.logical_and(pred, True)
            used = tf1.cond(pred, lambda: w * 2.0, lambda: w * 3.0)
        return [Run(tf1.global_variables_initializer()), Run(used), Run(v)]

    return build


def _to_function(forward):
    """A function gets the read as its argument, and runs after the update."""
    def build():
        @function.Defun(tf.float32)
        def double(x):
            return x * 2.0

        v = _variable()
        with tf.device(PS):
            w = forward(v)
            with tf.control_dependencies([w]):
                updated = tf1.assign_add(v, tf.ones([2, 2]))
            with tf.control_dependencies([updated]):
                used = double(w)
        return [Run(tf1.global_variables_initializer()), Run(used), Run(v)]

    return build


def _fetched(forward):
    """sess.run([train_op, read]) shows the update, however the two are ordered."""
    def build():
        v = _variable()
        with tf.device(PS):
            w = forward(v)
            with tf.control_dependencies([w]):
                train = tf.group(tf1.assign_add(v, tf.ones([2, 2])))
        return [Run(tf1.global_variables_initializer()), Run([train, w]), Run([w, v, train]),
                Run(v)]

    return build


def _fetched_either(forward):
    """What is fetched is a read of the variable or a value of its own, as a predicate says."""
    def build():
        v = _variable()
        with tf.device(PS):
            pred = tf1.placeholder_with_default(True, [])
            w = forward(v)
            either = tf1.cond(pred, lambda: tf.identity(w), lambda: w * 2.0)
            train = tf.group(tf1.assign_add(v, tf.ones([2, 2])))
        return [Run(tf1.global_variables_initializer()), Run(either), Run(either, {pred: False}),
                Run(train), Run([either, v], {pred: False}), Run(either)]

    return build


def _global_step(use_resource):
    """The step that a training loop logs: an optimizer on a worker, the step on a server."""
    def build():
        with tf.device(PS):
            step = tf1.get_variable("global_step", [], tf.int64, tf1.zeros_initializer(),
                                    use_resource=use_resource, trainable=False)
            x = tf1.get_variable("x", initializer=3.0, use_resource=use_resource)
        with tf.device(WORKER1):
            loss = x * x
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        # on the step's own task: another one gets the value that was sent,
        # perhaps before the update
        with tf.device(PS), tf.control_dependencies([train]):
            after = tf.identity(step.read_value()) if use_resource else tf.identity(step) * 1
        runs = [Run([train, after])] if use_resource else [Run([train, step]), Run([train, after])]
        return [Run(tf1.global_variables_initializer())] + runs * 3

    return build


def _resized(forward):
    """An Assign of another size gives the variable another buffer: later reads have its shape."""
    def build():
        v = _variable()
        with tf.device(PS):
            grow = tf1.assign(v, tf.ones([3, 3]), validate_shape=False)
            shape = tf.shape(tf.identity(v))
        return [Run(tf1.global_variables_initializer()), Run(shape), Run(grow), Run(shape)]

    return build


def _outgrown(forward):
    """What was read before keeps the values when the variable gets a larger buffer."""
    def build():
        v = _variable()
        with tf.device(PS):
            old = forward(v)
            with tf.control_dependencies([old]):
                grow = tf1.assign(v, tf.zeros([5, 3]), validate_shape=False)
            with tf.control_dependencies([grow]):
                late, new = old + 0.0, tf.identity(v) + 0.0
        return [Run(tf1.global_variables_initializer()), Run([late, new])]

    return build


def cases():
    for name, forward in {**FORWARD, **COPY}.items():
        for update in UPDATES:
            if name in ("identity", "reshape") or update == "assign_add":
                yield f"references/plain/{name}/{update}", _plain(forward, update)
                yield f"references/in_loop/{name}/{update}", _in_loop(forward, update)
        yield f"references/inside_loop/{name}", _inside_loop(forward)
        yield f"references/in_cond/{name}", _in_cond(forward, True)
        yield f"references/not_in_cond/{name}", _in_cond(forward, False)
        yield f"references/through_cond/{name}", _through_cond(forward)
        yield f"references/to_function/{name}", _to_function(forward)
        if name in FORWARD:
            yield f"references/outgrown/{name}", _outgrown(forward)
            yield f"references/fetched_either/{name}", _fetched_either(forward)
            yield f"references/fetched/{name}", _fetched(forward)
    for dtype in ("int32", "float32"):
        yield f"references/gathered/{dtype}", _gathered(dtype)
    yield "references/global_step/ref", _global_step(False)
    yield "references/global_step/resource", _global_step(True)
    yield "references/resized", _resized(tf.identity)
