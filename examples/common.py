"""What the longer examples share: their arguments, Shakespeare's text, and one training loop for a
cluster and for this process.

A program builds its graph with a `Place`, which names devices on a cluster and names none in this
process. All seeds are set, so both train alike, and `--check` holds one against the other.
"""
import argparse
import collections
import gzip
import os
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")

# What a program builds: `feed(step)` gives the feeds of a step, which works on n_items of what
# `items` names; `finish(session)`, if any, says how good the model has become.
Training = collections.namedtuple("Training", "loss train feed n_items items finish",
                                  defaults=[None])


class Place:
    """Where a graph runs: the jobs ps and worker of the cluster at `target`, or this process if
    that is empty."""

    def __init__(self, target, n_ps=1):
        self.target, self.n_ps = target, n_ps

    def on(self, job, task=0):
        return tf1.device(f"/job:{job}/task:{task}" if self.target else None)

    def replica(self, worker=0):
        """Variables go round the parameter servers, all else to a worker."""
        return tf1.device(tf1.train.replica_device_setter(ps_tasks=self.n_ps,
                worker_device=f"/job:worker/task:{worker}") if self.target else None)


def arguments(doc, steps, add=None):
    """The command line; `add(parser)` adds what only one program has."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("target", nargs="?", default=os.environ.get("MILLRACE_TARGET"),
                        help="grpc://HOST:PORT (default: $MILLRACE_TARGET)")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--check", action="store_true",
                        help="compute with TensorFlow in this process, too, and compare")
    if add:
        add(parser)
    options = parser.parse_args()
    if not options.target:
        parser.error("no target, and MILLRACE_TARGET is not set")
    return options


def seeded(initializer, *arguments, seed):
    """An initializer for partitioned variables: the second half is drawn with seed + 1, so that the
    rows of two parts differ."""
    def initial_value(shape, dtype=tf.float32, partition_info=None):
        is_second = partition_info is not None and any(partition_info.var_offset)
        return initializer(*arguments, seed=seed + is_second)(shape, dtype)
    return initial_value


def load_text():
    """A megabyte of Shakespeare."""
    with gzip.open(os.path.join(DATA, "shakespeare.txt.gz"), "rt", encoding="utf-8") as f:
        return f.read()


def train(title, build, place, n_steps):
    """Trains what `build(place)` makes; the loss of each step, and what finish() returned."""
    losses = []
    with tf.Graph().as_default():
        tf1.set_random_seed(1)
        model = build(place)
        init = tf1.global_variables_initializer()
        with tf1.Session(place.target) as session:
            session.run(init)
            session.run([model.loss, model.train], model.feed(0))  # compiles the step
            session.run(init)
            print(f"{title}, {place.target or 'in this process'}", flush=True)
            began = time.time()
            for step in range(n_steps):
                losses.append(float(session.run([model.loss, model.train], model.feed(step))[0]))
                if (step + 1) % max(1, n_steps // 5) == 0:
                    rate = (step + 1) * model.n_items / (time.time() - began)
                    print(f"  step {step + 1:5d}   loss {losses[-1]:7.4f}   {rate:9.0f} "
                          f"{model.items}/s", flush=True)
            result = model.finish(session) if model.finish else None
    if not np.all(np.isfinite(losses)):
        sys.exit("the loss is not finite")
    tail = max(1, n_steps // 5)
    if n_steps >= 20 and np.mean(losses[-tail:]) >= np.mean(losses[:tail]):
        sys.exit(f"the loss does not fall: {np.mean(losses[:tail]):.4f} at first, "
                 f"{np.mean(losses[-tail:]):.4f} at last")
    return np.array(losses), result


def train_and_check(title, build, options, n_ps=1, tolerance=2e-3, n_compared=20):
    """train() on the cluster; with --check, the first losses are held against TensorFlow's own.
    Later ones differ as roundings grow."""
    losses, result = train(title, build, Place(options.target, n_ps), options.steps)
    if options.check:
        n = min(n_compared, options.steps)
        wanted, _ = train(title, build, Place("", n_ps), n)
        drift = float(np.max(np.abs(losses[:n] - wanted)))
        print(f"  the first {n} losses differ from TensorFlow's by at most {drift:.2g}", flush=True)
        if not drift <= tolerance:
            sys.exit("the losses drift apart")
    return losses, result
