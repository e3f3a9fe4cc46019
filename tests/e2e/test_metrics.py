"""What /metrics says, after a step: names and units as Prometheus wants them, and figures of the
process."""
import re
import shutil
import subprocess
import time

import raw_clients as raw
from harness import LineReader, TestCase, program
from raw_clients import Client, float_tensor, small_graph


class TestMetrics(TestCase):
    def setUp(self):
        super().setUp()
        worker, self.worker = self.daemon("tf-worker")
        port, self.master = self.daemon("tf-master", "--cluster", f"worker=127.0.0.1:{worker}")
        with Client(port) as client:
            handle = client.create(small_graph())
            client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])

    def daemon(self, name, *flags):
        """(port, admin port)"""
        ports = self.path(f"{name}.port")
        process = self.popen([program(name), "--listen", "127.0.0.1:0", "--port-file", ports,
                              *flags])
        LineReader(process.stderr).until(" port ")
        with open(ports, encoding="utf-8") as f:
            return [int(word) for word in f.read().replace("admin", "").split()]

    def pages(self):
        return {name: raw.page(port, "/metrics")[1] for name, port in
                (("tf-master", self.master), ("tf-worker", self.worker))}

    def value(self, page, name):
        return float(re.search(rf"(?m)^{re.escape(name)} (\S+)$", page).group(1))

    def test_promtool_finds_nothing(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed (Debian's prometheus)")
        for name, page in self.pages().items():
            done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual((done.returncode, done.stdout), (0, ""), name)

    def test_times_are_in_seconds(self):
        for name, page in self.pages().items():
            self.assertNotRegex(page, r"_(us|ms|ns)[_{ ]", name)
        master = self.pages()["tf-master"]
        self.assertEqual(self.value(master, "millrace_step_duration_seconds_count"), 1)
        self.assertLess(self.value(master, "millrace_step_duration_seconds_sum"), 60)
        self.assertIn('millrace_step_duration_seconds_bucket{le="0.001024"}', master)

    def test_the_phases_of_a_step_are_its_duration(self):
        master = self.pages()["tf-master"]
        for phase in ("start", "run"):
            self.assertEqual(
                self.value(master, f'millrace_step_phase_seconds_count{{phase="{phase}"}}'), 1)
        both = sum(self.value(master, f'millrace_step_phase_seconds_sum{{phase="{phase}"}}')
                   for phase in ("start", "run"))
        self.assertAlmostEqual(both, self.value(master, "millrace_step_duration_seconds_sum"),
                               delta=3e-6)  # each is rounded down

    def test_the_process(self):
        version = self.expect(0, "tf-master", "--version")[0].split()[-1]
        for name, page in self.pages().items():
            with self.subTest(name):
                self.assertEqual(self.value(page, f'millrace_build_info{{version="{version}"}}'), 1)
                self.assertLess(abs(time.time() - self.value(page, "process_start_time_seconds")),
                                300)
                self.assertGreater(self.value(page, "process_resident_memory_bytes"), 1 << 20)
                self.assertGreater(self.value(page, "process_open_fds"), 5)
                self.assertGreaterEqual(self.value(page, "process_cpu_seconds_total"), 0)
