#!/usr/bin/env python3
"""RDMA for real: two tasks, and a cluster of the daemons, on a Soft-RoCE device in a guest
(guest.py). Prints TAP, and ends with "N passed, N failed[, N skipped]".

    tests/rdma/run.py [--build DIR] [--asan-build DIR] [--keep-output] [--long]

What is asserted is correctness: the guest is emulated, so its speed says nothing.
"""
import argparse
import os
import re
import struct
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import guest  # noqa: E402

ROOT = guest.ROOT
TIMEOUT_S = 400  # on a machine that is busy with other things; else it takes a tenth
DT_INT32, DT_INT64 = 3, 9


# ---- the graphs of the cluster's cases: numbers made on the ps, summed on the worker ----

def varint(n):
    out = b""
    while n >= 0x80:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def field(number, data):
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def shape(sizes):
    return b"".join(field(2, field(1, size)) for size in sizes)


def constant(dtype, values, sizes=()):
    content = struct.pack(f"<{len(values)}" + ("q" if dtype == DT_INT64 else "i"), *values)
    # AttrValue.tensor
    return field(8, field(1, dtype) + field(2, shape(sizes)) + field(4, content))


def scalar(dtype, value):
    return constant(dtype, [value])


def node(name, op, inputs=(), device="", **attrs):
    out = field(1, name) + field(2, op) + b"".join(field(3, i) for i in inputs) + field(4, device)
    for key, value in attrs.items():
        out += field(5, field(1, key) + field(2, value))
    return field(1, out)


def type_attr(dtype):
    return field(6, dtype)


def sum_graph():
    ps, worker = "/job:ps/task:0", "/job:worker/task:0"
    return (node("n", "Placeholder", dtype=type_attr(DT_INT64), shape=field(7, b"")) +
            node("zero", "Const", device=ps, dtype=type_attr(DT_INT64), value=scalar(DT_INT64, 0)) +
            node("one", "Const", device=ps, dtype=type_attr(DT_INT64), value=scalar(DT_INT64, 1)) +
            node("range", "Range", ["zero", "n", "one"], ps, Tidx=type_attr(DT_INT64)) +
            node("axis", "Const", device=worker, dtype=type_attr(DT_INT32),
                 value=scalar(DT_INT32, 0)) +
            node("sum", "Sum", ["range", "axis"], worker, T=type_attr(DT_INT64),
                 Tidx=type_attr(DT_INT32), keep_dims=field(5, 0)) +
            field(4, field(1, 2474)))


def tile_graph():
    """Of known shape, if x has the two elements that are said of it: 16 MB, which the worker can
    grant ahead."""
    ps, worker = "/job:ps/task:0", "/job:worker/task:0"
    return (node("x", "Placeholder", device=ps, dtype=type_attr(DT_INT64),
                 shape=field(7, shape([2]))) +
            node("times", "Const", device=ps, dtype=type_attr(DT_INT32),
                 value=constant(DT_INT32, [1 << 20], [1])) +
            node("tile", "Tile", ["x", "times"], ps, T=type_attr(DT_INT64),
                 Tmultiples=type_attr(DT_INT32)) +
            node("axis", "Const", device=worker, dtype=type_attr(DT_INT32),
                 value=scalar(DT_INT32, 0)) +
            node("sum", "Sum", ["tile", "axis"], worker, T=type_attr(DT_INT64),
                 Tidx=type_attr(DT_INT32), keep_dims=field(5, 0)) +
            field(4, field(1, 2474)))


# ---- the cases ----

