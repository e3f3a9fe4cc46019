"""What test_save_barrier.py runs on a cluster with two ps tasks: training steps that change a pair
of variables, and saves meanwhile.

    save_barrier_programs.py NAME TARGET DIRECTORY [ARGUMENT...]      ends with a line of JSON
"""
import json
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from tensorflow.core.framework import attr_value_pb2  # noqa: E402

tf.disable_eager_execution()
PS, WORKERS = ["/job:ps/task:0", "/job:ps/task:1"], ["/job:worker/task:0", "/job:worker/task:1"]


def _pair(asks):
    """a on one ps, b on the other, one trainer on each worker that adds the same to both; and a
    saver, which may ask for a cut."""
    with tf.device(PS[0]):
        a = tf.get_variable("a", initializer=tf.zeros([64], tf.int64), use_resource=True)
    with tf.device(PS[1]):
        b = tf.get_variable("b", initializer=tf.zeros([64], tf.int64), use_resource=False)
    trainers = []
    for device in WORKERS:
        with tf.device(device):
            one = tf.ones([64], tf.int64) * tf.cast(tf.size(tf.random.uniform([3])) - 2, tf.int64)
        trainers.append(tf.group(tf.assign_add(a, one, use_locking=True),
                                 tf.assign_add(b, one, use_locking=True)))
    scope = {"_consistent_save": attr_value_pb2.AttrValue(b=asks == "attr")} if asks in (
        "attr", "not") else {}
    with tf.get_default_graph()._attr_scope(scope):  # what a client can say without a change
        saver = tf.train.Saver(sharded=True, max_to_keep=1)
    return trainers, saver


class Trainers:
    """A thread and a session for each; counts their steps."""

    def __init__(self, target, ops):
        self.counts, self.stopping = [0] * len(ops), False
        self.threads = [threading.Thread(target=self.train,
                                         args=(target, i, op, tf.get_default_graph()), daemon=True)
                        for i, op in enumerate(ops)]
        for thread in self.threads:
            thread.start()

    def train(self, target, i, op, graph):
        with tf.Session(target, graph=graph) as session:
            step = session.make_callable(op)
            while not self.stopping:
                step()
                self.counts[i] += 1

    def rate(self, work):
        """Steps a second while `work` runs."""
        before, begin = sum(self.counts), time.monotonic()
        work()
        return (sum(self.counts) - before) / (time.monotonic() - begin)

    def wait_for(self, n):
        while min(self.counts) < n:
            time.sleep(0.01)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()


def pairs(target, directory, asks, n_saves):
    """How many of the checkpoints have a != b?"""
    ops, saver = _pair(asks)
    torn, n_saves = [], int(n_saves)
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        trainers = Trainers(target, ops)
        trainers.wait_for(20)

        def save_all():
            for i in range(n_saves):
                prefix = saver.save(session, os.path.join(directory, "model"), global_step=i,
                                    write_meta_graph=False)
                reader = tf.train.load_checkpoint(prefix)
                a, b = reader.get_tensor("a"), reader.get_tensor("b")
                if not np.array_equal(a, b):
                    torn.append([int(a[0]), int(b[0])])

        with_saves = trainers.rate(save_all)
        without = trainers.rate(lambda: trainers.wait_for(max(trainers.counts) + 200))
        trainers.stop()
        a, b = session.run(tf.global_variables())
        return {"saves": n_saves, "torn": len(torn), "steps": sum(trainers.counts),
                "equal_at_end": bool(np.array_equal(a, b)),
                "steps_per_s_with_saves": round(with_saves, 1),
                "steps_per_s_without": round(without, 1)}


def blocked(target, directory):
    """A step that waits in a queue of a saved task: the save fails within its time, and what waited
    for it goes on."""
    ops, saver = _pair("attr")
    with tf.device(PS[0]):
        queue = tf.FIFOQueue(10, [tf.int64], shapes=[[]], shared_name="tokens")
        take, put = queue.dequeue(), queue.enqueue([1])
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        session.run(ops)
        taker = threading.Thread(target=lambda: session.run(take), daemon=True)
        taker.start()
        while session.run(queue.size()) or not taker.is_alive():
            pass
        error = ""
        try:
            while True:  # until the step is there
                saver.save(session, os.path.join(directory, "model"), write_meta_graph=False)
        except tf.errors.DeadlineExceededError as e:
            error = e.message
        session.run(ops)
        session.run(put)
        taker.join()
        saver.save(session, os.path.join(directory, "model"), write_meta_graph=False)
        return {"error": error,
                "saved_after": tf.train.load_checkpoint(
                    os.path.join(directory, "model")).get_tensor("a")[0].item()}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
    os._exit(0)
