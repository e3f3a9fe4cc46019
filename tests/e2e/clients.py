"""Training programs as processes of a test: what they say as it comes, while the test does other
things to the cluster."""
import os
import re
import signal
import subprocess
import threading
import time

from harness import DEADLINE_S, ROOT, WARM_PYTHON, command_line, marked_pids, wait_for_end


class Client:
    """An example program that runs; its lines are there as soon as it prints them."""

    def __init__(self, test, name, *arguments):
        self.test, self.name, self.lines, self.changed = test, name, [], threading.Condition()
        self.errors_path = test.path(f"{name}.err")
        with open(self.errors_path, "wb") as errors:
            self.process = test.popen([WARM_PYTHON, os.path.join(ROOT, "examples", arguments[0]),
                                       *arguments[1:]], stdin=subprocess.PIPE, stderr=errors)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.is_over = False

    def read(self):
        for line in iter(self.process.stdout.readline, b""):
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def story(self):
        with open(self.errors_path, errors="replace") as f:
            return "\n".join([f"{self.name} said:", *self.lines[-40:],
                              f"and to stderr: {f.read()[-4000:]}"])

    def wait_for(self, pattern, after=0, timeout_s=DEADLINE_S):
        """(the match, the number of lines up to it) of the first line from number `after` on that
        matches."""
        deadline, at = time.monotonic() + timeout_s, after
        with self.changed:
            while True:
                for at in range(at, len(self.lines)):
                    if match := re.search(pattern, self.lines[at]):
                        return match, at + 1
                at = max(after, len(self.lines))
                left = deadline - time.monotonic()
                if self.is_over or left <= 0:
                    when = "any more" if self.is_over else f"within {timeout_s} s"
                    self.test.fail(f"{self.name}: no line like '{pattern}' {when}\n{self.story()}")
                self.changed.wait(left)

    def numbers(self, pattern):
        """The numbers that the pattern's group found in all lines so far."""
        with self.changed:
            return [int(match.group(1))
                    for match in (re.search(pattern, line) for line in self.lines) if match]

    def n_lines(self):
        with self.changed:
            return len(self.lines)

    def finish(self, timeout_s=DEADLINE_S):
        """Waits for its end, which must be a success."""
        if not wait_for_end(self.process.pid, time.monotonic() + timeout_s):
            self.test.fail(f"{self.name} did not end within {timeout_s} s\n{self.story()}")
        code = self.process.wait()
        self.reader.join()
        self.test.assertEqual(code, 0, self.story())


def start_replicas(test, n, *arguments):
    """A client for each worker task, the chief first; all have begun. (A client that looks too
    early for the chief looks again 30 s later.)"""
    clients = [Client(test, f"client {task}", *arguments, f"--task={task}",
                      *["--wait"] * (task > 0)) for task in range(n)]
    for client in clients:
        client.process.stdin.close()
        client.process.stdin = None
        client.wait_for("began at step")
    return clients


def daemon(mark, name):
    """The process of the task or master so named ("ps/0"); None while there is none."""
    job, _, index = name.partition("/")
    wanted = ["--job", job, "--task", index] if index else ["--cluster"]
    for pid in marked_pids(mark):
        if command_line(pid)[1 : 1 + len(wanted)] == wanted:
            return pid
    return None


def kill(mark, name):
    pid = daemon(mark, name)
    os.kill(pid, signal.SIGKILL)
    return pid
