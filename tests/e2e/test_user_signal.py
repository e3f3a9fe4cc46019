"""SIGUSR1: a daemon logs what its steps wait for, and goes on."""
import signal
import subprocess

from harness import WARM_PYTHON, LineReader, TestCase, program

PROGRAM = """
import json, os, threading, urllib.request
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
with tf1.device("/job:worker/task:0"):
    value = tf1.FIFOQueue(1, [tf.float32], name="empty").dequeue()
session = tf1.Session(os.environ["MILLRACE_TARGET"])
threading.Thread(target=session.run, args=[value], daemon=True).start()
admin = json.loads(os.environ["MILLRACE_ADMIN"])
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while b"empty" not in opener.open(f"http://{admin['master']}/stepz").read():
    pass
print("it waits", flush=True)
threading.Event().wait()
"""


class TestUserSignal(TestCase):
    def test_a_daemon_without_steps(self):
        for name in (["tf-worker"], ["tf-master", "--cluster", "worker=127.0.0.1:1"]):
            process = self.popen([program(name[0]), *name[1:], "--listen", "127.0.0.1:0"])
            lines = LineReader(process.stderr)
            lines.until("serving")
            process.send_signal(signal.SIGUSR1)
            lines.until("stepz: no step runs")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.wait_for_exit(process), 0)

    def test_a_step_that_waits(self):
        cluster = self.popen([program("tfctl"), "local", "--workers", "1", "--", WARM_PYTHON, "-c",
                              PROGRAM], env={"TF_CPP_MIN_LOG_LEVEL": 3})
        lines = LineReader(cluster.stderr)
        LineReader(cluster.stdout).until("it waits")
        daemons = subprocess.check_output(["ps", "--ppid", str(cluster.pid), "-o", "pid="],
                                          text=True).split()
        pids = subprocess.check_output(
            ["ps", "--ppid", ",".join([str(cluster.pid), *daemons]), "-o", "pid=,comm="], text=True)
        for row in pids.splitlines():
            pid, name = row.split()
            if name in ("tf-master", "tf-worker"):
                subprocess.run(["kill", "-USR1", pid], check=True)
                for _ in range(2):  # what runs, and what it waits for
                    line = lines.until("stepz: ")
                    self.assertEqual(line.split()[0],
                                     {"tf-master": "master", "tf-worker": "worker/0"}[name])
                self.assertIn("empty", line)
        cluster.send_signal(signal.SIGTERM)
        self.wait_for_exit(cluster)
