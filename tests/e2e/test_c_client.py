"""tfctl devices and tfctl run: the same graphs on our cluster and on TensorFlow's own server."""
import json
import os
import socket
import sys

import numpy as np

import harness
from harness import LineReader, LocalCluster, TestCase, program

SERVER = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
server = tf.distribute.Server({"worker": [sys.argv[1]]}, job_name="worker", task_index=0)
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""

GRAPH = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_control_flow_v2()
graph = tf.Graph()
with graph.as_default(), tf1.device("/job:worker/task:0"):
    a = tf1.placeholder(tf.float32, [None, 3], name="a")
    b = tf1.placeholder(tf.float32, [], name="b")
    tf.multiply(a, b, name="c")
    n = tf1.placeholder(tf.int32, [], name="n")
    tf.add(n, 1, name="next")
    long = tf1.placeholder(tf.int64, [2], name="long")
    tf.identity(long, name="same_long")
    text = tf1.placeholder(tf.string, [], name="text")
    tf.identity(text, name="same_text")
    flag = tf1.placeholder(tf.bool, [], name="flag")
    tf.logical_not(flag, name="other_flag")
    tf1.unstack(a, num=3, axis=1, name="columns")
    tf.identity(tf.cast(a, tf.bfloat16), name="brain")
    v = tf1.get_variable("v", [], tf.float32, tf1.constant_initializer(41.0), use_resource=False)
    tf1.assign_add(v, 1.0, name="bump")
    tf.group(v.initializer, name="init")
    tf.identity(tf1.while_loop(lambda i: i < 1 << 60, lambda i: i + 1, [tf.constant(0, tf.int64)]),
                name="endless")
    p, q = tf.ones([2], name="p"), tf.ones([3], name="q")
    tf.add(p, p, name="misfit")
graphdef = graph.as_graph_def()
# No client library makes such a graph.
next(node for node in graphdef.node if node.name == "misfit").input[1] = "q"
with open(sys.argv[1], "wb") as f:
    f.write(graphdef.SerializeToString())
