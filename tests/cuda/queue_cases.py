"""Queues and variables on a GPU, for run_ops.py: a queue of a GPU keeps its elements there. Each
device has its own resources, so one name on a CPU and on a GPU is two of them, as in TensorFlow.
tf.queue.FIFOQueue asks for a CPU, and GPUCompatibleFIFOQueue does not."""
import threading

import numpy
import tensorflow as tf

from tensorflow.python.ops.data_flow_ops import GPUCompatibleFIFOQueue

from function_cases import on_gpu

RAW, tf1 = tf.raw_ops, tf.compat.v1
CPU, GPU = (f"/job:worker/task:0/device:{device}:0" for device in ("CPU", "GPU"))
TYPES = ("half", "float32", "float64", "int32", "int64", "uint8", "bool", "complex64")


def session_of(target, graph, soft=False):
    return tf1.Session(target, graph=graph,
                       config=tf1.ConfigProto(allow_soft_placement=soft))


def error_of(session, *arguments):
    """The name of the error of a step, or what the step gives."""
    try:
        return session.run(*arguments)
    except tf.errors.OpError as error:
        return type(error).__name__


def of_types(target):
    """Elements of each type, a scalar and an empty one go through a queue in their order."""
    failures = []
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        places = [tf1.placeholder(dtype) for dtype in TYPES]
        queue = GPUCompatibleFIFOQueue(3, TYPES)
        put, got, size = queue.enqueue(places), queue.dequeue(), queue.size()
        with session_of(target, graph) as session:
            made = [[numpy.full(shape, i + 1).astype(dtype) for dtype in TYPES]
                    for i, shape in enumerate(([2, 3], [], [0, 4]))]
            for values in made:
                session.run(put, dict(zip(places, values)))
            if session.run(size) != len(made):
                failures.append("Queue/size")
            for i, values in enumerate(made):
                for dtype, is_, must in zip(TYPES, session.run(got), values):
                    if is_.dtype != must.dtype or not numpy.array_equal(is_, must):
                        failures.append(f"Queue/{dtype}/{i}: {is_}, not {must}")
    return failures


def of_text(target):
    """Text is in host memory on every device."""
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        queue = GPUCompatibleFIFOQueue(3, [tf.string, tf.float32])
        with tf.device(CPU):
            text = tf.constant(["a", "bc"])
        put, got = queue.enqueue([text, tf.constant(2.0)]), queue.dequeue()
        with session_of(target, graph) as session:
            session.run(put)
            text, number = session.run(got)
            return [] if text.tolist() == [b"a", b"bc"] and number == 2 else [f"Queue/text: {text}"]


def between_steps(target):
    """What a step computes on the GPU is there for the next one, without a copy; then the queue is
    closed."""
    failures = []
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        x = tf1.placeholder(tf.float32, [64])
        queue = GPUCompatibleFIFOQueue(4, [tf.float32], shapes=[[64]])
        put, got, closed = queue.enqueue(x * 2), queue.dequeue(), queue.close()
        total = tf.reduce_sum(got * 3)
        is_closed = tf.logical_and(queue.is_closed(), True)
        with session_of(target, graph) as session:
            traces = [tf1.RunMetadata() for _ in range(2)]
            session.run(put, {x: numpy.arange(64)}, options, traces[0])
            found = session.run(total, None, options, traces[1])
            if found != 6 * numpy.arange(64).sum():
                failures.append(f"Queue/between steps: {found}")
            for op, trace in zip(("QueueEnqueueV2", "QueueDequeueV2"), traces):
                if not any(f"{op}(" in label for label in on_gpu(trace)):
                    failures.append(f"{op} is not on the GPU: {on_gpu(trace)}")
            if len(copies_of(traces[1])) != 1:  # the fetch
                failures.append(f"QueueDequeueV2: copies {copies_of(traces[1])}")
            waiting = []
            thread = threading.Thread(target=lambda: waiting.append(session.run(total)))
            thread.start()  # waits for the element, or finds it
            session.run(put, {x: numpy.ones(64)})
            thread.join()
            if waiting != [384]:
                failures.append(f"Queue/waiting: {waiting}")
            if session.run(is_closed):
                failures.append("QueueIsClosedV2: it is open")
            session.run(closed)
            if not session.run(is_closed):
                failures.append("QueueIsClosedV2: it is closed")
            for step, error in ((got, "OutOfRangeError"), (put, "CancelledError")):
                if error_of(session, step, {x: numpy.ones(64)}) != error:
                    failures.append(f"Queue/closed: not {error}")
    return failures


