"""Programs on workers with simulated GPUs compute what TensorFlow computes on its CPU."""
import glob
import json
import os
import unittest

import harness
from harness import ROOT, WARM_PYTHON, program

BUILD = os.path.dirname(os.path.dirname(program("tf-worker")))
SIMULATION = os.path.join(BUILD, "tests", "cuda")
PROGRAMS = os.path.join(ROOT, "tests", "e2e", "gpu_programs.py")
# Sums of products are in another order.
TOLERANCE = 2e-5


@unittest.skipUnless(os.path.exists(os.path.join(SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpu(harness.TestCase):
    def run_on_gpus(self, *command, n_devices=2, seed=1):
        """What the command prints on a cluster of two workers, each with some GPUs."""
        report = self.path("report")
        kernels = sorted(glob.glob(os.path.join(SIMULATION, "gpu_*.so")))
        env = {"LD_LIBRARY_PATH": os.path.join(SIMULATION, "sim"),
               "MILLRACE_SIM_KERNELS": ":".join(kernels), "MILLRACE_SIM_DEVICES": n_devices,
               "MILLRACE_SIM_SEED": seed, "MILLRACE_SIM_REPORT": report, "TF_CPP_MIN_LOG_LEVEL": 3}
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
        self.assertEqual(len(results), 13)
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

    def test_a_worker_that_needs_a_gpu_says_what_is_missing(self):
        _, err = self.expect(78, "tf-worker", "--listen", "127.0.0.1:0", "--gpu=require",
                             "--gpu-plugin", "/no/such/plugin.so")
        self.assertIn("gpu: required, but", err)
        self.assertIn("/no/such/plugin.so", err)
