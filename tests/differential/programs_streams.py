"""State of functions' bodies: the streams of seeded random ops and the resources that several calls
of one function share, and the effects of nodes whose values nobody uses.

In TensorFlow a function that a kernel calls exists once, so its calls share one stream: three calls
draw three numbers. Which call gets which number depends on their order, so the values of a step are
compared sorted. Where TensorFlow inlines a call, the copy has a stream of its own and draws what
the other copies draw; here PartitionedCalls share in that case, too (docs/compatibility.md), and
the oracle is another program."""

import itertools
import os
import tempfile

import numpy as np
from programs import PS, WORKER0, WORKER1, Run, tf, tf1
from programs_functions import v2
from tensorflow.python.framework import function as legacy
from tensorflow.python.ops import functional_ops

R = tf.raw_ops
TASK = "/job:localhost/replica:0/task:0/device:CPU:0"


def normal():
    return tf1.random_normal([], seed=5)


def scalar():
    return tf1.placeholder_with_default(0.0, [])


def truth():
    return tf1.placeholder_with_default(True, [])


def sorted_runs(values, n_steps=3):
    """The values of each step without their order."""
    flat = tf.concat([tf.reshape(v, [-1]) for v in values], 0)
    return [Run(tf.sort(flat))] * n_steps


def lowered(op):
    op._set_attr("_lower_using_switch_merge", tf1.AttrValue(b=True))  # noqa: SLF001


# ---- ways to call a function of one float ----


def call_direct(f, x):
    return f(x)


def call_partitioned(f, x):
    return R.PartitionedCall(args=[x], Tout=[tf.float32], f=f)[0]


def call_stateful(f, x):
    return R.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=f)[0]


def call_if(f, x, is_lowered=False):
    made = R.If(cond=truth(), input=[x], Tout=[tf.float32], then_branch=f, else_branch=f)[0]
    if is_lowered:
        lowered(made.op)
    return made


def call_case(f, x, is_lowered=False):
    index = tf1.placeholder_with_default(1, [])
    made = R.Case(branch_index=index, input=[x], Tout=[tf.float32], branches=[f, f, f])[0]
    if is_lowered:
        lowered(made.op)
    return made


def call_remote(f, x):
    return R.RemoteCall(target=TASK, args=[x], Tout=[tf.float32], f=f)[0]


WAYS = {"direct": call_direct, "partitioned": call_partitioned, "stateful": call_stateful,
        "if": call_if, "case": call_case, "if lowered": lambda f, x: call_if(f, x, True),
        "case lowered": lambda f, x: call_case(f, x, True)}  # fmt: skip


def three_calls(way, make=normal):
    def build():
        @legacy.Defun(tf.float32)
        def f(x):
            return tf.cast(make(), tf.float32) + x

        return sorted_runs([way(f, scalar()) for _ in range(3)])

    return build


def _remote(by_client):
    """RemoteCall's device is a constant of the graph: another one in process."""

    def build():
        @legacy.Defun(tf.float32)
        def f(x):
            return normal() + x

        target = "/job:worker/replica:0/task:0/device:CPU:0" if by_client else TASK
        return sorted_runs([R.RemoteCall(target=tf.constant(target), args=[scalar()],
                                         Tout=[tf.float32], f=f)[0] for _ in range(3)])

    return build


def _without_arguments():
    f = tf.function(normal)
    made = legacy.Defun()(normal)
    raw = legacy.Defun()(lambda: normal() * 2)
    return sorted_runs([f() for _ in range(3)]) + sorted_runs([made() for _ in range(3)]) + (
        sorted_runs([R.StatefulPartitionedCall(args=[], Tout=[tf.float32], f=raw)[0]
                     for _ in range(3)]))


@v2
def _branches_of_the_client():
    f = tf.function(lambda x: normal() + x)
    x, p = scalar(), truth()
    return sorted_runs([tf1.cond(p, lambda: f(x), lambda: x) for _ in range(2)] + [f(x)])


def _loops():
    @legacy.Defun(tf.int32, tf.float32)
    def going(i, x):
        return i < 3

    @legacy.Defun(tf.int32, tf.float32)
    def body(i, x):
        return i + 1, x + tf.cast(normal() * 1e6, tf.float32)

    @legacy.Defun(tf.int32, tf.float32)
    def step(i, x):
        return x + tf.cast(normal() * 1e6, tf.float32)

    loops = [functional_ops.While([tf.constant(0), scalar()], going, body)[1] for _ in range(2)]
    counted = [functional_ops.For(0, 3, 1, [scalar()], step)[0] for _ in range(2)]
    return [Run(tf.add_n(loops))] * 2 + [Run(tf.add_n(counted))] * 2


