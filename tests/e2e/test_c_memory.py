"""The examples in C under AddressSanitizer and valgrind: no bad access, no leak, on a cluster and,
with the target "", with master and worker in the same process.

With MILLRACE_E2E=sanitized, programs and library are built for AddressSanitizer and UBSan. Else
valgrind runs them: the client alone here, the whole process with --long.
"""
import os
import re
import shutil
import subprocess
import unittest

import harness
from harness import ROOT
from test_c_examples import CExampleCase

# What each runs, as short as it may be and still trains. `in_process`: it runs without a cluster.
EXAMPLES = [("digits.c", [], 1, 2, True), ("lenet.c", ["3"], 1, 1, True),
            ("char_lstm.c", ["2"], 2, 1, True), ("word2vec.c", ["5"], 2, 1, True),
            ("sync_replicas.c", ["30"], 1, 3, False)]
WRONG_STATUS = 99
VALGRIND = [shutil.which("valgrind") or "/valgrind", f"--error-exitcode={WRONG_STATUS}",
            "--leak-check=full", "--show-leak-kinds=definite,indirect",
            "--errors-for-leak-kinds=definite,indirect"]
IN_PROCESS_S = 1200


class TestCMemory(CExampleCase):
    def sanitizers(self):
        return ["-g", "-fsanitize=address,undefined"] if harness.SANITIZED else []

    def build(self, source):
        program = os.path.join(self.installed, os.path.basename(source)[:-2])
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", *self.sanitizers(), source, "-o",
                        program, *self.flags], check=True)
        return program

    def c_environment(self):
        options = {k: os.environ[k] for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if k in os.environ}
        return {**super().c_environment(), **options}

    def expect_clean(self, code, out, err):
        report = re.search(r"(ERROR: \w+Sanitizer|runtime error:|== ERROR SUMMARY: [1-9]).*", err)
        self.assertIsNone(report, f"{out}\n{err}")
        # digits and lenet exit with 1 where they have learnt too little
        self.assertIn(code, (0, 1), f"{out}\n{err}")
        self.assertRegex(out, r"loss|updates", err)

    def on_a_cluster(self, wrap):
        for name, arguments, ps, workers, _ in EXAMPLES:
            with self.subTest(name):
                program = self.build(os.path.join(ROOT, "examples", "c", name))
                self.expect_clean(*self.run_program(
                    "tfctl", "local", "--ps", ps, "--workers", workers, "--quiet", "--", *wrap,
                    program, *arguments, env=self.c_environment(), timeout_s=240))

    def in_process(self, wrap, names, timeout_s):
        for name, arguments, _, _, in_process in EXAMPLES:
            if in_process and name in names:
                with self.subTest(name):
                    program = self.build(os.path.join(ROOT, "examples", "c", name))
                    self.expect_clean(*self.run_program(
                        *wrap, program, *arguments, timeout_s=timeout_s,
                        env={**self.process_environment(), "MILLRACE_TARGET": ""}))

    def process_environment(self):
        """oneDNN's compiled code reads a little behind its own blocks, and valgrind cannot tell
        whose code it is. So valgrind finds an empty file in its place, and BLAS multiplies."""
        env = self.c_environment()
        if not harness.SANITIZED:
            no_onednn = self.path("no-onednn")
            os.makedirs(no_onednn, exist_ok=True)
            for version in (2, 3):
                open(os.path.join(no_onednn, f"libdnnl.so.{version}"), "w").close()
            env["LD_LIBRARY_PATH"] = f"{no_onednn}:{env['LD_LIBRARY_PATH']}"
        return env

    @harness.sanitized_too
    def test_on_a_cluster(self):
        if harness.SANITIZED:
            self.on_a_cluster([])
        elif not shutil.which("valgrind"):
            self.skipTest("valgrind is missing")
        else:
            self.on_a_cluster(VALGRIND)

    @harness.sanitized_too
    def test_in_process(self):
        if harness.SANITIZED:
            self.in_process([], {name for name, *_ in EXAMPLES}, harness.DEADLINE_S)
        elif not shutil.which("valgrind"):
            self.skipTest("valgrind is missing")
        elif not harness.LONG:
            self.in_process(VALGRIND, ["word2vec.c"], 240)
        else:
            self.in_process(VALGRIND, ["lenet.c", "char_lstm.c", "word2vec.c"], IN_PROCESS_S)

    @unittest.skipIf(harness.SANITIZED, "it needs no example")
    def test_a_bad_access_is_seen(self):
        """valgrind and what reads its report do their work."""
        if not shutil.which("valgrind"):
            self.skipTest("valgrind is missing")
        source = self.path("bad.c")
        with open(source, "w") as f:
            f.write("#include <millrace/c_api.h>\n#include <stdio.h>\nint main(void) {\n"
                    "    TF_Tensor *t = TF_AllocateTensor(TF_FLOAT, NULL, 0, 4);\n"
                    "    TF_DeleteTensor(t);\n"
                    "    printf(\"loss %d\\n\", (int)TF_TensorByteSize(t));\n    return 0;\n}\n")
        code, out, err = self.run_program(*VALGRIND, self.build(source), env=self.c_environment())
        self.assertEqual(code, WRONG_STATUS)
        with self.assertRaises(AssertionError):
            self.expect_clean(code, out, err)
