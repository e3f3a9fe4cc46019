#!/usr/bin/env python3
"""Writes the pages that come from tables: docs/flags.md, docs/metrics.md, docs/ops.md,
docs/gpu-ops.md, docs/paper-map.md, docs/log-events.md and docs/c-api.md.

    tools/gen_docs.py [--build DIR]            write them (DIR: build, or the folder above
    $MILLRACE_BIN)
    tools/gen_docs.py [--build DIR] --check    compare with the committed pages; exit 1 on a
    difference

Flags are what --help prints, and metrics are what started daemons show on /metrics; a metric of the
sources that no daemon shows is an error. Ops are what tests/tools/dump_tables prints. paper_map.py
holds the rows of the paper map, c_api.py those of the C API, and gpu_ops.py the ops that graphs
need most. The programs have to be built. Without them, --check says so and exits with 0.
"""
import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import c_api
import gpu_ops
import op_reasons
import paper_map

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_TIMEOUT_S = 30
HEAD = "<!-- Written by tools/gen_docs.py. -->\n"


class Programs:
    def __init__(self, build):
        self.bin = os.path.join(build, "bin")
        self.dump_tables = os.path.join(build, "tests", "tools", "dump_tables")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_")
                            and k != "TF_CONFIG"}

    def missing(self):
        paths = [os.path.join(self.bin, name) for name in ("tf-master", "tf-worker", "tfctl")] + [
            self.dump_tables]
        return [path for path in paths if not os.access(path, os.X_OK)]

    def output(self, path, *args):
        return subprocess.run([path, *args], env=self.environment, stdout=subprocess.PIPE,
                              check=True, text=True).stdout

    def help(self, name, *args):
        return self.output(os.path.join(self.bin, name), *args, "--help")


# ---- flags ----


def subcommands(programs):
    """The names that `tfctl --help` lists."""
    listing = re.search(r"^Subcommands:\n((?:  .*\n)+)", programs.help("tfctl"), re.M).group(1)
    return re.findall(r"^  (\w+)", listing, re.M)


def write_flags(programs):
    out = [HEAD, "# Flags\n\n",
           "Every flag of a daemon is also a setting of its `--config` file, by the same name "
           "without the dashes.\n"
           "Flags win over the file, the file over the environment (`TF_CONFIG`), and the "
           "environment over the\n"
           "defaults. `--check-config` prints the settings that result, with the origin of each "
           "value.\n\n"
           "A boolean flag is `--name` or `--no-name`; in a file it is `yes` or `no`. BYTES takes "
           "the suffixes K, M, G\n"
           "and T, which are powers of 1024. TIME is a number with `ms`, `s`, `m` or `h`.\n"]
    for page in [("tf-master",), ("tf-worker",), ("tfctl",)] + [
        ("tfctl", name) for name in subcommands(programs)]:
        out.append(f"\n## {' '.join(page)}\n\n```text\n{programs.help(*page)}```\n")
    return "".join(out)


# ---- metrics ----

METRIC_FOLDERS = ("common", "kernels", "rpc", "worker", "master")


