#!/usr/bin/env python3
"""What TensorFlow's own cluster and Millrace do when a parameter server dies or falls silent: when
the client is told, when steps flow again.

    .venv/bin/python bench/faults.py [--limit SECONDS]

Each row has clusters of its own (one ps, one worker; Millrace's master besides) and a client that
is a process of its own (tests/e2e/faults_client.py). What has not happened within the limit (20 s)
is printed as such; nobody waits longer.
"""
import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests", "differential")]
import daemons  # noqa: E402
from cluster import Cluster  # noqa: E402
from compare import TENSORFLOW_SERVER, free_port, wait_until_accepts  # noqa: E402


class TensorFlow:
    name = "TensorFlow"

    def __init__(self):
        self.ports = {job: free_port() for job in ("ps", "worker")}
        self.processes = {job: self.start(job) for job in self.ports}
        self.target = f"grpc://127.0.0.1:{self.ports['worker']}"

    def start(self, job):
        spec = {name: [f"127.0.0.1:{port}"] for name, port in self.ports.items()}
        process = daemons.start([sys.executable, "-c", TENSORFLOW_SERVER, json.dumps(spec), job],
                                stderr=subprocess.DEVNULL)
        wait_until_accepts(self.ports[job])
        return process

    def ps(self):
        return self.processes["ps"]

    def restart_ps(self):
        self.processes["ps"] = self.start("ps")

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


class Millrace:
    name = "Millrace"

    def __init__(self):
        self.cluster = Cluster(n_workers=1)
        self.cluster.start()
        self.target = self.cluster.target

    def ps(self):
        return self.cluster.daemons[0].process

    def restart_ps(self):
        daemon = self.cluster.daemons[0]
        command = [*daemon.process.args]
        command[command.index("--listen") + 1] = f"127.0.0.1:{daemon.port}"
        daemon.process = daemons.start(command, stdin=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        wait_until_accepts(daemon.port)

    def stop(self):
        self.cluster.stop()


class Client:
    def __init__(self, target, limit_s):
        self.limit_s = limit_s
        self.process = daemons.start([sys.executable,
                                      os.path.join(ROOT, "tests/e2e/faults_client.py"),
                                      "interactive", target, "0"],
                                     # fmt: skip
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL)
        self.rest = b""
        self.answer(60)

    def tell(self, *words):
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, limit_s=None):
        """None: not within the limit."""
        until = time.monotonic() + (limit_s or self.limit_s)
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[
                0]:
                return None
            self.rest += os.read(self.process.stdout.fileno(), 65536)
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def until_good(self, since, *words):
        """How long after `since` the first good answer began to be there; None: not within the
        limit."""
        while time.monotonic() - since < self.limit_s:
            got = self.ask(*words)
            if got is None:
                return None
            if "ok" in got:
                return got["at"] - since
        return None


def told(client, since):
    got = client.answer()
    return None if got is None else got["at"] - since


def killed(cluster, client):
    client.tell("block")
    time.sleep(1)  # for the step to be there; TensorFlow has no page that says so
    since = time.monotonic()
    cluster.ps().kill()
    cluster.ps().wait()
    yield "ps killed in a step: the client is told", told(client, since)
    since = time.monotonic()
    cluster.restart_ps()
    yield "  started again: steps flow", client.until_good(since, "init")


def silent(cluster, client):
    client.tell("block")
    time.sleep(1)
    since = time.monotonic()
    cluster.ps().send_signal(signal.SIGSTOP)
    seconds = told(client, since)
    yield "ps stopped in a step: the client is told", seconds
    since = time.monotonic()
    cluster.ps().send_signal(signal.SIGCONT)
    if seconds is not None:  # else the client still waits for the queue
        yield "  goes on: steps flow", client.until_good(since, "init")


def closed(cluster, client):
    cluster.ps().send_signal(signal.SIGSTOP)
    since = time.monotonic()
    client.tell("close")
    yield "a session is closed while the ps is stopped", told(client, since)
    cluster.ps().send_signal(signal.SIGCONT)


def missing(cluster, client):
    cluster.ps().kill()
    cluster.ps().wait()
    since = time.monotonic()
    client.tell("new")
    yield "a session is begun while the ps is missing: told", told(client, since)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=20)
    options = parser.parse_args()
    figures = {}
    for row in (killed, silent, closed, missing):
        for kind in (TensorFlow, Millrace):
            cluster = kind()
            client = Client(cluster.target, options.limit)
            try:
                client.ask("init")
                client.ask("add", "1")
                for what, seconds in row(cluster, client):
                    figures.setdefault(what, {})[kind.name] = seconds
            finally:
                client.process.kill()
                client.process.wait()
                cluster.stop()

    def text(figures_of, name):
        if name not in figures_of:
            return "-"
        seconds = figures_of[name]
        return f"not in {options.limit:.0f} s" if seconds is None else f"{seconds:.3f} s"

    print(f"{'':52}{'TensorFlow':>14}{'Millrace':>14}")
    for what, figures_of in figures.items():
        print(f"{what:52}{text(figures_of, 'TensorFlow'):>14}{text(figures_of, 'Millrace'):>14}")


if __name__ == "__main__":
    main()
