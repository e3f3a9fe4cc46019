"""Values between the GPUs of two workers of a host: through the memory that the workers share,
which their devices copy from and to without pinned memory in between."""
import json
import os
import unittest

import harness
import raw_clients as rc
from harness import LineReader, SANITIZED, WARM_PYTHON, program, sanitized_too
from test_gpu import SIMULATION, simulation

# Sends a value from a GPU of one task to a GPU of the other, and back. Says what each step has
# computed, and after a failure goes on with the variables as they were at first.
PING_PONG = """
import sys
import numpy
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
target, n_steps = sys.argv[1], int(sys.argv[2])
N = 300_000
with tf.device("/job:worker/task:0/device:GPU:0"):
    v = tf1.get_variable("v", initializer=tf.range(N, dtype=tf.float32), use_resource=True)
    there = v.assign_add(tf.ones([N]), read_value=True) * 2.0
with tf.device("/job:worker/task:1/device:GPU:0"):
    back = there + 1.0
with tf.device("/job:worker/task:0/device:GPU:0"):
    result = back * 0.5

def run(session, first):
    session.run(v.initializer)
    for step in range(first, n_steps):
        got = session.run(result)
        wanted = numpy.arange(N, dtype=numpy.float32) + numpy.float32(step - first + 1)
        assert (got == (wanted * 2 + 1) * numpy.float32(0.5)).all(), step
        print("step", step, flush=True)
        first_left[0] = step + 1

first_left = [0]
while first_left[0] < n_steps:
    try:
        with tf1.Session(target) as session:
            run(session, first_left[0])
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        print("failed", type(error).__name__, error.message.replace(chr(10), " "), flush=True)
"""
N_BYTES = 300_000 * 4


@unittest.skipUnless(os.path.exists(os.path.join(SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuTransfers(harness.TestCase):
    def start_worker(self, index, address="127.0.0.1:0", **more):
        """A worker with a GPU: its process, its address and the port of its pages."""
        ports = self.path(f"ports-{index}")
        env = {**simulation(1), "MILLRACE_SIM_REPORT": self.path("report"), **more}
        worker = self.popen([program("tf-worker"), "--task", index, "--listen", address,
                             "--port-file", ports, "--gpu=require"], env)
        lines = LineReader(worker.stderr)
        lines.until("serving on")
        worker.lines = lines
        with open(ports, encoding="utf-8") as text:
            port, admin = text.read().split("admin")
        os.remove(ports)
        return worker, f"127.0.0.1:{int(port)}", int(admin)

    def start_master(self, *addresses):
        ports = self.path("ports-m")
        master = self.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file", ports,
                             "--cluster", "worker=" + ";".join(addresses)])
        LineReader(master.stderr).until("serving grpc on")
        with open(ports, encoding="utf-8") as text:
            return master, f"grpc://127.0.0.1:{int(text.read().split()[0])}"

    def start_steps(self, target, n):
        return self.popen([WARM_PYTHON, "-c", PING_PONG, target, n],
                          self.environment(TF_CPP_MIN_LOG_LEVEL=3))

    def expect_no_report(self):
        if os.path.exists(self.path("report")):
            with open(self.path("report"), encoding="utf-8", errors="replace") as text:
                self.fail(f"the simulated device reports: {text.read()}")

    @staticmethod
    def counts(admin):
        devices = json.loads(rc.page(admin, "/statusz")[1])["devices"]
        gpu, = (row for row in devices if row["name"].endswith("GPU:0"))
        return gpu["counts"]

    @sanitized_too
    def test_values_cross_without_pinned_memory(self):
        n = 3 if SANITIZED else 10
        workers = [self.start_worker(i) for i in range(2)]
        master, target = self.start_master(*(address for _, address, _ in workers))
        client = self.start_steps(target, n)
        out, err = client.communicate(timeout=120)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out.decode().split("\n")[:-1], [f"step {i}" for i in range(n)])
        for _, _, admin in workers:
            counts = self.counts(admin)
            self.assertEqual(counts["to_host_direct"], n, counts)
            self.assertEqual(counts["to_host_direct_bytes"], n * N_BYTES, counts)
            self.assertEqual(counts["from_host_direct"], n, counts)
            self.assertEqual(counts["from_host_direct_bytes"], n * N_BYTES, counts)
            self.assertRegex(
                rc.page(admin, "/metrics")[1],
                r'millrace_device_copied_bytes_total{device="[^"]*GPU:0",kind="from_host",'
                rf'path="direct"}} {n * N_BYTES}\n')
        self.expect_no_report()
        for process in (master, *(worker for worker, _, _ in workers)):
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 0)
        self.expect_no_report()  # what was registered was unregistered

    def test_memory_that_cannot_be_registered_is_copied_through_pinned_memory(self):
        """The first thing that worker 0 registers is its own memory, and worker 1 its peer's."""
        n = 5
        workers = [self.start_worker(i, MILLRACE_SIM_FAIL="cuMemHostRegister:1:1")
                   for i in range(2)]
        _, target = self.start_master(*(address for _, address, _ in workers))
        client = self.start_steps(target, n)
        out, err = client.communicate(timeout=120)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out.decode().count("step"), n)
        kinds = [("to_host", "the task's own"), ("from_host", "the peers'")]
        for i, (worker, _, admin) in enumerate(workers):
            counts = self.counts(admin)
            refused, whose = kinds[i]
            self.assertEqual(counts[refused + "_direct"], 0, counts)
            self.assertGreaterEqual(counts[refused + "_staged_bytes"], n * N_BYTES, counts)
            self.assertEqual(counts[kinds[1 - i][0] + "_direct"], n, counts)
            worker.terminate()
            log = worker.lines.to_end()
            self.assertEqual(log.count("memory that tasks share cannot be registered"), 1, log)
            self.assertIn(f"GPU 0: {whose} memory that tasks share cannot be registered, so it is "
                          "copied through pinned memory from now on: cuMemHostRegister failed", log)
        self.expect_no_report()

    def test_a_peer_that_is_killed_takes_no_memory_along(self):
        for victim in (0, 1):
            with self.subTest(victim):
                self.kill_and_start_again(victim)

    def kill_and_start_again(self, victim):
        """The other worker's device copies from the memory of the victim's, or is about to."""
        workers = [self.start_worker(i) for i in range(2)]
        master, target = self.start_master(*(address for _, address, _ in workers))
        client = self.start_steps(target, 60)
        steps = LineReader(client.stdout)
        steps.until("step 20")
        workers[victim][0].kill()
        workers[victim][0].wait()
        steps.until("failed")
        before = self.counts(workers[1 - victim][2])
        address = workers[victim][1]
        workers[victim] = self.start_worker(victim, address)
        steps.until("step 59")
        _, err = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 0, err)
        after = self.counts(workers[1 - victim][2])
        for count in ("to_host_direct", "from_host_direct"):
            self.assertGreater(after[count], before[count])
        self.expect_no_report()
        for process in (master, *(worker for worker, _, _ in workers)):
            process.terminate()
            process.wait(timeout=60)
        self.expect_no_report()

