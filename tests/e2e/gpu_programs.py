"""Programs that train and compute on GPUs, for test_gpu.py: each runs in process on TensorFlow's
CPU and on the cluster, whose workers have simulated GPUs. Prints a line of JSON for each program:
its name, both results, and how many nodes ran on a GPU.

    gpu_programs.py TARGET [NAME...]
"""
import json
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.client import timeline  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
SOFT = tf1.ConfigProto(allow_soft_placement=True)
CLUSTER = [""]  # the target of the program that is being made
rng = np.random.RandomState(7)
X = rng.randn(32, 12).astype(np.float32)
LABELS = rng.randint(0, 4, 32)
SEQUENCE = rng.randn(4, 6, 8).astype(np.float32)


def weights(name, shape):
    return tf1.get_variable(name, initializer=np.random.RandomState(len(name)).randn(*shape)
                            .astype(np.float32) * 0.3)


def dense(name, x, n):
    size = x.shape[-1]
    return tf.matmul(x, weights(f"{name}_w", [size, n])) + weights(f"{name}_b", [n])


def classify(x, labels):
    hidden = tf.nn.relu(dense("hidden", x, 16))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=dense("out", hidden, 4)))


def train(loss, optimizer, n_steps=6):
    """The losses of some steps."""
    step = optimizer.minimize(loss)

    def run(session):
        session.run(tf1.global_variables_initializer())
        return [float(session.run([loss, step])[0]) for _ in range(n_steps)]

    return run


def mlp():
    return train(classify(tf.constant(X), tf.constant(LABELS)), tf1.train.AdamOptimizer(0.02))


def momentum():
    return train(classify(tf.constant(X), tf.constant(LABELS)),
                 tf1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True))


def rms_prop():
    return train(classify(tf.constant(X), tf.constant(LABELS)), tf1.train.RMSPropOptimizer(0.01))


def reference_variables():
    with tf1.variable_scope("", use_resource=False):
        return train(classify(tf.constant(X), tf.constant(LABELS)), tf1.train.AdagradOptimizer(0.1))


def normalized(name, x):
    """Batch normalisation of images, with the statistics of the batch."""
    scale, offset = weights(f"{name}_scale", [x.shape[-1]]), weights(f"{name}_at", [x.shape[-1]])
    return tf1.nn.fused_batch_norm(x, scale + 1.0, offset, is_training=True)[0]


def images():
    """A small network of images: convolutions with strides and dilations, a residual block, a
    depthwise convolution, pools, normalisation."""
    x = tf.constant(np.random.RandomState(5).randn(8, 12, 12, 3).astype(np.float32))
    x = tf.nn.relu(normalized("one", tf.nn.conv2d(x, weights("conv1", [3, 3, 3, 8]), 2, "SAME")))
    x = tf.nn.lrn(tf.nn.max_pool2d(x, 3, 1, "SAME"), depth_radius=2, alpha=0.1)
    more = tf.nn.relu(normalized("two", tf.nn.conv2d(x, weights("conv2", [3, 3, 8, 8]), 1, "SAME")))
    x = x + tf.nn.bias_add(tf.nn.depthwise_conv2d(more, weights("depth", [3, 3, 8, 1]),
                                                  [1, 1, 1, 1], "SAME"), weights("bias", [8]))
    x = tf.reshape(tf.nn.avg_pool2d(x, 2, 2, "VALID"), [8, 72])
    with tf1.variable_scope("images"):  # its sizes are not those of other programs
        loss = classify(x, tf.constant(LABELS[:8]))
    return train(loss, tf1.train.MomentumOptimizer(0.02, 0.9))


