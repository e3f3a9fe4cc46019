"""Large feeds that the master passes on to the task as they came (lists of numbers, content that is
not aligned), and graphs in RunMetadata: both need work that the master's loop does not do."""
import struct

import numpy as np
import raw_clients as rc
from harness import LocalCluster, TestCase, sanitized_too

INVALID_ARGUMENT = 3
FLOAT, INT32, BOOL = 1, 3, 10
N = 100_000


def proto(dtype, shape, field, body):
    dims = b"".join(rc.data(2, rc.number(1, dim)) for dim in shape)
    return rc.number(1, dtype) + rc.data(2, dims) + rc.data(field, body)


def listed_floats(values, size=None):
    return proto(FLOAT, [size or len(values)], 5, values.astype(np.float32).tobytes())


def single_floats(values):
    """A list that is not packed: a field for each value."""
    dims = rc.data(2, rc.number(1, len(values)))
    return rc.number(1, FLOAT) + rc.data(2, dims) + b"".join(
        b"\x2d" + struct.pack("<f", v) for v in values)


def late_floats(values):
    """The same, with dtype and shape behind the values."""
    return b"".join(b"\x2d" + struct.pack("<f", v) for v in values) + head(FLOAT, values)


def late_content(values):
    return rc.data(4, values.tobytes()) + head(FLOAT, values)


def head(dtype, values):
    return rc.number(1, dtype) + rc.data(2, rc.data(2, rc.number(1, len(values))))


def listed_ints(values):
    return proto(INT32, [len(values)], 7,
                 b"".join(rc.varint(int(v) & 0xffffffffffffffff) for v in values))


def identity_graph():
    """x0 and x1 fed; y0 and y1 their values."""
    def pair(i, dtype):
        return [rc.node(f"x{i}", "Placeholder", dtype=rc.type_attr(dtype)),
                rc.node(f"y{i}", "Identity", (f"x{i}",), T=rc.type_attr(dtype))]
    return rc.graph(*pair(0, FLOAT), *pair(1, FLOAT), *pair(2, INT32), *pair(3, BOOL))


