"""A value that a simulated GPU makes is sent over TCP while it is copied to the host: its bytes are
at the other task before the last piece is copied, and what is lost in between is an error there. A
value for a GPU is copied to it while it arrives, and a step that ends in between leaves nothing."""
import errno
import json
import os
import struct
import threading
import time
import unittest

import grpc

import harness
import raw_clients as raw
import test_gpu
from harness import LineReader, TestCase, program
from raw_clients import Client, Refused, const, graph, node, type_attr

GPU, HERE, THERE, GPU_THERE = (
    f"/job:worker/replica:0/task:{task}/device:{device}"
    for task, device in ((0, "GPU:0"), (0, "CPU:0"), (1, "CPU:0"), (1, "GPU:0")))
F, I = type_attr(1), type_attr(3)
N_PIECES, SIZE = 16, 16 << 20  # elements: 64 MiB
# The first step copies its small value by one call.
LAST_PIECE = 1 + N_PIECES
COPY = "cuMemcpyDtoHAsync"
COPY_IN = "cuMemcpyHtoDAsync"
# What task 1's GPU copies before the large value: that of the small step.
N_IN_BEFORE = 1
SMALL_SIZE = 256 << 10
PIECES_LOST = (1, N_PIECES // 2, N_PIECES) if harness.LONG else (N_PIECES // 2,)
ABORTED, UNAVAILABLE = 10, 14


def doubled(on_gpu_there=False, sender=GPU):
    """0, 2, 4, … from task 0's GPU; how many differ from those that task 1 makes itself. With
    on_gpu_there task 1's GPU takes the value, and multiplies it by one."""
    def numbers(prefix, device):
        return [node(prefix + "limit", "Placeholder", (), device, dtype=I),
                const(prefix + "start", raw.int_tensor(0), device=device),
                const(prefix + "delta", raw.int_tensor(1), device=device),
                node(prefix + "range", "Range",
                     (prefix + "start", prefix + "limit", prefix + "delta"), device, Tidx=I),
                node(prefix + "float", "Cast", (prefix + "range",), device, SrcT=I, DstT=F)]

    two = raw.float_tensor(2.0)
    return graph(*numbers("a_", HERE), *numbers("b_", THERE),
                 const("a_two", two, 1, sender), const("b_two", two, 1, THERE),
                 node("there", "Mul", ("a_float", "a_two"), sender, T=F),
                 *((const("b_one", raw.float_tensor(1.0), 1, GPU_THERE),
                    node("taken", "Mul", ("there", "b_one"), GPU_THERE, T=F))
                   if on_gpu_there else ()),
                 node("own", "Mul", ("b_float", "b_two"), THERE, T=F),
                 node("differs", "NotEqual", ("taken" if on_gpu_there else "there", "own"), THERE,
                      T=F),
                 node("count", "Cast", ("differs",), THERE, SrcT=type_attr(10), DstT=F),
                 const("axis", raw.int_tensor(0), device=THERE),
                 node("sum", "Sum", ("count", "axis"), THERE, T=F, Tidx=I))  # fmt: skip


def begin_run(client, handle, size):
    feeds = [(name, raw.int_tensor(size)) for name in ("a_limit:0", "b_limit:0")]
    return client.begin_run(handle, 120, feeds=feeds, fetches=["sum:0"])


def end_run(client, call):
    proto = client.end_run(call)["sum:0"]
    return struct.unpack("<f", raw.first(proto, 4) or raw.first(proto, 5))[0]


def n_wrong(client, handle, size):
    return end_run(client, begin_run(client, handle, size))


@unittest.skipUnless(os.path.exists(os.path.join(test_gpu.SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuPieces(TestCase):
    def start(self, receiver=None, **simulation):
        """Two workers over TCP, the first one with a GPU, and a client's session with a small step
        behind it. With `receiver`, what is special about its simulation, the second one has a GPU
        that takes the value."""
        self.workers, self.admins = [], []
        env = {**test_gpu.simulation(1), "MILLRACE_SIM_CHECK": 0,
               "MILLRACE_SIM_REPORT": self.path("report")}
        for task, more in enumerate((simulation, receiver)):
            ports = self.path(f"ports-{task}")
            worker = self.popen([program("tf-worker"), "--listen=127.0.0.1:0", "--port-file", ports,
                                 "--unix=off", f"--task={task}",
                                 "--gpu-copy-threads=1",  # so that a copy is pieces of 4 MiB
                                 "--gpu=" + ("off" if more is None else "auto")],
                                {} if more is None else {**env, **more})
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
        self.graph = doubled(on_gpu_there=receiver is not None)
        self.handle = self.client.create(self.graph)
        self.assertEqual(n_wrong(self.client, self.handle, SMALL_SIZE), 0)

    def pieces(self, task):
        status = json.loads(raw.page(self.admins[task], "/statusz")[1])
        return next(peer["pieces"] for peer in status["peers"]
                    if peer["task"].endswith(f"task:{1 - task}"))

    def begin_step(self):
        """A large step, on a thread; its result comes into self.result."""
        self.result = []
        self.call = begin_run(self.client, self.handle, SIZE)

        def run():
            try:
                self.result.append(end_run(self.client, self.call))
            except (Refused, OSError, grpc.FutureCancelledError) as error:
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

    def start_gated(self, call, **simulation):
        gate = self.path("gate")
        os.mkfifo(gate)
        self.start(MILLRACE_SIM_GATE=f"{COPY}:{call}:{gate}", **simulation)
        return gate, self.begin_step()

    def end_step(self, step):
        step.join(harness.DEADLINE_S)
        self.assertFalse(step.is_alive(), "the step does not end")
        return self.result[0]

    def open_gate(self, gate):
        os.close(os.open(gate, os.O_WRONLY))

    def await_gate(self, gate):
        """Waits until a worker waits at the gate, and opens it."""
        deadline = time.monotonic() + harness.DEADLINE_S
        while True:
            try:
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
                return
            except OSError as error:
                self.assertEqual(error.errno, errno.ENXIO)
            self.assertEqual(self.result, [])
            self.assertLess(time.monotonic(), deadline, self.pieces(1))

    def in_use(self):
        """The bytes that task 1's devices hold, and those that its rendezvous waits for."""
        status = json.loads(raw.page(self.admins[1], "/statusz")[1])
        memory = {device["name"]: device["memory_in_use_bytes"] for device in status["devices"]}
        return {**memory, "in flight": [peer["in_flight_bytes"] for peer in status["peers"]]}

    def await_in_use(self, wanted):
        deadline = time.monotonic() + harness.DEADLINE_S
        while (now := self.in_use()) != wanted:
            self.assertLess(time.monotonic(), deadline, f"{now}, not {wanted}")

    def test_bytes_are_there_before_the_last_piece_is_copied(self):
        gate, step = self.start_gated(LAST_PIECE)
        # The last copy has not begun, and the one before it is not waited for.
        self.assertEqual(self.await_received(N_PIECES - 2), N_PIECES - 2)
        self.assertEqual(self.pieces(0), {"values_sent": 1, "sent": N_PIECES - 2,
                                          "sent_before_whole": N_PIECES - 2, "failed": 0,
                                          "received": 0, "handed_on": 0})
        self.open_gate(gate)
        self.assertEqual(self.end_step(step), 0)
        self.assertEqual(self.pieces(1)["received"], N_PIECES)
        self.assertEqual(n_wrong(self.client, self.handle, SIZE), 0)
        self.assertEqual(self.pieces(0)["values_sent"], 2)
        self.assertEqual(self.pieces(1)["handed_on"], 0)  # a CPU takes it
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

    def expect_loss(self, error, others):
        """The step has told that a GPU is lost. The session is told once that it has lost what the
        GPU held. A session that does without the GPU uses the same workers, and the other GPU."""
        self.assertIsInstance(error, Refused)
        self.assertRegex(error.message, "CUDA error 999|has failed")
        codes = [error.code]
        for _ in range(3):
            with self.assertRaises(Refused) as later:
                n_wrong(self.client, self.handle, SMALL_SIZE)
            codes.append(later.exception.code)
        self.assertEqual(codes.count(ABORTED), 1, codes)
        self.assertLessEqual(set(codes), {ABORTED, UNAVAILABLE})
        handle = self.client.create(others)
        for _ in range(2):
            self.assertEqual(n_wrong(self.client, handle, SMALL_SIZE), 0)
        for worker, _ in self.workers:
            self.assertIsNone(worker.poll())
        self.assertEqual(self.in_use()["in flight"], [0])
        self.assertFalse(os.path.exists(self.path("report")))

    def test_a_lost_gpu_in_between_is_the_steps_error(self):
        for call in PIECES_LOST:
            with self.subTest(call):
                self.start(MILLRACE_SIM_KILL=f"{COPY}:{1 + call}", receiver={})
                error = self.end_step(self.begin_step())
                self.expect_loss(error, doubled(on_gpu_there=True, sender=HERE))

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


    # ---- the value is for a GPU ----

    def gated_receiver(self, n_copied=N_PIECES - 2):
        gate = self.path("gate-there")
        os.mkfifo(gate)
        return gate, {"MILLRACE_SIM_GATE": f"{COPY_IN}:{N_IN_BEFORE + n_copied}:{gate}"}

    def test_what_has_arrived_is_copied_to_the_gpu_before_the_rest_comes(self):
        gate_there, receiver = self.gated_receiver()
        gate, step = self.start_gated(LAST_PIECE, receiver=receiver)
        # The last piece of those that can have come is being copied to the GPU.
        self.await_gate(gate_there)
        self.assertEqual(self.pieces(1)["received"], N_PIECES - 2)
        self.assertEqual(self.pieces(1)["handed_on"], 1)
        self.open_gate(gate)
        self.assertEqual(self.end_step(step), 0)
        self.assertEqual(n_wrong(self.client, self.handle, SIZE), 0)
        self.assertEqual(self.pieces(1)["handed_on"], 2)
        self.assertFalse(os.path.exists(self.path("report")))

    def half_way(self):
        """A step of which both GPUs have copied all that they can: how to let the sender go on, the
        step, and what task 1 held before."""
        gate_there, receiver = self.gated_receiver()
        gate = self.path("gate")
        os.mkfifo(gate)
        self.start(MILLRACE_SIM_GATE=f"{COPY}:{LAST_PIECE}:{gate}", receiver=receiver)
        before = self.in_use()
        step = self.begin_step()
        self.await_gate(gate_there)
        self.assertNotEqual(self.in_use(), before)
        return gate, step, before

    def expect_next_step(self):
        self.handle = self.client.create(self.graph)
        self.assertEqual(n_wrong(self.client, self.handle, SIZE), 0)
        for worker, _ in self.workers:
            self.assertIsNone(worker.poll())
        self.assertFalse(os.path.exists(self.path("report")))

    def test_a_session_that_is_closed_in_between_leaves_nothing(self):
        gate, step, before = self.half_way()
        closing = threading.Thread(target=self.client.close, args=(self.handle,))
        closing.start()
        self.await_in_use(before)  # the receiver does not wait for the sender
        self.open_gate(gate)
        closing.join(harness.DEADLINE_S)
        self.assertIsInstance(self.end_step(step), Refused)
        self.expect_next_step()

    def test_a_step_that_is_cancelled_in_between_leaves_nothing(self):
        gate, step, before = self.half_way()
        self.call.cancel()
        self.assertIsInstance(self.end_step(step), grpc.FutureCancelledError)
        self.await_in_use(before)
        self.open_gate(gate)
        self.expect_next_step()

    def test_a_sender_that_is_killed_while_its_value_is_copied_leaves_nothing(self):
        _, step, before = self.half_way()
        self.workers[0][0].kill()
        error = self.end_step(step)
        self.assertIsInstance(error, Refused)
        self.assertIn("task:0", error.message)
        self.await_in_use({**before, "in flight": [0]})
        self.assertIsNone(self.workers[1][0].poll())

    def test_a_copy_of_the_sender_that_fails_is_the_steps_error(self):
        for call in (2, 2 + N_PIECES // 2, LAST_PIECE):
            with self.subTest(call):
                self.start(MILLRACE_SIM_FAIL=f"{COPY}:{call}:999", receiver={})
                error = self.end_step(self.begin_step())
                self.assertIsInstance(error, Refused)
                self.assertRegex(error.message, "CUDA error 999")

    def test_a_copy_to_the_gpu_that_fails_is_the_steps_error(self):
        for n_copied in (1, N_PIECES // 2, N_PIECES):
            with self.subTest(n_copied):
                call = f"{COPY_IN}:{N_IN_BEFORE + n_copied}:999"
                self.start(receiver={"MILLRACE_SIM_FAIL": call})
                error = self.end_step(self.begin_step())
                self.assertIsInstance(error, Refused)
                self.assertRegex(error.message, "CUDA error 999")
                for worker, _ in self.workers:
                    self.assertIsNone(worker.poll())

    def test_a_gpu_that_is_lost_while_the_value_arrives_is_the_steps_error(self):
        for n_copied in PIECES_LOST:
            with self.subTest(n_copied):
                kill = f"{COPY_IN}:{N_IN_BEFORE + n_copied}"
                self.start(receiver={"MILLRACE_SIM_KILL": kill})
                self.expect_loss(self.end_step(self.begin_step()), doubled())


if __name__ == "__main__":
    unittest.main()