def word2vec():
    """Sampled softmax: embeddings looked up and updated by row."""
    embeddings = weights("embeddings", [50, 8])
    nce, biases = weights("nce", [50, 8]), weights("nce_biases", [50])
    inputs, labels = tf.constant(LABELS * 3), tf.constant(LABELS[:, None] * 5, tf.int64)
    sampled = (tf.constant([1, 4, 9, 16, 25], tf.int64), tf.fill([32, 1], 0.1), tf.fill([5], 0.1))
    found = tf.nn.embedding_lookup(embeddings, inputs)
    loss = tf.reduce_mean(tf1.nn.sampled_softmax_loss(
        weights=nce, biases=biases, labels=labels, inputs=found, num_sampled=5, num_classes=50,
        sampled_values=sampled))
    return train(loss, tf1.train.GradientDescentOptimizer(0.5))


def lstm_step(x, h, c):
    gates = tf.matmul(tf.concat([x, h], 1), weights("gates", [16, 32]))
    i, j, f, o = tf.split(gates, 4, 1)
    c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
    return tf.tanh(c) * tf.sigmoid(o), c


def lstm(is_functional):
    (tf1.enable_control_flow_v2 if is_functional else tf1.disable_control_flow_v2)()
    try:
        with tf1.variable_scope("lstm", reuse=tf1.AUTO_REUSE, use_resource=True):
            sequence, zero = tf.constant(SEQUENCE), tf.zeros([4, 8])
            weights("gates", [16, 32])
            _, h, _ = tf1.while_loop(
                lambda t, h, c: t < 6,
                lambda t, h, c: (t + 1, *lstm_step(tf.gather(sequence, t, axis=1), h, c)),
                [0, zero, zero], parallel_iterations=4)
            return train(tf.reduce_mean(tf.square(h - 0.2)), tf1.train.AdamOptimizer(0.05), 4)
    finally:
        tf1.disable_control_flow_v2()


def lstm_lowered():
    return lstm(False)


def lstm_functional():
    return lstm(True)


def replicas():
    """A tower on each of two GPUs, gradients averaged."""
    optimizer, towers = tf1.train.GradientDescentOptimizer(0.1), []
    for i, part in enumerate(np.split(np.arange(32), 2)):
        with tf.device(f"/device:GPU:{i}"), tf1.variable_scope("tower", reuse=tf1.AUTO_REUSE,
                                                              use_resource=True):
            loss = classify(tf.constant(X[part]), tf.constant(LABELS[part]))
            towers.append((loss, optimizer.compute_gradients(loss)))
    return train_towers(optimizer, towers)


def train_towers(optimizer, towers):
    averaged = [(sum(g for g, _ in pairs) / len(pairs), pairs[0][1])
                for pairs in zip(*(gradients for _, gradients in towers))]
    loss, step = sum(loss for loss, _ in towers) / len(towers), optimizer.apply_gradients(averaged)

    def run(session):
        session.run(tf1.global_variables_initializer())
        return [float(session.run([loss, step])[0]) for _ in range(4)]

    return run


def replicas_of_two_tasks():
    optimizer, towers = tf1.train.GradientDescentOptimizer(0.1), []
    for i, part in enumerate(np.split(np.arange(32), 2)):
        with tf.device(f"/job:worker/task:{i}/device:GPU:0"), tf1.variable_scope(
                "tower", reuse=tf1.AUTO_REUSE, use_resource=True):
            loss = classify(tf.constant(X[part]), tf.constant(LABELS[part]))
            towers.append((loss, optimizer.compute_gradients(loss)))
    return train_towers(optimizer, towers)


def mixed_devices():
    """Conds and loops whose bodies use both kinds of device, with predicates of both."""
    x = tf.constant(X)

    def body(i, total):
        with tf.device("/device:CPU:0"):
            on_host = tf.reduce_sum(total * 0.5)
        with tf.device("/device:GPU:0"):
            grown = tf1.cond(on_host > 3.0, lambda: total * 0.25, lambda: total + tf.reduce_mean(x))
        return i + 1, tf1.cond(tf.reduce_sum(grown) < 100.0, lambda: grown + 1.0, lambda: grown)

    _, total = tf1.while_loop(lambda i, total: i < 7, body, [0, tf.abs(x)])
    return lambda session: session.run(total).tolist()


