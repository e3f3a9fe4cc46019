"""tf-master --with-worker: one process that is a whole cluster."""
import json
import signal
import urllib.request

from harness import WARM_PYTHON, LineReader, TestCase, program, sanitized_too

# a deterministic step of a training program, and what it must give
PROGRAM = """
import os, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
w = tf.Variable([[1.0], [1.0]])
loss = tf.reduce_sum(tf.square(tf.matmul(x, w) - 1.0))
step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
saver = tf.train.Saver()
with tf.Session(sys.argv[1]) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        session.run(step)
    saver.save(session, sys.argv[2])
    session.run(tf.global_variables_initializer())
    saver.restore(session, sys.argv[2])
    print(session.run(w).ravel().tolist())
"""


class TestWithWorker(TestCase):
    def start(self, *flags):
        process = self.popen([program("tf-master"), "--with-worker", "--gpu", "off", "--listen",
                              "127.0.0.1:0", "--port-file", self.path("port"), *flags])
        err = LineReader(process.stderr)
        err.until("serving grpc")
        with open(self.path("port"), encoding="utf-8") as f:
            port, admin = f.read().split()[0::2]
        return process, f"grpc://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"

    def page(self, admin, path):
        with urllib.request.urlopen(admin + path, timeout=60) as reply:
            return reply.read().decode()

    @sanitized_too
    def test_devices_and_end(self):
        process, target, _ = self.start("--cpu-devices", "2")
        out, _ = self.expect(0, "tfctl", "devices", "--json", "--target", target)
        self.assertEqual([d["name"] for d in json.loads(out)],
                         [f"/job:worker/replica:0/task:0/device:CPU:{i}" for i in (0, 1)])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(process), 0)
        self.expect_nothing_left()

    def test_training_and_pages(self):
        process, target, admin = self.start("--file-root", self.directory, "--memory-limit", "64M")
        out, _ = self.expect(0, "/bin/sh", "-c", f'exec "{WARM_PYTHON}" -c "$0" "$@"', PROGRAM,
                             target, self.path("model"), timeout_s=400)
        w = json.loads(out.splitlines()[-1])
        expected = [1.0, 1.0]
        for _ in range(3):
            errors = [a * expected[0] + b * expected[1] - 1 for a, b in ((1, 2), (3, 4))]
            gradient = [sum(2 * e * row[i] for e, row in zip(errors, ((1, 2), (3, 4))))
                        for i in (0, 1)]
            expected = [v - 0.01 * g for v, g in zip(expected, gradient)]
        for got, want in zip(w, expected):
            self.assertAlmostEqual(got, want, places=4)
        status = json.loads(self.page(admin, "/statusz?format=json"))
        self.assertEqual(status["worker"]["devices"][0]["memory_limit_bytes"], 64 << 20)
        self.assertEqual([task["address"] for task in status["service"]["tasks"]],
                         ["local:worker"])
        memory = json.loads(self.page(admin, "/memz?format=json"))
        self.assertIn("Variable", json.dumps(memory))
        _, err = self.expect(70, "tfctl", "drain", "/job:worker/task:0", "--admin",
                             admin.removeprefix("http://"))
        self.assertRegex(err, "FAILED_PRECONDITION: .*stop the process with TERM")
        self.assertIn("millrace_device_memory", self.page(admin, "/metrics"))
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.wait_for_exit(process), 0)

    def test_it_is_the_whole_cluster(self):
        for flags, words in ((["--cluster", "worker=127.0.0.1:2300"], "leave out --cluster"),
                             (["--etcd", "http://127.0.0.1:1"], "leave out --etcd")):
            _, err = self.expect(78, "tf-master", "--with-worker", *flags)
            self.assertIn(words, err)
        _, err = self.expect(78, "tf-master", "--cluster", "worker=local:here")
        self.assertIn("only its own process can dial", err)
        _, err = self.expect(78, "tf-master", "--cluster", "worker=127.0.0.1:1", "--file-root",
                             self.tmp)
        self.assertIn("file-root is for the worker of --with-worker", err)
        _, err = self.expect(78, "tf-worker", "--listen", "local:here")
        self.assertIn("no other process can dial", err)
