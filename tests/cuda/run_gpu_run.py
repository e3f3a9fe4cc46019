#!/usr/bin/env python3
"""Tries tools/gpu_run whole on a simulated device: a small pack is made, carried, run, and its
report brought back; a wrong expected value is noticed; the table has a row for each bar.

    tests/cuda/run_gpu_run.py [--long]    with --long the pack has every second case

Under tools/dev gpu-sim 1. Ends with "N passed, N failed".
"""
import argparse
import json
import lzma
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPU_RUN = os.path.join(ROOT, "tools", "gpu_run")
TIMEOUT_S = 900
FAMILIES, SAMPLE = "nn,training", 12
is_long = False


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=TIMEOUT_S)
    return done.returncode, done.stdout


class TestGpuRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="millrace-gpu-run-")
        cls.pack, cls.report = os.path.join(cls.folder, "pack"), os.path.join(cls.folder, "json")
        few = ["--families", FAMILIES, "--sample", str(SAMPLE)]
        sample = ["--share", "1/2"] if is_long else few
        code, text = run(GPU_RUN, "--no-build", "--small", *sample, "--pack", cls.pack,
                         cwd=cls.folder)
        if code:
            raise RuntimeError(text)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def rows(self, name):
        with open(name, encoding="utf-8") as file:
            found = json.load(file)
        return found, {row["what"]: row for row in found["rows"]}

    def test_a_whole_pack_is_within_its_limit(self):
        """The cases of a short run are few, so only with --long they are counted whole."""
        with open(os.path.join(self.pack, "pack.json"), encoding="utf-8") as file:
            sizes = json.load(file)["bytes"]
        folder = os.path.join(self.folder, "graphs")
        os.makedirs(folder)
        sys.path.insert(0, os.path.join(ROOT, "tools", "gpu"))
        import graphs  # late: it loads TensorFlow
        graphs.write(folder, is_small=False, with_losses=False)
        sizes["graphs"] = sum(os.path.getsize(os.path.join(folder, name))
                              for name in os.listdir(folder))
        self.assertLess(sizes["programs"], 16 << 20)
        self.assertLess(sizes["graphs"], 12 << 20)
        self.assertLess(sum(sizes.values()), 64 << 20)

    def test_a_carried_pack_brings_its_report_back(self):
        code, text = run(GPU_RUN, "--carry", self.pack, "--on", "sh -c", "--json", self.report,
                         cwd=self.folder)
        self.assertEqual(code, 0, text)
        found, rows = self.rows(self.report)
        self.assertTrue(found["environment"]["simulated"])
        self.assertIn("GPU:0", found["environment"]["devices"])
        self.assertGreater(sum(family["agree"] for family in found["replay"].values()), SAMPLE)
        self.assertEqual(rows["differential cases"]["result"], "pass", text)
        for network in ("mlp", "word2vec", "lstm", "lstm_functional", "alexnet_small",
                        "googlenet_small", "resnet50_small"):
            self.assertEqual(rows[f"{network}: losses beside TensorFlow's CPU"]["result"], "pass",
                             text)
        self.assertIn("PyTorch", rows["AlexNet (2), a step"]["reason"])
        self.assertIn("TFLOP/s", rows["Conv2D filter float32: 3×3, 8 to 8, 2×8²"]["reason"])
        self.check_what_steps_do(found["programs"])
        self.assertEqual(rows["alloc and free"]["reason"], "simulated: no meaning")
        for row in rows.values():
            self.assertIn(row["result"], ("pass", "unmeasured"), row)
        code, table = run(GPU_RUN, "--table", self.report, cwd=self.folder)
        self.assertEqual(code, 0)
        for what in rows:
            self.assertIn(f"| {what} | ", table)

    def check_what_steps_do(self, programs):
        """The graphs do what they are to measure, and nothing of it is left out."""
        del programs["reason"]  # of what was not asked for
        for name, found in programs.items():
            self.assertNotIn("reason", found, name)
        counts = {name: found["counts"]["work"] for name, found in programs.items()}
        self.assertGreaterEqual(counts["chain_gpu"], 200)
        self.assertGreaterEqual(counts["elementwise"], 4)
        self.assertGreaterEqual(counts["products_float32_32"], 4)
        self.assertLess(counts["fused_chain_of_10"], counts["fused_chain_of_10 unfused"] / 5)
        self.assertGreater(programs["mlp_small"]["counts"]["work_replayed"], 0)
        self.assertEqual(programs["mlp_small graphs_off"]["counts"]["work_replayed"], 0)

    def test_an_unknown_part_is_refused(self):
        code, text = run(GPU_RUN, "--carry", self.pack, "--only", "rates,rats", cwd=self.folder)
        self.assertEqual(code, 2, text)
        self.assertIn("there is no part rats", text)

    def test_a_part_is_run_alone(self):
        code, text = run(GPU_RUN, "--carry", self.pack, "--on", "sh -c", "--only", "conv",
                         "--json", self.report + ".conv", cwd=self.folder)
        self.assertEqual(code, 0, text)
        found, rows = self.rows(self.report + ".conv")
        self.assertTrue(all(name == "reason" or name.startswith("conv_")
                            for name in found["programs"]), found["programs"].keys())
        self.assertEqual(rows["AlexNet (2), a step"]["reason"], "not asked for")

    def test_a_wrong_value_is_a_difference(self):
        wrong = os.path.join(self.folder, "wrong")
        shutil.copytree(self.pack, wrong)
        path = os.path.join(wrong, "cases", "cases_nn.xz")
        with lzma.open(path, "rb") as file:
            cases = [pickle.load(file) for _ in range(SAMPLE)]
        case = next(c for c in cases if "explained" not in c["options"] and not
                    c["options"].get("ignore") and c["expected"][0].get("values")
                    and len(c["expected"][0]["values"][0][2]) > 3)
        dtype, shape, data = case["expected"][0]["values"][0]
        case["expected"][0]["values"][0] = (dtype, shape, bytes(255 - byte for byte in data))
        with lzma.open(path, "wb") as file:
            for each in cases:
                pickle.dump(each, file)
        code, text = run(os.path.join(wrong, "gpu_run"), "--run", "--only", "replay", "--json",
                         self.report + ".wrong", cwd=self.folder)
        self.assertEqual(code, 1, text)
        self.assertIn(f"differs: cases_nn: {case['name']}: ", text)
        _, rows = self.rows(self.report + ".wrong")
        self.assertEqual(rows["differential cases"]["result"], "fail")


def main():
    global is_long
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="pack every second case")
    is_long = parser.parse_args().long
    result = unittest.TextTestRunner(verbosity=1).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(TestGpuRun))
    n_failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - n_failed} passed, {n_failed} failed")
    return bool(n_failed)


if __name__ == "__main__":
    sys.exit(main())
