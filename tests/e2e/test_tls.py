"""A cluster that speaks TLS: every wire checked on both ends, TensorFlow's client through a tunnel,
who is refused and with what words, files that change while steps run, and strangers at every
port."""
import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import harness
import raw_clients as raw
from harness import DEADLINE_S, WARM_PYTHON, LineReader, TestCase, program, sanitized_too
from raw_clients import FLOAT, const, float_tensor, graph, node, type_attr

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "membership_client.py")
DIAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dial_program.py")
PS, WORKER0, WORKER1 = "ps-0", "worker-0", "worker-1"


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Daemon:
    def __init__(self, test, name, *flags, admin=("--admin", "127.0.0.1:0")):
        self.test = test
        self.port_file = test.path(f"ports-{len(test.started)}")
        self.process = test.popen([program(name), *map(str, flags), *admin,
                                   "--port-file", self.port_file])
        self.log = LineReader(self.process.stderr)
        self.log.until(" port ")
        with open(self.port_file, encoding="utf-8") as f:
            lines = f.read().split("\n")
        self.port = int(lines[0])
        self.admin = int(lines[1].split()[1])

    def saw(self, text):
        """Waits until the log has it."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.log.text:
            if self.log.line(deadline) is None:
                self.test.fail(f"the log does not have '{text}':\n{self.log.text}")

    def page(self, path, scheme="http", **options):
        try:
            with urllib.request.urlopen(f"{scheme}://127.0.0.1:{self.admin}{path}",
                                        timeout=DEADLINE_S, **options) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def status(self):
        return json.loads(self.page("/statusz"))

    def metric(self, name):
        return next(int(float(line.split()[1])) for line in self.page("/metrics").splitlines()
                    if line.startswith(name + " "))

    def page_until(self, path, *parts):
        """The page, once it has all of these."""
        deadline = time.monotonic() + DEADLINE_S
        while not all(part in (text := self.page(path)) for part in parts):
            if time.monotonic() > deadline:
                self.test.fail(f"{path} does not have {parts}:\n{text}")
        return text

    def ends(self, signo=signal.SIGTERM):
        self.process.send_signal(signo)
        self.log.to_end()
        return self.test.wait_for_exit(self.process)


class TlsCase(TestCase):
    jobs = {"ps": 1, "worker": 2}

    def setUp(self):
        super().setUp()
        self.certs = self.path("tls")
        self.make_certs()
        names = [f"{job}-{i}" for job, n in self.jobs.items() for i in range(n)]
        self.ports = dict(zip(names, free_ports(len(names))))
        self.spec = ",".join(f"{job}="
                             + ";".join(f"127.0.0.1:{self.ports[f'{job}-{i}']}" for i in range(n))
                             for job, n in self.jobs.items())

    def make_certs(self, directory=None, **options):
        more = [x for name, value in options.items() for x in (f"--{name}", value)]
        self.expect(0, "tfctl", "certs", directory or self.certs, "--tasks",
                    ",".join(f"{job}={n}" for job, n in self.jobs.items()), *more)

    def tls(self, name, directory=None):
        directory = directory or self.certs
        return ["--tls-ca", f"{directory}/ca.pem", "--tls-cert", f"{directory}/{name}.pem",
                "--tls-key", f"{directory}/{name}.key"]

    def worker(self, name, *flags, tls=None, drain="3s"):
        """Only TCP, so that tensors between tasks are seen to go over TLS."""
        job, index = name.split("-")
        return Daemon(self, "tf-worker", "--job", job, "--task", index, "--cluster", self.spec,
                      "--unix", "off", "--drain-timeout", drain,
                      *(self.tls(name) if tls is None else tls), *flags)

    def master(self, *flags, tls=None, client_ca=True):
        more = ["--tls-client-ca", f"{self.certs}/ca.pem"] if client_ca else []
        return Daemon(self, "tf-master", "--listen", "127.0.0.1:0", "--cluster", self.spec,
                      "--drain-timeout", "3s",
                      *(self.tls("master") if tls is None else tls), *more, *flags)

    def start(self):
        self.tasks = [self.worker(name) for name in self.ports]
        self.m = self.master()
        self.m.page_until("/readyz", "ok")
        self.daemons = [*self.tasks, self.m]

    def stop(self):
        for daemon in reversed(self.daemons):
            self.assertEqual(daemon.ends(), 0, daemon.log.text)

    def devices(self, code=0, target=None, ca=None, name="client", cert=True, **env):
        env = {"MILLRACE_TLS_CA": ca or f"{self.certs}/ca.pem", **env}
        if cert:
            env.update(MILLRACE_TLS_CERT=f"{self.certs}/{name}.pem",
                       MILLRACE_TLS_KEY=f"{self.certs}/{name}.key")
        out, err = self.expect(code, "tfctl", "devices", "--target",
                               target or f"grpcs://127.0.0.1:{self.m.port}", env=env)
        return out + err

    def tunnel(self, port, *flags):
        process = self.popen([program("tfctl"), "tunnel", f"127.0.0.1:{port}", "--tls-ca",
                              f"{self.certs}/ca.pem", "--tls-cert", f"{self.certs}/client.pem",
                              "--tls-key", f"{self.certs}/client.key", *flags])
        out = LineReader(process.stdout)
        process.log = LineReader(process.stderr)
        target = out.line()
        self.assertTrue(target and target.startswith("grpc://127.0.0.1:"), target)
        return process, target


def crossing_graph():
    """x fed on the ps, sent to worker 1, which adds."""
    ps, worker = "/job:ps/task:0", "/job:worker/task:1"
    return graph(node("x", "Placeholder", device=ps, dtype=type_attr(FLOAT)),
                 node("id", "Identity", ("x",), ps, T=type_attr(FLOAT)),
                 const("one", float_tensor(1), FLOAT, worker),
                 node("y", "AddV2", ("id", "one"), worker, T=type_attr(FLOAT)))


class TestCluster(TlsCase):
    def test_training_through_a_tunnel_while_files_change(self):
        self.start()
        tunnel, target = self.tunnel(self.m.port)
        client = self.popen([WARM_PYTHON, CLIENT, target], stdin=-1,
                            stderr=open(self.path("client.log"), "ab"))
        out = LineReader(client.stdout)
        out.until("ready")

        def ask(word):
            client.stdin.write(f"{word}\n".encode())
            client.stdin.flush()
            return out.line()

        self.assertTrue(ask("init").startswith("ok"))
        self.assertEqual([ask("add"), ask("add"), ask("read")], ["ok 1.0", "ok 2.0", "ok 2.0"])
        self.assertEqual(ask("big"), "ok True")
        # the loss before or after the last update
        self.assertIn(ask("trained"), ("ok 10 0.072058", "ok 10 0.046117"))
        peers = self.tasks[1].status()["peers"] + self.tasks[0].status()["peers"]
        self.assertEqual({p["transport"] for p in peers} - {"local", ""}, {"tcp"})
        # New certificates: who is connected stays so, who comes gets the new ones.
        handshakes, expiry = self.m.metric("millrace_tls_handshakes_total"), self.m.metric(
            "millrace_tls_certificate_expiry_seconds")
        self.assertEqual(self.m.status()["tls"]["wire"]["names"].split(", ")[0],
                         "URI:millrace://default/master")
        self.make_certs(lifetime="17520h")
        for daemon in self.daemons:
            daemon.process.send_signal(signal.SIGHUP)
            daemon.saw("TLS files were read again")
        self.assertGreater(self.m.metric("millrace_tls_certificate_expiry_seconds"), expiry + 86400)
        self.assertEqual(self.m.metric("millrace_tls_reloads_total"), 1)
        self.assertEqual([ask("add"), ask("read")], ["ok 3.0", "ok 3.0"])
        self.assertIn("/job:ps/replica:0/task:0/device:CPU:0", self.devices())
        self.assertGreater(self.m.metric("millrace_tls_handshakes_total"), handshakes)
        # A connection that is there is not cut by TERM; when it has ended, the tunnel does.
        tunnel.send_signal(signal.SIGTERM)
        self.assertEqual(ask("add"), "ok 4.0")
        client.stdin.close()
        self.assertEqual(self.wait_for_exit(client), 0)
        self.assertEqual(self.wait_for_exit(tunnel), 0)
        self.stop()

    @sanitized_too
    def test_a_step_crosses_tasks(self):
        self.start()
        tunnel, target = self.tunnel(self.m.port)
        values = [float(i % 1000) for i in range(300_000)]
        with raw.Client(int(target.rsplit(":", 1)[1])) as client:
            handle = client.create(crossing_graph())
            for n in (1, 1000, len(values)):
                got = client.run(handle, feeds=[("x:0", float_tensor(*values[:n]))],
                                 fetches=["y:0"])
                self.assertEqual(raw.first(got["y:0"], 4)[-4:],
                                 raw.struct.pack("<f", values[n - 1] + 1))
            client.close(handle)
        self.assertEqual({p["transport"] for p in self.tasks[2].status()["peers"]} - {"local", ""},
                         {"tcp"})
        tunnel.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(tunnel), 0)
        self.stop()


class TestErrors(TlsCase):
    jobs = {"ps": 1}
    STRING = 7

    def test_messages_are_for_operators(self):
        """The message of a step's error carries a value of a tensor."""
        worker = self.worker("ps-0")
        path = self.path("admin.sock")
        m = self.master("--tls-admin", "--admin-socket", path)
        open_to_all = ssl.create_default_context(cafile=f"{self.certs}/ca.pem")
        https = f"https://127.0.0.1:{m.admin}"
        tunnel, target = self.tunnel(m.port)
        string = type_attr(self.STRING)
        with raw.Client(int(target.rsplit(":", 1)[1])) as client:
            handle = client.create(graph(
                node("x", "Placeholder", dtype=string),
                node("parsed", "StringToNumber", ("x",), out_type=type_attr(FLOAT))))
            secret = raw.number(1, self.STRING) + raw.data(2, b"") + raw.data(8, "the-secret")
            with self.assertRaisesRegex(raw.Refused, "the-secret"):
                client.run(handle, feeds=[("x:0", secret)], fetches=["parsed:0"])
            page = m.page("/sessionz", "https", context=open_to_all)
            (session,) = json.loads(page)["sessions"]
            self.assertEqual((session["last_error_code"], session["last_error_node"]),
                             ("INVALID_ARGUMENT", "parsed"))
            self.assertNotIn("the-secret", page)
            open_to_all.load_cert_chain(f"{self.certs}/client.pem", f"{self.certs}/client.key")
            self.assertNotIn("the-secret", m.page("/sessionz", "https", context=open_to_all))
            open_to_all.load_cert_chain(f"{self.certs}/admin.pem", f"{self.certs}/admin.key")
            self.assertIn("the-secret", m.page("/sessionz", "https", context=open_to_all))
            told, _ = self.expect(0, "tfctl", "status", "--admin", https, *self.tls("client"))
            self.assertIn("INVALID_ARGUMENT in node parsed", told)
            self.assertNotIn("the-secret", told)
            told, _ = self.expect(0, "tfctl", "status", "--admin", f"unix:{path}")
            self.assertIn("INVALID_ARGUMENT: From /job:ps/", told)  # its first line
        for process in (tunnel, m.process, worker.process):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.wait_for_exit(process), 0)


