"""The examples, as the quickstart runs them: the unmodified TensorFlow client trains on a local cluster."""
import os
import re

from harness import PYTHON, ROOT, TestCase, sanitized_too


class TestExamples(TestCase):
    def train(self, script, *arguments):
        code, out, err = self.run_program("tfctl", "local", "--ps", "1", "--workers", "2", "--quiet", "--", PYTHON, os.path.join(ROOT, "examples", script), *arguments,
                                          timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        accuracy = re.search(r"^test accuracy (\d\.\d+)$", out, re.M)
        self.assertIsNotNone(accuracy, out)
        self.assertGreater(float(accuracy.group(1)), 0.95)
        self.expect_nothing_left()

    @sanitized_too
    def test_digits_async(self):
        self.train("digits_async.py")

    def test_lenet_learns_what_tensorflow_learns(self):
        self.train("lenet.py", "--compare")

    def test_digits_sync(self):
        self.train("digits_sync.py")
