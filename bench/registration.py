#!/usr/bin/env python3
"""How long does it take until a large graph has run for the first time?

    bench/registration.py [--rounds N] [--sizes 10000,50000,200000] [--only TEXT] [--bin DIR]
                          [--no-tensorflow] [--json FILE]

Sends GraphDefs of several forms, as bytes over gRPC, to Millrace and to TensorFlow's own servers.
For each: "create" is CreateSession, "first" the first RunStep, which compiles the graph, cuts it
into partitions and registers them, and "again" the second RunStep, which only runs. Registration is
create + first - again. All are medians of alternating rounds. "cpu" is the processor time of
Millrace's daemons for one round, which other programs on the machine do not change. "growth" is the
cpu for a node of this size ÷ that of the smallest size: where every step is linear it is near 1."""

import argparse
import json
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "tests", "differential")]

from cluster import Cluster  # noqa: E402
from raw_clients import (FLOAT, Client, const, create_request, data,  # noqa: E402
                         float_tensor, node, number, type_attr)
from raw_clients import first as first_field  # noqa: E402
from tensorflow_server import TensorFlowServer  # noqa: E402

WORKER, PS = "/job:worker/task:0", "/job:ps/task:0"
T = type_attr(FLOAT)
TIMEOUT_S = 600


def _add(name, inputs, device=WORKER):
    return node(name, "AddV2", inputs, device, T=T)


def _feed(name="x"):
    return node(name, "Placeholder", device=WORKER, dtype=T)


def _graph(nodes):
    return b"".join(data(1, one) for one in nodes)


def chain(n):
    """Each node adds to the one before."""
    nodes = [_feed("a0")] + [_add(f"a{i}", (f"a{i - 1}", f"a{i - 1}")) for i in range(1, n)]
    return _graph(nodes), f"a{n - 1}:0", ("a0:0",)


def fan(n):
    """One value has n consumers, and one node waits for them all."""
    nodes = [_feed()] + [_add(f"a{i}", ("x", "x")) for i in range(n - 2)]
    nodes.append(node("end", "Identity", ["x"] + [f"^a{i}" for i in range(n - 2)], WORKER, T=T))
    return _graph(nodes), "end:0", ("x:0",)


