"""Floats that cross between tasks in 16 bits, when the client asks for it or the operator's flag
says so."""
import json
import os

from harness import ROOT, WARM_PYTHON, TestCase

PROGRAM = os.path.join(ROOT, "tests", "e2e", "narrow_sends_program.py")
WHOLE = {"ref": "whole", "resource": "whole", "loop": "whole", "double": "whole"}
CUT = {"ref": "cut", "resource": "cut", "loop": "cut", "double": "whole"}


class TestNarrowSends(TestCase):
    def run_on_cluster(self, *flags):
        code, out, err = self.run_program("tfctl", "local", "--ps", "1", "--workers", "1",
                                          "--quiet", *flags, "--", "sh", "-c",
                                          f'exec "{WARM_PYTHON}" "{PROGRAM}" "$MILLRACE_TARGET"',
                                          timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(out.splitlines()[-1])

    def test_when_the_client_asks(self):
        self.assertEqual(self.run_on_cluster(), {"not asked": WHOLE, "asked": CUT})

    def test_when_the_operator_says(self):
        self.assertEqual(self.run_on_cluster("--master-flag", "--bfloat16-sends"),
                         {"not asked": CUT, "asked": CUT})
