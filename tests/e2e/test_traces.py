"""Traces of steps over several tasks: on one clock, with what crosses between tasks."""
import json
import os
import re

import harness
from harness import ROOT, WARM_PYTHON
from test_pages import BROWSER, PagesCase, get

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
        # a fused program names the nodes that it stands for
        (fused,) = self.rows("add", "worker")
        self.assertRegex(fused["label"], r"^add = _MrFused\(.*\) of here: Square, "
                                         r"Sum_1: Sum, add: AddV2$")
        # TensorFlow's timeline draws arrows from the nodes of the ps to those of the worker
        arrows = [(re.sub(" .*", "", start), re.sub(" .*", "", end), name)
                  for start, end, name in self.result["arrows"]]
        self.assertIn(("/job:ps/replica:0/task:0/device:CPU:0",
                       "/job:worker/replica:0/task:0/device:CPU:0", "doubled"), arrows)

    def test_the_merged_file(self):
        """That of the traced step and the one before it: /tracez knows them without being asked."""
        out = self.path("trace.json")
        _, err = self.expect(0, "tfctl", "trace", "--steps", "2", "--out", out, "--admin",
                             f"127.0.0.1:{self.admins['master']}")
        self.assertIn("2 steps", err)
        with open(out, encoding="utf-8") as f:
            trace = json.load(f)
        events = trace["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events
                 if e["ph"] == "M" and e["name"] == "process_name"}
        self.assertEqual(set(names.values()), {"master", "/job:ps/replica:0/task:0",
                                               "/job:worker/replica:0/task:0"})
        slices = [e for e in events if e["ph"] == "X"]
        masters = [e for e in slices if names[e["pid"]] == "master" and e["name"] == "add:0"]
        self.assertEqual(len({e["args"]["step"] for e in masters}), 2)
        # on one clock: what the worker did is within the step, though its clock is ahead
        for e in slices:
            step = next(m for m in masters if m["args"]["step"] == e["args"]["step"])
            self.assertGreater(e["ts"], step["ts"] - 1e5)
            self.assertLess(e["ts"] + e["dur"], step["ts"] + step["dur"] + 1e5)
        (product,) = [e for e in slices if e.get("args", {}).get("node") == "product"
                      and e["args"]["step"] == masters[-1]["args"]["step"]]
        self.assertEqual((product["name"], product["args"]["device"]), ("MatMul", "CPU:0"))
        sends = [e for e in slices if e["cat"] == "send"]
        recvs = [e for e in slices if e["cat"] == "recv"]
        self.assertEqual((len(sends), len(recvs)), (4, 4))
        for e in sends + recvs:
            self.assertEqual(e["args"]["bytes"], 1 << 20 if e["name"] == "doubled:0" else 16)
            self.assertIn(e["args"]["transport"], ("shm", "unix"))
            self.assertGreater(e["args"]["bytes_per_second"], 0)
        self.assertEqual({e["args"]["to"] for e in sends}, {"/job:worker/replica:0/task:0"})
        self.assertEqual({e["args"]["from"] for e in recvs}, {"/job:ps/replica:0/task:0"})

        def end(event, inside):
            """The slice that an arrow's end is in."""
            (found,) = [e for e in inside if (e["pid"], e["tid"]) == (event["pid"], event["tid"])
                        and e["ts"] <= event["ts"] <= e["ts"] + e["dur"]]
            return found["name"], found["args"]["step"]

        starts = {e["id"]: end(e, sends) for e in events if e["ph"] == "s"}
        ends = {e["id"]: end(e, recvs) for e in events if e["ph"] == "f"}
        self.assertEqual((len(starts), starts), (4, ends))

    def test_tracez(self):
        page = self.json_of("master", "/tracez")
        self.assertEqual(page["download"], "/tracez?steps=5")
        step = page["steps"][0]
        self.assertEqual((step["runs"], step["code"]), ("add:0", "OK"))
        self.assertGreater(step["on_tasks_us"], 0)
        self.assertEqual({task["task"] for task in page["tasks"] if task["step"] == step["step"]},
                         {"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"})
        slowest = [node for node in page["slowest"] if node["step"] == step["step"]]
        self.assertIn("product", [node["node"] for node in slowest])
        took = [node["took_us"] for node in slowest]
        self.assertEqual(took, sorted(took, reverse=True))
        page = self.json_of("worker", "/tracez")
        self.assertEqual(page["steps"][0]["step"], step["step"])
        self.assertIn(("product", "MatMul"),
                      [(node["node"], node["op"]) for node in page["slowest"]])
        # a browser gets the page as HTML with a link, and behind the link the file
        status, _, body = get(self.admins["master"], "/tracez", BROWSER)
        self.assertIn(b'<a href="/tracez?steps=5">', body)
        status, headers, body = get(self.admins["master"], "/tracez?steps=5", BROWSER)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
        self.assertTrue(json.loads(body)["traceEvents"])
        other = f"/tracez?steps=5&session={'0' * 32}"
        self.assertEqual(self.json_of("master", other)["otherData"]["steps"], 0)
        mine = f"/tracez?steps=3&session={step['session']}"
        self.assertEqual(self.json_of("master", mine)["otherData"]["steps"], 3)
