"""Strangers' bytes at every socket: no bytes end or block a daemon or disturb other clients,
nothing is left over, and TERM ends every daemon with status 0 (under a sanitizer: without a
leak)."""
import contextlib
import http.client
import os
import random
import socket
import struct
import threading
import time

import harness
import raw_clients as raw
from harness import SANITIZED, TestCase, sanitized_too
from hostile import MIB, PS, SEED, WORKER0, WORKER1, Daemon, HostileCase, end_somehow, mutated
from raw_clients import (DATA, END_HEADERS, FLOAT, HEADERS, OPENING, PING, PREFACE, RST_STREAM,
                         SETTINGS, Client, Http2, Refused, Wire, const, data, fixed64,
                         # fmt: skip
                         float_tensor, frame, graph, header_block, loop_graph, message, number,
                         small_graph, wire_frame)


class TestMasterPort(HostileCase):
    def test_the_byte_clients_themselves(self):
        """What the other tests send in pieces works as a whole, and a byte at a time."""
        bytes_ = OPENING + raw.call_frames(1, "CreateSession", raw.create_request(small_graph()))
        with Http2(self.port) as connection:
            for byte in bytes_:
                connection.send(bytes((byte,)))
            self.assertTrue(raw.first(connection.reply(1), 1))

    @sanitized_too
    def test_conversations_cut_at_every_byte(self):
        with Client(self.port) as client:
            handle = client.create(small_graph(WORKER1))
            for method, request in (("CreateSession", raw.create_request(small_graph())),
                                    # fmt: skip
                                    ("RunStep", raw.run_request(handle,
                                            feeds=[("x:0", float_tensor(1, 2))], fetches=["y:0"]))):
                bytes_ = OPENING + raw.call_frames(1, method, request)
                for n in range(len(bytes_) + 1):
                    with Http2(self.port) as connection:
                        connection.send(bytes_[:n])
                        end_somehow(connection, n)
        self.check_well()

    @sanitized_too
    def test_lengths_that_lie(self):
        request = raw.create_request(small_graph())
        headers = header_block(raw.SERVICE + "CreateSession")
        opened = OPENING + frame(HEADERS, END_HEADERS, 1, headers)
        lies = [opened + frame(DATA, 1, 1, message(request, length, flag))
                # fmt: skip
                for length in (0, 1, len(request) - 1, len(request) + 1, 1 << 16, 2**31 - 1, 2**31,
                               2**32 - 1) for flag in (0, 1, 2, 255)]
        lies += [opened + frame(DATA, 1, 1, message(request), length=length)
                 for length in (0, 1, 16384, 2**24 - 1)]
        lies += [OPENING + frame(HEADERS, END_HEADERS, 1, headers, length=n)
                 + frame(DATA, 1, 1, message(request)) for n in (0, 3, 5, 2**24 - 1)]
        lies += [opened + frame(kind, 255, 1, bytes(20)) + frame(kind, 0, 0, bytes(8))
                 for kind in range(0, 256, 5)]
        for bytes_ in lies:
            with Http2(self.port) as connection:
                connection.send(bytes_)
                connection.half_close()
                connection.read_to_end()
        self.check_well()

    def test_what_is_not_http2_is_closed(self):
        rng = random.Random(SEED)
        for bytes_ in (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
                       b"POST /x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
                       b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
                       wire_frame("HELLO", raw.hello()), bytes(100), rng.randbytes(100_000),
                       PREFACE + rng.randbytes(1000), PREFACE * 3):  # fmt: skip
            with Http2(self.port) as connection:
                connection.send(bytes_)
                connection.read_to_end()  # the master ends it, not this side
        self.check_well()

    @sanitized_too
    def test_mutated_requests(self):
        rng = random.Random(SEED)
        with Client(self.port) as client:
            handle = client.create(small_graph(WORKER1))
            requests = {"CreateSession": raw.create_request(loop_graph(10)),
                        "ExtendSession": data(1, handle) + data(2, small_graph()) + number(3, 1),
                        "RunStep": raw.run_request(
                            handle, feeds=[("x:0", float_tensor(1, 2))], fetches=["y:0"]),
                        "CloseSession": data(1, b"nobody"),
                        "ListDevices": data(1, handle), "PartialRunSetup": data(1, handle)
                        + data(3, "y:0"), "MakeCallable": data(1, handle),
                        # fmt: skip
                        "RunCallable": data(1, handle), "ReleaseCallable": data(1, handle)}
            for _ in range(600):
                method = rng.choice(sorted(requests))
                try:
                    client.call(method, mutated(rng, requests[method]))
                except Refused as refused:
                    self.assertNotIn(refused.code, (2, 4, 13, 14),
                                     f"seed {SEED}, {method}: {refused}")
        self.check_well()

    def test_mutated_frames(self):
        rng = random.Random(SEED)
        with Client(self.port) as client:
            handle = client.create(small_graph(WORKER1))
            for turn in range(600):
                bytes_ = raw.call_frames(1, "CreateSession", raw.create_request(small_graph()))
                bytes_ += raw.call_frames(3, "RunStep",
                                          raw.run_request(
                                              handle, feeds=[("x:0", float_tensor(1))],
                                              fetches=["y:0"]))
                with Http2(self.port) as connection:
                    connection.send(OPENING + mutated(rng, bytes_))
                    end_somehow(connection, turn)
        self.check_well()

    def test_floods(self):
        devices = header_block(raw.SERVICE + "ListDevices")
        floods = {
            "pings": frame(PING, 0, 0, bytes(8)) * 50_000,
            "settings": frame(SETTINGS, 0, 0) * 50_000,
            "resets": b"".join(frame(HEADERS, END_HEADERS, i, devices)
                               + frame(RST_STREAM, 0, i, b"\0\0\0\x08")
                               for i in range(1, 40_001, 2)),
            "streams": b"".join(frame(HEADERS, END_HEADERS, i, devices)
                                for i in range(1, 30_001, 2)),
            "empty data": frame(HEADERS, END_HEADERS, 1, devices) + frame(DATA, 0, 1) * 100_000,
            "headers": frame(HEADERS, 0, 1, devices)
            + frame(raw.CONTINUATION, 0, 1, b"\0\x01a\x01b" * 2000) * 2000,
            "no window for the answers": frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) +
                                         b"".join(
                                             raw.call_frames(i, "ListDevices", b"")
                                             for i in range(1, 6001, 2)),
        }  # fmt: skip
        for flood in floods.values():
            with Http2(self.port) as connection:
                connection.send(PREFACE + frame(SETTINGS, 0, 0) + flood)
                self.run_everywhere()
                connection.half_close()
                connection.read_to_end()
        self.check_well(room_mib=64)

    @sanitized_too
    def test_two_hundred_connections_die(self):
        bytes_ = OPENING + raw.call_frames(1, "CreateSession", raw.create_request(small_graph()))
        connections = [Http2(self.port) for _ in range(200)]
        for turn, connection in enumerate(connections):
            connection.send(bytes_[: turn * 2])
        self.run_everywhere()
        for turn, connection in enumerate(connections):
            connection.reset() if turn % 2 else connection.socket.close()
        self.check_well()

    def test_what_is_only_claimed_takes_no_room_from_others(self):
        """More calls than --max-inflight holds of the largest message, none of which ever comes."""
        connections = [Http2(self.port) for _ in range(12)]
        opened = OPENING + frame(HEADERS, END_HEADERS, 1,
                                 header_block(raw.SERVICE + "CreateSession")) + frame(
                                     DATA, 0, 1, message(b"abc", 2**31 - 1))
        for connection in connections:
            connection.send(opened)
        master = self.cluster.master
        self.until(lambda: master.metric("millrace_grpc_connections") >= len(connections),
                   "not accepted")
        self.run_everywhere()
        for connection in connections:
            connection.socket.close()
        self.check_well()


