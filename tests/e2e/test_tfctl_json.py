"""`--output json` of every subcommand of tfctl: one JSON document, also for an error, or a line of
JSON for each event."""
import json
import os
import signal

import raw_clients as raw
from harness import LineReader, program
from raw_clients import FLOAT, STRING, Client, data, float_tensor, graph, node, number, type_attr
from test_pages import PagesCase, get

EVENTS = ("local", "tunnel")  # they run until they are stopped


def strings(*texts):
    """A TensorProto."""
    return number(1, STRING) + data(2, data(2, number(1, len(texts)))) + b"".join(
        data(8, text) for text in texts)


def scalar(text):
    return number(1, STRING) + data(2, b"") + data(8, text)


class JsonCase(PagesCase):
    def subcommands(self):
        """The table of subcommands, as tfctl has it."""
        lines = self.expect(0, "tfctl", "--help")[0].splitlines()
        lines = lines[lines.index("Subcommands:") + 1:]
        return [line.split()[0] for line in lines[:lines.index("")]]

    def json(self, code, *args, **options):
        """What a command prints, which is one document in one line or more."""
        out, err = self.expect(code, "tfctl", args[0], "--output", "json", *args[1:], **options)
        try:
            return json.loads(out)
        except ValueError:
            self.fail(f"tfctl {' '.join(args)} prints no JSON document: {out}\n{err}")

    def error(self, code, *args, **options):
        document = self.json(code, *args, **options)
        self.assertEqual((set(document), set(document["error"])),
                         ({"error", "exit_code"}, {"code", "message"}))
        self.assertEqual(document["exit_code"], code)
        return document["error"]


class TestErrors(JsonCase):
    def test_every_wrong_command_line(self):
        for name in self.subcommands():
            error = self.error(64, name, "--no-such-flag")
            self.assertEqual(error, {"code": "INVALID_ARGUMENT",
                                     "message": "unknown option --no-such-flag"}, name)
            error = self.error(64, name, "--outptu", "json")
            self.assertIn("did you mean --output?", error["message"])
            _, err = self.expect(64, "tfctl", name, "--output", "jsn")
            self.assertIn("did you mean json?", err)
        self.assertIn("did you mean status?", self.error(64, "staus")["message"])
        self.error(64, "--verbose")
        for verbs, guess in ((("job", "endd"), "end"), (("checkpoint", "vefiry", "x"), "verify")):
            self.assertIn(f"did you mean {guess}?", self.error(64, *verbs)["message"])

    def test_no_master_answers(self):
        """What needs a master; the others fail otherwise."""
        nobody = "127.0.0.1:1"
        target, admin = ("--target", f"grpc://{nobody}"), ("--admin", nobody)
        graph_file = self.path("empty.pb")
        open(graph_file, "wb").close()
        commands = {
            "status": admin, "top": admin, "costs": admin, "graph": admin,
            "trace": admin, "job": ("end", *admin), "drain": ("worker/0", *admin),
            "devices": (*target, "--timeout", "1s"),
            "run": (graph_file, *target, "--target-op", "x", "--timeout", "1s"),
            "checkpoint": ("ls", self.path("nowhere")),
            "certs": (os.path.join(graph_file, "below-a-file"),),
            "tunnel": (nobody, "--port-file", self.path("no/such/folder")),
        }
        codes = {"devices": (74, 70), "run": (74, 70)}
        for name in self.subcommands():
            if name in ("doctor", "local"):
                continue
            code, out, _ = self.run_program("tfctl", name, *commands.pop(name), "--output", "json")
            self.assertIn(code, codes.get(name, (74,)), name)
            document = json.loads(out)
            self.assertEqual(document["exit_code"], code)
            self.assertTrue(document["error"]["message"], name)
        self.assertEqual(commands, {})
        # doctor's findings are no error of its own
        broken = self.json(70, "doctor", "--target", f"grpc://{nobody}")
        self.assertFalse(broken["ok"])


