"""What all subcommands of tfctl do alike: guesses at what was mistyped, JSON for programs, progress
for people, and whole error messages."""
import json
import os
import pty
import select

import raw_clients as raw
from harness import program
from raw_clients import FLOAT, Client, float_tensor, graph, node, small_graph, type_attr
from test_pages import PagesCase


class TestGuesses(PagesCase):
    def test_what_was_mistyped(self):
        for command, guess in ((("staus",), "status"), (("status", "--ouput", "json"), "--output"),
                               (("run", "g.pb", "--fed", "x"), "--feed"),
                               (("local", "--worker", "2"), "--workers")):
            _, err = self.expect(64, "tfctl", *command)
            self.assertIn(f", did you mean {guess}? (see --help)\n", err)
        _, err = self.expect(64, "tfctl", "zebra")
        self.assertEqual(err, "tfctl: unknown subcommand zebra (see --help)\n")
        _, err = self.expect(64, "tf-worker", "--listn", "127.0.0.1:0")
        self.assertIn("unknown option --listn, did you mean --listen?", err)


class TestOutputs(PagesCase):
    def test_devices_and_costs(self):
        self.start("--cost-file", self.path("costs"))
        target = f"grpc://127.0.0.1:{self.port}"
        admin = f"127.0.0.1:{self.admins['master']}"
        out, _ = self.expect(0, "tfctl", "devices", "--output", "json", "--target", target)
        self.assertEqual(out, self.expect(0, "tfctl", "devices", "--json", "--target", target)[0])
        self.assertEqual(len(json.loads(out)), 2)
        with Client(self.port) as client:
            handle = client.create(small_graph("/job:ps/task:0"))

            def is_measured():
                client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
                return "executions" in self.json_of("master", "/costz")[0]

            self.until(is_measured, "nothing is measured")
        rows = json.loads(self.expect(0, "tfctl", "costs", "--admin", admin)[0])
        out, _ = self.expect(0, "tfctl", "costs", "--output", "text", "--admin", admin)
        self.assertRegex(out, r"(?m)^\d[\d.]* [nµm]s in \d+ executions: .*AddV2")
        self.assertEqual(len(out.splitlines()), len(rows))


class TestErrors(PagesCase):
    def test_a_port_that_was_guessed_is_said_to_be(self):
        self.start()  # its admin port is a free one
        target, words = f"grpc://127.0.0.1:{self.port}", "started with another --admin"
        for command in (("status",), ("drain", "ps/0"), ("costs",)):
            _, err = self.expect(74, "tfctl", *command, "--target", target)
            self.assertIn(words, err)
            self.assertIn(target, err)
        _, err = self.expect(74, "tfctl", "status", "--admin", "127.0.0.1:1")
        self.assertNotIn(words, err)

    def test_status_shows_all_lines_of_an_error(self):
        self.start()
        t = type_attr(FLOAT)
        with Client(self.port) as client:
            handle = client.create(graph(
                node("x", "Placeholder", device="/job:ps/task:0", dtype=t),
                node("v", "VarHandleOp", device="/job:ps/task:0", dtype=t,
                     shape=raw.data(7, b""), shared_name=raw.data(2, "v")),
                node("read", "ReadVariableOp", ("v",), "/job:ps/task:0", dtype=t)))
            with self.assertRaises(raw.Refused) as refused:
                client.run(handle, fetches=["read:0"])
            out, _ = self.expect(0, "tfctl", "status", "--admin",
                                 f"127.0.0.1:{self.admins['master']}")
        lines = refused.exception.message.splitlines()
        self.assertGreater(len(lines), 1)
        shown = out[out.index("last errors\n"):].splitlines()[1:1 + len(lines)]
        self.assertIn(lines[0], shown[0])
        for line, wanted in zip(shown[1:], lines[1:]):
            self.assertEqual(line, "      " + wanted.lstrip("\t"))


class TestProgress(PagesCase):
    def test_a_terminal_is_told_what_is_looked_at(self):
        main, terminal = pty.openpty()
        self.addCleanup(os.close, main)
        with open(terminal, "wb", buffering=0) as stderr:
            process = self.popen([program("tfctl"), "doctor"], stderr=stderr)
        out, shown = process.stdout.read().decode(), b""
        while select.select([main], [], [], 0)[0]:
            try:
                data = os.read(main, 65536)
            except OSError:  # the terminal's end
                break
            shown += data
        self.assertIn(process.wait(), (0, 70))
        self.assertIn(b"\r\033[Klooking at: host name", shown)
        self.assertTrue(shown.endswith(b"\r\033[K"))
        self.assertNotIn("looking at", out)

    def test_elsewhere_there_is_none(self):
        _, out, err = self.run_program("tfctl", "doctor")
        self.assertNotIn("looking at", out + err)