@v2
def _calls_in_loops():
    """Six draws of one stream, three in each loop, and one more."""
    f = tf.function(normal)
    loops = [tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + f()), [0, scalar()])[1]
             for _ in range(2)]
    return [Run(tf.add_n(loops + [f()]))] * 3


def _one_stream(n):
    """What n calls of one function draw."""

    def build():
        f = legacy.Defun()(normal)
        return sorted_runs([f() for _ in range(n)])

    return build


def _sum_of_one_stream(n):
    def build():
        f = legacy.Defun()(normal)
        return [Run(tf.add_n([f() for _ in range(n)]))] * 3

    return build


def _nested(op):
    """TensorFlow inlines the inner calls into the outer body."""

    def build():
        @legacy.Defun(tf.float32)
        def f(x):
            return normal() + x

        @legacy.Defun(tf.float32)
        def g(x):
            return op(args=[x], Tout=[tf.float32], f=f)[0], op(args=[x], Tout=[tf.float32], f=f)[0]

        x = scalar()
        made = [v for _ in range(2) for v in op(args=[x], Tout=[tf.float32] * 2, f=g)]
        return sorted_runs(made + [op(args=[x], Tout=[tf.float32], f=f)[0]])

    return build


def _all_ways():
    @legacy.Defun(tf.float32)
    def f(x):
        return normal() + x

    names = ("direct", "partitioned", "stateful", "if", "case")
    return sorted_runs([WAYS[name](f, scalar()) for name in names])


def _lowered_in_function():
    """The two conditionals of the body have a stream each; its two calls share them."""
    @legacy.Defun(tf.float32)
    def f(x):
        return normal() + x

    @legacy.Defun(tf.float32)
    def g(x):
        made = [R.If(cond=x < 1, input=[x], Tout=[tf.float32], then_branch=f, else_branch=f)[0]
                for _ in range(2)]
        for output in made:
            lowered(output.op)
        return made

    x = scalar()
    return sorted_runs([v for _ in range(2) for v in R.StatefulPartitionedCall(
        args=[x], Tout=[tf.float32] * 2, f=g)])


def _two_functions():
    @legacy.Defun(tf.float32)
    def f(x):
        return normal() + x

    @legacy.Defun(tf.float32)
    def g(x):
        return normal() + x

    return sorted_runs([h(scalar()) for h in (f, f, g, g)])


def _gradient():
    """SymbolicGradient computes the function again, in a body of its own."""
    @legacy.Defun(tf.float32)
    def f(x):
        return x * normal()

    x = tf1.placeholder_with_default(1.0, [])
    made = [f(x) for _ in range(2)]
    return sorted_runs(made + [tf1.gradients(y, x)[0] for y in made])


def _several_signatures():
    f = legacy.Defun()(normal)
    made = [f() for _ in range(3)]
    return [Run(made[0]), Run(made[1]), Run(tf.sort(tf.stack(made))), Run(made[0]), Run(made[2])]


def _on_tasks():
    """Each task has a stream."""
    @legacy.Defun(tf.float32)
    def f(x):
        return normal() + x

    made = []
    for task in (PS, WORKER0, WORKER1):
        with tf.device(task):
            made += [f(scalar()), f(scalar())]
    return sorted_runs(made)


def _scaled(factor):
    @legacy.Defun(tf.float32)
    def f(x):
        return normal() + x * factor

    return f


def _on_tasks_oracle():
    """Three functions: equal ones would be one."""
    made = []
    for factor in (1.0, 2.0, 3.0):
        f = _scaled(factor)
        made += [f(scalar()), f(scalar())]
    return sorted_runs(made)


def _queue():
    """A queue without a shared_name belongs to the body's node, too."""
    @legacy.Defun()
    def f():
        queue = R.FIFOQueueV2(component_types=[tf.float32])
        with tf.control_dependencies([R.QueueEnqueueV2(handle=queue, components=[1.0])]):
            return R.QueueSizeV2(handle=queue)

    return sorted_runs([f() for _ in range(3)])


def _variable_in_body():
    @legacy.Defun()
    def f():
        handle = R.VarHandleOp(dtype=tf.float32, shape=[])
        was = tf.cast(R.VarIsInitializedOp(resource=handle), tf.float32)
        with tf.control_dependencies([was]):
            with tf.control_dependencies([R.AssignVariableOp(resource=handle, value=3.0)]):
                return was * 1.0

    first, second = f(), f()
    return [Run(first), Run(second), Run([first, second])]


# ---- seeded ops ----