class TestDocuments(JsonCase):
    def start_cluster(self):
        self.root = self.path("files")
        os.mkdir(self.root)
        ps, _ = self.daemon("tf-worker", "--job", "ps", "--file-root", self.root)
        worker, _ = self.daemon("tf-worker", "--file-root", self.root)
        self.port, admin = self.daemon("tf-master", "--cluster",
                                       f"ps=127.0.0.1:{ps},worker=127.0.0.1:{worker}",
                                       "--cost-file", self.path("costs"))
        self.admins = {"master": admin}
        self.until(lambda: get(admin, "/readyz")[0] == 200, "the master is not ready")
        self.target = ("--target", f"grpc://127.0.0.1:{self.port}")
        self.admin = ("--admin", f"127.0.0.1:{admin}")

    def save(self, name, *values):
        """Writes a checkpoint through the cluster; returns its prefix."""
        prefix, f = os.path.join(self.root, name), type_attr(FLOAT)
        s = type_attr(STRING)
        with Client(self.port) as client:
            handle = client.create(graph(
                *(node(n, "Const", device="/job:ps/task:0", dtype=s, value=data(8, v))
                  for n, v in (("prefix", scalar(prefix)), ("names", strings("v")),
                               ("slices", strings("")))),
                node("value", "Const", device="/job:ps/task:0", dtype=f,
                     value=data(8, float_tensor(*values))),
                node("save", "SaveV2", ("prefix", "names", "slices", "value"), "/job:ps/task:0",
                     dtypes=data(1, number(6, FLOAT)))))
            client.run(handle, targets=["save"])
        return prefix

    def check_run(self):
        f, path = type_attr(FLOAT), self.path("graph.pb")
        words = node("words", "Const", dtype=type_attr(STRING),
                     value=data(8, strings("a\"\n", "ü")))
        with open(path, "wb") as file:
            file.write(graph(node("x", "Placeholder", dtype=f), node("y", "Log", ("x",), T=f),
                             node("z", "Neg", ("x",), T=f), words))
        saved = self.path("y.npy")
        document = self.json(0, "run", path, *self.target, "--feed", "x=float[4]{1, 0, -1, 7}",
                             "--fetch", "y:0", "--fetch", "words", "--fetch", f"z:0=@{saved}",
                             "--max-elements", "3")
        y, texts, z = document["fetches"]
        self.assertEqual((y["name"], y["dtype"], y["shape"], y["values"], y["values_left_out"]),
                         ("y:0", "float", [4], [0, "-Infinity", "NaN"], 1))
        self.assertEqual((texts["shape"], texts["values"]), ([2], ["a\"\n", "ü"]))
        self.assertEqual(z, {"name": "z:0", "dtype": "float", "shape": [4], "file": saved})
        error = self.error(70, "run", path, *self.target, "--fetch", "y:0")
        self.assertEqual(error["code"], "INVALID_ARGUMENT")
        self.assertIn("must feed", error["message"])

    def check_checkpoint(self):
        a, b = self.save("a", 1, 2), self.save("b", 1, 3)
        (row,) = self.json(0, "checkpoint", "ls", a)
        self.assertEqual((row["name"], row["shape"]), ("v", [2]))
        (row,) = self.json(0, "checkpoint", "show", a, "v")
        self.assertEqual(row, {"name": "v", "dtype": "float", "shape": [2], "values": [1, 2]})
        error = self.error(74, "checkpoint", "show", a, "v", "w")
        self.assertEqual(error["code"], "NOT_FOUND")
        self.assertTrue(self.json(0, "checkpoint", "verify", a)["ok"])
        self.assertEqual(self.json(0, "checkpoint", "diff", a, a),
                         {"same": True, "differences": [], "unreadable": []})
        self.assertEqual(self.json(1, "checkpoint", "diff", a, b)["differences"],
                         [{"name": "v", "elements": 1}])
        other = self.json(1, "checkpoint", "diff", a, self.save("c", 1))["differences"]
        self.assertEqual(other, [{"name": "v", "types": [{"dtype": "float", "shape": [2]},
                                                         {"dtype": "float", "shape": [1]}]}])
        with open(f"{b}.data-00000-of-00001", "r+b") as file:
            file.write(b"\xff")
        document = self.json(70, "checkpoint", "diff", a, b)
        self.assertEqual((document["same"], len(document["unreadable"])), (False, 1))

    def check_devices(self):
        rows = self.json(0, "devices", *self.target)
        self.assertEqual([row["type"] for row in rows], ["CPU"] * 2)

    def check_status(self):
        self.assertTrue(self.json(0, "status", *self.admin)["ok"])

    def check_top(self):
        self.assertEqual(self.json(0, "top", *self.admin, "--interval", "100ms")["tasks"], 2)

    def check_doctor(self):
        self.assertTrue(self.json(0, "doctor")["checks"])

    def check_costs(self):
        self.assertIsInstance(self.json(0, "costs", *self.admin), list)

    def check_graph(self):
        """It names the sessions when there are several."""
        listed = self.json(0, "graph", "--list", *self.admin)
        self.assertEqual(listed["signatures"], [])
        with Client(self.port) as client:
            first = client.create(raw.small_graph("/job:ps/task:0"))
            feed = [("x:0", float_tensor(1))]
            client.run(first, feeds=feed, fetches=["y:0"])
            self.assertEqual(self.json(0, "graph", *self.admin)["session"], first.decode())
            other = client.create(raw.small_graph("/job:worker/task:0"))
            client.run(other, feeds=feed, fetches=["y:0"])
            error = self.error(64, "graph", *self.admin)
            for handle in (first, other):
                self.assertIn(f"session={handle.decode()}&signature=", error["message"])
                page = self.json(0, "graph", *self.admin, "--session", handle.decode())
                self.assertEqual(page["session"], handle.decode())
            _, err = self.expect(64, "tfctl", "graph", *self.admin)
            self.assertIn("name one with --session HANDLE:\nsession=", err)
            client.close(first)
            client.close(other)

    def check_trace(self):
        path = self.path("trace.json")
        document = self.json(0, "trace", *self.admin, "--out", path)
        self.assertEqual(document["file"], path)
        self.assertGreater(document["steps"], 0)
        self.assertIn("traceEvents", self.json(0, "trace", *self.admin, "--out", "-"))

    def check_certs(self):
        directory = self.path("tls")
        document = self.json(0, "certs", directory, "--tasks", "ps=1")
        names = {row["name"] for row in document["certificates"]}
        self.assertIn("millrace://default/job/ps/task/0", names)
        for row in document["certificates"]:
            self.assertTrue(os.path.exists(row["certificate"]) and os.path.exists(row["key"]))
        self.error(64, "certs", directory, "--tasks", "ps=0")

    def check_drain(self):
        self.assertEqual(self.json(0, "drain", "worker/0", *self.admin),
                         {"task": "/job:worker/replica:0/task:0", "state": "drained"})
        self.assertEqual(self.error(70, "drain", "worker/9", *self.admin)["code"], "NOT_FOUND")

    def check_job(self):
        self.assertEqual(self.json(0, "job", "end", *self.admin),
                         {"asked_to": "end", "admin": self.admin[1]})

    def test_every_subcommand(self):
        """In the table's order, but the cluster ends last."""
        self.start_cluster()
        names = self.subcommands()
        for name in sorted(names, key=lambda n: (n in ("drain", "job"), n == "job")):
            if name not in EVENTS:
                getattr(self, f"check_{name}")()


