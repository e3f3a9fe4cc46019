"""The daemons' pages as programs and as people get them, while a client has named things as badly
as it may."""
import html.parser
import http.client
import json
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
    def daemon(self, name, *flags):
        """(port, admin port)"""
        ports = self.path(f"port-{len(self.started)}")
        process = self.popen([program(name), "--listen", "127.0.0.1:0", "--port-file", ports,
                              *flags])
        LineReader(process.stderr).until(" port ")
        with open(ports, encoding="utf-8") as f:
            return [int(word) for word in f.read().replace("admin", "").split()]

    def start(self, *master_flags):
        ps, ps_admin = self.daemon("tf-worker", "--job", "ps")
        worker, worker_admin = self.daemon("tf-worker")
        self.port, master_admin = self.daemon(
            "tf-master", "--cluster", f"ps=127.0.0.1:{ps},worker=127.0.0.1:{worker}",
            *master_flags)
        self.admins = {"master": master_admin, "ps": ps_admin, "worker": worker_admin}

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
            self.assertIn(link, (*self.pages(daemon), "?format=json"))
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
            self.assertEqual(json.loads(body), [])

    def test_stepz(self):
        (step,) = self.json_of("master", "/stepz")["steps"]
        waits = {row["task"]: row["waits"] for row in step["tasks"]}
        self.assertIn("QueueDequeue", waits["/job:ps/replica:0/task:0"])
        self.assertEqual(len(step["session"]), 32)
        (row,) = self.json_of("ps", "/stepz")["steps"]
        self.assertEqual(row["step"], step["step"])
        self.assertIn(b"<pre>dequeue (QueueDequeueV2)",
                      get(self.admins["ps"], "/stepz?format=html")[2])


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
