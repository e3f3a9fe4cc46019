"""A convolutional network in the manner of LeNet, trained on digits: convolution, pooling, batch
normalisation and their gradients.

Variables live on the parameter server, the network on a worker. All seeds are set, so that every
cluster that computes alike learns alike: `--check` trains the same graph with TensorFlow in this
process, too, and ends with 1 where the losses drift apart.

    python examples/lenet.py [grpc://host:port] [--steps N] [--check]     (default:
    $MILLRACE_TARGET)
"""
import argparse
import os
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402

from digits_async import load_digits  # noqa: E402

tf1 = tf.compat.v1
BATCH = 64


def conv(x, n_filters, name):
    depth = int(x.shape[-1])
    with tf1.variable_scope(name):
        filters = tf1.get_variable("w", [3, 3, depth, n_filters],
                                   initializer=tf1.glorot_uniform_initializer(seed=depth))
        scale = tf1.get_variable("scale", [n_filters], initializer=tf1.ones_initializer())
        offset = tf1.get_variable("offset", [n_filters], initializer=tf1.zeros_initializer())
    y, _, _ = tf1.nn.fused_batch_norm(tf.nn.conv2d(x, filters, 1, "SAME"), scale, offset,
                                      is_training=True)
    return tf.nn.max_pool2d(tf.nn.relu(y), 2, 2, "SAME")


def dense(x, n_out, name):
    n_in = int(x.shape[-1])
    with tf1.variable_scope(name):
        weights = tf1.get_variable("w", [n_in, n_out],
                                   initializer=tf1.glorot_uniform_initializer(seed=n_in))
        biases = tf1.get_variable("b", [n_out], initializer=tf1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, weights), biases)


def build(on_cluster):
    """The graph: (images, labels, loss, train, accuracy)."""
    setter = None
    if on_cluster:
        setter = tf1.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf1.device(setter):
        images, labels = tf1.placeholder(tf.float32, [None, 64]), tf1.placeholder(tf.int64, [None])
        x = conv(conv(tf.reshape(images, [-1, 8, 8, 1]), 32, "conv1"), 64, "conv2")
        x = tf.nn.relu(dense(tf.reshape(x, [-1, 2 * 2 * 64]), 128, "dense1"))
        logits = dense(x, 10, "logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels,
                logits=logits))
        train = tf1.train.MomentumOptimizer(0.02, 0.9).minimize(loss)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return images, labels, loss, train, accuracy


def run(target, steps):
    """The losses of all steps, and the accuracy on images that training never saw."""
    train_x, train_y, test_x, test_y = load_digits()
    random, losses, began = np.random.RandomState(0), [], time.time()
    with tf.Graph().as_default():
        images, labels, loss, train, accuracy = build(bool(target))
        session = tf1.Session(target)
        session.run(tf1.global_variables_initializer())
        for _ in range(steps):
            batch = random.randint(0, len(train_x), BATCH)
            losses.append(session.run([loss, train],
                                      {images: train_x[batch], labels: train_y[batch]})[0])
        result = session.run(accuracy, {images: test_x, labels: test_y})
        session.close()
    print(f"{target or 'TensorFlow in process'}: {steps} steps in {time.time() - began:.1f} s, "
          f"last loss {losses[-1]:.4f}, accuracy {result:.4f}")
    return np.array(losses), result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", default=os.environ.get("MILLRACE_TARGET"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--check", action="store_true",
                        help="train with TensorFlow in this process, too")
    arguments = parser.parse_args()
    tf1.disable_eager_execution()
    losses, accuracy = run(arguments.target, arguments.steps)
    print(f"test accuracy {accuracy:.4f}")
    if accuracy < 0.95 and arguments.steps >= 200:
        sys.exit("the network did not learn")
    if arguments.check:
        wanted, _ = run("", arguments.steps)
        early = min(20, arguments.steps)  # later, roundings have grown
        drift = np.max(np.abs(losses[:early] - wanted[:early]))
        print(f"the first {early} losses differ by at most {drift:.2g}")
        if drift > 2e-3:
            sys.exit("the losses drift apart")


if __name__ == "__main__":
    main()
