#!/usr/bin/env python3
"""The same client program against TensorFlow's own gRPC cluster and against Millrace, side by side
in one run.

    .venv/bin/python bench/compare.py [--json FILE] [--rows NAME,...] [--rounds N]

Starts both clusters on loopback (one ps, one worker, in processes of their own; Millrace's master
besides), opens a session to each from this one client process, and measures each row in alternating
rounds, so that noise of the machine falls on both. A row's figure is the median time of one step;
ratios are TensorFlow ÷ Millrace. Every measured step executes an op in the worker's process. Also
printed: start to ready, and resident memory of each idle daemon; and for the rows bound by messages
what the client needs by itself (against a server that answers at once, bench/client_floor.c):
TensorFlow ÷ that is the greatest ratio any runtime could reach.

Both run with their defaults, so TensorFlow rewrites its graphs. Rows that count ops are built so
that its rewriter can take none away; Millrace's optional passes are off where they would fuse them.
The run fails if an op is missing.
"""
import argparse
import collections
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import daemons

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("MILLRACE_BIN", os.path.join(ROOT, "build", "bin"))
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"

TENSORFLOW_SERVER = """
import os, sys, json
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
tf.distribute.Server(tf.train.ClusterSpec(json.loads(sys.argv[1])), job_name=sys.argv[2],
                     task_index=0).join()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def wait_until_accepts(port, deadline_s=60):
    end = time.time() + deadline_s
    while time.time() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.002)
    raise SystemExit(f"nothing listens on port {port}")


class TensorFlowCluster:
    name = "tensorflow"

    def __init__(self):
        spec = {"ps": [f"127.0.0.1:{free_port()}"], "worker": [f"127.0.0.1:{free_port()}"]}
        start = time.time()
        self.processes = {job: daemons.start([sys.executable, "-c", TENSORFLOW_SERVER,
                json.dumps(spec), job], stderr=subprocess.DEVNULL)
                          for job in spec}
        for job in spec:
            wait_until_accepts(int(spec[job][0].split(":")[1]))
        self.start_s = {"all": time.time() - start}
        self.target = f"grpc://{spec['worker'][0]}"
        self.rss = {job: rss_mb(p.pid) for job, p in self.processes.items()}

    def stop(self):
        for p in self.processes.values():
            p.kill()
            p.wait()


class MillraceCluster:
    """The daemons started one by one, so that each one's start can be timed by its port file."""
    name = "millrace"

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.processes, self.start_s, ports = {}, {}, {}
        for job in ("ps", "worker"):
            ports[job] = self.start(job, [os.path.join(BIN, "tf-worker"), "--job", job, "--task",
                                          "0", "--listen", "127.0.0.1:0"])
        spec = ",".join(f"{job}=127.0.0.1:{port}" for job, port in ports.items())
        port = self.start("master", [os.path.join(BIN, "tf-master"), "--cluster", spec, "--listen",
                                     "127.0.0.1:0"])
        self.target = f"grpc://127.0.0.1:{port}"
        time.sleep(0.5)
        self.rss = {name: rss_mb(p.pid) for name, p in self.processes.items()}

    def start(self, name, command):
        path = os.path.join(self.directory.name, name)
        start = time.time()
        self.processes[name] = daemons.start(command
                                             + ["--port-file", path, "--log-level", "warning"])
        while not os.path.exists(path):
            if self.processes[name].poll() is not None:
                raise SystemExit(f"{name} ended with {self.processes[name].returncode}")
            time.sleep(0.0005)
        self.start_s[name] = time.time() - start
        with open(path) as f:
            return int(f.readline())

    def stop(self):
        for p in self.processes.values():
            p.terminate()
        for p in self.processes.values():
            p.wait()
        self.directory.cleanup()


class ClientFloor:
    """A server that answers at once: what is left is the client's own time, which no runtime can go
    below."""

    def __init__(self):
        self.process = daemons.start([os.path.join(os.path.dirname(BIN.rstrip("/")), "bench",
                "client_floor")], stdout=subprocess.PIPE, text=True)
        self.target = f"grpc://127.0.0.1:{int(self.process.stdout.readline())}"

    def stop(self):
        self.process.kill()
        self.process.wait()


