"""A cluster of one parameter server, two workers and a master on this host, for tests: daemons from
$MILLRACE_BIN or build/bin.

    with Cluster() as cluster:
        with tf.compat.v1.Session(cluster.target) as session: ...
        cluster.check()     raises when a daemon has died or a step is left over

Daemons take any free port and write it into a port file. Each daemon's output is written to a file;
the last output of a dead daemon is in the error's text.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30


def argument_parser(description):
    """What every program here takes that runs cases on a cluster."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--long", action="store_true", help="all cases, not a sample")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin",
                        help="where tf-master and tf-worker are; default $MILLRACE_BIN or "
                             "build/bin")
    return parser


class ClusterError(Exception):
    """A daemon died, did not start, or kept something that it should have freed."""


# A test that is killed leaves no daemons behind. By a program of its own: Python code between fork
# and exec would run beside what is left of TensorFlow's and gRPC's threads, which may abort there.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


class Daemon:
    def __init__(self, name, arguments, directory):
        self.name = name
        self.port_file = os.path.join(directory, name + ".ports")
        self.log_path = os.path.join(directory, name + ".log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*DIES_WITH_PARENT, *arguments, "--listen", "127.0.0.1:0", "--port-file",
                 self.port_file], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.port = self.admin_port = None

    def restart(self):
        """Again, at its old port; returns when it serves."""
        command = [*self.process.args]
        command[command.index("--listen") + 1] = f"127.0.0.1:{self.port}"
        os.unlink(self.port_file)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        self.wait_until_ready()

    def log_tail(self, n_lines=30):
        """The last lines; a sanitizer's report from its beginning."""
        with open(self.log_path, errors="replace") as log:
            lines = log.readlines()
        first = next((i for i, line in enumerate(lines) if "Sanitizer: " in line), len(lines))
        return "".join(lines[first:][:100] or lines[-n_lines:])

    def wait_until_ready(self):
        deadline = time.time() + START_TIMEOUT_S
        while not os.path.exists(self.port_file):
            if self.process.poll() is not None or time.time() > deadline:
                raise ClusterError(f"{self.name} did not start (status "
                                   f"{self.process.poll()}):\n{self.log_tail()}")
            time.sleep(0.005)
        with open(self.port_file) as ports:
            port, admin = ports.read().split("\n")[:2]
        self.port, self.admin_port = int(port), int(admin.split()[1])

    def page(self, path):
        """The text of an admin page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}",
                                    timeout=10) as reply:
            return reply.read().decode()

    def metric(self, name):
        """A number from /metrics."""
        for line in self.page("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def stop(self):
        """TERM must end it with status 0; what does not end is killed. Returns what went wrong, or
        None."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return (f"{self.name} did not end within {STOP_TIMEOUT_S} s of "
                        f"SIGTERM:\n{self.log_tail()}")
        if self.process.returncode != 0:
            return f"{self.name} ended with status {self.process.returncode}:\n{self.log_tail()}"
        return None


class Cluster:
    def __init__(self, n_ps=1, n_workers=2, bin_dir=None, worker_flags=(), master_flags=(),
                 jobs=None, flags_of=None):
        """jobs: how many tasks each job has, instead of n_ps and n_workers. flags_of: further flags
        of single tasks, by (job, index)."""
        self.bin_dir = bin_dir or os.environ.get("MILLRACE_BIN") or os.path.join(
            ROOT, "build", "bin")
        self.jobs = jobs or {"ps": n_ps, "worker": n_workers}
        self.worker_flags, self.master_flags = list(worker_flags), list(master_flags)
        self.flags_of = flags_of or {}
        self.daemons, self.directory, self.spec, self.target = [], None, None, None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, exc_type, exc, trace):
        complaints = self.stop()
        if complaints and exc_type is None:
            raise ClusterError("\n".join(complaints))
        if complaints:  # why the client has failed
            print("\n".join(complaints), flush=True)

    @property
    def tasks(self):
        return self.daemons[: sum(self.jobs.values())]

    @property
    def masters(self):
        return self.daemons[sum(self.jobs.values()) :]

    @property
    def master(self):
        return self.masters[0]

    def start(self):
        self.directory = tempfile.mkdtemp(prefix="millrace-test-")
        try:
            spec = []
            for job, n_tasks in self.jobs.items():
                of_job = [
                    Daemon(f"{job}{i}", [os.path.join(self.bin_dir, "tf-worker"), "--job", job,
                                         "--task", str(i), *self.worker_flags,
                                         *self.flags_of.get((job, i), ())], self.directory)
                    for i in range(n_tasks)
                ]
                self.daemons += of_job
                spec.append((job, of_job))
            for daemon in self.daemons:
                daemon.wait_until_ready()
            text = ",".join(f"{job}=" + ";".join(map(self.address_of, of_job)) for job,
                            of_job in spec if of_job)
            self.spec = text
            self.add_master(self.master_flags)
        except BaseException:
            self.stop()
            raise
        self.target = f"grpc://127.0.0.1:{self.master.port}"

    def address_of(self, daemon):
        """Where the others reach a task."""
        return f"127.0.0.1:{daemon.port}"

    def add_master(self, flags):
        """A further master over the same tasks; returns its target. `master` stays the first one.
        """
        name = f"master{len(self.masters) or ''}"
        self.daemons.append(Daemon(name, [os.path.join(self.bin_dir, "tf-master"), "--cluster",
                                          self.spec, *flags], self.directory))
        self.daemons[-1].wait_until_ready()
        return f"grpc://127.0.0.1:{self.daemons[-1].port}"

    def stop(self):
        """The master first, so that it ends its steps in order. Returns complaints."""
        complaints = [complaint for daemon in reversed(self.daemons)
                      if (complaint := daemon.stop())]
        self.daemons = []
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
        return complaints

    def check_alive(self):
        for daemon in self.daemons:
            if daemon.process.poll() is not None:
                raise ClusterError(f"{daemon.name} died with status "
                                   f"{daemon.process.returncode}:\n{daemon.log_tail()}")

    def check(self, timeout_s=5):
        """All daemons live, and no step is left: neither at the master nor, a moment later, at a
        task."""
        self.check_alive()
        deadline = time.time() + timeout_s
        while True:
            left = "".join(master.page("/stepz").strip() for master in self.masters)
            left += "".join(f"\n{d.name}: {n:.0f} runs" for d in self.tasks
                            if (n := d.metric("millrace_worker_steps_live")))
            if not left:
                return
            if time.time() > deadline:
                raise ClusterError(f"steps are left over:\n{left}")
            time.sleep(0.01)
