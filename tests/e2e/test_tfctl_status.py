"""tfctl status: what it says of a cluster that is well, and of one that is not."""
import json

import raw_clients as raw
from harness import program
from raw_clients import Client, float_tensor, small_graph
from test_pages import PagesCase, get


class TestStatus(PagesCase):
    def status(self, code, *args):
        out, err = self.expect(code, "tfctl", "status", "--admin",
                               f"127.0.0.1:{self.admins['master']}", *args)
        self.assertEqual(err, "")
        return out

    def test_a_cluster_that_is_well(self):
        self.start()
        with Client(self.port) as client:
            handle = client.create(small_graph())
            client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
            with self.assertRaises(raw.Refused):
                client.run(handle, fetches=["nothing:0"])
            text = self.status(0)
            self.assertIn("tasks     2 of 2 ready\n", text)
            self.assertIn("sessions  1; 2 steps, 1 failed\n", text)
            self.assertRegex(text, r"last errors\n  .* ago: \w+: .*nothing:0")
            self.assertTrue(text.endswith("\nall is well\n"))
            page = json.loads(self.status(0, "--output", "json"))
            self.assertTrue(page["ok"])
            self.assertEqual((page["tasks"], page["tasks_ready"], page["sessions"], page["steps"],
                              page["steps_failed"], page["problems"]), (2, 2, 1, 2, 1, []))

    def test_a_task_that_is_down(self):
        self.start("--heartbeat", "200ms")
        self.started[1].kill()
        self.until(lambda: get(self.admins["master"], "/readyz")[0] == 503, "it stays ready")
        text = self.status(70)
        self.assertIn("tasks     1 of 2 ready\n", text)
        self.assertRegex(text, r"not well:\n  ! the master is not ready: tasks are missing")
        self.assertRegex(
            text, r"  ! /job:worker/replica:0/task:0 at 127\.0\.0\.1:\d+ is (down|probing): \w")
        page = json.loads(self.status(70, "--output=json"))
        self.assertEqual((page["ok"], page["ready"], len(page["problems"])), (False, False, 2))

    def test_a_terminal_is_safe_from_strangers(self):
        self.start()
        with Client(self.port) as client:
            handle = client.create(small_graph())
            with self.assertRaises(raw.Refused):
                client.run(handle, fetches=["\033]0;owned\a\033[2J\x9b:0"])
            text = self.status(0)
        self.assertIn("owned", text)
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")

    def test_a_limit_that_is_nearly_reached(self):
        self.start("--max-sessions", "5")
        with Client(self.port) as client:
            for _ in range(4):
                client.create(small_graph())
            self.assertIn("all is well", self.status(0))
            client.create(small_graph())
            self.assertIn("  ! 5 of 5 sessions are in use\n", self.status(70))

    def test_no_master(self):
        worker, admin = self.daemon("tf-worker")
        out, err = self.expect(70, "tfctl", "status", "--admin", f"127.0.0.1:{admin}")
        self.assertIn("the pages are those of tf-worker", err)
        out, err = self.expect(74, "tfctl", "status", "--admin", "127.0.0.1:1")
        self.assertIn("UNAVAILABLE", err)
        self.expect(64, "tfctl", "status")
        self.expect(64, "tfctl", "status", "--output", "yaml", "--admin", "127.0.0.1:1")

    def test_within_tfctl_local(self):
        out, _ = self.expect(0, "tfctl", "local", "--workers", "1", "--quiet", "--", "sh", "-c",
                             f"{program('tfctl')} status && {program('tfctl')} costs")
        self.assertIn('all is well\n[{"note": "Nothing has been measured', out)