class TestEvents(JsonCase):
    def begin(self, *args):
        process = self.popen([program("tfctl"), *args, "--output", "json"])
        return process, LineReader(process.stdout)

    def test_local(self):
        process, out = self.begin("local", "--ps", "1", "--workers", "1", "--keep-going")
        ready = json.loads(out.line())
        self.assertEqual((ready["event"], set(ready["pids"])),
                         ("ready", {"ps/0", "worker/0", "master"}))
        self.json(0, "status", "--admin", ready["admin"]["master"])
        os.kill(ready["pids"]["ps/0"], signal.SIGKILL)
        ended = json.loads(out.line())
        self.assertEqual((ended["event"], ended["daemon"], ended["pid"]),
                         ("daemon_ended", "ps/0", ready["pids"]["ps/0"]))
        process.terminate()
        self.assertIsNone(out.line())
        self.assertEqual(self.wait_for_exit(process), 0)

    def test_local_that_fails(self):
        process, out = self.begin("local", "--workers", "1")
        ready = json.loads(out.line())
        os.kill(ready["pids"]["worker/0"], signal.SIGKILL)
        self.assertEqual(json.loads(out.line())["event"], "daemon_ended")
        error = json.loads(out.line())
        self.assertIn("was killed by signal 9", error["error"]["message"])
        self.assertIsNone(out.line())
        self.assertEqual(self.wait_for_exit(process), error["exit_code"])

    def test_the_standard_output_of_a_command_is_its_own(self):
        out, _ = self.expect(3, "tfctl", "local", "--output", "json", "--", "sh", "-c",
                             "echo mine; exit 3")
        self.assertEqual(out, "mine\n")
        error = self.error(127, "local", "--", "no-such-command")
        self.assertIn("no-such-command", error["message"])

    def test_tunnel(self):
        process, out = self.begin("tunnel", "127.0.0.1:1")
        ready = json.loads(out.line())
        self.assertEqual(ready["event"], "ready")
        self.assertRegex(ready["target"], r"^grpc://127\.0\.0\.1:\d+$")
        process.terminate()
        self.assertIsNone(out.line())
        self.assertEqual(self.wait_for_exit(process), 0)

    def test_they_are_the_only_ones(self):
        text = " ".join(self.expect(0, "tfctl", "--help")[0].split())
        self.assertIn(f"{EVENTS[0]} and {EVENTS[1]}, which run until they are stopped, print a "
                      "line of JSON for each event", text)