SEEDED = {
    "uniform": lambda: tf1.random_uniform([3], seed=5),
    "uniform int": lambda: tf1.random_uniform([3], 0, 1000, tf.int32, seed=5),
    "normal": lambda: tf1.random_normal([3], seed=5),
    "truncated": lambda: tf1.truncated_normal([3], seed=5),
    "gamma": lambda: tf1.random_gamma([3], 2.0, seed=5),
    "poisson": lambda: tf1.random_poisson(4.0, [3], seed=5),
    "multinomial": lambda: tf1.multinomial([[1.0, 2.0, 3.0, 4.0]], 4, seed=5),
    "shuffle": lambda: tf1.random_shuffle(tf.range(50), seed=5)[:3],
    "sampler uniform": lambda: R.UniformCandidateSampler(
        true_classes=[[1]], num_true=1, num_sampled=4, unique=True, range_max=1000, seed=5)[0],
    "sampler log uniform": lambda: R.LogUniformCandidateSampler(
        true_classes=[[1]], num_true=1, num_sampled=4, unique=False, range_max=1000, seed=5)[0],
    "box": lambda: R.SampleDistortedBoundingBoxV2(
        image_size=[50, 50, 3], bounding_boxes=[[[0.1, 0.2, 0.8, 0.9]]], min_object_covered=0.1,
        seed=5)[0],
}  # fmt: skip


# ---- effects of nodes that nobody uses ----


def _effect_bodies(do):
    """Functions of a float and a handle: with an output, without any, and without the effect."""
    @legacy.Defun(tf.float32, tf.resource)
    def both(y, handle):
        do(handle)
        return y * 2.0

    @legacy.Defun(tf.float32, tf.resource)
    def only(y, handle):
        do(handle)

    @legacy.Defun(tf.float32, tf.resource)
    def neither(y, handle):
        return y * 3.0

    @legacy.Defun(tf.float32, tf.resource)
    def nothing(y, handle):
        return None

    return both, only, neither, nothing


def _while_of(body_of, is_lowered):
    def make(f, other, x, handle, outputs):
        @legacy.Defun(tf.int32, tf.float32, tf.resource)
        def going(i, y, h):
            return i < 2

        @legacy.Defun(tf.int32, tf.float32, tf.resource)
        def body(i, y, h):
            body_of(f, y, h)
            return i + 1, y, h

        made = R.While(input=[tf.constant(0), x, handle], cond=going, body=body)
        if is_lowered:
            lowered(made[0].op)
        return made[0].op

    return make


def _for(f, other, x, handle, outputs):
    @legacy.Defun(tf.int32, tf.float32, tf.resource)
    def body(i, y, h):
        f(y, h)
        return y, h

    return R.For(start=0, limit=2, delta=1, input=[x, handle], body=body)[0].op


def _op_of(make):
    """The op that `make` adds last: raw ops without outputs return nothing."""
    graph = tf1.get_default_graph()
    n = len(graph.get_operations())
    make()
    return graph.get_operations()[n:][-1]


EFFECT_WAYS = {
    "direct": lambda f, other, x, h, outputs: _op_of(lambda: f(x, h)),
    "partitioned": lambda f, other, x, h, outputs: _op_of(
        lambda: R.PartitionedCall(args=[x, h], Tout=outputs, f=f)),
    "stateful": lambda f, other, x, h, outputs: _op_of(
        lambda: R.StatefulPartitionedCall(args=[x, h], Tout=outputs, f=f)),
    "if": lambda f, other, x, h, outputs: _op_of(
        lambda: R.If(cond=x < 5, input=[x, h], Tout=outputs, then_branch=f, else_branch=other)),
    "if lowered": lambda f, other, x, h, outputs: _lowered_op(
        lambda: R.If(cond=x < 5, input=[x, h], Tout=outputs, then_branch=f, else_branch=other)),
    "case": lambda f, other, x, h, outputs: _op_of(
        lambda: R.Case(branch_index=tf.cast(x, tf.int32), input=[x, h], Tout=outputs,
                       branches=[other, f])),
    "case lowered": lambda f, other, x, h, outputs: _lowered_op(
        lambda: R.Case(branch_index=tf.cast(x, tf.int32), input=[x, h], Tout=outputs,
                       branches=[other, f])),
    "while": _while_of(lambda f, y, h: f(y, h), False),
    "while lowered": _while_of(lambda f, y, h: f(y, h), True),
    "for": _for,
}


def _lowered_op(make):
    op = _op_of(make)
    lowered(op)
    return op


def _assign(handle):
    R.AssignAddVariableOp(resource=handle, value=1.0)


