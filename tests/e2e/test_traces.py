"""Traces of steps over several tasks: on one clock, with what crosses between tasks."""
import json
import os
import re

import harness
from harness import ROOT, WARM_PYTHON
from test_pages import PagesCase

PROGRAM = os.path.join(ROOT, "tests", "e2e", "trace_programs.py")
CLOCK_AHEAD = os.path.join(os.path.dirname(harness.BIN), "tests", "e2e", "clock_ahead.so")
AHEAD_MS = 3000


class TestRunMetadata(PagesCase):
    """The worker's clock is three seconds ahead."""

    def setUp(self):
        super().setUp()
        if harness.SANITIZED:
            self.skipTest("the sanitizers want to be loaded first")
        self.start(environment={"worker": {"LD_PRELOAD": CLOCK_AHEAD,
                                           "MILLRACE_TEST_CLOCK_AHEAD_MS": AHEAD_MS}})
        out, _ = self.expect(0, WARM_PYTHON, PROGRAM, f"grpc://127.0.0.1:{self.port}")
        self.result = json.loads(out.splitlines()[-1])

    def rows(self, name, job):
        return [row for row in self.result["nodes"]
                if row["name"] == name and row["device"].startswith(f"/job:{job}/")]

    def test_a_step_has_one_clock_and_says_what_travelled(self):
        task = next(row for row in self.json_of("master", "/statusz")["service"]["tasks"]
                    if row["task"].startswith("/job:worker"))
        self.assertAlmostEqual(task["clock_offset_us"] / 1e3, AHEAD_MS, delta=500)
        for row in self.result["nodes"]:
            # the client's clock is the master's
            self.assertGreater(row["start_us"], self.result["before_us"] - 5e5, row)
            self.assertLess(row["end_us"], self.result["after_us"] + 5e5, row)
        sent, received = self.rows("SendTensor", "ps"), self.rows("RecvTensor", "worker")
        for rows in (sent, received):
            labels = [row["label"] for row in rows]
            large = next(label for label in labels if "doubled:0" in label)
            self.assertRegex(large, r"\[1\.0MB\] \[[\d.]+[GM]b/s\] doubled:0 from "
                                    r"/job:ps/replica:0/task:0/device:CPU:0 to "
                                    r"/job:worker/replica:0/task:0/device:CPU:0 over shm$")
            small = next(label for label in labels if "there:0" in label)
            self.assertRegex(small, r"\[16B\] .* over unix$")
        # TensorFlow's timeline draws arrows from the nodes of the ps to those of the worker
        arrows = [(re.sub(" .*", "", start), re.sub(" .*", "", end), name)
                  for start, end, name in self.result["arrows"]]
        self.assertIn(("/job:ps/replica:0/task:0/device:CPU:0",
                       "/job:worker/replica:0/task:0/device:CPU:0", "doubled"), arrows)
