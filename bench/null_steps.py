#!/usr/bin/env python3
"""How the cost of a step grows with the cluster: null steps with 1 to 8 workers and 1 to 4
parameter servers, TensorFlow and Millrace.

    .venv/bin/python bench/null_steps.py [--quick] [--write] [--json FILE] [--from FILE]

A null step is a worker that pulls parameters and does nothing with them (OSDI, 6.2). What is pulled
lies in equal parts on the parameter servers:

    scalar    a number from each
    dense     100 MiB in all
    sparse    32 rows in all, gathered from a table of 1 GiB

Every worker has a client process of its own, all with the same program for both systems
(bench/null_client.c), so a step's cost is the cluster's. One cluster of each kind is up throughout
(8 workers, 4 parameter servers, all on loopback); its unused tasks idle. TensorFlow's clients dial
their own worker, which is their master, as its programs do; Millrace's dial the one master. All
systems are measured in turns. A figure is the best of the rounds for steps a second in all, and the
median over rounds and clients for the time of a step.

--write puts table and plot into docs/scaling.md and docs/scaling.svg; --from takes the figures of
an earlier --json; --quick is a round of short measurements with 1, 2 and 8 workers.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import daemons
import null_plot
from compare import BIN, ROOT, TENSORFLOW_SERVER, free_port, wait_until_accepts

CLIENT = os.path.join(os.path.dirname(BIN.rstrip("/")), "bench", "null_client")
# and how many seconds of steps one measurement has
KINDS = {"scalar": 1.0, "dense": 2.0, "sparse": 1.0}
WORKERS, SERVERS = (1, 2, 4, 8), (1, 2, 4)
ROWS, ROW_FLOATS, TAKEN = 1 << 20, 256, 32


class TensorFlow:
    name = "TensorFlow"

    def __init__(self):
        spec = {job: [f"127.0.0.1:{free_port()}" for _ in range(n)] for job,
                n in (("ps", max(SERVERS)), ("worker", max(WORKERS)))}
        self.processes = []
        for job, addresses in spec.items():
            for i, address in enumerate(addresses):
                command = [sys.executable, "-c",
                           TENSORFLOW_SERVER.replace("task_index=0", "task_index=int(sys.argv[3])"),
                           json.dumps(spec), job, str(i)]
                self.processes.append(daemons.start(command, stderr=subprocess.DEVNULL))
        for addresses in spec.values():
            for address in addresses:
                wait_until_accepts(int(address.split(":")[1]), 180)
        self.targets = [f"grpc://{address}" for address in spec["worker"]]

    def stop(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


class Millrace:
    def __init__(self, name, *flags):
        self.name, self.flags, self.processes, self.directory = (
            name, flags, [], tempfile.TemporaryDirectory())
        tasks = [(job, i, self.start(f"{job}{i}", "tf-worker", "--job", job, "--task", i, *flags))
                 for job, n in (("ps", max(SERVERS)), ("worker", max(WORKERS)))
                 for i in range(n)]
        spec = ",".join(f"{job}=" + ";".join(f"127.0.0.1:{port()}" for of, _, port in tasks if of
                                             == job) for job in ("ps", "worker"))
        self.targets = ([
            f"grpc://127.0.0.1:{self.start('master', 'tf-master', '--cluster', spec)()}"] * max(
                WORKERS))

    def start(self, name, program, *arguments):
        """A function that waits for its port."""
        path = os.path.join(self.directory.name, name)
        command = [os.path.join(BIN, program), *map(str, arguments), "--listen", "127.0.0.1:0",
                   "--port-file", path, "--admin", "off", "--log-level", "warning"]
        process = daemons.start(command)
        self.processes.append(process)

        def port():
            while not os.path.exists(path):
                if process.poll() is not None:
                    raise SystemExit(f"{name} ended with {process.returncode}")
                time.sleep(0.001)
            with open(path) as f:
                return int(f.readline())

        return port

    def stop(self):
        for process in reversed(self.processes):  # the master first: it would miss the others
            process.terminate()
            process.wait()
        self.directory.cleanup()


def build(tf1, kind, n_servers, worker):
    """The graph of one worker's client; its targets are "init" and "step"."""
    graph, pulled, initializers = tf1.Graph(), [], []
    with graph.as_default():
        for i in range(n_servers):
            with tf1.device(f"/job:ps/task:{i}"):
                name = f"{kind}_{n_servers}_{i}"
                if kind == "sparse":
                    rows = ROWS // n_servers
                    v = tf1.get_variable(name, [rows, ROW_FLOATS],
                                         initializer=tf1.zeros_initializer(), use_resource=False)
                    n = TAKEN // n_servers
                    pulled.append(tf1.gather(v, [(k * 7919 + i) % rows for k in range(n)]))
                else:
                    shape = [] if kind == "scalar" else [(100 << 20) // 4 // n_servers]
                    v = tf1.get_variable(name, shape, initializer=tf1.ones_initializer(),
                                         use_resource=False)
                    pulled.append(v.read_value())
                initializers.append(v.initializer)
        with tf1.device(f"/job:worker/task:{worker}"), tf1.control_dependencies(
            [tf1.identity(p) for p in pulled]):
            tf1.no_op(name="step")
        tf1.group(*initializers, name="init")
    return graph.as_graph_def()


class Clients:
    """One of each worker, of one system, for one kind and number of parameter servers; the
    variables are there."""

    def __init__(self, tf1, system, kind, n_servers, directory):
        config = tf1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        options = os.path.join(directory, "config")
        with open(options, "wb") as f:
            f.write(config.SerializeToString())
        self.processes = []
        for worker, target in enumerate(system.targets):
            path = os.path.join(directory, f"{kind}.{n_servers}.{worker}")
            with open(path, "wb") as f:
                f.write(build(tf1, kind, n_servers, worker).SerializeToString())
            command = [CLIENT, "--target", target, "--graph", path, "--step", "step", "--options",
                       options]
            self.processes.append(daemons.start(command, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True))
        self.ask(self.processes[:1], "once init")
        for _ in range(3):
            self.ask(self.processes, "once step")

    @staticmethod
    def ask(processes, line):
        for process in processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline().split() for process in processes]
        if not all(answers):
            raise SystemExit(f"a client has ended at '{line}'")
        return answers

    def measure(self, n_workers, seconds):
        """(steps a second in all, the clients' median times of a step in µs)"""
        answers = self.ask(self.processes[:n_workers], f"for {seconds}")
        return sum(int(n) / float(took) for n, took, _ in answers), [
            float(median) for _, _, median in answers]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def run(options, systems):
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    rows = []
    workers = (1, 2, 8) if options.quick else WORKERS
    with tempfile.TemporaryDirectory() as directory:
        for kind, seconds in KINDS.items():
            for n_servers in SERVERS:
                clients = {s.name: Clients(tf1, s, kind, n_servers, directory) for s in systems}
                for n_workers in workers:
                    got = {name: [] for name in clients}
                    for _ in range(1 if options.quick else options.rounds):
                        for name, of in clients.items():
                            got[name].append(of.measure(n_workers,
                                    seconds / (3 if options.quick else 1)))
                    figures = {name: {"steps_per_s": max(rate for rate, _ in g),
                                      "step_us": statistics.median(
                                          t for _, times in g for t in times)}
                               for name, g in got.items()}
                    rows.append({"kind": kind, "ps": n_servers, "workers": n_workers,
                                 "systems": figures})
                    print(f"{kind:7} {n_servers} ps {n_workers} workers  " + "   ".join(
                        f"{name} {f['steps_per_s']:9.1f} steps/s {f['step_us'] / 1e3:9.3f} ms"
                        for name, f in figures.items()), flush=True)
                for of in clients.values():
                    of.stop()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help="into docs/")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", help="where the figures go")
    parser.add_argument("--from", dest="earlier", help="figures of an earlier run")
    options = parser.parse_args()
    if options.earlier:
        with open(options.earlier) as f:
            rows = json.load(f)
    else:
        began, systems = time.monotonic(), []
        try:
            systems += [TensorFlow(), Millrace("Millrace, TCP", "--unix=off"),
                        Millrace("Millrace, one host")]
            rows = run(options, systems)
        finally:
            for system in systems:
                system.stop()
        print(f"{time.monotonic() - began:.0f} s")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)
    if options.write:
        null_plot.write(rows, os.path.join(ROOT, "docs"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