def _enqueue(handle):
    R.QueueEnqueueV2(handle=handle, components=[1.0])


def _insert(handle):
    R.LookupTableInsertV2(table_handle=handle, keys=[7], values=[1.0])


def _new_variable():
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)
    return v.handle, v.initializer, v.read_value()


def _new_queue():
    queue = tf.queue.FIFOQueue(100, [tf.float32], [[]])
    return queue.queue_ref, tf.no_op(), queue.size()


def _new_table():
    handle = R.MutableHashTableV2(key_dtype=tf.int32, value_dtype=tf.float32)
    return handle, tf.no_op(), R.LookupTableSizeV2(table_handle=handle)


STATES = {"variable": (_new_variable, _assign), "queue": (_new_queue, _enqueue),
          "table": (_new_table, _insert)}  # fmt: skip


def _effects(way, state, has_output, wraps, inner_has_output=False):
    """The call as a target, then its output where it has one; the state is read after each.
    `wraps`: the function calls that way another one, which has the effect."""

    def build():
        new, do = STATES[state]
        handle, initializer, read = new()
        x = tf1.placeholder_with_default(1.0, [])
        both, only, neither, nothing = _effect_bodies(do)
        f, other = (both, neither) if has_output else (only, nothing)
        outputs = [tf.float32] if has_output else []
        if wraps:
            inner, inner_other = (both, neither) if inner_has_output else (only, nothing)

            @legacy.Defun(tf.float32, tf.resource)
            def outer(y, h):
                EFFECT_WAYS[wraps](inner, inner_other, y, h, [tf.float32] * inner_has_output)
                if has_output:
                    return y * 5.0

            f = outer
        op = EFFECT_WAYS[way](f, other, x, handle, outputs)
        floats = [out for out in op.outputs if out.dtype == tf.float32]
        runs = [Run(initializer), Run(op), Run(read)]
        return runs + ([Run(floats[0]), Run(read)] if floats else [])

    return build


def _failing(way, has_output):
    """An Assert that nobody needs, and a check that is not stateful."""

    def build():
        x = tf1.placeholder_with_default(1.0, [])
        v = tf1.get_variable("v", initializer=0.0, use_resource=True)
        both, only, neither, nothing = _effect_bodies(
            lambda handle: R.Assert(condition=False, data=["never"]))
        f, other = (both, neither) if has_output else (only, nothing)
        op = EFFECT_WAYS[way](f, other, x, v.handle, [tf.float32] if has_output else [])
        return [Run(v.initializer), Run(op)]

    return build


def _stateless_check(way):
    """A body without outputs is not pruned when a PartitionedCall runs it."""

    def build():
        x = tf1.placeholder_with_default(float("nan"), [])
        v = tf1.get_variable("v", initializer=0.0, use_resource=True)

        @legacy.Defun(tf.float32, tf.resource)
        def f(y, handle):
            tf.debugging.check_numerics(y, "found")

        return [Run(v.initializer), Run(EFFECT_WAYS[way](f, f, x, v.handle, []))]

    return build


def _summary():
    directory = tempfile.mkdtemp(prefix="millrace-summary-")

    @legacy.Defun(tf.float32, tf.resource)
    def f(y, writer):
        R.WriteScalarSummary(writer=writer, step=1, tag="t", value=y)
        R.FlushSummaryWriter(writer=writer)

    writer = R.SummaryWriter(shared_name="w")
    made = R.CreateSummaryFileWriter(writer=writer, logdir=directory, max_queue=1,
                                     flush_millis=100000, filename_suffix=".w")
    files = tf.io.matching_files(os.path.join(directory, "*.w"))
    call = _op_of(lambda: R.StatefulPartitionedCall(args=[1.0, writer], Tout=[], f=f))
    return [Run(made), Run(call), Run(tf.size(files))]


def _in_dataset():
    """A map's function runs its stateful nodes, also those of functions that it calls."""
    v = tf1.get_variable("v", initializer=0.0, use_resource=True)

    @legacy.Defun(tf.float32, tf.resource)
    def only(y, handle):
        _assign(handle)

    def step(i):
        R.StatefulPartitionedCall(args=[1.0, v.handle], Tout=[], f=only)
        return i

    iterator = tf1.data.make_initializable_iterator(tf.data.Dataset.range(4).map(step).batch(4))
    return [Run(v.initializer), Run(iterator.initializer), Run(iterator.get_next()),
            Run(v.read_value())]


# ---- instances of functions that a kernel calls ----