class Daemon:
    """A daemon on ports of its own, until the end of a with block."""

    def __init__(self, programs, directory, name, *args):
        self.port_file = os.path.join(tempfile.mkdtemp(dir=directory), "port")
        command = [os.path.join(programs.bin, name), *args, "--listen", "127.0.0.1:0",
                   "--port-file", self.port_file,
                   "--log-level", "error"]
        self.process = subprocess.Popen(command, env=programs.environment,
                                        stderr=subprocess.DEVNULL)
        self.deadline = time.monotonic() + START_TIMEOUT_S
        try:
            self._until(lambda: os.path.exists(self.port_file), f"{name} did not start")
            with open(self.port_file) as f:
                text = f.read()
            self.port = int(text.split()[0])
            self.admin = int(re.search(r"^admin (\d+)$", text, re.M).group(1))
        except BaseException:
            self.end()
            raise

    def _until(self, is_true, complaint):
        while not is_true():
            if self.process.poll() is not None or time.monotonic() > self.deadline:
                raise SystemExit(complaint)
            time.sleep(0.002)

    def page(self, name):
        """The text of an admin page; "" when its status is not 200."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            return opener.open(f"http://127.0.0.1:{self.admin}/{name}",
                               timeout=START_TIMEOUT_S).read().decode()
        except urllib.error.HTTPError:
            return ""

    def wait_until_ready(self):
        self._until(lambda: self.page("readyz"), "a daemon does not become ready")

    def end(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def fetch_metrics(programs, directory):
    """[(program, its /metrics)]: a worker and a master that are connected, with every feature that
    has metrics."""
    subprocess.run([os.path.join(programs.bin, "tfctl"), "certs", directory, "--tasks", "worker=1"],
                   env=programs.environment, stdout=subprocess.DEVNULL, check=True)

    def tls(name):
        return ("--tls-ca", f"{directory}/ca.pem", "--tls-cert", f"{directory}/{name}.pem",
                "--tls-key", f"{directory}/{name}.key")

    etcd = ("--etcd", "http://127.0.0.1:1")  # nobody listens there
    with Daemon(programs, directory, "tf-worker", *tls("worker-0"), *etcd, "--client-port", "0",
                "--master",
                "127.0.0.1:1", "--wire-checksum") as worker, \
            Daemon(programs, directory, "tf-master", *tls("master"), "--wire-checksum", "--cluster",
                   f"worker=127.0.0.1:{worker.port}") as master, \
            Daemon(programs, directory, "tf-master", *etcd) as member:
        master.wait_until_ready()
        return [("tf-master", master.page("metrics") + member.page("metrics")),
                ("tf-worker", worker.page("metrics"))]


def parse_metrics(text):
    """[(name, kind, labels, help)] by name, each name once."""
    rows = {}
    for name, help_text, kind in re.findall(r"^# HELP (\S+) (.*)\n# TYPE \1 (\w+)$", text, re.M):
        labels = dict.fromkeys(re.findall(rf"^{name}\{{(.*)\}} ", text, re.M))
        rows.setdefault(name, (name, kind, [label for label in labels if "le=" not in label],
                               help_text))
    return [rows[name] for name in sorted(rows)]


def registered_metrics():
    """The names of all metrics in the sources."""
    names = set()
    for folder in METRIC_FOLDERS:
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in files:
                if name.endswith((".c", ".h", ".inc")):
                    with open(os.path.join(directory, name), encoding="utf-8") as f:
                        names.update(re.findall(r'"(millrace_[a-z0-9_]+)"', f.read()))
    return names


def write_metrics(programs):
    out = [HEAD, "# Metrics\n\n",
           "`/metrics` on the admin port has the format of Prometheus, and its base units: a name "
           "that ends in\n"
           "`_seconds` counts seconds, a name that ends in `_bytes` or `_bytes_total` counts "
           "bytes. The buckets of\n"
           "histograms are the powers of two from 1 µs to 2^26 µs (67 s). Metrics of a feature "
           "(TLS, etcd, the client\n"
           "port) exist only in a daemon that has the feature switched on.\n"]
    seen = set()
    with tempfile.TemporaryDirectory() as directory:
        pages = fetch_metrics(programs, directory)
    for name, page in pages:
        rows = parse_metrics(page)
        out.append(f"\n## {name}\n\n| metric | kind | labels | what it counts "
                   "|\n|---|---|---|---|\n")
        for metric, kind, labels, help_text in rows:
            seen.add(metric)
            out.append(f"| `{metric}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | "
                       f"{help_text} |\n")
    missing = registered_metrics() - seen
    if missing:
        raise SystemExit(f"no daemon shows {', '.join(sorted(missing))}: switch its feature on in "
                         "fetch_metrics")
    return "".join(out)


# ---- ops ----

FLOATING = ["half", "bfloat16", "float", "double"]
INTEGER = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
QUANTIZED = ["qint8", "quint8", "qint16", "quint16", "qint32"]
FLOAT8 = ["float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz",
          "float8_e5m2fnuz"]
TINY = ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"]
# A set that fits whole is named. The types that are left are spelled out.
SETS = [("number", FLOATING + INTEGER + COMPLEX), ("real", FLOATING + INTEGER),
        ("floating", FLOATING), ("integer", INTEGER),
        ("complex", COMPLEX), ("quantized", QUANTIZED), ("float8", FLOAT8), ("tiny", TINY)]
GRADIENTS = {"none": "none", "function": "yes", "call": "of its function"}


def show_types(types):
    left, words = set(types), []
    for name, members in SETS:
        if left.issuperset(members):
            words.append(f"*{name}*")
            left -= set(members)
    return ", ".join(words + [t for t in types if t in left])


def show_kernels(op, rows):
    """What the CPU rows of one op accept."""
    if not rows:
        return "the master" if gpu_ops.REPLACED.match(op) else "the executor"
    attrs = {tuple(row["types"]) for row in rows}
    if attrs == {()}:
        return "yes"
    # rows that differ in the types of one attr: together
    if len(attrs) == 1 and len(next(iter(attrs))) == 1:
        attr = next(iter(attrs))[0]
        types = [t for row in rows for t in row["types"][attr]]
        rows = [{"types": {attr: list(dict.fromkeys(types))}}]
    shown = ["; ".join(f"{attr}: {show_types(types)}" for attr, types in row["types"].items())
             or "other types" for row in rows]
    return "<br>".join(dict.fromkeys(shown))


def write_ops(programs):
    tables = json.loads(programs.output(programs.dump_tables))
    kernels, gradients = {}, {row["op"]: row["why"] or GRADIENTS[row["kind"]]
                              for row in tables["gradients"]}
    for row in tables["kernels"]:
        kernels.setdefault(row["op"], []).append(row)
    out = [HEAD, "# Ops\n\n",
           f"A step can run {len(tables['ops'])} ops. Every other op of TensorFlow 2.21 is known "
           "by its signature only: a graph\n"
           "may contain it, but a step that needs it fails with UNIMPLEMENTED and the op's "
           "name. The last section says\n"
           "why, op by op.\n\n"
           "**CPU** lists the types that the kernels accept, by type attribute. \"yes\" means that "
           "the op's types are\n"
           "fixed, or that its kernel accepts all of them. \"the executor\" means that the "
           "worker's executor runs the op\n"
           "itself. \"the master\" means that the master replaces the op by what it calls when it "
           "compiles a step.\n\n"
           "**Gradient** is about our own table, which serves TF_AddGradients of the C client and "
           "graphs that ask for\n"
           "SymbolicGradient. TensorFlow's clients differentiate by themselves. \"none\" means "
           "that the op has no\n"
           "derivative. A reason means that asking for it is an error.\n\n"
           "Names of type sets:\n\n| set | types |\n|---|---|\n"]
    out += [f"| *{name}* | {', '.join(members)} |\n" for name, members in SETS]
    for index, family in enumerate(tables["families"]):
        out.append(f"\n## {family}\n\n| op | what it does | CPU | gradient |\n|---|---|---|---|\n")
        for op in sorted((op for op in tables["ops"] if op["family"] == index),
                         key=lambda op: op["name"]):
            summary = op["summary"].replace("|", "\\|")
            gradient = gradients.get(op["name"], "")
            out.append(f"| `{op['name']}` | {summary} | "
                       f"{show_kernels(op['name'], kernels.get(op['name'], []))} | {gradient} |\n")
    return "".join(out + write_reasons({op["name"] for op in tables["ops"]}))


def write_reasons(supported):
    """The ops without a kernel, by tools/op_reasons.py."""
    without = op_reasons.by_reason(set(signatures()) - supported)
    out = ["\n## Ops without a kernel\n\n| why | ops |\n|---|---|\n"]
    for reason, ops in without.items():
        if ops:
            out.append(f"| {reason} | {', '.join(f'`{op}`' for op in ops)} |\n")
    return out


def signatures():
    """The names of the table of signatures."""
    path = os.path.join(ROOT, "common", "signatures", "op_signatures.c")
    with open(path, encoding="utf-8") as f:
        rows = f.read().partition("op_signature_table[] = {")[2]
    return re.findall(r'^    \{"(\w+)", ', rows, re.M)


def write_gpu_ops(programs):
    return HEAD + gpu_ops.page(json.loads(programs.output(programs.dump_tables)), show_types)


# ---- the paper map ----


def write_paper_map(programs):
    tables = json.loads(programs.output(programs.dump_tables))
    helps = {page: programs.help(*page.split()) for page in ("tf-master", "tf-worker", "tfctl")}
    return HEAD + paper_map.page(ROOT, tables, helps)


def write_c_api(programs):
    return HEAD + c_api.page(ROOT)


# ---- the client's copy of the kernels' rows ----


def dtype_numbers():
    """{name of a dtype: its number}"""
    with open(os.path.join(ROOT, "common", "tensor", "dtype.h"), encoding="utf-8") as f:
        return {name.lower(): int(number)
                for name, number in re.findall(r"^    DT_(\w+) = (\d+),$", f.read(), re.M)}


def write_kernel_rows(programs):
    tables, numbers = json.loads(programs.output(programs.dump_tables)), dtype_numbers()
    out = ["/* Written by tools/gen_docs.py. */\n"]
    for device, rows in (("CPU", tables["kernels"]), ("GPU", tables["gpu"])):
        for row in rows:
            types = "".join(f" {attr}={sum(1 << numbers[name] for name in names):x}"
                            for attr, names in sorted(row["types"].items()))
            out.append(f'"{row["op"]} {device}{types}\\n"\n')
    return "".join(out)


# ---- events of the log ----


def write_log_events(programs):
    with open(os.path.join(ROOT, "common", "base", "log_events.inc"), encoding="utf-8") as f:
        text = f.read()
    out = [HEAD, "# Events of the log\n\n",
           "With `--log-format json`, a daemon writes one JSON object a line to stderr, with "
           "`time`, `level`,\n`task`, `event` and `message`. `repeated` is in a line that stands "
           "for this many more, which were\nheld back, and `lost_lines` in the first line after "
           "nobody has read stderr for a while. Alert on\n`event`, which stays the same while "
           "messages change. What a failed CHECK prints before the process\naborts is not "
           "JSON.\n\n"
           "Repeats: *same*, the same text is written once a second; *any*, the event is; *never*, "
           "all lines are\nwritten.\n"]
    row = re.compile(r'EVENT\(\w+, "([\w.]+)", (\w+), (\w+),\s+((?:"[^"]*"\s*)+)\)')
    sections = r"/\* ---- (.*?) ---- \*/\n(.*?)(?=/\* ----|// clang)"
    for heading, rows in re.findall(sections, text, re.S):
        out += [f"\n## {heading[0].upper()}{heading[1:]}\n\n",
                "| event | level | repeats | means |\n|---|---|---|---|\n"]
        out += [f"| `{event}` | {level.lower()} | {repeats.lower()} | "
                f"{''.join(re.findall(chr(34) + '([^' + chr(34) + ']*)' + chr(34), meaning))} |\n"
                for event, level, repeats, meaning in row.findall(rows)]
    return "".join(out)


PAGES = {"docs/flags.md": write_flags, "docs/metrics.md": write_metrics, "docs/ops.md": write_ops,
         "docs/gpu-ops.md": write_gpu_ops, "docs/paper-map.md": write_paper_map,
         "docs/c-api.md": write_c_api,
         "client/kernel_rows.inc": write_kernel_rows, "docs/log-events.md": write_log_events}


def main():
    parser = argparse.ArgumentParser(description="write the pages of docs/ that come from tables")
    default = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip(
        "/")) if "MILLRACE_BIN" in os.environ else os.path.join(ROOT, "build")
    parser.add_argument("--build", default=default, help="the build folder")
    parser.add_argument("--check", action="store_true",
                        help="write nothing; show differences and exit 1 when there are any")
    options = parser.parse_args()
    programs = Programs(options.build)
    missing = programs.missing()
    if missing:
        print(f"gen_docs: not built (tools/dev build): {', '.join(missing)}", file=sys.stderr)
        return 0 if options.check else 74
    n_different = 0
    for path, write in PAGES.items():
        text = write(programs)
        full = os.path.join(ROOT, path)
        old = open(full, encoding="utf-8").read() if os.path.exists(full) else ""
        if options.check and text != old:
            sys.stdout.writelines(list(difflib.unified_diff(old.splitlines(True), text.splitlines(
                True), path, "generated", n=0))[:60])
            n_different += 1
        elif text != old:
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
            print(f"wrote {path}")
    if n_different:
        print("out of date: run tools/dev build, then tools/gen_docs.py")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
