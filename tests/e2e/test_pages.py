"""The daemons' pages as programs and as people get them, while a client has named things as badly
as it may."""
import html.parser
import http.client
import json
import os
import shutil
import struct
import time

import harness
import raw_clients as raw
from harness import LineReader, TestCase, program
from raw_clients import FLOAT, Client, data, float_tensor, graph, node, small_graph, type_attr

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HOSTILE = b"<script>alert('1')</script>\"&\xff\x01<b>" + b"x" * 1000
# their end tags may be left out
SHORT = {"meta", "tr", "td", "th", "thead", "tbody", "dt", "dd", "p"}


class PageParser(html.parser.HTMLParser):
    """Complains about tags that do not match, scripts and links to elsewhere."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.complaints, self.text, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "img", "link", "iframe", "object", "b") and self.open[-1:] != [
                "header"]:
            self.complaints.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "style"):
                self.complaints.append(f"{tag} {name}={value}")
            if name == "href":
                self.links.append(value)
        if tag not in SHORT:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in SHORT:
            return
        if self.open[-1:] != [tag]:
            self.complaints.append(f"</{tag}> in {self.open}")
        else:
            self.open.pop()

    def handle_data(self, text):
        self.text.append(text)


def get(port, path, accept=None):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection(raw.LOOPBACK, port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


class PagesCase(TestCase):
    def daemon(self, name, *flags, env=None):
        """(port, admin port)"""
        ports = self.path(f"port-{len(self.started)}")
        process = self.popen([program(name), "--listen", "127.0.0.1:0", "--port-file", ports,
                              *flags], env)
        LineReader(process.stderr).until(" port ")
        with open(ports, encoding="utf-8") as f:
            return [int(word) for word in f.read().replace("admin", "").split()]

    def start(self, *master_flags, environment=None):
        """`environment` has what a daemon's has in addition, by its name."""
        environment = environment or {}
        ps, ps_admin = self.daemon("tf-worker", "--job", "ps", env=environment.get("ps"))
        worker, worker_admin = self.daemon("tf-worker", env=environment.get("worker"))
        self.port, master_admin = self.daemon(
            "tf-master", "--cluster", f"ps=127.0.0.1:{ps},worker=127.0.0.1:{worker}",
            *master_flags)
        self.admins = {"master": master_admin, "ps": ps_admin, "worker": worker_admin}
        self.until(lambda: get(master_admin, "/readyz")[0] == 200, "the master is not ready")

    def json_of(self, daemon, path):
        status, headers, body = get(self.admins[daemon], path, "application/json")
        self.assertEqual((status, headers["Content-Type"]), (200, "application/json"), path)
        return json.loads(body)

    def pages(self, daemon):
        return ["/", *(row["page"] for row in self.json_of(daemon, "/")["pages"])]

    def until(self, condition, what):
        deadline = time.monotonic() + harness.DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)