def names(target):
    """One name on two devices is two queues, and two variables of each kind."""
    failures = []
    with tf1.Graph().as_default() as graph:
        steps = {}
        for device in (CPU, GPU):
            with tf.device(device):
                queue = GPUCompatibleFIFOQueue(9, [tf.float32], shared_name="one")
                handle = RAW.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="one")
                ref = RAW.VariableV2(dtype=tf.float32, shape=[3], shared_name="one")
                value = tf.constant([1.0, 2, 3]) * (1 if device == CPU else 2)
                steps[device] = (
                    queue.enqueue(value), queue.size(), queue.dequeue(),
                    RAW.AssignVariableOp(resource=handle, value=value),
                    RAW.ReadVariableOp(resource=handle, dtype=tf.float32) * 1,
                    RAW.Assign(ref=ref, value=value).op, tf.identity(ref) * 1)
        with session_of(target, graph) as session:
            put, size, got, assign, read, assign_ref, read_ref = steps[GPU]
            session.run([put, assign, assign_ref])
            if session.run([size, steps[CPU][1]]) != [1, 0]:
                failures.append("Queue/names: the queues of two devices are one")
            for step in (steps[CPU][4], steps[CPU][6]):
                if error_of(session, step) != "FailedPreconditionError":
                    failures.append(f"Variable/names: {error_of(session, step)}")
            session.run([steps[CPU][i] for i in (0, 3, 5)])
            for device, factor in ((CPU, 1), (GPU, 2)):
                for step in (2, 4, 6):
                    found = error_of(session, steps[device][step])
                    if not numpy.array_equal(found, [factor, 2 * factor, 3 * factor]):
                        failures.append(f"Names/{device}/{step}: {found}")
    return failures


def on_cpu(target):
    """The queue that TensorFlow's class puts on a CPU keeps copies in the host's memory, whatever
    device its operands are on."""
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        queue = tf1.FIFOQueue(9, [tf.float32], shapes=[[2]])
        put, got = queue.enqueue(tf.constant([1.0, 2]) * 2), queue.dequeue_many(2) * 3
        with session_of(target, graph) as session:
            session.run(put)
            session.run(put)
            found = session.run(got).tolist()
            return [] if found == [[6, 12]] * 2 else [f"Queue/on a CPU: {found}"]


def batches(target):
    """A queue with an op that a GPU does not have is on the CPU under soft placement, with all of
    its ops, and an error otherwise."""
    failures = []
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        queue = GPUCompatibleFIFOQueue(9, [tf.float32], shapes=[[]])
        put = RAW.QueueEnqueueManyV2(handle=queue.queue_ref,
                                     components=[tf.constant([1.0, 2, 3]) * 2])
        got = queue.dequeue() * 2
        with session_of(target, graph, True) as session:
            session.run(put)
            if [session.run(got) for _ in range(3)] != [4, 8, 12]:
                failures.append("Queue/batches")
        with session_of(target, graph) as session:
            if error_of(session, put) != "InvalidArgumentError":
                failures.append(f"Queue/batches without soft placement: {error_of(session, put)}")
    return failures


def copies_of(trace):
    return [node.node_name for device in trace.step_stats.dev_stats
            if device.device.endswith("memcpy") for node in device.node_stats]


