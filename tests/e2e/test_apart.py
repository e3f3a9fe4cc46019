"""Checkpoints of a cluster whose tasks share no files: each has a directory of its own, which it
knows under the same name."""
import glob
import json
import os
import select
import shutil
import time
import unittest

from harness import DEADLINE_S, ROOT, WARM_PYTHON, LineReader, TestCase, program, sanitized_too

PROGRAMS = os.path.join(ROOT, "tests", "e2e", "apart_programs.py")
PREFIX = "checkpoints/model"
MERGER = "ps-1"  # where a sharded Saver merges: on the last device


class ApartCase(TestCase):
    """Two ps tasks and a worker; each runs in its own directory, and takes relative names from
    there."""

    tasks = ("ps-0", "ps-1", "worker-0")

    def setUp(self):
        super().setUp()
        self.flags = ["--heartbeat=1s"]
        self.workers = {}

    def home(self, task):
        home = self.path(task)
        os.makedirs(home, exist_ok=True)
        return home

    def command(self, task, ports):
        job, index = task.split("-")
        return [program("tf-worker"), "--job", job, "--task", index, "--listen=127.0.0.1:0",
                f"--port-file={ports}", "--admin=off",
                f"--file-root={self.home(task)}", *self.flags]

    def start_task(self, task):
        ports = self.path(f"port-{task}")
        if os.path.exists(ports):
            os.unlink(ports)
        process = self.popen(self.command(task, ports), cwd=self.home(task),
                             stdout=open(self.path(f"log-{task}"), "ab"), stderr=-2)
        self.workers[task] = process
        return ports

    def start(self):
        self.addresses = {task: f"127.0.0.1:{self.port_of(self.start_task(task))}"
                          for task in self.tasks}
        spec = ",".join(f"{job}=" + ";".join(self.addresses[t] for t in self.tasks
                                             if t.startswith(job)) for job in ("ps", "worker"))
        ports = self.path("port-master")
        if os.path.exists(ports):
            os.unlink(ports)
        self.master = self.popen([program("tf-master"), "--listen=127.0.0.1:0",
                                  f"--port-file={ports}", f"--cluster={spec}", "--admin=off"],
                                 stdout=open(self.path("log-master"), "ab"), stderr=-2)
        self.target = f"grpc://127.0.0.1:{self.port_of(ports)}"

    def wait_until(self, holds, what):
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            self.assertLess(time.monotonic(), deadline, f"{what}\n{self.logs()}")
            select.select([], [], [], 0.005)

    def port_of(self, path):
        """Port files appear whole, by a rename."""
        self.wait_until(lambda: os.path.exists(path), f"no {path}")
        with open(path) as f:
            return int(f.readline())

    def stop(self):
        for process in [*self.workers.values(), self.master]:
            process.kill()
            process.wait()

    def run_apart(self, name, *args, home=MERGER, prefix=PREFIX, env=None):
        code, out, err = self.run_program(WARM_PYTHON, PROGRAMS, name, self.target, prefix, *args,
                                          env=env, cwd=self.home(home), timeout_s=300)
        self.assertEqual(code, 0, f"{out}\n{err}\n{self.logs()}")
        return json.loads(out.splitlines()[-1])

    def begin(self, name, *args):
        process = self.popen([WARM_PYTHON, PROGRAMS, name, self.target, PREFIX, *args],
                             cwd=self.home(MERGER), stdin=-1, stderr=-2)
        return process, LineReader(process.stdout)

    def error_of(self, process, lines):
        error = json.loads(lines.until('{"error"'))["error"]
        self.wait_for_exit(process)
        return error

    def logs(self):
        return "\n".join(open(path).read() for path in glob.glob(self.path("log-*")))

    def files(self, task):
        """All files below its directory's checkpoints."""
        home = os.path.join(self.home(task), "checkpoints")
        return sorted(os.path.relpath(os.path.join(d, f), home) for d, _, names in os.walk(home)
                      for f in names)

    def directories(self, task):
        return [d for d, _, _ in os.walk(os.path.join(self.home(task), "checkpoints"))]

    def verify(self, prefix=PREFIX, task=MERGER):
        self.expect(0, "tfctl", "checkpoint", "verify", os.path.join(self.home(task), prefix))


