"""TensorFlow's debugger (tfdbg) on a cluster: dumps, options, and its command line finds the first
NaN."""
import os
import subprocess
import unittest

from harness import ROOT, WARM_PYTHON, TestCase, program
from test_gpu import SIMULATION, simulation

PROGRAM = os.path.join(ROOT, "tests", "e2e", "debugger_programs.py")
DEVICE = "/job:{}/replica:0/task:0/device:CPU:0"


class DebuggerCase(TestCase):
    def output(self, name, typed=None, env=None):
        """What the program prints, by the words before the colons."""
        options = {"stdin": subprocess.PIPE} if typed else {}
        process = self.popen(
            [program("tfctl"), "local", "--ps", "1", "--workers", "1", "--quiet",
             f"--worker-flag=--file-root={self.tmp}", "--", WARM_PYTHON, PROGRAM, name,
             os.path.join(self.tmp, "dump")], env={"TF_CPP_MIN_LOG_LEVEL": 3, **(env or {})},
            **options)
        out, err = process.communicate(typed, timeout=200)
        self.assertEqual(process.returncode, 0, f"{out.decode()}\n{err.decode()}")
        return out.decode()

    def rows(self, text):
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


class TestDebugger(DebuggerCase):
    def test_the_dumps_of_a_step(self):
        rows = self.rows(self.output("dumps"))
        worker, ps = DEVICE.format("worker"), DEVICE.format("ps")
        self.assertEqual(rows["first"], f"first_nan 0 {worker}")
        self.assertEqual(rows["devices"], str([ps, worker]))
        self.assertEqual(rows["graph"], f"{worker} ['add', 'Const_2']")
        self.assertEqual(rows["names"], "['x:0'] loss:0")
        self.assertEqual(rows["value"], "[0.0, nan]")
        self.assertEqual(rows["numbers"], "[1.0, 2.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, "
                                          "0.0, 1.0, 1.0, 2.0]")
        self.assertEqual(rows["turns"], "[0, 1, 2, 3]")
        self.assertEqual(rows["taken"], "[True, False]")
        self.assertEqual(rows["ref"], "[1.0, -1.0]")

    def test_a_variable_in_the_step_that_initializes_it(self):
        rows = self.rows(self.output("initializing"))
        self.assertEqual((rows["before"], rows["after"]), ("False", "[1.0, -1.0]"))

    def test_options_and_refusals(self):
        text = self.output("options")
        for part in ("kernel: FailedPreconditionError",
                     "Failed to create debug node DebugNanCount for tensor r:0", "tolerated: none",
                     "Op type not registered 'DebugNothing'", "Log is no debug op",
                     "DebugNumericSummary has no attr 'no_such'", "spec: none",
                     "root: PermissionDeniedError", "--file-root"):
            self.assertIn(part, text)
        dumped = os.path.join(self.tmp, "dump", "_tfdbg_device_,job_worker,replica_0,task_0,"
                              "device_CPU_0")
        self.assertTrue(any(name.startswith("first_nan_0_DebugNumericSummary_")
                            for name in os.listdir(dumped)))

    def test_a_wrapped_session_dumps_each_run(self):
        lines = [line for line in self.output("dumping").splitlines() if line.startswith("run: ")]
        self.assertEqual(len(lines), 2, lines)
        for line in lines:
            self.assertRegex(line, "^run: first_nan .*loss:0")

    def test_the_command_line_finds_the_first_nan(self):
        text = self.output("cli", b"run -f has_inf_or_nan\npt first_nan:0\nexit\n")
        tensors = text.split("passing filter", 1)[1]
        self.assertRegex(tensors, r"(?s)Tensor name\n\[[\d.]+\] +\d+ +Log +first_nan:0\n")
        self.assertIn("array([ 0., nan], dtype=float32)", text)
        self.assertIn("loss: nan", text)


@unittest.skipUnless(os.path.exists(os.path.join(SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestDebuggerOfGpus(DebuggerCase):
    def test_each_device_of_a_task_has_a_graph(self):
        rows = self.rows(self.output("dumps", env=simulation(1)))
        gpu = DEVICE.format("worker").replace("CPU", "GPU")
        self.assertEqual(rows["first"], f"first_nan 0 {gpu}")
        self.assertIn(gpu, rows["devices"])
        self.assertEqual((rows["value"], rows["ref"]), ("[0.0, nan]", "[1.0, -1.0]"))
