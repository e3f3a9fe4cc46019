"""TensorFlow's client captures a profile from the master, as TensorBoard does."""
import json
import os

from harness import ROOT, WARM_PYTHON, TestCase

PROGRAM = os.path.join(ROOT, "tests", "e2e", "profile_program.py")
TASK = "/job:{}/replica:0/task:0"


class TestProfile(TestCase):
    def test_a_capture_shows_the_nodes_of_all_tasks(self):
        out, _ = self.expect(0, "tfctl", "local", "--ps", "1", "--workers", "1", "--quiet", "--",
                             WARM_PYTHON, PROGRAM, self.path("log"),
                             env={"TF_CPP_MIN_LOG_LEVEL": 3}, timeout_s=200)
        got = json.loads(out.splitlines()[-1])
        self.assertLessEqual({"/host:CPU", "Task Environment"}, got["lines"].keys() |
                             {"Task Environment"})
        lines = got["lines"]["/host:CPU"]
        of_worker = {name for line, names in lines.items()
                     if line.startswith(f"{TASK.format('worker')} thread ") for name in names}
        of_ps = {name for line, names in lines.items()
                 if line.startswith(f"{TASK.format('ps')} thread ") for name in names}
        self.assertLessEqual({"product:MatMul", "total:Sum", "x/RandomUniform:RandomUniform"},
                             of_worker)
        self.assertIn("product/ReadVariableOp:ReadVariableOp", of_ps)
        self.assertEqual(lines[f"{TASK.format('worker')} receives"], ["RecvTensor"])
        self.assertIn(["SessionRun"], [names for line, names in lines.items()
                                       if line.startswith("session ")])
        self.assertRegex(got["monitor"], r"Timestamp: \d+\nSteps: [1-9]\d* \(.* a second\)\n")
        self.assertRegex(got["hosts"][0], r"^127\.0\.0\.1:\d+$")
        self.assertIn("No trace event was collected", got["empty"])
