"""Runs tools/setup with stand-ins for dpkg-query, apt-get and id: what it says, and to whom."""
import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SETUP = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools", "setup")
INSTALLED = "printf 'install ok installed'"
MISSING_GCC = '[ "${@: -1}" != gcc ] && ' + INSTALLED


class TestSetup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name in ("bash", "dirname", "grep"):
            os.symlink(shutil.which(name), os.path.join(self.folder.name, name))

    def stand_in(self, name, script):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"#!{self.folder.name}/bash\n{script}\n")
        os.chmod(path, 0o755)

    def setup_says(self, *arguments):
        """(exit status, what it wrote)"""
        done = subprocess.run([SETUP, *arguments], env={"PATH": self.folder.name},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_nothing_is_said_or_done_where_all_is_installed(self):
        self.stand_in("dpkg-query", INSTALLED)
        self.assertEqual(self.setup_says("build"), (0, ""))

    def test_a_user_gets_the_command_that_root_has_to_run(self):
        self.stand_in("dpkg-query", MISSING_GCC)
        self.stand_in("id", "echo 1000")
        self.stand_in("apt-get", "echo must not run")
        status, output = self.setup_says("build")
        self.assertEqual(status, 74)
        self.assertIn("Let root run this command", output)
        self.assertIn("\n  apt-get install --no-install-recommends gcc\n", output)
        self.assertNotIn("must not run", output)

    def test_root_installs_what_is_missing_and_nothing_else(self):
        self.stand_in("dpkg-query", MISSING_GCC)
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", 'echo "$@" >&2')
        status, output = self.setup_says("build")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"(?m)^install .* gcc$")

    def test_a_system_without_apt_is_told_which_packages_are_needed(self):
        self.stand_in("dpkg-query", "exit 127")
        self.stand_in("id", "echo 0")
        status, output = self.setup_says("build")
        self.assertEqual(status, 74)
        self.assertIn("no apt-get", output)
        self.assertIn("gcc", output)

    def test_an_unknown_set_is_named(self):
        status, output = self.setup_says("everything")
        self.assertEqual(status, 64)
        self.assertIn("'everything'", output)


if __name__ == "__main__":
    unittest.main()