class TestWorkerPort(HostileCase):
    MASTER = 0xABCDEF
    STEPS = MASTER << 40

    def setUp(self):
        super().setUp()
        self.worker = self.cluster.daemons[1]
        self.port_of_worker = self.worker.port

    def connect(self):
        return Wire(self.port_of_worker)

    def registration(self, graph_def, peers=()):
        meta = data(1, "session") + fixed64(2, self.MASTER)
        meta += b"".join(data(3, data(1, task) + data(2, "127.0.0.1:1") + fixed64(4, incarnation))
                         for task, incarnation in peers)
        return wire_frame("REGISTER_GRAPH", meta, graph_def, 2)

    def run_graph(self, step, graph_handle=1, master=None, id_=None, meta=b"", payload=b""):
        meta = number(1, graph_handle) + fixed64(2, step) + fixed64(
            3, self.MASTER if master is None else master) + meta
        return wire_frame("RUN_GRAPH", meta, payload, step if id_ is None else id_)

    def conversation(self, step=5):
        """Of a master, none of which touches another one's."""
        return (wire_frame("HELLO", raw.hello(incarnation=self.MASTER)),
                wire_frame("GET_STATUS", id_=1), self.registration(small_graph(WORKER0)),
                self.run_graph(self.STEPS | step, 77),
                wire_frame("CANCEL_STEP", fixed64(1, self.STEPS | 6), id_=3),
                # fmt: skip
                wire_frame("RESET", data(1, "nobody's"), id_=4),
                wire_frame("DEREGISTER_GRAPH", number(1, 99)), wire_frame("PING", b"abc", id_=6))

    @sanitized_too
    def test_conversations_cut_at_every_byte(self):
        bytes_ = b"".join(self.conversation())
        for n in range(len(bytes_) + 1):
            with self.connect() as connection:
                connection.send(bytes_[:n])
                end_somehow(connection, n)
        self.check_well()

    @sanitized_too
    def test_mutated_conversations(self):
        rng = random.Random(SEED)
        for turn in range(600):
            frames = list(self.conversation(turn))
            at = rng.randrange(len(frames))
            if frames[at][4] != raw.WIRE["RESET"]:  # one without a container would be everybody's
                head, body = frames[at][:32], frames[at][32:] or b"x"
                frames[at] = head + mutated(rng, body)[: len(body)].ljust(
                    len(body), b"\0") if turn % 4 else mutated(rng, head) + body
            with self.connect() as connection:
                connection.send(b"".join(frames))
                end_somehow(connection, turn)
        self.check_well()

    @sanitized_too
    def test_lengths_that_lie(self):
        hello = wire_frame("HELLO", raw.hello(incarnation=self.MASTER))
        for kind in ("RUN_GRAPH", "REGISTER_GRAPH", "HELLO", "PUSH"):
            for meta_len in (0, 1, 2**26, 2**26 + 1, 2**32 - 1):
                for payload_len in (0, 1, 4096, 2**31 - 1, 2**31, 2**40, 2**40 + 1, 2**63,
                                    2**64 - 1):
                    with self.connect() as connection:
                        connection.send(hello
                                        + wire_frame(
                                            kind, id_=8, meta_len=meta_len,
                                            payload_len=payload_len))
                        connection.half_close()
                        connection.read_to_end()
        self.check_well()

    def test_messages_from_those_who_may_not_send_them(self):
        """Each type from a connection without a Hello, a tool, a master and another task; unknown
        types; wrong magic, flags and checksums."""
        for kind in (*range(40), 255, 65535):
            for sender in (None, "", "master", "/job:ps/replica:0/task:0"):
                if sender == "master" and kind == raw.WIRE["RESET"]:
                    continue
                with self.connect() as connection:
                    if sender is not None:
                        connection.send(wire_frame("HELLO", raw.hello(sender, self.MASTER)))
                    connection.send(wire_frame(kind, b"\x08\x01", b"1234", 7))
                    connection.half_close()
                    connection.read_to_end()
        for wrong in ({"magic": b"MRW2"}, {"flags": 1}, {"crc": 1}):
            with self.connect() as connection:
                self.assertIsNone(connection.ask(wire_frame("HELLO", raw.hello(), **wrong)))
        self.check_well()

    def test_hellos_that_do_not_fit(self):
        for what in ({"protocol": raw.PROTOCOL + 1}, {"expected": 5}, {"task": "x" * 600}):
            with self.connect() as connection:
                self.assertIsNone(connection.greet(**what), what)
        for task, kind in (("", raw.WIRE["STATUS"]), ("master", raw.WIRE["STATUS"])):
            with self.connect() as connection:
                self.assertEqual(connection.greet(task=task)[0], raw.WIRE["HELLO"])
                self.assertEqual(connection.ask(wire_frame("GET_STATUS", id_=9))[:2], (kind, 9))
        with self.connect() as connection:  # a task that no graph has named
            connection.greet(task="/job:stranger/task:0")
            self.assertIsNone(connection.message())
        self.check_well()

    def test_wrong_step_ids_and_stale_masters(self):
        with self.connect() as connection:
            connection.greet(incarnation=self.MASTER)
            for step in (0, 1, self.STEPS, self.STEPS | 2**40 - 1, 2**64 - 1, 7 << 40 | 2**24,
                         7 << 40 | 1):
                kind, id_, meta, _ = connection.ask(
                    self.run_graph(step, 12345, meta=fixed64(4, step)))
                self.assertEqual((kind, id_, raw.first(meta, 1)), (raw.WIRE["RUN_DONE"], step, 10))
            for i in range(5000):  # more than are kept
                connection.send(wire_frame("CANCEL_STEP", fixed64(1, self.STEPS | 100 + i)))
            self.assertEqual(connection.ask(wire_frame("PING", b"x", id_=1))[0], raw.WIRE["PONG"])
            # a restarted master's
            self.assertIsNone(connection.ask(self.run_graph(self.STEPS | 3, master=self.MASTER
                    + 1)))
        for wrong in ({"id_": 4},):
            with self.connect() as connection:
                connection.greet(incarnation=self.MASTER)
                self.assertIsNone(connection.ask(self.run_graph(self.STEPS | 3, **wrong)))
        self.check_well()

    @sanitized_too
    def test_a_task_that_lies(self):
        """It announces much and sends nothing, sends without being asked, for steps that nobody
        started, and sizes that do not fit."""
        evil = "/job:evil/replica:0/task:0"

        def tensor_meta(dtype, dims, size):
            return data(3, number(1, dtype) + b"".join(number(2, dim) for dim in dims)
                        + number(4, size))

        def push(edge, what, payload=b"", step=self.STEPS | 1, **more):
            return wire_frame("PUSH", number(1, edge) + what, payload, step, **more)

        sixteen, gigabyte = tensor_meta(FLOAT, (4,), 16), tensor_meta(FLOAT, (2**28,), 2**30)
        closed = (push(1, gigabyte, payload_len=2**30),  # not granted
                  wire_frame("ANNOUNCE", number(1, 1) + tensor_meta(FLOAT, (2**40,), 2**42),
                             id_=self.STEPS | 2),
                  push(1, tensor_meta(FLOAT, (-1,), 2**64 - 4)),
                  push(1, tensor_meta(FLOAT, (2**62, 4), 0)),
                  push(1, tensor_meta(FLOAT, (1,) * 300, 4), bytes(4)),
                  push(1, data(3, number(1, raw.STRING) + data(5, b"\x08\x07\x12\x7f"))),
                  push(1, b""), push(2, sixteen, bytes(16)) * 2,
                  wire_frame("RUN_GRAPH", number(1, 1)))  # fmt: skip
        floods = (b"".join(push(i, sixteen, bytes(16), self.STEPS | 100 + i)
                           for i in range(20_000)),
                  b"".join(wire_frame("ANNOUNCE", number(1, i) + gigabyte, id_=self.STEPS | 50_000
                                      + i) for i in range(20_000)),
                  # fmt: skip
                  b"".join(wire_frame("GRANT", number(1, i), id_=self.STEPS | i)
                           for i in range(2000)))
        with self.connect() as master:
            master.greet(incarnation=self.MASTER)
            kind, _, meta, _ = master.ask(self.registration(
                graph(const("a", float_tensor(1), FLOAT, WORKER0)), [(evil, 77)]))
            self.assertEqual((kind, raw.first(meta, 2, 0)), (raw.WIRE["REGISTERED"], 0))
            for bytes_ in closed:
                with self.connect() as connection:
                    connection.greet(task=evil, incarnation=77)
                    connection.send(bytes_)
                    message = raw.WIRE["PING"], None
                    while message and message[0] == raw.WIRE["PING"]:  # its heartbeat
                        message = connection.message()
                    self.assertIsNone(message, bytes_[:100])
            for bytes_ in floods:
                with self.connect() as connection:
                    connection.greet(task=evil, incarnation=77)
                    connection.send(bytes_)
                    connection.half_close()
                    connection.read_to_end()
                    self.run_everywhere()
        self.check_well(room_mib=64)

    def test_masters_that_come_and_go(self):
        connections = [self.connect() for _ in range(1100)]
        for i, connection in enumerate(connections):
            connection.send(wire_frame("HELLO", raw.hello(incarnation=1000 + i)))
        self.run_everywhere()
        for turn, connection in enumerate(connections):
            connection.reset() if turn % 2 else connection.socket.close()
        self.check_well()


