"""The examples, as their heads say to run them: the unmodified TensorFlow client on a local
cluster. --check holds them against TensorFlow."""
import os
import re

from harness import ROOT, WARM_PYTHON, TestCase, sanitized_too


class ExampleCase(TestCase):
    def run_example(self, script, *arguments, ps=1, workers=1, flags=()):
        """What it prints."""
        jobs = ["--ps", str(ps)] * (ps > 0) + ["--workers", str(workers)]
        code, out, err = self.run_program("tfctl", "local", *jobs, "--quiet", *flags, "--",
                                          WARM_PYTHON, os.path.join(ROOT, "examples", script),
                                          *arguments,
                                          timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        self.expect_nothing_left()
        return out

    def train(self, script, *arguments, **cluster):
        out = self.run_example(script, *arguments, **cluster)
        accuracy = re.search(r"^test accuracy (\d\.\d+)$", out, re.M)
        self.assertIsNotNone(accuracy, out)
        self.assertGreater(float(accuracy.group(1)), 0.95)


class TestDigits(ExampleCase):
    @sanitized_too
    def test_digits_async(self):
        self.train("digits_async.py", workers=2)

    def test_lenet_learns_what_tensorflow_learns(self):
        self.train("lenet.py", "--check", workers=2)

    def test_digits_sync(self):
        self.train("digits_sync.py", workers=2)

    def test_residual_network(self):
        self.train("resnet_digits.py", "--check")

    def test_monitored(self):
        self.train("digits_monitored.py", "--steps=1500", f"--directory={self.path('checkpoints')}",
                   workers=2,
                   flags=["--restart", f"--worker-flag=--file-root={self.directory}"])

    def test_synchronous_replicas(self):
        self.train("sync_replicas.py", "--steps=800", workers=3)


class TestText(ExampleCase):
    def test_characters(self):
        out = self.run_example("char_lstm.py", "--steps=30", "--check", ps=2)
        self.assertEqual(len(re.findall(r"^ +the first 20 losses differ", out, re.M)), 2)

    def test_words(self):
        out = self.run_example("word_lm.py", "--steps=20", "--check", ps=2)
        self.assertEqual(len(re.findall(r"^ +the first \d+ losses differ", out, re.M)), 3)

    def test_word2vec(self):
        self.run_example("word2vec.py", "--steps=200", "--check", ps=2)

    def test_wide_and_deep(self):
        out = self.run_example("wide_deep.py", "--steps=250", "--check", ps=2)
        learned, baseline = map(float,
                                re.search(r"^test accuracy ([\d.]+); always .* gives ([\d.]+)$",
                                          out, re.M).groups())
        self.assertGreater(learned, baseline)


class TestLinearAlgebra(ExampleCase):
    def test_against_what_must_hold_and_against_tensorflow(self):
        out = self.run_example("linear_algebra.py", "--check", ps=0, workers=2)
        self.assertIn("all results hold", out)
