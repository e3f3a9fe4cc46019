"""Every wait ends within 100 ms of its cancel and leaves the resource that it waited for intact.
The client is wait_programs.py."""
import json
import os
import subprocess

from fault_case import KILLED_S, SLOW, FaultCase, say
from harness import ROOT, WARM_PYTHON, LineReader

PROGRAM = os.path.join(ROOT, "tests", "e2e", "wait_programs.py")
CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, ABORTED, UNAVAILABLE = 1, 3, 4, 10, 14
CODES = {"timeout": [DEADLINE_EXCEEDED], "operation_timeout": [DEADLINE_EXCEEDED],
         "close": [CANCELLED], "error_same_task": [INVALID_ARGUMENT],
         # fmt: skip
         "error_other_task": [INVALID_ARGUMENT], "reset": [CANCELLED, ABORTED],
         "kill": [UNAVAILABLE, ABORTED]}
ENDS_S = 0.1 * SLOW


class TestWaits(FaultCase):
    n_workers = 1

    def start(self, *ends):
        process = self.popen([WARM_PYTHON, PROGRAM, self.cluster.target, self.master.admin_port,
                              *ends], {"TF_CPP_MIN_LOG_LEVEL": 3},
                             stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        return process, LineReader(process.stdout)

    def check_rows(self, lines, limit_s):
        """Each row ended as it had to, and left things whole. The times are looked at together: one
        late answer may be this machine's."""
        rows = []
        while (line := lines.line()) is not None:
            row = json.loads(line)
            if "done" in row:
                break
            self.assertNotIn("failed", row, row.get("failed"))
            self.assertNotIn("hangs", row, row)
            self.assertIn(row["code"], CODES[row["end"]], row)
            self.assertEqual(row["after"], row["before"], row)
            self.assertTrue(row["works"], row)
            rows.append(row)
        self.assertGreaterEqual(len(rows), 20)
        took = sorted(row["took_s"] for row in rows)
        say(f"{len(rows)} waits, each ended; the median after", max(took[len(took) // 2], 0))
        self.assertLess(took[len(took) // 2], limit_s)
        self.assertLess(took[-1], 10 * limit_s, max(rows, key=lambda row: row["took_s"]))

    def check_end(self, *ends):
        process, lines = self.start(*ends)
        self.check_rows(lines, ENDS_S)
        self.assertEqual(process.wait(60), 0)
        self.cluster.check()

    def test_timeouts(self):
        self.check_end("timeout")

    def test_timeouts_of_a_session(self):
        self.check_end("operation_timeout")

    def test_closed_sessions(self):
        self.check_end("close")

    def test_errors_beside(self):
        self.check_end("error_same_task")

    def test_errors_on_another_task(self):
        self.check_end("error_other_task")

    def test_resets(self):
        self.check_end("reset")

    def test_deaths(self):
        process, lines = self.start("kill")
        self.assertTrue(json.loads(lines.line()).get("kill"))
        since = self.kill(self.ps)
        self.restart(self.ps)
        process.stdin.write(json.dumps({"at": since}).encode() + b"\n")
        process.stdin.flush()
        self.check_rows(lines, KILLED_S)
        self.assertEqual(process.wait(60), 0)
