"""Asynchronous training with a parameter server: the classic TensorFlow 1 set-up, in plain
TensorFlow.

The variables live on /job:ps/task:0. Each worker task computes gradients of a small multilayer
perceptron on its own batches and applies them to the shared variables as they come, without waiting
for the other [OSDI 4.4, figure 4a]. Nothing here knows of Millrace: the target may be any
TensorFlow cluster.

    python examples/digits_async.py [grpc://host:port]     (default: $MILLRACE_TARGET)
"""
import gzip
import os
import sys
import threading
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
N_WORKERS, BATCH, STEPS_PER_WORKER = 2, 64, 1500


def load_digits():
    """1797 images of 8x8 grey values, and their digits; a fifth is kept for the test."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")
    with gzip.open(path, "rt") as f:
        rows = np.loadtxt(f, delimiter=",", dtype=np.float32)
    rows = rows[np.random.RandomState(0).permutation(len(rows))]
    images, labels = rows[:, :64] / 16.0, rows[:, 64].astype(np.int64)
    n_test = len(rows) // 5
    return images[n_test:], labels[n_test:], images[:n_test], labels[:n_test]


def dense(x, weights, biases):
    return tf.matmul(x, weights) + biases


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
        global_step = tf1.train.get_or_create_global_step()
    optimizer = tf1.train.AdamOptimizer(0.002)

    def logits_of(x):
        return dense(tf.nn.relu(dense(x, w1, b1)), w2, b2)

    towers = []
    for task in range(N_WORKERS):
        with tf1.device(f"/job:worker/task:{task}"):
            x = tf1.placeholder(tf.float32, [None, 64])
            y = tf1.placeholder(tf.int64, [None])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y,
                    logits=logits_of(x)))
            train = optimizer.minimize(loss, global_step=global_step)
            towers.append((x, y, loss, train))
    with tf1.device("/job:worker/task:0"):
        x = tf1.placeholder(tf.float32, [None, 64])
        y = tf1.placeholder(tf.int64, [None])
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits_of(x), 1), y), tf.float32))

    with tf1.Session(target) as session:
        session.run(tf1.global_variables_initializer())
        start = time.time()
        losses = [0.0] * N_WORKERS

        def work(task):
            random = np.random.RandomState(task)
            tower_x, tower_y, loss, train = towers[task]
            for _ in range(STEPS_PER_WORKER):
                pick = random.randint(0, len(train_x), BATCH)
                losses[task], _ = session.run([loss, train],
                                              {tower_x: train_x[pick], tower_y: train_y[pick]})

        threads = [threading.Thread(target=work, args=(task,)) for task in range(N_WORKERS)]
        for thread in threads:
            thread.start()
        shown = 0
        while any(thread.is_alive() for thread in threads):
            step = session.run(global_step)
            if step >= shown + 500:
                shown = step
                print(f"step {step:5d}   loss {np.mean(losses):.4f}   "
                      f"{step / (time.time() - start):7.1f} steps/s", flush=True)
            threads[0].join(0.05)
        step = session.run(global_step)
        print(f"step {step:5d}   loss {np.mean(losses):.4f}   {step / (time.time() - start):7.1f} "
              "steps/s")
        result = session.run(accuracy, {x: test_x, y: test_y})
        print(f"test accuracy {result:.4f}")
    return 0 if result > 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
