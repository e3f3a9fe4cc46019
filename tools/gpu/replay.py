"""Replays the differential cases of a pack on the GPU, and compares with what TensorFlow's CPU
answered. Needs Python's library and the pack's programs only.

An answer agrees as in tests/differential/oracle.py: integers exactly, floats within the case's
tolerance, failures by code.
"""
import concurrent.futures
import glob
import lzma
import math
import os
import pickle
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for place in (HERE, os.path.join(HERE, "..", "..", "tests", "differential")):
    if os.path.exists(os.path.join(place, "evaluator.py")):
        sys.path.insert(0, place)

from evaluator import Crashed, Evaluator  # noqa: E402

TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-13,
             "complex64": 2e-6, "complex128": 1e-13}
FORMATS = {"float16": "e", "float32": "f", "float64": "d", "complex64": "f", "complex128": "d"}
NUMBERS = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
           8: "complex64", 9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128",
           19: "float16", 22: "uint32", 23: "uint64"}
INTERNAL, UNIMPLEMENTED = 13, 12
CODES_FOR_INTERNAL = (3, 9, 5, 15)  # what we say where TensorFlow says INTERNAL
PROCESSES, MAX_FAILURES = 14, 40
CASE_TIMEOUT_S = 60


# ---- a tensor as protobuf: dtype 1, shape 2 {dim 2 {size 1}}, content 4 ----

def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            size = varint() if tag & 7 == 2 else 8 if tag & 7 == 1 else 4
            yield tag >> 3, data[at:at + size]
            at += size


def parse(proto):
    """(dtype, shape, bytes); for strings the bytes are lengths and characters."""
    dtype, shape, content = None, [], b""
    for number, value in fields(proto):
        if number == 1:
            dtype = NUMBERS.get(value, str(value))
        elif number == 2:
            for field, dim in fields(value):
                if field == 2:
                    sizes = [size for f, size in fields(dim) if f == 1]
                    shape.append(sizes[0] if sizes else 0)
        elif number == 4:
            content = value
    return dtype, shape, content


def strings(content, n):
    at, lengths, values = 0, [], []
    for _ in range(n):
        length = shift = 0
        while True:
            byte = content[at]
            at, length, shift = at + 1, length | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        lengths.append(length)
    for length in lengths:
        values.append(content[at:at + length])
        at += length
    return values


# ---- comparing ----

def floats(dtype, data):
    if dtype == "bfloat16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return struct.unpack(f"<{len(halves)}f", b"".join(struct.pack("<I", h << 16)
                                                         for h in halves))
    code = FORMATS[dtype]
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)


def is_near(a, b, rtol, atol):
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= atol + rtol * abs(b)


def is_near_complex(ours, theirs, i, rtol, atol):
    """Element i, by the distance in the plane; NaN in either part is equal to NaN."""
    parts = (*ours[2 * i:2 * i + 2], *theirs[2 * i:2 * i + 2])
    if all(map(math.isfinite, parts)):
        a, b = complex(*parts[:2]), complex(*parts[2:])
        return abs(a - b) <= atol + rtol * abs(b)
    if any(map(math.isnan, parts)):
        return any(map(math.isnan, parts[:2])) and any(map(math.isnan, parts[2:]))
    return parts[:2] == parts[2:]


def values_differ(own, expected, options):
    """None, or what differs."""
    (dtype, shape, data), (wanted_dtype, wanted_shape, wanted) = own, expected
    if dtype != wanted_dtype or list(shape) != list(wanted_shape):
        return f"{dtype}{shape}, TensorFlow has {wanted_dtype}{wanted_shape}"
    if dtype == "string":
        data = strings(data, len(wanted))
    if data == wanted or options.get("ignore") == "values":
        return None
    if dtype not in TOLERANCE or options.get("bits"):
        return "other bits"
    ours, theirs = floats(dtype, data), floats(dtype, wanted)
    if len(ours) != len(theirs):
        return "other sizes"
    rtol = options.get("rtol", TOLERANCE[dtype])
    atol = options.get("atol", rtol)
    if options.get("to_largest"):
        atol *= max(1, max((abs(x) for x in theirs if math.isfinite(x)), default=0))
    if dtype.startswith("complex"):
        bad = [i for i in range(len(theirs) // 2)
               if not is_near_complex(ours, theirs, i, rtol, atol)]
    else:
        bad = [i for i, (a, b) in enumerate(zip(ours, theirs)) if not is_near(a, b, rtol, atol)]
    return f"{len(bad)} of {len(theirs)}, first {bad[0]}: {ours[bad[0]]!r}, TensorFlow has " \
           f"{theirs[bad[0]]!r}" if bad else None


def step_differs(reply, expected, options):
    """(None or what differs, whether that is a GPU's way)."""
    code, message, protos, _ = reply
    wanted = expected["code"]
    if not code and (wanted == UNIMPLEMENTED or expected.get("unchecked")):
        return "TensorFlow fails", True
    if code != wanted and not (wanted == INTERNAL and code in CODES_FOR_INTERNAL):
        return f"code {code} ({message[:160]}), TensorFlow has {wanted}", False
    for proto, value in zip(protos, expected.get("values", ())):
        difference = values_differ(parse(proto), value, options)
        if difference:
            return difference, False
    return None, False


def replay_case(evaluator, case):
    """(agree, explained or differs, what differs)."""
    watchdog = threading.Timer(CASE_TIMEOUT_S, evaluator.kill)
    watchdog.start()
    try:
        replies = evaluator.run(case["graph"], case["steps"])
    except Crashed as crash:
        return "differs", str(crash)
    finally:
        watchdog.cancel()
    replies += [replies[-1]] * (len(case["expected"]) - len(replies))
    for reply, expected in zip(replies, case["expected"]):
        difference, is_usual = step_differs(reply, expected, case["options"])
        if difference:
            explained = is_usual or "explained" in case["options"]
            return "explained" if explained else "differs", difference
        if expected["code"]:
            break
    return "agree", None


# ---- families ----

def cases_of(path):
    with lzma.open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def replay_share(job):
    """Every PROCESSES-th case of a family. Returns counts and failures."""
    program, path, first, stride, deadline = job
    evaluator = Evaluator(program)
    counts, failures = {"agree": 0, "explained": 0, "differs": 0, "left": 0}, []
    for i, case in enumerate(cases_of(path)):
        if i % stride != first:
            continue
        if time.time() > deadline:
            counts["left"] += 1
            continue
        outcome, difference = replay_case(evaluator, case)
        counts[outcome] += 1
        if outcome == "differs" and len(failures) < MAX_FAILURES:
            failures.append(f"{case['name']}: {difference}")
    evaluator.stop()
    return counts, failures


def replay(folder, n_processes, deadline):
    """All families of a pack, in parallel. {family: {agree, explained, differs, left, failures}}"""
    program = os.path.join(folder, "bin", "graph_eval")
    jobs = [(program, path, first, n_processes, deadline)
            for path in sorted(glob.glob(os.path.join(folder, "cases", "*.xz")))
            for first in range(n_processes)]
    results = {}
    with concurrent.futures.ProcessPoolExecutor(n_processes) as pool:
        for job, (counts, failures) in zip(jobs, pool.map(replay_share, jobs)):
            family = results.setdefault(os.path.basename(job[1])[:-3], {"failures": []})
            for key, n in counts.items():
                family[key] = family.get(key, 0) + n
            family["failures"] += failures
    return results
