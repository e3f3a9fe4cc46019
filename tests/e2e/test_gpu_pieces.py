"""A value that a simulated GPU makes is sent over TCP while it is copied to the host: its bytes are
at the other task before the last piece is copied, and what is lost in between is an error there."""
import json
import os
import struct
import threading
import time
import unittest

import harness
import raw_clients as raw
import test_gpu
from harness import LineReader, TestCase, program
from raw_clients import Client, Refused, const, graph, node, type_attr

GPU, HERE, THERE = (f"/job:worker/replica:0/task:{task}/device:{device}" for task, device in
                    ((0, "GPU:0"), (0, "CPU:0"), (1, "CPU:0")))
F, I = type_attr(1), type_attr(3)
N_PIECES, SIZE = 16, 16 << 20  # elements: 64 MiB
# The first step copies its small value by one call.
LAST_PIECE = 1 + N_PIECES
COPY = "cuMemcpyDtoHAsync"


def doubled():
    """0, 2, 4, … from task 0's GPU; how many differ from those that task 1 makes itself."""
    def numbers(prefix, device):
        return [node(prefix + "limit", "Placeholder", (), device, dtype=I),
                const(prefix + "start", raw.int_tensor(0), device=device),
                const(prefix + "delta", raw.int_tensor(1), device=device),
                node(prefix + "range", "Range",
                     (prefix + "start", prefix + "limit", prefix + "delta"), device, Tidx=I),
                node(prefix + "float", "Cast", (prefix + "range",), device, SrcT=I, DstT=F)]

    two = raw.float_tensor(2.0)
    return graph(*numbers("a_", HERE), *numbers("b_", THERE),
                 const("a_two", two, 1, GPU), const("b_two", two, 1, THERE),
                 node("there", "Mul", ("a_float", "a_two"), GPU, T=F),
                 node("own", "Mul", ("b_float", "b_two"), THERE, T=F),
                 node("differs", "NotEqual", ("there", "own"), THERE, T=F),
                 node("count", "Cast", ("differs",), THERE, SrcT=type_attr(10), DstT=F),
                 const("axis", raw.int_tensor(0), device=THERE),
                 node("sum", "Sum", ("count", "axis"), THERE, T=F, Tidx=I))  # fmt: skip


def n_wrong(client, handle, size):
    feeds = [(name, raw.int_tensor(size)) for name in ("a_limit:0", "b_limit:0")]
    proto = client.run(handle, 120, feeds=feeds, fetches=["sum:0"])["sum:0"]
    return struct.unpack("<f", raw.first(proto, 4) or raw.first(proto, 5))[0]


