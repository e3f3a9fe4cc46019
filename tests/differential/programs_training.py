"""Training programs: optimizers over small networks, dense and sparse, with tf.gradients; what
surrounds them in real code."""

import numpy as np
from programs import PS, WORKER1, Run, tf, tf1

OPTIMIZERS = {
    "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf1.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda: tf1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.01, momentum=0.5),
    "centered_rmsprop": lambda: tf1.train.RMSPropOptimizer(0.01, centered=True),
    "adam": lambda: tf1.train.AdamOptimizer(0.01),
    "adadelta": lambda: tf1.train.AdadeltaOptimizer(0.5),
    "ftrl": lambda: tf1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}
RNG = np.random.default_rng(7)
X = RNG.normal(size=(16, 8)).astype(np.float32)
LABELS = RNG.integers(0, 4, 16).astype(np.int32)
IDS = RNG.integers(0, 20, (16, 3)).astype(np.int64)


def _dense(x, n, name, resource, activation=None):
    rng = np.random.default_rng(len(name) + n)
    w = tf1.get_variable(name + "_w", initializer=(rng.normal(size=(x.shape[-1], n)) * 0.3).astype(
        np.float32), use_resource=resource)
    b = tf1.get_variable(name + "_b", [n], initializer=tf1.zeros_initializer(),
                         use_resource=resource)
    y = tf.nn.bias_add(tf.matmul(x, w), b)
    return activation(y) if activation else y


def _place(distributed):
    if not distributed:
        return tf.device(None)
    return tf1.device(tf1.train.replica_device_setter(
        cluster={"ps": ["a:1"], "worker": ["b:1", "c:1"]}, worker_device=WORKER1))


def _train(loss, optimizer, feeds, n_steps=4):
    step = tf1.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=step)
    variables = tf1.global_variables()
    return [Run(tf1.global_variables_initializer())] + [Run([loss, train], feeds)] * n_steps + [
        Run([variables, loss], feeds)]


def _mlp(optimizer, resource, distributed, activation):
    def build():
        with _place(distributed):
            x, labels = tf1.placeholder(tf.float32, [None, 8]), tf1.placeholder(tf.int32, [None])
            h = _dense(x, 16, "h1", resource, activation)
            h = _dense(h, 8, "h2", resource, tf.tanh)
            logits = _dense(h, 4, "out", resource)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels,
                    logits=logits))
            return _train(loss, OPTIMIZERS[optimizer](), {x: X, labels: LABELS})

    return build


def _embedding(optimizer, resource, distributed, n_shards):
    def build():
        with _place(distributed):
            ids, labels = tf1.placeholder(tf.int64, [None, 3]), tf1.placeholder(tf.int32, [None])
            initializer = tf1.random_uniform_initializer(-0.5, 0.5, seed=3)
            partitioner = tf1.fixed_size_partitioner(n_shards) if n_shards > 1 else None
            table = tf1.get_variable("table", [20, 6], initializer=initializer,
                                     partitioner=partitioner, use_resource=resource)
            rows = tf1.nn.embedding_lookup(list(table) if n_shards > 1 else table, ids)
            logits = _dense(tf.reshape(rows, [-1, 18]), 4, "out", resource)
            loss = tf.reduce_mean(tf1.nn.softmax_cross_entropy_with_logits_v2(
                labels=tf.one_hot(labels, 4), logits=logits))
            return _train(loss, OPTIMIZERS[optimizer](), {ids: IDS, labels: LABELS})

    return build


def _clipped():
    x = tf1.placeholder(tf.float32, [None, 8])
    y = _dense(_dense(x, 8, "a", False, tf.nn.relu), 1, "b", False)
    loss = tf.reduce_sum(tf.square(y - 3.0))
    optimizer = tf1.train.AdamOptimizer(0.1)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(clipped, variables))
    return [Run(tf1.global_variables_initializer())] + [Run([norm, train, loss], {x: X})] * 3 + [
        Run(list(variables))]


