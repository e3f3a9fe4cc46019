"""Synchronous replicas with a backup worker: three workers, and the gradients of the first two to
come make a step [OSDI 4.4, figure 4c].

Each worker has a client of its own. TensorFlow's SyncReplicasOptimizer adds gradients up in
accumulators on the parameter server, drops those of workers that lag behind, and hands out tokens
for the next step, so that training goes on while one worker stands still. The witness is a variable
whose gradient is always 1: it tells how many updates there were, which must be one a step.

    tfctl local --ps 1 --workers 3 -- python examples/sync_replicas.py [--steps N] [--aggregate 2]
    [--workers 3]
"""
import sys
import time

import numpy as np

import replicas
from common import tf, tf1
from digits_async import dense, load_digits

BATCH, RATE = 64, 0.25  # a binary fraction, so that the witness counts without rounding
# at the end, the chief's queue runner waits for gradients that nobody computes any more; the
# default is two minutes
GRACE_S = 2


def build(options):
    """(images, labels, loss, train, accuracy, witness, optimizer) on this worker, with variables on
    the parameter server."""
    with tf1.device(tf1.train.replica_device_setter(ps_tasks=1,
            worker_device=f"/job:worker/task:{options.task}")):
        step = tf1.train.get_or_create_global_step()
        init = tf1.glorot_uniform_initializer(seed=1)
        w1, b1 = tf1.get_variable("w1", [64, 128], initializer=init), tf1.get_variable(
            "b1", [128], initializer=tf1.zeros_initializer())
        w2, b2 = tf1.get_variable("w2", [128, 10], initializer=init), tf1.get_variable(
            "b2", [10], initializer=tf1.zeros_initializer())
        witness = tf1.get_variable("witness", [], initializer=tf1.zeros_initializer())
        images, labels = tf1.placeholder(tf.float32, [None, 64]), tf1.placeholder(tf.int64, [None])
        logits = dense(tf.nn.relu(dense(images, w1, b1)), w2, b2)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels,
                logits=logits))
        optimizer = tf1.train.SyncReplicasOptimizer(
            tf1.train.GradientDescentOptimizer(RATE), options.aggregate, options.workers)
        train = optimizer.minimize(loss + witness, global_step=step)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return images, labels, loss, train, accuracy, witness, optimizer


def replica(options):
    is_chief = options.task == 0
    train_x, train_y, test_x, test_y = load_digits()
    images, labels, loss, train, accuracy, witness, optimizer = build(options)
    step, random, began, shown = tf1.train.get_global_step(), np.random.RandomState(
        options.task), time.time(), 0
    hooks = [tf1.train.StopAtStepHook(last_step=options.steps),
             optimizer.make_session_run_hook(is_chief), replicas.TellBeginning(options.task)]
    replicas.wait_for_chief(options)
    with tf1.train.MonitoredTrainingSession(options.target, is_chief=is_chief, hooks=hooks,
                                            stop_grace_period_secs=GRACE_S,
                                            config=replicas.session_config(options)) as session:
        while not session.should_stop():
            pick = random.randint(0, len(train_x), BATCH)
            at, value, _ = session.run([step, loss, train],
                                       {images: train_x[pick], labels: train_y[pick]})
            if at >= shown + 50:
                shown = at // 50 * 50
                print(f"worker {options.task}: step {at:5d}   loss {value:.4f}   "
                      f"{at / (time.time() - began):7.1f} steps/s", flush=True)
    if not is_chief:
        return 0
    with tf1.Session(options.target) as session:
        at, updates = session.run([step, -witness / RATE])
        result = session.run(accuracy, {images: test_x, labels: test_y})
    print(f"{updates:.0f} updates in {at} steps\ntest accuracy {result:.4f}", flush=True)
    if updates != at:
        sys.exit("steps and updates differ")
    return 0 if result > 0.95 or options.steps < 500 else 1


def add_arguments(parser):
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--aggregate", type=int, default=2, help="how many gradients make a step")


if __name__ == "__main__":
    replicas.main(__doc__, replica, 3, add_arguments)
