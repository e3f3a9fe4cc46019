"""What the end-to-end tests share: where the programs are, running them, and knowing which
processes they left behind.

Nothing here sleeps: a wait is a read, or a poll on a pidfd, with a deadline that only a broken
program meets.
"""
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("MILLRACE_BIN", os.path.join(ROOT, "build", "bin"))
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
# the same with TensorFlow imported already, for clients
WARM_PYTHON = os.path.join(ROOT, "tests", "e2e", "warm_python")
SANITIZED = os.environ.get("MILLRACE_E2E") == "sanitized"
LONG = False  # run.py sets it before it loads the tests
DEADLINE_S = 120 if SANITIZED else 60
MARK = "MILLRACE_TEST_MARK"
WARM = "MILLRACE_WARM"  # where warm.py listens, if it does


def program(name):
    return os.path.join(BIN, name)


def sanitized_too(test):
    """Marks a test that also runs in the short subset under sanitizers."""
    test.runs_sanitized = True
    return test


class LineReader:
    """Lines of a pipe, each with a deadline; everything read so far is in `text`."""

    def __init__(self, file):
        self.file, self.fd, self.text, self.rest = file, file.fileno(), "", b""

    def read_some(self, deadline):
        ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing more came within the deadline; so far:\n{self.text}")
        data = os.read(self.fd, 65536)
        self.text += data.decode(errors="replace")
        return data

    def line(self, deadline=None):
        """The next line without its newline; None at the end."""
        deadline = deadline or time.monotonic() + DEADLINE_S
        while b"\n" not in self.rest:
            data = self.read_some(deadline)
            if not data:
                return None
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def until(self, part):
        """Lines up to one that contains `part`, all within one deadline; returns that one."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            line = self.line(deadline)
            if line is None:
                raise AssertionError(f"no line has '{part}':\n{self.text}")
            if part in line:
                return line

    def to_end(self):
        deadline = time.monotonic() + DEADLINE_S
        while self.line(deadline) is not None:
            pass
        return self.text


def marked_pids(mark):
    """Processes that inherited the mark in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                if wanted in f.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            pass
    return found


def command_line(pid):
    """[""] for a process that has just gone."""
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().rstrip("\0").split("\0")
    except OSError:
        return [""]


def parent_of(pid):
    """0 for a process that has just gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def wait_for_end(pid, deadline):
    """Until the process is gone or a zombie."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], max(0, deadline - time.monotonic()))[0])
    finally:
        os.close(fd)


class TestCase(unittest.TestCase):
    """A private temporary directory, and a mark that all processes of a test inherit; what is left
    of either goes when it ends."""

    def setUp(self):
        self.mark = uuid.uuid4().hex
        self.directory = tempfile.mkdtemp(prefix="millrace-e2e-")
        self.tmp = os.path.join(self.directory, "tmp")
        os.mkdir(self.tmp)
        self.started = []
        self.addCleanup(self.clean_up)  # also when the setUp of a subclass fails

    def clean_up(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()
        for pid in marked_pids(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if k == WARM
               or (not k.startswith("MILLRACE_") and k != "TF_CONFIG")}
        return {**env, MARK: self.mark, "TMPDIR": self.tmp, **{k: str(v) for k, v in more.items()}}

    def path(self, name):
        return os.path.join(self.directory, name)

    def popen(self, command, env=None, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([str(c) for c in command], env=self.environment(**(env or {})),
                                   **options)
        self.started.append(process)
        return process

    def run_program(self, name, *args, env=None, timeout_s=DEADLINE_S, **options):
        """(exit status, stdout, stderr)"""
        process = self.popen([program(name) if "/" not in name else name, *args], env, **options)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"{name} {' '.join(map(str, args))} did not end within {timeout_s} "
                      f"s:\n{err.decode(errors='replace')}")
        return process.returncode, (out or b"").decode(errors="replace"), (err or b"").decode(
            errors="replace")

    def expect(self, code, name, *args, **options):
        """Runs a program that should exit so; returns its stdout and stderr."""
        got, out, err = self.run_program(name, *args, **options)
        self.assertEqual(got, code, f"{name} {' '.join(map(str, args))}\n{out}\n{err}")
        return out, err

    def wait_for_exit(self, process):
        try:
            return process.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.fail("the process did not end")

    def expect_nothing_left(self):
        """All processes of this test end by themselves soon, and the temporary directory is empty.
        """
        deadline = time.monotonic() + DEADLINE_S
        while pids := marked_pids(self.mark):
            for pid in pids:
                if not wait_for_end(pid, deadline):
                    self.fail(f"left behind: {pid} {' '.join(command_line(pid))}")
        self.assertEqual(os.listdir(self.tmp), [])


class LocalCluster:
    """tfctl local without a command, ready: its target, its process, and readers of its stdout and
    stderr."""

    def __init__(self, test, *args, env=None):
        self.test = test
        self.process = test.popen([program("tfctl"), "local", *args], env)
        self.out, self.err = LineReader(self.process.stdout), LineReader(self.process.stderr)
        self.target = self.out.line()
        if self.target is None:
            test.fail(f"tfctl local {' '.join(args)} did not start:\n{self.err.to_end()}")

    def port(self):
        return int(self.target.rsplit(":", 1)[1])

    def devices(self):
        out, _ = self.test.expect(0, "tfctl", "devices", "--json", "--target", self.target)
        return json.loads(out)

    def stop(self, signo=signal.SIGTERM):
        self.process.send_signal(signo)
        return self.test.wait_for_exit(self.process)


def listening_socket():
    """A port that is taken."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen(1)
    return taken
