"""Every function of the headers with one bad argument at a time; bad_input.py makes the calls, in a
process of its own, which may crash."""
import os
import subprocess
import sys
import unittest

from c_library import prototypes

HERE = os.path.dirname(os.path.abspath(__file__))


class TestBadInput(unittest.TestCase):
    def test_each_bad_argument_is_refused_by_name(self):
        names, failures, n_passed = list(prototypes()), [], 0
        while names:
            done = subprocess.run([sys.executable, os.path.join(HERE, "bad_input.py"), *names],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False)
            lines = done.stdout.splitlines()
            calls = [line[5:] for line in lines if line.startswith("call ")]
            failures += [line for line in lines if line.startswith("fail ")]
            n_passed += len(calls)
            if done.returncode in (0, 1) and calls:
                break
            failures.append(f"exit status {done.returncode} after {calls[-1:]}: {lines[-9:]}")
            crashed = calls[-1].split(".")[0].split("(")[0] if calls else names[0]
            names = names[names.index(crashed) + 1:]
        self.assertEqual(failures, [])
        self.assertGreater(n_passed, 1000)


if __name__ == "__main__":
    unittest.main()
