"""A ps behind a wire that loses packets: partitions that heal, one way only, a client's host that
vanishes, loss. Each figure is printed."""
import contextlib
import os
import struct
import time

import harness
import lossy_wire
import raw_clients as raw
from fault_case import (
    MIB, PS, RETURN_S, SILENT_S, SLOW, UNAVAILABLE, WORKER0, F, FaultCase, TensorFlowClient, say)
from raw_clients import FLOAT, Client, Refused, const, data, graph, node, type_attr


class NetworkCase(FaultCase):
    """The ps is in a network namespace of its own, behind a wire that loses packets."""

    starts_by_itself = False

    def setUp(self):
        reason = lossy_wire.why_not()
        if reason:
            self.skipTest(reason)
        super().setUp()
        self.wire = lossy_wire.LossyWire()
        self.wire.__enter__()
        self.addCleanup(self.wire.__exit__)
        self.daemons = {}
        self.start("ps", self.wire.inside([harness.program("tf-worker"), "--job", "ps",
                                           "--insecure", "--listen", f"{self.wire.there}:2400",
                                           "--admin", "off",
                                           *self.flags]))
        self.start("worker", [harness.program("tf-worker"), "--listen", f"{self.wire.here}:0",
                              "--insecure", "--unix", "off", *self.flags])
        worker = f"{self.wire.here}:{self.daemons['worker'][0]}"
        self.start("master", [harness.program("tf-master"), "--listen", "0.0.0.0:0", "--insecure",
                              "--stall-timeout", "2s",
                              # fmt: skip
                              *self.flags, "--cluster",
                              f"ps={self.wire.there}:2400,worker={worker}"])
        self.port, self.admin_port = self.daemons["master"]
        self.until(lambda: raw.page(self.admin_port, "/readyz")[0] == 200,
                   "the cluster does not come together")
        self.client = Client(self.port)
        self.addCleanup(self.client.channel.close)
        self.handle = self.client.create(graph(
            node("v", "VariableV2", device=PS, dtype=F, shape=data(7, b"")),
            node("x", "Placeholder", device=WORKER0, dtype=F),
            node("y", "Neg", ("x",), WORKER0, T=F), node("set", "Assign", ("v", "y"), PS, T=F),
            node("add", "AssignAdd", ("v", "y"), PS, T=F),
            node("big", "Placeholder", device=WORKER0, dtype=F),
            node("moved", "Neg", ("big",), WORKER0, T=F), node("back", "Neg", ("moved",), PS, T=F),
            # fmt: skip
            node("sum", "Max", ("back", "axis"), PS, T=F, Tidx=type_attr(raw.INT32)),
            const("axis", raw.int_tensor(0), device=PS)))

    def stop_cluster(self):
        pass

    def start(self, name, command):
        ports = self.path(f"{name}.ports")
        log = open(self.path(f"{name}.log"), "wb")
        self.addCleanup(log.close)
        self.popen([*command, "--port-file", ports], stdout=log, stderr=log)
        self.until(lambda: os.path.exists(ports), f"{name} does not start")
        with open(ports) as f:
            self.daemons[name] = [int(word) for word in f.read().replace("admin", "").split()]

    def scalar(self, value):
        return raw.tensor(FLOAT, (), struct.pack("<f", value))

    def run_add(self, value, what="add"):
        reply = self.client.run(self.handle, 60, feeds=[("x:0", self.scalar(value))],
                                fetches=[f"{what}:0"])
        return struct.unpack("<f", raw.first(reply[f"{what}:0"], 4))[0]