@unittest.skipUnless(os.path.exists(os.path.join(test_gpu.SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuPieces(TestCase):
    def start(self, **simulation):
        """Two workers over TCP, the first one with a GPU, and a client's session with a small step
        behind it."""
        self.workers, self.admins = [], []
        env = {**test_gpu.simulation(1), "MILLRACE_SIM_CHECK": 0,
               "MILLRACE_SIM_REPORT": self.path("report"), **simulation}
        for task, more in enumerate((env, {})):
            ports = self.path(f"ports-{task}")
            worker = self.popen([program("tf-worker"), "--listen=127.0.0.1:0", "--port-file", ports,
                                 "--unix=off", f"--task={task}",
                                 "--gpu=" + ("off" if task else "require")], more)
            LineReader(worker.stderr).until("serving on")
            with open(ports, encoding="utf-8") as text:
                port, admin = text.read().split("admin")
            self.workers.append((worker, int(port)))
            self.admins.append(int(admin))
        ports = self.path("ports-master")
        tasks = ";".join(f"127.0.0.1:{port}" for _, port in self.workers)
        master = self.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file", ports,
                             "--cluster", "worker=" + tasks])
        LineReader(master.stderr).until("serving grpc on")
        with open(ports, encoding="utf-8") as text:
            self.client = Client(int(text.read().split()[0]))
        self.addCleanup(self.client.channel.close)
        self.handle = self.client.create(doubled())
        self.assertEqual(n_wrong(self.client, self.handle, 256 << 10), 0)

    def pieces(self, task):
        status = json.loads(raw.page(self.admins[task], "/statusz")[1])
        return next(peer["pieces"] for peer in status["peers"]
                    if peer["task"].endswith(f"task:{1 - task}"))

    def begin_step(self):
        """A large step, on a thread; its result comes into self.result."""
        self.result = []

        def run():
            try:
                self.result.append(n_wrong(self.client, self.handle, SIZE))
            except (Refused, OSError) as error:
                self.result.append(error)

        step = threading.Thread(target=run)
        step.start()
        return step

    def await_received(self, n):
        deadline = time.monotonic() + harness.DEADLINE_S
        while (pieces := self.pieces(1))["received"] < n:
            self.assertEqual(self.result, [])
            self.assertLess(time.monotonic(), deadline, pieces)
        return pieces["received"]

    def start_gated(self, call):
        gate = self.path("gate")
        os.mkfifo(gate)
        self.start(MILLRACE_SIM_GATE=f"{COPY}:{call}:{gate}")
        return gate, self.begin_step()

    def end_step(self, step):
        step.join(harness.DEADLINE_S)
        self.assertFalse(step.is_alive(), "the step does not end")
        return self.result[0]

    def open_gate(self, gate):
        os.close(os.open(gate, os.O_WRONLY))

    def test_bytes_are_there_before_the_last_piece_is_copied(self):
        gate, step = self.start_gated(LAST_PIECE)
        # The last copy has not begun, and the one before it is not waited for.
        self.assertEqual(self.await_received(N_PIECES - 2), N_PIECES - 2)
        self.assertEqual(self.pieces(0), {"values_sent": 1, "sent": N_PIECES - 2,
                                          "sent_before_whole": N_PIECES - 2, "failed": 0,
                                          "received": 0})
        self.open_gate(gate)
        self.assertEqual(self.end_step(step), 0)
        self.assertEqual(self.pieces(1)["received"], N_PIECES)
        self.assertEqual(n_wrong(self.client, self.handle, SIZE), 0)
        self.assertEqual(self.pieces(0)["values_sent"], 2)
        self.assertFalse(os.path.exists(self.path("report")))

    def test_a_copy_that_fails_in_any_phase_is_the_steps_error(self):
        for call in (2, 2 + N_PIECES // 2, LAST_PIECE):
            with self.subTest(call):
                self.start(MILLRACE_SIM_FAIL=f"{COPY}:{call}:999")
                error = self.end_step(self.begin_step())
                self.assertIsInstance(error, Refused)
                self.assertRegex(error.message, "CUDA error 999")
                self.assertEqual(self.pieces(0)["failed"], 1)
                for worker, _ in self.workers:
                    self.assertIsNone(worker.poll())

    def test_a_lost_gpu_in_between_is_the_steps_error(self):
        self.start(MILLRACE_SIM_KILL=f"{COPY}:{2 + N_PIECES // 2}")
        error = self.end_step(self.begin_step())
        self.assertIsInstance(error, Refused)
        self.assertRegex(error.message, "CUDA error 999|has failed")
        for worker, _ in self.workers:
            self.assertIsNone(worker.poll())

    def test_a_sender_that_is_killed_in_between_is_the_steps_error(self):
        _, step = self.start_gated(LAST_PIECE)
        self.await_received(N_PIECES - 2)
        self.workers[0][0].kill()
        error = self.end_step(step)
        self.assertIsInstance(error, Refused)
        self.assertIn("task:0", error.message)
        self.assertIsNone(self.workers[1][0].poll())

    def test_a_receiver_that_is_killed_in_between_is_the_steps_error(self):
        gate, step = self.start_gated(LAST_PIECE)
        self.await_received(N_PIECES - 2)
        self.workers[1][0].kill()
        self.workers[1][0].wait()
        self.open_gate(gate)
        error = self.end_step(step)
        self.assertIsInstance(error, Refused)
        self.assertIn("task:1", error.message)
        self.assertIsNone(self.workers[0][0].poll())


if __name__ == "__main__":
    unittest.main()