class TestSaving(ApartCase):
    def check_saved(self):
        ends = [f.split("model")[1] for f in self.files(MERGER)]
        self.assertEqual(ends[-1], ".index")
        self.assertEqual(len(ends), 3, ends)
        self.assertEqual(self.files("ps-0"), [])
        # the temporary one has gone
        self.assertEqual(len(self.directories("ps-0")), 1, self.directories("ps-0"))
        self.verify()

    @sanitized_too
    def test_shards_come_to_the_task_that_merges(self):
        self.start()
        self.assertEqual(self.run_apart("save_and_restore"), {"changed": True, "restored": True})
        self.check_saved()
        self.stop()
        self.start()
        self.assertEqual(self.run_apart("restore"),
                         {"restored": True, "whole": True, "part": True, "text": True})

    def test_a_session_with_a_cluster_of_its_own(self):
        """The session calls the tasks otherwise, and the last one is where its Saver merges."""
        def cluster():
            store = [self.addresses["ps-0"], self.addresses["ps-1"]]
            return {"APART_CLUSTER": json.dumps({"store": store[::-1] if is_reversed else store,
                                                 "worker": [self.addresses["worker-0"]]})}

        is_reversed = False
        self.start()
        self.assertEqual(self.run_apart("save_and_restore", env=cluster()),
                         {"changed": True, "restored": True})
        self.check_saved()
        self.stop()
        self.start()
        is_reversed = True  # each variable is at the other task now, and so are the shards
        self.assertEqual(self.run_apart("restore", env=cluster()),
                         {"restored": True, "whole": True, "part": True, "text": True})

    def test_over_tcp(self):
        self.flags += ["--unix=off"]
        self.start()
        self.assertEqual(self.run_apart("save_and_restore"), {"changed": True, "restored": True})
        self.check_saved()

    def test_a_saver_that_is_not_sharded(self):
        self.start()
        self.assertEqual(self.run_apart("save_and_restore", "no"),
                         {"changed": True, "restored": True})
        self.stop()
        self.start()
        self.assertEqual(self.run_apart("restore"),
                         {"restored": True, "whole": True, "part": True, "text": True})

    def test_says_what_nobody_has(self):
        self.start()
        errors = self.run_apart("missing")
        self.assertTrue(errors["checkpoint"].startswith("NotFoundError"), errors)
        self.assertIn("were asked: /job:", errors["checkpoint"])
        self.assertTrue(errors["key"].startswith("NotFoundError"), errors)
        self.assertIn("Key nothing not found in checkpoint", errors["key"])
        self.assertTrue(errors["long"].startswith("InvalidArgumentError"), errors)
        self.assertIn("expected dtype int32 does not equal original dtype float", errors["dtype"])
        self.assertIn("does not match the shape stored in checkpoint", errors["shape"])


