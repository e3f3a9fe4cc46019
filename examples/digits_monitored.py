"""Training that survives kills: MonitoredTrainingSession with checkpoints, a parameter server, and
two workers with a client each.

Kill any daemon (kill -9) while this runs: `tfctl local --restart` starts it again, TensorFlow's
client makes a new session, and the chief restores the newest checkpoint. At last TensorFlow in this
process restores the last checkpoint, too, and tests it.

    tfctl local --ps 1 --workers 2 --restart -- python examples/digits_monitored.py [--steps N |
    --seconds S] [--directory DIR]
"""
import os
import sys
import tempfile
import time

import numpy as np

import replicas
from common import tf, tf1
from digits_async import dense, load_digits

BATCH, SAVE_STEPS = 64, 200


class TellSaves(tf1.train.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        print(f"worker 0: saved step {global_step_value}", flush=True)


def build():
    """(images, labels, loss, train, accuracy)"""
    step = tf1.train.get_or_create_global_step()
    init = tf1.glorot_uniform_initializer(seed=1)
    w1, b1 = tf1.get_variable("w1", [64, 128], initializer=init), tf1.get_variable(
        "b1", [128], initializer=tf1.zeros_initializer())
    w2, b2 = tf1.get_variable("w2", [128, 10], initializer=init), tf1.get_variable(
        "b2", [10], initializer=tf1.zeros_initializer())
    images, labels = tf1.placeholder(tf.float32, [None, 64]), tf1.placeholder(tf.int64, [None])
    logits = dense(tf.nn.relu(dense(images, w1, b1)), w2, b2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels,
            logits=logits))
    train = tf1.train.AdamOptimizer(0.001).minimize(loss, global_step=step)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return images, labels, loss, train, accuracy


def replica(options):
    train_x, train_y, _, _ = load_digits()
    is_chief, random, shown = options.task == 0, np.random.RandomState(options.task), 0
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    with tf1.device(tf1.train.replica_device_setter(ps_tasks=1,
            worker_device=f"/job:worker/task:{options.task}")):
        images, labels, loss, train, _ = build()
    step, hooks = tf1.train.get_global_step(), [replicas.TellBeginning(options.task)]
    if not options.seconds:
        hooks.append(tf1.train.StopAtStepHook(last_step=options.steps))
    savers = [tf1.train.CheckpointSaverHook(options.directory, save_steps=SAVE_STEPS,
                                            listeners=[TellSaves()])]
    replicas.wait_for_chief(options)
    with tf1.train.MonitoredTrainingSession(options.target, is_chief, options.directory,
                                            hooks=hooks, chief_only_hooks=savers,
                                            save_checkpoint_secs=None,
                                            save_summaries_steps=None, save_summaries_secs=None,
                                            log_step_count_steps=None,
                                            config=replicas.session_config(options)) as session:
        while not session.should_stop() and time.monotonic() < deadline:
            pick = random.randint(0, len(train_x), BATCH)
            at, value, _ = session.run([step, loss, train],
                                       {images: train_x[pick], labels: train_y[pick]})
            if not shown <= at < shown + SAVE_STEPS:
                shown = at // SAVE_STEPS * SAVE_STEPS
                print(f"worker {options.task}: step {at:5d}   loss {value:.4f}", flush=True)
    print(f"worker {options.task}: finished", flush=True)
    return test_checkpoint(options.directory, options) if is_chief else 0


def test_checkpoint(directory, options):
    _, _, test_x, test_y = load_digits()
    with tf.Graph().as_default(), tf1.Session() as session:
        images, labels, _, _, accuracy = build()
        tf1.train.Saver().restore(session, tf1.train.latest_checkpoint(directory))
        at, result = session.run([tf1.train.get_global_step(), accuracy],
                                 {images: test_x, labels: test_y})
    print(f"the last checkpoint is of step {at}\ntest accuracy {result:.4f}", flush=True)
    return 0 if result > 0.95 or options.steps < 1000 else 1


def add_arguments(parser):
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seconds", type=float, help="train so long, whatever the steps")
    parser.add_argument("--directory", help="of the checkpoints (default: a new one)")


if __name__ == "__main__":
    if not any(argument.startswith("--directory") for argument in sys.argv):
        sys.argv += ["--directory", os.path.join(tempfile.mkdtemp(prefix="digits-"), "checkpoints")]
    replicas.main(__doc__, replica, 2, add_arguments)
