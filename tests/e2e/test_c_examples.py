"""The examples in C, as their heads say to build and run them, against their twins in Python on
clusters of ours."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import PYTHON, ROOT, WARM_PYTHON, TestCase
from test_install import BUILD


# Servers of TensorFlow: as many of ps and worker as the first two arguments say. The rest is a
# command, which runs with $MILLRACE_TARGET.
SERVERS = """
import os, socket, subprocess, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
def address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"
cluster = {job: [address() for _ in range(int(n))]
           for job, n in zip(("ps", "worker"), sys.argv[1:])}
servers = [tf.distribute.Server(cluster, job_name=job, task_index=i)
           for job in cluster for i in range(len(cluster[job]))]
target = "grpc://" + cluster["worker"][0]
done = subprocess.run(sys.argv[3:], env={**os.environ, "MILLRACE_TARGET": target})
sys.stdout.flush()
os._exit(done.returncode)
"""


class CExampleCase(TestCase):
    """Builds examples against an installed library."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not all(map(shutil.which, ("cc", "pkg-config", "meson"))):
            raise unittest.SkipTest("cc, pkg-config or meson is missing")
        if not os.path.exists(os.path.join(BUILD, "build.ninja")):
            raise unittest.SkipTest(f"{BUILD} is not a build folder")
        cls.installed = tempfile.mkdtemp(prefix="millrace-e2e-c-")
        cls.addClassCleanup(shutil.rmtree, cls.installed)
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--tags",
                        "client,devel", "--destdir", cls.installed], check=True)
        pc = subprocess.run(["find", cls.installed, "-name", "millrace.pc"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout.strip()
        cls.libraries = os.path.dirname(os.path.dirname(pc))
        cls.flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "millrace"], check=True, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PKG_CONFIG_PATH": os.path.dirname(pc),
                            "PKG_CONFIG_SYSROOT_DIR": cls.installed}).stdout.split()

    def build(self, source):
        """The program that a file is compiled to; warnings are errors."""
        program = os.path.join(self.installed, os.path.basename(source)[:-2])
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", source, "-o", program, *self.flags],
                       check=True)
        return program

    def on_cluster(self, *command, ps=1, workers=1):
        """What the command prints on a cluster."""
        code, out, err = self.run_program("tfctl", "local", "--ps", str(ps), "--workers",
                                          str(workers), "--quiet", "--", *command,
                                          env=self.c_environment(), timeout_s=300)
        self.assertEqual(code, 0, f"{out}\n{err}")
        self.expect_nothing_left()
        return out

    def on_tensorflow(self, *command, ps=1, workers=1):
        """The same on TensorFlow's own servers."""
        code, out, err = self.run_program(PYTHON, "-c", SERVERS, str(ps), str(workers), *command,
                                          env=self.c_environment(), timeout_s=300)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return out

    def c_environment(self):
        return {"LD_LIBRARY_PATH": self.libraries,
                "MILLRACE_EXAMPLES": os.path.join(ROOT, "examples")}

    def example(self, name, *arguments, **cluster):
        program = self.build(os.path.join(ROOT, "examples", "c", name))
        return self.on_cluster(program, *arguments, **cluster)

    def twin(self, code, **cluster):
        """What Python code prints that may import the examples."""
        head = f"import os, sys; sys.path.insert(0, {os.path.join(ROOT, 'examples')!r})\n"
        return self.on_cluster(WARM_PYTHON, "-c", head + code, **cluster)

    def same_numbers(self, ours, theirs, tolerance):
        self.assertEqual(len(ours), len(theirs))
        for mine, wanted in zip(ours, theirs):
            self.assertAlmostEqual(mine, wanted, delta=tolerance, msg=f"{ours}\n{theirs}")


def losses(text):
    return [float(x) for x in re.findall(r"loss +([-\d.e]+)", text)]


def listed(text):
    return [float(x) for x in re.search(r"^losses (.*)$", text, re.M).group(1).split()]


