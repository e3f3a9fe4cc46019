"""--log-format json: each line of a cluster's run is an object, and its event is documented."""
import json
import os
import re
import signal

from harness import ROOT, WARM_PYTHON, LineReader, LocalCluster, TestCase, program

PROGRAM = """
import os
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
with tf1.device("/job:worker/task:0"):
    text = tf1.constant("a \\"quoted\\" \\n line")
    value = tf1.Print(tf1.constant([1., 2.]), [text], "printed: ")
    loud = tf1.print("to stderr")
with tf1.Session(os.environ["MILLRACE_TARGET"]) as session:
    session.run([value, loud])
    try:
        session.run(tf1.Assert(tf1.equal(value[0], 2.), ["no"]))
    except tf1.errors.InvalidArgumentError:
        pass
"""


def documented_events():
    with open(os.path.join(ROOT, "docs", "log-events.md"), encoding="utf-8") as f:
        return set(re.findall(r"^\| `([\w.]+)` \|", f.read(), re.M))


class TestLogFormat(TestCase):
    def expect_json(self, text):
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            self.assertGreaterEqual(line.keys(), {"time", "level", "task", "event", "message"})
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("debug", "info", "warning", "error"))
            self.assertIn(line["event"], documented_events())
        return lines

    def test_every_line_of_a_cluster_is_json(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "2", "--log-format", "json",
                               "--log-level", "debug")
        self.expect(0, WARM_PYTHON, "-c", PROGRAM,
                    env={"MILLRACE_TARGET": cluster.target, "TF_CPP_MIN_LOG_LEVEL": 3})
        self.assertEqual(cluster.stop(), 0)
        lines = self.expect_json(cluster.err.to_end())
        events = {line["event"] for line in lines}
        self.assertLessEqual({"daemon.serving", "task.ready", "graph.print", "daemon.draining"},
                             events)
        printed = [line["message"] for line in lines if line["event"] == "graph.print"]
        self.assertEqual(len(printed), 3, printed)
        self.assertTrue(any(text.startswith("printed: ") for text in printed), printed)
        self.assertIn("to stderr", printed)
        self.assertFalse([line for line in lines if line["level"] in ("warning", "error")], lines)

    def daemon(self, name, *args):
        process = self.popen([program(name), *args, "--listen", "127.0.0.1:0", "--admin", "off",
                              "--log-format", "json", "--port-file", self.path(name)])
        lines = LineReader(process.stderr)
        lines.until("daemon.serving")
        with open(self.path(name), encoding="utf-8") as f:
            return process, lines, int(f.readline())

    def leave(self, signo):
        worker, _, port = self.daemon("tf-worker")
        master, lines, _ = self.daemon("tf-master", "--cluster", f"worker=127.0.0.1:{port}")
        lines.until("task.ready")
        worker.send_signal(signo)
        self.wait_for_exit(worker)
        line = json.loads(lines.until('"task.l'))
        master.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(master), 0)
        return line["event"], line["level"]

    def test_who_leaves_on_purpose_is_no_warning(self):
        self.assertEqual(self.leave(signal.SIGTERM), ("task.left", "info"))
        self.assertEqual(self.leave(signal.SIGKILL), ("task.lost", "warning"))

    def test_an_unknown_format_is_refused(self):
        code, _, err = self.run_program("tf-worker", "--log-format", "xml")
        self.assertEqual(code, 64)
        self.assertIn("text", err)
        self.assertIn("json", err)
