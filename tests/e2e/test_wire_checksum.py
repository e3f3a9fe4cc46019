"""Bits that flip between tasks: with --wire-checksum each is found, named and counted, the step
fails, and the next one goes well. Without it they are believed."""
import contextlib
import json
import struct
import time

import harness
import raw_clients as raw
from fault_case import Cluster
from flipping_wire import FlippingRelay
from harness import TestCase
from raw_clients import FLOAT, Client, Refused, const, graph, node, type_attr

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
N_VALUES = 1 << 20
F, I = type_attr(FLOAT), type_attr(raw.INT32)
ERRORS = "millrace_wire_checksum_errors_total"


class RelayedCluster(Cluster):
    """Each task is reached through a relay of its own."""

    relays = ()

    def address_of(self, daemon):
        self.relays = [*self.relays, FlippingRelay(daemon.port)]
        return f"127.0.0.1:{self.relays[-1].port}"

    def stop(self):
        complaints = super().stop()
        for relay in self.relays:
            relay.__exit__()
        return complaints


def sum_of_ones():
    """A megabyte of ones from the ps, negated and summed by the worker."""
    return graph(const("dims", raw.tensor(raw.INT32, (1,), struct.pack("<i", N_VALUES)), device=PS),
                 const("axis", raw.tensor(raw.INT32, (1,), struct.pack("<i", 0)), device=WORKER),
                 node("x", "Placeholder", (), PS, dtype=F),
                 node("ones", "Fill", ("dims", "x"), PS, T=F, index_type=I),
                 node("minus", "Neg", ("ones",), WORKER, T=F),
                 node("sum", "Sum", ("minus", "axis"), WORKER, T=F, Tidx=I))  # fmt: skip


def start_cluster(case, cluster):
    """Starts the cluster for a test, and returns it once its master is ready."""
    cluster.start()
    case.addCleanup(cluster.stop)
    deadline = time.monotonic() + harness.DEADLINE_S
    while raw.page(cluster.master.admin_port, "/readyz")[0] != 200:
        case.assertLess(time.monotonic(), deadline)
    return cluster


class TestWireChecksum(TestCase):
    def start(self, worker_flags, master_flags=()):
        return start_cluster(self, RelayedCluster(n_workers=1, bin_dir=harness.BIN,
                                                  worker_flags=("--unix=off", *worker_flags),
                                                  master_flags=master_flags))

    def run_sum(self, client, handle):
        one = raw.tensor(FLOAT, (), struct.pack("<f", 1))
        proto = client.run(handle, 60, feeds=[("x:0", one)], fetches=["sum:0"])["sum:0"]
        return struct.unpack("<f", raw.first(proto, 4) or raw.first(proto, 5))[0]

    def n_errors(self, cluster):
        total = 0
        for daemon in cluster.daemons:
            with contextlib.suppress(KeyError):
                total += daemon.metric(ERRORS)
        return total

    def until_summed(self, client, handle):
        deadline = time.monotonic() + harness.DEADLINE_S
        while True:
            try:
                return self.run_sum(client, handle)
            except Refused as refused:
                self.assertIn(refused.code, (10, 14, 15), refused.message)
                self.assertLess(time.monotonic(), deadline)

    def flip_one(self, cluster, client, handle, min_bytes):
        """Until one is found: what was on its way in a connection that has just been lost is read
        by nobody, flipped or not. How many it took."""
        before, deadline, n_tries = self.n_errors(cluster), time.monotonic() + harness.DEADLINE_S, 0
        while self.n_errors(cluster) == before:
            self.assertLess(time.monotonic(), deadline, "no flip was found")
            n_tries += 1
            for relay in cluster.relays:
                relay.flip_in(min_bytes)
            while not any(relay.flipped.is_set() for relay in cluster.relays):
                # it may be found before the value was used, or in what a step leaves behind
                with contextlib.suppress(Refused):
                    self.assertEqual(self.run_sum(client, handle), -N_VALUES)
            for relay in cluster.relays:
                relay.flip_in(1 << 62)
            while self.n_errors(cluster) == before:
                with contextlib.suppress(Refused):
                    self.assertEqual(self.run_sum(client, handle), -N_VALUES)
                    break  # all that was sent before it has been read, or never will be
        return n_tries

    def check_found(self, worker_flags, master_flags):
        cluster = self.start(worker_flags, master_flags)
        with Client(cluster.master.port) as client:
            handle = client.create(sum_of_ones())
            self.assertEqual(self.run_sum(client, handle), -N_VALUES)
            peers = [p for p in json.loads(cluster.tasks[1].page("/statusz"))["peers"]
                     if "job:ps" in p["task"]]
            self.assertEqual([p["checksum"]["control"] for p in peers], ["both"])
            n_tries, sizes = 0, (65536, 1, 65536, 1, 300, 1, 65536)
            for min_bytes in sizes:
                n_tries += self.flip_one(cluster, client, handle, min_bytes)
                self.assertEqual(self.until_summed(client, handle), -N_VALUES)
            self.assertLessEqual(n_tries, len(sizes) + 3)
        logs = "".join(daemon.log_tail(1000) for daemon in cluster.daemons)
        cluster.check(20)
        return logs

    def test_each_flipped_bit_is_found(self):
        self.check_found(["--wire-checksum"], ["--wire-checksum"])

    def test_either_end_may_ask(self):
        self.check_found(["--wire-checksum"], [])

    def test_the_step_is_told(self):
        cluster = self.start(["--wire-checksum"], ["--wire-checksum"])
        with Client(cluster.master.port) as client:
            handle = client.create(sum_of_ones())
            self.assertEqual(self.run_sum(client, handle), -N_VALUES)
            cluster.relays[1].flip_in(65536)
            with self.assertRaises(Refused) as caught:
                self.run_sum(client, handle)
            self.assertRegex(caught.exception.message, "/job:(ps|worker)/replica:0/task:0")

    def test_without_them_a_wrong_value_is_believed(self):
        cluster = self.start([])
        with Client(cluster.master.port) as client:
            handle = client.create(sum_of_ones())
            self.assertEqual(self.run_sum(client, handle), -N_VALUES)
            sums = set()
            for _ in range(60):  # a number's last bits do not show in the sum
                for relay in cluster.relays:
                    relay.flip_in(65536)
                sums.add(self.run_sum(client, handle))
                if len(sums) > 1:
                    break
            self.assertNotEqual(sums, {-N_VALUES})
