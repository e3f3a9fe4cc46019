"""Which effects happen: conditionals, loops and calls that count how often they do something, of
which a program needs only one value, or waits for, or neither; in a graph, and within each other.
"""

import itertools

from programs import PS, WORKER0, WORKER1, Run, tf, tf1
from programs_functions import v2


def _counter():
    with tf.device(PS):
        return tf1.get_variable("count", initializer=0, use_resource=True)


def _two_values(count, x):
    """The first is known once the count is increased, the second does not need that."""
    with tf.device(WORKER1), tf.control_dependencies([count.assign_add(1, read_value=False)]):
        first = tf.identity(x)
    with tf.device(WORKER0):
        return first, x * 2.0


def _cond(count, x):
    return tf.cond(x > -100.0, lambda: _two_values(count, x), lambda: (x, x))


def _loop(count, x):
    return tf1.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (
        i + 1, _two_values(count, a)[0], _two_values(count, b)[1]), [0, x, x])[1:]


def _call(count, x):
    return tf.function(lambda: _two_values(count, x), autograph=False)()


DOES = {"node": _two_values, "cond": _cond, "loop": _loop, "call": _call}


def _behind(op, x):
    with tf.control_dependencies([op]):
        return x + 1.0


def _op(value):
    """The op behind the Identity that the client adds to each value."""
    return value.op.inputs[0].op if value.op.type == "Identity" else value.op


USES = {
    "first": lambda values, x: values[0] + 1.0,
    "second": lambda values, x: values[1] + 1.0,
    "wait": lambda values, x: _behind(_op(values[1]), x),
    "wait for a value": lambda values, x: _behind(values[1].op, x),
    "nothing": lambda values, x: x + 1.0,
    # a function takes it
    "ignore": lambda values, x: tf.function(lambda a, b: b + 1.0, autograph=False)(values[0], x),
    # a branch takes it and hands out something else
    "pass": lambda values, x: tf.cond(x > -99.0, lambda: (values[0] + 3.0, x + 2.0), lambda: (
        values[0], x))[1],
    "pass both": lambda values, x: tf.cond(x > -99.0, lambda: (values[0] + 3.0, x + 2.0), lambda: (
        values[0], values[1]))[1],
}
WITHIN = {
    "graph": lambda use, x: use(x),
    "cond": lambda use, x: tf.cond(x > -98.0, lambda: use(x), lambda: x),
    "loop": lambda use, x: tf1.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, use(y)), [
        0, x])[1],
    "call": lambda use, x: tf.function(use, autograph=False)(x),
    "case in a loop": lambda use, x: WITHIN["loop"](lambda y: tf.switch_case(
        tf.cast(y > -98.0, tf.int32), [lambda: y, lambda: use(y)]), x),
}


def _effects(within, does, uses):
    @v2
    def build():
        count, x = _counter(), tf1.placeholder(tf.float32, [])
        fetch = WITHIN[within](lambda y: USES[uses](DOES[does](count, y), y), x)
        read = count.read_value()
        return [Run(count.initializer), Run(fetch, {x: 1.0}), Run(read), Run(fetch.op, {x: 2.0}),
                Run(read)]

    return build


@v2
def _several():
    """One call or conditional, each of its values, then both; what waits for it besides."""
    count, x = _counter(), tf1.placeholder(tf.float32, [])
    made = [do(count, x) for do in DOES.values()]
    read = count.read_value()
    fetches = [list(values) for values in made]
    fetches += [value for values in made for value in values]
    fetches += [[values[0], _behind(_op(values[0]), x)] for values in made]
    return [Run(count.initializer)] + [run for fetch in fetches
                                       for run in (Run(fetch, {x: 1.0}), Run(read))]


def cases():
    for within, does, uses in itertools.product(WITHIN, DOES, USES):
        yield f"effects/{uses} of {does} in {within}", _effects(within, does, uses)
    yield "effects/several values", _several