CASES = [
    ("keys", "a wrong key, too many bytes and a place that was withdrawn are refused by the device",
     "./rdma_tasks keys"),
    ("values-4096", "64 MB both ways, MTU 4096",
     "set_mtu 4200; ./rdma_tasks values 64 && saw '\"mtu\":4096'"),
    ("values-1024", "16 MB both ways, MTU 1024",
     "set_mtu 1500; ./rdma_tasks values 16 && saw '\"mtu\":1024'; rc=$?; set_mtu 4200; return $rc"),
    ("kill", "the other task is killed while four values of 16 MB are under way, in each direction",
     "./rdma_tasks kill 16"),
    ("cut", "the network of the device goes away: the value comes over TCP", "./rdma_tasks cut 4"),
    ("refused", "the other task has RDMA switched off: the value comes over TCP",
     "./rdma_tasks refused 4"),
    ("required", "the same where it is required: an error that says so", "./rdma_tasks required"),
    ("cluster", "a step of the daemons moves 32 MB from ps to worker by RDMA", """
        start_cluster --rdma=require --rdma=require
        check_sum 4194304 && check_sum 4194304 && page 12300 '"transport":"rdma"' &&
        page 12300 '"received":2,"received_bytes":67108864' &&
        page 12400 '"written":2,"written_bytes":67108864,"received":0' &&
        page 12400 '"device":"rxe0"'"""),
    ("cluster-ahead",
     "values of known shape are written to pre-granted slots; another shape is announced", """
        start_cluster --rdma=require --rdma=require
        check_tile 2 1,2 3 && check_tile 2 1,2 3 && check_tile 2 1,2 3 &&
        page 12300 '"received":3,"received_bytes":50331648' &&
        page 12300 '"pregrants":{"grants":2,"from_prepared":1,"received":2,"sent":0,"ended":0' &&
        page 12400 '"sent":2' &&
        says 12300/metrics 'millrace_worker_pregranted_received_total 2' &&
        says 12400/metrics 'millrace_worker_pregranted_sent_total 2' &&
        check_tile 3 1,2,3 6 &&
        page 12300 '"pregrants":{"grants":3,"from_prepared":2,"received":2,"sent":0,"ended":1' &&
        page 12300 '"received":4,"received_bytes":75497472,"tcp_instead":0' && check_tile 2 1,2 3 &&
        page 12300 '"received":3,'"""),
    ("cluster-prefer", "a ps without RDMA serves a worker that prefers it", """
        start_cluster --rdma=off --rdma=prefer
        check_sum 1048576 && page 12300 '"transport":"tcp"' &&
        page 12300 '"to":"it says: switched off"'"""),
    ("cluster-require", "and one that requires it says why it cannot", """
        start_cluster --rdma=off --rdma=require
        ! check_sum 1048576 && saw 'FAILED_PRECONDITION' &&
        saw 'RDMA is required here (--rdma=require), but '"""),
    ("no-device", "a task that requires a device that is not there does not start", """
        ! ./tf-worker --listen 127.0.0.1:0 --rdma=require --rdma-device nothing0 &&
        saw 'this host has no RDMA device nothing0 that serves'"""),
]
SANITIZED = [
    ("asan-keys", "AddressSanitizer: keys", "./rdma_tasks_asan keys"),
    ("asan-values", "AddressSanitizer: 4 MB both ways", "./rdma_tasks_asan values 4"),
    ("asan-kill", "AddressSanitizer: killed while values are under way",
     "./rdma_tasks_asan kill 8"),
    ("asan-cut", "AddressSanitizer: the network goes away", "./rdma_tasks_asan cut 2"),
]