def lists():
    """Lists made, changed and read on different devices and tasks, lists of lists, and sums of
    lists."""
    raw, x, shape = tf.raw_ops, tf.constant(X), tf.constant([12])
    scalar = tf.constant([], tf.int32)

    def rows(device, scale):
        with tf.device(device):
            return raw.TensorListFromTensor(tensor=x * scale, element_shape=shape)

    def stack(device, handle):
        with tf.device(device):
            return raw.TensorListStack(input_handle=handle, element_shape=shape,
                                       element_dtype=tf.float32)

    def changed(device, handle):
        with tf.device(device):
            handle = raw.TensorListSetItem(input_handle=handle, index=3, item=x[7] + 1.0)
            handle = raw.TensorListPushBack(input_handle=handle, tensor=x[5])
            return raw.TensorListResize(input_handle=handle, size=40)

    gpus = ["/job:worker/task:0/device:GPU:0", "/job:worker/task:1/device:GPU:1"]
    gpus = gpus if CLUSTER[0] else ["", ""]
    made = {"gpu": rows(gpus[0], 1.0), "far": rows(gpus[1], 2.0), "cpu": rows("/device:CPU:0", 3.0)}
    parts = [stack(there, changed(here, made[name])) for name in made
             for here in (gpus[0], "/device:CPU:0") for there in (gpus[0], gpus[1])]
    with tf.device(gpus[0]):
        total = raw.AddN(inputs=[made["gpu"], made["cpu"], raw.ZerosLike(x=made["far"])])
        joined = raw.TensorListConcatLists(input_a=total, input_b=made["far"],
                                           element_dtype=tf.float32)
        nested = raw.EmptyTensorList(element_shape=scalar, max_num_elements=-1,
                                     element_dtype=tf.variant)
        nested = raw.TensorListPushBack(input_handle=nested, tensor=joined)
    with tf.device("/device:CPU:0"):
        nested, inner = raw.TensorListPopBack(input_handle=nested, element_shape=scalar,
                                              element_dtype=tf.variant)
    words = raw.TensorListReserve(element_shape=scalar, num_elements=3, element_dtype=tf.string)
    _, words = tf1.while_loop(
        lambda i, _: i < 3,
        lambda i, words: (i + 1, raw.TensorListSetItem(input_handle=words, index=i,
                                                       item=tf.strings.as_string(i))), [0, words])
    text = raw.TensorListStack(input_handle=words, element_shape=scalar, element_dtype=tf.string)
    parts += [stack(gpus[1], inner), [[tf.strings.to_number(tf.strings.reduce_join(text))]]]
    result = tf.concat([tf.reshape(part, [-1]) for part in parts], 0)
    return lambda session: session.run(result).tolist()


def arrays():
    x = tf.constant(X)
    parts = [
        tf.reduce_sum(tf.transpose(tf.reshape(x, [4, 8, 12]), [2, 0, 1])[3:9:2, ::-1], [0, 2]),
        tf.reduce_max(tf.pad(tf.tile(x, [1, 2]), [[1, 0], [2, 3]]), 0),
        tf.reshape(tf.gather(x, tf.constant([3, 1, 31])) * tf.one_hot([1, 2, 3], 12), [-1]),
        tf.reshape(tf.stack(tf.split(x, 3, 1), 0)[1, :2], [-1]),
        tf.cumsum(tf.nn.softmax(x[0])), tf.cast(tf.argmax(x, 1), tf.float32),
        tf.math.unsorted_segment_sum(x, tf.constant(LABELS), 4)[2],
    ]
    result = tf.concat(parts, 0)
    return lambda session: session.run(result).tolist()


def random_numbers():
    """Seeded: the same numbers on every device."""
    parts = [tf1.random_uniform([50], seed=4), tf1.random_normal([50], seed=5),
             tf1.truncated_normal([50], seed=6),
             tf.cast(tf1.random_uniform([50], 0, 1000, tf.int32, seed=8), tf.float32)]
    result = tf.concat(parts, 0)
    return lambda session: [session.run(result).tolist() for _ in range(3)]


