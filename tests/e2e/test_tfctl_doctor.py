"""tfctl doctor: what it finds on this host and on the way to a cluster, and what it advises."""
import json
import resource

from harness import listening_socket, program
from test_pages import PagesCase

HOST_CHECKS = ["host name", "clock", "cores", "memory", "huge pages", "open files",
               "locked memory", "rdma", "disk"]
CLUSTER_CHECKS = ["proxies", "name", "port", "cluster"]


class TestDoctor(PagesCase):
    def doctor(self, code, *args, env=None, limit=None):
        """{check: its row}"""
        out, err = self.expect(code, "tfctl", "doctor", "--output", "json", *args, env=env,
                               preexec_fn=limit)
        page = json.loads(out)
        self.assertEqual((err, page["ok"]), ("", code == 0))
        for row in page["checks"]:
            self.assertTrue(row["found"], row)
            self.assertEqual(bool(row["advice"]), row["state"] != "ok", row)
        return {row["check"]: row for row in page["checks"]}

    def target(self):
        return ["--target", f"grpc://127.0.0.1:{self.port}", "--admin",
                f"127.0.0.1:{self.admins['master']}"]

    def test_the_host_alone(self):
        self.assertEqual(list(self.doctor(0)), HOST_CHECKS)

    def test_few_open_files(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        row = self.doctor(0, limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                              (300, hard)))["open files"]
        self.assertEqual((row["state"], row["found"]),
                         ("warning", "a process may open 300 files"))
        self.assertIn("LimitNOFILE", row["advice"])

    def test_a_cluster_that_is_well(self):
        self.start()
        rows = self.doctor(0, *self.target())
        self.assertEqual(list(rows), CLUSTER_CHECKS + HOST_CHECKS)
        self.assertEqual({rows[name]["state"] for name in CLUSTER_CHECKS}, {"ok"})
        self.assertEqual(rows["cluster"]["found"], "ready, with 2 of 2 tasks")

    def test_a_task_that_is_down(self):
        self.start("--heartbeat", "200ms")
        self.started[1].kill()
        self.until(lambda: self.doctor_state() == "broken", "the task stays ready")
        self.assertIn("/job:worker/replica:0/task:0",
                      self.doctor(70, *self.target())["cluster"]["found"])

    def doctor_state(self):
        out = self.run_program("tfctl", "doctor", "--output", "json", *self.target())[1]
        return {row["check"]: row["state"] for row in json.loads(out)["checks"]}["cluster"]

    def test_a_proxy_in_the_way(self):
        self.start()
        env = {"http_proxy": "http://proxy.example:3128"}
        row = self.doctor(70, *self.target(), env=env)["proxies"]
        self.assertEqual(row["state"], "broken")
        self.assertIn("no_proxy", row["advice"])
        for exempt in ("127.0.0.1", "example.com, 127.0.0.1", "*", "0.0.1"):
            rows = self.doctor(0, *self.target(), env={**env, "no_proxy": exempt})
            self.assertEqual(rows["proxies"]["state"], "ok", exempt)
        self.doctor(70, *self.target(), env={**env, "no_proxy": "7.0.0.1,example.com"})

    def test_nobody_at_the_port(self):
        with listening_socket() as taken:
            port = taken.getsockname()[1]
        rows = self.doctor(70, "--target", f"grpc://127.0.0.1:{port}", "--admin",
                           f"127.0.0.1:{port}")
        self.assertEqual((rows["port"]["state"], rows["cluster"]["state"]), ("broken", "broken"))
        self.assertIn("Connection refused", rows["port"]["found"])
        self.assertIn("start tf-master", rows["port"]["advice"])

    def test_a_name_that_nobody_knows(self):
        rows = self.doctor(70, "--target", "grpc://no-such-host.invalid:2222")
        self.assertEqual((rows["name"]["state"], rows["port"]["state"]), ("broken", "broken"))

    def test_etcd(self):
        rows = self.doctor(70, "--etcd", "http://127.0.0.1:1")
        self.assertEqual((rows["etcd"]["state"], list(rows)), ("broken", ["etcd", *HOST_CHECKS]))
        self.start()  # its admin port stands for an etcd that answers nonsense
        rows = self.doctor(70, "--etcd", f"http://127.0.0.1:{self.admins['master']}")
        self.assertIn("HTTP status 404", rows["etcd"]["found"])

    def test_people_get_lines(self):
        out, _ = self.expect(0, "tfctl", "doctor")
        self.assertRegex(out, r"(?m)^ok +cores +\d+")
        self.assertRegex(out, r"\n\d+ ok, \d+ warnings, 0 broken\n$")
        self.expect(64, "tfctl", "doctor", "--admin", "127.0.0.1:1")

    def test_within_tfctl_local(self):
        self.expect(0, "tfctl", "local", "--workers", "1", "--quiet", "--", program("tfctl"),
                    "doctor")
