"""deploy/monitoring: the alert rules and the dashboard, by promtool and on a real Prometheus that
scrapes a cluster."""
import json
import os
import re
import shutil
import socket
import subprocess
import urllib.parse

import raw_clients as raw
from harness import ROOT
from raw_clients import Client, float_tensor, small_graph
from test_pages import PagesCase, get

MONITORING = os.path.join(ROOT, "deploy", "monitoring")
ALERTS = os.path.join(MONITORING, "alerts.yaml")
DASHBOARD = os.path.join(MONITORING, "dashboard.json")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def dashboard_queries():
    return [target["expr"].replace("$__rate_interval", "1m")
            for panel in json.loads(read(DASHBOARD))["panels"]
            for target in panel.get("targets", ())]


class TestFiles(PagesCase):
    def promtool(self, *args):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed (Debian's prometheus)")
        done = subprocess.run(["promtool", *args], text=True, cwd=MONITORING,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_promtool_accepts_the_rules(self):
        self.promtool("check", "rules", "alerts.yaml")
        self.promtool("check", "config", "prometheus.yml")

    def test_the_rules_fire_when_they_should(self):
        self.promtool("test", "rules", "alerts_test.yaml")

    def test_each_rule_is_tested_both_ways(self):
        names = re.findall(r"- alert: (\w+)", read(ALERTS))
        tests = read(os.path.join(MONITORING, "alerts_test.yaml"))
        self.assertEqual(len(names), 9)
        for name in names:
            self.assertRegex(tests, rf"alertname: {name}, eval_time: \w+, exp_alerts: \[\]", name)
            self.assertRegex(tests, rf"alertname: {name}\n +eval_time: \w+\n +exp_alerts:\n", name)

    def test_every_metric_exists(self):
        known = set(re.findall(r"(?m)^\| `(\w+)`", read(os.path.join(ROOT, "docs", "metrics.md"))))
        text = read(ALERTS) + " ".join(dashboard_queries())
        named = set(re.findall(r"\b(?:millrace|process)_[a-z_]+\b", text))
        self.assertGreater(len(named), 20)
        self.assertEqual({name for name in named
                          if re.sub(r"_(bucket|sum|count)$", "", name) not in known}, set())


class TestPrometheus(PagesCase):
    def setUp(self):
        super().setUp()
        if not shutil.which("prometheus"):
            self.skipTest("prometheus is not installed (Debian's prometheus)")
        self.start("--heartbeat", "200ms")
        config = self.path("prometheus.yml")
        targets = ", ".join(f"'127.0.0.1:{port}'" for port in self.admins.values())
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n"
                    f"rule_files: ['{ALERTS}']\n"
                    "scrape_configs:\n- job_name: millrace\n"
                    f"  static_configs: [{{targets: [{targets}]}}]\n")
        with socket.socket() as free:
            free.bind((raw.LOOPBACK, 0))
            self.prometheus = free.getsockname()[1]
        self.popen(["prometheus", f"--config.file={config}",
                    f"--storage.tsdb.path={self.path('tsdb')}",
                    f"--web.listen-address=127.0.0.1:{self.prometheus}"],
                   stderr=subprocess.DEVNULL)
        self.until(self.is_ready, "Prometheus does not start")

    def is_ready(self):
        try:
            return get(self.prometheus, "/-/ready")[0] == 200
        except ConnectionError:
            return False

    def query(self, expr):
        """[(labels, value)]"""
        status, _, body = get(self.prometheus,
                              "/api/v1/query?" + urllib.parse.urlencode({"query": expr}))
        answer = json.loads(body)
        self.assertEqual((status, answer["status"]), (200, "success"), (expr, answer))
        return [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]

    def test_it_scrapes_a_cluster_and_sees_a_task_go(self):
        with Client(self.port) as client:
            handle = client.create(small_graph("/job:worker/task:0"))
            client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
            self.until(lambda: [value for _, value in self.query("millrace_steps_total")] == [1],
                       "no step is scraped")
        self.until(lambda: len(self.query("up == 1")) == 3, "a daemon is not scraped")
        self.assertEqual(self.query("sum(millrace_task_up)")[0][1], 2)
        for expr in dashboard_queries():
            self.query(expr)
        self.until(lambda: not self.query("ALERTS"), "an alert is pending")
        self.started[1].kill()  # the worker

        def pending():
            return {labels["alertname"] for labels, _ in self.query('ALERTS')}

        self.until(lambda: {"MillraceTaskDown", "MillraceDown"} <= pending(), "no alert is pending")