class TestRefusals(TlsCase):
    jobs = {"ps": 6}

    @sanitized_too
    def test_tasks_that_are_not_who_they_should_be(self):
        others, short = self.path("others"), self.path("short")
        self.make_certs(others)
        os.mkdir(short)
        for name in ("ca.pem", "ca.key"):
            os.link(f"{self.certs}/{name}", f"{short}/{name}")
        self.make_certs(short, lifetime="1s")
        clear = []
        self.daemons = [self.worker("ps-0"), self.worker("ps-1", tls=self.tls("ps-0")),
                        self.worker("ps-2", tls=self.tls("ps-2", short)),
                        self.worker("ps-3", tls=self.tls("ps-3", others)),
                        self.worker("ps-4", tls=clear), self.worker("ps-5", tls=self.tls("master"))]
        while subprocess.run(["openssl", "x509", "-in", f"{short}/ps-2.pem", "-noout", "-checkend",
                              "0"], stdout=subprocess.DEVNULL).returncode == 0:
            pass  # until it has expired
        self.m = self.master()
        text = self.m.page_until("/readyz", "not for millrace://default/job/ps/task/1",
                                 "certificate has expired", "does not vouch", "does it speak TLS",
                                 "not for millrace://default/job/ps/task/5")
        self.assertNotIn("/task:0 at",
                         self.m.page_until("/readyz", "missing tasks: /job:ps/replica:0/task:1 at"))
        self.assertIn("is for URI:millrace://default/job/ps/task/0", text)
        self.assertIn("signed by /CN=Millrace default", text)
        for daemon in (*self.daemons, self.m):
            self.assertEqual(daemon.ends(), 0, daemon.log.text)

    def test_a_master_in_the_clear(self):
        self.daemons = [self.worker(name) for name in self.ports]
        self.m = self.master(tls=[], client_ca=False)
        self.m.page_until("/readyz", "wants TLS")
        self.daemons[0].saw("does not speak TLS")
        self.daemons.append(self.m)
        self.stop()

    def test_a_task_that_says_it_is_the_master(self):
        """With a certificate of its own, though."""
        ps = self.worker("ps-0")
        m = self.master(tls=self.tls("ps-1"), client_ca=False)
        ps.saw("says that it is master, but its certificate is for "
               "URI:millrace://default/job/ps/task/1, not for millrace://default/master")
        self.assertEqual((m.ends(), ps.ends()), (0, 0))


