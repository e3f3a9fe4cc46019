"""Synchronous, in-graph replication: one client, one graph, two workers [OSDI 4.4, figure 4b].

Each step feeds one batch, splits it over the two worker tasks, averages their gradients on the
parameter server and applies them once, so a step sees exactly the gradient of the whole batch.
Plain TensorFlow; the target may be any TensorFlow cluster.

    python examples/digits_sync.py [grpc://host:port]     (default: $MILLRACE_TARGET)
"""
import os
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402

from digits_async import dense, load_digits  # noqa: E402

tf1 = tf.compat.v1
N_WORKERS, BATCH, STEPS = 2, 128, 1200


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else os.environ["MILLRACE_TARGET"]
    tf1.disable_eager_execution()
    train_x, train_y, test_x, test_y = load_digits()

    with tf1.device("/job:ps/task:0"):
        init = tf1.glorot_uniform_initializer(seed=1)
        w1 = tf1.get_variable("w1", [64, 128], initializer=init)
        b1 = tf1.get_variable("b1", [128], initializer=tf1.zeros_initializer())
        w2 = tf1.get_variable("w2", [128, 10], initializer=init)
        b2 = tf1.get_variable("b2", [10], initializer=tf1.zeros_initializer())
        variables = [w1, b1, w2, b2]
        optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)

    def logits_of(x):
        return dense(tf.nn.relu(dense(x, w1, b1)), w2, b2)

    x = tf1.placeholder(tf.float32, [None, 64])
    y = tf1.placeholder(tf.int64, [None])
    n = tf.shape(x)[0]
    losses, gradients = [], []
    for task in range(N_WORKERS):
        with tf1.device(f"/job:worker/task:{task}"):
            begin, end = task * n // N_WORKERS, (task + 1) * n // N_WORKERS
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=y[begin:end], logits=logits_of(x[begin:end])))
            losses.append(loss)
            gradients.append(tf.gradients(loss, variables))
    with tf1.device("/job:ps/task:0"):
        mean_loss = tf.add_n(losses) / N_WORKERS
        means = [tf.add_n(list(of_one)) / N_WORKERS for of_one in zip(*gradients)]
        train = optimizer.apply_gradients(zip(means, variables))
    with tf1.device("/job:worker/task:0"):
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits_of(x), 1), y), tf.float32))

    with tf1.Session(target) as session:
        session.run(tf1.global_variables_initializer())
        random = np.random.RandomState(0)
        start = time.time()
        for step in range(1, STEPS + 1):
            pick = random.randint(0, len(train_x), BATCH)
            loss, _ = session.run([mean_loss, train], {x: train_x[pick], y: train_y[pick]})
            if step % 300 == 0:
                print(f"step {step:5d}   loss {loss:.4f}   {step / (time.time() - start):7.1f} "
                      "steps/s", flush=True)
        result = session.run(accuracy, {x: test_x, y: test_y})
        print(f"test accuracy {result:.4f}")
    return 0 if result > 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
