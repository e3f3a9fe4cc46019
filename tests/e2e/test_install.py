"""`meson install` into a DESTDIR: which files it makes, and that they work from there."""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, ROOT, TestCase

sys.path.insert(0, os.path.join(ROOT, "tools"))
import help_text  # noqa: E402

BUILD = os.path.dirname(BIN.rstrip("/"))
PROGRAMS = ("tf-master", "tf-worker", "tfctl")
SUBCOMMANDS = tuple(help_text.subcommands(BIN))
# The C library's own test lists these.
LIBRARY = re.compile(r"include/|lib/([^/]+/)?(libmillrace(-local)?\.|pkgconfig/)")


def files_below(top):
    return sorted(os.path.relpath(os.path.join(directory, name), top)
                  for directory, _, names in os.walk(top) for name in names)


def expected_files():
    """Below the prefix."""
    found = [f"bin/{name}" for name in PROGRAMS]
    found.append("lib/millrace/millrace-cuda.so")
    found += ["lib/systemd/system/tf-master.service", "lib/systemd/system/tf-worker@.service"]
    found += [f"share/man/man1/{name}.1" for name in (*PROGRAMS, *(f"tfctl-{name}" for name
                                                                   in SUBCOMMANDS))]
    for name in PROGRAMS:
        found += [f"share/bash-completion/completions/{name}.bash",
                  f"share/zsh/site-functions/_{name}",
                  f"share/fish/vendor_completions.d/{name}.fish"]
    found += [f"share/doc/millrace/{name}" for name in ("CHANGELOG.md", "LICENSE", "README.md",
                                                        *os.listdir(os.path.join(ROOT, "docs")))]
    found += [f"share/doc/millrace/examples/{name}"
              for name in ("millrace.env", "millrace.ini", "millrace-etcd.ini")]
    for folder in ("kubernetes", "drop-ins", "monitoring"):
        found += [f"share/doc/millrace/examples/{folder}/{name}"
                  for name in files_below(os.path.join(ROOT, "deploy", folder))]
    return sorted(found)


