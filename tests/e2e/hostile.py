"""What tests share that send strangers' bytes, or end and stop processes: a cluster that must be as
it was."""
import json
import os
import struct
import sys
import time

import harness
import raw_clients as raw
from harness import ROOT, SANITIZED, TestCase
from raw_clients import FLOAT, INT32, Client, Refused, float_tensor, small_graph, type_attr

sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))
from cluster import Cluster, Daemon  # noqa: E402, F401

PS, WORKER0, WORKER1 = TASKS = ("/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1")
F, I = type_attr(FLOAT), type_attr(INT32)
SEED = 20
MIB = 1 << 20
CACHE_MIB = 1024 + 64  # where large tensors were: the buffers that a daemon keeps for the next ones
CHANNELS = 16  # descriptors: those of large tensors between tasks are opened at need, and stay


class HostileCase(TestCase):
    """A cluster of its own for each test; check_well() says that it is as it was."""

    master_flags, worker_flags = ("--session-ttl", "1s", "--drain-timeout", "3s"), (
        "--drain-timeout", "3s")

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(bin_dir=harness.BIN, master_flags=self.master_flags,
                               worker_flags=self.worker_flags)
        self.cluster.start()
        self.addCleanup(self.cluster.stop)
        self.port = self.cluster.master.port
        self.run_everywhere()
        self.before = {d.name: (raw.n_descriptors(d.process.pid), raw.resident_bytes(d.process.pid))
                       for d in self.cluster.daemons}

    def tearDown(self):
        self.assertEqual(self.cluster.stop(), [])

    def until(self, condition, what):
        deadline = time.monotonic() + harness.DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)

    def run_everywhere(self):
        """Another session, with a step on each task."""
        with Client(self.port) as client:
            for task in TASKS:
                handle = client.create(small_graph(task))
                got = client.run(handle, feeds=[("x:0", float_tensor(1, 2))], fetches=["y:0"])
                self.assertEqual(raw.first(got["y:0"], 4), struct.pack("<2f", 2, 3))
                client.close(handle)

    def check_well(self, room_mib=32):
        """Everybody lives and works; connections, sessions, steps and memory are gone again."""
        self.cluster.check(20)
        self.run_everywhere()
        master = self.cluster.master
        self.until(lambda: master.metric("millrace_grpc_connections") == 0, "connections are left")
        self.until(lambda: master.metric("millrace_sessions") == 0, "sessions are left")
        for daemon in self.cluster.daemons:
            n_before, bytes_before = self.before[daemon.name]
            for path in ("/livez", "/readyz", "/statusz", "/metrics"):
                self.assertEqual(raw.page(daemon.admin_port, path)[0], 200, f"{daemon.name} {path}")
            json.loads(raw.page(daemon.admin_port, "/statusz")[1])
            pid = daemon.process.pid
            self.until(lambda: raw.n_descriptors(pid) <= n_before + CHANNELS,
                       f"{daemon.name}: descriptors are left")
            if not SANITIZED:  # its quarantine keeps memory
                self.assertLess(raw.resident_bytes(pid), bytes_before + room_mib * MIB, daemon.name)

    def code(self, call, *args, **options):
        """The code that it is refused with."""
        with self.assertRaises(Refused) as caught:
            call(*args, **options)
        self.assertTrue(caught.exception.message)
        return caught.exception.code


def end_somehow(connection, turn):
    """By FIN, by RST, or half and then what the other side says to its end."""
    if turn % 3 == 1:
        connection.reset()
    elif turn % 3 == 2:
        connection.half_close()
        connection.read_to_end()


def mutated(rng, message_):
    """A few bytes changed, lost or more."""
    out = bytearray(message_)
    for _ in range(rng.randint(1, 3)):
        at, kind = rng.randrange(len(out)), rng.random()
        if kind < 0.6:
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind < 0.8 and len(out) > 1:
            del out[at]
        else:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(out)