class TestNetwork(NetworkCase):
    def test_a_client_that_vanishes(self):
        """Its host is cut off in the middle of a step, and says nothing more."""
        client = TensorFlowClient(self, f"grpc://{self.wire.here}:{self.port}",
                                  prefix=self.wire.inside([]))
        client.good("init")
        client.tell("block")
        self.until(lambda: "QueueDequeue" in raw.page(self.admin_port, "/stepz")[1],
                   "the step does not run")
        vanished = time.monotonic()
        self.wire.loss_out = self.wire.loss_in = 1.0
        self.until(lambda: raw.page(self.admin_port,
                                    "/metrics")[1].count("\nmillrace_grpc_connections 1\n"),
                   "its connection is kept")
        say("a client's host vanishes, --stall-timeout 2s: its connection has ended after",
            time.monotonic() - vanished)
        self.assertLess(time.monotonic() - vanished, SILENT_S)
        self.until(lambda: not raw.page(self.admin_port, "/stepz")[1].strip(), "the step goes on")
        client.process.kill()

    def check_lossy(self, loss, n_steps, size):
        self.assertEqual(self.run_add(0, "set"), 0)
        self.wire.loss_out = self.wire.loss_in = loss
        big = raw.tensor(FLOAT, (size,), struct.pack("<f", 3.0) * size)
        began = time.monotonic()
        for i in range(n_steps):
            self.assertEqual(self.run_add(-1), i + 1)
        small = time.monotonic() - began
        for _ in range(3):
            reply = self.client.run(self.handle, 60, feeds=[("big:0", big)], fetches=["sum:0"])
            self.assertEqual(struct.unpack("<f", raw.first(reply["sum:0"], 4))[0], 3.0)
        say(f"{loss:.0%} of packets lost: a scalar step takes", small / n_steps)
        say(f"    a step that moves {size * 4 / MIB:.0f} MiB", (time.monotonic() - began - small)
            / 3)
        self.assertGreater(self.wire.n_lost, 0)
        losses = [line for line in raw.page(self.admin_port, "/metrics")[1].splitlines()
                  if line.startswith("millrace_task_losses_total")]
        self.assertTrue(losses and all(line.endswith(" 0") for line in losses), losses)

    def test_one_packet_in_a_hundred_is_lost(self):
        self.check_lossy(0.01, 100, MIB)

    def test_one_packet_in_ten_is_lost(self):
        self.check_lossy(0.1, 30, MIB // 4)


class TestLargeAnswers(NetworkCase):
    flags = ("--heartbeat", "400ms")
    silence_s = 3 * 0.4

    def test_an_answer_that_takes_longer_than_a_silence_may_is_a_sign_of_life(self):
        """The answers to pings come behind it."""
        n = 16 * MIB
        handle = self.client.create(graph(
            const("dims", raw.tensor(raw.INT32, (1,), struct.pack("<i", n)), device=PS),
            const("two", self.scalar(2.0), FLOAT, PS),
            # fmt: skip
            node("many", "Fill", ("dims", "two"), PS, T=F, index_type=type_attr(raw.INT32))))
        self.wire.rate_in = n * 4 / (4 * self.silence_s)
        began = time.monotonic()
        reply = self.client.run(handle, 60, fetches=["many:0"])
        took = time.monotonic() - began
        say(f"{n * 4 / MIB:.0f} MiB over this wire take", took)
        self.assertEqual(raw.first(reply["many:0"], 4), struct.pack("<f", 2.0) * n)
        losses = [line for line in raw.page(self.admin_port, "/metrics")[1].splitlines()
                  if line.startswith("millrace_task_losses_total")]
        self.assertTrue(losses and all(line.endswith(" 0") for line in losses), losses)
        self.assertGreater(took, 2 * self.silence_s)


class TestPartitions(NetworkCase):
    flags = () if harness.LONG else ("--heartbeat", "500ms")

    def check_cut(self, what, loss_out, loss_in, cut_s):
        self.assertEqual(self.run_add(-1, "set"), 1)
        cut = time.monotonic()
        self.wire.loss_out, self.wire.loss_in = loss_out, loss_in
        with self.assertRaises(Refused) as caught:
            self.run_add(0)
        told = time.monotonic() - cut
        say(f"{what}: the client knows after", told)
        self.assertEqual(caught.exception.code, UNAVAILABLE)
        self.assertRegex(caught.exception.message,
                         "/job:ps/replica:0/task:0.*(no sign of life for|last seen)")
        self.assertLess(told, SILENT_S if harness.LONG else SILENT_S / 4 * SLOW)
        while time.monotonic() - cut < cut_s:
            with self.assertRaises(Refused) as caught:
                self.run_add(0)
            self.assertEqual(caught.exception.code, UNAVAILABLE)
        healed = time.monotonic()
        self.wire.loss_out = self.wire.loss_in = 0.0
        while True:
            with contextlib.suppress(Refused):
                got = self.run_add(-1)
                break
            self.assertLess(time.monotonic() - healed, harness.DEADLINE_S)
        back = time.monotonic() - healed
        say(f"{what}, healed: steps flow after", back)
        self.assertLess(back, RETURN_S + 1)  # the kernel says SYN again after a second
        self.assertEqual(got, 2)  # the variable is what it was: the same task, not a new one

    def test_a_partition_that_heals(self):
        self.check_cut("a partition", 1.0, 1.0, 30 if harness.LONG else 3)

    def test_one_way_is_cut(self):
        self.check_cut("nothing gets there", 1.0, 0.0, 0)

    def test_the_other_way_is_cut(self):
        self.check_cut("nothing comes back", 0.0, 1.0, 0)
