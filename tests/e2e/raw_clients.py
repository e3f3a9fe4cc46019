"""Clients that say what a well-meaning one never would: HTTP/2 and gRPC to the master, and the
worker wire, byte by byte on plain sockets.

Messages are built here by hand (protobuf's wire format needs four functions), so that every byte,
length and type can be a lie.
"""
import contextlib
import http.client
import os
import socket
import struct

# its threads would abort the children that become daemons
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
import grpc  # noqa: E402

LOOPBACK = "127.0.0.1"

# ---- protobuf ----


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number, wire_type):
    return varint(number << 3 | wire_type)


def number(field, value):
    return tag(field, 0) + varint(value)


def fixed64(field, value):
    return tag(field, 1) + struct.pack("<Q", value & (1 << 64) - 1)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return tag(field, 2) + varint(len(value)) + value


def fields(message):
    """(number, value) of each field: ints, or bytes."""
    at = 0

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = read_varint()
        if key & 7 == 0:
            yield key >> 3, read_varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or read_varint()
        yield key >> 3, message[at : at + size]
        at += size


def first(message, wanted, default=None):
    return next((value for field, value in fields(message) if field == wanted), default)


# ---- graphs ----

FLOAT, INT32, STRING, BOOL, RESOURCE = 1, 3, 7, 10, 20


def type_attr(dtype):
    return number(6, dtype)


def tensor(dtype, shape, content):
    """A TensorProto."""
    dims = b"".join(data(2, number(1, dim)) for dim in shape)
    return number(1, dtype) + data(2, dims) + data(4, content)


def float_tensor(*values):
    return tensor(FLOAT, (len(values),), struct.pack(f"<{len(values)}f", *values))


def int_tensor(value):
    return tensor(INT32, (), struct.pack("<i", value))


def node(name, op, inputs=(), device="", **attrs):
    out = data(1, name) + data(2, op) + b"".join(data(3, i) for i in inputs) + (
        data(4, device) if device else b"")
    for key, value in attrs.items():
        out += data(5, data(1, key) + data(2, value))
    return out


def const(name, value, dtype=INT32, device=""):
    return node(name, "Const", device=device, dtype=type_attr(dtype), value=data(8, value))


def graph(*nodes):
    return b"".join(data(1, n) for n in nodes)


def small_graph(device=""):
    """x fed, y = x + 1."""
    return graph(node("x", "Placeholder", device=device, dtype=type_attr(FLOAT)),
                 const("one", float_tensor(1), FLOAT, device),
                 node("y", "AddV2", ("x", "one"), device, T=type_attr(FLOAT)))


def loop_graph(n_iterations, device=""):
    """A while_loop that counts to n_iterations; fetch "exit:0"."""
    t, frame = type_attr(INT32), data(2, "frame")

    def enter(name, value):
        return node(name, "Enter", (value,), device, T=t, frame_name=frame,
                    is_constant=number(5, name != "start"),
                    parallel_iterations=number(3, 1))

    return graph(const("zero", int_tensor(0), device=device),
                 const("step", int_tensor(1), device=device),
                 const("limit", int_tensor(n_iterations), device=device), enter("start", "zero"),
                 enter("by", "step"), enter("to", "limit"),
                 node("merge", "Merge", ("start", "next"), device, T=t, N=number(3, 2)),
                 node("less", "Less", ("merge", "to"), device, T=t),
                 node("cond", "LoopCond", ("less",), device),
                 node("switch", "Switch", ("merge", "cond"), device, T=t),
                 node("add", "AddV2", ("switch:1", "by"), device, T=t),
                 node("next", "NextIteration", ("add",), device, T=t),
                 node("exit", "Exit", ("switch",), device, T=t))


ENDLESS = 2**31 - 1  # minutes, whatever the build

# ---- the master's requests ----

SERVICE = "/tensorflow.MasterService/"
ALIAS = "/tensorflow.grpc.MasterService/"  # what older clients call it