class TestClients(TlsCase):
    jobs = {"ps": 1}

    def setUp(self):
        super().setUp()
        self.start()

    @sanitized_too
    def test_who_comes_in(self):
        self.assertIn("/job:ps/replica:0/task:0/device:CPU:0", self.devices())
        self.assertIn("requires a certificate", self.devices(74, cert=False))
        self.assertIn("not for bad.example", self.devices(74, MILLRACE_TLS_NAME="bad.example"))
        self.assertIn("device:CPU:0", self.devices(MILLRACE_TLS_NAME="millrace://default/master"))
        others = self.path("others")
        self.make_certs(others)
        self.assertIn("does not vouch", self.devices(74, ca=f"{others}/ca.pem"))
        self.assertIn("this port speaks TLS",
                      self.devices(70, target=f"grpc://127.0.0.1:{self.m.port}"))
        self.assertIn("/nothing.pem: No such file", self.devices(70, ca="/nothing.pem"))
        self.assertIn("does not speak h2",
                      self.devices(74, target=f"grpcs://127.0.0.1:{self.tasks[0].port}"))
        self.stop()

    def test_other_clients_of_grpc(self):
        grpc, port = raw.grpc, self.m.port

        def read(name):
            with open(f"{self.certs}/{name}", "rb") as f:
                return f.read()

        def ask(channel):
            with channel:
                return channel.unary_unary("/tensorflow.MasterService/ListDevices")(
                    b"", timeout=DEADLINE_S)

        good = grpc.ssl_channel_credentials(read("ca.pem"), read("client.key"), read("client.pem"))
        self.assertIn(b"device:CPU:0", ask(grpc.secure_channel(f"localhost:{port}", good)))
        with self.assertRaises(grpc.RpcError) as caught:
            ask(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.assertIn("this port speaks TLS", caught.exception.details())
        with self.assertRaises(grpc.RpcError):
            ask(grpc.secure_channel(f"localhost:{port}",
                                    grpc.ssl_channel_credentials(read("ca.pem"))))
        self.stop()

    def test_broken_files_change_nothing(self):
        with open(f"{self.certs}/master.pem", "w", encoding="utf-8") as f:
            f.write("broken")
        self.m.process.send_signal(signal.SIGHUP)
        self.m.saw("the old ones stay")
        self.assertIn("master.pem", self.m.status()["tls"]["wire"]["reload_error"])
        self.assertEqual(self.m.metric("millrace_tls_reload_failures_total"), 1)
        self.assertIn("device:CPU:0", self.devices())
        self.make_certs()
        self.m.process.send_signal(signal.SIGHUP)
        self.m.saw("TLS files were read again")
        self.assertIsNone(self.m.status()["tls"]["wire"]["reload_error"])
        self.stop()

    @sanitized_too
    def test_strangers_at_the_ports(self):
        random.seed(7)
        hello = bytes.fromhex("16030100c8010000c40303") + random.randbytes(200)
        openings = [random.randbytes(500), b"\x16\x03\x01" + random.randbytes(300), hello,
                    b"\x15\x03\x03\x00\x02\x02\x28", b"GET / HTTP/1.0\r\n\r\n", b"MRW1" * 20,
                    b"\x16\x03\x01\xff\xff" + bytes(70000), b"\x80\x80" + bytes(200),
                    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12) + random.randbytes(50),
                    b"\x16"]
        held = []
        for port in (self.m.port, self.tasks[0].port):
            for bytes_ in openings * 3:
                s = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
                held.append(s)
                try:
                    s.sendall(bytes_)
                except ConnectionError:
                    pass
        for s in held[::2]:
            s.close()
        self.assertIn("device:CPU:0", self.devices())
        for s in held:
            s.close()
        self.assertGreater(self.m.metric("millrace_tls_handshake_failures_total"), 10)
        self.stop()


