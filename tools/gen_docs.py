#!/usr/bin/env python3
"""Writes the references that come from tables: docs/flags.md, docs/metrics.md and docs/ops.md.

    tools/gen_docs.py [--build DIR]            write them (DIR: build, or where $MILLRACE_BIN lies)
    tools/gen_docs.py [--build DIR] --check    compare with what is committed; exit 1 on a difference

Flags are what --help prints, metrics what a started daemon shows on /metrics, ops what tests/tools/dump_tables prints.
The programs must have been built; --check says so and exits 0 when they have not.
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
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUBCOMMANDS = ("local", "devices", "run")
START_TIMEOUT_S = 30
HEAD = "<!-- Written by tools/gen_docs.py. -->\n"


class Programs:
    def __init__(self, build):
        self.bin = os.path.join(build, "bin")
        self.dump_tables = os.path.join(build, "tests", "tools", "dump_tables")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_") and k != "TF_CONFIG"}

    def missing(self):
        paths = [os.path.join(self.bin, name) for name in ("tf-master", "tf-worker", "tfctl")] + [self.dump_tables]
        return [path for path in paths if not os.access(path, os.X_OK)]

    def output(self, path, *args):
        return subprocess.run([path, *args], env=self.environment, stdout=subprocess.PIPE, check=True, text=True).stdout

    def help(self, name, *args):
        return self.output(os.path.join(self.bin, name), *args, "--help")


# ---- flags ----


def write_flags(programs):
    out = [HEAD, "# Flags\n\n",
           "Every flag of a daemon is also a setting of its `--config` file, by the same name without the dashes. Flags win over the file,\n"
           "the file over the environment (`TF_CONFIG`), the environment over the defaults; `--check-config` prints what came out of it and\n"
           "where each value comes from. A boolean is `--name` or `--no-name`, `yes` or `no` in a file. BYTES takes K, M, G and T (powers of\n"
           "1024); TIME is a number with `ms`, `s`, `m` or `h`.\n"]
    pages = [("tf-master",), ("tf-worker",), ("tfctl",)] + [("tfctl", name) for name in SUBCOMMANDS]
    for page in pages:
        out.append(f"\n## {' '.join(page)}\n\n```\n{programs.help(*page)}```\n")
    return "".join(out)


# ---- metrics ----


def fetch_metrics(programs, name, *args):
    """/metrics of a daemon on ports of its own."""
    with tempfile.TemporaryDirectory() as directory:
        port_file = os.path.join(directory, "port")
        command = [os.path.join(programs.bin, name), *args, "--listen", "127.0.0.1:0", "--port-file", port_file, "--log-level", "error"]
        daemon = subprocess.Popen(command, env=programs.environment)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not os.path.exists(port_file):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} did not start")
                time.sleep(0.002)
            with open(port_file) as f:
                port = re.search(r"^admin (\d+)$", f.read(), re.M).group(1)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return opener.open(f"http://127.0.0.1:{port}/metrics", timeout=START_TIMEOUT_S).read().decode()
        finally:
            daemon.kill()
            daemon.wait()


def parse_metrics(text):
    """[(name, kind, labels, help)] in the page's order."""
    rows = []
    for name, help_text, kind in re.findall(r"^# HELP (\S+) (.*)\n# TYPE \1 (\w+)$", text, re.M):
        labels = re.findall(rf"^{name}\{{(.*)\}} ", text, re.M)
        rows.append((name, kind, labels, help_text))
    return rows


def write_metrics(programs):
    out = [HEAD, "# Metrics\n\n",
           "`/metrics` on the admin port speaks Prometheus' text format. A name that ends in `_us` counts microseconds, one in `_bytes_total`\n"
           "bytes; the buckets of histograms are the powers of two from 1 µs to 2^26 µs (67 s).\n"]
    for name, args in (("tf-master", ("--cluster", "worker=127.0.0.1:1")), ("tf-worker", ())):
        out.append(f"\n## {name}\n\n| metric | kind | labels | what it counts |\n|---|---|---|---|\n")
        for metric, kind, labels, help_text in parse_metrics(fetch_metrics(programs, name, *args)):
            out.append(f"| `{metric}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {help_text} |\n")
    return "".join(out)


