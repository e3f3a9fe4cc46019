"""A MonitoredTrainingSession trains on a worker with a simulated GPU. The worker is killed, or the
GPU fails, in the middle of steps, saves and restores. The session begins again at its newest
checkpoint: a step that is repeated has the same loss, and no update is lost or applied twice."""
import json
import os
import select
import signal
import unittest

import harness
import raw_clients as raw
import test_gpu
from harness import LineReader, ROOT, TestCase, WARM_PYTHON, program

PROGRAM = os.path.join(ROOT, "tests", "e2e", "gpu_monitored_program.py")
GPU, PS = "/job:worker/task:0/device:GPU:0", "/job:ps/task:0/device:CPU:0"
GPU_FAILED = 138
MOST_STEPS = 60
# A repeated step has the same bits on the same device, and nearly the same on another.
NEARLY = 1e-3
# Calls in which the worker ends.
KILLS = ("cuLaunchKernel:30", "cuMemcpyDtoHAsync:5", "cuMemcpyHtoDAsync:2", "cuGraphLaunch:2",
         "cuEventSynchronize:9")  # fmt: skip
# How the GPU fails in the Nth call: an error of the driver after which nothing works, or the GPU
# falls off the bus.
ILLEGAL_ADDRESS, ECC, LOST = 700, 214, None
FAILURES = (("cuLaunchKernel:30", ILLEGAL_ADDRESS), ("cuMemcpyDtoHAsync:5", LOST),
            ("cuGraphLaunch:2", ECC), ("cuEventSynchronize:9", LOST))  # fmt: skip


def failing(call, error):
    return ({"MILLRACE_SIM_KILL": call} if error is LOST else
            {"MILLRACE_SIM_FAIL": f"{call}:{error}"})