class Row:
    """`build` makes the graph and returns (initializers, what to fetch, {placeholder: value}).
    `counts` says how many nodes of an op a step must run at least: the graph is built so that
    TensorFlow's rewriter cannot drop, fold or merge them, and `check_counts` fails where one has.
    `would_fuse`: Millrace would fuse them, so its optional passes are off."""

    def __init__(self, name, aim, build, calls, per=1, has_floor=False, counts=None,
                 would_fuse=False):
        self.would_fuse = would_fuse
        self.name, self.aim, self.build, self.calls, self.per, self.has_floor = (
            name, aim, build, calls, per, has_floor)
        self.counts = counts or {}


def build_noop(tf, tf1, np):
    with tf1.device(WORKER):
        op = tf.no_op()
    return [], op, {}


def build_scalar(tf, tf1, np):
    with tf1.device(WORKER):
        x = tf1.placeholder(tf.float32, [])
        y = x + 1.0
    return [], y, {x: np.float32(1)}


def build_megabytes(tf, tf1, np):
    with tf1.device(WORKER):
        x = tf1.placeholder(tf.float32, [None])
        y = tf1.identity(-x)
    return [], y, {x: np.ones(4 << 20, np.float32)}


def build_null_scalar(tf, tf1, np):
    with tf1.device(PS):
        v = tf1.get_variable("v_scalar", [], initializer=tf1.ones_initializer())
        read = v.read_value()
    with tf1.device(WORKER):
        op = tf.identity(-read).op
    return [v.initializer], op, {}


def build_null_sparse(tf, tf1, np):
    with tf1.device(PS):
        # 1 GiB
        table = tf1.get_variable("v_table", [1 << 20, 256], initializer=tf1.zeros_initializer())
        rows = tf.gather(table,
                         tf1.placeholder_with_default(
                             np.random.RandomState(0).randint(0, 1 << 20, 32).astype(np.int32),
                             [32]))
    with tf1.device(WORKER):
        op = tf.identity(-rows).op
    return [table.initializer], op, {}


def build_null_dense(tf, tf1, np):
    with tf1.device(PS):
        # 100 MiB
        v = tf1.get_variable("v_dense", [25, 1 << 20], initializer=tf1.ones_initializer())
        read = v.read_value()
    with tf1.device(WORKER):
        op = tf.identity(read).op
    return [v.initializer], op, {}


def build_many_ops(tf, tf1, np):
    """A chain on fed scalars, so that nothing is known beforehand. Every value is fetched, as an
    element of one vector, so that no two ops can become one."""
    with tf1.device(WORKER):
        x = tf1.placeholder(tf.float32, [])
        a = tf1.placeholder(tf.float32, [])
        y, values = x, []
        for _ in range(10000):
            values.append(y + a)
            y = values[-1] * a
            values.append(y)
        y = tf.concat([tf.stack(values[i:i + 100]) for i in range(0, len(values), 100)], 0)
    return [], y, {x: np.float32(1), a: np.float32(0.5)}


def build_while(tf, tf1, np):
    with tf1.device(WORKER):
        n = tf1.placeholder(tf.int32, [])
        y = tf1.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0)])
    return [], y, {n: np.int32(10000)}


def build_wide_while(tf, tf1, np):
    """Two ops for each of 15 variables. Two variables of the next iteration use each product, so no
    product can become part of the op behind it."""
    with tf1.device(WORKER):
        n, factor = tf1.placeholder(tf.int32, []), tf1.placeholder(tf.float32, [])

        def body(i, *xs):
            products = [x * factor for x in xs]
            return (i + 1, *[p - q for p, q in zip(products, products[1:] + products[:1])])

        loop = tf1.while_loop(lambda i, *xs: i < n, body,
                              [tf.constant(0), *[tf.constant(float(k)) for k in range(15)]])
        y = tf.add_n(loop[1:])
    return [], y, {n: np.int32(1000), factor: np.float32(0.5)}


def build_far_while(tf, tf1, np):
    """Each iteration's value is made on the ps and comes back."""
    with tf1.device(WORKER):
        n = tf1.placeholder(tf.int32, [])

        def body(i, x):
            with tf1.device(PS):
                far = x * 0.5
            with tf1.device(WORKER):
                return i + 1, far + 1.0

        y = tf1.while_loop(lambda i, x: i < n, body, [tf.constant(0), tf.constant(1.0)])[1]
    return [], y, {n: np.int32(200)}