def constants(n):
    """A third are Consts that one node waits for."""
    nodes, names = [_feed()], []
    for i in range(n // 3):
        nodes += [const(f"c{i}", float_tensor(i, 1), FLOAT, WORKER),
                  const(f"d{i}", float_tensor(i, 2), FLOAT, WORKER),
                  _add(f"s{i}", (f"c{i}", f"d{i}"))]
        names.append(f"^s{i}")
    nodes.append(node("end", "Identity", ["x", *names], WORKER, T=T))
    return _graph(nodes), "end:0", ("x:0",)


def variables(n):
    """Variables on the ps with their initialisers, and one node that waits for all of these."""
    shape = data(7, b"")  # a scalar
    nodes, names = [_feed()], []
    for i in range(n // 4):
        near = data(1, data(2, f"loc:@v{i}"))
        nodes += [node(f"v{i}", "VariableV2", (), PS, dtype=T, shape=shape),
                  const(f"v{i}/initial", float_tensor(1), FLOAT, PS),
                  node(f"v{i}/Assign", "Assign", (f"v{i}", f"v{i}/initial"), "", T=T,
                       validate_shape=number(5, 0), _class=near),
                  node(f"v{i}/read", "Identity", (f"v{i}",), "", T=T, _class=near)]
        names.append(f"^v{i}/Assign")
    nodes.append(node("end", "Identity", ["x", *names], WORKER, T=T))
    return _graph(nodes), "end:0", ("x:0",)


def two_tasks(n):
    """Every 50th edge of a hundred chains crosses to the other task."""
    nodes, ends = [_feed()], []
    for c in range(100):
        last = "x"
        for i in range(n // 100):
            device = PS if i // 50 % 2 else WORKER
            nodes.append(_add(f"c{c}/a{i}", (last, last), device))
            last = f"c{c}/a{i}"
        ends.append("^" + last)
    nodes.append(node("end", "Identity", ["x", *ends], WORKER, T=T))
    return _graph(nodes), "end:0", ("x:0",)


def small_step(n):
    """A step of three nodes, in a session's graph of n."""
    graph, _, _ = chain(n)
    return (graph + _graph([_feed("y"), _add("z", ("y", "y"))]), "z:0", ("y:0",))


FORMS = {"chain": chain, "fan": fan, "constants": constants, "variables": variables,
         "two tasks": two_tasks, "small step": small_step}


def create(client, graph):
    reply = client.call("CreateSession", create_request(graph), TIMEOUT_S)
    return first_field(reply, 1)


def cpu_s(daemons):
    total = 0
    for daemon in daemons:
        with open(f"/proc/{daemon.process.pid}/stat") as stat:
            times = stat.read().rsplit(")", 1)[1].split()
        total += int(times[11]) + int(times[12])  # utime, stime
    return total / os.sysconf("SC_CLK_TCK")


def measure(port, request):
    graph, fetch, feeds = request
    with Client(port) as client:
        begin = time.perf_counter()
        handle = create(client, graph)
        created = time.perf_counter()
        took = []
        for _ in range(2):
            start = time.perf_counter()
            client.run(handle, TIMEOUT_S, feeds=[(feeds[0], float_tensor(1))], fetches=[fetch])
            took.append(time.perf_counter() - start)
        client.close(handle)
    return created - begin, took[0], took[1]


def main():
    parser = argparse.ArgumentParser(description="large graphs, from GraphDef to the first result")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="10000,50000,200000")
    parser.add_argument("--only", default="", help="forms whose name holds this text")
    parser.add_argument("--bin", help="where tf-master and tf-worker are; default $MILLRACE_BIN or "
                                      "build/bin")
    parser.add_argument("--no-tensorflow", action="store_true", help="only Millrace")
    parser.add_argument("--json", help="a report")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    report = []
    print(f"{'form':12} {'nodes':>8} {'create':>8} {'first':>8} {'again':>8} {'in all':>8} "
          f"{'cpu':>8} {'growth':>7} {'TensorFlow':>11} {'ratio':>6}")
    with Cluster(bin_dir=arguments.bin) as ours, TensorFlowServer() as theirs:
        ports = {"millrace": ours.master.port}
        if not arguments.no_tensorflow:
            ports["tensorflow"] = theirs.port
        for name, form in FORMS.items():
            if arguments.only not in name:
                continue
            smallest = None
            for n in sizes:
                request = form(n)
                took = {server: [] for server in ports}
                cpu = []
                for _ in range(arguments.rounds):
                    for server, port in ports.items():
                        before = cpu_s(ours.daemons)
                        took[server].append(measure(port, request))
                        if server == "millrace":
                            cpu.append(cpu_s(ours.daemons) - before)
                medians = {server: [statistics.median(column) for column in zip(*rows)]
                           for server, rows in took.items()}
                create, first, again = medians["millrace"]
                total = create + first - again
                used = statistics.median(cpu)
                smallest = smallest or max(used, 0.01) / n
                row = {"form": name, "nodes": n, "create_s": create, "first_s": first,
                       "again_s": again, "in_all_s": total, "cpu_s": used,
                       "growth": used / n / smallest}
                text = ""
                if "tensorflow" in medians:
                    other = medians["tensorflow"][0] + medians["tensorflow"][1] - medians[
                        "tensorflow"][2]
                    row.update(tensorflow_s=other, ratio=other / total)
                    text = f" {other:9.2f} s {other / total:6.1f}"
                print(f"{name:12} {n:8} {create:6.2f} s {first:6.2f} s {again:6.2f} s "
                      f"{total:6.2f} s {used:6.2f} s {row['growth']:7.2f}{text}", flush=True)
                report.append(row)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
