"""What TensorFlow's own client never shows: the methods by their older path, requests that come
twice, callables and partial runs that are used wrongly. Bytes by hand; what the client does show is
compared with TensorFlow in tests/differential/sessions.py."""
import raw_clients as rc
from harness import LocalCluster, TestCase, sanitized_too

INVALID_ARGUMENT, ABORTED, UNIMPLEMENTED = 3, 10, 12


class TestProtocol(TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = LocalCluster(self, "--workers", "1", "--quiet")

    def tearDown(self):
        self.assertEqual(self.cluster.stop(), 0)
        super().tearDown()

    def client(self, **options):
        client = rc.Client(self.cluster.port(), **options)
        self.addCleanup(client.channel.close)
        return client

    def refused(self, code, words, call, *arguments, **keywords):
        with self.assertRaises(rc.Refused) as refused:
            call(*arguments, **keywords)
        self.assertEqual(refused.exception.code, code)
        self.assertIn(words, refused.exception.message)

    def run_sum(self, client, handle, **more):
        return client.run(handle, feeds=[("x:0", rc.float_tensor(1, 2))], fetches=["y:0"], **more)

    @sanitized_too
    def test_the_older_path_is_the_same_service(self):
        old, new = self.client(service=rc.ALIAS), self.client()
        handle = old.create(rc.small_graph())
        self.assertEqual(self.run_sum(old, handle), self.run_sum(new, handle))
        old.close(handle)
        self.refused(ABORTED, "is not found", self.run_sum, new, handle)
        self.refused(UNIMPLEMENTED, "NoSuchMethod", old.call, "NoSuchMethod", b"")

    @sanitized_too
    def test_a_request_counts_once(self):
        client = self.client()
        handle = client.create(rc.small_graph())
        self.run_sum(client, handle, request_id=7)
        self.refused(ABORTED, "received twice", self.run_sum, client, handle, request_id=7)
        for _ in range(2):  # 0 asks for no such care
            self.run_sum(client, handle, request_id=0)

    @sanitized_too
    def test_callables(self):
        client = self.client()
        handle = client.create(rc.small_graph())
        options = rc.data(1, "x:0") + rc.data(2, "y:0")
        number = rc.first(client.call("MakeCallable", rc.data(1, handle) + rc.data(2, options)), 1,
                          0)

        def run(number, *feeds):
            request = rc.data(1, handle) + rc.number(2, number) + b"".join(
                rc.data(3, f) for f in feeds)
            return client.call("RunCallable", request)

        self.assertTrue(rc.first(run(number, rc.float_tensor(1, 2)), 1))
        self.refused(INVALID_ARGUMENT, "takes 1 feeds, but the call has 0", run, number)
        self.refused(INVALID_ARGUMENT, "takes 1 feeds, but the call has 2", run, number,
                     rc.float_tensor(1, 2), rc.float_tensor(1, 2))
        self.refused(INVALID_ARGUMENT, "No such callable handle: 77", run, 77,
                     rc.float_tensor(1, 2))
        for _ in range(2):
            client.call("ReleaseCallable", rc.data(1, handle) + rc.number(2, number))
        self.refused(INVALID_ARGUMENT, "No such callable handle", run, number,
                     rc.float_tensor(1, 2))

    @sanitized_too
    def test_partial_runs(self):
        client = self.client()
        handle = client.create(rc.small_graph())

        def setup():
            return rc.first(client.call("PartialRunSetup", rc.data(1, handle) + rc.data(2, "x:0")
                                        + rc.data(3, "y:0")), 1)

        def go_on(run, feeds=(), fetches=()):
            request = rc.run_request(handle, feeds=feeds, fetches=fetches,
                                     errors_in_body=False) + rc.data(6, run)
            return client.call("RunStep", request)

        feed = [("x:0", rc.float_tensor(1, 2))]
        run = setup()
        self.refused(INVALID_ARGUMENT, "can't be computed", go_on, run, fetches=["y:0"])
        self.refused(INVALID_ARGUMENT, "was not specified", go_on, run,
                     feeds=[("y:0", rc.float_tensor(1, 2))])
        self.refused(INVALID_ARGUMENT, "Invalid TensorProto", go_on, run,
                     feeds=[("x:0", b"\xff\xff")])
        go_on(run, feeds=feed)
        self.refused(INVALID_ARGUMENT, "already been fed", go_on, run, feeds=feed)
        self.refused(INVALID_ARGUMENT, "already been fetched", go_on, run, fetches=["y:0", "y:0"])
        self.assertTrue(rc.first(go_on(run, fetches=["y:0"]), 1))
        self.refused(INVALID_ARGUMENT, "PartialRunSetup", go_on, run, fetches=["y:0"])
        left = setup()  # begun and never ended: closing the session ends it
        go_on(left, feeds=feed)
        setup()
        client.close(handle)
        self.refused(ABORTED, "is not found", go_on, left, fetches=["y:0"])
