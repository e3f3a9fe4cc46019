"""Steps that call Python functions of the client; py_functions_program.py is the client."""
import json
import os
import subprocess

from fault_case import FaultCase
from harness import ROOT, WARM_PYTHON, LineReader

PROGRAM = os.path.join(ROOT, "tests", "e2e", "py_functions_program.py")


class TestPyFunctions(FaultCase):
    n_workers = 1

    def start(self, what, **options):
        process = self.popen([WARM_PYTHON, PROGRAM, what, self.cluster.target], {
                             "TF_CPP_MIN_LOG_LEVEL": 3}, stderr=subprocess.DEVNULL, **options)
        return process, LineReader(process.stdout)

    def test_calls_end_as_they_do_in_process(self):
        process, lines = self.start("compare")
        n = 0
        while (line := lines.line()) is not None:
            row = json.loads(line)
            self.assertEqual(row["ours"], row["theirs"], row["case"])
            n += 1
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(n, 17)
        self.cluster.check()

    def shares_memory(self):
        """Has the worker mapped memory of a client?"""
        with open(f"/proc/{self.worker.process.pid}/maps") as maps:
            return "memfd:millrace-py-functions" in maps.read()

    def test_a_client_that_is_killed_leaves_no_memory(self):
        process, lines = self.start("large", stdin=subprocess.PIPE)
        for _ in range(5):
            self.assertEqual(lines.line(), "ok")
        self.assertTrue(self.shares_memory())
        process.kill()
        process.wait()
        self.until(lambda: not self.shares_memory(), "the worker keeps a dead client's memory")
        self.cluster.check()

    def test_a_client_that_leaves_takes_its_memory_along(self):
        process, lines = self.start("large", stdin=subprocess.PIPE)
        self.assertEqual(lines.line(), "ok")
        process.stdin.close()
        lines.to_end()
        self.assertEqual(process.wait(60), 0)
        self.until(lambda: not self.shares_memory(), "the worker keeps the memory")
        self.cluster.check()

    def test_a_task_that_restarts_shares_memory_again(self):
        self.restart_under("large")
        self.assertTrue(self.mapped_again)

    def test_a_task_that_restarts_is_served_again(self):
        self.restart_under("restart")

    def restart_under(self, what):
        process, lines = self.start(what, stdin=subprocess.PIPE)
        for _ in range(3):
            self.assertEqual(lines.line(), "ok")
        self.kill(self.worker)
        self.restart(self.worker)
        answer = lines.line()
        while answer == "ok":  # said before the kill
            answer = lines.line()
        while answer != "ok":
            self.assertIn(answer, ("10", "14"))
            answer = lines.line()
        self.mapped_again = self.shares_memory()
        process.stdin.close()
        lines.to_end()
        self.assertEqual(process.wait(60), 0)
