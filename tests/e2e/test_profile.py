"""TensorFlow's client and TensorBoard's button capture a profile: from the master, and from workers
that relay to it."""
import glob
import gzip
import json
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request

import harness
from harness import DEADLINE_S, ROOT, WARM_PYTHON, LineReader, TestCase
from test_membership import Daemon
from test_tls import free_ports

TENSORBOARD = os.path.join(ROOT, ".venv-tools", "bin", "tensorboard")
STEPS = os.path.join(ROOT, "tests", "e2e", "profile_steps_program.py")
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


class ProfiledCluster(TestCase):
    """A ps and two workers with client ports, a master, and a client that runs steps all the
    time."""

    def setUp(self):
        super().setUp()
        port = free_ports(1)[0]
        to_master = ("--client-port", 0, "--master", f"127.0.0.1:{port}")
        ps = Daemon(self, "tf-worker", "--job", "ps", "--task", 0)
        workers = [Daemon(self, "tf-worker", "--job", "worker", "--task", i, *to_master)
                   for i in range(2)]
        addresses = ";".join(f"127.0.0.1:{worker.port}" for worker in workers)
        self.master = self.popen([
            harness.program("tf-master"), "--listen", f"127.0.0.1:{port}", "--admin", "off",
            "--cluster", f"ps=127.0.0.1:{ps.port},worker={addresses}", "--drain-timeout", "20s"])
        self.master_log = LineReader(self.master.stderr)
        self.master_log.until("is ready")
        self.address = f"127.0.0.1:{port}"
        self.worker_addresses = [f"127.0.0.1:{worker.ports['client']}" for worker in workers]
        self.client = self.popen([WARM_PYTHON, STEPS],
                                 {"MILLRACE_TARGET": f"grpc://{self.address}",
                                  "TF_CPP_MIN_LOG_LEVEL": 3})
        self.assertEqual(LineReader(self.client.stdout).line(), "running")

    def traced(self, addresses, duration_ms):
        """A process that captures by TensorFlow's client."""
        code = ("import sys, tensorflow as tf\n"
                "tf.profiler.experimental.client.trace(sys.argv[1], sys.argv[2], int(sys.argv[3]),"
                " num_tracing_attempts=1)\n")
        return self.popen([WARM_PYTHON, "-c", code, ",".join(f"grpc://{a}" for a in addresses),
                           self.path("log"), duration_ms], {"TF_CPP_MIN_LOG_LEVEL": 3})

    def captured(self):
        """The files of captures, by host."""
        paths = glob.glob(self.path("log/plugins/profile/*/*.xplane.pb"))
        return {os.path.basename(path)[:-len(".xplane.pb")]: path for path in paths}


class TestProfileOfWorkers(ProfiledCluster):
    def test_a_capture_of_several_tasks_has_a_file_for_each(self):
        addresses = [self.address, *self.worker_addresses]
        process = self.traced(addresses, 300)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, err.decode())
        files = self.captured()
        self.assertEqual(sorted(files), sorted(a.replace(":", "_") for a in addresses))
        for path in files.values():
            with open(path, "rb") as f:
                self.assertIn(b"product:MatMul", f.read())


class TestProfileOfAMasterThatStops(ProfiledCluster):
    def test_a_capture_ends_when_its_master_drains(self):
        """With what it has by then, long before its ten minutes."""
        process = self.traced([self.address], 600 * 1000)
        self.wait_until_steps_are_traced()
        start = time.monotonic()
        self.master.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertLess(time.monotonic() - start, DEADLINE_S)
        self.assertEqual(process.returncode, 0, err.decode())
        [path] = self.captured().values()
        with open(path, "rb") as f:
            self.assertIn(b"product:MatMul", f.read())
        self.wait_for_exit(self.master)

    def wait_until_steps_are_traced(self):
        """A second capture, that ends, began after the first, and has steps: so has the first."""
        second = self.popen([
            WARM_PYTHON, "-c", "import sys, tensorflow as tf\n"
            "print(tf.profiler.experimental.client.monitor(sys.argv[1], 200, level=1))",
            f"grpc://{self.address}"], {"TF_CPP_MIN_LOG_LEVEL": 3})
        out, err = second.communicate(timeout=DEADLINE_S)
        self.assertIn(b"Steps:", out, err.decode())


class TestTensorBoardsButton(ProfiledCluster):
    def setUp(self):
        if not glob.glob(os.path.join(ROOT, ".venv-tools", "lib", "*", "site-packages", "xprof")):
            self.skipTest("xprof, TensorBoard's profile plugin, is not installed (tools/setup all)")
        super().setUp()
        os.mkdir(self.path("log"))
        server = self.popen([TENSORBOARD, "--logdir", self.path("log"), "--host", "127.0.0.1",
                             "--port", "0", "--load_fast", "false"])
        line = LineReader(server.stderr).until("at http://")
        self.base = line.split(" at ", 1)[1].split("/ ", 1)[0] + "/data/plugin/profile/"

    def get(self, path, **query):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.base}{path}?{urllib.parse.urlencode(query)}",
                             timeout=DEADLINE_S) as reply:
                return self.text_of(reply)
        except urllib.error.HTTPError as error:
            return self.text_of(error)

    @staticmethod
    def text_of(reply):
        data = reply.read()
        is_packed = reply.headers.get("Content-Encoding") == "gzip"
        return (gzip.decompress(data) if is_packed else data).decode()

    def capture(self, address):
        """What the button "Capture profile" sends."""
        return json.loads(self.get("capture_profile", service_addr=address, is_tpu_name="false",
                                   duration=300, num_retry=0, worker_list="", delay=0,
                                   host_tracer_level=2, device_tracer_level=1,
                                   python_tracer_level=0))

    def test_it_captures_from_a_worker_and_shows_the_steps(self):
        self.assertIn("successfully", self.capture(self.worker_addresses[1])["result"])
        [run] = json.loads(self.get("runs"))
        tools = json.loads(self.get("run_tools", run=run))
        self.assertLessEqual({"overview_page", "trace_viewer@"}, set(tools))
        [host] = json.loads(self.get("hosts", run=run, tag="trace_viewer@"))
        events = json.loads(self.get("data", run=run, tag="trace_viewer@",
                                     host=host["hostname"]))["traceEvents"]
        names = {event.get("name") for event in events}
        self.assertLessEqual({"product:MatMul", "SessionRun", "RecvTensor"}, names)
        json.loads(self.get("data", run=run, tag="overview_page", host=host["hostname"]))
        self.assertIn("error", self.capture(f"127.0.0.1:{free_ports(1)[0]}"))