class LyingTask:
    """Takes a worker's place at a master: answers as one would, but for what `lie` does to an
    answer's bytes."""

    NAME, INCARNATION = "/job:worker/replica:0/task:0", 99

    def __init__(self, lie):
        self.lie, self.listener = lie, socket.create_server((raw.LOOPBACK, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                threading.Thread(target=self.serve, args=(self.listener.accept()[0],),
                                 daemon=True).start()

    def answer(self, kind, meta):
        device = data(1, self.NAME + "/device:CPU:0") + data(2, "CPU") + fixed64(
            4, self.INCARNATION)
        status = data(1, self.NAME) + fixed64(2, self.INCARNATION) + data(3, device) + data(
            4, "0.1.0") + data(6, "elsewhere")
        value = data(3, number(1, FLOAT) + number(2, 1) + number(4, 4))
        return {"HELLO": ("HELLO", raw.hello(self.NAME, self.INCARNATION), b""),
                "GET_STATUS": ("STATUS", status, b""), "PING": ("PONG", meta, b""),
                "REGISTER_GRAPH": ("REGISTERED", number(1, 7), b""),
                "RUN_GRAPH": ("RUN_DONE", value, struct.pack("<f", 2)),
                "KEEP_GRAPHS": ("KEPT", b"", b"")}.get(kind)  # fmt: skip

    def serve(self, accepted):
        connection = Wire.__new__(Wire)
        connection.socket = accepted
        with connection:
            while asked := connection.message():
                kind, id_, meta, _ = asked
                answer = self.answer(raw.WIRE_TYPES[kind - 1], meta)
                if answer:
                    connection.send(self.lie(*answer, id_))


class TestATaskThatLiesToItsMaster(TestCase):
    N_SESSIONS, MAX_SESSIONS = 60, 300  # which lie meets which answer hangs on threads, too

    def lie(self, kind, meta, payload, id_):
        """Half of them are true, so that a conversation gets somewhere. None swallows an answer:
        that is a deadline, not a lie."""
        turn = self.rng.random() * self.n_lies
        if turn < 0.5:
            return wire_frame(kind, meta, payload, id_)
        if turn < 0.8:
            return wire_frame(kind, mutated(self.rng, meta or b"x"), payload, id_)
        if kind == "RUN_DONE" and turn < 0.9:
            return wire_frame(kind, self.rng.choice(self.values), payload, id_)
        return self.rng.choice((wire_frame(kind, meta, payload, id_) * 2,
                                wire_frame(kind, meta, payload, id_, magic=b"MRW0"),
                                # fmt: skip
                                wire_frame("GRANT", meta, b"", id_),
                                wire_frame(kind, meta, payload, id_, payload_len=2**63)))

    @sanitized_too
    def test_its_answers_end_no_master(self):
        self.rng, self.n_lies = random.Random(SEED), 0
        self.values = (b"", data(3, number(3, 1)), number(1, 3) + data(2, b"bad \xff"),
                       data(3, number(1, raw.STRING) + data(5, b"\x08\x07")) * 2,
                       data(3, number(1, FLOAT) + number(2, 2**31) * 2 + number(4, 4)),
                       data(3, number(1, FLOAT) + number(2, 1) * 300 + number(4, 4)),
                       # fmt: skip
                       data(3, number(1, 999) + number(4, 4)),
                       data(3, number(1, FLOAT) + number(2, -1) + number(4, 2**64 - 4)))
        task = LyingTask(self.lie)
        self.addCleanup(task.listener.close)
        directory = self.path("master")
        os.mkdir(directory)
        master = Daemon("master", [harness.program("tf-master"), "--cluster",
                                   f"worker={raw.LOOPBACK}:{task.port}", "--task-wait", "500ms"],
                        directory)
        self.addCleanup(master.stop)
        master.wait_until_ready()
        codes = set()
        for turn in range(self.MAX_SESSIONS):
            if turn >= self.N_SESSIONS and len(codes) > 2:
                break
            self.n_lies = turn % 2
            with Client(master.port) as client:
                try:
                    handle = client.create(small_graph())
                    client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"],
                               timeout_ms=300)
                    client.close(handle)
                    codes.add(0)
                except Refused as refused:
                    self.assertTrue(refused.message)
                    codes.add(refused.code)
        self.assertGreater(len(codes), 2, codes)  # the lies got there
        self.assertIn(0, codes)
        self.assertEqual(raw.page(master.admin_port, "/livez")[0], 200)
        self.assertIsNone(master.stop())


class TestAdminPort(HostileCase):
    def test_silent_connections_leave_room_for_probes(self):
        """More than are taken, and all of them stop in the middle of a word."""
        port = self.cluster.master.admin_port
        connections = [Wire(port) for _ in range(150)]
        for connection in connections:
            connection.send(b"GET /livez HT")
        began = time.monotonic()

        def is_alive():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return raw.page(port, "/livez")[0] == 200

        self.until(is_alive, "no room")
        self.assertLess(time.monotonic() - began, 20)
        for connection in connections:
            connection.socket.close()
        self.check_well()

    def test_odd_requests(self):
        for daemon in self.cluster.daemons[-2:]:
            for bytes_ in (b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n"
                           + b"A: b\r\n" * 50_000 + b"\r\n",
                           b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
                           b"GET /../../etc/passwd HTTP/1.0\r\n\r\n",
                           # fmt: skip
                           b"POST /livez HTTP/1.1\r\nTransfer-Encoding: "
                           b"chunked\r\n\r\nFFFFFFFFFFFF\r\n", OPENING):
                with Wire(daemon.admin_port) as connection:
                    connection.send(bytes_)
                    connection.half_close()
                    connection.read_to_end()
        self.check_well()


class TestScanners(HostileCase):
    def openings(self, rng):
        """What scanners and strangers say first, and some of it with a few bytes changed."""
        known = [b"", b"\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"SSH-2.0-scan\r\n",
                 b"\x16\x03\x01\x00\xa5\x01" + bytes(160), b"\x80\x80" + bytes(200),
                 OPENING + raw.call_frames(1, "CreateSession", raw.create_request(small_graph())),
                 wire_frame("HELLO", raw.hello()),
                 # fmt: skip
                 wire_frame("HELLO", raw.hello()) + wire_frame("RUN_GRAPH", rng.randbytes(50)),
                 PREFACE + rng.randbytes(200)]
        return known + [mutated(rng, words) for words in known if words] + [
            rng.randbytes(rng.randint(1, 3000)) for _ in range(5)]

    def test_rounds_of_them_leave_nothing(self):
        """At every port of every daemon, held open by the hundred, gone by FIN and by RST; while a
        session runs steps. Memory comes to a level."""
        rng, sizes, n = random.Random(SEED), [], 0
        ports = [port for daemon in self.cluster.daemons
                 for port in (daemon.port, daemon.admin_port)]
        with Client(self.port) as client:
            handle = client.create(small_graph(PS))
            for _ in range(300 if harness.LONG else 6):
                with contextlib.ExitStack() as held:
                    for port in ports:
                        for words in self.openings(rng):
                            connection = held.enter_context(Http2(port))
                            connection.send(words)
                            n += 1
                            if rng.random() < 0.5:
                                connection.reset()
                        client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
                sizes.append([raw.resident_bytes(d.process.pid) / MIB
                              for d in self.cluster.daemons])
            client.close(handle)
        if not SANITIZED:
            print(f"    {n} connections: " + ", ".join(f"{d.name} {a:.1f} to {b:.1f} MiB" for d, a,
                    b in zip(self.cluster.daemons, sizes[2], sizes[-1])), flush=True)
            for daemon, first, last in zip(self.cluster.daemons, sizes[2], sizes[-1]):
                self.assertLess(last, first + 8, daemon.name)
        self.check_well()