def checkpoint():
    """Written where the variables are, read back in process."""
    classify(tf.constant(X), tf.constant(LABELS))
    variables = tf1.trainable_variables()
    update = [v.assign_add(tf.ones_like(v)) for v in variables]
    saver = tf1.train.Saver()

    def run(session):
        path = os.path.join(tempfile.mkdtemp(), "model")
        session.run(tf1.global_variables_initializer())
        session.run(update)
        saver.save(session, path)
        with tf1.Session() as local:
            saver.restore(local, path)
            read = [v.tolist() for v in local.run(variables)]
        saver.restore(session, path)
        return [read, [v.tolist() for v in session.run(variables)]]

    return run


def traced_loop():
    """The devices of a loop's nodes, when a GPU did their work, the copies of the result, as
    timelines show them, and their kernels."""
    x = tf.constant(X)
    _, total = tf1.while_loop(lambda i, total: i < 3,
                              lambda i, total: (i + 1, tf.sin(total)), [0, x])

    def run(session):
        metadata = tf1.RunMetadata()
        session.run(total, options=tf1.RunOptions(trace_level=3), run_metadata=metadata)
        shown = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
        if not session.sess_str:
            return [True, True, True, True, True]
        nodes = {node.node_name: device.device for device in metadata.step_stats.dev_stats
                 for node in device.node_stats}
        copies = [node.timeline_label for device in metadata.step_stats.dev_stats
                  if device.device.endswith("/device:GPU:0/memcpy") for node in device.node_stats]
        return ["GPU:0" in nodes["while/Sin"] and "GPU:0" in nodes["while/Switch_1"],
                any(device.device.endswith("/device:GPU:0/stream:all") and
                    sum(node.node_name == "while/Sin:Sin" for node in device.node_stats) == 3
                    for device in metadata.step_stats.dev_stats),
                any("while/Exit_1" in label and label.endswith("to host") for label in copies),
                "memcpy" in shown,
                any("/device:GPU:0/stream:" in device.device and
                    sum(node.timeline_label.endswith("@@while/Sin:Sin#")
                        for node in device.node_stats) == 3
                    for device in metadata.step_stats.dev_stats)]

    return run


PROGRAMS = [mlp, momentum, rms_prop, reference_variables, images, word2vec, lstm_lowered,
            lstm_functional, replicas, replicas_of_two_tasks, mixed_devices, lists, arrays,
            random_numbers, checkpoint, traced_loop]


def flat(value):
    return [x for v in value for x in flat(v)] if isinstance(value, list) else [value]


def count_gpu_nodes(session):
    metadata = tf1.RunMetadata()
    fed = tf1.placeholder(tf.float32, [None])
    values = [fed, *tf1.trainable_variables()]
    session.run([value + 1.0 for value in values], {fed: [1.0, 2.0]},
                options=tf1.RunOptions(trace_level=3), run_metadata=metadata)
    return sum(len(device.node_stats) for device in metadata.step_stats.dev_stats
               if "GPU" in device.device)


def main():
    wanted = sys.argv[2:] or [program.__name__ for program in PROGRAMS]
    for program in PROGRAMS:
        if program.__name__ not in wanted:
            continue
        results = []
        for CLUSTER[0] in ("", sys.argv[1]):
            target = CLUSTER[0]
            with tf.Graph().as_default():
                tf1.set_random_seed(1)
                is_local = not target and program is replicas_of_two_tasks
                run = replicas() if is_local else program()
                with tf1.Session(target, config=SOFT) as session:
                    results.append(flat(run(session)))
                    n = count_gpu_nodes(session)
        print(json.dumps({"name": program.__name__, "local": results[0], "gpu": results[1],
                          "n_gpu_nodes": n}), flush=True)


if __name__ == "__main__":
    main()