@unittest.skipUnless(os.path.exists(os.path.join(test_gpu.SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuMonitored(TestCase):
    def start_task(self, job, address="127.0.0.1:0", env=None, flags=()):
        ports = self.path(f"ports-{job}")
        task = self.popen([program("tf-worker"), "--job", job, "--listen", address, "--port-file",
                           ports, f"--file-root={self.tmp}", *flags], env)
        LineReader(task.stderr).until("serving on")
        with open(ports, encoding="utf-8") as text:
            port, self.admin = map(int, text.read().split("admin"))
        os.remove(ports)
        return task, f"127.0.0.1:{port}"

    def start_worker(self, special, address="127.0.0.1:0"):
        env = {**test_gpu.simulation(1), "MILLRACE_SIM_REPORT": self.path("report"), **special}
        self.worker, self.address = self.start_task(
            "worker", address, env, ("--gpu-copy-threads=1", f"--gpu={self.gpu}"))
        self.worker_ends = os.pidfd_open(self.worker.pid)
        self.addCleanup(os.close, self.worker_ends)

    def start(self, state, gpu, special, *soft):
        self.gpu, self.steps, self.n_repeated, self.n_begun = gpu, {}, 0, 0
        self.at, self.saved = None, 0
        self.ps, ps_address = self.start_task("ps", flags=("--gpu=off",))
        self.start_worker(special)
        ports = self.path("ports-m")
        self.master = self.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file",
                                  ports, "--cluster", f"worker={self.address},ps={ps_address}"])
        LineReader(self.master.stderr).until("serving grpc on")
        with open(ports, encoding="utf-8") as text:
            target = f"grpc://127.0.0.1:{int(text.read().split()[0])}"
        name = "gpu" if state == GPU else "ps"
        self.end = self.path(f"end-{name}")
        with open(self.path("client.err"), "wb") as errors:
            saved = os.path.join(self.tmp, f"saved-{name}")
            self.client = self.popen([WARM_PYTHON, PROGRAM, target, saved, state, self.end, *soft],
                                     self.environment(TF_CPP_MIN_LOG_LEVEL=3), stderr=errors)
        self.lines = LineReader(self.client.stdout)

    def words(self):
        """What TensorFlow has said about failures."""
        with open(self.path("client.err"), encoding="utf-8", errors="replace") as text:
            return text.read()

    def note(self, told, tolerance=0):
        """Notes what the client tells, and checks it."""
        if "begun" in told:
            self.assertGreaterEqual(told["begun"], self.saved)
            self.n_begun += 1
            self.at = told["begun"]
        if "step" in told:
            self.assertEqual(told["step"], self.at + 1)
            self.assertEqual(told["ends"], [2.0 * told["step"]] * 2)
            self.n_repeated += told["step"] in self.steps
            before = self.steps.setdefault(told["step"], told["loss"])
            self.assertLessEqual(abs(told["loss"] - before), tolerance * abs(before), told)
            self.at = told["step"]
        self.saved = told.get("saved", self.saved)
        return told

    def next(self, tolerance=0):
        line = self.lines.line()
        self.assertIsNotNone(line, self.words()[-3000:])
        told = json.loads(line)
        self.assertNotIn("error", told)
        return self.note(told, tolerance)

    def wait_for_end_of_worker(self):
        """Reads what the client tells until the worker has ended. Returns its status."""
        n_steps = 0
        while True:
            if b"\n" not in self.lines.rest:
                ready, _, _ = select.select([self.lines.fd, self.worker_ends], [], [],
                                            harness.DEADLINE_S)
                self.assertTrue(ready, self.words()[-3000:])
                if self.lines.fd not in ready:
                    return self.worker.wait()
            n_steps += "step" in self.next()
            self.assertLess(n_steps, MOST_STEPS, "the worker does not end")

    def finish(self, tolerance=0):
        """Trains on until two more checkpoints are written, and ends all."""
        n_saves = 0
        while n_saves < 2:
            n_saves += "saved" in self.next(tolerance)
        with open(self.end, "w", encoding="utf-8"):
            pass
        while (line := self.lines.line()) is not None:
            self.note(json.loads(line), tolerance)
        self.assertEqual(self.client.wait(timeout=harness.DEADLINE_S), 0, self.words()[-3000:])
        self.assertGreater(self.n_repeated, 0)
        self.end_tasks()

    def end_tasks(self):
        for process in (self.master, self.worker, self.ps):
            self.assertIsNone(process.poll())
            process.terminate()
            self.assertEqual(process.wait(timeout=harness.DEADLINE_S), 0)
        self.assertFalse(os.path.exists(self.path("report")))

    def survive(self, state, specials, status):
        """Trains while the worker ends in each special environment, one after the other."""
        self.start(state, "require", specials[0])
        for special in [*specials[1:], {}]:
            self.assertEqual(self.wait_for_end_of_worker(), status, special)
            self.start_worker(special, self.address)
        self.finish()

    def test_a_killed_worker(self):
        """With its variables on the GPU, or on a parameter server."""
        for state, calls in ((GPU, KILLS), (PS, KILLS[:2])):
            with self.subTest(state):
                self.survive(state, [{"MILLRACE_SIM_LAST": call} for call in calls],
                             -signal.SIGKILL)
                self.assertRegex(self.words(), "Lost the connection to task /job:worker/replica:0/"
                                 "task:0:|Task /job:worker/replica:0/task:0 at .* is not reachable")

    def test_a_failed_gpu_whose_worker_starts_again(self):
        for state, failures in ((GPU, FAILURES), (PS, FAILURES[:2])):
            with self.subTest(state):
                self.survive(state, [failing(*failure) for failure in failures], GPU_FAILED)
                words = self.words()
                self.assertRegex(words, "From /job:worker/replica:0/task:0:\ncuLaunchKernel failed:"
                                        ".*CUDA error 700")
                self.assertIn("Xid 79", words)

    def test_a_failed_gpu_that_the_session_can_do_without(self):
        """With soft placement it goes on with the CPU of the same worker."""
        self.start(GPU, "auto", failing(*FAILURES[0]), "soft")
        while self.n_begun < 2:
            self.next()
        self.finish(NEARLY)
        self.assertRegex(self.words(), "cuLaunchKernel failed: .*CUDA error 700")

    def test_a_failed_gpu_that_the_session_asks_for(self):
        """The session ends, and says which device is out and why. The worker goes on."""
        self.start(GPU, "auto", failing("cuLaunchKernel:30", LOST))
        while "error" not in (told := json.loads(self.lines.line())):
            self.note(told)
        self.assertEqual(told["error"], "InvalidArgumentError")
        self.assertRegex(told["message"],
                         r"/job:worker/replica:0/task:0/device:GPU:0 is not available: GPU 0 "
                         r"\(.*\) has failed, .*CUDA error 999\), Xid 79")
        self.assertEqual(self.client.wait(timeout=harness.DEADLINE_S), 0)
        status = json.loads(raw.page(self.admin, "/statusz")[1])
        gpu, = (row for row in status["devices"] if row["name"].endswith("GPU:0"))
        self.assertIn("Xid 79", gpu["failed"])
        self.end_tasks()


if __name__ == "__main__":
    unittest.main()