SCRIPT = r"""
log=/tmp/log
n=0
saw() { grep -qF "$1" $log || { echo "it did not say: $1"; return 1; }; }
set_mtu() { ip link set dummy0 mtu $1; }
start_cluster() {
    ./tf-worker --job ps --task 0 --listen 127.0.0.1:2400 --unix=off --shm=off --threads 1 $1 \
        > /tmp/ps.log 2>&1 &
    ./tf-worker --job worker --task 0 --listen 127.0.0.1:2300 --unix=off --shm=off --threads 1 $2 \
        > /tmp/worker.log 2>&1 &
    ./tf-master --listen 127.0.0.1:2222 --cluster 'ps=127.0.0.1:2400,worker=127.0.0.1:2300' \
        --task-wait 100s > /tmp/master.log 2>&1 &
    pids=$(jobs -p)
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        wget -qO /dev/null http://127.0.0.1:12222/livez && return 0
        sleep 0.5
    done
}
stop_cluster() {
    [ -z "$pids" ] || kill -9 $pids
    wait
    pids=
}
check_sum() {
    ./tfctl run sum.pb --target grpc://127.0.0.1:2222 --timeout 100s \
        --feed "n=int64[]{$1}" --fetch sum | tee /tmp/sum &&
    grep -qF "{$(($1 * ($1 - 1) / 2))}" /tmp/sum; }
check_tile() {
    ./tfctl run tile.pb --target grpc://127.0.0.1:2222 --timeout 100s \
        --feed "x=int64[$1]{$2}" --fetch sum | tee /tmp/sum &&
    grep -qF "{$(($3 * 1048576))}" /tmp/sum; }
says() {
    wget -qO- http://127.0.0.1:$1 | tee /tmp/page | grep -qF "$2" ||
        { echo "page $1 does not say: $2"; cat /tmp/page; return 1; }
}
page() { says $1/statusz "$2"; }
run_case() {
    n=$((n + 1))
    pids=
    "case_$n" > $log 2>&1
    rc=$?
    stop_cluster 2> /dev/null
    if [ $rc = 0 ]; then echo "ok $n - $1"; else
        echo "not ok $n - $1"
        cat $log /tmp/*.log 2> /dev/null | sed 's/^/# /'
    fi
    [ -z "$KEEP" ] || sed 's/^/# /' $log
    rm -f /tmp/*.log
    echo "# at $(cut -d' ' -f1 /proc/uptime) s"
}
"""


def make_script(cases, keep):
    script = ("export ASAN_OPTIONS=detect_leaks=1:intercept_tls_get_addr=0 "
              "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1\n" + SCRIPT)
    script += f"KEEP={'1' if keep else ''}\n"
    for i, (_, _, command) in enumerate(cases, 1):
        script += f"case_{i}() {{\n{command}\n}}\n"
    script += f"echo 1..{len(cases)}\n"
    script += "".join(f"run_case '{what}'\n" for _, what, _ in cases)
    return script


def run_guest(options, work):
    binaries = os.path.join(options.build, "bin")
    files = {"rdma_tasks": os.path.join(options.build, "tests", "rdma", "rdma_tasks")}
    files.update({name: os.path.join(binaries, name)
                  for name in ("tf-worker", "tf-master", "tfctl")})
    for name, graph in (("sum.pb", sum_graph()), ("tile.pb", tile_graph())):
        files[name] = os.path.join(work, name)
        with open(files[name], "wb") as out:
            out.write(graph)
    cases = list(CASES)
    if options.asan_build:
        files["rdma_tasks_asan"] = os.path.join(options.asan_build, "tests", "rdma", "rdma_tasks")
        cases += SANITIZED
    if options.only:
        cases = [case for case in cases if case[0] in options.only.split(",")]
    status, output, console = guest.run(files, make_script(cases, options.keep_output), TIMEOUT_S,
                                        1536)
    print(output, end="", flush=True)
    passed, failed = len(re.findall(r"^ok \d", output, re.M)), len(
        re.findall(r"^not ok \d", output, re.M))
    if status is None or passed + failed != len(cases):
        print("# the guest did not come to an end; its console:\n"
              + "\n".join("# " + line for line in console.splitlines()[-40:]))
        failed = max(failed, len(cases) - passed)
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--asan-build", help="where there is one: its test program runs, too")
    parser.add_argument("--keep-output", action="store_true", help="show what every case says")
    parser.add_argument("--only", help="cases, joined by commas")
    parser.add_argument("--long", action="store_true", help="nothing more than without")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="millrace-rdma-") as work:
            passed, failed = run_guest(options, work)
    except guest.Unavailable as why:
        print(f"1..0 # SKIP no guest: {why}")
        print(f"0 passed, 0 failed, {len(CASES)} skipped")
        return 0
    print(f"# {time.monotonic() - started:.1f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
