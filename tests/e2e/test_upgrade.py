"""What docs/upgrade.md promises: the daemons of the release before work together with these, or
refuse in clear words; checkpoints and flags stay.

The release before is $MILLRACE_PREVIOUS_BIN, a folder of its programs. With --long it is built: the
newest tag, or without tags the commit before this one."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
from harness import BIN, ROOT, WARM_PYTHON, LineReader, TestCase

PROGRAM = """
import os, sys
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
with tf1.device("/job:ps/task:0"):
    v = tf1.get_variable("v", initializer=tf.constant([1., 2.]), use_resource=True)
with tf1.device("/job:worker/task:0"):
    total = tf.reduce_sum(tf.linalg.matmul(tf.reshape(v, [1, 2]), tf.reshape(v, [2, 1])))
saver = tf1.train.Saver()
with tf1.Session(os.environ["MILLRACE_TARGET"], config=tf1.ConfigProto(
        operation_timeout_in_ms=30000)) as session:
    try:
        if sys.argv[1] == "save":
            session.run(v.initializer)
            session.run(v.assign_add([1., 1.]))
            saver.save(session, sys.argv[2])
        elif sys.argv[1] == "restore":
            saver.restore(session, sys.argv[2])
        else:
            session.run(v.initializer)
        print("total", session.run(total))
    except tf.errors.OpError as e:
        print("refused", e.message.replace("\\n", " "))
"""


def git(*args):
    return subprocess.check_output(["git", "-C", ROOT, *args], text=True,
                                   stderr=subprocess.DEVNULL).strip()


def previous_commit():
    try:
        tags = git("tag", "--merged", "HEAD~1", "--sort=-creatordate").split()
        return tags[0] if tags else git("rev-parse", "HEAD~1")
    except subprocess.CalledProcessError:
        raise unittest.SkipTest("there is no git history") from None


def build(folder):
    """The programs of the release before."""
    source, commit = os.path.join(folder, "source"), previous_commit()
    git("worktree", "add", "--detach", source, commit)
    try:
        for command in (["meson", "setup", "build", "-Dcuda=disabled", "-Dtests=false"],
                        ["ninja", "-C", "build", "-j", "2"]):
            done = subprocess.run(command, cwd=source, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise AssertionError(done.stdout[-4000:])
        shutil.copytree(os.path.join(source, "build", "bin"), os.path.join(folder, "bin"))
    finally:
        git("worktree", "remove", "--force", source)
    return os.path.join(folder, "bin")


class TestUpgrade(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.previous = os.environ.get("MILLRACE_PREVIOUS_BIN")
        if not cls.previous and not harness.LONG:
            raise unittest.SkipTest("builds the release before: --long")
        if not cls.previous:
            folder = tempfile.mkdtemp(prefix="millrace-e2e-")
            cls.addClassCleanup(shutil.rmtree, folder)
            cls.previous = build(folder)

    def start(self, folder, name, label, *args):
        """(process, lines of its log, its port)"""
        port_file = self.path(label)
        if os.path.exists(port_file):
            os.unlink(port_file)
        process = self.popen([os.path.join(folder, name), *args, "--listen", "127.0.0.1:0",
                              "--admin", "off", "--port-file", port_file])
        lines = LineReader(process.stderr)
        lines.until("serving")
        with open(port_file, encoding="utf-8") as f:
            return process, lines, int(f.readline())

    def cluster(self, of_ps, of_worker, of_master):
        """Its target; folders of programs."""
        root = ("--file-root", self.tmp)
        tasks = {job: self.start(folder, "tf-worker", job, "--job", job, "--task", "0", *root)[2]
                 for job, folder in (("ps", of_ps), ("worker", of_worker))}
        listed = ",".join(f"{job}=127.0.0.1:{port}" for job, port in tasks.items())
        port = self.start(of_master, "tf-master", "master", "--cluster", listed)[2]
        return f"grpc://127.0.0.1:{port}"

    def result(self, target, *args):
        out, _ = self.expect(0, WARM_PYTHON, "-c", PROGRAM, *args, timeout_s=120,
                             env={"MILLRACE_TARGET": target, "TF_CPP_MIN_LOG_LEVEL": 3})
        return out.strip().splitlines()[-1]

    def expect_works_or_says_why(self, text):
        if not text.startswith("refused"):
            self.assertEqual(text, "total 5.0")
            return
        self.assertRegex(text, r"speaks protocol \d+ of the worker wire, but this task speaks \d+")

    def test_an_older_worker(self):
        self.expect_works_or_says_why(self.result(self.cluster(BIN, self.previous, BIN), "run"))

    def test_an_older_parameter_server_and_master(self):
        target = self.cluster(self.previous, BIN, self.previous)
        self.expect_works_or_says_why(self.result(target, "run"))

    def test_checkpoints_both_ways(self):
        prefix = os.path.join(self.tmp, "model")
        clusters = [self.cluster(folder, folder, folder) for folder in (self.previous, BIN)]
        for writer, reader in (clusters, clusters[::-1]):
            self.assertEqual(self.result(writer, "save", prefix), "total 13.0")
            self.assertEqual(self.result(reader, "restore", prefix), "total 13.0")

    def test_flags_stay(self):
        for name in ("tf-master", "tf-worker", "tfctl"):
            flags = [set(re.findall(r"(?m)^ +--([\w-]+)", subprocess.check_output(
                [os.path.join(folder, name), "--help"], text=True)))
                for folder in (self.previous, BIN)]
            self.assertEqual(flags[0] - flags[1], set(), f"{name} has lost flags")

    def test_a_worker_is_replaced_while_the_master_runs(self):
        """Workers first: the master finds the new one at the old address."""
        worker, _, port = self.start(self.previous, "tf-worker", "worker", "--job", "worker")
        _, lines, master = self.start(BIN, "tf-master", "master", "--cluster",
                                      f"worker=127.0.0.1:{port}")
        lines.until("is ready over")
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(worker), 0)
        self.popen([os.path.join(BIN, "tf-worker"), "--job", "worker", "--listen",
                    f"127.0.0.1:{port}", "--admin", "off"])
        lines.until("is ready over")
        out, _ = self.expect(0, "tfctl", "devices", "--json", "--target",
                             f"grpc://127.0.0.1:{master}")
        self.assertEqual(len(json.loads(out)), 1)