def accuracy(text):
    return float(re.search(r"^test accuracy (\d\.\d+)$", text, re.M).group(1))


class TestCExamples(CExampleCase):
    def test_digits(self):
        ours = self.example("digits.c", workers=2)
        theirs = self.on_cluster(WARM_PYTHON, os.path.join(ROOT, "examples", "digits_sync.py"),
                                 workers=2)
        self.same_numbers(losses(ours)[1:], losses(theirs), .01)
        self.same_numbers([accuracy(ours)], [accuracy(theirs)], .015)

    def test_lenet(self):
        ours = self.example("lenet.c")
        theirs = self.twin("""
import lenet
lenet.tf1.disable_eager_execution()
losses, accuracy = lenet.run(os.environ["MILLRACE_TARGET"], 200)
for loss in losses[:20]:
    print(f"loss {loss:.6f}")
print(f"test accuracy {accuracy:.4f}")
""")
        self.same_numbers(losses(ours)[:20], [float(x) for x in re.findall(
            r"^loss ([\d.]+)$", theirs, re.M)], 2e-3)
        self.same_numbers([accuracy(ours)], [accuracy(theirs)], .015)

    def test_characters(self):
        ours = self.example("char_lstm.c", "20", ps=2)
        theirs = self.twin("""
import numpy as np
import char_lstm, common
char_lstm.tf1.disable_v2_behavior()
symbols, tokens = np.unique(list(common.load_text()), return_inverse=True)
losses, _ = common.train("characters", lambda place: char_lstm.language_model(
    place, tokens.astype(np.int32), len(symbols), char_lstm.full_softmax, "characters"),
    common.Place(os.environ["MILLRACE_TARGET"], 2), 20)
print("losses", *losses)
""", ps=2)
        self.same_numbers(losses(ours), listed(theirs), 2e-3)

    def test_word2vec(self):
        ours = self.example("word2vec.c", "300", ps=2)
        theirs = self.twin("""
import common, word2vec, word_lm
word2vec.tf1.disable_v2_behavior()
words, tokens = word_lm.words_of(common.load_text(), word2vec.N_WORDS)
losses, _ = common.train("word2vec", lambda place: word2vec.build(place, words, tokens),
                         common.Place(os.environ["MILLRACE_TARGET"], 2), 300)
print("losses", *losses[:20])
""", ps=2)
        self.same_numbers(losses(ours)[:20], listed(theirs), .05)
        nearest = re.compile(r"^  (?:king|love|she|sword|brother|night) .*$", re.M)
        self.assertEqual(len(nearest.findall(ours)), 6)

    def test_synchronous_replicas(self):
        """Its workers do not take turns, so it learns as well as its twin, not the same."""
        out = self.example("sync_replicas.c", "800", workers=3)
        self.assertRegex(out, r"(?m)^800 updates in 800 steps$")
        self.assertGreater(accuracy(out), .95)

    def test_on_tensorflows_servers(self):
        """One set of servers for all, since they take seconds to start."""
        steps = {"lenet": 20, "char_lstm": 10, "word2vec": 10, "sync_replicas": 100}
        commands = [f"{self.build(os.path.join(ROOT, 'examples', 'c', name + '.c'))} {n}"
                    for name, n in steps.items()]
        theirs = self.on_tensorflow("sh", "-ec", "; echo next; ".join(commands), ps=2,
                                    workers=3).split("next\n")
        ours = self.on_cluster("sh", "-ec", "; echo next; ".join(commands), ps=2,
                               workers=3).split("next\n")
        for name, mine, wanted, tolerance in zip(steps, ours, theirs, (2e-3, 2e-3, .05)):
            with self.subTest(name):
                self.assertEqual(len(losses(mine)), steps[name])
                self.same_numbers(losses(mine), losses(wanted), tolerance)
        self.assertRegex(theirs[3], r"(?m)^100 updates in 100 steps$")
