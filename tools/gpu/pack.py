"""The half of tools/gpu_run that runs where TensorFlow is: writes a folder with all that the other
half needs.

    pack.py FOLDER [--sample N] [--small] [--families NAME,NAME] [--share K/N]

    FOLDER/gpu_run, gpu/       the half that runs where the GPU is
           payload.tar.xz      bin/ and lib/: the programs, and what they link except the C
                               library
           cases/FAMILY.xz     the differential cases with an op that a GPU computes: graph, feeds,
                               and what TensorFlow's CPU answers; FAMILY-first.xz: convolutions
                               with channels first
           graphs/NAME.pb      the graphs that are timed (graphs.py)
           pack.json           what is in it
"""
import argparse
import glob
import importlib
import json
import lzma
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "differential")]

import oracle  # noqa: E402: before TensorFlow, whose oneDNN it switches off
import channels_first  # noqa: E402
import graphs  # noqa: E402
import op_report  # noqa: E402
import replay  # noqa: E402
import tensorflow as tf  # noqa: E402

MAX_BYTES = 64 << 20
MAX_CASE_BYTES = 1 << 18  # a case that takes more is left out, and counted
SCRATCH = os.path.join(tempfile.gettempdir(), "millrace-cases").encode()  # files of this machine
PROGRAMS = ("bin/tf-master", "bin/tf-worker", "bin/tfctl", "tests/tools/graph_eval",
            "bench/gpu_rates", "bench/gpu_steps")
PLUGIN = "kernels/cuda/millrace-cuda.so"
# Of the ops that one line of a list may stand for.
SUFFIXES = ("", "Grad", "V2", "V3", "GradV2", "GradV3")
# What every machine with the same or a newer C library has.
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux.*|linux-vdso)\.so")


def gpu_ops():
    """The ops whose elements a GPU computes. implementations.inc itself lists those that touch no
    element, and includes the files of the others."""
    ops = set()
    for path in glob.glob(os.path.join(ROOT, "kernels", "cuda", "rows", "*.inc")):
        if os.path.basename(path) == "implementations.inc":
            continue
        with open(path, encoding="utf-8") as file:
            found = set(re.findall(r'^\w+\("(\w+)"', file.read(), re.M))
        ops |= {op + suffix for op in found for suffix in SUFFIXES}
    return ops


# ---- programs ----

def stripped(path, folder):
    """A copy without debugging symbols."""
    copy = os.path.join(folder, os.path.basename(path))
    subprocess.run(["strip", "-o", copy, path], check=True)
    return copy


def pack_programs(folder):
    """Programs share most of their code, so they are compressed together."""
    libraries = set()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(
            os.path.join(folder, "payload.tar.xz"), "w:xz", preset=9) as payload:
        for program in (*PROGRAMS, PLUGIN):
            path = os.path.join(BUILD, program)
            target = "lib/millrace" if program == PLUGIN else "bin"
            payload.add(stripped(path, scratch), f"{target}/{os.path.basename(path)}")
            listing = subprocess.run(["ldd", path], check=True, stdout=subprocess.PIPE, text=True)
            libraries.update(found for found in re.findall(r"^\s*(\S+) => (/\S+)", listing.stdout,
                                                           re.M)
                             if not SYSTEM_LIBRARIES.match(found[0]))
        for name, library in sorted(libraries):
            payload.add(os.path.realpath(library), "lib/" + name)
    shutil.copy(os.path.join(ROOT, "tools", "gpu_run"), folder)
    os.makedirs(os.path.join(folder, "gpu"))
    shutil.copy(os.path.join(ROOT, "tests", "differential", "evaluator.py"),
                os.path.join(folder, "gpu"))
    for name in ("replay", "measure", "programs", "pack_folder", "beside_torch", "torch_networks",
                 "report"):
        shutil.copy(os.path.join(HERE, name + ".py"), os.path.join(folder, "gpu"))


# ---- cases ----

def value_of(array, dtype):
    """(dtype, shape, bytes), or a list of bytes for strings."""
    if dtype == tf.string:
        array = oracle.numpy.asarray(array, object)
        return "string", list(array.shape), [
            x.encode() if isinstance(x, str) else bytes(x) for x in array.ravel()]
    array = oracle.numpy.asarray(array)
    return dtype.name, list(array.shape), array.astype(dtype.as_numpy_dtype).tobytes()


def expected_step(name, step, result):
    code, message, values = result
    if code:
        return {"code": code, "unchecked": oracle.is_unchecked_on_gpu(name, message)}
    return {"code": 0, "values": [value_of(value, fetch.dtype.base_dtype)
                                  for fetch, value in zip(step.fetches, values)]}