def create_request(graph_def):
    return data(1, graph_def) + data(3, "grpc://here")


def run_request(handle, feeds=(), fetches=(), targets=(), request_id=None, timeout_ms=0,
                errors_in_body=True):
    out = data(1, handle) + b"".join(data(2, data(1, name) + data(2, proto)) for name,
                                     proto in feeds)
    out += b"".join(data(3, f) for f in fetches) + b"".join(data(4, t) for t in targets)
    out += data(5, number(2, timeout_ms) if timeout_ms else b"")
    request_id = struct.unpack("<Q", os.urandom(8))[0] if request_id is None else request_id
    return out + number(7, errors_in_body) + number(8, request_id)


class Refused(Exception):
    """The server's error: .code (a gRPC number) and .message."""

    def __init__(self, code, message):
        super().__init__(f"code {code}: {message}")
        self.code, self.message = code, message


class Client:
    """A well-behaved client, by grpcio."""

    def __init__(self, port, service=SERVICE):
        self.service = service
        self.channel = grpc.insecure_channel(f"{LOOPBACK}:{port}",
                                             [("grpc.use_local_subchannel_pool", 1),
                                              ("grpc.enable_http_proxy", 0),
                                              ("grpc.max_receive_message_length", -1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def begin(self, method, request, timeout_s=30):
        """A call that is under way: .result(), .cancel()."""
        return self.channel.unary_unary(self.service + method).future(request, timeout=timeout_s)

    def call(self, method, request, timeout_s=30):
        return self.end(self.begin(method, request, timeout_s))

    @staticmethod
    def end(call):
        try:
            reply = call.result()
        except grpc.RpcError as error:
            raise Refused(error.code().value[0], error.details()) from None
        return reply

    def create(self, graph_def):
        return first(self.call("CreateSession", create_request(graph_def)), 1)

    def begin_run(self, handle, timeout_s=30, **request):
        return self.begin("RunStep", run_request(handle, **request), timeout_s)

    def run(self, handle, timeout_s=30, **request):
        """The fetched TensorProtos by name."""
        return self.end_run(self.begin_run(handle, timeout_s, **request))

    def end_run(self, call):
        reply = self.end(call)
        if first(reply, 3, 0):
            raise Refused(first(reply, 3), first(reply, 4, b"").decode())
        return {first(value, 1).decode(): first(value, 2) for field, value in fields(reply) if field
                == 1}

    def close(self, handle):
        self.call("CloseSession", data(1, handle))


# ---- HTTP/2 by hand ----

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9)
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b"", length=None):
    length = len(payload) if length is None else length
    return struct.pack(">I", length)[1:] + bytes((kind, flags)) + struct.pack(
        ">I", stream) + payload


def header_block(path, **more):
    """HPACK literals without indexing, as plain text."""

    def text(value):
        assert len(value) < 127
        return bytes((len(value),)) + value.encode()

    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "here"),
             ("content-type", "application/grpc"),
             ("te", "trailers"), *((k.replace("_", "-"), v) for k, v in more.items())]
    return b"".join(b"\0" + text(k) + text(v) for k, v in pairs)


def message(body, length=None, flag=0):
    """The 5-byte prefix and the message."""
    return struct.pack(">BI", flag, len(body) if length is None else length) + body


def call_frames(stream, method, body, **headers):
    return frame(HEADERS, END_HEADERS, stream, header_block(SERVICE + method, **headers)) + frame(
        DATA, END_STREAM, stream, message(body))


OPENING = PREFACE + frame(SETTINGS, 0, 0)


class Socket:
    """A connection that sends what it is told."""

    def __init__(self, address, timeout_s=30):
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.socket.settimeout(timeout_s)
        self.socket.connect(address if isinstance(address, str) else (LOOPBACK, address))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, bytes_):
        """The other side may have closed it already: that is an answer, too."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(bytes_)

    def reset(self):
        """Ends it by RST rather than FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_exactly(self, n):
        """None at the end."""
        out = b""
        while len(out) < n:
            try:
                more = self.socket.recv(n - len(out))
            except ConnectionError:
                return None
            if not more:
                return None
            out += more
        return out

    def read_to_end(self):
        out = b""
        with contextlib.suppress(ConnectionError):
            while more := self.socket.recv(1 << 16):
                out += more
        return out

    def half_close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)