# ---- ops ----

FLOATING = ["half", "bfloat16", "float", "double"]
INTEGER = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
QUANTIZED = ["qint8", "quint8", "qint16", "quint16", "qint32"]
FLOAT8 = ["float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"]
TINY = ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"]
# The first that fits whole is named; what is left is spelled out.
SETS = [("number", FLOATING + INTEGER + COMPLEX), ("real", FLOATING + INTEGER), ("floating", FLOATING), ("integer", INTEGER),
        ("complex", COMPLEX), ("quantized", QUANTIZED), ("float8", FLOAT8), ("tiny", TINY)]
# Ops without a kernel: the master puts what they mean in their place, or the worker's executor runs them itself.
REPLACED = re.compile(r"(Stateless|Stateful)?(If|While|Case|PartitionedCall)$")
GRADIENTS = {"none": "none", "function": "yes", "later": "later"}


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
        return "the master" if REPLACED.match(op) else "the executor"
    attrs = {tuple(row["types"]) for row in rows}
    if attrs == {()}:
        return "yes"
    if len(attrs) == 1 and len(next(iter(attrs))) == 1:  # rows that differ in the types of one attr: together
        attr = next(iter(attrs))[0]
        types = [t for row in rows for t in row["types"][attr]]
        rows = [{"types": {attr: list(dict.fromkeys(types))}}]
    shown = ["; ".join(f"{attr}: {show_types(types)}" for attr, types in row["types"].items()) or "other types" for row in rows]
    return "<br>".join(dict.fromkeys(shown))


def write_ops(programs):
    tables = json.loads(programs.output(programs.dump_tables))
    kernels, gradients = {}, {row["op"]: row["kind"] for row in tables["gradients"]}
    for row in tables["kernels"]:
        kernels.setdefault(row["op"], []).append(row)
    out = [HEAD, "# Ops\n\n",
           f"The {len(tables['ops'])} ops that a step can run. Every other op of TensorFlow 2.21 is known by its signature: a graph may hold it, and a\n"
           "step that needs it gets UNIMPLEMENTED with its name.\n\n"
           "**CPU**: the types that the kernels take, by type attribute; \"yes\": an op whose types are fixed, or whose kernel takes all of them;\n"
           "\"the executor\": run by the worker's executor itself; \"the master\": replaced by what it calls when a step is compiled.\n"
           "**Gradient**: of the master's own table, for graphs that ask for SymbolicGradient; clients differentiate by themselves and do not\n"
           "need it. \"none\": not differentiable; \"later\": has a derivative whose row is not written yet.\n\n"
           "Names of type sets:\n\n| set | types |\n|---|---|\n"]
    out += [f"| *{name}* | {', '.join(members)} |\n" for name, members in SETS]
    for index, family in enumerate(tables["families"]):
        out.append(f"\n## {family}\n\n| op | what it does | CPU | gradient |\n|---|---|---|---|\n")
        for op in sorted((op for op in tables["ops"] if op["family"] == index), key=lambda op: op["name"]):
            summary = op["summary"].replace("|", "\\|")
            gradient = GRADIENTS.get(gradients.get(op["name"]), "")
            out.append(f"| `{op['name']}` | {summary} | {show_kernels(op['name'], kernels.get(op['name'], []))} | {gradient} |\n")
    return "".join(out)


PAGES = {"docs/flags.md": write_flags, "docs/metrics.md": write_metrics, "docs/ops.md": write_ops}


def main():
    parser = argparse.ArgumentParser(description="write docs/flags.md, docs/metrics.md and docs/ops.md")
    default = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip("/")) if "MILLRACE_BIN" in os.environ else os.path.join(ROOT, "build")
    parser.add_argument("--build", default=default, help="the build folder")
    parser.add_argument("--check", action="store_true", help="write nothing; show differences and exit 1 when there are any")
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
            sys.stdout.writelines(list(difflib.unified_diff(old.splitlines(True), text.splitlines(True), path, "generated", n=0))[:60])
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