"""


class ClientTests:
    """What must hold on any cluster; self.target() is one."""

    @classmethod
    def setUpClass(cls):
        cls.graph = os.path.join(harness.tempfile.mkdtemp(prefix="millrace-e2e-graph-"), "graph.pb")
        harness.subprocess.run([harness.WARM_PYTHON, "-c", GRAPH, cls.graph], check=True,
                               stderr=harness.subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        harness.shutil.rmtree(os.path.dirname(cls.graph))

    def step(self, *args, code=0, timeout="20s"):
        return self.expect(code, "tfctl", "run", self.graph, "--timeout", timeout, *args,
                           env={"MILLRACE_TARGET": self.target})

    def test_shapes_that_cannot_fit_fail_the_step_that_needs_them(self):
        _, err = self.step("--fetch", "misfit", code=70)
        self.assertIn("INVALID_ARGUMENT", err)
        self.assertIn("Incompatible shapes: [2] vs. [3]\n\t [[{{node misfit}}]]", err)
        self.step("--feed", "n=3", "--fetch", "next")

    def test_devices(self):
        out, _ = self.expect(0, "tfctl", "devices", env={"MILLRACE_TARGET": self.target})
        self.assertIn("/job:worker/replica:0/task:0/device:CPU:0", out)
        listed = json.loads(self.expect(0, "tfctl", "devices", "--json", "--target",
                                        self.target)[0])
        cpu = next(d for d in listed if d["name"] == "/job:worker/replica:0/task:0/device:CPU:0")
        self.assertEqual(cpu["type"], "CPU")
        self.assertRegex(cpu["incarnation"], r"^[0-9a-f]{16}$")

    def test_literals(self):
        for feed, fetch, printed in (
                ("n=3", "next", "next = int32[]{4}"), ("n:0=-7", "next:0", "next:0 = int32[]{-6}"),
                ("long=int64[2]{1, 5000000000}", "same_long",
                 "same_long = int64[2]{1, 5000000000}"),
                ('text="a \\"quoted\\" text"', "same_text",
                 'same_text = string[]{"a \\"quoted\\" text"}'),
                ("flag=true", "other_flag", "other_flag = bool[]{false}")):
            out, _ = self.step("--feed", feed, "--fetch", fetch)
            self.assertEqual(out, printed + "\n")

    def test_arrays(self):
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.save(self.path("a.npy"), a)
        out, _ = self.step("--feed", f"a=@{self.path('a.npy')}", "--feed", "b=1.5", "--fetch",
                           f"c=@{self.path('c.npy')}", "--fetch", "columns:2",
                           "--fetch", "brain")
        self.assertEqual(out.splitlines(), [f"c = float[2,3] in {self.path('c.npy')}",
                                            "columns:2 = float[2]{2, 5}",
                                            "brain = bfloat16[2,3]{0, 1, 2, 3, 4, 5}"])
        np.testing.assert_array_equal(np.load(self.path("c.npy")), a * np.float32(1.5))

    def test_a_large_array(self):
        a = np.random.RandomState(1).rand(1 << 20, 3).astype(np.float32)
        np.save(self.path("a.npy"), a)
        self.step("--feed", f"a=@{self.path('a.npy')}", "--feed", "b=2.0", "--fetch",
                  f"c=@{self.path('c.npy')}")
        np.testing.assert_array_equal(np.load(self.path("c.npy")), a * np.float32(2))
        out, _ = self.step("--feed", f"a=@{self.path('a.npy')}", "--feed", "b=0.0", "--fetch", "c",
                           "--max-elements", "2")
        self.assertEqual(out, "c = float[1048576,3]{0, 0, …}\n")

    def test_variables_outlive_the_session(self):
        self.step("--target-op", "init")
        self.assertEqual(self.step("--fetch", "bump")[0], "bump = float[]{42}\n")
        self.assertEqual(self.step("--fetch", "bump")[0], "bump = float[]{43}\n")

    def test_errors_of_the_step(self):
        _, err = self.step("--fetch", "next", code=70)
        self.assertRegex(err, r"(?s)^tfctl run: INVALID_ARGUMENT: .*placeholder tensor 'n'")
        _, err = self.step("--fetch", "nowhere", code=70)
        self.assertRegex(err, r"(?s)^tfctl run: NOT_FOUND: .*nowhere")

    def test_a_timeout(self):
        _, err = self.step("--fetch", "endless", code=70, timeout="300ms")
        self.assertRegex(err, r"^tfctl run: DEADLINE_EXCEEDED: ")

    def test_errors_of_the_command_line(self):
        for args in (["--feed", "n"], ["--feed", "n=what"], ["--feed", "n=5000000000"],
                     ["--feed", 'text="open'], ["--fetch", "c=file"], []):
            self.step(*args, code=64)
        for value in ("5000000000", "-18446744073709551617", "18446744073709551617"):
            self.step("--feed", f"n={value}", "--fetch", "next", code=64)
        self.step("--feed", "a=@/nonexistent.npy", "--fetch", "c", code=74)
        self.step("--feed", "n=1", "--fetch", "next=@/nonexistent/n.npy", code=74)
        self.expect(74, "tfctl", "run", "/nonexistent.pb", "--fetch", "c", "--target", self.target)


class TestMillrace(ClientTests, TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = LocalCluster(self, "--workers", "1", "--quiet")
        self.target = self.cluster.target


class TestCheckedShapes(TestCase):
    """A master with --check-shapes, and the graph of the other tests, which has a misfit."""

    def daemon(self, name, *args):
        port_file = self.path(f"{name}.port")
        process = self.popen([program(name), *args, "--listen", "127.0.0.1:0", "--admin", "off",
                              "--port-file", port_file])
        LineReader(process.stderr).until(" port ")
        with open(port_file) as f:
            return f.readline().strip()

    def test_a_graph_whose_shapes_cannot_fit_is_refused_when_it_comes(self):
        graph = self.path("graph.pb")
        harness.subprocess.run([harness.WARM_PYTHON, "-c", GRAPH, graph], check=True,
                               stderr=harness.subprocess.DEVNULL)
        worker = self.daemon("tf-worker", "--job", "worker", "--task", "0")
        master = self.daemon("tf-master", "--cluster", f"worker=127.0.0.1:{worker}",
                             "--check-shapes")
        _, err = self.expect(70, "tfctl", "run", graph, "--target", f"grpc://127.0.0.1:{master}",
                             "--feed", "n=3", "--fetch", "next")
        self.assertRegex(err,
                         r"Dimensions must be equal, but are 2 and 3 for '\{\{node misfit\}\} = "
                         r"AddV2\[T=DT_FLOAT")
        self.assertIn("(p, q)' with input shapes: [2], [3].", err)


class TestTensorFlow(ClientTests, TestCase):
    """One server for all its tests: it takes seconds to start."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{s.getsockname()[1]}"
        cls.target = f"grpc://{address}"
        cls.server = harness.subprocess.Popen([harness.PYTHON, "-c", SERVER, address],
                                              stdin=harness.subprocess.PIPE,
                                              stdout=harness.subprocess.PIPE,
                                              stderr=harness.subprocess.DEVNULL)
        LineReader(cls.server.stdout).until("ready")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.communicate()
        super().tearDownClass()


class TestNoMaster(TestCase):
    def test_nobody_is_there(self):
        with socket.socket() as s:  # bound, never listening: nobody else gets the port
            s.bind(("127.0.0.1", 0))
            target = f"grpc://127.0.0.1:{s.getsockname()[1]}"
            _, err = self.expect(74, "tfctl", "devices", "--target", target)
            self.assertRegex(err, r"^tfctl devices: UNAVAILABLE: ")
        self.expect(64, "tfctl", "devices", "--target", "grpc://nowhere")


if __name__ == "__main__":
    sys.exit("run by tests/e2e/run.py")