def build_lstm(tf, tf1, np):
    """256 units, 20 steps, batch 32: a while_loop over TensorArrays, its gradient, and the update
    of the weights on the ps."""
    units, steps, batch = 256, 20, 32
    with tf1.device(PS):
        kernel = tf1.get_variable("lstm_kernel", [units * 2, units * 4],
                                  initializer=tf1.glorot_uniform_initializer(seed=1))
        bias = tf1.get_variable("lstm_bias", [units * 4], initializer=tf1.zeros_initializer())
    with tf1.device(WORKER):
        x = tf1.placeholder(tf.float32, [steps, batch, units])
        weights, offset = tf.identity(kernel), tf.identity(bias)
        inputs = tf.TensorArray(tf.float32, steps).unstack(x)
        outputs = tf.TensorArray(tf.float32, steps)

        def body(t, c, h, out):
            i, j, f, o = tf.split(tf.matmul(tf.concat([inputs.read(t), h], 1), weights) + offset, 4,
                                  axis=1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
            return t + 1, c, h, out.write(t, h)

        zeros = tf.zeros([batch, units])
        loop = tf1.while_loop(lambda t, *_: t < steps, body,
                              [tf.constant(0), zeros, zeros, outputs])
        loss = tf.reduce_mean(tf.square(loop[3].stack()))
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[kernel, bias])
    value = np.random.RandomState(0).rand(steps, batch, units).astype(np.float32)
    return [kernel.initializer, bias.initializer], [loss, train], {x: value}


def build_mlp(tf, tf1, np):
    random = np.random.RandomState(0)
    with tf1.device(PS):
        sizes = [64, 256, 128, 10]
        weights = [tf1.get_variable(f"mlp_w{i}", [sizes[i], sizes[i + 1]],
                                    initializer=tf1.glorot_uniform_initializer(seed=i))
                   for i in range(3)]
        biases = [tf1.get_variable(f"mlp_b{i}", [sizes[i + 1]], initializer=tf1.zeros_initializer())
                  for i in range(3)]
    with tf1.device(WORKER):
        x = tf1.placeholder(tf.float32, [None, 64])
        t = tf1.placeholder(tf.int32, [None])
        h = x
        for i in range(3):
            h = tf.matmul(h, weights[i]) + biases[i]
            if i < 2:
                h = tf.nn.relu(h)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=t, logits=h))
        optimizer = tf1.train.MomentumOptimizer(0.01, 0.9)
        train = optimizer.minimize(loss, var_list=weights + biases)
    slots = [optimizer.get_slot(v, "momentum").initializer for v in weights + biases]
    batch, labels = random.rand(64, 64).astype(np.float32), random.randint(0, 10, 64).astype(
        np.int32)
    return [v.initializer for v in weights + biases] + slots, [loss, train], {x: batch, t: labels}


ROWS = [
    Row("no-op step", 3.0, build_noop, 300, has_floor=True),
    Row("scalar feed and fetch", 2.5, build_scalar, 300, has_floor=True, counts={"AddV2": 1}),
    Row("16 MB feed and fetch", 1.2, build_megabytes, 5, has_floor=True, counts={"Neg": 1}),
    Row("null step, scalar from ps", 5.0, build_null_scalar, 200, counts={"Neg": 1}),
    Row("null step, 32 rows of 1 GiB", 5.0, build_null_sparse, 200, counts={"Neg": 1}),
    Row("null step, 100 MB dense", 1.3, build_null_dense, 4, counts={"Identity": 1}),
    Row("20,000 live scalar ops", 6.0, build_many_ops, 40, counts={"AddV2": 10000, "Mul": 10000},
        would_fuse=True),
    Row("while_loop iteration", 6.0, build_while, 15, per=10000,
        counts={"Less": 1, "AddV2": 1, "Switch": 1, "NextIteration": 1}),
    Row("16-variable loop, iteration", 6.0, build_wide_while, 15, per=1000,
        counts={"Mul": 15, "Sub": 15, "Switch": 16, "NextIteration": 16}, would_fuse=True),
    Row("loop to the ps and back, iteration", 15.0, build_far_while, 3, per=200,
        counts={"Mul": 1, "AddV2": 2, "Switch": 2}),
    Row("MLP training step", 1.0, build_mlp, 60),
    Row("LSTM training step", 1.0, build_lstm, 8),
]


class RowChanged(Exception):
    """A rewriter has taken ops from a row that counts them."""