def _decayed(schedule):
    def build():
        step = tf1.train.get_or_create_global_step()
        rate = schedule(step)
        w = tf1.get_variable("w", initializer=[1.0, -1.0])
        train = tf1.train.GradientDescentOptimizer(rate).minimize(
            tf.reduce_sum(tf.square(w)), global_step=step)
        return [Run(tf1.global_variables_initializer())] + [Run([rate, train])] * 4 + [
            Run([w, step])]

    return build


def _softmax_regression():
    """The tutorial's: argmax, equal, cast, accuracy."""
    x, y = tf1.placeholder(tf.float32, [None, 8]), tf1.placeholder(tf.float32, [None, 4])
    with tf.device(PS):
        w, b = tf1.Variable(tf.zeros([8, 4])), tf1.Variable(tf.zeros([4]))
    p = tf.nn.softmax(tf.matmul(x, w) + b)
    loss = tf.reduce_mean(-tf.reduce_sum(y * tf1.log(p), axis=[1]))
    train = tf1.train.GradientDescentOptimizer(0.5).minimize(loss)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(p, 1), tf.argmax(y, 1)), tf.float32))
    feeds = {x: X, y: np.eye(4)[LABELS]}
    return [Run(tf1.global_variables_initializer())] + [Run(train, feeds)] * 5 + [
        Run([loss, accuracy], feeds)]


def _towers():
    """Two workers' towers over shared variables; gradients averaged on the parameter server."""
    with tf.device(PS):
        w = tf1.get_variable("w", initializer=(np.arange(8, dtype=np.float32).reshape(8, 1) / 8),
                             use_resource=False)
    x = tf1.placeholder(tf.float32, [16, 8])
    gradients = []
    for i, half in enumerate(tf.split(x, 2)):
        with tf.device(f"/job:worker/task:{i}"), tf1.name_scope(f"tower{i}"):
            gradients.append(tf1.gradients(tf.reduce_mean(tf.square(tf.matmul(half, w) - 1.0)),
                                           w)[0])
    with tf.device(PS):
        train = tf1.assign_sub(w, 0.1 * tf.add_n(gradients) / 2)
    return [Run(w.initializer)] + [Run(train, {x: X})] * 3 + [Run([w, gradients], {x: X})]


def _batch_norm():
    x = tf1.placeholder(tf.float32, [None, 8])
    mean, variance = tf.nn.moments(x, [0])
    scale, offset = tf1.get_variable("s", initializer=tf.ones([8])), tf1.get_variable(
        "o", initializer=tf.zeros([8]))
    running = tf1.get_variable("m", initializer=tf.zeros([8]), trainable=False)
    y = tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)
    loss = tf.reduce_sum(tf.square(y - X))
    with tf.control_dependencies([tf1.assign_add(running, 0.1 * (mean - running))]):
        train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
    return [Run(tf1.global_variables_initializer())] + [Run([train, loss], {x: X})] * 3 + [
        Run([scale, offset, running])]


def _dropout():
    tf1.set_random_seed(5)
    x = tf1.placeholder(tf.float32, [None, 8])
    w = tf1.get_variable("w", [8, 4], initializer=tf1.glorot_uniform_initializer(seed=3))
    y = tf1.nn.dropout(tf.matmul(x, w), rate=0.5, seed=11)
    return [Run(w.initializer), Run(w), Run(y, {x: X}), Run(y, {x: X}),
            Run(tf1.gradients(y, w), {x: X})]


def _random_initializers():
    tf1.set_random_seed(42)
    made = [
        tf1.get_variable(f"v{i}", [5, 3], initializer=f)
        for i, f in enumerate((tf1.random_normal_initializer(),
                               tf1.truncated_normal_initializer(seed=2),
                               tf1.random_uniform_initializer(), tf1.glorot_normal_initializer()))
    ]
    return [Run(tf1.global_variables_initializer()), Run(made),
            Run(tf.random.shuffle(tf.range(10), seed=4))]