class TestMisdirected(TlsCase):
    """TensorFlow's habit is to dial a worker. Its client waits for ever where a port only closes
    the connection, so each port answers it in words."""
    jobs = {"worker": 1}

    def dial(self, *daemons):
        """The error of TensorFlow's client at each port: of (wire, admin) of each daemon."""
        targets = [f"grpc://127.0.0.1:{port}" for daemon in daemons
                   for port in (daemon.port, daemon.admin)]
        process = self.popen([WARM_PYTHON, DIAL, *targets])
        out, err = process.communicate(timeout=DEADLINE_S)
        lines = out.decode().splitlines()
        self.assertEqual(len(lines), len(targets), err.decode())
        return lines

    def check(self, master, worker, known):
        wire, admin = self.dial(worker)
        to_master = f"dial the master at {known}, " if known else "dial the master's port, "
        end = f"{to_master}or start this worker with --client-port"
        self.assertIn("FailedPreconditionError", wire)
        self.assertIn("this is a worker's port, where /job:worker/replica:0/task:0 listens for the "
                      f"master and other tasks: {end}", wire)
        self.assertIn(f"this is the admin port of /job:worker/replica:0/task:0, which serves HTTP "
                      f"pages, not sessions: {end}", admin)
        if not master:
            return
        own, admin = self.dial(master)
        self.assertIn("FailedPreconditionError", admin)
        self.assertIn("this is the admin port of tf-master, which serves HTTP pages, not sessions: "
                      f"dial its port {master.port}", admin)
        return own

    def test_ports_in_the_clear(self):
        worker = self.worker("worker-0", tls=())
        self.check(None, worker, None)
        master = self.master(tls=(), client_ca=False)
        master.page_until("/readyz", "ok")
        self.assertEqual(self.check(master, worker, f"127.0.0.1:{master.port}"), "ran 2.0")

    def test_ports_with_tls(self):
        worker = self.worker("worker-0", "--tls-admin")
        self.check(None, worker, None)
        master = self.master("--tls-admin")
        master.saw("is ready")
        own = self.check(master, worker, f"127.0.0.1:{master.port}")
        self.assertIn("UnauthenticatedError this port speaks TLS", own.replace(
            "Graph execution error: ", ""))

    def test_a_master_on_all_addresses(self):
        """Its host is the one that the worker sees."""
        worker = self.worker("worker-0", tls=())
        master = Daemon(self, "tf-master", "--listen", "0.0.0.0:0", "--insecure", "--cluster",
                        self.spec)
        master.page_until("/readyz", "ok")
        self.assertIn(f"dial the master at 127.0.0.1:{master.port}, ", self.dial(worker)[0])