def call_of(session, fetches, feeds):
    """A function that runs one step."""
    values, step = list(feeds.values()), session.make_callable(fetches, list(feeds))
    return lambda: step(*values)


def config(tf1):
    """Millrace's optional passes are off."""
    options = tf1.ConfigProto()
    options.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
    return options


def check_counts(tf1, row, name, session, fetches, feeds):
    """Fails unless the graph that the cluster runs has the nodes that the row counts."""
    metadata = tf1.RunMetadata()
    session.run(fetches, feeds, options=tf1.RunOptions(output_partition_graphs=True),
                run_metadata=metadata)
    ops = collections.Counter(node.op for graph in metadata.partition_graphs for node in graph.node)
    for op, n in row.counts.items():
        if ops[op] < n:
            raise RowChanged(f"{row.name}: {name} runs {ops[op]} nodes {op} of {n}")


def measure(call, n):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def show_time(seconds):
    return f"{seconds * 1e6:10.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:10.2f} ms"


def report_and_exit(json_path, results, clusters):
    """The end of a benchmark of clusters: writes the report, if one is wanted, and stops them."""
    if json_path:
        with open(json_path, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    for cluster in clusters:
        cluster.stop()
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's sessions block for ever when their server is gone


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--rows", help="parts of row names, joined by commas")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    clusters, floor = [TensorFlowCluster(), MillraceCluster()], ClientFloor()
    status = 1
    try:
        status = compare(options, clusters, floor)
    except Exception:  # noqa: BLE001
        traceback.print_exc()
    finally:
        for cluster in clusters + [floor]:
            cluster.stop()
        sys.stdout.flush()
        os._exit(status)  # TensorFlow's sessions block for ever when their server is gone


def compare(options, clusters, floor):
    import numpy as np
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    tf1.disable_control_flow_v2()
    report = {"start_s": {c.name: c.start_s for c in clusters},
              "idle_rss_mb": {c.name: c.rss for c in clusters}, "rows": []}
    print("start to ready:  " + "   ".join(f"{c.name} "
                                           + ", ".join(
                                               f"{k} {v * 1e3:.0f} ms" for k,
                                               v in c.start_s.items()) for c in clusters))
    print("idle memory:     " + "   ".join(f"{c.name} "
                                           + ", ".join(f"{k} {v:.1f} MB" for k, v in c.rss.items())
                                           for c in clusters))
    print(f"\n{'row':34} {'TensorFlow':>13} {'Millrace':>13} {'ratio':>7} {'aim':>5} "
          f"{'client alone':>13}")
    for row in ROWS:
        if options.rows and not any(part in row.name for part in options.rows.split(",")):
            continue
        graph = tf1.Graph()
        with graph.as_default():
            initializers, fetches, feeds = row.build(tf, tf1, np)
            targets = [c.target for c in clusters] + [floor.target] * row.has_floor
            sessions = [tf1.Session(target, config=config(tf1) if row.would_fuse and
                                    target == clusters[1].target else None) for target in targets]
            calls = []
            for session in sessions:
                if initializers:
                    session.run(initializers)
                calls.append(call_of(session, fetches, feeds))
            for cluster, session in zip(clusters, sessions):
                if row.counts:
                    check_counts(tf1, row, cluster.name, session, fetches, feeds)
            for call in calls:
                measure(call, max(3, row.calls // 5))
            times = [[] for _ in targets]
            for _ in range(options.rounds):
                for i, call in enumerate(calls):
                    times[i] += measure(call, row.calls)
            for session in sessions:
                session.close()
        for c in clusters:
            tf1.Session.reset(c.target)
        theirs, ours, *alone = (statistics.median(t) / row.per for t in times)
        report["rows"].append({"row": row.name, "tensorflow_s": theirs, "millrace_s": ours,
                               "ratio": theirs / ours, "aim": row.aim,
                               "client_alone_s": alone[0] if alone else None,
                               "tensorflow_p10_p90_s": [
                                   float(np.percentile(times[0], p)) / row.per for p in (10, 90)],
                               "millrace_p10_p90_s": [
                                   float(np.percentile(times[1], p)) / row.per for p in (10, 90)]})
        print(f"{row.name:34} {show_time(theirs):>13} {show_time(ours):>13} {theirs / ours:7.2f} "
              f"{row.aim:5.1f}" + "".join(f" {show_time(t):>13}" for t in alone), flush=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(report, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
