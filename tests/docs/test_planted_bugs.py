"""tests/cuda/README.md lists each bug that is planted for the simulated device, with what its patch
says of it. tools/check.py sees whether each patch fits its file."""
import glob
import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CUDA = os.path.join(ROOT, "tests", "cuda")
PATCHES = sorted(glob.glob(os.path.join(CUDA, "planted", "*.patch")))
sys.path.insert(0, CUDA)
import run as programs  # noqa: E402


def rows(n_columns):
    """The rows of the page's tables with this many columns, whose first one is a name."""
    with open(os.path.join(CUDA, "README.md"), encoding="utf-8") as page:
        lines = [line.strip("|\n").split("|") for line in page if line.startswith("| `")]
    return [[cell.strip() for cell in cells] for cells in lines if len(cells) == n_columns]


def described(patch):
    """(its name, the file that it changes, what is wrong then)."""
    with open(patch, encoding="utf-8") as lines:
        text = lines.read()
    path = re.search(r"^\+\+\+ b/(\S+)$", text, re.M)[1]
    return [f"`{os.path.basename(patch)[:-len('.patch')]}`", f"`{os.path.basename(path)}`",
            " ".join(text[:text.index("--- a/")].split())]


class TestPlantedBugs(unittest.TestCase):
    def test_each_bug_of_a_program_is_listed(self):
        self.assertEqual([f"`{name}`" for name in programs.BUGS], [row[0] for row in rows(2)])

    def test_each_patch_is_listed(self):
        self.assertTrue(PATCHES)
        self.assertEqual(sorted(described(patch) for patch in PATCHES),
                         sorted(row for row in rows(3) if not row[0].endswith(".py`")))


if __name__ == "__main__":
    unittest.main()