class Http2(Socket):
    def open(self):
        """Agrees on the server's settings, so that frames may be large; takes replies of up to 1
        GiB."""
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 30))
                  + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        next(self.frames())
        self.send(frame(SETTINGS, ACK, 0))
        return self

    def frames(self):
        """(kind, flags, stream, payload) until the connection ends."""
        while head := self.read_exactly(9):
            payload = self.read_exactly(int.from_bytes(head[:3], "big"))
            if payload is None:
                return
            yield head[3], head[4], int.from_bytes(head[5:9], "big"), payload

    def reply(self, stream):
        """The message of a stream's reply; b"" when there is none; None when the connection or the
        stream was cut."""
        body = b""
        for kind, flags, id_, payload in self.frames():
            if id_ == 0 and kind == GOAWAY:
                return None
            if id_ != stream:
                continue
            if kind == DATA:
                body += payload
            if kind == RST_STREAM:
                return None
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return body[5:]
        return None


# ---- the worker wire ----

WIRE_TYPES = ("HELLO", "PING", "PONG", "GET_STATUS", "STATUS", "REGISTER_GRAPH", "REGISTERED",
              "DEREGISTER_GRAPH", "RUN_GRAPH", "RUN_DONE",
              "CANCEL_STEP", "RESET", "RESET_DONE", "PUSH", "ANNOUNCE", "GRANT", "FEED_STEP",
              "CLOSE_SESSION", "STEP_FETCHED", "GET_STEPS", "STEPS",
              "ARENA", "ARENA_MAPPED", "RELEASE", "SETTLE", "HELD", "END_JOB", "ASK", "ANSWER",
              "INPUTS_TAKEN", "KEEP_GRAPHS", "KEPT", "RDMA_OFFER",
              "RDMA_ANSWER", "RDMA_END", "RDMA_ENDED", "RDMA_DECLINE", "RDMA_WITHDRAWN", "STRIPE",
              "LOST_STEPS", "CREDIT", "LEAVE", "GET_TRACES", "TRACES", "DRAIN")
WIRE = {name: value for value, name in enumerate(WIRE_TYPES, 1)}


def wire_frame(kind, meta=b"", payload=b"", id_=0, magic=b"MRW1", flags=0, crc=0, meta_len=None,
               payload_len=None):
    kind = WIRE.get(kind, kind)
    return magic + struct.pack("<HHIIQQ", kind, flags, len(meta) if meta_len is None else meta_len,
                               crc,
                               # fmt: skip
                               len(payload) if payload_len is None else payload_len,
                               id_) + meta + payload


PROTOCOL = 4  # of the worker wire


def hello(task="master", incarnation=1, protocol=PROTOCOL, channel=0, expected=0):
    return number(1, protocol) + data(2, task) + fixed64(3, incarnation) + number(
        4, channel) + data(5, "host") + fixed64(6, expected)


class Wire(Socket):
    def message(self):
        """(type, id, meta, payload), or None at the end."""
        head = self.read_exactly(32)
        if head is None:
            return None
        kind, _, meta_len, _, payload_len, id_ = struct.unpack("<HHIIQQ", head[4:])
        meta = self.read_exactly(meta_len) if meta_len else b""
        payload = self.read_exactly(payload_len) if payload_len else b""
        return None if meta is None or payload is None else (kind, id_, meta, payload)

    def ask(self, bytes_):
        self.send(bytes_)
        return self.message()

    def greet(self, **what):
        return self.ask(wire_frame("HELLO", hello(**what)))


# ---- looking at a daemon ----


def page(port, path):
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def n_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
