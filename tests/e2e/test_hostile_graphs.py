"""Small graphs that need much memory or time, deep graphs and broken ones: each is an error to its
client and does not disturb other clients."""
import os
import struct
import zlib

import harness
import raw_clients as raw
from harness import ROOT, WARM_PYTHON, sanitized_too
from hostile import CACHE_MIB, F, I, TASKS, WORKER0, HostileCase
from raw_clients import (
    FLOAT, Client, Refused, const, data, float_tensor, graph, int_tensor, node, number, small_graph)


class TestGraphsThatAreBombs(HostileCase):
    worker_flags = ("--memory-limit", "256M", "--drain-timeout", "3s")

    def setUp(self):
        super().setUp()
        self.client = Client(self.port)
        self.addCleanup(self.client.channel.close)

    def run_graph(self, graph_def, **what):
        handle = self.client.create(graph_def)
        try:
            return self.client.run(handle, harness.DEADLINE_S, **what)
        finally:
            self.client.close(handle)

    def check_refused(self, code, graph_def, room_mib=64, **what):
        self.assertEqual(self.code(self.run_graph, graph_def, **what), code)
        self.client.channel.close()
        self.check_well(room_mib)

    @staticmethod
    def function(name, body, result):
        signature = data(1, name) + data(2, data(1, "x") + number(3, FLOAT)) + data(
            3, data(1, "y") + number(3, FLOAT))
        return data(1, data(1, signature) + b"".join(data(3, n) for n in body)
                    + data(4, data(1, "y") + data(2, result)))

    @staticmethod
    def call(name, value, function):
        types = data(1, number(6, FLOAT))
        return node(name, "PartitionedCall", (value,), Tin=types, Tout=types,
                    f=data(10, data(1, function)))

    def of_functions(self, functions, called):
        return graph(node("x", "Placeholder", dtype=F), self.call("c", "x", called)) + data(
            2, b"".join(functions))

    def test_attrs_ten_thousand_deep(self):
        func = data(1, "f")
        for _ in range(10_000):
            func = data(1, "f") + data(2, data(1, "a") + data(2, data(10, func)))
        self.check_refused(3, graph(node("a", "NoOp", f=data(10, func))), targets=["a"])

    def test_functions_that_double(self):
        """2^29 nodes once inlined. The memory of the attempt goes back to the system."""
        functions = [self.function("f0", [node("n", "Neg", ("x",), T=F)], "n:y:0")]
        functions += [self.function(f"f{i}", [self.call("a", "x", f"f{i - 1}"),
                                              self.call("b", "a:output:0", f"f{i - 1}")],
                                    "b:output:0") for i in range(1, 30)]
        self.check_refused(8, self.of_functions(functions, "f29"), feeds=[("x:0", float_tensor(1))],
                           fetches=["c:0"])

    def test_a_function_that_calls_itself(self):
        functions = [self.function("f", [self.call("a", "x", "f")], "a:output:0")]
        self.check_refused(3, self.of_functions(functions, "f"), feeds=[("x:0", float_tensor(1))],
                           fetches=["c:0"])

    def test_functions_three_thousand_deep(self):
        functions = [self.function("f0", [node("n", "Neg", ("x",), T=F)], "n:y:0")]
        functions += [self.function(f"f{i}", [self.call("a", "x", f"f{i - 1}")], "a:output:0")
                      for i in range(1, 3000)]
        self.check_refused(8, self.of_functions(functions, "f2999"),
                           feeds=[("x:0", float_tensor(1))], fetches=["c:0"])

    def test_a_chain_of_a_hundred_thousand_nodes_is_only_long(self):
        nodes = [node(f"n{i}", "Neg", (f"n{i - 1}" if i else "x",), TASKS[i // 10_000 % 3], T=F)
                 for i in range(100_000)]
        got = self.run_graph(graph(node("x", "Placeholder", dtype=F), *nodes),
                             feeds=[("x:0", float_tensor(1))], fetches=["n99999:0"])
        self.assertEqual(raw.first(got["n99999:0"], 4), struct.pack("<f", 1))

    def test_constants_that_claim_much(self):
        """Forty bytes each that say they are a GiB."""
        claim = number(1, FLOAT) + data(2, data(2, number(1, 2**28))) + data(
            5, struct.pack("<f", 1.0))
        nodes = [node(f"c{i}", "Const", dtype=F, value=data(8, claim)) for i in range(20)]
        self.check_refused(8, graph(*nodes), CACHE_MIB, targets=["c0"])

    def test_values_that_double(self):
        nodes = [const("c0", float_tensor(1), FLOAT, WORKER0),
                 const("axis", int_tensor(0), device=WORKER0)]
        nodes += [node(f"c{i}", "ConcatV2", (f"c{i - 1}", f"c{i - 1}", "axis"), WORKER0, T=F,
                       N=number(3, 2), Tidx=I) for i in range(1, 40)]
        nodes += [node("max", "Max", ("c39", "axis"), WORKER0, T=F, Tidx=I, keep_dims=number(5, 0))]
        self.check_refused(8, graph(*nodes), CACHE_MIB, fetches=["max:0"])

    def test_shapes_that_overflow(self):
        handle = self.client.create(small_graph(WORKER0))
        for dims in ((2**62, 4), (2**31, 2**31, 4), (-1,), (0, 2**63 - 1, 2), (1,) * 255, (2**40,)):
            claim = number(1, FLOAT) + data(2,
                                            b"".join(
                                                data(2, number(1, dim)) for dim in dims)) + data(
                                                    5, struct.pack("<f", 1.0))
            self.assertIn(self.code(self.client.run, handle, feeds=[("x:0", claim)],
                                    fetches=["y:0"]), (3, 8), dims)

    def test_strings_beyond_what_a_meta_holds(self):
        """A string of 70 MiB, fed and fetched, travels as payload: 64 MiB is a meta's limit."""
        t = raw.type_attr(raw.STRING)
        handle = self.client.create(
            graph(node("x", "Placeholder", device=WORKER0, dtype=t),
                  node("y", "Identity", ("x",), WORKER0, T=t)))
        text = b"s" * (70 << 20)
        value = number(1, raw.STRING) + data(2, b"") + data(8, text)
        fetched = self.client.run(handle, harness.DEADLINE_S, feeds=[("x:0", value)],
                                  fetches=["y:0"])
        self.assertTrue(fetched["y:0"].endswith(text), len(fetched["y:0"]))
        self.client.close(handle)

    def test_a_name_beyond_what_a_meta_holds(self):
        """A Reset whose container name is longer than a meta is refused, and ends no daemon."""
        code, text = None, ""
        handle = self.client.create(raw.small_graph(WORKER0))
        try:
            self.client.call("Reset", data(1, b"c" * (70 << 20)))
        except Refused as refused:
            code, text = refused.code, refused.message
        self.assertEqual((code, "Reset message" in text), (8, True), text[:200])
        self.client.close(handle)  # nothing was reset: the session is there
        self.client.channel.close()
        self.check_well(256)

    def test_a_search_without_an_end_ends_with_its_step(self):
        """2^62 retries, all inputs constant: the master must not try it, and the worker stops when
        the step does."""
        int64 = 9
        points = number(1, FLOAT) + data(2, data(2, number(1, 4)) + data(2, number(1, 1))) + data(
            5, struct.pack("<4f", 1, 2, 3, 4))
        numbers = [const(f"n{i}", number(1, int64) + data(2, b"") + number(10, n), int64, WORKER0)
                   for i, n in enumerate((2, 7, 2**62))]
        search = node("search", "KmeansPlusPlusInitialization", ("points", "n0", "n1", "n2"),
                      WORKER0)
        handle = self.client.create(graph(const("points", points, FLOAT, WORKER0), *numbers,
                                          search))
        self.assertEqual(self.code(self.client.run, handle, 2, fetches=["search:0"]), 4)
        self.client.channel.close()
        self.check_well(64)

    def test_an_error_that_quotes_no_utf8(self):
        """The reply's message is a protobuf string: as raw bytes the client could not read any of
        it."""
        nodes = (const("text", number(1, raw.STRING) + data(2, b"") + data(8, b"\xff1"), raw.STRING,
                       WORKER0),
                 node("number", "StringToNumber", ("text",), WORKER0, out_type=F))  # fmt: skip
        with self.assertRaises(Refused) as caught:  # Client.run decodes strictly
            self.run_graph(graph(*nodes), fetches=["number:0"])
        self.assertEqual(caught.exception.code, 3)
        self.assertIn("StringToNumberOp could not correctly convert string: ?1",
                      caught.exception.message)

    @sanitized_too
    def test_broken_graphs(self):
        """A seeded sample of fuzz_graphs.py."""
        n, first = 100, zlib.crc32(b"hostile") % 10_000
        options = os.environ.get("ASAN_OPTIONS", "")
        env = {"ASAN_OPTIONS": f"{options}:allocator_may_return_null=1", "TF_CPP_MIN_LOG_LEVEL": 3}
        code, out, err = self.run_program(WARM_PYTHON,
                                          os.path.join(ROOT, "tests/differential/fuzz_graphs.py"),
                                          "--n", n, "--first", first,
                                          "--programs", 1500 if harness.LONG else 200,
                                          "--bin", harness.BIN, env=env, timeout_s=300)
        self.assertEqual((code, out.splitlines()[-1:]), (0, [f"{n} passed, 0 failed"]),
                         f"{out}\n{err}")
