"""The questions of operator_tasks.py that etcd, Ray and TensorFlow's own server answer: each is
started on this host, asked, and ended. What is not installed is left out with a reason."""
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import daemons


class Missing(Exception):
    """It is not installed, or does not start."""


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def ask(what, rounds, env=None):
    """The median of the seconds; a page, or a command that must succeed."""
    took = []
    for _ in range(rounds):
        start = time.monotonic()
        if isinstance(what, str):
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(what, timeout=60).read()
        else:
            done = subprocess.run(what, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                                  timeout=60)
            if done.returncode != 0:
                raise Missing(f"{' '.join(what)}: {done.stdout.decode(errors='replace')[-300:]}")
        took.append(time.monotonic() - start)
    return statistics.median(took)


def show(what):
    return what.split("/", 3)[-1] if isinstance(what, str) else " ".join(
        [os.path.basename(what[0]), *what[1:]])


def wait_for_page(url):
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask(url, 1)
        except OSError:
            if time.monotonic() > deadline:
                raise Missing(f"{url} does not answer") from None


def etcd(rounds):
    if not (shutil.which("etcd") and shutil.which("etcdctl")):
        raise Missing("apt-get install etcd-server etcd-client")
    folder = tempfile.mkdtemp()
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    server = daemons.start(
        ["etcd", "--data-dir", folder, "--listen-client-urls", client, "--advertise-client-urls",
         client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
         "--initial-cluster", f"default={peer}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    env = {**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": client}
    snapshot = os.path.join(folder, "snapshot")
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                ask(f"{client}/health", 1)
                break
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise Missing("etcd does not start") from None
        subprocess.run(["etcdctl", "snapshot", "save", snapshot], env=env, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for question, what in (
                ("is all well?", ["etcdctl", "endpoint", "health"]),
                ("is this daemon ready?", f"{client}/health"),
                ("which tasks are connected, and why not?", ["etcdctl", "member", "list"]),
                ("how busy is it?", ["etcdctl", "endpoint", "status"]),
                ("is the checkpoint whole?", ["etcdctl", "snapshot", "status", snapshot]),
                ("how did it go over time?", f"{client}/metrics")):
            yield question, show(what).replace(snapshot, "FILE"), ask(what, rounds, env)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


def ray(rounds):
    program = os.environ.get("RAY") or shutil.which("ray")
    if not program:
        raise Missing("pip install ray, and RAY=path of the program")
    ports = free_ports(3)
    port, dashboard, metrics = map(str, ports)
    address, pages = f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}"
    temporary = tempfile.mkdtemp(prefix="ray-")
    env = {**os.environ, "RAY_ADDRESS": address, "RAY_USAGE_STATS_ENABLED": "0",
           "PATH": os.path.dirname(program) + ":" + os.environ["PATH"]}  # `ray stack` runs py-spy
    head = daemons.start(
        [program, "start", "--head", "--block", "--port", port, "--num-cpus", "1",
         "--node-ip-address", "127.0.0.1", "--include-dashboard", "true", "--dashboard-host",
         "127.0.0.1", "--dashboard-port", dashboard, "--metrics-export-port", metrics,
         "--min-worker-port", "20000", "--max-worker-port", "20050", "--temp-dir", temporary,
         "--object-store-memory", str(100 << 20)],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while subprocess.run([program, "health-check", "--address", address], env=env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline:
                raise Missing("ray's head does not start")
        wait_for_page(f"{pages}/api/cluster_status")
        wait_for_page(f"http://127.0.0.1:{metrics}/metrics")
        lists = ("--address", pages)
        for question, what in (
                ("is all well?", [program, "status"]),
                ("is this daemon ready?", [program, "health-check", "--address", address]),
                ("which tasks are connected, and why not?", [program, "list", "nodes", *lists]),
                ("which devices are there?", [program, "status", "-v"]),
                ("who uses the cluster?", [program, "list", "jobs", *lists]),
                ("how busy is it?", f"{pages}/nodes?view=summary"),
                ("why does a step not end?", [program, "stack"]),
                ("who holds the memory?", [program, "memory"]),
                ("why was a step slow?", [program, "timeline"]),
                ("how did it go over time?", f"http://127.0.0.1:{metrics}/metrics"),
                ("what happened at night?", [program, "logs", "gcs_server.out"])):
            try:
                seconds = ask(what, rounds, env)
            except Missing as why:
                print(f"{'Ray':11}{question:45} no answer: {' '.join(str(why).split())[-200:]}")
                continue
            yield question, show(what).replace(address, "ADDRESS").replace(pages, "PAGES"), seconds
    finally:
        head.terminate()  # it ends the processes that it has started
        head.wait()
        shutil.rmtree(temporary, ignore_errors=True)


TENSORFLOW = """
import time, tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
server = tf1.train.Server.create_local_server()
with tf1.Session(server.target) as session:
    session.list_devices()
    for _ in range({rounds}):
        start = time.monotonic()
        session.list_devices()
        print("took", time.monotonic() - start)
"""


def tensorflow(rounds, python):
    done = subprocess.run([python, "-c", TENSORFLOW.format(rounds=rounds)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    took = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("took")]
    if not took:
        raise Missing("there is no TensorFlow")
    yield ("which devices are there?", "Session.list_devices, in a program that has a session",
           statistics.median(took))


def run(rounds, python):
    """Prints all rows."""
    for name, rows in (("etcd", etcd(rounds)), ("Ray", ray(rounds)),
                       ("TensorFlow", tensorflow(rounds, python))):
        try:
            for question, command, seconds in rows:
                print(f"{name:11}{question:45} {seconds:7.2f} s   {command}", flush=True)
        except Missing as why:
            print(f"{name:11}skipped: {why}", flush=True)