class TestHostileNames(PagesCase):
    """A queue with a hostile name, from which a step waits for an element, and a value between
    tasks."""

    def setUp(self):
        super().setUp()
        self.start()
        client = Client(self.port)
        self.addCleanup(client.channel.close)
        handle = client.create(graph(
            node("queue", "FIFOQueueV2", device="/job:ps/task:0", shared_name=data(2, HOSTILE),
                 component_types=data(1, raw.number(6, FLOAT))),
            node("dequeue", "QueueDequeueV2", ("queue",), "/job:ps/task:0",
                 component_types=data(1, raw.number(6, FLOAT))),
            node("there", "Neg", ("dequeue",), "/job:worker/task:0", T=type_attr(FLOAT))))
        self.step = client.begin_run(handle, fetches=["there:0"])
        self.addCleanup(self.step.cancel)
        self.until(lambda: b"QueueDequeue" in get(self.admins["master"], "/stepz")[2],
                   "no step waits")

    def test_every_page_is_json_and_html(self):
        n_shown = 0
        for daemon in self.admins:
            for path in self.pages(daemon):
                status, headers, body = get(self.admins[daemon], path, BROWSER)
                with self.subTest(daemon=daemon, path=path):
                    self.assertEqual(status, 200)
                    if not headers["Content-Type"].startswith("text/html"):
                        self.assertIn(path, ("/readyz", "/livez", "/metrics"))
                        continue
                    self.json_of(daemon, path)
                    self.check_html(daemon, path, headers, body)
                    n_shown += b"&lt;script&gt;alert(" in body
        self.assertGreater(n_shown, 0)

    def check_html(self, daemon, path, headers, body):
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        parser = PageParser()
        parser.feed(body.decode())
        self.assertEqual((parser.complaints, parser.open), ([], []))
        for link in parser.links:
            self.assertRegex(link, r"^(/[a-z]*)?(\?[A-Za-z0-9=&_-]+)?$")
            self.assertIn(link.split("?")[0], (*self.pages(daemon), ""))
        self.assertNotIn(b"x" * 500, body)  # names are cut

    def test_programs_get_what_they_got(self):
        for accept in (None, "*/*"):
            for daemon in self.admins:
                status, headers, body = get(self.admins[daemon], "/statusz", accept)
                self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
                json.loads(body)
                status, headers, body = get(self.admins[daemon], "/stepz", accept)
                self.assertEqual((status, headers["Content-Type"]), (200, "text/plain"))
            status, headers, body = get(self.admins["master"], "/costz", accept)
            (row,) = json.loads(body)
            for words in ("Nothing has been measured", "--placement", "--cost-file PATH"):
                self.assertIn(words, row["note"])
        out, _ = self.expect(0, "tfctl", "costs", "--output", "text", "--admin",
                             f"127.0.0.1:{self.admins['master']}")
        self.assertEqual(out, row["note"] + "\n")

    def test_stepz(self):
        (step,) = self.json_of("master", "/stepz")["steps"]
        waits = {row["task"]: row["waits"] for row in step["tasks"]}
        self.assertIn("QueueDequeue", waits["/job:ps/replica:0/task:0"])
        self.assertEqual(len(step["session"]), 32)
        (row,) = self.json_of("ps", "/stepz")["steps"]
        self.assertEqual(row["step"], step["step"])
        self.assertIn(b"<pre>dequeue (QueueDequeueV2)",
                      get(self.admins["ps"], "/stepz?format=html")[2])

    def test_rendezvousz_says_what_does_not_arrive(self):
        self.until(lambda: self.json_of("worker", "/rendezvousz")["steps"], "no step")
        page = self.json_of("worker", "/rendezvousz")
        (step,) = page["steps"]
        self.assertEqual(step["step"], self.json_of("worker", "/stepz")["steps"][0]["step"])
        self.assertTrue(step["started"])
        (value,) = step["values"]
        self.assertEqual(value["state"], "a Recv waits for it")
        self.assertGreater(value["waits_seconds"], 0)
        self.assertEqual(page["table"]["steps"], 1)
        self.step.cancel()
        self.until(lambda: not self.json_of("worker", "/rendezvousz")["steps"], "the step stays")

    def test_a_browser_shows_it_and_runs_nothing(self):
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if not chromium:
            self.skipTest("chromium is not installed")
        for daemon, path in (("ps", "/statusz"), ("master", "/"), ("ps", "/stepz")):
            out, _ = self.expect(
                0, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", f"--user-data-dir={self.path('chromium')}",
                "--dump-dom", f"http://127.0.0.1:{self.admins[daemon]}{path}")
            with self.subTest(daemon=daemon, path=path):
                self.assertIn(f"<h1>{path if path != '/' else 'master'}</h1>", out)
                self.assertNotIn("<script", out)
                self.assertEqual(path == "/statusz", "&lt;script&gt;alert(" in out)


