"""TensorBoard shows a run on a cluster: scalars, histograms, images, the graph with its devices,
and run metadata."""
import json
import os
import shutil
import struct
import urllib.parse
import urllib.request

from harness import ROOT, WARM_PYTHON, LineReader, TestCase

PROGRAM = os.path.join(ROOT, "tests", "e2e", "tensorboard_program.py")
TENSORBOARD = os.path.join(ROOT, ".venv-tools", "bin", "tensorboard")
TASK = "/job:{}/replica:0/task:0/device:CPU:0"


class TestTensorBoard(TestCase):
    def get(self, path, **query):
        return self.bytes_of(f"{path}?{urllib.parse.urlencode(query)}").decode()

    def bytes_of(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.base}/data/plugin/{path}", timeout=60) as reply:
            return reply.read()

    def setUp(self):
        super().setUp()
        if not os.access(TENSORBOARD, os.X_OK):
            self.skipTest("TensorBoard is not installed (tools/setup all)")
        self.logs = self.path("logs")
        self.expect(0, "tfctl", "local", "--ps", "1", "--workers", "1", "--quiet", "--",
                    WARM_PYTHON, PROGRAM, self.logs, env={"TF_CPP_MIN_LOG_LEVEL": 3},
                    timeout_s=200)
        server = self.popen([TENSORBOARD, "--logdir", self.logs, "--host", "127.0.0.1", "--port",
                             "0", "--load_fast", "false", "--reload_interval", "1"])
        line = LineReader(server.stderr).until("at http://")
        self.base = line.split(" at ", 1)[1].split("/ ", 1)[0]

    def test_it_shows_what_the_cluster_has_computed(self):
        self.wait_until_loaded()
        scalars = json.loads(self.get("scalars/scalars", tag="loss", run="."))
        self.assertEqual([step for _, step, _ in scalars], list(range(20)))
        losses = [value for _, _, value in scalars]
        self.assertEqual(losses, sorted(losses, reverse=True))
        [histogram] = json.loads(self.get("histograms/tags"))["."]
        rows = json.loads(self.get("histograms/histograms", tag=histogram, run="."))
        self.assertEqual(len(rows), 20)
        [picture] = json.loads(self.get("images/images", tag="inputs/image/0", run=".",
                                        sample=0))[-1:]
        png = self.bytes_of(f"images/individualImage?{picture['query']}")
        self.assertEqual(png[:4], b"\x89PNG")
        self.assertEqual(struct.unpack(">II", png[16:24]), (8, 8))
        graph = self.get("graphs/graph", run=".", conceptual="false")
        for part in ('name: "weights"', 'device: "/job:ps/task:0"', 'device: "/job:worker/task:0"',
                     'op: "MatMul"'):
            self.assertIn(part, graph)
        metadata = self.get("graphs/run_metadata", run=".", tag="step 10")
        for job in ("ps", "worker"):
            self.assertIn(f'device: "{TASK.format(job)}"', metadata)
        self.assertIn('timeline_label: "MatMul = MatMul(', metadata)
        self.screenshots()

    def wait_until_loaded(self):
        """The run's last record is the graph; a reload reads what is there, in order."""
        for _ in range(600):
            info = json.loads(self.get("graphs/info"))
            if info.get(".", {}).get("run_graph"):
                return
            self.assertIsNone(self.started[-1].poll())
        self.fail("TensorBoard has not read the run")

    def screenshots(self):
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        for page in ("timeseries", "graphs") if chromium else ():
            path = self.path(f"{page}.png")
            self.expect(
                0, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", f"--user-data-dir={self.path('chromium')}",
                "--window-size=1400,900", "--virtual-time-budget=20000", f"--screenshot={path}",
                f"{self.base}/#{page}", timeout_s=120)
            # an empty page has a quarter of that
            self.assertGreater(os.path.getsize(path), 40000, page)
