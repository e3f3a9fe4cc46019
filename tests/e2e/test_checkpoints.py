"""Checkpoints on a cluster: TensorFlow's Saver and MonitoredTrainingSession, unmodified; what
TensorFlow wrote; file roots; tfctl checkpoint."""
import json
import os

from harness import ROOT, WARM_PYTHON, LineReader, TestCase, program, sanitized_too
from raw_clients import Client, Refused, const, data, graph, node, number

PROGRAMS = os.path.join(ROOT, "tests", "e2e", "checkpoint_programs.py")
PERMISSION_DENIED, STRING = 7, 7
CLUSTER = ["local", "--ps", "1", "--workers", "2", "--quiet"]


def string_tensor(text):
    """A scalar of DT_STRING, as TensorProto."""
    return number(1, STRING) + data(2, b"") + data(8, text)


class CheckpointCase(TestCase):
    def run_on_cluster(self, name, *flags, directory=None):
        """The JSON that a program of checkpoint_programs.py ends with."""
        directory = directory or self.path("checkpoints")
        os.makedirs(directory, exist_ok=True)
        code, out, err = self.run_program("tfctl", *CLUSTER, "--worker-flag",
                                          f"--file-root={self.directory}", *flags, "--", "sh", "-c",
                                          f'exec "{WARM_PYTHON}" "{PROGRAMS}" {name} '
                                          f'"$MILLRACE_TARGET" "{directory}"', timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(out.splitlines()[-1])


class TestSaver(CheckpointCase):
    @sanitized_too
    def test_saves_restores_and_keeps_the_newest(self):
        result = self.run_on_cluster("saver")
        self.assertTrue(result["restored"] and result["restored_older"]
                        and result["read_by_tensorflow"], result)
        self.assertEqual(result["kept"], ["model-2", "model-3"])
        self.assertEqual(result["files"], ["checkpoint"]
                         + [f"model-{i}.{end}" for i in (2, 3)
                            for end in ("data-00000-of-00001", "index", "meta")])

    def test_sharded(self):
        result = self.run_on_cluster("sharded")
        self.assertTrue(result["restored"] and result["restored_older"]
                        and result["read_by_tensorflow"], result)
        ends = ("data-00000-of-00002", "data-00001-of-00002", "index", "meta")
        self.assertEqual(result["files"], ["checkpoint"]
                         + [f"model-{i}.{end}" for i in (2, 3) for end in ends])

    def test_saving_over_a_checkpoint_leaves_one(self):
        self.assertEqual(self.run_on_cluster("same_name"),
                         {"restored": True, "n_files": 2, "read_by_tensorflow": True})

    def test_restores_under_other_names(self):
        self.assertEqual(self.run_on_cluster("other_names"), {"restored": True})

    def test_restores_what_tensorflow_wrote(self):
        self.assertEqual(self.run_on_cluster("from_tensorflow"), {"restored": True})

    def test_says_what_is_missing_and_what_is_denied(self):
        result = self.run_on_cluster("missing")
        self.assertTrue(result["missing"].startswith("NotFoundError"), result)
        self.assertTrue(result["denied"].startswith("PermissionDeniedError"), result)
        self.assertTrue(result["works"])


class TestMonitoredSession(CheckpointCase):
    def test_goes_on_where_it_ended(self):
        result = self.run_on_cluster("monitored")
        self.assertEqual(result, {"began_at": [0, 20], "n_steps": 45, "saved_step": 45,
                                  "learned": True})


class TestFileRoots(TestCase):
    def test_a_root_that_is_not_there_ends_the_worker(self):
        code, _, err = self.run_program("tf-worker", "--file-root", self.path("nowhere"))
        self.assertEqual(code, 78)
        self.assertIn("file-root", err)

    def test_the_whole_file_system_needs_a_flag_of_its_own(self):
        code, _, err = self.run_program("tf-worker", "--file-root", "/", "--check-config")
        self.assertEqual(code, 78)
        self.assertIn("file-root: / is the whole file system", err)
        self.assertIn("--file-root-all", err)
        self.expect(0, "tf-worker", "--file-root", "/", "--file-root-all", "--check-config")

    def read(self, client, path):
        """What a graph reads of the file, or the code of the refusal."""
        handle = client.create(graph(const("name", string_tensor(path), STRING),
                                     node("read", "ReadFile", ("name",))))
        try:
            return client.run(handle, fetches=["read:0"])["read:0"]
        except Refused as refused:
            return refused.code
        finally:
            client.close(handle)

    def worker(self, *flags, cwd, env=None):
        ports = self.path(f"ports-{len(self.started)}")
        process = self.popen([program("tf-worker"), "--listen", "127.0.0.1:0", "--admin", "off",
                              "--port-file", ports, *flags], cwd=cwd, env=env)
        LineReader(process.stderr).until(" port ")
        with open(ports, encoding="utf-8") as f:
            worker_port = f.read().strip()
        ports = self.path(f"ports-{len(self.started)}")
        master = self.popen([program("tf-master"), "--listen", "127.0.0.1:0", "--admin", "off",
                             "--port-file", ports, "--cluster",
                             f"worker=127.0.0.1:{worker_port}"])
        LineReader(master.stderr).until(" port ")
        with open(ports, encoding="utf-8") as f:
            client = Client(int(f.read()))
        self.addCleanup(client.channel.close)
        return client

    def test_a_working_directory_of_everything_is_no_root(self):
        """As under a unit or in an image without a working directory."""
        client = self.worker(cwd="/", env={"TMPDIR": self.directory})
        path = self.path("file")
        with open(path, "w", encoding="utf-8") as f:
            f.write("ours")
        self.assertIn(b"ours", self.read(client, path))
        for name in ("/etc/passwd", "/proc/self/environ", "etc/passwd"):
            self.assertEqual(self.read(client, name), PERMISSION_DENIED)

    def test_keys_of_the_daemon_are_never_read(self):
        tls = self.path("tls")
        self.expect(0, "tfctl", "certs", tls, "--tasks", "worker=1")
        key = f"{tls}/worker-0.key"
        os.link(key, self.path("hard"))
        os.symlink(key, self.path("soft"))
        # the key of another service; the worker's wire itself has no TLS here
        client = self.worker("--file-root-all", "--etcd-ca", f"{tls}/ca.pem", "--etcd-cert",
                             f"{tls}/worker-0.pem", "--etcd-key", key, cwd=self.directory)
        self.assertIn(b"BEGIN CERTIFICATE", self.read(client, f"{tls}/worker-0.pem"))
        self.assertIn(b"root:", self.read(client, "/etc/passwd"))
        for name in (key, "tls/worker-0.key", self.path("hard"), self.path("soft"),
                     "/proc/self/environ", "/proc/self/mem", f"/proc/self/cwd/hard",
                     f"/proc/self/root{key}"):
            self.assertEqual(self.read(client, name), PERMISSION_DENIED, name)

    def test_roots_add_up(self):
        out, _ = self.expect(0, "tf-worker", "--file-root", self.directory, "--file-root=/usr",
                             "--check-config")
        self.assertIn(f"file-root = {self.directory}:/usr", out)


class TestCheckpointCommand(CheckpointCase):
    def setUp(self):
        super().setUp()
        self.prefix = self.path("checkpoints/model")
        self.run_on_cluster("same_name")

    def test_lists_and_shows(self):
        out, _ = self.expect(0, "tfctl", "checkpoint", "ls", self.prefix)
        lines = {line.split()[0]: line.split() for line in out.splitlines()[1:]}
        self.assertEqual(lines["ref"][1:3], ["float", "[3,4]"])
        self.assertEqual(lines["table"][1:3], ["float", "[7,3]"])
        self.assertEqual(lines["words"][1:3], ["string", "[3]"])
        out, _ = self.expect(0, "tfctl", "checkpoint", "show", self.prefix, "half", "words")
        self.assertIn("half: half[2]{7.5, 4}", out)
        self.assertIn('words: string[3]{"a!!!", "!!!", "', out)
        out, _ = self.expect(0, "tfctl", "checkpoint", "ls", self.prefix, "--output", "json")
        rows = {row["name"]: row for row in json.loads(out)}
        self.assertEqual(rows["ref"], {"name": "ref", "dtype": "float", "shape": [3, 4],
                                       "size_bytes": 48})
        self.assertEqual(set(rows), set(lines))

    def test_verifies(self):
        out, _ = self.expect(0, "tfctl", "checkpoint", "verify", self.prefix)
        self.assertIn("whole", out)
        def as_json(code):
            return json.loads(self.expect(code, "tfctl", "checkpoint", "verify", self.prefix,
                                          "--output", "json")[0])

        whole = as_json(0)
        self.assertEqual((whole["ok"], whole["damaged"]), (True, []))
        data = f"{self.prefix}.data-00000-of-00001"
        data = data if os.path.exists(data) else f"{self.prefix}.data-00000-of-00002"
        with open(data, "r+b") as f:
            f.seek(10)
            byte = f.read(1)
            f.seek(10)
            f.write(bytes([byte[0] ^ 1]))
        out, err = self.expect(70, "tfctl", "checkpoint", "verify", self.prefix)
        self.assertIn("Checksum does not match", out + err)
        damaged = as_json(70)
        self.assertEqual((damaged["ok"], damaged["tensors"]), (False, whole["tensors"]))
        self.assertIn("Checksum does not match", damaged["damaged"][0])

    def test_tells_differences(self):
        other = self.path("checkpoints2")
        self.run_on_cluster("other_names", directory=other)
        self.expect(0, "tfctl", "checkpoint", "diff", self.prefix, self.prefix)
        out, _ = self.expect(1, "tfctl", "checkpoint", "diff", self.prefix,
                             os.path.join(other, "model"))
        self.assertIn("only in", out)
        self.expect(74, "tfctl", "checkpoint", "ls", self.path("nowhere"))
        self.expect(64, "tfctl", "checkpoint", "shake", self.prefix)