class TestFailures(ApartCase):
    """Whatever fails in between, the checkpoint that was there stays whole, and nothing else stays
    at the task that merges."""

    def setUp(self):
        super().setUp()
        self.start()
        self.run_apart("save_and_restore")
        self.before = self.files(MERGER)

    def check_whole(self):
        self.assertEqual(self.files(MERGER), self.before)
        self.verify()

    def spoil(self, spoil_part):
        process, lines = self.begin("parts")
        lines.until("saved")
        spoil_part(glob.glob(os.path.join(self.home("ps-0"), "checkpoints", "model_temp",
                                          "part-0.*")))
        process.stdin.write(b"\n")
        process.stdin.flush()
        return self.error_of(process, lines)

    def drop_own_part(self):
        # its own part waits there for the next save
        shutil.rmtree(os.path.join(self.home(MERGER), "checkpoints", "model_temp"))

    @sanitized_too
    def test_damaged_bytes(self):
        def flip(paths):
            with open(next(p for p in paths if ".data-" in p), "r+b") as f:
                f.seek(1000)
                byte = f.read(1)
                f.seek(1000)
                f.write(bytes([byte[0] ^ 4]))

        error = self.spoil(flip)
        self.assertTrue(error.startswith("DataLossError"), error)
        self.assertIn("tensor 'v0' at offset 0", error)
        self.assertIn("as it came from /job:ps/replica:0/task:0", error)
        self.drop_own_part()
        self.check_whole()

    def test_a_part_without_its_data(self):
        error = self.spoil(lambda paths: os.unlink(next(p for p in paths if ".data-" in p)))
        self.assertTrue(error.startswith("DataLossError"), error)
        self.drop_own_part()
        self.check_whole()

    def test_a_part_that_is_a_link_to_elsewhere(self):
        def link(paths):
            for path in paths:
                elsewhere = self.path(os.path.basename(path))
                os.rename(path, elsewhere)
                os.symlink(elsewhere, path)

        error = self.spoil(link)
        self.assertTrue(error.startswith("PermissionDeniedError"), error)
        self.drop_own_part()
        self.check_whole()

    def test_the_owner_dies_on_the_way(self):
        process, lines = self.begin("save_large", "300")
        lines.until("ready")
        pattern = os.path.join(self.home(MERGER), "checkpoints", "*.part.tmp-*.data-*")
        self.wait_until(lambda: glob.glob(pattern), "nothing came")
        self.workers["ps-0"].kill()
        error = self.error_of(process, lines)
        self.assertRegex(error, "^(UnavailableError|AbortedError)")
        # The step ends with the lost task; the kernel that wrote the files ends soon after.
        self.wait_until(lambda: not glob.glob(os.path.join(self.home(MERGER), "checkpoints",
                "*.part.tmp-*")), "files stay behind")
        shutil.rmtree(glob.glob(os.path.join(self.home(MERGER), "checkpoints", "model_temp*"))[0])
        self.check_whole()


class TestKilledInASave(ApartCase):
    def test_the_next_save_removes_what_was_being_written(self):
        self.start()
        process, lines = self.begin("save_large", "300")
        lines.until("ready")
        pattern = os.path.join(self.home("ps-0"), "checkpoints", "*", "*.data.tmp-*")
        self.wait_until(lambda: glob.glob(pattern), "it does not save")
        self.workers["ps-0"].kill()
        self.workers["ps-0"].wait()
        self.assertEqual(len(glob.glob(pattern)), 1)
        self.assertRegex(self.error_of(process, lines), "^(UnavailableError|AbortedError)")
        self.stop()
        self.start()
        self.run_apart("save_and_restore")
        self.assertEqual(self.files("ps-0"), [])


@unittest.skipUnless(os.geteuid() == 0, "mount namespaces need root")
class TestNamespaces(ApartCase):
    """The same absolute path, and another file system behind it for each task; the merging one's
    may be small."""

    small_mb = 0

    def command(self, task, ports):
        mount = f"mount --bind {self.home(task)} {self.path('files')}"
        if self.small_mb and task == MERGER:
            mount = f"mount -t tmpfs -o size={self.small_mb}m none {self.path('files')}"
        command = " ".join(c if not c.startswith("--file-root")
                           else f"--file-root={self.path('files')}"
                           for c in super().command(task, ports))
        return ["unshare", "-m", "sh", "-c", f"{mount} && cd / && exec {command}"]

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("files"))
        self.prefix = self.path("files/checkpoints/model")

    def test_saves_and_restores(self):
        self.start()
        self.assertEqual(self.run_apart("save_and_restore", prefix=self.prefix),
                         {"changed": True, "restored": True})
        self.verify()
        self.assertEqual(self.files("ps-0"), [])
        self.stop()
        self.start()
        self.assertEqual(self.run_apart("restore", prefix=self.prefix)["restored"], True)

    def test_no_room_for_what_comes(self):
        self.small_mb = 100
        self.start()
        error = self.run_apart("save_large", "150", prefix=self.prefix)["error"]
        self.assertTrue(error.startswith("ResourceExhaustedError"), error)
        self.assertIn("No space left on device", error)
        inside = ["nsenter", "-t", str(self.workers[MERGER].pid), "-m", "find", self.path("files"),
                  "-name", "*.tmp-*"]
        self.assertEqual(self.expect(0, "/usr/bin/" + inside[0], *inside[1:])[0], "")