class TestInstall(TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(os.path.join(BUILD, "build.ninja")):
            raise unittest.SkipTest(f"{BUILD} is not a build folder")
        cls.destination = tempfile.mkdtemp(prefix="millrace-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.destination)
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir",
                        cls.destination], check=True, stdout=subprocess.DEVNULL)
        [cls.prefix] = {directory for directory, names, _ in os.walk(cls.destination)
                        if "bin" in names}

    def read(self, path):
        with open(os.path.join(self.prefix, path), encoding="utf-8") as f:
            return f.read()

    def test_the_list_of_files(self):
        files = [path for path in files_below(self.prefix) if not LIBRARY.match(path)]
        self.assertEqual(files, expected_files())
        self.assertEqual(len(files_below(self.destination)), len(files_below(self.prefix)))
        for path in files:
            mode = stat.S_IMODE(os.stat(os.path.join(self.prefix, path)).st_mode)
            self.assertEqual(mode & 0o022, 0, path)
            self.assertEqual(bool(mode & 0o111), path.startswith("bin/") or path.endswith(".so"),
                             path)

    def test_a_cluster_starts_from_there(self):
        tfctl = os.path.join(self.prefix, "bin", "tfctl")
        programs = "for pid in $(echo $MILLRACE_PIDS | grep -o ' [0-9]*'); do " \
                   "readlink /proc/$pid/exe; done"
        out, _ = self.expect(0, tfctl, "local", "--ps", "1", "--workers", "1", "--", "sh", "-c",
                             f"{tfctl} devices; {programs}")
        self.assertRegex(out, r"/job:ps/replica:0/task:0/device:CPU:0")
        self.assertRegex(out, r"/job:worker/replica:0/task:0/device:CPU:0")
        for name, n in (("tf-worker", 2), ("tf-master", 1)):
            self.assertEqual(out.splitlines().count(os.path.join(self.prefix, "bin", name)), n, out)

    def test_the_units_name_the_installed_programs(self):
        prefix = "/" + os.path.relpath(self.prefix, self.destination)
        for name, program in (("tf-master", "tf-master"), ("tf-worker@", "tf-worker")):
            unit = self.read(f"lib/systemd/system/{name}.service")
            self.assertIn(f"{prefix}/bin/{program} ", unit)
            self.assertIn(f"file://{prefix}/share/doc/millrace/operations.md", unit)

    def test_man_pages_and_completions_have_every_flag(self):
        pages = help_text.pages(os.path.join(self.prefix, "bin"))
        self.assertEqual(len(pages), len(PROGRAMS) + len(SUBCOMMANDS))
        for page in pages:
            man = self.read(f"share/man/man1/{page.command.replace(' ', '-')}.1")
            program = page.command.split()[0]
            completions = [self.read(f"share/bash-completion/completions/{program}.bash"),
                           self.read(f"share/zsh/site-functions/_{program}")]
            fish = self.read(f"share/fish/vendor_completions.d/{program}.fish")
            for flag in page.flags:
                self.assertRegex(man, r"[\]-]" + re.escape(flag.name.replace("-", "\\-"))
                                 + r"\\fR")
                for completion in completions:
                    self.assertRegex(completion, rf"--{flag.name}\b")
                self.assertIn(f" -l {flag.name} ", fish)

    def test_man_pages_are_well_formed(self):
        if not shutil.which("mandoc"):
            self.skipTest("mandoc is not installed")
        directory = os.path.join(self.prefix, "share", "man", "man1")
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning",
                               *(os.path.join(directory, name) for name in os.listdir(directory))],
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual([line for line in done.stdout.splitlines() if "missing date" not in line],
                         [])

    def complete_bash(self, program, *words):
        script = (f'. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); n=$#; '
                  f'_{program.replace("-", "_")} "$1" "${{!n}}" "${{COMP_WORDS[n-2]}}"; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        path = os.path.join(self.prefix, "share", "bash-completion", "completions",
                            f"{program}.bash")
        out, _ = self.expect(0, "/bin/bash", "-c", script, path, program, *words,
                             cwd=self.directory)
        return out.split()

    def test_bash_completes(self):
        self.assertEqual(self.complete_bash("tfctl", "jo"), ["job"])
        self.assertEqual(self.complete_bash("tfctl", "job", "en"), ["end"])
        self.assertEqual(self.complete_bash("tfctl", "local", "--wo"),
                         ["--worker-flag", "--workers"])
        self.assertEqual(self.complete_bash("tf-master", "--placement", "s"),
                         ["simple", "spread"])
        self.assertEqual(self.complete_bash("tf-master", "--no-ins"), ["--no-insecure"])
        self.assertEqual(self.complete_bash("tf-worker", "--tls-key", "tm"), ["tmp"])
        self.assertEqual(self.complete_bash("tf-worker", "--task", ""), [])

    def test_fish_completes(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        directory = os.path.join(self.prefix, "share", "fish", "vendor_completions.d")
        for line, wanted in (("tfctl jo", {"job"}), ("tfctl job en", {"end"}),
                             ("tf-master --placement s", {"simple", "spread"}),
                             ("tf-worker --max-f", {"--max-feed"})):
            out, _ = self.expect(0, "/usr/bin/fish", "--no-config", "-c",
                                 f"source {directory}/{line.split()[0]}.fish; complete -C '{line}'",
                                 env={"HOME": self.directory})
            self.assertEqual({row.split("\t")[0] for row in out.splitlines()}, wanted, line)

    def test_zsh_completes(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        directory = os.path.join(self.prefix, "share", "zsh", "site-functions")
        for name in PROGRAMS:  # _arguments refuses a broken line when the completion is used only
            out, err = self.expect(0, "/bin/zsh", "-f", "-c", '_arguments() { print -l -- "$@" }; '
                                   "_describe() { print -l -- $subcommands }; CURRENT=2; "
                                   f"words=({name} x); . {directory}/_{name}")
            self.assertEqual(err, "")
            self.assertIn("job:end the job" if name == "tfctl" else "*--listen[", out)