def staging(target):
    """A staging area of a GPU keeps what a step computes there for the next one, without a copy,
    and each device has an area of its own by one name. Its size is on the GPU as well, although
    nothing asks for it."""
    failures = []
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with tf1.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [64])
        area = {"dtypes": [tf.float32, tf.string], "shared_name": "area"}
        with tf.device(CPU):
            text = tf.constant("text")
        steps = {}
        for device in (GPU, CPU):
            with tf.device(device):
                got, text_got = RAW.Unstage(**area)
                steps[device] = (RAW.Stage(values=[x * 2, text], container="", capacity=0,
                                           memory_limit=0, shared_name="area"),
                                 [tf.reduce_sum(got * 3), text_got], RAW.StageClear(**area),
                                 tf.reduce_sum(RAW.StagePeek(index=1, **area)[0]))
        size = RAW.StageSize(**area)
        with session_of(target, graph) as session:
            put, got, clear, peek = steps[GPU]
            traces = [tf1.RunMetadata() for _ in range(2)]
            session.run(put, {x: numpy.arange(64)}, options, traces[0])
            session.run(put, {x: numpy.ones(64)})
            session.run(steps[CPU][0], {x: numpy.zeros(64)})
            if session.run([size, peek]) != [2, 128]:
                failures.append(f"StageSize: {session.run([size, peek])}")
            found = session.run(got, None, options, traces[1])
            if found != [6 * numpy.arange(64).sum(), b"text"]:
                failures.append(f"Unstage: {found}")
            for op, trace in zip(("Stage", "Unstage"), traces):
                if not any(f"{op}(" in label for label in on_gpu(trace)):
                    failures.append(f"{op} is not on the GPU: {on_gpu(trace)}")
            if len(copies_of(traces[1])) != 1:  # the fetch
                failures.append(f"Unstage: copies {copies_of(traces[1])}")
            session.run(clear)
            if session.run([size, steps[CPU][1]]) != [0, [0, b"text"]]:
                failures.append("StageClear: the areas of two devices are one")
    return failures


def staging_maps(target):
    """Tuples in parts, by key and in order, in maps of both kinds on a GPU."""
    failures = []
    for prefix in ("", "Ordered"):
        with tf1.Graph().as_default() as graph, tf.device(GPU):
            of = {"dtypes": [tf.float32, tf.int32], "shared_name": "map"}
            key, x = tf1.placeholder(tf.int64, []), tf1.placeholder(tf.float32, [3])
            op = {name: getattr(RAW, f"{prefix}Map{name}") for name in (
                "Stage", "Peek", "Unstage", "UnstageNoKey", "Size", "IncompleteSize", "Clear")}
            first = op["Stage"](key=key, indices=[0], values=[x + 1], **of)
            second = op["Stage"](key=key, indices=[1], values=[tf.range(4) * 2], **of)
            sizes = [op["Size"](**of), op["IncompleteSize"](**of)]
            peek = op["Peek"](key=key, indices=[0, 1], **of)[0] * 2
            take = tf.reduce_sum(op["Unstage"](key=key, indices=[0, 1], **of)[1])
            any_key, any_values = op["UnstageNoKey"](indices=[0, 1], **of)
            with session_of(target, graph) as session:
                for k in (9, 4):
                    session.run(first, {key: k, x: [k, k, k]})
                found = [session.run(sizes)]
                for k in (9, 4):
                    session.run(second, {key: k})
                found += [session.run(sizes), session.run(peek, {key: 9}).tolist(),
                          session.run(take, {key: 9}),
                          session.run([any_key, any_values[0] * 1])[0], session.run(sizes)]
                if found != [[0, 2], [2, 0], [20, 20, 20], 12, 4, [0, 0]]:
                    failures.append(f"{prefix}Map: {found}")
    return failures


def queue_failures(target):
    return [failure for check in (of_types, of_text, between_steps, names, on_cpu, batches, staging,
                                  staging_maps)
            for failure in check(target)]