def _second_order():
    x = tf1.placeholder(tf.float64, [3])
    y = tf.reduce_sum(tf.sin(x) * tf.exp(x) / (1 + x * x))
    first = tf1.gradients(y, x)[0]
    return [Run([y, first, tf1.gradients(first, x)[0], tf1.hessians(y, x)[0]],
                {x: [0.1, -2.0, 3.0]})]


def _indexed_slices():
    table = tf1.get_variable("t", initializer=np.arange(8, dtype=np.float32).reshape(4, 2))
    rows = tf.gather(table, tf.constant([0, 2, 0]))
    gradient = tf1.gradients(tf.reduce_sum(rows * rows), table)[0]
    return [Run(table.initializer), Run(gradient), Run(tf.convert_to_tensor(gradient)),
            Run({"g": gradient, "r": [rows]})]


def _saver():
    v = tf1.get_variable("v", initializer=[1.0])
    saver = tf1.train.Saver([v])
    tf1.summary.scalar("s", v[0])
    assert saver
    return [Run(tf1.global_variables_initializer()), Run(v)]


def _summaries():
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=[1.0, 2.0])
    tf1.summary.scalar("s", v[0])
    return [Run(tf1.global_variables_initializer()), Run(tf1.summary.merge_all())]


def _lstm():
    """A cell by hand, unrolled: split, sigmoid, tanh, concat and their gradients."""
    w = tf1.get_variable("w",
                         initializer=(np.random.default_rng(1).normal(size=(12, 16)) * 0.3).astype(
                             np.float32))
    x = tf1.placeholder(tf.float32, [5, 2, 8])
    h = c = tf.zeros([2, 4])
    for t in range(5):
        i, f, o, g = tf.split(tf.matmul(tf.concat([x[t], h], 1), w), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    loss = tf.reduce_sum(h)
    train = tf1.train.AdamOptimizer(0.01).minimize(loss)
    feeds = {x: np.random.default_rng(2).normal(size=(5, 2, 8))}
    return [Run(tf1.global_variables_initializer())] + [Run([loss, train], feeds)] * 3 + [Run(w)]


def cases():
    activations = (tf.nn.relu, tf.sigmoid, tf.nn.elu, tf.nn.softplus, tf.nn.selu, tf.nn.leaky_relu)
    for i, optimizer in enumerate(OPTIMIZERS):
        for kind in ("ref", "resource"):
            resource = kind == "resource"
            tolerance = {"rtol": 1e-4}
            yield f"train/{optimizer}/mlp/{kind}", _mlp(
                optimizer, resource, False, activations[i % 6]), tolerance
            yield f"train/{optimizer}/mlp_on_ps/{kind}", _mlp(
                optimizer, resource, True, activations[(i + 1) % 6]), tolerance
            yield f"train/{optimizer}/embedding/{kind}", _embedding(
                optimizer, resource, False, 1), tolerance
            yield f"train/{optimizer}/embedding_on_ps/{kind}", _embedding(
                optimizer, resource, True, 3), tolerance
    yield "train/clip_by_global_norm", _clipped, {"rtol": 1e-4}
    yield "train/exponential_decay", _decayed(lambda step: tf1.train.exponential_decay(0.1, step, 2,
            0.5, staircase=True))
    yield "train/polynomial_decay", _decayed(lambda step: tf1.train.polynomial_decay(0.1, step, 3,
            0.01))
    yield "train/piecewise_constant", _decayed(lambda step: tf1.train.piecewise_constant(step,
            [1, 2], [0.1, 0.05, 0.01]))
    yield "train/cosine_decay", _decayed(lambda step: tf1.train.cosine_decay(0.1, step, 3))
    yield "train/softmax_regression", _softmax_regression
    yield "train/towers", _towers
    yield "train/batch_norm", _batch_norm, {"rtol": 1e-4}
    yield "train/dropout", _dropout
    yield "train/random_initializers", _random_initializers
    yield "train/second_order_gradients", _second_order
    yield "train/indexed_slices", _indexed_slices
    yield "train/saver_in_the_graph", _saver
    yield "train/summaries", _summaries, {"needs": "summary kernels"}
    yield "train/lstm_by_hand", _lstm, {"rtol": 1e-4}
