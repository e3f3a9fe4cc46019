"""Placement of what the client left open: the simple rule, and the cost model."""
import json
import os

from harness import ROOT, WARM_PYTHON, TestCase

PROGRAM = os.path.join(ROOT, "tests", "e2e", "placement_program.py")
FIRST, SECOND = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"


class TestPlacement(TestCase):
    def run_on_cluster(self, *flags):
        code, out, err = self.run_program("tfctl", "local", "--workers", "2", "--quiet", *flags,
                                          "--", "sh", "-c",
                                          f'exec "{WARM_PYTHON}" "{PROGRAM}" "$MILLRACE_TARGET"',
                                          timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        result = json.loads(out.splitlines()[-1])
        self.assertEqual(result["right values"], [True] * 5)
        self.assertEqual(result["state"], 1)
        return result["tasks"]

    def test_the_simple_rule_uses_the_default_task(self):
        self.assertEqual(set(self.run_on_cluster().values()), {FIRST})

    def test_by_cost_independent_products_use_both_tasks(self):
        tasks = self.run_on_cluster("--master-flag", "--placement", "--master-flag", "cost")
        self.assertEqual(tasks["asked"], FIRST)
        self.assertIn(SECOND, tasks.values())