class TestMemoryAndTransport(PagesCase):
    """A variable of 4 MB at the ps, which the worker reads."""

    N = 1 << 20

    def setUp(self):
        super().setUp()
        self.start()
        client = Client(self.port)
        self.addCleanup(client.channel.close)
        ps, t, no_shape = "/job:ps/task:0", type_attr(FLOAT), data(7, b"")
        self.check_small(client, ps)
        handle = client.create(graph(
            node("n", "Const", device=ps, dtype=type_attr(raw.INT32),
                 value=data(8, raw.tensor(raw.INT32, (1,), self.N.to_bytes(4, "little")))),
            raw.const("one", raw.tensor(FLOAT, (), struct.pack("<f", 1)), FLOAT, ps),
            node("fill", "Fill", ("n", "one"), ps, T=t, index_type=type_attr(raw.INT32)),
            node("v", "VariableV2", device=ps, dtype=t, shape=no_shape,
                 shared_name=data(2, "<weights>")),
            node("set", "Assign", ("v", "fill"), ps, T=t, validate_shape=raw.number(5, 0)),
            node("read", "Identity", ("v",), ps, T=t),
            node("there", "Neg", ("read",), "/job:worker/task:0", T=t)))
        client.run(handle, targets=["set"])
        def is_by_reference():
            client.run(handle, targets=["there"])
            return "shm_bytes" in self.json_of("ps", "/transportz")["peers"][0]["sent_by"]

        self.until(is_by_reference, "no value goes by reference")

    def check_small(self, client, ps):
        """Small values go over the socket even when larger ones could go by reference."""
        small = client.create(graph(
            raw.const("shape", raw.tensor(raw.INT32, (1,), b"\5\0\0\0"), raw.INT32, ps),
            node("small", "RandomUniform", ("shape",), ps, T=type_attr(raw.INT32),
                 dtype=type_attr(FLOAT)),
            node("far", "Neg", ("small",), "/job:worker/task:0", T=type_attr(FLOAT))))

        def is_ready():
            client.run(small, targets=["far"])
            (peer,) = self.json_of("ps", "/transportz")["peers"]
            return peer["shm_to"] == "ready"

        self.until(is_ready, "the worker does not map the memory of the ps")
        (peer,) = self.json_of("ps", "/transportz")["peers"]
        self.assertEqual((peer["transport"], set(peer["sent_by"])), ("unix", {"unix_bytes"}))
        self.assertIn("values of more than 65536 bytes go by shm", peer["why"])
        self.assertIn("no such value yet", peer["why"])
        self.assertEqual(peer["large_by_socket"], {})

    def test_memz(self):
        page = self.json_of("ps", "/memz")
        (device,) = page["devices"]
        self.assertEqual(device["device"], "/job:ps/replica:0/task:0/device:CPU:0")
        self.assertGreaterEqual(device["memory_in_use_bytes"], 4 * self.N)
        self.assertGreaterEqual(device["memory_peak_bytes"], device["memory_in_use_bytes"])
        self.assertGreater(device["memory_limit_bytes"], device["memory_peak_bytes"])
        (holder,) = page["resources"]
        self.assertEqual((holder["name"], holder["size_bytes"], holder["kind"]),
                         ("<weights>", 4 * self.N, "Var"))
        self.assertEqual((holder["memory"], page["resources_bytes"]),
                         (device["device"], 4 * self.N))
        self.assertEqual(self.json_of("worker", "/memz")["resources"], [])
        (row,) = self.json_of("ps", "/statusz")["resources"]
        self.assertEqual(row["size_bytes"], 4 * self.N)

    def test_memz_counts_queues_and_tables(self):
        t, types, ps = type_attr(FLOAT), data(1, raw.number(6, FLOAT)), "/job:ps/task:0"
        values = raw.tensor(FLOAT, (3, 100), bytes(1200))
        keys = raw.tensor(raw.INT32, (2,), bytes(4) + b"\1\0\0\0")
        with Client(self.port) as client:
            client.run(client.create(graph(
                node("q", "FIFOQueueV2", device=ps, shared_name=data(2, "the queue"),
                     component_types=types),
                raw.const("values", values, FLOAT, ps),
                node("put", "QueueEnqueueManyV2", ("q", "values"), ps, Tcomponents=types),
                node("t", "MutableHashTableV2", device=ps, shared_name=data(2, "the table"),
                     key_dtype=type_attr(raw.INT32), value_dtype=t),
                raw.const("keys", keys, raw.INT32, ps),
                raw.const("two", raw.tensor(FLOAT, (2,), bytes(8)), FLOAT, ps),
                node("insert", "LookupTableInsertV2", ("t", "keys", "two"), ps,
                     Tin=type_attr(raw.INT32), Tout=t))), targets=["put", "insert"])
        rows = {row["name"]: row for row in self.json_of("ps", "/memz")["resources"]}
        self.assertEqual((rows["the queue"]["items"], rows["the queue"]["size_bytes"]), (3, 1200))
        self.assertEqual(rows["the table"]["items"], 2)
        self.assertGreaterEqual(rows["the table"]["size_bytes"], 2 * 4)

    def test_memz_shows_the_largest(self):
        t = type_attr(FLOAT)
        nodes = []
        for i in range(150):
            values = raw.tensor(FLOAT, (i + 1,), bytes(4 * (i + 1)))
            nodes += [raw.const(f"c{i}", values, FLOAT),
                      node(f"v{i}", "VariableV2", dtype=t, shape=data(7, b"")),
                      node(f"set{i}", "Assign", (f"v{i}", f"c{i}"), T=t,
                           validate_shape=raw.number(5, 0))]
        with Client(self.port) as client:
            client.run(client.create(graph(*nodes)), targets=[f"set{i}" for i in range(150)])
        (daemon,) = [d for d in ("ps", "worker")
                     if len(self.json_of(d, "/memz")["resources"]) > 1]
        rows = self.json_of(daemon, "/memz")["resources"]
        sizes = [row["size_bytes"] for row in rows[:-1]]
        self.assertEqual((len(sizes), sizes), (100, sorted(sizes, reverse=True)))
        self.assertEqual(rows[-1], {"more": 50 + (daemon == "ps")})
        self.assertEqual(self.json_of(daemon, "/memz")["resources_bytes"],
                         sum(4 * (i + 1) for i in range(150))
                         + (4 * self.N if daemon == "ps" else 0))

    def test_transportz(self):
        (to,) = self.json_of("ps", "/transportz")["peers"]
        (back,) = self.json_of("worker", "/transportz")["peers"]
        self.assertEqual((to["task"], back["task"]),
                         ("/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"))
        self.assertEqual((to["transport"], back["transport"]), ("shm, unix", "shm, unix"))
        self.assertNotIn("no such value", to["why"])
        self.assertGreaterEqual(to["sent_by"]["shm_bytes"], 4 * self.N)
        self.assertGreaterEqual(back["received_by"]["shm_bytes"], 4 * self.N)
        self.assertEqual(to["sent_bytes"], sum(to["sent_by"].values()))
        self.assertNotIn("shm_bytes", back["sent_by"])

    def test_metrics(self):
        def value(daemon, name, **labels):
            text = get(self.admins[daemon], "/metrics")[2].decode()
            wanted = name + "{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "} "
            return float(next(line for line in text.splitlines()
                              if line.startswith(wanted)).split()[-1])

        device = {"device": "/job:ps/replica:0/task:0/device:CPU:0"}
        for name in ("in_use", "peak", "limit"):
            self.assertGreaterEqual(
                value("ps", f"millrace_device_memory_{name}_bytes", **device), 4 * self.N)
        self.assertGreaterEqual(
            value("ps", "millrace_peer_sent_bytes_total", peer="/job:worker/replica:0/task:0",
                  transport="shm"), 4 * self.N)
        self.assertGreaterEqual(
            value("worker", "millrace_peer_received_bytes_total",
                  peer="/job:ps/replica:0/task:0", transport="shm"), 4 * self.N)
        self.assertGreater(
            value("ps", "millrace_peer_sent_bytes_total", peer="/job:worker/replica:0/task:0",
                  transport="unix"), 0)


