"""Large values over several sockets between real tasks: right, in the clear, with checksums and
over TLS; a cut socket is an error that names the task, and steps flow again."""
import contextlib
import json
import struct
import time

import harness
import raw_clients as raw
from fault_case import Cluster
from harness import TestCase, sanitized_too
from raw_clients import Client, Refused, const, graph, node, type_attr
from test_tls import TlsCase
from test_wire_checksum import PS, WORKER, F, I, RelayedCluster, start_cluster

N_VALUES = 5 << 20  # 20 MiB


def round_trip(worker=WORKER):
    """Values 0, x, 2x, … made on the ps, checked on the worker: how many differ from those that it
    makes itself."""
    def numbers(prefix, device):
        def scalar(name, value):
            return const(prefix + name, raw.int_tensor(value), device=device)

        return [scalar("start", 0), scalar("limit", N_VALUES), scalar("delta", 1),
                # fmt: skip
                node(prefix + "range", "Range",
                     (prefix + "start", prefix + "limit", prefix + "delta"), device, Tidx=I)]

    return graph(*numbers("there_", PS), *numbers("here_", worker),
                 node("x", "Placeholder", (), PS, dtype=I),
                 node("times", "Mul", ("there_range", "x"), PS, T=I),
                 node("y", "Placeholder", (), worker, dtype=I),
                 node("own", "Mul", ("here_range", "y"), worker, T=I),
                 node("differs", "NotEqual", ("times", "own"), worker, T=I),
                 node("count", "Cast", ("differs",), worker, SrcT=type_attr(10), DstT=F),
                 const("axis", raw.int_tensor(0), device=worker),
                 node("sum", "Sum", ("count", "axis"), worker, T=F, Tidx=I))  # fmt: skip


def n_wrong(client, handle, x):
    feeds = [("x:0", raw.int_tensor(x)), ("y:0", raw.int_tensor(x))]
    proto = client.run(handle, 120, feeds=feeds, fetches=["sum:0"])["sum:0"]
    return struct.unpack("<f", raw.first(proto, 4) or raw.first(proto, 5))[0]


def streams_of(status, task):
    return next(p["streams"] for p in status["peers"] if task in p["task"])


def open_streams(case, client, handle, status, n_streams):
    """The first value opens them and goes over one socket; how many values have been cut once all
    are there."""
    deadline = time.monotonic() + harness.DEADLINE_S
    while True:
        case.assertEqual(n_wrong(client, handle, 1), 0)
        streams = streams_of(status(), "job:worker")
        if streams["to"] == n_streams - 1:
            return streams["values_sent"]
        case.assertLess(time.monotonic(), deadline, f"the streams do not open: {streams}")


class TestWireStreams(TestCase):
    def check(self, n_streams, *flags):
        cluster = start_cluster(self, Cluster(
            n_workers=1, bin_dir=harness.BIN,
            worker_flags=(f"--wire-streams={n_streams}", *flags)))
        with Client(cluster.master.port) as client:
            handle = client.create(round_trip())
            before = open_streams(self, client, handle,
                                  lambda: json.loads(cluster.tasks[0].page("/statusz")), n_streams)
            for x in range(1, 6):
                self.assertEqual(n_wrong(client, handle, x), 0)
        ps, worker = (json.loads(task.page("/statusz")) for task in cluster.tasks)
        sent = {"to": n_streams - 1, "from": 0, "values_sent": before + 5, "values_received": 0,
                "off": False}
        self.assertEqual(streams_of(ps, "job:worker"), sent)
        self.assertEqual(streams_of(worker, "job:ps")["values_received"], before + 5)
        cluster.check(20)

    @sanitized_too
    def test_over_tcp(self):
        self.check(4, "--unix=off")

    def test_over_unix_sockets_with_checksums(self):
        self.check(8, "--shm=off", "--wire-checksum")

    def test_a_cut_socket(self):
        cluster = start_cluster(self, RelayedCluster(
            n_workers=1, bin_dir=harness.BIN, worker_flags=("--unix=off", "--wire-streams=3")))
        with Client(cluster.master.port) as client:
            handle = client.create(round_trip())
            open_streams(self, client, handle,
                         lambda: json.loads(cluster.tasks[0].page("/statusz")), 3)
            self.assertEqual(n_wrong(client, handle, 1), 0)
            before = streams_of(json.loads(cluster.tasks[0].page("/statusz")), "job:worker")[
                "values_sent"]
            self.assertGreater(before, 0)
            cluster.relays[1].cut(-2)  # the last one is the bulk channel's
            deadline, errors = time.monotonic() + harness.DEADLINE_S, 0
            while True:
                with contextlib.suppress(Refused):
                    self.assertEqual(n_wrong(client, handle, 2), 0)
                    if streams_of(json.loads(cluster.tasks[0].page("/statusz")), "job:worker")[
                        "off"]:
                        break
                errors += 1
                self.assertLess(time.monotonic(), deadline, "steps do not flow again")
            self.assertEqual(n_wrong(client, handle, 3), 0)
            after = streams_of(json.loads(cluster.tasks[0].page("/statusz")), "job:worker")
            self.assertEqual(after["to"], 0)
        cluster.check(20)


class TestWireStreamsOverTls(TlsCase):
    jobs = {"ps": 1, "worker": 1}

    def worker(self, name, *flags, **options):
        return super().worker(name, "--wire-streams=4", *flags, **options)

    def test_values_cross(self):
        self.start()
        tunnel, target = self.tunnel(self.m.port)
        with Client(int(target.rsplit(":", 1)[1])) as client:
            handle = client.create(round_trip())
            before = open_streams(self, client, handle, self.tasks[0].status, 4)
            for x in range(1, 4):
                self.assertEqual(n_wrong(client, handle, x), 0)
        self.assertEqual(streams_of(self.tasks[0].status(), "job:worker")["values_sent"],
                         before + 3)
        self.assertEqual(streams_of(self.tasks[1].status(), "job:ps")["from"], 3)
        tunnel.terminate()
        self.wait_for_exit(tunnel)
        self.stop()
