"""Between-graph replication: one client process for each worker task, each with a graph of its own;
variables are shared by name.

`main` of a program that does so is here: without --task it starts itself once for each worker and
waits for all. The chief's session comes first: a client that looks for it too early looks again
only 30 s later.
"""
import argparse
import os
import subprocess
import sys

from common import tf1

BEGAN = "began at step"


def wait_for_chief(options):
    if options.wait:
        sys.stdin.read()


def session_config(options):
    """Sees the parameter servers and its own worker only, so that what names no device is there,
    and the death of another worker is nothing."""
    return tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{options.task}"])


class TellBeginning(tf1.train.SessionRunHook):
    """Says at which step a session begins: at a restored one, when it replaces a session that was
    lost."""

    def __init__(self, task):
        self.task = task

    def begin(self):
        self.step = tf1.train.get_global_step()

    def after_create_session(self, session, coord):
        print(f"worker {self.task}: {BEGAN} {session.run(self.step)}", flush=True)


def _start_all(options):
    """The exit status of the first replica that failed, else 0."""
    command = [sys.executable, *sys.argv]
    chief = subprocess.Popen([*command, "--task=0"], stdout=subprocess.PIPE, text=True)
    others = [subprocess.Popen([*command, f"--task={task}", "--wait"], stdin=subprocess.PIPE)
              for task in range(1, options.workers)]
    for line in chief.stdout:
        print(line, end="", flush=True)
        if BEGAN in line:
            for other in others:
                other.stdin.close()
    return next((code for code in [replica.wait() for replica in [chief, *others]] if code != 0), 0)


def main(doc, replica, workers, add=None):
    """`replica(options)` is one worker's program; `add(parser)` adds the program's own arguments.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--target", default=os.environ.get("MILLRACE_TARGET"),
                        help="grpc://HOST:PORT (default: $MILLRACE_TARGET)")
    parser.add_argument("--workers", type=int, default=workers,
                        help="how many worker tasks the cluster has")
    parser.add_argument("--task", type=int, help="be the client of this one")
    parser.add_argument("--wait", action="store_true",
                        help="until stdin ends, before the session begins")
    if add:
        add(parser)
    options = parser.parse_args()
    if not options.target:
        parser.error("no target, and MILLRACE_TARGET is not set")
    if options.task is None:
        code = _start_all(options)
    else:
        tf1.disable_eager_execution()
        code = replica(options) or 0
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's client may wait for servers that were killed meanwhile
