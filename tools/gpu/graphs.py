"""The graphs that tools/gpu_run times, and what the networks' losses are on TensorFlow's CPU. Made
where TensorFlow is, run where a GPU is.

Each program is a graph with the nodes "init" (run once), "step" (run in each step) and, for
networks, the scalar "loss:0" (fetched with each step).
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import networks  # noqa: E402
import numpy as np  # noqa: E402
import rate_graphs  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
CHAIN_NODES = 10000
EXPECTED_STEPS = 12
# The networks that are timed beside PyTorch, with their options.
TIMED = {"alexnet": {}, "overfeat": {}, "oxfordnet": {}, "googlenet": {"has_lrn": False},
         "resnet50": {}}
SMALL = {"elements": 1 << 14, "repeats": 4, "chain": 200, "products": 32, "layer": 64}


def train(loss, optimizer):
    tf.identity(loss, name="loss")
    step = optimizer.minimize(loss)
    tf1.group(step, name="step")
    tf1.group(tf1.global_variables_initializer(), name="init")


def weights(name, shape):
    """Made by the graph, since a pack of random constants is large. Uniform numbers have the same
    bits on every device."""
    bound = (3 / shape[0])**0.5  # their deviation is shape[0]**-0.5
    values = (tf.random.stateless_uniform(shape, [len(name), 17]) * 2 - 1) * bound
    return tf1.get_variable(name, initializer=values, use_resource=True)


def data(shape, seed=3):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def dense(name, x, n):
    return tf.matmul(x, weights(name + "_w", [int(x.shape[-1]), n])) + tf1.get_variable(
        name + "_b", initializer=np.zeros(n, np.float32), use_resource=True)


def mlp(size, batch):
    def build():
        x = tf.constant(data([batch, size]))
        labels = tf.constant(np.arange(batch) % 10)
        hidden = tf.nn.relu(dense("first", x, size))
        logits = dense("second", tf.nn.relu(dense("hidden", hidden, size)), 10)
        train(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits)), tf1.train.AdamOptimizer(0.001))
    return build


def convolved(name, x, n, stride=1):
    """A convolution with its batch normalisation."""
    x = tf.nn.conv2d(x, weights(name + "_w", [3, 3, int(x.shape[-1]), n]), stride, "SAME")
    scale, offset = (tf1.get_variable(f"{name}_{part}", initializer=np.full(n, value, np.float32),
                                      use_resource=True)
                     for part, value in (("scale", 1), ("offset", 0)))
    return tf1.nn.fused_batch_norm(x, scale, offset, is_training=True)[0]


def residual(size, channels, batch):
    """The first layers of a residual network for images."""
    def build():
        labels = tf.constant(np.arange(batch) % 10)
        x = tf1.get_variable("images", initializer=data([batch, size, size, 3]), trainable=False,
                             use_resource=True)
        x = tf.nn.relu(convolved("first", x, channels, 2))
        x = tf.nn.max_pool2d(x, 3, 2, "SAME")
        more = convolved("second", tf.nn.relu(convolved("one", x, channels)), channels)
        x = tf.reduce_mean(tf.nn.relu(x + more), [1, 2])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=dense("out", x, 10)))
        train(loss, tf1.train.MomentumOptimizer(0.1, 0.9))
    return build


def word2vec(words, size, batch, sampled):
    def build():
        rng = np.random.RandomState(5)
        embeddings, nce = weights("embeddings", [words, size]), weights("nce", [words, size])
        biases = tf1.get_variable("biases", initializer=np.zeros(words, np.float32),
                                  use_resource=True)
        found = tf.nn.embedding_lookup(embeddings, tf.constant(rng.randint(0, words, batch)))
        labels = tf.constant(rng.randint(0, words, [batch, 1]))
        chosen = tf.constant(rng.choice(words, sampled, False))
        values = (chosen, tf.fill([batch, 1], 0.1), tf.fill([sampled], 0.1))
        train(tf.reduce_mean(tf1.nn.sampled_softmax_loss(
            weights=nce, biases=biases, labels=labels, inputs=found, num_sampled=sampled,
            num_classes=words, sampled_values=values)), tf1.train.GradientDescentOptimizer(0.2))
    return build


def lstm(size, batch, steps, is_functional):
    def build():
        (tf1.enable_control_flow_v2 if is_functional else tf1.disable_control_flow_v2)()
        sequence, zero = tf.constant(data([batch, steps, size])), tf.zeros([batch, size])
        gates, bias = weights("gates", [2 * size, 4 * size]), tf1.get_variable(
            "bias", initializer=np.zeros(4 * size, np.float32), use_resource=True)

        def body(t, h, c):
            x = tf.gather(sequence, t, axis=1)
            i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), gates) + bias, 4, 1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            return t + 1, tf.tanh(c) * tf.sigmoid(o), c

        _, h, _ = tf1.while_loop(lambda t, h, c: t < steps, body, [0, zero, zero])
        train(tf.reduce_mean(tf.square(h - 0.2)), tf1.train.AdamOptimizer(0.001))
        tf1.disable_control_flow_v2()
    return build


def published(name, size, options):
    def build():
        networks.build(name, size, **options)
    return build


def network_programs(is_small):
    """Training steps that are timed, and small ones of the same networks, whose losses TensorFlow's
    CPU finds in a moment."""
    for name, options in TIMED.items():
        _, whole, small = networks.NETWORKS[name]
        size = small if is_small else whole
        yield name, published(name, size, options), {
            "part": "networks", "net": name, **size._asdict(), "variants": ["graphs_off"]}
        yield name + "_small", published(name, small, {}), {"part": "networks",
                                                            "network": list(small)}


def programs(is_small):
    """(name, build, a row's facts): what one step does, how often it is run, which part of a run
    it belongs to, and with which variants of the cluster it is timed, too."""
    if is_small:
        sizes = [SMALL[key] for key in ("elements", "repeats", "chain")] + [[SMALL["products"]]]
        size, batch, words, time = SMALL["layer"], 16, 200, 5
    else:
        sizes = [64 << 20, 40, CHAIN_NODES, [1024, 4096, 8192]]
        size, batch, words, time = 1024, 128, 50000, 32
    yield from rate_graphs.programs(is_small, sizes)
    small = size // 16 if is_small else 128
    yield "mlp", mlp(size, batch), {"network": [size, batch], "variants": ["graphs_off"]}
    yield "mlp_small", mlp(small, 32), {"network": [small, 32], "variants": ["graphs_off"]}
    yield "word2vec", word2vec(words, small, batch, 64), {"network": [words, small, batch, 64]}
    for is_functional in (False, True):
        yield "lstm_functional" if is_functional else "lstm", lstm(
            small, 32, time, is_functional), {"network": [small, 32, time]}
    yield from network_programs(is_small)


def write(folder, is_small, with_losses=True):
    """Writes the graphs. Returns a row for each: its facts and, for a network, its losses on
    TensorFlow's CPU unless they are not wanted."""
    rows = {}
    for name, build, facts in programs(is_small):
        with tf.Graph().as_default() as graph:
            tf1.set_random_seed(1)
            build()
            with open(os.path.join(folder, name + ".pb"), "wb") as file:
                file.write(graph.as_graph_def().SerializeToString())
            if "network" in facts and with_losses:
                with tf1.Session(graph=graph) as session:
                    session.run("init")
                    facts["losses"] = [float(session.run(["loss:0", "step"])[0])
                                       for _ in range(EXPECTED_STEPS)]
        rows[name] = {"part": "programs", "variants": [], "master": [], **facts}
    with tf.Graph().as_default() as graph:
        tf.negative(tf.constant(data([16]), name="x"), name="y")
        with open(os.path.join(folder, "launch.pb"), "wb") as file:
            file.write(graph.as_graph_def().SerializeToString())
    return rows
