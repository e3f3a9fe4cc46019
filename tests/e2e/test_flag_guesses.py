"""Every flag of every program, mistyped in four ways: the error names the flag that was meant."""
import random
import string
import sys

from harness import BIN, ROOT, TestCase

sys.path.insert(0, f"{ROOT}/tools")
import help_text  # noqa: E402

# What the programs know besides their tables.
OWN = ["help", "version"]


def n_changes(a, b):
    """How many letters must be added, removed, changed, or swapped with their neighbour."""
    rows = {(i, 0): i for i in range(len(a) + 1)} | {(0, k): k for k in range(len(b) + 1)}
    for i in range(1, len(a) + 1):
        for k in range(1, len(b) + 1):
            rows[i, k] = min(rows[i - 1, k] + 1, rows[i, k - 1] + 1,
                             rows[i - 1, k - 1] + (a[i - 1] != b[k - 1]))
            if i > 1 and k > 1 and (a[i - 1], a[i - 2]) == (b[k - 2], b[k - 1]):
                rows[i, k] = min(rows[i, k], rows[i - 2, k - 2] + 1)
    return rows[len(a), len(b)]


def slips(name, rng):
    """A letter is left out, typed twice, mistyped, and swapped with the next."""
    at = rng.randrange(1, len(name) - 1)
    wrong = rng.choice([c for c in string.ascii_lowercase if c != name[at]])
    found = [name[:at] + name[at + 1:], name[:at] + name[at] + name[at:],
             name[:at] + wrong + name[at + 1:],
             name[:at] + name[at + 1] + name[at] + name[at + 2:]]
    return [slip for slip in dict.fromkeys(found) if slip != name]


class TestGuesses(TestCase):
    def check(self, command, name, slip, known):
        """One slip away is the flag. Where another one is, too, that is as good."""
        near = {flag for flag in known if n_changes(slip, flag) <= 1}
        self.assertIn(name, near)
        _, err = self.expect(64, *command, f"--{slip}")
        self.assertRegex(err, rf"option --{slip}, did you mean --({'|'.join(sorted(near))})\?",
                         command)

    def check_pages(self, programs):
        rng, n = random.Random(1), 0
        for page in help_text.pages(BIN):
            if page.command.split()[0] not in programs:
                continue
            known = [flag.name for flag in page.flags] + OWN
            for flag in page.flags:
                for slip in slips(flag.name, rng) if len(flag.name) > 2 else ():
                    if slip not in known:
                        self.check(page.command.split(), flag.name, slip, known)
                        n += 1
        self.assertGreater(n, 200)

    def test_flags_of_the_master(self):
        self.check_pages(["tf-master"])

    def test_flags_of_the_worker(self):
        self.check_pages(["tf-worker"])

    def test_flags_of_tfctl(self):
        self.check_pages(["tfctl"])

    def test_settings_of_the_daemons(self):
        """The same in a configuration file, where each flag is a setting."""
        rng = random.Random(2)
        for page in help_text.pages(BIN):
            if page.command not in ("tf-master", "tf-worker"):
                continue
            settings = self.settings(page.command)
            for name in settings:
                slip = rng.choice(slips(name, rng))
                near = {s for s in settings if n_changes(slip, s) <= 1}
                path = self.path("slip.ini")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"{slip} = 1\n")
                _, err = self.expect(78, page.command, "--config", path, "--check-config")
                self.assertRegex(err, rf":1: .*{slip}.*, did you mean ({'|'.join(sorted(near))})\?")

    def settings(self, program):
        """The names that --check-config prints."""
        needed = {"tf-worker": ["--job", "worker", "--task", "0"],
                  "tf-master": ["--cluster", "worker=127.0.0.1:1"]}[program]
        out, _ = self.expect(0, program, *needed, "--check-config")
        names = [line.split(" = ")[0] for line in out.splitlines() if " = " in line]
        self.assertGreater(len(names), 30)
        return names
