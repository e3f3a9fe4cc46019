"""Programs on workers with simulated GPUs compute what TensorFlow computes on its CPU."""
import ctypes
import glob
import json
import os
import unittest

import harness
import raw_clients as rc
from harness import LineReader, ROOT, WARM_PYTHON, program

BUILD = os.path.dirname(os.path.dirname(program("tf-worker")))
SIMULATION = os.path.join(BUILD, "tests", "cuda")
PROGRAMS = os.path.join(ROOT, "tests", "e2e", "gpu_programs.py")
# Sums of products are in another order.
TOLERANCE = 2e-5


TWO_STEPS = """
import sys
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
x = tf1.placeholder(tf.float32, [64])
with tf.device("/device:GPU:0"):
    y = tf.reduce_max(x + 1.0)
with tf1.Session(sys.argv[1], graph=y.graph) as session:
    for _ in range(2):
        try:
            print(session.run(y, {x: [2.0] * 64}))
        except tf.errors.OpError as error:
            print(type(error).__name__, error.message.replace(chr(10), " "))
"""


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@unittest.skipUnless(os.path.exists(os.path.join(SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpu(harness.TestCase):
    def run_on_gpus(self, *command, n_devices=2, seed=1, more=None):
        """What the command prints on a cluster of two workers, each with some GPUs."""
        report = self.path("report")
        kernels = sorted(glob.glob(os.path.join(SIMULATION, "gpu_*.so")))
        env = {"LD_LIBRARY_PATH": os.path.join(SIMULATION, "sim"),
               "MILLRACE_SIM_KERNELS": ":".join(kernels), "MILLRACE_SIM_DEVICES": n_devices,
               "MILLRACE_SIM_SEED": seed, "MILLRACE_SIM_REPORT": report, "TF_CPP_MIN_LOG_LEVEL": 3,
               **(more or {})}
        out, _ = self.expect(0, "tfctl", "local", "--workers", 2, "--quiet", "--worker-flag",
                             "--gpu=require", "--", *command, env=env, timeout_s=280)
        if os.path.exists(report):
            with open(report, encoding="utf-8", errors="replace") as text:
                self.fail(f"the simulated device reports: {text.read()}")
        return out

    def test_programs_compute_the_same(self):
        """Training, loops, replicas on two GPUs and on two tasks, checkpoints."""
        command = 'exec "$0" "$1" "$MILLRACE_TARGET"'
        output = self.run_on_gpus("sh", "-c", command, WARM_PYTHON, PROGRAMS)
        results = [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(results), 15)
        for result in results:
            with self.subTest(result["name"]):
                self.assertGreater(result["n_gpu_nodes"], 0)
                self.assertEqual(len(result["local"]), len(result["gpu"]))
                for expected, found in zip(result["local"], result["gpu"]):
                    self.assertLessEqual(abs(expected - found),
                                         TOLERANCE * max(1, abs(expected)), result["name"])

    def test_clients_see_the_devices(self):
        output = self.run_on_gpus(program("tfctl"), "devices")
        for task in range(2):
            for gpu in range(2):
                self.assertIn(f"/job:worker/replica:0/task:{task}/device:GPU:{gpu}", output)

    def test_a_failed_call_is_the_status_of_its_step_alone(self):
        output = self.run_on_gpus("sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET"', WARM_PYTHON,
                                  TWO_STEPS, more={"MILLRACE_SIM_FAIL": "cuLaunchKernel:1:999"})
        first, second = output.splitlines()
        self.assertRegex(first, r"^InternalError .*cuLaunchKernel failed: .*CUDA error 999\) "
                                r"\(add_f32\)")
        self.assertEqual(second, "3.0")

    def test_a_worker_without_a_driver_does_not_load_the_plugin(self):
        if has_driver():
            self.skipTest("this host has a CUDA driver")
        ports = self.path("ports")
        worker = self.popen([program("tf-worker"), "--listen", "127.0.0.1:0", "--port-file", ports])
        LineReader(worker.stderr).until("serving on")
        with open(f"/proc/{worker.pid}/maps", encoding="utf-8") as maps:
            self.assertNotIn("millrace-cuda.so", maps.read())
        with open(ports, encoding="utf-8") as text:
            admin_port = int(text.read().split("admin")[1])
        status = json.loads(rc.page(admin_port, "/statusz")[1])
        self.assertIn("no CUDA driver: libcuda.so.1", status["gpu"])

    def test_a_worker_that_needs_a_gpu_says_what_is_missing(self):
        _, err = self.expect(78, "tf-worker", "--listen", "127.0.0.1:0", "--gpu=require",
                             "--gpu-plugin", "/no/such/plugin.so")
        self.assertIn("gpu: required, but", err)
        self.assertIn("/no/such/plugin.so", err)
