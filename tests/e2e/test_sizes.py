"""Tensors beyond 2^31 bytes: constants, variables, checkpoints, values between tasks, feeds and
fetches. What works, works whole; what cannot is refused with words and costs nobody a connection.

Only with --long: at most about 8 GiB of memory at once, and 5 GiB of disk."""
import os
import struct
import sys
import unittest

import harness
import raw_clients as raw
from harness import ROOT, TestCase
from raw_clients import (
    FLOAT, INT32, STRING, Client, Refused, const, data, float_tensor, graph, node)

sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))
from cluster import Cluster  # noqa: E402

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
F, I, S = (raw.type_attr(dtype) for dtype in (FLOAT, INT32, STRING))
MIB, GIB = 1 << 20, 1 << 30
SHAPE = (5, 1 << 27)  # 2.5 GiB of floats: its size needs 32 bits, twice its size needs 33
DEADLINE_S = 900
VALUE = 7.5


def ints(*values):
    return raw.tensor(INT32, (len(values),), struct.pack(f"<{len(values)}i", *values))


def strings(*values):
    return raw.number(1, STRING) + data(2, data(2, raw.number(1, len(values)))) + b"".join(
        data(8, value) for value in values)


def types(*dtypes):
    return data(1, b"".join(raw.number(6, dtype) for dtype in dtypes))


def variable_graph(prefix):
    """A variable of 2.5 GiB on the ps that is filled, read on the worker, saved and restored."""
    shape = data(7, b"".join(data(2, raw.number(1, dim)) for dim in SHAPE))
    both = const("axes", ints(0, 1), device=WORKER)

    def assign(name, value):
        return node(name, "Assign", ("v", value), PS, T=F, validate_shape=raw.number(5, 1))

    def reduce(name, op):
        return node(name, op, ("v/read", "axes"), WORKER, T=F, Tidx=I, keep_dims=raw.number(5, 0))

    return graph(
        const("dims", ints(*SHAPE), device=PS), const("value", raw.tensor(
            FLOAT, (), struct.pack("<f", VALUE)), FLOAT, PS),
        const("zero", raw.tensor(FLOAT, (), struct.pack("<f", 0)), FLOAT, PS), both,
        node("v", "VariableV2", (), PS, dtype=F, shape=shape),
        node("fill", "Fill", ("dims", "value"), PS, T=F, index_type=I), assign("init", "fill"),
        node("zeros", "Fill", ("dims", "zero"), PS, T=F, index_type=I), assign("clear", "zeros"),
        node("v/read", "Identity", ("v",), PS, T=F),
        reduce("max", "Max"), reduce("min", "Min"),
        const("prefix", strings(prefix), STRING, PS), const("names", strings("v"), STRING, PS),
        const("slices", strings(""), STRING, PS),
        node("save", "SaveV2", ("prefix", "names", "slices", "v"), PS, dtypes=types(FLOAT)),
        node("restored", "RestoreV2", ("prefix", "names", "slices"), PS, dtypes=types(FLOAT)),
        assign("restore", "restored"))


def one_float(fetched, name):
    return struct.unpack("<f", raw.first(fetched[name], 4))[0]


@unittest.skipUnless(harness.LONG, "takes gigabytes of memory: with --long")
class TestSizes(TestCase):
    worker_flags = ()

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(bin_dir=harness.BIN, worker_flags=self.worker_flags)
        self.cluster.start()
        self.addCleanup(self.cluster.stop)
        self.client = Client(self.cluster.master.port)
        self.addCleanup(self.client.channel.close)

    def tearDown(self):
        self.client.channel.close()
        self.assertEqual(self.cluster.stop(), [])

    def check_well(self):
        """The same connections serve another session."""
        handle = self.client.create(raw.small_graph(WORKER))
        got = self.client.run(handle, feeds=[("x:0", float_tensor(1, 2))], fetches=["y:0"])
        self.assertEqual(raw.first(got["y:0"], 4), struct.pack("<2f", 2, 3))
        self.client.close(handle)
        self.cluster.check(20)

    def test_a_variable_is_filled_read_elsewhere_saved_and_restored(self):
        handle = self.client.create(variable_graph(self.path("model")))

        def run(*targets, fetches=()):
            return self.client.run(handle, DEADLINE_S, targets=targets, fetches=fetches)

        def check(value):
            got = run(fetches=["max:0", "min:0"])
            self.assertEqual((one_float(got, "max:0"), one_float(got, "min:0")), (value, value))

        run("init")
        check(VALUE)
        run("save")
        run("clear")
        check(0)
        run("restore")
        check(VALUE)
        with self.assertRaises(Refused) as caught:
            run(fetches=["v/read:0"])
        self.assertEqual(caught.exception.code, 8)
        self.assertIn("2 GiB", caught.exception.message)
        check(VALUE)
        self.client.close(handle)
        self.check_well()
        for name in os.listdir(self.tmp):
            os.unlink(os.path.join(self.tmp, name))

    def test_constants_of_more_than_two_gib_in_one_partition(self):
        """They come in pieces, since a client's message carries at most 2 GiB."""
        n = 280 * MIB  # 1.1 GiB of floats
        handle = None
        for i in range(2):
            content = struct.pack("<f", i + 1.0) * n
            nodes = graph(const(f"c{i}", raw.tensor(FLOAT, (n,), content), FLOAT, WORKER))
            del content
            if handle:
                self.client.call("ExtendSession", data(1, handle) + data(2, nodes)
                                 + raw.number(3, 0), DEADLINE_S)
            else:
                handle = raw.first(self.client.call("CreateSession", raw.create_request(nodes),
                                                    DEADLINE_S), 1)
            del nodes
        ends = graph(const("axis", raw.int_tensor(0), device=WORKER),
                     const("first", ints(n - 1), device=WORKER),
                     const("size", ints(1), device=WORKER),
                     *(node(f"s{i}", "Slice", (f"c{i}", "first", "size"), WORKER, T=F, Index=I)
                       for i in range(2)))
        self.client.call("ExtendSession", data(1, handle) + data(2, ends) + raw.number(3, 1),
                         DEADLINE_S)
        got = self.client.run(handle, DEADLINE_S, fetches=["s0:0", "s1:0"])
        self.assertEqual([one_float(got, f"s{i}:0") for i in range(2)], [1, 2])
        self.client.close(handle)
        self.check_well()


class TestSizesOverSockets(TestSizes):
    """The same without shared memory: every byte passes a socket."""
    worker_flags = ("--shm", "off", "--unix", "off")
