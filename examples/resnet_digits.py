"""A small residual network with batch normalisation, trained on digits.

Six convolutions in three residual blocks, the later ones with half the width and twice the filters.
Training normalises by the moments of its batch and keeps moving averages of them; the test uses the
averages. Variables live on the parameter server, the network on a worker.

    tfctl local --ps 1 --workers 1 -- python examples/resnet_digits.py [grpc://host:port] [--steps
    N] [--check]
"""
import sys

import numpy as np

from common import Training, arguments, tf, tf1, train_and_check
from digits_async import load_digits

BATCH, DECAY, L2 = 64, 0.9, 1e-4


def conv(x, n_filters, size, stride, name):
    """A convolution without bias (batch normalisation has one)."""
    shape = [size, size, int(x.shape[-1]), n_filters]
    filters = tf1.get_variable(name, shape,
                               initializer=tf1.variance_scaling_initializer(
                                   2.0, seed=len(name) + n_filters))
    return tf.nn.conv2d(x, filters, stride, "SAME")


def batch_norm(x, is_training, name):
    n = int(x.shape[-1])
    with tf1.variable_scope(name):
        scale = tf1.get_variable("scale", [n], initializer=tf1.ones_initializer())
        offset = tf1.get_variable("offset", [n], initializer=tf1.zeros_initializer())
        mean = tf1.get_variable("mean", [n], initializer=tf1.zeros_initializer(), trainable=False)
        variance = tf1.get_variable("variance", [n], initializer=tf1.ones_initializer(),
                                    trainable=False)
    if not is_training:
        return tf1.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False)[0]
    y, batch_mean, batch_variance = tf1.nn.fused_batch_norm(x, scale, offset, is_training=True)
    for average, now in ((mean, batch_mean), (variance, batch_variance)):
        tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS,
                              tf1.assign_sub(average, (1 - DECAY) * (average - now)))
    return y


def block(x, n_filters, stride, is_training, name):
    """x + f(x); a 1x1 convolution fits x where the shape changes."""
    with tf1.variable_scope(name):
        y = tf.nn.relu(batch_norm(conv(x, n_filters, 3, stride, "conv1"), is_training, "norm1"))
        y = batch_norm(conv(y, n_filters, 3, 1, "conv2"), is_training, "norm2")
        if stride != 1 or int(x.shape[-1]) != n_filters:
            x = conv(x, n_filters, 1, stride, "fit")
        return tf.nn.relu(x + y)


def logits_of(images, is_training):
    with tf1.variable_scope("resnet", reuse=tf1.AUTO_REUSE):
        x = tf.reshape(images, [-1, 8, 8, 1])
        x = tf.nn.relu(batch_norm(conv(x, 16, 3, 1, "first"), is_training, "norm"))
        for i, (n_filters, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
            x = block(x, n_filters, stride, is_training, f"block{i}")
        w = tf1.get_variable("w", [64, 10], initializer=tf1.glorot_uniform_initializer(seed=1))
        b = tf1.get_variable("b", [10], initializer=tf1.zeros_initializer())
        return tf.matmul(tf.reduce_mean(x, [1, 2]), w) + b


def build(place, digits):
    train_x, train_y, test_x, test_y = digits
    with place.replica():
        images, labels = tf1.placeholder(tf.float32, [None, 64]), tf1.placeholder(tf.int64, [None])
        errors = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits_of(images, True))
        weights = [v for v in tf1.trainable_variables() if v.shape.rank > 1]
        loss = tf.reduce_mean(errors) + L2 * tf.add_n([tf.nn.l2_loss(v) for v in weights])
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            step = tf1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
        is_right = tf.equal(tf.argmax(logits_of(images, False), 1), labels)
        accuracy = tf.reduce_mean(tf.cast(is_right, tf.float32))

    def feed(i):
        batch = np.random.RandomState(i).randint(0, len(train_x), BATCH)
        return {images: train_x[batch], labels: train_y[batch]}

    return Training(loss, step, feed, BATCH, "images",
                    lambda session: session.run(accuracy, {images: test_x, labels: test_y}))


def main():
    options = arguments(__doc__, 300)
    tf1.disable_eager_execution()
    digits = load_digits()
    _, accuracy = train_and_check("a residual network", lambda place: build(place, digits), options,
                                  n_compared=10)
    print(f"test accuracy {accuracy:.4f}")
    if accuracy < 0.95 and options.steps >= 300:
        sys.exit("the network did not learn")


if __name__ == "__main__":
    main()