def _instances(kind):
    """Two nodes give one function different attrs: tensors that differ behind their first 256
    elements, strings with a quote, lists. The client cannot write such a function, so the graph is
    edited."""

    def build():
        def value(last):
            data = np.zeros(300, np.int64)
            data[299] = last
            return data

        with tf.Graph().as_default() as graph:
            data = tf.data.Dataset.range(2)
            sets = [data.map(lambda i: i + tf.reduce_sum(tf.constant(value(7)))) for _ in range(2)]
            for i, mapped in enumerate(sets):
                iterator = tf1.data.make_initializable_iterator(mapped, shared_name=f"i{i}")
                tf.identity(iterator.get_next(), name=f"next{i}")
                tf.group(iterator.initializer, name=f"start{i}")
        graph_def = graph.as_graph_def()
        maps = [n for n in graph_def.node if n.op == "MapDataset"]
        names = [n.attr["f"].func.name for n in maps]
        body = next(f for f in graph_def.library.function if f.signature.name == names[0])
        const = next(n for n in body.node_def if n.op == "Const" and
                     n.attr["value"].tensor.tensor_shape.dim)
        const.attr["value"].placeholder = "v"
        body.signature.attr.add(name="v", type="tensor")
        for node, last in zip(maps, (1, 2)):
            node.attr["f"].func.name = names[0]
            node.attr["f"].func.attr["v"].tensor.CopyFrom(tf.make_tensor_proto(value(last)))
            if kind == "numbered":
                node.attr["f"].func.attr["_instance"].i = 0
        got = tf.import_graph_def(graph_def, name="", return_elements=[
            "start0", "start1", "next0:0", "next1:0"])
        return [Run(got[:2]), Run(got[2:]), Run(got[2:]), Run(got[2])]

    return build


def _instances_oracle():
    """TensorFlow's functions have attrs that are types only."""
    iterators = [tf1.data.make_initializable_iterator(tf.data.Dataset.range(2).map(
        lambda i, n=n: i + n)) for n in (1, 2)]
    got = [i.get_next() for i in iterators]
    return [Run([i.initializer for i in iterators]), Run(got), Run(got), Run(got[0])]


def cases():
    for name, way in WAYS.items():
        yield f"streams/three calls/{name}", three_calls(way)
    yield "streams/three calls/remote", _remote(True), {"oracle": _remote(False)}
    for name, make in SEEDED.items():
        for way in ("direct", "stateful", "case lowered"):
            yield f"streams/{name}/{way}", three_calls(WAYS[way], lambda make=make: tf.reduce_sum(
                tf.cast(make(), tf.float32)))
    yield "streams/without arguments", _without_arguments
    yield "streams/branches of the client", _branches_of_the_client
    yield "streams/loops", _loops, {"rtol": 1e-4, "any_order": True}
    yield "streams/calls in loops", _calls_in_loops, {
        "oracle": _sum_of_one_stream(7), "rtol": 1e-4, "any_order": True}
    yield "streams/all ways", _all_ways, {"oracle": _one_stream(5)}
    for op in (R.PartitionedCall, R.StatefulPartitionedCall):
        yield f"streams/nested/{op.__name__}", _nested(op), {"oracle": _one_stream(5)}
    yield "streams/lowered in a function", _lowered_in_function
    yield "streams/two functions", _two_functions
    yield "streams/gradient", _gradient
    yield "streams/several signatures", _several_signatures
    yield "streams/on tasks", _on_tasks, {"oracle": _on_tasks_oracle, "is_about_tasks": True}
    yield "streams/queue", _queue
    yield "streams/variable in a body", _variable_in_body
    for way, state, has_output in itertools.product(EFFECT_WAYS, STATES, (True, False)):
        yield (f"effects/{way}/{state}/{'output' if has_output else 'none'}",
               _effects(way, state, has_output, None))
    some = ("direct", "partitioned", "stateful", "if", "if lowered")
    for way, inner, has_output, inner_has in itertools.product(some, some, (True, False),
                                                               (True, False)):
        which = f"{'output' if has_output else 'none'}, {'output' if inner_has else 'none'}"
        yield (f"effects/{way} of {inner}/{which}",
               _effects(way, "variable", has_output, inner, inner_has))
    for way, has_output in itertools.product(EFFECT_WAYS, (True, False)):
        yield (f"effects/failing/{way}/{'output' if has_output else 'none'}",
               _failing(way, has_output), {"node": False})
    for way in ("direct", "stateful", "if", "if lowered"):
        yield f"effects/check/{way}", _stateless_check(way), {"node": False}
    yield "effects/summary", _summary
    yield "effects/dataset", _in_dataset
    for kind in ("plain", "numbered"):
        yield f"instances/{kind}", _instances(kind), {"oracle": _instances_oracle}
