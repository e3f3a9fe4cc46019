#!/usr/bin/env python3
"""How long does an operator wait for an answer? Runs what docs/operator-tasks.md lists on a cluster
of a ps and two workers that trains, and prints the seconds of each (the median of --rounds). Then
asks etcd, Ray and TensorFlow's own server what they answer, where they are installed.

    bench/operator_tasks.py [--rounds N] [--bin DIR]"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import operator_tasks_others

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")


def train(ready, done, prefix):
    """Steps until `done`; a checkpoint before the first."""
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    with tf1.device("/job:ps/task:0"):
        v = tf1.get_variable("v", [256, 64])
    with tf1.device("/job:worker/task:1"):
        loss = tf.reduce_sum(tf.square(tf.linalg.matmul(tf1.random_uniform([64, 256]), v)))
    step = tf1.train.GradientDescentOptimizer(1e-6).minimize(loss)
    with tf1.Session(os.environ["MILLRACE_TARGET"]) as session:
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, prefix)
        while not done.is_set():
            session.run(step)
            ready.set()


def tasks(bin_dir, target, admin, prefix):
    """(what is asked, a command or the address of a page)"""
    def tool(*args):
        return [os.path.join(bin_dir, "tfctl"), *args]

    def page(daemon, path):
        return f"http://{admin[daemon]}{path}"

    def client(code):
        return [PYTHON, "-c", code]

    master = ("--admin", admin["master"])
    profile = (f"import tensorflow as tf; tf.profiler.experimental.client.trace('{target}', "
               f"'{prefix}-profile', 1000, num_tracing_attempts=1)")
    return [
        ("is all well?", tool("status", "--target", target, *master)),
        ("is this daemon ready?", page("worker/0", "/readyz")),
        ("which tasks are connected, and why not?", page("master", "/statusz")),
        ("which devices are there?", tool("devices", "--target", target)),
        ("who uses the cluster?", page("master", "/sessionz")),
        ("how busy is it?", tool("top", "--target", target, *master)),
        ("why does a step not end?", page("master", "/stepz")),
        ("which values wait, for whom?", page("worker/0", "/rendezvousz")),
        ("who holds the memory?", page("ps/0", "/memz")),
        ("which transport, and why?", page("worker/0", "/transportz")),
        ("why was a step slow?", tool("trace", "--out", "-", *master)),
        ("the same, in TensorBoard's profile", client(profile)),
        ("where does a node run, and why there?", tool("graph", *master)),
        ("what do ops take?", tool("costs", *master)),
        ("which settings run, from where?", page("master", "/flagz")),
        ("is a configuration valid?", [os.path.join(bin_dir, "tf-worker"), "--check-config"]),
        ("what is wrong with this host?", tool("doctor")),
        ("is the checkpoint whole?", tool("checkpoint", "verify", prefix)),
        ("what does the checkpoint hold?", tool("checkpoint", "ls", prefix)),
        ("how did it go over time?", page("master", "/metrics")),
    ]


def run(what):
    start = time.monotonic()
    if isinstance(what, str):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(what, timeout=60) as reply:
            reply.read()  # /stepz is empty when no step runs
            answered = reply.status == 200
    else:
        done = subprocess.run(what, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        finds = {"doctor", "status"} & set(what)  # these end with 70 when they find something
        answered = done.returncode in ((0, 70) if finds else (0,)) and len(done.stdout) > 0
    if not answered:
        raise SystemExit(f"no answer from {what}")
    return time.monotonic() - start


def inside(arguments):
    folder = tempfile.mkdtemp()
    ready, done = threading.Event(), threading.Event()
    prefix = os.path.join(folder, "model")
    thread = threading.Thread(target=train, args=(ready, done, prefix), daemon=True)
    thread.start()
    ready.wait()
    rows = tasks(arguments.bin, os.environ["MILLRACE_TARGET"],
                 json.loads(os.environ["MILLRACE_ADMIN"]), prefix)
    for question, what in rows:
        seconds = statistics.median(run(what) for _ in range(arguments.rounds))
        print(f"{question:45} {seconds:7.2f} s", flush=True)
    done.set()
    thread.join()
    shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments)
        return 0
    code = subprocess.run([os.path.join(arguments.bin, "tfctl"), "local", "--ps", "1", "--workers",
                           "2", "--quiet", "--", PYTHON, os.path.abspath(__file__), "--inside",
                           "--rounds", str(arguments.rounds), "--bin", arguments.bin],
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}).returncode
    operator_tasks_others.run(arguments.rounds, PYTHON)
    return code


if __name__ == "__main__":
    sys.exit(main())
