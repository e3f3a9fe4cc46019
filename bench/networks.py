"""The networks that training.py trains. A function makes the graph on the default device, and
returns (initializers, what to fetch, {placeholder: value}); `step` says how it is trained."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "examples")]

WORKER = "/job:worker/task:0"


def weights(tf1, name, *shape):
    return tf1.get_variable(name, shape, initializer=tf1.glorot_uniform_initializer(seed=len(name)))


def zeros(tf1, name, *shape):
    return tf1.get_variable(name, shape, initializer=tf1.zeros_initializer())


def lenet(tf, tf1, np):
    """Images of 28 x 28: windows of 5 x 5, 32 and 64 channels, biases, and a hidden layer of
    1024, by Adam."""
    images, labels = tf1.placeholder(tf.float32, [64, 28, 28, 1]), tf1.placeholder(tf.int64, [64])
    x = images
    for i, (n_in, n_out) in enumerate(((1, 32), (32, 64))):
        x = tf.nn.conv2d(x, weights(tf1, f"filter{i}", 5, 5, n_in, n_out), 1, "SAME")
        x = tf.nn.relu(tf.nn.bias_add(x, zeros(tf1, f"filter_bias{i}", n_out)))
        x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    x = tf.reshape(x, [64, 7 * 7 * 64])
    x = tf.nn.relu(tf.matmul(x, weights(tf1, "w1", 7 * 7 * 64, 1024)) + zeros(tf1, "b1", 1024))
    logits = tf.matmul(x, weights(tf1, "w2", 1024, 10)) + zeros(tf1, "b2", 10)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf1.train.AdamOptimizer(1e-3).minimize(loss)
    random = np.random.RandomState(0)
    feeds = {images: random.rand(64, 28, 28, 1).astype(np.float32),
             labels: random.randint(0, 10, 64)}
    return tf1.global_variables_initializer(), [loss, train], feeds


def residual(tf, tf1, np):
    """Images of 32 x 32 x 3: the blocks of examples/resnet_digits.py, by momentum."""
    from resnet_digits import batch_norm, block, conv

    images, labels = tf1.placeholder(tf.float32, [64, 32, 32, 3]), tf1.placeholder(tf.int64, [64])
    x = tf.nn.relu(batch_norm(conv(images, 16, 3, 1, "first"), True, "norm"))
    for i, (n_filters, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        x = block(x, n_filters, stride, True, f"block{i}")
    logits = tf.matmul(tf.reduce_mean(x, [1, 2]), weights(tf1, "w", 64, 10)) + zeros(tf1, "b", 10)
    errors = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    decay = tf.add_n([tf.nn.l2_loss(v) for v in tf1.trainable_variables() if v.shape.rank > 1])
    loss = tf.reduce_mean(errors) + 1e-4 * decay
    with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        train = tf1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    random = np.random.RandomState(0)
    feeds = {images: random.rand(64, 32, 32, 3).astype(np.float32),
             labels: random.randint(0, 10, 64)}
    return tf1.global_variables_initializer(), [loss, train], feeds


def gelu(tf, x):
    return 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def mlp(tf, tf1, np):
    """Three hidden layers of 512 with biases and an activation that is written by hand: products
    with what follows them, and chains of elementwise ops in the gradient."""
    x, labels = tf1.placeholder(tf.float32, [128, 256]), tf1.placeholder(tf.int64, [128])
    h, width = x, 256
    for i in range(3):
        h = tf.matmul(h, weights(tf1, f"mlp_w{i}", width, 512)) + zeros(tf1, f"mlp_b{i}", 512)
        h, width = gelu(tf, h), 512
    logits = tf.matmul(h, weights(tf1, "mlp_w", 512, 10)) + zeros(tf1, "mlp_b", 10)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    random = np.random.RandomState(0)
    feeds = {x: random.rand(128, 256).astype(np.float32), labels: random.randint(0, 10, 128)}
    return tf1.global_variables_initializer(), [loss, train], feeds


BATCH, TOKENS, WIDTH, HEADS, WORDS = 8, 128, 256, 4, 1000


def dense(tf, tf1, x, n_in, n_out, name):
    return tf.nn.bias_add(tf.matmul(x, weights(tf1, name, n_in, n_out)),
                          zeros(tf1, name + "_bias", n_out))


def layer_norm(tf, tf1, x, name):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    scale = tf1.get_variable(name + "_scale", [WIDTH], initializer=tf1.ones_initializer())
    return (x - mean) * tf.math.rsqrt(variance + 1e-6) * scale + zeros(tf1, name + "_offset", WIDTH)


def attention(tf, tf1, x, name):
    def heads(kind):
        y = dense(tf, tf1, x, WIDTH, WIDTH, name + kind)
        return tf.transpose(tf.reshape(y, [BATCH, TOKENS, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    query, key, value = (heads(kind) for kind in ("query", "key", "value"))
    scores = tf.matmul(query, key, transpose_b=True) * (WIDTH // HEADS) ** -0.5
    y = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
    return dense(tf, tf1, tf.reshape(y, [BATCH * TOKENS, WIDTH]), WIDTH, WIDTH, name + "out")


def encoder(tf, tf1, np):
    """Two layers of a transformer, 256 wide, on 8 texts of 128 words. It learns to name each word,
    by Adam."""
    words, labels = (tf1.placeholder(tf.int32, [BATCH, TOKENS]) for _ in range(2))
    x = tf.gather(weights(tf1, "words", WORDS, WIDTH), words)
    x = tf.reshape(x + weights(tf1, "places", TOKENS, WIDTH), [BATCH * TOKENS, WIDTH])
    x = layer_norm(tf, tf1, x, "first")
    for i in range(2):
        x = layer_norm(tf, tf1, x + attention(tf, tf1, x, f"attention{i}_"), f"norm{i}_1")
        y = tf.nn.gelu(dense(tf, tf1, x, WIDTH, 4 * WIDTH, f"wide{i}"))
        x = layer_norm(tf, tf1, x + dense(tf, tf1, y, 4 * WIDTH, WIDTH, f"narrow{i}"), f"norm{i}_2")
    logits = dense(tf, tf1, x, WIDTH, WORDS, "logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(labels, [-1]), logits=logits))
    train = tf1.train.AdamOptimizer(1e-4).minimize(loss)
    random = np.random.RandomState(0)
    feeds = {words: random.randint(0, WORDS, (BATCH, TOKENS)),
             labels: random.randint(0, WORDS, (BATCH, TOKENS))}
    return tf1.global_variables_initializer(), [loss, train], feeds


# ---- the networks of examples/, with variables on a ps ----


def lenet_on_digits(tf, tf1, np, on_cluster):
    import lenet as network

    x, y, _, _ = network.load_digits()
    images, labels, loss, train, _ = network.build(on_cluster)
    return (tf1.global_variables_initializer(), [loss, train],
            {images: x[: network.BATCH], labels: y[: network.BATCH]})


def residual_on_digits(tf, tf1, np, on_cluster):
    import common
    import resnet_digits as network

    training = network.build(common.Place("cluster" if on_cluster else ""), network.load_digits())
    return tf1.global_variables_initializer(), [training.loss, training.train], training.feed(0)