class TestTunnel(TlsCase):
    jobs = {"ps": 1}

    def test_a_tunnel_to_nobody_says_so(self):
        port, = free_ports(1)
        tunnel, target = self.tunnel(port, "--wait", "100ms")
        out, err = self.expect(74, "tfctl", "devices", "--target", target)
        self.assertIn(f"connect to 127.0.0.1:{port}: Connection refused", err)
        tunnel.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(tunnel), 0)

    def test_the_tunnel_tells_what_is_wrong_with_the_certificate(self):
        self.start()
        tunnel, target = self.tunnel(self.m.port, "--tls-name", "millrace://other/master")
        out, err = self.expect(70, "tfctl", "devices", "--target", target)
        self.assertIn("not for millrace://other/master", err)
        tunnel.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(tunnel), 0)
        self.stop()

    def test_the_tunnel_tells_that_it_needs_a_certificate(self):
        """With TLS 1.3 a client learns of it only after its own half of the handshake."""
        self.start()
        process = self.popen([program("tfctl"), "tunnel", f"127.0.0.1:{self.m.port}", "--tls-ca",
                              f"{self.certs}/ca.pem"])
        target = LineReader(process.stdout).line()
        for _ in range(5):
            out, err = self.expect(70, "tfctl", "devices", "--target", target)
            self.assertIn("requires a certificate", err)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(process), 0)
        self.stop()

    @sanitized_too
    def test_bytes_both_ways_ends_apart_and_slow_readers(self):
        """Against a TLS server that echoes, so that every byte can be counted."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.certs}/master.pem", f"{self.certs}/master.key")
        listener = socket.create_server(("127.0.0.1", 0))

        def echo(connection):
            with context.wrap_socket(connection, server_side=True) as s:
                s.sendall(b"hello ")  # as HTTP/2 servers do: before it nothing goes over
                while part := s.recv(65536):
                    s.sendall(part)
                s.sendall(b"the end")

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        tunnel, target = self.tunnel(listener.getsockname()[1])
        port = int(target.rsplit(":", 1)[1])
        data = random.Random(3).randbytes(4 << 20)

        def pass_through(n, results):
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as s:
                sender = threading.Thread(target=lambda: (s.sendall(data[:n]),
                        s.shutdown(socket.SHUT_WR)))
                sender.start()
                got = bytearray()
                while part := s.recv(1 << 16):
                    got += part
                sender.join()
                results.append(bytes(got) == b"hello " + data[:n] + b"the end")

        results = []
        threads = [threading.Thread(target=pass_through, args=(n, results))
                   for n in [0, 1, 16384, 16385, 100_000, 1 << 20, 4 << 20] + [5000] * 20]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, [True] * len(threads))
        tunnel.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(tunnel), 0)
        listener.close()


class TestFlags(TlsCase):
    jobs = {"ps": 1}

    def test_a_wide_address_needs_tls(self):
        wide = ["--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0"]
        out, err = self.expect(78, "tf-worker", "--job", "ps", *wide)
        self.assertIn("give --tls-cert, --tls-key and --tls-ca, or --insecure", err)
        worker = Daemon(self, "tf-worker", "--job", "ps", "--listen", "0.0.0.0:0",
                        *self.tls("ps-0"))
        self.assertEqual(worker.ends(), 0)
        out, err = self.expect(78, "tf-worker", "--job", "ps", "--listen", "127.0.0.1:0", "--admin",
                               "0.0.0.0:0", *self.tls("ps-0"))
        self.assertIn("--tls-admin", err)

    def test_files_that_do_not_go_together(self):
        for flags, part in ((self.tls("ps-0")[:4], "tls-key is missing"),
                            (["--tls-admin"], "works only with tls-cert")):
            out, err = self.expect(78, "tf-worker", "--job", "ps", *flags)
            self.assertIn(part, err)
        bad = [*self.tls("ps-0")[:4], "--tls-key", f"{self.certs}/master.key"]
        out, err = self.expect(74, "tf-worker", "--job", "ps", "--listen", "127.0.0.1:0", *bad)
        self.assertIn("master.key: ", err)

    def test_from_a_file(self):
        path = self.path("millrace.ini")
        with open(path, "w", encoding="utf-8") as f:
            f.write("[worker]\njob = ps\nlisten = 127.0.0.1:0\n"
                    + "".join(f"{k[2:]} = {v}\n" for k, v in zip(*[iter(self.tls("ps-0"))] * 2)))
        worker = Daemon(self, "tf-worker", "--config", path)
        self.assertEqual(worker.status()["tls"]["names"], "URI:millrace://default/job/ps/task/0")
        self.assertEqual(worker.ends(), 0)

    def end_job(self, code, admin, flags=()):
        return self.expect(code, "tfctl", "job", "end", "--admin", admin, *flags)[1]

    @sanitized_too
    def test_who_may_end_the_job(self):
        """With TLS on, only an operator may: by certificate or at the Unix socket."""
        self.tasks = [self.worker("ps-0")]
        path = self.path("admin.sock")
        m = self.master("--tls-admin", "--admin-socket", path)
        https = f"https://127.0.0.1:{m.admin}"
        other = self.path("other")
        self.make_certs(other)
        self.assertIn("HTTP status 403: this page changes something",
                      self.end_job(70, https, self.tls("admin")[:2]))
        for name in ("client", "ps-0"):
            self.assertIn("HTTP status 403", self.end_job(70, https, self.tls(name)))
        self.end_job(74, https, ["--tls-ca", f"{self.certs}/ca.pem",
                                 *self.tls("admin", other)[2:]])
        self.assertTrue(m.page("/livez", "https", context=ssl.create_default_context(
            cafile=f"{self.certs}/ca.pem")))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.end_job(0, f"unix:{path}")
        self.assertEqual(self.wait_for_exit(m.process), 0)
        self.assertEqual(self.wait_for_exit(self.tasks[0].process), 0)

    def test_who_may_drain_a_task(self):
        """Those who may end the job."""
        self.tasks = [self.worker("ps-0")]
        m = self.master("--tls-admin")
        https = f"https://127.0.0.1:{m.admin}"

        def drain(code, name):
            return self.expect(code, "tfctl", "drain", "ps/0", "--admin", https,
                               *self.tls(name))

        for name in ("client", "ps-0"):
            self.assertIn("HTTP status 403: this page changes something", drain(70, name)[1])
        self.assertIn("has left", drain(0, "admin")[0])
        self.assertEqual(self.wait_for_exit(self.tasks[0].process), 0)
        self.assertEqual(m.ends(), 0)

    def test_pages_without_tls_change_nothing(self):
        m = self.master()
        self.assertIn("HTTP status 403: this page changes something",
                      self.end_job(70, f"127.0.0.1:{m.admin}", self.tls("admin")))
        self.assertIn("ok", m.page("/livez"))
        self.assertEqual(m.ends(), 0)

    def test_admin_pages_are_on_loopback_unless_told(self):
        m = Daemon(self, "tf-worker", "--job", "ps", "--listen", "0.0.0.0:0", *self.tls("ps-0"),
                   admin=())
        listening = subprocess.run(["ss", "-Hltn", f"sport = :{m.admin}"], check=True, text=True,
                                   stdout=subprocess.PIPE).stdout.split()[3]
        self.assertEqual(listening, f"127.0.0.1:{m.admin}")
        self.assertEqual(m.ends(), 0)

    @sanitized_too
    def test_pages_over_https(self):
        self.tasks = [self.worker("ps-0")]
        m = self.master("--tls-admin")
        context = ssl.create_default_context(cafile=f"{self.certs}/ca.pem")
        deadline = time.monotonic() + DEADLINE_S
        while "ok" not in m.page("/readyz", "https", context=context):
            self.assertLess(time.monotonic(), deadline)
        for _ in range(20):
            self.assertTrue(json.loads(m.page("/statusz", "https", context=context))["tls"][
                "admin"])
        self.assertIn("millrace_tls_handshakes_total", m.page("/metrics", "https", context=context))
        with self.assertRaises((OSError, http.client.HTTPException)):
            m.page("/livez")
        held = [socket.create_connection(("127.0.0.1", m.admin), DEADLINE_S) for _ in range(3)]
        self.end_job(0, f"https://127.0.0.1:{m.admin}", self.tls("admin"))
        self.assertEqual(self.wait_for_exit(m.process), 0)
        self.assertEqual(self.wait_for_exit(self.tasks[0].process), 0)
        for s in held:
            s.close()


class TestCerts(TlsCase):
    jobs = {"ps": 1}

    def test_what_is_written(self):
        def text(name):
            return subprocess.run(["openssl", "x509", "-in", f"{self.certs}/{name}", "-noout",
                                   "-text"], check=True, stdout=subprocess.PIPE, text=True).stdout

        with open(f"{self.certs}/ca.pem", encoding="utf-8") as f:
            authority = f.read()
        self.make_certs(host="master.example", client="ada")
        with open(f"{self.certs}/ca.pem", encoding="utf-8") as f:
            self.assertEqual(f.read(), authority)
        self.assertIn("DNS:master.example", text("master.pem"))
        self.assertIn("URI:millrace://default/client/ada", text("client-ada.pem"))
        self.assertIn("URI:millrace://default/admin", text("admin.pem"))
        self.assertIn("CA:TRUE", text("ca.pem"))
        for name in ("ca", "master", "ps-0", "client", "admin"):
            self.assertEqual(os.stat(f"{self.certs}/{name}.key").st_mode & 0o777, 0o600)
            subprocess.run(["openssl", "verify", "-CAfile", f"{self.certs}/ca.pem",
                            f"{self.certs}/{name}.pem"], check=True, stdout=subprocess.DEVNULL)

    def test_what_is_refused(self):
        for flags, code in ((["--tasks", "ps"], 64), (["--tasks", "ps=0"], 64),
                            (["--tasks", "../x=1"], 64), (["--host", "a,b"], 64),
                            (["--client", "../x"], 64), (["--cluster-name", "a/b"], 64)):
            self.expect(code, "tfctl", "certs", self.path("new"), *flags)
        self.expect(74, "tfctl", "certs", "/proc/nowhere")


if __name__ == "__main__":
    harness.unittest.main()