class TestFeeds(TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = LocalCluster(self, "--workers", "1", "--quiet")
        self.client = rc.Client(self.cluster.port())
        self.addCleanup(self.client.channel.close)
        self.handle = self.client.create(identity_graph())

    def tearDown(self):
        self.assertEqual(self.cluster.stop(), 0)
        super().tearDown()

    def echo(self, feeds):
        """The elements of y0 to y3, for those that are fed, by number."""
        reply = self.client.run(self.handle, feeds=[(f"x{i}:0", f) for i, f in feeds.items()],
                                fetches=[f"y{i}:0" for i in feeds])
        return [rc.first(reply[f"y{i}:0"], 4) for i in feeds]

    def refused(self, words, feeds):
        with self.assertRaises(rc.Refused) as refused:
            self.echo(feeds)
        self.assertEqual(refused.exception.code, INVALID_ARGUMENT)
        self.assertIn(words, refused.exception.message)

    @sanitized_too
    def test_lists_of_numbers(self):
        values = np.arange(N, dtype=np.float32)
        ints = np.arange(-N, N, dtype=np.int32)
        self.assertEqual(self.echo({0: listed_floats(values), 1: single_floats(values),
                                    2: listed_ints(ints)}),
                         [values.tobytes(), values.tobytes(), ints.tobytes()])

    @sanitized_too
    def test_dtype_and_shape_behind_very_many_values(self):
        values = np.arange(N, dtype=np.float32)
        self.assertEqual(self.echo({0: late_floats(values), 1: listed_floats(values)}),
                         [values.tobytes(), values.tobytes()])
        self.assertEqual(self.echo({0: late_content(values)}), [values.tobytes()])
        self.refused("its fields cannot be read", {0: late_floats(values) + b"\x08"})
        self.refused("Expects arg[0]", {2: late_floats(values)})

    @sanitized_too
    def test_such_feeds_of_a_client_that_does_not_wait(self):
        request = rc.run_request(self.handle, feeds=[("x0:0", late_floats(np.zeros(N)))],
                                 fetches=["y0:0"])
        for _ in range(20):
            self.client.begin("RunStep", request).cancel()
        self.assertEqual(self.echo({0: rc.float_tensor(1, 2)}), [struct.pack("<2f", 1, 2)])

    @sanitized_too
    def test_a_short_list_repeats_its_last_value(self):
        values = np.arange(N, dtype=np.float32)
        wanted = np.concatenate([values, np.full(N, values[-1])])
        self.assertEqual(self.echo({0: listed_floats(values, 2 * N)}), [wanted.tobytes()])

    @sanitized_too
    def test_content_wherever_it_is_aligned(self):
        values = np.arange(1 << 20, dtype=np.float32)
        for n in range(1, 9):  # the second feed begins n bytes further
            first = np.zeros(n, np.float32)
            feeds = {0: proto(FLOAT, [1, n], 4, first.tobytes()),
                     1: proto(FLOAT, [1] * n + [1 << 20], 4, values.tobytes())}
            self.assertEqual(self.echo(feeds), [first.tobytes(), values.tobytes()])

    @sanitized_too
    def test_bools_are_0_or_1(self):
        content = np.arange(3 << 20, dtype=np.uint8)
        self.assertEqual(self.echo({3: proto(BOOL, [3 << 20], 4, content.tobytes())}),
                         [(content != 0).tobytes()])

    @sanitized_too
    def test_malformed_ones_are_refused(self):
        values = np.zeros(N, np.float32)
        self.refused("its values cannot be read",
                     {0: proto(FLOAT, [N], 5, values.tobytes()[:-1])})
        self.refused("its values cannot be read", {2: proto(INT32, [N], 7, b"\x01" * N + b"\x80")})
        self.refused("tensor_content has", {3: proto(BOOL, [9], 4, b"\0" * (3 << 20))})
        self.refused("Expects arg[0]", {2: listed_floats(values)})

    def test_by_a_partial_run(self):
        values = np.arange(N, dtype=np.float32)
        setup = rc.data(1, self.handle) + rc.data(2, "x0:0") + rc.data(3, "y0:0")
        run = rc.first(self.client.call("PartialRunSetup", setup), 1)
        request = rc.run_request(self.handle, feeds=[("x0:0", listed_floats(values))],
                                 fetches=["y0:0"]) + rc.data(6, run)
        late = rc.run_request(self.handle, feeds=[("x0:0", late_floats(values))],
                              fetches=["y0:0"], errors_in_body=False) + rc.data(6, run)
        with self.assertRaises(rc.Refused) as refused:
            self.client.call("RunStep", late)
        self.assertIn("must come first", refused.exception.message)
        reply = self.client.call("RunStep", request)
        fetch = rc.first(reply, 1)
        self.assertEqual(rc.first(rc.first(fetch, 2), 4), values.tobytes())

    def metadata(self, extra=b""):
        options = rc.data(5, rc.number(5, 1))
        request = rc.run_request(self.handle, feeds=[("x0:0", rc.float_tensor(1, 2))],
                                 fetches=["y0:0"]) + options + extra
        return self.client.begin("RunStep", request)

    @sanitized_too
    def test_graphs_of_steps_at_the_same_time(self):
        calls = [self.metadata() for _ in range(20)]
        for call in calls:
            graphs = [value for field, value in rc.fields(rc.first(self.client.end(call), 2))
                      if field == 3]
            self.assertEqual(len(graphs), 1)
            self.assertIn(b"_fetch_y0_0", graphs[0])

    @sanitized_too
    def test_graphs_for_a_client_that_does_not_wait(self):
        for _ in range(20):
            self.metadata().cancel()
        self.assertEqual(self.echo({0: rc.float_tensor(1, 2)}), [struct.pack("<2f", 1, 2)])
