"""Placement of what the client left open: the simple rule, variables spread over servers, and the
cost model."""
import json
import os

from harness import ROOT, WARM_PYTHON, TestCase

PROGRAM = os.path.join(ROOT, "tests", "e2e", "placement_program.py")
SPREAD_PROGRAM = os.path.join(ROOT, "tests", "e2e", "spread_program.py")
FIRST, SECOND = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"


class TestPlacement(TestCase):
    def run_local(self, program, *flags):
        code, out, err = self.run_program("tfctl", "local", *flags, "--", "sh", "-c",
                                          f'exec "{WARM_PYTHON}" "{program}" "$MILLRACE_TARGET"',
                                          timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(out.splitlines()[-1]), err

    def run_on_cluster(self, *flags):
        result = self.run_local(PROGRAM, "--workers", "2", "--quiet", *flags)[0]
        self.assertEqual(result["right values"], [True] * 5)
        self.assertEqual(result["state"], 1)
        return result["tasks"]

    def test_the_simple_rule_uses_the_default_task(self):
        self.assertEqual(set(self.run_on_cluster().values()), {FIRST})

    def test_by_cost_independent_products_use_both_tasks(self):
        tasks = self.run_on_cluster("--master-flag", "--placement", "--master-flag", "cost")
        self.assertEqual(tasks["asked"], FIRST)
        self.assertIn(SECOND, tasks.values())

    def test_a_session_spreads_its_variables(self):
        result, log = self.run_local(SPREAD_PROGRAM, "--workers", "1", "--ps", "2")
        self.assertTrue(result["losses agree"] and result["losses fall"], result)
        self.assertEqual(set(result["simple"].values()), {FIRST})
        self.assertEqual(result["spread"], {"wide": "/job:ps/replica:0/task:0",
                                            "narrow": "/job:ps/replica:0/task:1"})
        self.assertIn("net/narrow: (VariableV2): /job:ps/replica:0/task:1/device:CPU:0: "
                      "its state is there", log)
        self.assertIn("'elsewhere'", result["unknown placement"])
        self.assertIn("'colour'", result["unknown wish"])
