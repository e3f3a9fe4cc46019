#!/usr/bin/env python3
"""What TensorFlow's own cluster and Millrace do when the network between a worker and a parameter
server fails: a partition, one way only, packets that are lost.

    .venv/bin/python bench/faults_network.py [--limit SECONDS]

The ps is in a network namespace of its own, behind a wire that loses what it is told to
(tests/e2e/lossy_wire.py; it needs root). Otherwise as faults.py: clusters of its own for each row,
a client in a process of its own, and what has not happened within the limit is printed as such.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import daemons
from compare import BIN, ROOT, TENSORFLOW_SERVER, free_port, wait_until_accepts
from faults import Client

sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import lossy_wire  # noqa: E402

N_STEPS = 400  # of a row with loss


def wait_for_ps(wire):
    """Where it is, nothing but the wire leads to it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            socket.create_connection((wire.there, 2400), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise SystemExit("the ps does not come")


class TensorFlow:
    name = "TensorFlow"

    def __init__(self, wire):
        worker = f"{wire.here}:{free_port()}"
        spec = json.dumps({"ps": [f"{wire.there}:2400"], "worker": [worker]})
        command = [sys.executable, "-c", TENSORFLOW_SERVER, spec]
        self.processes = [daemons.start(before + [*command, job], stderr=subprocess.DEVNULL)
                          for before, job in ((wire.inside([]), "ps"), ([], "worker"))]  # fmt: skip
        wait_for_ps(wire)
        wait_until_accepts(int(worker.split(":")[1]))
        self.target = f"grpc://{worker}"

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Millrace:
    name = "Millrace"

    def __init__(self, wire):
        self.directory = tempfile.TemporaryDirectory()
        worker, master = free_port(), free_port()
        commands = (wire.inside([os.path.join(BIN, "tf-worker"), "--job", "ps", "--listen",
                                 f"{wire.there}:2400", "--insecure"]),
                    [os.path.join(BIN, "tf-worker"), "--listen", f"{wire.here}:{worker}",
                     "--insecure", "--unix", "off"],
                    [os.path.join(BIN, "tf-master"), "--listen", f"127.0.0.1:{master}", "--cluster",
                     f"ps={wire.there}:2400,worker={wire.here}:{worker}"])
        self.processes = [daemons.start(command + ["--admin", "off"], stderr=subprocess.DEVNULL)
                          for command in commands]
        wait_until_accepts(master)
        self.target = f"grpc://127.0.0.1:{master}"

    stop = TensorFlow.stop


def cut(what, loss_out, loss_in):
    def row(wire, client, limit_s):
        client.tell("block")
        time.sleep(1)  # for the step to be there; TensorFlow has no page that says so
        since = time.monotonic()
        wire.loss_out, wire.loss_in = loss_out, loss_in
        got = client.answer()
        yield f"{what}: the client is told", got and got["at"] - since
        since = time.monotonic()
        wire.loss_out = wire.loss_in = 0.0
        if got:  # else it still waits for the queue
            yield f"{what}, healed: steps flow", client.until_good(since, "init")

    return row


def lossy(wire, client, limit_s):
    for loss in (0.0, 0.01, 0.1):
        wire.loss_out = wire.loss_in = loss
        since, n = time.monotonic(), 0
        while n < N_STEPS and time.monotonic() - since < limit_s and client.ask("add", "1"):
            n += 1
        yield f"{loss:.0%} of packets lost: a scalar step", (
            time.monotonic() - since) / n if n else None


ROWS = (cut("the ps is cut off in a step", 1.0, 1.0), cut("nothing gets to the ps", 1.0, 0.0),
        cut("nothing comes from the ps", 0.0, 1.0), lossy)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=20)
    options = parser.parse_args()
    reason = lossy_wire.why_not()
    if reason:
        raise SystemExit(f"no wire here: {reason}")
    figures = {}
    for row in ROWS:
        for kind in (TensorFlow, Millrace):
            with lossy_wire.LossyWire() as wire:
                cluster = kind(wire)
                client = Client(cluster.target, options.limit)
                try:
                    client.ask("init")
                    client.ask("add", "1")
                    for what, seconds in row(wire, client, options.limit):
                        told = f"{seconds:.3f} s" if seconds is not None else \
                            f"not in {options.limit:.0f} s"
                        figures.setdefault(what, {})[kind.name] = told
                finally:
                    client.process.kill()
                    client.process.wait()
                    cluster.stop()
    print(f"{'':52}{'TensorFlow':>14}{'Millrace':>14}")
    for what, of in figures.items():
        print(f"{what:52}{of.get('TensorFlow', '-'):>14}{of.get('Millrace', '-'):>14}")


if __name__ == "__main__":
    main()
