"""tfctl top: what it shows of a cluster that runs steps, on a terminal and elsewhere."""
import json
import os
import pty
import select
import signal
import threading

import harness
from raw_clients import Client, float_tensor, small_graph
from test_pages import PagesCase


class TestTop(PagesCase):
    def setUp(self):
        super().setUp()
        self.start()
        self.admin = f"127.0.0.1:{self.admins['master']}"
        client = Client(self.port)
        self.addCleanup(client.channel.close)
        self.handle = client.create(small_graph("/job:ps/task:0"))
        self.idle = client.create(small_graph())
        self.is_over = threading.Event()
        busy = threading.Thread(target=self.run_steps, args=(client,))
        busy.start()
        self.addCleanup(busy.join)
        self.addCleanup(self.is_over.set)

    def run_steps(self, client):
        while not self.is_over.is_set():
            client.run(self.handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])

    def test_elsewhere_it_prints_once(self):
        out, err = self.expect(0, "tfctl", "top", "--admin", self.admin, "--interval", "300ms")
        self.assertEqual(err, "")
        self.assertNotIn("\033", out)
        self.assertRegex(out, r"\n[1-9]\d*\.\d steps/s, 0\.0 failed/s, \d running, 2 sessions, "
                              r"2 of 2 tasks\n")
        self.assertRegex(out, r"\n/job:ps/replica:0/task:0 +ready ")
        busy, idle = out.splitlines()[-2:]  # the busiest first
        self.assertTrue(busy.startswith(self.handle.decode()))
        self.assertRegex(idle, rf"^{self.idle.decode()} +127\.0\.0\.1:\d+ +0\.0 +0\.0 +0 +0$")

    def test_json(self):
        out, _ = self.expect(0, "tfctl", "top", "--admin", self.admin, "--interval", "300ms",
                             "--output", "json")
        page = json.loads(out)
        self.assertGreater(page["steps_per_second"], 0)
        self.assertEqual(page["steps_per_second"],
                         sum(row["steps_per_second"] for row in page["sessions"]))
        self.assertEqual([row["session"] for row in page["sessions"]],
                         [self.handle.decode(), self.idle.decode()])

    def test_a_terminal_is_drawn_again(self):
        reader, writer = pty.openpty()
        self.addCleanup(os.close, reader)
        process = self.popen([harness.program("tfctl"), "top", "--admin", self.admin, "--interval",
                              "100ms"], stdout=writer)
        os.close(writer)
        shown = b""
        while shown.count(b"tf-master") < 3:
            self.assertTrue(select.select([reader], [], [], harness.DEADLINE_S)[0], shown)
            shown += os.read(reader, 65536)
        self.assertIn(b"\033[H", shown)
        self.assertLessEqual(max(frame.count(b"\n") for frame in shown.split(b"\033[H")), 24)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.wait_for_exit(process), -signal.SIGINT)

    def test_no_master(self):
        _, err = self.expect(74, "tfctl", "top", "--admin", "127.0.0.1:1")
        self.assertIn("UNAVAILABLE", err)
