"""Loops, conds and calls whose nodes are asked onto a GPU without soft placement, for run_ops.py:
ops of functions, and the loop of TensorFlow 1 with its LoopCond. The master puts the nodes of the
functions in place of the ops, so a trace must show these on the GPU."""
import numpy
import tensorflow as tf

RAW, tf1 = tf.raw_ops, tf.compat.v1
GPU = "/job:worker/task:0/device:GPU:0"


def functions_of_one():
    """(x * 2, x + 1, x < 100 of its first element), each a function of a vector."""
    spec = tf.TensorSpec([3], tf.float32)

    def concrete(body):
        return tf.function(body, autograph=False).get_concrete_function(spec)
    return (concrete(lambda x: x * tf.constant([2., 2, 2])), concrete(lambda x: x + 1),
            concrete(lambda x: RAW.Less(x=x[0], y=100.)))


def programs(x, index):
    """{name: (the result, what it must be of x = [1, 2, 3] and index = 1)}."""
    double, more, is_small = functions_of_one()
    loop = {"input": [x], "cond": is_small, "body": double, "output_shapes": [[3]]}
    pair = {"cond": index > 0, "input": [x], "Tout": [tf.float32], "then_branch": double,
            "else_branch": more}
    case = {"branch_index": index, "input": [x], "Tout": [tf.float32], "branches": [double, more]}
    call = {"args": [x], "Tout": [tf.float32], "f": double}
    value = numpy.array([1, 2, 3], "float32")
    return {"While": (RAW.While(**loop)[0], value * 128),
            "StatelessWhile": (RAW.StatelessWhile(**loop)[0], value * 128),
            "If": (RAW.If(**pair)[0], value * 2), "StatelessIf": (RAW.StatelessIf(**pair)[0],
                                                                  value * 2),
            "Case": (RAW.Case(**case)[0], value + 1),
            "StatelessCase": (RAW.StatelessCase(**case)[0], value + 1),
            "PartitionedCall": (RAW.PartitionedCall(**call)[0], value * 2),
            "StatefulPartitionedCall": (RAW.StatefulPartitionedCall(**call)[0], value * 2),
            "LoopCond": (tf1.while_loop(lambda y: y[0] < 100, lambda y: y * 2, [x]), value * 128)}


def on_gpu(metadata):
    """The ops that a trace shows on the GPU."""
    return {node.timeline_label for device in metadata.step_stats.dev_stats
            if device.device.endswith("GPU:0") for node in device.node_stats}


def function_failures(target):
    failures = []
    config = tf1.ConfigProto(allow_soft_placement=False)
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        tf1.disable_control_flow_v2()  # the loop of TensorFlow 1 has a LoopCond
        x, index = tf1.placeholder(tf.float32, [3]), tf1.placeholder(tf.int32, [])
        listed = programs(x, index)
    with tf1.Session(target, graph=graph, config=config) as session:
        for name, (result, expected) in listed.items():
            metadata = tf1.RunMetadata()
            try:
                found = session.run(result, {x: [1, 2, 3], index: 1}, options, metadata)
            except tf.errors.OpError as error:
                failures.append(f"{name}: {error.message}")
                continue
            if not numpy.array_equal(found, expected):
                failures.append(f"{name}: {found}, not {expected}")
            if not any("Mul(" in label or "AddV2(" in label for label in on_gpu(metadata)):
                failures.append(f"{name}: its nodes are not on the GPU: {on_gpu(metadata)}")
    return failures