def pack_case(name, build, options, ops):
    """The case as the other half wants it; None if nothing of it is for a GPU, or if it reads files
    of this machine."""
    mode = options.get("modes", ("static",))[0]
    try:
        graph, steps = oracle._build(build, mode)
    except (ValueError, tf.errors.OpError):
        return None
    graphdef = graph.as_graph_def()
    nodes = [*graphdef.node, *(n for f in graphdef.library.function for n in f.node_def)]
    if not any(node.op in ops for node in nodes):
        return None
    serialized, wire = graphdef.SerializeToString(), oracle._wire_steps(steps)
    if SCRATCH in serialized or any(SCRATCH in feed for feeds, _, _ in wire
                                    for feed in feeds.values()):
        return None
    results = oracle._run_tensorflow(graph, steps)
    kept = {key: options[key] for key in ("rtol", "atol", "bits", "to_largest", "ignore",
                                          "explained") if key in options}
    if op_report.is_rounded_on_gpu(name):
        kept.pop("rtol", None)
        kept.pop("atol", None)
    reason = op_report.gpu_reason(name)
    if reason:
        kept["explained"] = reason
    return {"name": name, "graph": serialized, "steps": wire, "options": kept,
            "expected": [expected_step(name, *pair) for pair in zip(steps, results)]}


def case_size(case):
    values = [value[2] for step in case["expected"] for value in step.get("values", ())]
    return len(case["graph"]) + sum(len(value) for value in values) + sum(
        len(feed) for feeds, _, _ in case["steps"] for feed in feeds.values())


FIRST_STRIDE = 5  # of the convolutions that come with channels first, too


def pack_channels_first(path):
    """The same for some convolutions of a family with channels first. Returns their number."""
    first = path.replace(".xz", "-first.xz")
    turned = [case for case in map(channels_first.channels_first, replay.cases_of(path)) if case]
    turned = turned[::FIRST_STRIDE]
    if turned:
        with lzma.open(first, "wb", preset=6) as file:
            for case in turned:
                pickle.dump(case, file, protocol=4)
    return len(turned)


def pack_family(path, family, ops, sample, share):
    """Returns how many cases are packed, and how many are too large."""
    listed = [case if len(case) == 3 else (*case, {})
              for case in importlib.import_module(family).cases()]
    listed = listed[share[0] - 1::share[1]]
    if sample:
        random.Random(family).shuffle(listed)
    n = n_large = 0
    with lzma.open(path, "wb", preset=6) as file:
        for case in listed:
            packed = pack_case(*case, ops)
            if packed and case_size(packed) > MAX_CASE_BYTES:
                n_large += 1
            elif packed:
                pickle.dump(packed, file, protocol=4)
                n += 1
            if sample and n == sample:
                break
    if not n:
        os.remove(path)
    return n, n_large


def families(wanted):
    found = sorted(os.path.basename(path)[:-3] for path in glob.glob(
        os.path.join(ROOT, "tests", "differential", "cases_*.py")))
    return [name for name in found if not wanted or name[len("cases_"):] in wanted]


def folder_size(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder)
               for name in names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--sample", type=int, help="at most this many cases of each family")
    parser.add_argument("--small", action="store_true", help="small graphs, for a simulated device")
    parser.add_argument("--families", help="names without cases_, joined by commas")
    parser.add_argument("--share", default="1/1", metavar="K/N",
                        help="every Nth case from the Kth on: N packs have all")
    options = parser.parse_args()
    share = [int(number) for number in options.share.split("/")]
    shutil.rmtree(options.folder, ignore_errors=True)
    os.makedirs(os.path.join(options.folder, "cases"))
    os.makedirs(os.path.join(options.folder, "graphs"))
    pack_programs(options.folder)
    manifest = {"graphs": graphs.write(os.path.join(options.folder, "graphs"), options.small),
                "small": options.small, "sample": options.sample, "cases": {}, "too_large": {}}
    ops = gpu_ops()
    for family in families((options.families or "").split(",") if options.families else None):
        path = os.path.join(options.folder, "cases", family + ".xz")
        n, n_large = pack_family(path, family, ops, options.sample, share)
        if n:
            manifest["cases"][family] = n
            n_first = pack_channels_first(path)
            if n_first:
                manifest["cases"][family + "-first"] = n_first
        if n_large:
            manifest["too_large"][family] = n_large
        print(f"{family}: {n} cases, {n_large} too large", flush=True)
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE).stdout.strip()
    sizes = {part: folder_size(os.path.join(options.folder, part)) for part in ("cases", "graphs")}
    sizes["programs"] = os.path.getsize(os.path.join(options.folder, "payload.tar.xz"))
    with open(os.path.join(options.folder, "pack.json"), "w", encoding="utf-8") as file:
        json.dump({**manifest, "revision": revision, "bytes": sizes}, file, indent=1)
    size = folder_size(options.folder)
    parts = ", ".join(f"{part} {n / 2**20:.1f}" for part, n in sizes.items())
    print(f"{sum(manifest['cases'].values())} cases, {size / 2**20:.1f} MiB ({parts}): "
          f"{options.folder}")
    if size > MAX_BYTES:
        print(f"the pack is larger than {MAX_BYTES >> 20} MiB; use --sample or --families")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
