#!/usr/bin/env python3
"""What it costs to move a tensor from a ps to a worker: a null step that pulls one dense variable,
by size and by transport.

    .venv/bin/python bench/transport.py [--sizes MB,...] [--rounds N] [--ways NAME,...] [--json
    FILE]

Columns: Millrace over tcp, over Unix sockets and over shared memory (the flags of tf-worker
choose), on request with checksums or over four sockets, too (--ways "tcp,tcp crc,tcp x4"); a plain
C program that moves the same bytes over the same kind of socket between two processes
(bench/socket_floor.c); TensorFlow's own gRPC cluster. All are up at the same time and measured in
turns, so that the machine's noise falls on all. Figures are medians in milliseconds of one step, as
the client sees it; the plain C program has no client, master or step.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import compare
from compare import PS, WORKER, MillraceCluster, TensorFlowCluster

FLOOR = os.path.join(os.path.dirname(compare.BIN.rstrip("/")), "bench", "socket_floor")
WAYS = {"tcp": ["--unix=off"], "unix": ["--shm=off"], "shm": [],
        "tcp crc": ["--unix=off", "--wire-checksum"],
        "unix crc": ["--shm=off", "--wire-checksum"], "tcp x4": ["--unix=off", "--wire-streams=4"],
        "unix x4": ["--shm=off", "--wire-streams=4"]}


class Millrace(MillraceCluster):
    def __init__(self, flags):
        self.flags = flags
        super().__init__()

    def start(self, name, command):
        return super().start(name, command + (self.flags if name != "master" else []))


class Pull:
    """A session with a variable on the ps, and the step that has the worker pull it."""

    def __init__(self, name, cluster, size_bytes):
        import tensorflow as tf
        tf1 = tf.compat.v1
        self.name, self.cluster = name, cluster
        graph = tf.Graph()
        with graph.as_default():
            with tf1.device(PS):
                v = tf1.get_variable("v", shape=[size_bytes // 4],
                                     initializer=tf1.ones_initializer())
            with tf1.device(WORKER):
                pulled = tf.identity(v.read_value()).op  # a target, so no rewriter drops it
        self.session = tf1.Session(cluster.target, graph=graph)
        self.session.run(v.initializer)
        self.step = self.session.make_callable(pulled)

    def measure(self, n):
        """The first step of a turn is not counted, as the plain C program's: receive buffers that
        nobody wanted while others had their turn have gone back to the system, and fresh pages cost
        more than moving the bytes."""
        times = []
        self.step()
        for _ in range(n):
            start = time.perf_counter()
            self.step()
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def close(self):  # while its servers live: it would wait for them
        self.session.close()


class PlainC:
    def __init__(self, kind, size_bytes):
        self.name, self.command = f"C {kind}", [FLOOR, kind, str(size_bytes)]

    def measure(self, n):
        return [float(line) for line in subprocess.run(self.command + [str(n)], capture_output=True,
                check=True, text=True).stdout.split()]

    def close(self):
        pass


def run_size(mb, options):
    clusters = {way: Millrace(WAYS[way]) for way in WAYS if way in options.ways}
    if "tensorflow" in options.ways:
        clusters["tensorflow"] = TensorFlowCluster()
    columns = [Pull(name, cluster, mb << 20) for name, cluster in clusters.items()]
    columns += [PlainC(kind, mb << 20) for kind in ("tcp", "unix") if kind in options.ways]
    steps = max(3, min(50, 400 // mb))
    times = {column.name: [] for column in columns}
    for column in columns:
        column.measure(3)
    for _ in range(options.rounds):
        for column in columns:
            times[column.name] += column.measure(steps)
    for column in columns:
        column.close()
    for cluster in clusters.values():
        cluster.stop()
    return {name: statistics.median(t) for name, t in times.items()}


def ratio(row, over, under):
    return f"{row[over] / row[under]:10.2f}" if over in row and under in row else " " * 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="1,100,1024", help="in MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default="tcp,unix,shm,tensorflow")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    import tensorflow as tf
    tf.compat.v1.disable_eager_execution()
    names = [n for n in ("tcp", "tcp crc", "tcp x4", "C tcp", "unix", "unix crc", "unix x4",
                         "C unix", "shm", "tensorflow") if n.replace("C ", "") in options.ways]
    print(f"{'MB':>6}" + "".join(f"{n:>12}" for n in names)
          + "   TF/tcp    TF/unix     TF/shm  C tcp/tcp  C unix/unix", flush=True)
    rows = {}
    for mb in map(int, options.sizes.split(",")):
        row = rows[mb] = run_size(mb, options)
        print(f"{mb:6}" + "".join(f"{row[n]:12.3f}" for n in names)
              + ratio(row, "tensorflow", "tcp") + ratio(row, "tensorflow", "unix") +
              ratio(row, "tensorflow", "shm") + ratio(row, "C tcp", "tcp")
              + ratio(row, "C unix", "unix"), flush=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