class TestIndex(PagesCase):
    def test_it_says_what_the_process_is(self):
        self.start()
        for daemon, program_, name in (
                ("master", "tf-master", "master"),
                ("ps", "tf-worker", "/job:ps/replica:0/task:0"),
                ("worker", "tf-worker", "/job:worker/replica:0/task:0")):
            page = self.json_of(daemon, "/")
            self.assertEqual((page["program"], page["name"]), (program_, name))
            self.assertEqual(page["version"],
                             self.expect(0, program_, "--version")[0].split()[-1])
            self.assertGreaterEqual(page["uptime_seconds"], 0)
            self.assertTrue({"/statusz", "/stepz", "/metrics"} <= set(self.pages(daemon)))
            self.assertTrue(all(row["about"] for row in page["pages"]))

    def test_memberz_says_why_there_is_no_registration(self):
        self.start()
        page = self.json_of("ps", "/memberz")
        self.assertIsNone(page["registration"])
        self.assertIn("started without --etcd", page["why"])


class TestSessions(PagesCase):
    def test_it_says_who_runs_what_and_what_went_wrong(self):
        self.start()
        self.assertEqual(self.json_of("master", "/sessionz"), {"sessions": [], "signatures": []})
        with Client(self.port) as client:
            handle = client.create(small_graph("/job:ps/task:0")).decode()
            other = client.create(small_graph()).decode()
            client.run(handle.encode(), feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
            with self.assertRaises(raw.Refused):
                client.run(handle.encode(), fetches=["<no such>:0"])
            page = self.json_of("master", "/sessionz")
            self.assertEqual([row["session"] for row in page["sessions"]], [handle, other])
            row = page["sessions"][0]
            self.assertEqual((row["steps"], row["steps_failed"], row["steps_running"]), (2, 1, 0))
            self.assertRegex(row["client"], r"^127\.0\.0\.1:\d+$")
            self.assertEqual(row["client_id"], page["sessions"][1]["client_id"])
            self.assertIn("<no such>", row["last_error"])
            self.assertGreaterEqual(row["last_error_age_seconds"], 0)
            self.assertNotIn("last_error", page["sessions"][1])
            (signature,) = page["signatures"]
            self.assertEqual((signature["feeds"], signature["fetches"], signature["state"]),
                             (["x:0"], ["y:0"], "ready"))
            self.assertEqual(signature["tasks"], ["/job:ps/replica:0/task:0"])
            graph = self.json_of("master", signature["page"])
            self.assertEqual((graph["session"], graph["runs"]), (handle, "y:0"))
            self.assertIn(f'{handle}&amp;signature=1">/graphz?…&amp;signature=1</a>',
                          get(self.admins["master"], "/sessionz", BROWSER)[2].decode())
            self.assertEqual(self.json_of("master", f"/sessionz?session={other}")["signatures"],
                             [])
            self.assertEqual(
                len(self.json_of("master", f"/sessionz?session={other}")["sessions"]), 1)
            self.assertIn(b"&lt;no such&gt;",
                          get(self.admins["master"], "/sessionz?format=html")[2])
            client.close(handle.encode())
            self.assertEqual(len(self.json_of("master", "/sessionz")["sessions"]), 1)

    def test_a_page_of_many_signatures_says_how_many_are_left_out(self):
        self.start()
        with Client(self.port) as client:
            handle = client.create(graph(*(raw.const(f"c{i}", float_tensor(i), FLOAT)
                                           for i in range(205))))
            for i in range(205):
                client.run(handle, fetches=[f"c{i}:0"])
            signatures = self.json_of("master", "/sessionz")["signatures"]
            self.assertEqual((len(signatures), signatures[-1]), (201, {"more": 5}))
            path = f"/sessionz?session={handle.decode()[::-1]}"
            self.assertEqual(self.json_of("master", path)["signatures"], [])
            path = "/sessionz?xsession=1"
            self.assertEqual(len(self.json_of("master", path)["signatures"]), 201)

    def test_a_page_of_many_sessions_is_limited(self):
        self.start()
        with Client(self.port) as client:
            calls = [client.begin("CreateSession", raw.create_request(small_graph()))
                     for _ in range(300)]
            for call in calls:
                client.end(call)
            sessions = self.json_of("master", "/sessionz")["sessions"]
        self.assertEqual((len(sessions), sessions[-1]), (201, {"more": 100}))


class TestFlags(PagesCase):
    def flags(self, admin, part):
        return {row["flag"]: row for row in
                json.loads(get(admin, "/flagz")[2])[part]}

    def test_they_have_their_origins(self):
        config = self.path("config.ini")
        with open(config, "w", encoding="utf-8") as f:
            f.write("insecure = yes\n[worker]\nmax-inflight = 1G\n")
        _, admin = self.daemon("tf-worker", "--config", config, "--threads", "3")
        flags = self.flags(admin, "set")
        self.assertEqual((flags["threads"]["value"], flags["threads"]["origin"]), ("3", "flag"))
        self.assertEqual((flags["max-inflight"]["value"], flags["max-inflight"]["origin"]),
                         (str(1 << 30), f"{config}:3"))
        self.assertNotIn("task", flags)
        task = self.flags(admin, "defaults")["task"]
        self.assertEqual((task["value"], task["origin"]), ("0", "default"))
        self.assertTrue(task["about"])

    def test_secrets_are_hidden(self):
        password = self.path("the-password")
        with open(password, "w", encoding="utf-8") as f:
            f.write("hush")
        os.chmod(password, 0o600)
        worker, _ = self.daemon("tf-worker")
        _, admin = self.daemon(
            "tf-master", "--cluster", f"worker=127.0.0.1:{worker}", "--etcd",
            "http://127.0.0.1:9,http://127.0.0.1:10", "--etcd-user", "me", "--etcd-password-file",
            password)
        flags = self.flags(admin, "set")
        self.assertEqual(flags["etcd-password-file"]["value"], "(hidden)")
        self.assertEqual(flags["etcd-user"]["value"], "me")
        self.assertNotIn(b"the-password", get(admin, "/flagz")[2])
