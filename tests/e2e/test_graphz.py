"""/graphz and `tfctl graph`: where the nodes of a signature are, why, and what they took."""
import http.client
import re
import shutil
import signal
import xml.etree.ElementTree

import raw_clients as raw
from raw_clients import FLOAT, Client, float_tensor, graph, node, small_graph, type_attr
from test_pages import BROWSER, PagesCase, PageParser, get

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"
MARKUP = "<b>&\"';"


class TestGraph(PagesCase):
    def setUp(self):
        super().setUp()
        self.start()
        self.client = Client(self.port)
        self.addCleanup(self.client.channel.close)
        t = type_attr(FLOAT)
        self.handle = self.client.create(graph(
            node("x", "Placeholder", device="/job:ps", dtype=t),
            node("v", "VarHandleOp", device="/job:ps/task:0", dtype=t, shape=raw.data(7, b""),
                 shared_name=raw.data(2, MARKUP)),
            raw.const("one", float_tensor(1), FLOAT),
            node("here/sum", "AddV2", ("x", "one"), "/job:worker/task:0", T=t),
            node("set", "AssignVariableOp", ("v", "here/sum"), dtype=t),
            *(node(self.wide(i), "Tanh", (self.wide(i - 1) if i else "x",), "/job:ps/task:0", T=t)
              for i in range(400))))
        for _ in range(3):
            self.client.run(self.handle, feeds=[("x:0", float_tensor(2))], fetches=["here/sum:0"],
                            targets=["set"])
        self.handle = self.handle.decode()
        self.admin = f"127.0.0.1:{self.admins['master']}"

    @staticmethod
    def wide(i):
        return f"wide{i // 10}/part/n{i}"

    def page(self):
        return self.json_of("master", f"/graphz?session={self.handle}&signature=1")

    def test_it_says_where_why_and_how_long(self):
        (row,) = self.json_of("master", "/graphz")["signatures"]
        self.assertEqual((row["runs"], row["steps"], row["tasks"]), ("here/sum:0", 3, 2))
        self.assertEqual(self.json_of("master", row["page"]), self.page())
        nodes = {(n["node"], n["op"]): n for n in self.page()["nodes"]}
        self.assertEqual({name: n["device"] for name, n in nodes.items()}, {
            ("x_0", "feed"): WORKER, ("v", "VarHandleOp"): PS, ("one", "Const"): WORKER,
            ("here/sum", "AddV2"): WORKER, ("set", "AssignVariableOp"): PS,
            ("here/sum", "fetch"): WORKER})
        total = nodes["here/sum", "AddV2"]
        self.assertEqual(total["why_here"], "the client asked for /job:worker/task:0")
        self.assertEqual(nodes["set", "AssignVariableOp"]["why_here"], "the state of v is there")
        self.assertEqual(nodes["one", "Const"]["why_here"], "what uses it is there")
        self.assertGreater(total["estimate_us"], 0)
        self.assertGreater(total["took_us"], 0)
        self.assertIn(total["executions"], (1, 2, 3))

    def test_long_names_that_begin_alike_have_their_own_times(self):
        t = type_attr(FLOAT)
        ops = {"scope/" * 30 + op: op for op in ("Tanh", "Sigmoid", "Exp")}
        handle = self.client.create(graph(
            node("x", "Placeholder", device="/job:worker", dtype=t),
            *(node(name, op, ("x",), "/job:worker/task:0", T=t) for name, op in ops.items())))
        for _ in range(3):
            self.client.run(handle, feeds=[("x:0", float_tensor(*[1.0] * 100000))],
                            fetches=[f"{name}:0" for name in ops])
        page = self.json_of("master", f"/graphz?session={handle.decode()}")
        nodes = {n["node"]: n for n in page["nodes"] if n["op"] in ops.values()}
        self.assertEqual(set(nodes), set(ops))
        for n in nodes.values():
            self.assertIn(n["executions"], (1, 2, 3))

    def test_it_is_drawn(self):
        drawing = self.page()["drawing"]
        boxes = drawing["boxes"]
        places = {(b["x"], b["y"]) for b in boxes}
        self.assertEqual((len(boxes), len(places)), (6, 6))  # none lies on another
        for b in boxes:
            self.assertLessEqual(b["x"] + b["width"], drawing["width"])
            self.assertLessEqual(b["y"] + b["height"], drawing["height"])
        named = {tuple(b["lines"][:2]): i for i, b in enumerate(boxes)}
        arrows = {(a["from"], a["to"]): a for a in drawing["arrows"]}
        across = arrows[named["AddV2", "here/sum"], named["AssignVariableOp", "set"]]
        self.assertTrue(across["is_between_devices"])
        for a in drawing["arrows"]:
            self.assertLess(a["y1"], a["y2"])  # downwards, as there is no circle
        path = f"/graphz?session={self.handle}&signature=1"
        body = get(self.admins["master"], path, BROWSER)[2].decode()
        parser = PageParser()
        parser.feed(body)
        self.assertEqual(parser.complaints, [])
        self.assertIn("why here: the client asked for /job:worker/task:0", body)
        self.assertEqual(body.count("<rect "), 6 + 2)  # the legend has two

    def test_a_large_one_is_grouped(self):
        self.client.run(self.handle.encode(), feeds=[("x:0", float_tensor(2))],
                        targets=[self.wide(399)])
        page = self.json_of("master", f"/graphz?session={self.handle}")  # the one that ran last
        self.assertGreaterEqual(page["nodes_in_all"], 400)
        self.assertLessEqual(len(page["drawing"]["boxes"]), 60)
        self.assertRegex(page["grouping"], r"nodes in \d+ boxes: by device and the first \d parts")

    def test_one_page_at_a_time_asks_the_tasks(self):
        stopped = self.started[0]  # it does not reply, so the first page waits for a second
        paths = [f"/graphz?session={self.handle}", f"/graphz?session={self.handle}", "/tracez",
                 "/tracez?steps=2"]
        stopped.send_signal(signal.SIGSTOP)
        try:
            first = http.client.HTTPConnection(raw.LOOPBACK, self.admins["master"], timeout=30)
            self.addCleanup(first.close)
            first.request("GET", paths[0])
            statuses = [get(self.admins["master"], path)[0] for path in paths[1:]]
            self.assertEqual((statuses, first.getresponse().status), ([503] * 3, 200))
        finally:
            stopped.send_signal(signal.SIGCONT)
        self.page()

    def test_what_is_not_there(self):
        for query in (f"session={'0' * 32}", f"session={self.handle}&signature=99"):
            status, _, body = get(self.admins["master"], f"/graphz?{query}")
            self.assertEqual(status, 404)
            self.assertIn(b"no such", body)

    def test_tfctl(self):
        def tfctl(*args, code=0):
            return self.expect(code, "tfctl", "graph", "--admin", self.admin, *args)

        self.assertIn(f"session={self.handle}&signature=1: here/sum:0, 3 steps on 2 tasks",
                      tfctl("--list")[0])
        out, _ = tfctl()
        self.assertRegex(out, rf"\nhere/sum \(AddV2\) on {WORKER}, because the client asked for "
                              r"/job:worker/task:0; estimate .*, took ")
        svg = self.path("g.svg")
        tfctl("--output", "svg", "--out", svg)
        root = xml.etree.ElementTree.parse(svg).getroot()
        texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("AddV2", texts)
        dot, _ = tfctl("--output", "dot")
        self.assertRegex(dot, r'^digraph placed {\n(  .*;\n)+}\n$')
        self.assertIn("AddV2\\nhere/sum", dot)
        self.assertTrue(tfctl("--output", "json")[0].startswith('{"session":'))
        self.assertIn("404", tfctl("--signature", "99", code=70)[1])
        self.assertIn("cannot be written", tfctl("--out", "/no/such/file", code=74)[1])
        self.client.close(self.handle.encode())
        self.assertIn("no session has run a step", tfctl(code=70)[1])
        self.handle = self.client.create(small_graph("/job:ps/task:0")).decode()
        self.client.run(self.handle.encode(), feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        other = self.client.create(small_graph("/job:ps/task:0"))
        self.client.run(other, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        out, err = tfctl(code=64)  # which of the two is meant?
        self.assertEqual(out, "")
        for handle in (self.handle, other.decode()):
            self.assertIn(f"session={handle}&signature=1: ", err)
        self.assertIn("--session HANDLE", err)
        self.assertIn("y (", tfctl("--session", other.decode())[0])

    def test_a_browser_draws_it(self):
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if not chromium:
            self.skipTest("chromium is not installed")
        out, _ = self.expect(
            0, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={self.path('chromium')}",
            "--dump-dom", f"http://{self.admin}/graphz?session={self.handle}&signature=1")
        svg = re.search(r"<svg.*</svg>", out, re.DOTALL).group()
        self.assertEqual(svg.count("<rect "), 6 + 2)
        self.assertIn(">AddV2</text>", svg)
